package cupool

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool/internal/lock"
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
