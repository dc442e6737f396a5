package cupool

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool/internal/lock"
	"github.com/cupool/cupool/internal/simdev"
	"github.com/cupool/cupool/internal/testkit"
)

// A change of a published list leaves the lists alone that were read before it.
func TestPublishedChanges(t *testing.T) {
	var l published[int]
	require.Empty(t, l.All())
	require.Zero(t, l.At(3))
	require.True(t, l.Same(l.All()))

	l.Add(1)
	one := l.All()
	l.Set(3, 4)
	require.Equal(t, []int{1}, one)
	require.Equal(t, []int{1, 0, 0, 4}, l.All())
	require.Equal(t, 4, l.At(3))
	require.False(t, l.Same(one))
	require.True(t, l.Same(l.All()))

	four := l.All()
	require.Equal(t, []int{1, 4}, l.Without(func(n int) bool { return n == 0 }))
	l.Set(3, 5)
	require.False(t, l.Same(four), "as long, but changed")
	l.Remove(0)
	require.Equal(t, []int{1, 5}, l.All())
	require.Equal(t, []int{1, 0, 0, 4}, four)
	l.Remove(1)
	l.Remove(5)
	require.Empty(t, l.All())
}

// Readers see each list whole, whoever changes it meanwhile.
func TestPublishedReaders(t *testing.T) {
	var l published[int]
	var readers sync.WaitGroup
	for range 4 {
		readers.Go(func() {
			for len(l.All()) < 100 {
				for i, n := range l.All() {
					if n != i+1 {
						t.Errorf("element %d is %d", i, n)
						return
					}
				}
			}
		})
	}
	for i := range 100 {
		l.Add(i + 1)
	}
	readers.Wait()
}

// A heap that is made while lockAll waits is among those that it locks.
func TestLockAllWaits(t *testing.T) {
	var table heapTable
	table.mu.Init(lock.HeapTable, 1)
	table.mu.Lock()
	locked := make(chan []*streamHeap)
	go func() {
		heaps, unlock := table.lockAll()
		defer unlock()
		locked <- heaps
	}()
	testkit.AwaitLock(t, "lockAll")
	h := &streamHeap{}
	h.mu.Init(lock.Heap, 1)
	table.byIndex.Add(h)
	table.mu.Unlock()
	require.Len(t, <-locked, 1)
}

// A free that waits for the lock of a heap finds the block in another one, which has the index
// of the first by then.
func TestFreeOfAMovedBlock(t *testing.T) {
	c, err := New(Config{Driver: simdev.New(simdev.Config{Capacity: 1 << 30}), MagazineBytes: -1, Backing: BackingSegments})
	require.NoError(t, err)
	s, err := c.NewStream()
	require.NoError(t, err)
	b, err := c.Alloc(4096, s)
	require.NoError(t, err)
	h := c.heaps.of(s)
	h.mu.Lock()
	freed := make(chan error)
	go func() { freed <- c.Free(b) }()
	testkit.AwaitLock(t, "Free")
	next := c.heaps.newHeap(s, int(h.Index()))
	h.moveLocked(next)
	c.heaps.dropLocked(h)
	c.heaps.byIndex.Set(int(next.Index()), next)
	c.heaps.byStream.Set(int(s.slot), next)
	h.mu.Unlock()
	require.NoError(t, <-freed)
	require.NoError(t, c.Check())
	require.ErrorIs(t, c.Free(b), ErrDoubleFree)
	require.NoError(t, c.Close())
}
