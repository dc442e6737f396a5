package graphmem

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool/device"
)

// graph hands out blocks that are their addresses.
type graph struct {
	t *testing.T
	Blocks[device.Ptr]
	next device.Ptr
}

// alloc returns the block, and whether it is one that was freed before.
func (g *graph) alloc(size int64) (p device.Ptr, again bool) {
	if p, _, ok := g.Take(size); ok {
		return p, true
	}
	g.next += 4096
	g.Add(g.next, g.next, size)
	return g.next, false
}

func (g *graph) free(p device.Ptr) { require.True(g.t, g.Free(p)) }

func TestBlocksServeTheSameSize(t *testing.T) {
	g := &graph{t: t}
	_, _, _, ok := g.At(4096)
	require.False(t, ok)
	_, ok = g.Any()
	require.False(t, ok)
	a, _ := g.alloc(512)
	b, _ := g.alloc(512)
	g.free(a)
	require.False(t, g.Free(a), "it is free")
	_, again := g.alloc(1024)
	require.False(t, again)
	g.free(b)
	c, again := g.alloc(512)
	require.True(t, again)
	require.Equal(t, b, c, "the last one that was freed")
	got, use, freed, ok := g.At(a)
	require.True(t, ok)
	require.True(t, freed)
	require.Zero(t, use)
	require.Equal(t, a, got)
	got, ok = g.Any()
	require.True(t, ok)
	require.Contains(t, []device.Ptr{a, b, g.next}, got)
	_, use, freed, _ = g.At(b)
	require.False(t, freed)
	require.EqualValues(t, 1, use, "it was handed out again")
	var dropped []device.Ptr
	failed := errors.New("not dropped")
	drop := func(p device.Ptr) error {
		dropped = append(dropped, p)
		return failed
	}
	require.ErrorIs(t, g.Drop(drop), failed)
	require.Len(t, dropped, 3)
	require.NoError(t, g.Drop(drop))
	require.Len(t, dropped, 3)
	require.False(t, g.Free(a), "it is nobody's")
}

// What was freed since a fork serves forks only, until the join.
func TestBlocksOfForks(t *testing.T) {
	g := &graph{t: t}
	before, _ := g.alloc(512)
	g.Fork()
	inside, _ := g.alloc(512)
	g.free(inside)
	again, reused := g.alloc(512)
	require.True(t, reused, "within the fork")
	require.Equal(t, inside, again)
	g.free(inside)
	g.EndFork()

	g.free(before) // which the fork may still use
	since, reused := g.alloc(512)
	require.False(t, reused, "the fork may still run")
	g.free(since)
	again, reused = g.alloc(512)
	require.True(t, reused, "the fork knows nothing of it")
	require.Equal(t, since, again)

	g.Fork() // after the first one
	again, reused = g.alloc(512)
	require.True(t, reused)
	require.Equal(t, before, again)
	g.EndFork()
	g.Join()
	again, reused = g.alloc(512)
	require.True(t, reused)
	require.Equal(t, inside, again)
}

// What was allocated before a fork began and freed in it waits for the join.
func TestBlocksFreedInAFork(t *testing.T) {
	g := &graph{t: t}
	a, _ := g.alloc(512)
	g.Fork()
	g.free(a)
	g.EndFork()
	_, reused := g.alloc(512)
	require.False(t, reused)
	g.Join()
	b, reused := g.alloc(512)
	require.True(t, reused)
	require.Equal(t, a, b)
}
