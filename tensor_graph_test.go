package cupool

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestHeldMemory: what a graph allocates is used again within it, and by nobody
// else until it is released.
func TestHeldMemory(t *testing.T) {
	c, err := New(Config{})
	require.NoError(t, err)
	defer func() { require.NoError(t, c.Close()) }()
	h := &heldMemory{Allocator: c, from: c}
	outside, err := c.Alloc(4096, nil)
	require.NoError(t, err)
	a, err := h.Alloc(4096, nil)
	require.NoError(t, err)
	require.NoError(t, h.Free(a))
	require.ErrorIs(t, h.Free(a), ErrDoubleFree)
	other, err := c.Alloc(4096, nil)
	require.NoError(t, err)
	require.NotEqual(t, a.Ptr(), other.Ptr(), "it is the graph's")
	again, err := h.Alloc(4096, nil)
	require.NoError(t, err)
	require.Equal(t, a, again)
	require.ErrorIs(t, h.FreePtr(again.Ptr(), 8), ErrSizeMismatch)
	require.NoError(t, h.FreePtr(again.Ptr(), 4096))
	require.NoError(t, h.FreePtr(outside.Ptr(), 4096), "memory from before goes back at once")
	require.NoError(t, h.Free(other))
	require.Equal(t, int64(1), c.Stats().All.Allocation.Current)
	require.NoError(t, h.release())
	require.Zero(t, c.Stats().All.Allocation.Current)
}

// TestCaptureNeedsAGPU: the host device has no graphs.
func TestCaptureNeedsAGPU(t *testing.T) {
	c, err := New(Config{})
	require.NoError(t, err)
	defer func() { require.NoError(t, c.Close()) }()
	e, err := NewEngine(c)
	require.NoError(t, err)
	_, err = e.Capture(func() error { return errors.New("must not be called") })
	require.ErrorIs(t, err, ErrNotSupported)
}
