package orders_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/testkit"
	"github.com/cupool/cupool/internal/testkit/pooltest"
)

// Tests of a call that ends something (a stream, all blocks, an allocator) while another
// one moves it, holds it or gives it back. The device stops one of them in the middle.

var errRefused = errors.New("the device refuses")

// on returns an allocator over a device of 1 GiB that is watched.
func on(t *testing.T, b cupool.Backing) (*cupool.Pool, *pooltest.Watched) {
	t.Helper()
	d := pooltest.NewWatched(t)
	return pooltest.Open(t, cupool.Config{Driver: d, Backing: b, MagazineBytes: -1}), d
}

// freeing is the call by which memory goes back.
var freeing = map[cupool.Backing]string{cupool.BackingSegments: "MemFree", cupool.BackingVMM: "MemUnmap"}

// waitLate gives a call, which nothing shows from outside, the time to come to where it waits.
func waitLate() { time.Sleep(pooltest.Patience) }

// TestStreamNotDestroyed: a stream that the device does not destroy is closed beside a Trim
// that waits for it and a NewStream that looks for its slot. A later call destroys it.
func TestStreamNotDestroyed(t *testing.T) {
	pooltest.EachBacking(t, func(t *testing.T, b cupool.Backing) {
		c, d := on(t, b)
		s := pooltest.NewStream(t, c)
		require.NoError(t, c.Free(pooltest.Alloc(t, c, 64<<20, s)))
		d.FailNth("DestroyStream", 1, errRefused)
		stopped, goOn := d.Stop(t, "DestroyStream")
		closed := pooltest.Start(s.Close)
		<-stopped
		trimmed := pooltest.Start(func() error { _, err := c.Trim(0); return err })
		waitLate()
		made := pooltest.Start(func() error { _, err := c.NewStream(); return err })
		waitLate()
		goOn()
		require.ErrorIs(t, <-closed, errRefused)
		require.NoError(t, <-trimmed)
		require.NoError(t, <-made)
		testkit.Must(c.Trim(0))
		require.NoError(t, c.Close())
		require.Empty(t, d.Leaks())
	})
}

// TestToldAfterClose: the program is told what went back of the allocator and its pools when
// it may close a stream, here one that the allocator has closed with it.
func TestToldAfterClose(t *testing.T) {
	var s *cupool.Stream
	var told []error
	c := pooltest.Open(t, cupool.Config{OnRelease: func(int64) { told = append(told, s.Close()) }})
	s = pooltest.NewStream(t, c)
	for _, p := range []*cupool.Pool{c, pooltest.NewPrivate(t, c, cupool.PoolConfig{})} {
		require.NoError(t, p.Free(pooltest.Alloc(t, p, 4<<20, nil)))
	}
	closed := pooltest.Start(c.Close)
	select {
	case err := <-closed:
		require.NoError(t, err)
	case <-time.After(testkit.Patience):
		t.Fatal("Close hangs")
	}
	require.Len(t, told, 2)
	for _, err := range told {
		require.ErrorIs(t, err, cupool.ErrClosed)
	}
}

// TestLenderClosedBesideTrim: a stream that lends a block is closed while the device is
// given one of its segments and refuses it. The borrower can be closed all the same.
func TestLenderClosedBesideTrim(t *testing.T) {
	d := pooltest.NewWatched(t)
	c := pooltest.Open(t, cupool.Config{Driver: d, Backing: cupool.BackingSegments, MagazineBytes: -1, Limit: 62 << 20})
	lender, borrower := pooltest.NewStream(t, c), pooltest.NewStream(t, c)
	keep := pooltest.Alloc(t, c, 2<<20, lender) // in a segment of 20 MiB
	fill := pooltest.Alloc(t, c, 40<<20, nil)
	lent := pooltest.Alloc(t, c, 9<<20, borrower)
	require.Same(t, borrower, c.StreamOf(lent))
	require.NoError(t, c.Free(fill))
	testkit.Must(c.Trim(0))
	require.NoError(t, c.Free(pooltest.Alloc(t, c, 30<<20, lender)))

	d.FailNth("MemFree", 1, errRefused)
	stopped, goOn := d.Stop(t, "MemFree")
	trimmed := pooltest.Start(func() error { _, err := c.Trim(0); return err })
	<-stopped
	closed := pooltest.Start(lender.Close)
	waitLate()
	goOn()
	require.ErrorIs(t, <-trimmed, errRefused)
	require.NoError(t, <-closed)
	require.NoError(t, borrower.Close())
	require.NoError(t, c.Check())
	require.Same(t, c.DefaultStream(), c.StreamOf(lent))
	require.NoError(t, errors.Join(c.Free(keep), c.Free(lent)))
	require.NoError(t, c.Close())
}

// besideReset has a function begin while Reset gives the default stream's memory back, and
// returns the errors of both. b is a block of s.
func besideReset(t *testing.T, backing cupool.Backing, f func(c *cupool.Pool, s *cupool.Stream, b cupool.Block) error) (c *cupool.Pool, b cupool.Block, reset, other error) {
	t.Helper()
	c, d := on(t, backing)
	s := pooltest.NewStream(t, c)
	pooltest.Alloc(t, c, 4<<20, nil)
	b = pooltest.Alloc(t, c, 4<<20, s)
	stopped, goOn := d.Stop(t, freeing[backing]) // in the default stream's heap
	resets := pooltest.Start(c.Reset)
	<-stopped
	others := pooltest.Start(func() error { return f(c, s, b) })
	waitLate()
	goOn()
	return c, b, <-resets, <-others
}

// TestHoldBesideReset: a block is held, or its life ends, never both.
func TestHoldBesideReset(t *testing.T) {
	pooltest.EachBacking(t, func(t *testing.T, backing cupool.Backing) {
		c, _, reset, held := besideReset(t, backing, func(c *cupool.Pool, _ *cupool.Stream, b cupool.Block) error {
			release, err := c.Hold(b)
			if err == nil {
				release()
			}
			return err
		})
		require.NoError(t, reset)
		require.ErrorIs(t, held, cupool.ErrUseAfterFree)
		require.NoError(t, c.Close())
	})
}

// TestHoldThatFails: a Hold that fails holds nothing, while it waits for a lock neither.
func TestHoldThatFails(t *testing.T) {
	for name, end := range map[string]func(c *cupool.Pool) error{
		"Close": (*cupool.Pool).Close,
		"Reset": (*cupool.Pool).Reset,
		"Sleep": func(c *cupool.Pool) error { return c.Sleep(nil) },
	} {
		t.Run(name, func(t *testing.T) {
			c, d := on(t, cupool.BackingVMM)
			freed := pooltest.Alloc(t, c, 4<<20, nil)
			require.NoError(t, c.Free(freed))
			stopped, goOn := d.Stop(t, "MemCreate") // with the lock of the heap
			allocated := pooltest.Start(func() error { return c.Reserve(100<<20, nil) })
			<-stopped
			held := pooltest.Start(func() error { _, err := c.Hold(freed); return err })
			waitLate()
			ended := pooltest.Start(func() error { return end(c) })
			waitLate()
			goOn()
			<-allocated // or the end was faster
			require.Error(t, <-held)
			require.NotErrorIs(t, <-ended, cupool.ErrNotSupported)
			_ = c.Close()
		})
	}
}

// TestResetBesideStreamClose: the blocks of a stream that is closed end with the others.
func TestResetBesideStreamClose(t *testing.T) {
	pooltest.EachBacking(t, func(t *testing.T, backing cupool.Backing) {
		c, b, reset, closed := besideReset(t, backing, func(_ *cupool.Pool, s *cupool.Stream, _ cupool.Block) error { return s.Close() })
		require.NoError(t, reset)
		require.NoError(t, closed)
		require.Zero(t, c.Stats().LiveBytes)
		require.Zero(t, c.Stats().All.ReservedBytes.Current)
		require.ErrorIs(t, c.Free(b), cupool.ErrDoubleFree)
		require.NoError(t, c.Close())
	})
}
