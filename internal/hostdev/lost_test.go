package hostdev_test

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool/internal/testkit"

	"github.com/cupool/cupool/device"
	"github.com/cupool/cupool/internal/testkit/drivertest"
)

// noMap returns nil where no checker can see it.
func noMap() map[int]int { return nil }

// Whatever a job does wrong, the program lives on, the device is lost with
// the reason, nobody waits for ever, and Close still works.
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
			d := open(t, 64*mib)
			s, e, calls := newStream(t, d), newEvent(t, d), drivertest.Calls(t, d)
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
			testkit.Finishes(t, "SyncStream", func() { require.ErrorIs(t, d.SyncStream(s), device.ErrDeviceLost) })
			require.ErrorContains(t, d.SyncStream(s), tt.reason)
			for name, call := range calls {
				require.ErrorIs(t, call(), device.ErrDeviceLost, name)
			}
			testkit.Finishes(t, "Close", func() { require.NoError(t, d.Close()) })
			require.False(t, ran, "nothing runs on a lost device")
			require.ErrorIs(t, d.SyncStream(s), device.ErrClosed)
			requireGoroutines(t, before)
		})
	}
}
