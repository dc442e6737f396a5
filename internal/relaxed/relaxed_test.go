package relaxed

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// One writer, guarded by a lock, and readers that see no value that never was.
func TestOwned(t *testing.T) {
	var mu sync.Mutex
	var a Int64
	var b Uint64
	var c Uint32
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 1000 {
				mu.Lock()
				a.AddOwned(3)
				a.SetOwned(a.Load() - 1)
				b.SetOwned(b.Load() + 2)
				c.SetOwned(c.Load() + 2)
				mu.Unlock()
			}
		})
	}
	last := uint64(0)
	for range 10_000 {
		now := b.Load()
		if now < last || now%2 != 0 {
			t.Fatalf("%d after %d", now, last)
		}
		last = now
	}
	wg.Wait()
	require.EqualValues(t, 8000, a.Load())
	require.EqualValues(t, 8000, b.Load())
	require.EqualValues(t, 8000, c.Load())
}
