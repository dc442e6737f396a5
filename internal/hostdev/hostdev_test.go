package hostdev_test

import (
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool/internal/testkit"

	"github.com/cupool/cupool/device"
	"github.com/cupool/cupool/internal/hostdev"
)

const mib = 1 << 20

// open opens a device that the test closes at its end.
func open(t testing.TB, capacity int64) *hostdev.Device {
	t.Helper()
	d, err := hostdev.Open(hostdev.Config{Capacity: capacity})
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, d.Check())
		_ = d.Close()
	})
	return d
}

func alloc(t testing.TB, d *hostdev.Device, size int64) device.Ptr {
	t.Helper()
	p, err := d.MemAlloc(size)
	require.NoError(t, err)
	return p
}

func newStream(t testing.TB, d *hostdev.Device) device.Stream {
	t.Helper()
	s, err := d.NewStream()
	require.NoError(t, err)
	return s
}

func newEvent(t testing.TB, d *hostdev.Device) device.Event {
	t.Helper()
	e, err := d.NewEvent()
	require.NoError(t, err)
	return e
}

// hold keeps the stream busy until the returned function is called, or the test
// ends: Close waits for it.
func hold(t testing.TB, d *hostdev.Device, s device.Stream) (release func()) {
	t.Helper()
	gate := make(chan struct{})
	require.NoError(t, d.Launch(s, func() { <-gate }))
	release = sync.OnceFunc(func() { close(gate) })
	t.Cleanup(release)
	return release
}

// read returns n bytes at p, in the order of s.
func read(t testing.TB, d *hostdev.Device, p device.Ptr, n int, s device.Stream) []byte {
	t.Helper()
	b := make([]byte, n)
	require.NoError(t, d.CopyOut(b, p, s))
	return b
}

// requireGoroutines waits until no more than n goroutines exist.
func requireGoroutines(t testing.TB, n int) {
	t.Helper()
	for end := time.Now().Add(testkit.Patience); runtime.NumGoroutine() > n; time.Sleep(time.Millisecond) {
		require.True(t, time.Now().Before(end), "%d goroutines, not %d", runtime.NumGoroutine(), n)
	}
}
