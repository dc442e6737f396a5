package simdev_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool/device"
	"github.com/cupool/cupool/internal/simdev"
)

func requireDone(t testing.TB, d *simdev.Device, e device.Event, want bool) {
	t.Helper()
	done, err := d.QueryEvent(e)
	require.NoError(t, err)
	require.Equal(t, want, done)
}

func TestAutomaticWorkIsDoneAtOnce(t *testing.T) {
	d := simdev.New(simdev.Config{})
	s, e := newStream(t, d), newEvent(t, d)
	ran := false
	require.NoError(t, d.Launch(s, func() { ran = true }))
	require.True(t, ran)
	require.NoError(t, d.RecordEvent(e, s))
	requireDone(t, d, e, true)
	require.NoError(t, d.SyncEvent(e))
	require.NoError(t, d.Launch(s, func() { panic("boom") }))
	require.ErrorIs(t, d.SyncStream(s), device.ErrDeviceLost)
	require.ErrorContains(t, d.SyncStream(s), "boom")
}

// In manual mode an event is pending until it is completed, also on an idle
// stream.
func TestManualEvents(t *testing.T) {
	d := simdev.New(simdev.Config{ManualEvents: true})
	a, b := newStream(t, d), newStream(t, d)
	e, f, g := newEvent(t, d), newEvent(t, d), newEvent(t, d)
	requireDone(t, d, e, true) // never recorded
	d.CompleteEvent(e)
	require.NoError(t, d.RecordEvent(e, a))
	require.NoError(t, d.RecordEvent(f, a))
	require.NoError(t, d.RecordEvent(g, b))
	d.CompleteEvent(e)
	requireDone(t, d, e, true)
	requireDone(t, d, f, false) // later on the same stream
	requireDone(t, d, g, false)
	require.NoError(t, d.RecordEvent(e, a)) // overwrites
	requireDone(t, d, e, false)
	d.CompleteStream(a)
	requireDone(t, d, e, true)
	requireDone(t, d, f, true)
	requireDone(t, d, g, false)
	d.CompleteAll()
	requireDone(t, d, g, true)
	require.NoError(t, d.DestroyStream(b))
	requireDone(t, d, g, true)
	require.Panics(t, func() { d.CompleteEvent(99) })
	require.Panics(t, func() { d.CompleteStream(b) })
}

// Completing something completes what it waits for, first.
func TestManualWorkRunsInOrder(t *testing.T) {
	d := simdev.New(simdev.Config{ManualEvents: true})
	a, b := newStream(t, d), newStream(t, d)
	e := newEvent(t, d)
	var got []string
	step := func(s device.Stream, name string) {
		require.NoError(t, d.Launch(s, func() { got = append(got, name) }))
	}
	step(b, "b1")
	step(a, "a1")
	require.NoError(t, d.RecordEvent(e, a))
	step(a, "a2")
	require.NoError(t, d.StreamWaitEvent(b, e))
	step(b, "b2")
	require.NoError(t, d.RecordEvent(e, a)) // too late for b
	require.NoError(t, d.DestroyEvent(e))
	require.Empty(t, got)
	require.NoError(t, d.SyncStream(b))
	require.Equal(t, []string{"b1", "a1", "b2"}, got)
	require.NoError(t, d.DestroyStream(a))
	require.Equal(t, []string{"b1", "a1", "b2", "a2"}, got)
}

// Calls that wait on the host let the device run, MemFree too.
func TestManualHostWaits(t *testing.T) {
	d := simdev.New(simdev.Config{ManualEvents: true})
	p, q, s, e := alloc(t, d, mib), alloc(t, d, mib), newStream(t, d), newEvent(t, d)
	for name, wait := range map[string]func() error{
		"MemFree":   func() error { return d.MemFree(p) },
		"CopyOut":   func() error { return d.CopyOut(make([]byte, 1), q, s) },
		"SyncEvent": func() error { return d.SyncEvent(e) },
	} {
		require.NoError(t, d.Memset(q, 1, mib, s))
		require.NoError(t, d.RecordEvent(e, s))
		requireDone(t, d, e, false)
		require.NoError(t, wait(), name)
		requireDone(t, d, e, true)
	}
}

func TestManualLost(t *testing.T) {
	d := simdev.New(simdev.Config{ManualEvents: true})
	ran := false
	require.NoError(t, d.Launch(0, func() { panic("boom") }))
	require.NoError(t, d.Launch(0, func() { ran = true }))
	d.CompleteAll()
	require.False(t, ran)
	require.ErrorIs(t, d.SyncStream(0), device.ErrDeviceLost)
}
