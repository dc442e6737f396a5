package cupool_test

import (
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/snapshot"
)

// The Table has what the statistics of all pools have, and what a Snapshot has.
func TestOOMTable(t *testing.T) {
	backings(t, 256*mib, func(t *testing.T, c *cupool.Caching) {
		seed := rand.Uint64()
		t.Log("seed", seed)
		r := rand.New(rand.NewPCG(seed, 0))
		p := newPrivate(t, c, cupool.PoolConfig{Name: "private"})
		streams := []*cupool.Stream{nil, newStreamOf(t, c)}
		from := []cupool.Allocator{c, p, c.WithLabel("x"), p.WithLabel("x"), p.WithLabel("y")}
		var live []cupool.Block
		for range 2000 {
			if len(live) > 50 || len(live) > 0 && r.IntN(2) == 0 {
				i := r.IntN(len(live))
				require.NoError(t, c.Free(live[i]))
				live = append(live[:i], live[i+1:]...)
				continue
			}
			b, err := from[r.IntN(len(from))].Alloc(1+r.Int64N(1<<(10+r.IntN(12))), streams[r.IntN(2)])
			require.NoError(t, err)
			live = append(live, b)
		}
		for _, a := range []*cupool.Caching{c, p} {
			_, err := a.Alloc(1<<40, nil)
			var e *cupool.OOMError
			require.ErrorAs(t, err, &e)
			require.Same(t, e, p.LastOOM())
			require.Equal(t, snapshot.HoldersOf(c.Snapshot(), p.Snapshot()), e.Table)
			for _, of := range []*cupool.Caching{c, p} {
				var live, cached int64
				for _, h := range e.Table {
					if h.Pool == of.Name() {
						live, cached = live+h.Live, cached+h.Cached
					}
				}
				st := of.Stats()
				require.Equal(t, []int64{st.LiveBytes, st.CachedBytes}, []int64{live, cached})
			}
		}
		for _, b := range live {
			require.NoError(t, c.Free(b))
		}
	})
}

// Several goroutines that run out of memory while others allocate get an error each.
func TestOOMsInGoroutines(t *testing.T) {
	c, _ := newParallelPool(t, 64*mib, withMagazines)
	p := newPrivate(t, c, cupool.PoolConfig{})
	require.Nil(t, c.LastOOM())
	var wg sync.WaitGroup
	for i := range 8 {
		a := []*cupool.Caching{c, p}[i%2]
		wg.Go(func() {
			for range 50 {
				b, err := a.Alloc(1000, nil)
				if err != nil {
					t.Error(err)
				}
				if _, err := a.Alloc(128*mib, nil); err == nil || err.Error() == "" || c.LastOOM() == nil {
					t.Error(err)
				}
				if err := a.Free(b); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	require.EqualValues(t, 400, c.Stats().OOMs+p.Stats().OOMs)
}
