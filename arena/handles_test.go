package arena_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/arena"
	"github.com/cupool/cupool/internal/testkit/handletest"
)

// Arenas that are nil or zero, and those over no allocator, are errors.
func TestHandlesOfNothing(t *testing.T) {
	handletest.Receivers(t, (*arena.Arena)(nil), new(arena.Arena))
	for _, a := range []cupool.Allocator{nil, (*cupool.Pool)(nil), new(cupool.Pool)} {
		_, err := arena.New(a, arena.Config{Size: 1 << 20})
		require.Error(t, err)
	}
}
