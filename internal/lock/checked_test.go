//go:build invariants

package lock

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

func ranked(r Rank, number uint64) *Mutex {
	m := &Mutex{}
	m.Init(r, number)
	return m
}

func TestOrder(t *testing.T) {
	lock := func(ms ...*Mutex) func() {
		return func() {
			for _, m := range ms {
				m.Lock()
				defer m.Unlock()
			}
		}
	}
	device, lending, first, second, leaf := ranked(Device, 0), ranked(Lending, 4), ranked(Heap, 1), ranked(Heap, 2), &Mutex{}
	for name, c := range map[string]struct {
		taken []*Mutex
		wrong string
	}{
		"in order":              {[]*Mutex{device, lending, first, second, leaf}, ""},
		"a leaf alone":          {[]*Mutex{leaf}, ""},
		"out of order":          {[]*Mutex{lending, device}, "lock: Device 0 is taken after Lending 4"},
		"after a higher one":    {[]*Mutex{device, first, lending}, "lock: Lending 4 is taken after Heap 1"},
		"of one rank":           {[]*Mutex{second, first}, "lock: Heap 1 is taken after Heap 2"},
		"of one number":         {[]*Mutex{first, ranked(Heap, 1)}, "lock: Heap 1 is taken after Heap 1"},
		"the same lock":         {[]*Mutex{first, first}, "lock: Heap 1 is taken after Heap 1"},
		"a leaf within another": {[]*Mutex{leaf, {}}, "lock: Leaf 0 is taken after Leaf 0"},
	} {
		t.Run(name, func(t *testing.T) {
			if c.wrong == "" {
				require.NotPanics(t, lock(c.taken...))
			} else {
				require.PanicsWithValue(t, c.wrong, lock(c.taken...))
			}
			require.Empty(t, me().holds)
		})
	}
}

// Locks are given back in any order, and those of other goroutines do not count.
func TestHeld(t *testing.T) {
	a, b := ranked(Closing, 0), ranked(Reclaim, 0)
	a.Lock()
	b.Lock()
	a.Unlock()
	require.PanicsWithValue(t, "lock: Closing 0 is taken after Reclaim 0", a.Lock)
	done := make(chan struct{})
	go func() {
		defer close(done)
		a.Lock()
		a.Unlock()
		require.Panics(t, b.Unlock, "another goroutine holds it")
	}()
	<-done
	b.Unlock()
	a.Lock()
	a.Unlock()
}

// A lock that was tried is taken in any order, and then counts.
func TestTried(t *testing.T) {
	a, b, c := ranked(Lending, 0), ranked(Heap, 0), ranked(HeapTable, 0)
	b.Lock()
	require.True(t, a.TryLock())
	b.Unlock()
	c.Lock()
	require.False(t, c.TryLock())
	c.Unlock()
	a.Unlock()
	require.True(t, b.TryLock())
	require.Panics(t, a.Lock)
	b.Unlock()
}

func TestKinds(t *testing.T) {
	var c Chan
	c.Init(Reclaim, 0)
	var w RWMutex
	w.Init(StreamCalls, 0)
	leaf := &Mutex{}
	for name, m := range map[string]struct{ lock, unlock func() }{
		"Chan": {c.Lock, c.Unlock}, "RWMutex": {w.Lock, w.Unlock}, "RWMutex, shared": {w.RLock, w.RUnlock},
		"LockUntil":          {func() { require.True(t, c.LockUntil(t.Context())) }, c.Unlock},
		"TryLock of a Chan":  {func() { require.True(t, c.TryLock()) }, c.Unlock},
		"TryRLock":           {func() { require.True(t, w.TryRLock()) }, w.RUnlock},
		"TryLock of a Mutex": {func() { require.True(t, leaf.TryLock()) }, leaf.Unlock},
	} {
		t.Run(name, func(t *testing.T) {
			m.lock()
			require.Panics(t, ranked(Closing, 0).Lock)
			m.unlock()
			require.Empty(t, me().holds)
		})
	}
}

// TestGoroutinesInTurn: goroutines that have nothing to do with each other may be known by the
// same number one after the other, which the race detector does not take for a race.
func TestGoroutinesInTurn(t *testing.T) {
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			var own Mutex
			var turn sync.WaitGroup
			for range 1000 {
				turn.Go(func() {
					own.Lock()
					defer own.Unlock()
				})
				turn.Wait()
			}
		})
	}
	all.Wait()
}
