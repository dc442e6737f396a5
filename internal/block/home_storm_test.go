package block

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Of two goroutines that take a cached block at the same moment one has it, and of two that
// free it in one generation one does.
func TestOneOfTwo(t *testing.T) {
	const rounds = 20_000
	b := atHome(1)
	var (
		wg   sync.WaitGroup
		come [2 * rounds]atomic.Int32 // who is there
		won  [2 * rounds]atomic.Int32
		late atomic.Bool // this is the last round
	)
	meet := func(at int) { // both go on from here within nanoseconds
		come[at].Add(1)
		for n := 1; come[at].Load() < 2; n++ {
			if n%100 == 0 {
				runtime.Gosched()
			}
		}
	}
	began, done := time.Now(), 0
	for who := range 2 {
		wg.Go(func() {
			for i := 0; i < rounds && !late.Load(); i++ {
				gen := uint64(i + 1)
				meet(2 * i)
				if b.FreeHomed(gen) {
					won[2*i].Add(1)
				}
				if who == 0 && time.Since(began) > time.Second {
					late.Store(true)
				}
				meet(2*i + 1)
				if ok, got := take(b); ok && got == gen+1 {
					won[2*i+1].Add(1)
				}
				if who == 0 {
					done = i + 1
				}
			}
		})
	}
	wg.Wait()
	require.Positive(t, done)
	for i := range 2 * done {
		require.EqualValues(t, 1, won[i].Load(), "meeting %d", i)
	}
}
