package model

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
)

// MemFree waits for all work, so that what used memory which is given back is over, on
// devices that make no calls about it, too.
func TestMemFreeEndsWork(t *testing.T) {
	below, err := cupool.Open("host:64MiB")
	require.NoError(t, err)
	defer func() { require.NoError(t, below.Close()) }()
	d := NewDevice(below)
	p, err := d.MemAlloc(1 << 20)
	require.NoError(t, err)
	s, err := d.NewStream()
	require.NoError(t, err)
	require.NoError(t, d.Memset(p, 1, 1<<20, s))
	last := d.lastOf(d.stream(s))
	require.False(t, d.over(last))
	require.NoError(t, d.MemFree(p))
	require.True(t, d.over(last))
	require.NoError(t, d.DestroyStream(s))
}
