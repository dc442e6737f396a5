package cupool_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/testkit/pooltest"
)

// TestClosingStreamLendsNothing: what a stream holds serves no other before the
// stream's work is done, while Close waits for that.
func TestClosingStreamLendsNothing(t *testing.T) {
	pooltest.Backings(t, 1<<30, func(t *testing.T, c *cupool.Pool) { closingStreamLendsNothing(t, c, false) })
	pooltest.Backings(t, 1<<30, func(t *testing.T, c *cupool.Pool) { closingStreamLendsNothing(t, c, true) })
}

// closingStreamLendsNothing has a stream with a live block, if wanted, so that its
// memory goes to the default stream.
func closingStreamLendsNothing(t *testing.T, c *cupool.Pool, live bool) {
	s := newStreamOf(t, c)
	b := pooltest.Alloc(t, c, 30<<20, s)
	if live {
		l := pooltest.Alloc(t, c, 4096, s)
		defer func() { require.NoError(t, c.Free(l)) }()
	}
	g := holdStream(t, s)
	defer g.open()
	require.NoError(t, s.Memset(b.Ptr(), 1, b.Size()))
	require.NoError(t, c.Free(b))
	closed := start(s.Close)
	early, err := returns(closed)
	require.False(t, early, "%v", err)
	x := pooltest.Alloc(t, c, 30<<20, nil)
	require.NotEqual(t, b.Ptr(), x.Ptr(), "the memory that the stream works on")
	reserved := c.Stats().All.ReservedBytes.Current
	require.GreaterOrEqual(t, reserved, int64(60<<20))
	g.open()
	require.NoError(t, <-closed)
	y := pooltest.Alloc(t, c, 30<<20, nil)
	require.Equal(t, reserved, c.Stats().All.ReservedBytes.Current, "it serves when the work is done")
	require.NoError(t, errors.Join(c.Free(x), c.Free(y)))
}

// makingHook is a device that calls a function before it makes an event.
type makingHook struct {
	*pooltest.Driver
	making func()
}

func (d *makingHook) NewEvent() (cupool.EventHandle, error) {
	if f := d.making; f != nil {
		d.making = nil
		f()
	}
	return d.Driver.NewEvent()
}

// TestEventsOfClosedStream: calls that record events on a stream while it is closed
// and another takes its place and its handle say nothing of the other's work.
func TestEventsOfClosedStream(t *testing.T) {
	d := &makingHook{Driver: pooltest.NewDriver(1 << 30)}
	d.Reuse = true
	c, err := cupool.New(cupool.Config{Driver: d, MagazineBytes: -1})
	require.NoError(t, err)
	s := newStreamOf(t, c)
	record := func(events chan *cupool.Event) func() error {
		return func() error {
			e, err := s.Record()
			if err == nil {
				events <- e
			}
			return err
		}
	}
	events := make(chan *cupool.Event, 2)
	var u *cupool.Stream
	var second, closed <-chan error
	d.making = func() {
		second = start(record(events))
		time.Sleep(patience) // until it waits for its event, too
		closed = start(s.Close)
		if early, err := returns(closed); early {
			require.NoError(t, err)
			closed = start(func() error { return nil })
			u = newStreamOf(t, c)
		}
	}
	require.NoError(t, ignore(record(events)(), cupool.ErrClosed))
	require.NoError(t, ignore(<-second, cupool.ErrClosed))
	require.NoError(t, <-closed)
	if u == nil {
		u = newStreamOf(t, c)
	}
	x := pooltest.Alloc(t, c, 4096, nil)
	d.Busy(u)
	require.NoError(t, c.FreeOn(x, u))
	close(events)
	for e := range events {
		require.NoError(t, ignore(c.DefaultStream().Wait(e), cupool.ErrClosed))
	}
	require.EqualValues(t, 1, c.Stats().BlocksPending, "the stream of the same place is at work")
	d.Idle(u)
	_, err = c.ProcessDeferred()
	require.NoError(t, err)
	require.Zero(t, c.Stats().BlocksPending)
	require.NoError(t, c.Check())
	require.NoError(t, c.Close())
}

// TestSlotWhileStreamCloses: another stream may take the place of one that is being
// closed as soon as the device destroys that. What the closed stream left serves it.
func TestSlotWhileStreamCloses(t *testing.T) {
	c, d := pooltest.New(t, 1<<30)
	s := newStreamOf(t, c)
	require.NoError(t, c.Free(pooltest.Alloc(t, c, 40<<20, s)))
	var u *cupool.Stream
	d.Hook = func(call string) {
		if call == "DestroyStream" && u == nil {
			u = newStreamOf(t, c)
		}
	}
	require.NoError(t, s.Close())
	require.NotNil(t, u)
	require.Equal(t, 2, c.Slots())
	b := pooltest.Alloc(t, c, 40<<20, u)
	require.EqualValues(t, 1, c.Stats().DriverAllocs)
	require.NoError(t, c.Free(b))
	require.NoError(t, c.Check())
	require.NoError(t, c.Close())
}

// TestHeapsAreLockedInOrder: a call that needs the heaps of two streams does not
// hold one while it waits for the other, unless that comes later.
func TestHeapsAreLockedInOrder(t *testing.T) {
	c, _ := pooltest.New(t, 1<<30)
	first, second := c.DefaultStream(), newStreamOf(t, c)
	for _, order := range [][2]*cupool.Stream{{first, second}, {second, first}} {
		unlock := c.LockHeap(first)
		done := start(func() error {
			c.LockBoth(order[0], order[1])()
			return nil
		})
		early, _ := returns(done)
		require.False(t, early, "the first is locked")
		require.True(t, c.HeapIsFree(second))
		unlock()
		require.NoError(t, <-done)
		require.True(t, c.HeapIsFree(first) && c.HeapIsFree(second))
	}
	require.NoError(t, c.Close())
}
