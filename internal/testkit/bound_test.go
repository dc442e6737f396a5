package testkit

import (
	"testing"

	"github.com/stretchr/testify/require"
)

var sink []byte

func TestRequireAllocates(t *testing.T) {
	f := func() { sink = make([]byte, 1<<20) }
	require.GreaterOrEqual(t, Allocated(f), int64(1<<20))
	RequireAllocates(t, 2<<20, 0, 0, f)
	RequireAllocates(t, 0, 2<<10, 1<<10, f)
}
