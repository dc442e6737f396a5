package calls

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool/device"
	"github.com/cupool/cupool/internal/epoch"
)

// fakeDriver is a device whose work is done when the test says so.
type fakeDriver struct {
	done  atomic.Bool
	syncs atomic.Int64
	err   error
}

func (d *fakeDriver) NewEvent() (device.Event, error)               { return 1, nil }
func (d *fakeDriver) DestroyEvent(device.Event) error               { return nil }
func (d *fakeDriver) RecordEvent(device.Event, device.Stream) error { return nil }
func (d *fakeDriver) QueryEvent(device.Event) (bool, error) {
	return d.done.Load() && d.err == nil, d.err
}
func (d *fakeDriver) SyncEvent(device.Event) error   { return d.sync() }
func (d *fakeDriver) SyncStream(device.Stream) error { return d.sync() }
func (d *fakeDriver) sync() error                    { d.syncs.Add(1); return d.err }
func newStream(d *fakeDriver, p epoch.Patience, lasting bool) (*Stream, *rig) {
	r := &rig{}
	events := &epoch.Events{}
	events.Init(d, func(device.Stream, error) {})
	of := &Device{Driver: d, Patience: p, Closed: &r.closed, Failed: func(err error) error {
		if err != nil {
			r.told = append(r.told, err)
		}
		return err
	}}
	s := &Stream{}
	s.Init(of, 7, epoch.NewClock(7, 0, events), lasting)
	return s, r
}

// rig is what a stream tells.
type rig struct {
	closed atomic.Bool // the allocator
	told   []error
}

var errBroken = errors.New("broken")

// A call runs while the stream is open, and its failure is told with the stream's name.
func TestDo(t *testing.T) {
	for _, lasting := range []bool{false, true} {
		s, r := newStream(&fakeDriver{}, 0, lasting)
		ran := 0
		call := func() error { ran++; return nil }
		require.NoError(t, s.Do("copy", call))
		require.Equal(t, lasting, s.Lasts())
		require.ErrorIs(t, s.Do("copy", func() error { return errBroken }), errBroken)
		require.Len(t, r.told, 1)
		require.EqualError(t, r.told[0], "cupool: copy on stream 0x7: broken")

		r.closed.Store(true)
		require.ErrorIs(t, s.Do("copy", call), device.ErrClosed)
		require.ErrorIs(t, s.Submitted("copy", device.ErrInvalidHandle), device.ErrClosed, "Close was faster")
		require.False(t, s.Lasts())
		r.closed.Store(false)

		require.True(t, s.Close())
		require.False(t, s.Close())
		require.True(t, s.IsClosing())
		require.ErrorIs(t, s.Do("copy", call), device.ErrClosed)
		s.Reopen()
		require.NoError(t, s.Do("copy", call))
		require.Equal(t, 2, ran)
		require.ErrorIs(t, s.End(func() error { return errBroken }), errBroken)
		require.True(t, s.IsClosed())
		require.EqualError(t, s.Usable("copy"), "cupool: copy on stream 0x7: closed")
	}
}

// Begin and Done are the two ends of Do.
func TestBeginAndDone(t *testing.T) {
	for _, lasting := range []bool{false, true} {
		s, r := newStream(&fakeDriver{}, 0, lasting)
		require.NoError(t, s.Begin("copy"))
		require.ErrorIs(t, s.Done("copy", errBroken), errBroken)
		require.Len(t, r.told, 1)
		require.True(t, s.Close(), "no call is under way")
		require.ErrorIs(t, s.Begin("copy"), device.ErrClosed)
	}
}

// No call is under way when Close has returned.
func TestCloseWaitsForCalls(t *testing.T) {
	s, _ := newStream(&fakeDriver{}, 0, false)
	begun, early := make(chan struct{}), make(chan bool)
	var closed atomic.Bool
	go s.Do("copy", func() error {
		close(begun)
		for s.IsOpen() {
			runtime.Gosched()
		}
		time.Sleep(time.Millisecond) // a Close that does not wait returns
		early <- closed.Load()
		return nil
	})
	<-begun
	go func() {
		s.Close()
		closed.Store(true)
	}()
	require.False(t, <-early)
}

// What has entered an open stream is waited for by Close, and nothing enters after.
func TestEnter(t *testing.T) {
	s, _ := newStream(&fakeDriver{}, 0, false)
	require.True(t, s.Enter())
	require.True(t, s.Enter(), "calls run beside each other")
	s.Leave()
	closed := make(chan bool)
	go func() { closed <- s.Close() }()
	for s.IsOpen() {
		runtime.Gosched()
	}
	require.False(t, s.Enter())
	s.Leave()
	require.True(t, <-closed)
	require.False(t, s.Enter())
	s.Reopen()
	require.True(t, s.Enter())
	s.Leave()
}

// Waits ask the device once without bounds, and give up with them.
func TestWaits(t *testing.T) {
	waits := map[string]func(*Stream, context.Context) error{
		"Finish":   (*Stream).Finish,
		"Drain":    (*Stream).Drain,
		"WaitIdle": (*Stream).WaitIdle,
	}
	for name, wait := range waits {
		d := &fakeDriver{}
		s, _ := newStream(d, 0, false)
		require.NoError(t, wait(s, context.Background()), name)
		require.EqualValues(t, 1, d.syncs.Load(), name)
		ctx, cancel := context.WithCancelCause(context.Background())
		cancel(errBroken)
		require.ErrorIs(t, wait(s, ctx), errBroken, name)
		d.done.Store(true)
		require.NoError(t, wait(s, ctx), name)
	}
	d := &fakeDriver{}
	s, _ := newStream(d, 0, false)
	require.NoError(t, s.Await(), "the device waits by itself")
	require.NoError(t, s.AwaitEvent(1))
	require.NoError(t, s.WaitAWhile())
	require.EqualValues(t, 2, d.syncs.Load())

	bounded, _ := newStream(d, epoch.Patience(time.Millisecond), false)
	for name, wait := range map[string]func() error{
		"Await": bounded.Await, "WaitAWhile": bounded.WaitAWhile, "AwaitEvent": func() error { return bounded.AwaitEvent(1) },
	} {
		var late *device.WaitError
		require.ErrorAs(t, wait(), &late, name)
	}
	require.EqualValues(t, 2, d.syncs.Load())
}

// What is closed is idle, whatever the device says; what is captured is not waited for.
func TestIdle(t *testing.T) {
	d := &fakeDriver{}
	s, r := newStream(d, 0, false)
	polls := 0
	require.False(t, s.Idle(&polls))
	d.done.Store(true)
	require.True(t, s.Idle(&polls))
	d.err = errBroken
	require.False(t, s.Idle(&polls))
	require.Len(t, r.told, 1)

	require.NoError(t, s.clock.Capture(func() error { return nil }))
	require.ErrorIs(t, s.WaitIdle(context.Background()), device.ErrNotSupported)
	s.clock.EndCapture()

	require.NoError(t, s.End(func() error {
		polls := 0
		require.True(t, s.Idle(&polls), "with the lock held that calls take")
		return nil
	}))
	require.NoError(t, s.WaitIdle(context.Background()))
	require.NoError(t, s.Drain(context.Background()))
	require.Zero(t, d.syncs.Load())
}

// TestWaitsWhileItIsClosed: what a stream is given between Close's wait and the end of its
// handle, as sanitizers fill what came free, is waited for.
func TestWaitsWhileItIsClosed(t *testing.T) {
	for _, patience := range []epoch.Patience{0, epoch.Patience(time.Minute)} {
		d := &fakeDriver{}
		s, _ := newStream(d, patience, false)
		require.True(t, s.Close())
		s.clock.End()
		polls := 1
		require.False(t, s.Idle(&polls))
		require.NoError(t, s.WaitAWhile())
		require.EqualValues(t, 1, d.syncs.Load())
		require.NoError(t, s.End(func() error { return nil }))
		require.NoError(t, s.WaitAWhile())
		require.EqualValues(t, 1, d.syncs.Load(), "there is no handle")
		require.True(t, s.Idle(&polls))
	}
}

// TestWaitsBesideClose: a wait gives up with its bounds while Close waits for a call.
func TestWaitsBesideClose(t *testing.T) {
	late, cancel := context.WithCancelCause(context.Background())
	cancel(errBroken)
	d := &fakeDriver{}
	d.done.Store(true)
	s, _ := newStream(d, 0, false)
	require.True(t, s.Enter())
	closed := make(chan bool)
	go func() { closed <- s.Close() }()
	for s.running.TryRLock() { // until Close waits
		s.Leave()
		runtime.Gosched()
	}
	for name, wait := range map[string]func(*Stream, context.Context) error{"Drain": (*Stream).Drain, "WaitIdle": (*Stream).WaitIdle} {
		var e *device.WaitError
		require.ErrorAs(t, wait(s, late), &e, name)
		require.ErrorIs(t, e, errBroken, name)
	}
	s.Leave()
	require.True(t, <-closed)
	require.NoError(t, s.Drain(late))
	require.NoError(t, s.WaitIdle(late))
}
