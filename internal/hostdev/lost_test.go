package hostdev_test

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool/internal/device"
	"github.com/cupool/cupool/internal/hostdev"
)

// Whatever a job does wrong, the program lives on, the device is lost with
// the reason, nobody waits for ever, and Close still works.
// noMap returns nil where no checker can see it.
func noMap() map[int]int { return nil }

func TestDeviceLost(t *testing.T) {
	tests := map[string]struct {
		f      func()
		reason string
	}{
		"panic":     {func() { panic("boom") }, "a launched function panicked: boom"},
		"nil panic": {func() { panic(nil) }, "a launched function panicked: panic called with nil argument"},
		"Goexit":    {func() { runtime.Goexit() }, "runtime.Goexit"},
		"nil map":   {func() { m := noMap(); m[1] = 1 }, "assignment to entry in nil map"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			before := runtime.NumGoroutine()
			d := open(t, mib)
			s, e, p := newStream(t, d), newEvent(t, d), alloc(t, d, 1000)
			release := hold(t, d, s)
			require.NoError(t, d.Launch(s, tt.f))
			ran := false
			for range 3 {
				require.NoError(t, d.Launch(s, func() { ran = true }))
			}
			require.NoError(t, d.RecordEvent(e, s))
			require.NoError(t, d.StreamWaitEvent(0, e))
			require.NoError(t, d.Launch(0, func() { ran = true }))
			release()
			finishes(t, "SyncStream", func() { require.ErrorIs(t, d.SyncStream(s), device.ErrDeviceLost) })
			require.ErrorContains(t, d.SyncStream(s), tt.reason)
			requireLost(t, d, p, s, e)
			finishes(t, "Close", func() { require.NoError(t, d.Close()) })
			require.False(t, ran, "nothing runs on a lost device")
			require.ErrorIs(t, d.SyncStream(s), device.ErrClosed)
			requireGoroutines(t, before)
		})
	}
}

func requireLost(t *testing.T, d *hostdev.Device, p device.Ptr, s device.Stream, e device.Event) {
	t.Helper()
	for name, call := range everyCall(d, p, make([]byte, 1), s, e) {
		require.ErrorIs(t, call(), device.ErrDeviceLost, name)
	}
}
