package refs_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/gorgoniavm/internal/refs"
)

// newBlocks returns no references, and a block of the pool that they are for.
func newBlocks(t *testing.T) (*refs.Blocks, *cupool.Pool, cupool.Block) {
	t.Helper()
	a, err := cupool.New(cupool.Config{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, a.Close()) })
	b, err := a.Alloc(1024, nil)
	require.NoError(t, err)
	return &refs.Blocks{Allocator: a}, a, b
}

// live reports whether a block is live.
func live(a *cupool.Pool, p cupool.Ptr) bool {
	_, err := a.Lookup(p)
	return err == nil
}

// A block goes back with its last reference, wherever in it they lead to.
func TestBlocks(t *testing.T) {
	r, a, b := newBlocks(t)
	p := r.Own(b)
	require.Equal(t, b.Ptr(), p)
	require.True(t, r.Sole(p, b.Size()))
	require.False(t, r.Sole(p, 512), "a part of it")
	require.Equal(t, p, r.Hold(p+512, false))
	require.False(t, r.Sole(p, b.Size()))
	r.Again(p)
	r.Drop(p)
	r.Drop(p)
	require.True(t, live(a, p))
	r.Drop(p)
	require.False(t, live(a, p))
	require.NoError(t, r.Err)
}

// A borrowed block is neither free to overwrite nor freed.
func TestBorrowed(t *testing.T) {
	r, a, b := newBlocks(t)
	p := r.Hold(b.Ptr(), true)
	require.True(t, r.Foreign(p))
	require.False(t, r.Sole(p, b.Size()))
	r.Drop(p)
	require.True(t, live(a, p))
	r.Own(b)
	r.Borrow()
	require.False(t, r.Foreign(p))
	require.False(t, r.Sole(p, b.Size()))
	r.Drop(p)
	require.True(t, live(a, p))
	require.NoError(t, a.Free(b))
}

// No block is no reference.
func TestNoBlock(t *testing.T) {
	r, a, b := newBlocks(t)
	require.Zero(t, r.Hold(cupool.Ptr(8), false), "in Go's heap")
	require.Zero(t, r.Own(cupool.Block{}))
	r.Again(0)
	r.Drop(0)
	require.False(t, r.Sole(0, 0))
	require.NoError(t, a.Free(b))
}

// A clone counts by itself. A block that is free already is no error: a scope may have
// freed it. The first free that fails otherwise is told.
func TestClone(t *testing.T) {
	r, a, b := newBlocks(t)
	p := r.Own(b)
	c, foreign := r.Clone(), r.Clone()
	c.Again(p)
	require.True(t, r.Sole(p, b.Size()))
	r.Drop(p)
	require.False(t, live(a, p))
	c.Drop(p)
	c.Drop(p)
	require.NoError(t, c.Err)
	_, other, _ := newBlocks(t)
	foreign.Allocator = other
	foreign.Drop(p)
	require.ErrorIs(t, foreign.Err, cupool.ErrForeignPointer)
	require.NoError(t, other.Reset())
}

// Addresses without holders do not pile up, and count anew when they come again.
func TestGone(t *testing.T) {
	r, a, b := newBlocks(t)
	p := r.Own(b)
	r.Again(p)
	blocks := make([]cupool.Block, 3*refs.MostGone)
	for i := range blocks {
		var err error
		blocks[i], err = a.Alloc(512, nil)
		require.NoError(t, err)
	}
	for _, b := range blocks {
		r.Drop(r.Own(b))
		require.LessOrEqual(t, r.Addresses(), refs.MostGone+2)
	}
	r.Drop(p)
	require.True(t, r.Sole(p, b.Size()))
	r.Drop(p)
	require.False(t, r.Sole(p, b.Size()))
	require.False(t, live(a, p))
	r.Drop(p)
	r.Again(p)
	require.NoError(t, r.Err, "nothing, without a holder")

	b, err := a.Alloc(b.Size(), nil)
	require.NoError(t, err)
	require.Equal(t, p, b.Ptr())
	require.Equal(t, p, r.Hold(p, true))
	require.True(t, r.Foreign(p))
	r.Drop(p)
	require.False(t, r.Foreign(p))
	require.True(t, live(a, p))
	require.NoError(t, a.Free(b))
}
