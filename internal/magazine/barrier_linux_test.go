//go:build linux && amd64 && !race

package magazine

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// refuse has the operating system refuse membarrier from now on, until the end of
// the test.
func refuse(t *testing.T) (asked *atomic.Int64) {
	old := membarrier
	asked = new(atomic.Int64)
	membarrier = func(uintptr) bool { asked.Add(1); return false }
	t.Cleanup(func() { membarrier = old })
	return asked
}

// finishes fails the test when a call does not return.
func finishes(t *testing.T, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() { f(); close(done) }()
	select {
	case <-done:
	case <-time.After(20 * time.Second):
		require.FailNow(t, "the call does not return")
	}
}

// Where membarrier is refused after it worked, goroutines fence for good, and it is
// not asked for any more.
func TestBarrierRefusedLater(t *testing.T) {
	if !hasBarrier() {
		t.Skip("membarrier is refused from the start")
	}
	p := NewProcs()
	require.True(t, p.plain.Load())
	p.close()
	p.open()
	require.True(t, p.plain.Load())
	asked := refuse(t)
	finishes(t, func() { p.close(); p.open() })
	require.False(t, p.plain.Load())
	for i := range p.list {
		require.False(t, p.list[i].plain.Load())
	}
	before := asked.Load()
	finishes(t, func() { p.close(); p.open() })
	require.Equal(t, before, asked.Load(), "it was asked again")
	id := p.enter()
	require.GreaterOrEqual(t, id, 0)
	p.exit(id)
}

// Goroutines that go inside and others that close the processors stay apart while
// membarrier begins to be refused, in each of many turns.
func TestInsideAloneWhileRefused(t *testing.T) {
	if !hasBarrier() {
		t.Skip("membarrier is refused from the start")
	}
	var refused atomic.Bool
	old := membarrier
	membarrier = func(cmd uintptr) bool { return !refused.Load() && old(cmd) }
	t.Cleanup(func() { membarrier = old })
	for range 200 {
		refused.Store(false)
		p := NewProcs()
		var others sync.WaitGroup
		for range 2 {
			others.Go(func() {
				for i := range 20 {
					if i == 10 {
						refused.Store(true)
					}
					p.close()
					p.open()
				}
			})
		}
		insideAlone(t, p, 40)
		finishes(t, others.Wait)
	}
}
