package arena_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/adaptor"
	"github.com/cupool/cupool/arena"
)

// An arena over no allocator is an error.
func TestOverNothing(t *testing.T) {
	for _, a := range []cupool.Allocator{nil, (*cupool.Pool)(nil), new(cupool.Pool), (*adaptor.Tracking)(nil), new(adaptor.Tracking)} {
		_, err := arena.New(a, arena.Config{Size: 1 << 20})
		require.Error(t, err)
	}
}
