package cupool_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/testkit/pooltest"
)

func TestEvent(t *testing.T) {
	c, d := pooltest.New(t, 1<<30)
	s := pooltest.NewScript(t, c, d).Stream("1")
	d.Busy(s)
	e, err := s.Record()
	require.NoError(t, err)
	done, err := e.Done()
	require.NoError(t, err)
	require.False(t, done)
	d.Busy(s) // later work does not matter
	d.Step(s)
	done, err = e.Done()
	require.NoError(t, err)
	require.True(t, done)

	d.Busy(s)
	late, err := s.Record()
	require.NoError(t, err)
	require.NoError(t, late.Sync())
	done, err = late.Done()
	require.NoError(t, err)
	require.True(t, done, "Sync waited")

	require.NoError(t, e.Close())
	require.ErrorIs(t, e.Close(), cupool.ErrClosed)
	_, err = e.Done()
	require.ErrorIs(t, err, cupool.ErrClosed)
	require.ErrorIs(t, e.Sync(), cupool.ErrClosed)
	require.ErrorIs(t, c.DefaultStream().Wait(e), cupool.ErrClosed)

	_, err = s.Record()
	require.NoError(t, err)
	require.Equal(t, 2, d.Count("NewEvent"), "a closed event is used again")
}

// An event that was synchronized proves that blocks are free, which the next
// look at them uses.
func TestEventSyncFrees(t *testing.T) {
	c, d := pooltest.New(t, 1<<30)
	x := pooltest.NewScript(t, c, d).Run("a=20M busy:1 free:a@1")
	e, err := x.Stream("1").Record()
	require.NoError(t, err)
	require.NoError(t, e.Sync())
	queries := d.Count("QueryEvent")
	x.Run("b=20M")
	require.Equal(t, "0 large: [Live 20M]", x.Layout())
	require.Equal(t, queries, d.Count("QueryEvent"))
}

func TestEventErrors(t *testing.T) {
	c, d := pooltest.New(t, 1<<30)
	other, _ := pooltest.New(t, 1<<30)
	s := pooltest.NewScript(t, c, d).Stream("1")
	foreign, err := other.DefaultStream().Record()
	require.NoError(t, err)
	require.ErrorIs(t, s.Wait(foreign), cupool.ErrForeignStream)
	require.ErrorIs(t, s.WaitStream(other.DefaultStream()), cupool.ErrForeignStream)

	e, err := s.Record()
	require.NoError(t, err)
	for call, do := range map[string]func() error{
		"RecordEvent":     func() error { _, err := s.Record(); return err },
		"QueryEvent":      func() error { _, err := e.Done(); return err },
		"SyncEvent":       e.Sync,
		"StreamWaitEvent": func() error { return c.DefaultStream().Wait(e) },
	} {
		d.Fail(call, errors.New("no "+call))
		require.ErrorContains(t, do(), "no "+call)
		d.Fail(call, nil)
		require.NoError(t, do(), call)
	}
	d.Fail("NewEvent", errors.New("no NewEvent"))
	for err = nil; err == nil; { // until no recycled one is left
		_, err = s.Record()
	}
	require.ErrorContains(t, err, "no NewEvent")
}

// A wait that the device refuses proves nothing.
func TestFailedWaitFreesNothing(t *testing.T) {
	c, d := pooltest.New(t, 1<<30)
	x := pooltest.NewScript(t, c, d).Run("a=20M busy:1 free:a@1")
	d.Fail("StreamWaitEvent", errors.New("no luck"))
	require.ErrorContains(t, c.DefaultStream().WaitStream(x.Stream("1")), "no luck")
	require.Equal(t, "0 large: [Pending 20M]", x.Layout())
	d.Fail("StreamWaitEvent", nil)
	x.Run("wait:0<1")
	require.Equal(t, "0 large: [Free 20M]", x.Layout())
}

// TestWaitOtherDevice: a stream waits for an event of another device, where both
// can do that.
func TestWaitOtherDevice(t *testing.T) {
	var pools []*cupool.Pool
	for range 2 {
		d, err := cupool.OpenHost(cupool.HostConfig{Capacity: 1 << 26})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, d.Close()) })
		c, err := cupool.New(cupool.Config{Driver: d})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, c.Close()) })
		pools = append(pools, c)
	}
	from, err := pools[0].NewStream()
	require.NoError(t, err)
	to := pools[1].DefaultStream()
	gate, seen := make(chan struct{}), false
	require.NoError(t, from.Launch(func() { <-gate; seen = true }))
	e, err := from.Record()
	require.NoError(t, err)
	require.NoError(t, to.Wait(e))
	require.NoError(t, e.Close())
	var order bool
	require.NoError(t, to.Launch(func() { order = seen }))
	close(gate)
	require.NoError(t, to.Sync())
	require.True(t, order)
	require.NoError(t, to.WaitStream(from))
	require.NoError(t, from.Close())
	require.ErrorIs(t, to.WaitStream(from), cupool.ErrClosed)
}
