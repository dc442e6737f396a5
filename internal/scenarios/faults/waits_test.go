package faults_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/testkit"
	"github.com/cupool/cupool/internal/testkit/pooltest"
)

// stuckPool is an allocator whose stream u never gets done with what it was
// given before the gate opens.
func stuckPool(t *testing.T, b cupool.Backing, timeout time.Duration) (c *cupool.Pool, u *cupool.Stream, open func()) {
	c = pooltest.Open(t, cupool.Config{Backing: b, Limit: 64 * pooltest.MiB, WaitTimeout: timeout})
	u = pooltest.NewStream(t, c)
	gate := make(chan struct{})
	require.NoError(t, u.Launch(func() { <-gate }))
	return c, u, func() { close(gate) }
}

// requireLate checks that an error names the stream that is late.
func requireLate(t *testing.T, err error, u *cupool.Stream, what string) {
	t.Helper()
	var late *cupool.WaitError
	require.ErrorAs(t, err, &late, what)
	require.ErrorIs(t, err, context.DeadlineExceeded, what)
	require.Equal(t, u.Handle(), late.Stream, what)
	require.Positive(t, late.Waited, what)
	require.Positive(t, late.Age, what)
}

// TestWaitTimeout: with events that never complete every call that waits ends with
// an error that names the stream, the allocator works on other streams, and when
// the work is done after all, everything works and nothing was lost.
func TestWaitTimeout(t *testing.T) {
	pooltest.EachBacking(t, func(t *testing.T, backing cupool.Backing) {
		c, u, open := stuckPool(t, backing, 2*time.Millisecond)
		p := pooltest.NewPrivate(t, c, cupool.PoolConfig{})
		before, err := u.Record()
		require.NoError(t, err)
		b := pooltest.Alloc(t, c, 40*pooltest.MiB, nil)
		require.NoError(t, c.FreeOn(b, u))              // waits for u
		idle := pooltest.Alloc(t, p, 3*pooltest.MiB, u) // of u, and idle
		require.NoError(t, p.Free(idle))
		live := pooltest.Alloc(t, c, 5000, u)
		works := func(what string) {
			t.Helper()
			x, err := c.Alloc(9000, nil)
			require.NoError(t, err, what)
			require.NoError(t, c.DefaultStream().Memset(x.Ptr(), 1, 9000), what)
			require.NoError(t, pooltest.Patiently(c.DefaultStream().Sync), what)
			require.NoError(t, c.Free(x), what)
			require.NoError(t, errors.Join(c.Check(), p.Check()), what)
		}
		for _, x := range []struct {
			what string
			call func() error
		}{
			{"Stream.Sync", u.Sync},
			{"Stream.SyncContext", func() error { return u.SyncContext(t.Context()) }},
			{"Stream.CopyIn", func() error { return u.CopyIn(live.Ptr(), make([]byte, 8)) }},
			{"Stream.CopyOut", func() error { return u.CopyOut(make([]byte, 8), live.Ptr()) }},
			{"Stream.Close", u.Close},
			{"Event.Sync", before.Sync},
			{"Sync", c.Sync},
			{"EmptyCache", c.EmptyCache},
			{"pool EmptyCache", p.EmptyCache},
			{"pool Trim", func() error { _, err := p.Trim(0); return err }},
			{"pool Retire and Close", p.Close},
			{"Close", c.Close},
		} {
			for range testkit.Choose(30, 4) { // as often as one likes: no events pile up
				requireLate(t, x.call(), u, x.what)
			}
			works(x.what)
		}
		if backing == cupool.BackingVMM {
			requireLate(t, c.Sleep(nil), u, "Sleep")
			works("Sleep")
		}
		_, err = c.Alloc(60*pooltest.MiB, nil)
		require.ErrorIs(t, err, cupool.ErrOutOfMemory)
		requireLate(t, err, u, "Alloc")
		require.ErrorContains(t, err, "held by work that is late")
		works("Alloc")

		open()
		require.NoError(t, pooltest.Patiently(u.Sync))
		require.NoError(t, c.Free(pooltest.Alloc(t, c, 50*pooltest.MiB, nil)))
		require.NoError(t, c.Free(live))
		require.NoError(t, before.Close())
		require.NoError(t, pooltest.Patiently(u.Close))
		require.NoError(t, pooltest.Patiently(p.Close))
		require.NoError(t, pooltest.Patiently(c.EmptyCache))
		require.Zero(t, c.Stats().All.ReservedBytes.Current)
		require.Zero(t, c.Stats().BlocksPending)
		require.NoError(t, pooltest.Patiently(c.Close))
		require.ErrorIs(t, c.Close(), cupool.ErrClosed)
	})
}

// TestWaitTimeoutFreesTheRest: what no late work uses goes back.
func TestWaitTimeoutFreesTheRest(t *testing.T) {
	c, u, open := stuckPool(t, cupool.BackingVMM, 2*time.Millisecond)
	require.NoError(t, c.Free(pooltest.Alloc(t, c, 10*pooltest.MiB, nil)))
	require.NoError(t, c.Free(pooltest.Alloc(t, c, 20*pooltest.MiB, u)))
	requireLate(t, c.EmptyCache(), u, "EmptyCache")
	require.EqualValues(t, 20*pooltest.MiB, c.Stats().All.ReservedBytes.Current)
	open()
	require.NoError(t, pooltest.Patiently(c.Close))
}

// TestAllocContextBehindOthers: a request can be cancelled while another goroutine,
// which gives memory back, waits for work without a bound: for memory that waits for a
// stream, and for memory of that stream.
func TestAllocContextBehindOthers(t *testing.T) {
	for name, hold := range map[string]func(c *cupool.Pool, u *cupool.Stream) error{
		"waits for the stream": func(c *cupool.Pool, u *cupool.Stream) error {
			return c.FreeOn(pooltest.Alloc(t, c, 60*pooltest.MiB, nil), u)
		},
		"of the stream": func(c *cupool.Pool, u *cupool.Stream) error { return c.Free(pooltest.Alloc(t, c, 60*pooltest.MiB, u)) },
	} {
		t.Run(name, func(t *testing.T) {
			pooltest.EachBacking(t, func(t *testing.T, backing cupool.Backing) {
				c, u, open := stuckPool(t, backing, 0)
				require.NoError(t, hold(c, u))
				emptied := make(chan error)
				go func() { emptied <- c.EmptyCache() }()
				time.Sleep(pooltest.Patience) // until it waits
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
				defer cancel()
				_, err := c.AllocContext(ctx, 50*pooltest.MiB, nil)
				require.ErrorIs(t, err, context.DeadlineExceeded)
				open()
				require.NoError(t, <-emptied)
				require.NoError(t, c.Close())
			})
		})
	}
}
