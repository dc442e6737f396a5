package cupool_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/conformance"
	"github.com/cupool/cupool/internal/simdev"
)

// withDecay runs f in a time of its own on an allocator that gives idle memory
// back within a second.
func withDecay(t *testing.T, b cupool.Backing, dev simdev.Config, f func(c *cupool.Pool, d *conformance.Failing)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		d := conformance.NewFailing(simdev.New(dev))
		c, err := cupool.New(cupool.Config{Driver: d, Backing: b, Decay: time.Second})
		require.NoError(t, err)
		f(c, d)
		require.NoError(t, c.Check())
		require.NoError(t, c.Close()) // the goroutine ends, or synctest complains
		require.Zero(t, d.Held())
	})
}

var decayBackings = []cupool.Backing{cupool.BackingSegments, cupool.BackingVMM}

// hold allocates n blocks of 32 MiB; the function it returns frees them.
func hold(t *testing.T, c *cupool.Pool, n int) (free func()) {
	t.Helper()
	var blocks []cupool.Block
	for range n {
		b, err := c.Alloc(32*mib, nil)
		require.NoError(t, err)
		blocks = append(blocks, b)
	}
	return func() {
		for _, b := range blocks {
			require.NoError(t, c.Free(b))
		}
	}
}

func TestDecay(t *testing.T) {
	for _, b := range decayBackings {
		t.Run(b.String(), func(t *testing.T) {
			withDecay(t, b, simdev.Config{}, func(c *cupool.Pool, d *conformance.Failing) {
				live, err := c.Alloc(64*mib, nil)
				require.NoError(t, err)
				hold(t, c, 32)()
				full := d.Held()
				time.Sleep(900 * time.Millisecond)
				require.Equal(t, full, d.Held())
				time.Sleep(200 * time.Millisecond)
				require.EqualValues(t, 64*mib, d.Held(), "nothing that is idle stays")
				require.Equal(t, full-64*mib, c.Stats().DecayedBytes)
				require.NoError(t, c.Free(live))
				time.Sleep(1200 * time.Millisecond)
				require.Zero(t, d.Held())
			})
		})
	}
}

// A program that repeats itself keeps what it uses.
func TestDecayLeavesSteadyStateAlone(t *testing.T) {
	for _, b := range decayBackings {
		t.Run(b.String(), func(t *testing.T) {
			withDecay(t, b, simdev.Config{}, func(c *cupool.Pool, d *conformance.Failing) {
				for range 300 {
					free := hold(t, c, 4)
					time.Sleep(9 * time.Millisecond)
					free()
					time.Sleep(7 * time.Millisecond)
				}
				require.Zero(t, c.Stats().DecayedBytes)
				require.EqualValues(t, 128*mib, d.Held())
			})
		})
	}
}

// What streams at work may still use stays, and nobody waits for them.
func TestDecayWaitsForNothing(t *testing.T) {
	for _, b := range decayBackings {
		t.Run(b.String(), func(t *testing.T) {
			withDecay(t, b, simdev.Config{ManualEvents: true}, func(c *cupool.Pool, d *conformance.Failing) {
				hold(t, c, 4)()
				b, err := c.Alloc(32*mib, nil)
				require.NoError(t, err)
				require.NoError(t, c.DefaultStream().Memset(b.Ptr(), 1, 100))
				require.NoError(t, c.Free(b))
				syncs := d.Calls("SyncStream") + d.Calls("SyncEvent")
				time.Sleep(3 * time.Second)
				require.EqualValues(t, 128*mib, d.Held())
				require.Equal(t, syncs, d.Calls("SyncStream")+d.Calls("SyncEvent"))
			})
		})
	}
}

// A failing call is tried again; a sleeping allocator is left alone.
func TestDecayGoesOn(t *testing.T) {
	withDecay(t, cupool.BackingVMM, simdev.Config{}, func(c *cupool.Pool, d *conformance.Failing) {
		hold(t, c, 4)()
		d.FailAlways("MemUnmap", errors.New("no luck"))
		time.Sleep(2 * time.Second)
		require.EqualValues(t, 128*mib, d.Held())
		d.Heal()
		b, err := c.Alloc(mib, nil)
		require.NoError(t, err)
		require.NoError(t, c.Sleep(nil))
		time.Sleep(2 * time.Second)
		require.Zero(t, d.Held())
		require.NoError(t, c.Wake())
		require.NoError(t, c.Free(b))
		time.Sleep(2 * time.Second)
		require.Zero(t, d.Held())
	})
}
