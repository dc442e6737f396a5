package limits_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/hook"
	"github.com/cupool/cupool/internal/simdev"
	"github.com/cupool/cupool/internal/testkit"
	"github.com/cupool/cupool/internal/testkit/pooltest"
)

// What has been idle for longest goes first, and only beyond the threshold.
func TestGarbageCollectionThreshold(t *testing.T) {
	c, d := pooltest.New(t, 1000*pooltest.MiB, func(cfg *cupool.Config) {
		cfg.GarbageCollectionThreshold, cfg.Limit, cfg.Backing = 0.5, 400*pooltest.MiB, cupool.BackingSegments
	})
	x := pooltest.NewScript(t, c, d).Run("a=40M b=50M c=60M free:b free:a free:c d=50M free:d")
	require.Equal(t, "0 large: [Free 40M]; 0 large: [Free 50M]; 0 large: [Free 60M]", x.Layout())
	x.Run("e=70M") // 220 MiB are more than half of the limit
	require.Equal(t, []int64{40 * pooltest.MiB}, d.Freed, "not the largest, but what was idle for longest")
	x.Run("f=80M")
	require.Equal(t, []int64{40 * pooltest.MiB, 60 * pooltest.MiB}, d.Freed, "b served once more and is the youngest")

	_, err := cupool.New(cupool.Config{Driver: pooltest.FailingInfo(), GarbageCollectionThreshold: 0.5})
	require.ErrorContains(t, err, "no luck", "without a limit the device's size counts")
}

// OnRelease hears of every byte that goes back, on whatever way, and may use
// the allocator.
func TestOnRelease(t *testing.T) {
	for _, backing := range []cupool.Backing{cupool.BackingSegments, cupool.BackingVMM} {
		t.Run(backing.String(), func(t *testing.T) {
			var c *cupool.Pool
			var released, calls int64
			c = pooltest.Open(t, cupool.Config{
				Driver: simdev.New(simdev.Config{Capacity: 200 * pooltest.MiB}), Backing: backing, MagazineBytes: -1,
				OnRelease: func(bytes int64) {
					released += bytes
					if calls++; calls == 1 { // no lock is held
						b := pooltest.Alloc(t, c, 1, nil)
						require.NoError(t, c.Free(b))
						require.NoError(t, testkit.Second(c.Trim(1<<40)))
						require.Positive(t, c.Stats().All.ReservedBytes.Current)
					}
				},
			})
			x := pooltest.NewScript(t, c, nil)
			gone := func(step string) {
				t.Helper()
				r := c.Stats().All.ReservedBytes
				require.Equal(t, r.Allocated-r.Current, released, step)
			}
			x.Run("a=60M b=60M free:a")
			gone("nothing yet")
			x.Run("trim:61M")
			gone("Trim")
			require.EqualValues(t, 1, calls)
			x.Run("free:b c=150M") // b goes back for it, or becomes part of it
			gone("under pressure")
			x.Run("oom=100M free:c empty")
			gone("EmptyCache")
			x.Run("d=10M@1 free:d close:1 e=2M")
			require.NoError(t, c.Free(x.Block("e")))
			require.NoError(t, c.Close())
			r := c.Stats().All.ReservedBytes
			require.Zero(t, r.Current)
			require.Equal(t, r.Allocated, released, "Close")
		})
	}
}

// While the device takes its time to take memory back, the pools go on: no
// lock is held, and the books count the memory until it is gone.
func TestAllocationWhileReleasing(t *testing.T) {
	c, d := pooltest.New(t, 1000*pooltest.MiB)
	x := pooltest.NewScript(t, c, d).Run("a=20M b=20M c=2M d=20M free:a free:b free:d")
	var left []int64
	d.Hook = func(call string) {
		if call != "MemFree" {
			return
		}
		b, err := c.Alloc(pooltest.MiB+1, nil)
		require.NoError(t, err, "of the segment that stays")
		st := c.Stats()
		left = append(left, st.All.ReservedBytes.Current)
		require.Equal(t, st.All.ReservedBytes.Current, st.LiveBytes+st.CachedBytes)
		require.NoError(t, c.Check())
		require.NoError(t, c.Free(b))
	}
	n, err := c.Trim(0)
	d.Hook = nil
	require.NoError(t, err)
	require.EqualValues(t, 60*pooltest.MiB, n)
	require.Equal(t, []int64{80 * pooltest.MiB, 80 * pooltest.MiB, 80 * pooltest.MiB}, left)
	require.EqualValues(t, 20*pooltest.MiB, c.Stats().All.ReservedBytes.Current)
	require.Equal(t, "0 large: [Live 2M][Free 18M]", x.Layout())
}

// Segments that the device does not take back stay, and serve again.
func TestRefusedRelease(t *testing.T) {
	for refused := range 4 {
		c, d := pooltest.New(t, 1000*pooltest.MiB)
		x := pooltest.NewScript(t, c, d).Run("a=10M b=20M c=30M d=20M e=2M free:a free:b free:c free:d")
		frees := 0
		d.Hook = func(call string) {
			if call == "MemFree" {
				if frees == refused {
					d.Fail(call, errors.New("no luck"))
				}
				frees++
			}
		}
		n, err := c.Trim(0)
		require.ErrorContains(t, err, "no luck")
		d.Hook = nil
		st := c.Stats()
		require.EqualValues(t, refused, st.DriverFrees)
		require.EqualValues(t, 4-refused, st.All.Segment.Current-1, "the one in use aside")
		require.Equal(t, st.All.ReservedBytes.Freed, n)
		require.NoError(t, c.Check())
		d.Fail("MemFree", nil)
		allocs := st.DriverAllocs
		x.Run([]string{"a=20M b=20M c=30M d=10M", "a=20M b=20M d=10M", "b=20M d=10M", "d=10M"}[refused])
		require.Equal(t, allocs, c.Stats().DriverAllocs)
		x.Run("trim:0")
	}
}

// lateFrees is a pool that has room for one block of lateSize. The first such block is freed while
// a stream uses it, which is done when somebody waits for it. As often as thefts says, another
// goroutine then takes the memory before the one that waited, and frees it in the same way.
type lateFrees struct {
	*cupool.Pool
	waits int    // for the block so far
	goOn  func() // lets the stream be done with it
}

const lateSize = 40 * pooltest.MiB

func newLateFrees(t *testing.T, backing cupool.Backing, limit int64, thefts int) *lateFrees {
	var x lateFrees
	var s *cupool.Stream
	freeLate := func() {
		b, wait := pooltest.Alloc(t, x.Pool, lateSize, nil), make(chan struct{})
		x.goOn = func() { close(wait) }
		require.NoError(t, s.Launch(func() { <-wait }))
		require.NoError(t, x.FreeOn(b, s))
	}
	d := &hook.Driver{Driver: pooltest.OpenHost(t), Around: func(call *hook.Call, do func() error) error {
		if call.Name != "SyncEvent" {
			return do()
		}
		x.goOn()
		err := do()
		if x.waits++; x.waits <= thefts {
			freeLate()
		}
		return err
	}}
	x.Pool = pooltest.Open(t, cupool.Config{Driver: d, Backing: backing, Limit: limit})
	s = pooltest.NewStream(t, x.Pool)
	freeLate()
	return &x
}

// TestTakenWhileWaiting: another goroutine may take what a request has waited for, and free it
// again. The request waits for that, too, and is not refused.
func TestTakenWhileWaiting(t *testing.T) {
	for _, backing := range []cupool.Backing{cupool.BackingSegments, cupool.BackingVMM} {
		for _, thefts := range []int{0, 1, 3, 6} {
			t.Run(fmt.Sprint(backing, thefts), func(t *testing.T) {
				x := newLateFrees(t, backing, lateSize, thefts)
				require.NoError(t, x.Free(pooltest.Alloc(t, x.Pool, lateSize, nil)))
				require.Equal(t, thefts+1, x.waits)
				require.Zero(t, x.Stats().OOMs)
				require.NoError(t, x.Close())
			})
		}
	}
}

// TestNeverFitsWaits: a request that never fits does not wait for what others free meanwhile, also
// where the limit came later.
func TestNeverFitsWaits(t *testing.T) {
	for _, limit := range []int64{lateSize, 0} {
		x := newLateFrees(t, cupool.BackingAuto, limit, 20)
		require.NoError(t, x.Configure(fmt.Sprint("limit:", lateSize)))
		_, err := x.Alloc(2*lateSize, nil)
		require.ErrorIs(t, err, cupool.ErrOutOfMemory)
		require.Equal(t, 1, x.waits)
		x.goOn()
		require.NoError(t, x.Close())
	}
}

// What was reserved before the limit came down still serves a request of another stream.
func TestFitsBeyondLimit(t *testing.T) {
	pooltest.Backings(t, 1000*pooltest.MiB, func(t *testing.T, c *cupool.Pool) {
		require.NoError(t, c.Free(pooltest.Alloc(t, c, lateSize, nil)))
		require.NoError(t, c.Configure(fmt.Sprint("limit:", lateSize/2)))
		require.NoError(t, c.Free(pooltest.Alloc(t, c, lateSize, pooltest.NewStream(t, c))))
	})
}

// A segment that serves a request after it was found idle, while others go back to
// the device, stays.
func TestTakenWhileReleasing(t *testing.T) {
	c, d := pooltest.New(t, 1000*pooltest.MiB)
	x := pooltest.NewScript(t, c, d).Run("a=20M b=20M@1 free:a free:b")
	var taken cupool.Block
	d.Hook = func(call string) {
		if call == "MemFree" && taken.IsEmpty() {
			taken = pooltest.Alloc(t, c, 20*pooltest.MiB, x.Stream("1"))
		}
	}
	n, err := c.Trim(0)
	d.Hook = nil
	require.NoError(t, err)
	require.EqualValues(t, 20*pooltest.MiB, n)
	require.Equal(t, "1 large: [Live 20M]", x.Layout())
	require.NoError(t, c.Check())
	require.NoError(t, c.Free(taken))
	require.NoError(t, c.Close())
}
