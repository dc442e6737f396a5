package hostdev_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool/internal/device"
)

func TestEventNeverRecordedIsDone(t *testing.T) {
	d := open(t, mib)
	e := newEvent(t, d)
	requireDone(t, d, e, true)
	require.NoError(t, d.SyncEvent(e))
	require.NoError(t, d.StreamWaitEvent(0, e))
	require.NoError(t, d.SyncStream(0))
}

func TestEventMarksThePresentEnd(t *testing.T) {
	d := open(t, mib)
	s, e := newStream(t, d), newEvent(t, d)
	require.NoError(t, d.RecordEvent(e, s))
	requireDone(t, d, e, true) // nothing before it

	first := hold(t, d, s)
	require.NoError(t, d.RecordEvent(e, s))
	second := hold(t, d, s)
	requireDone(t, d, e, false)
	first()
	finishes(t, "SyncEvent", func() { require.NoError(t, d.SyncEvent(e)) })
	requireDone(t, d, e, true) // though later work still runs
	second()
}

func TestEventLastRecordCounts(t *testing.T) {
	d := open(t, mib)
	a, b, e := newStream(t, d), newStream(t, d), newEvent(t, d)
	releaseA := hold(t, d, a)
	require.NoError(t, d.RecordEvent(e, a))
	requireDone(t, d, e, false)
	require.NoError(t, d.RecordEvent(e, b)) // idle: overwrites
	requireDone(t, d, e, true)
	releaseA()
}

// A wait takes the record that is the last one at the time of the call.
func TestStreamWaitEventCapturesTheRecord(t *testing.T) {
	d := open(t, mib)
	a, b, c := newStream(t, d), newStream(t, d), newStream(t, d)
	e := newEvent(t, d)
	releaseA := hold(t, d, a)
	require.NoError(t, d.RecordEvent(e, a))
	require.NoError(t, d.StreamWaitEvent(b, e))
	ran := make(chan struct{})
	require.NoError(t, d.Launch(b, func() { close(ran) }))

	releaseC := hold(t, d, c)
	require.NoError(t, d.RecordEvent(e, c)) // too late for b
	require.NoError(t, d.DestroyEvent(e))   // and so is this
	select {
	case <-ran:
		t.Fatal("b did not wait for a")
	case <-time.After(10 * time.Millisecond):
	}
	releaseA()
	finishes(t, "b", func() { <-ran })
	releaseC()
}

func TestStreamWaitEventOnItself(t *testing.T) {
	d := open(t, mib)
	s, e := newStream(t, d), newEvent(t, d)
	require.NoError(t, d.Launch(s, func() { time.Sleep(time.Millisecond) }))
	require.NoError(t, d.RecordEvent(e, s))
	require.NoError(t, d.StreamWaitEvent(s, e))
	finishes(t, "SyncStream", func() { require.NoError(t, d.SyncStream(s)) })
}

// What a stream wrote is seen by work of another that waits for its event;
// the race detector checks that too.
func TestEventsOrderMemoryBetweenStreams(t *testing.T) {
	d := open(t, mib)
	a, b := newStream(t, d), newStream(t, d)
	ea, eb := newEvent(t, d), newEvent(t, d)
	x := 0
	for i := range 1000 {
		require.NoError(t, d.Launch(a, func() { x++ }))
		require.NoError(t, d.RecordEvent(ea, a))
		require.NoError(t, d.StreamWaitEvent(b, ea))
		require.NoError(t, d.Launch(b, func() { x = 2*i + 2 }))
		require.NoError(t, d.RecordEvent(eb, b))
		require.NoError(t, d.StreamWaitEvent(a, eb))
	}
	require.NoError(t, d.SyncStream(a))
	require.NoError(t, d.SyncEvent(eb))
	require.Equal(t, 2000, x)
}

// An event outlives its stream.
func TestEventOfDestroyedStream(t *testing.T) {
	d := open(t, mib)
	s, e := newStream(t, d), newEvent(t, d)
	require.NoError(t, d.Launch(s, func() { time.Sleep(time.Millisecond) }))
	require.NoError(t, d.RecordEvent(e, s))
	require.NoError(t, d.DestroyStream(s))
	requireDone(t, d, e, true)
	require.NoError(t, d.StreamWaitEvent(0, e))
	require.ErrorIs(t, d.RecordEvent(e, s), device.ErrInvalidHandle)
}

func TestEventHandles(t *testing.T) {
	d := open(t, mib)
	e := newEvent(t, d)
	require.NoError(t, d.DestroyEvent(e))
	next := newEvent(t, d) // takes the slot of e
	require.NotEqual(t, e, next)
	for _, bad := range []device.Event{0, e, 1 << 19, ^device.Event(0)} {
		_, err := d.QueryEvent(bad)
		for _, err := range []error{
			err, d.DestroyEvent(bad), d.RecordEvent(bad, 0), d.SyncEvent(bad), d.StreamWaitEvent(0, bad),
		} {
			require.ErrorIs(t, err, device.ErrInvalidHandle)
		}
	}
	require.ErrorIs(t, d.RecordEvent(next, 99), device.ErrInvalidHandle)
	require.ErrorIs(t, d.StreamWaitEvent(99, next), device.ErrInvalidHandle)
	require.Equal(t, 1, d.Stats().Events)
	for range 5000 { // more than one chunk of the table
		newEvent(t, d)
	}
	require.Equal(t, 5001, d.Stats().Events)
}
