package cupool_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
)

func TestEvent(t *testing.T) {
	c, d := newPool(t, 1<<30)
	s := newScript(t, c, d).stream("1")
	d.busy(s)
	e, err := s.Record()
	require.NoError(t, err)
	done, err := e.Done()
	require.NoError(t, err)
	require.False(t, done)
	d.busy(s) // later work does not matter
	d.step(s)
	done, err = e.Done()
	require.NoError(t, err)
	require.True(t, done)

	d.busy(s)
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
	require.Equal(t, 2, d.count("NewEvent"), "a closed event is used again")
}

// An event that was synchronized proves that blocks are free, which the next
// look at them uses.
func TestEventSyncFrees(t *testing.T) {
	c, d := newPool(t, 1<<30)
	x := newScript(t, c, d).run("a=20M busy:1 free:a@1")
	e, err := x.stream("1").Record()
	require.NoError(t, err)
	require.NoError(t, e.Sync())
	queries := d.count("QueryEvent")
	x.run("b=20M")
	require.Equal(t, "0 large: [Live 20M]", x.layout())
	require.Equal(t, queries, d.count("QueryEvent"))
}

func TestEventErrors(t *testing.T) {
	c, d := newPool(t, 1<<30)
	other, _ := newPool(t, 1<<30)
	s := newScript(t, c, d).stream("1")
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
		d.failing(call, errors.New("no "+call))
		require.ErrorContains(t, do(), "no "+call)
		d.failing(call, nil)
		require.NoError(t, do(), call)
	}
	d.failing("NewEvent", errors.New("no NewEvent"))
	for err = nil; err == nil; { // until no recycled one is left
		_, err = s.Record()
	}
	require.ErrorContains(t, err, "no NewEvent")
}

// A wait that the device refuses proves nothing.
func TestFailedWaitFreesNothing(t *testing.T) {
	c, d := newPool(t, 1<<30)
	x := newScript(t, c, d).run("a=20M busy:1 free:a@1")
	d.failing("StreamWaitEvent", errors.New("no luck"))
	require.ErrorContains(t, c.DefaultStream().WaitStream(x.stream("1")), "no luck")
	require.Equal(t, "0 large: [Pending 20M]", x.layout())
	d.failing("StreamWaitEvent", nil)
	x.run("wait:0<1")
	require.Equal(t, "0 large: [Free 20M]", x.layout())
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
