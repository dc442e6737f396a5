// Package drivertest is what every device has to do as a Driver: the host, the
// simulated one, CUDA's stand-in and a GPU.
//
// Files: drivertest.go has the table and its fixture, memory.go what is asked of
// memory, work.go of streams and events, virtual.go of virtual memory, pools.go
// of stream-ordered pools, and calls.go every call with arguments that are right.
package drivertest

import (
	"errors"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
)

// Options say what a device can do and what not.
type Options struct {
	// Open opens a device, which the test closes.
	Open func(t testing.TB) cupool.Driver
	// Busy keeps a stream from finishing what it is given from now on, until
	// release is called. nil: by a function that waits. Tests that need it are
	// skipped where it fails with ErrNotSupported.
	Busy func(d cupool.Driver, s cupool.StreamHandle) (release func(), err error)
	// WaitsRun: waits on the host make a busy stream run.
	WaitsRun bool
	// NoContents: there is no memory behind the device.
	NoContents bool
	// Capacity is that of the device, in bytes, all of which can be had. 0: it is
	// shared with others.
	Capacity int64
	// Adopts: the device takes streams that it did not make, so that it cannot tell
	// those that are not there.
	Adopts bool
}

var table = []struct {
	name string
	test func(*fixture)
}{
	{"sizes", testSizes},
	{"capacity", testCapacity},
	{"frees", testFrees},
	{"ranges", testRanges},
	{"fills", testFills},
	{"source_is_reused", testSource},
	{"random_work", testRandomWork},

	{"work_lags", testWorkLags},
	{"streams_are_independent", testIndependent},
	{"stream_handles", testStreamHandles},
	{"event_never_recorded", testEventNeverRecorded},
	{"event_marks_the_present_end", testEventMarks},
	{"event_last_record_counts", testEventLastRecord},
	{"event_wait_is_as_of_the_call", testEventWait},
	{"event_orders_memory", testEventOrders},
	{"event_of_a_stream_that_is_gone", testEventOutlives},
	{"event_handles", testEventHandles},

	{"virtual_memory_has_aliases", testAliases},
	{"virtual_memory_is_mapped_under_work", testMapsUnderWork},
	{"virtual_memory_counts", testVirtualCapacity},
	{"virtual_memory_errors", testVirtualErrors},
	{"virtual_memory_keeps_contents", testRandomMaps},

	{"pools", testPools},

	{"goroutines", testGoroutines},
	{"closed", testClosed},
}

// Run runs the tests on devices of their own.
func Run(t *testing.T, o Options) {
	for _, x := range table {
		t.Run(x.name, func(t *testing.T) {
			f := &fixture{Driver: o.Open(t), t: t, o: o}
			defer f.end()
			x.test(f)
		})
	}
}

const mib = 1 << 20

// fixture is a device under test.
type fixture struct {
	cupool.Driver
	t    *testing.T
	o    Options
	held []func()
}

func (f *fixture) end() {
	for _, release := range f.held {
		release()
	}
	if d, ok := f.Driver.(interface{ Check() error }); ok && !f.t.Failed() {
		require.NoError(f.t, d.Check())
	}
	if err := f.Close(); !errors.Is(err, cupool.ErrClosed) && !errors.Is(err, cupool.ErrDeviceLost) {
		require.NoError(f.t, err)
	}
}

func (f *fixture) alloc(size int64) cupool.Ptr {
	f.t.Helper()
	p, err := f.MemAlloc(size)
	require.NoError(f.t, err)
	require.NotZero(f.t, p)
	require.Zero(f.t, p%512)
	return p
}

func (f *fixture) stream() cupool.StreamHandle {
	f.t.Helper()
	s, err := f.NewStream()
	require.NoError(f.t, err)
	return s
}

func (f *fixture) event() cupool.EventHandle {
	f.t.Helper()
	e, err := f.NewEvent()
	require.NoError(f.t, err)
	return e
}

// busy keeps a stream busy until release, or skips the test.
func (f *fixture) busy(s cupool.StreamHandle) (release func()) {
	f.t.Helper()
	hold := f.o.Busy
	if hold == nil {
		hold = launchBusy
	}
	r, err := hold(f.Driver, s)
	if errors.Is(err, cupool.ErrNotSupported) {
		f.t.Skip("no stream can be kept busy here")
	}
	require.NoError(f.t, err)
	release = sync.OnceFunc(r)
	f.held = append(f.held, release)
	return release
}

func launchBusy(d cupool.Driver, s cupool.StreamHandle) (func(), error) {
	l, ok := d.(cupool.Launcher)
	if !ok {
		return nil, cupool.ErrNotSupported
	}
	gate := make(chan struct{})
	return func() { close(gate) }, l.Launch(s, func() { <-gate })
}

// contents skips the test where there is no memory.
func (f *fixture) contents() {
	if f.o.NoContents {
		f.t.Skip("there is no memory behind this device")
	}
}

// read returns n bytes at p, in the order of s.
func (f *fixture) read(p cupool.Ptr, n int, s cupool.StreamHandle) []byte {
	f.t.Helper()
	b := make([]byte, n)
	require.NoError(f.t, f.CopyOut(b, p, s))
	return b
}

func (f *fixture) requireDone(e cupool.EventHandle, want bool) {
	f.t.Helper()
	done, err := f.QueryEvent(e)
	require.NoError(f.t, err)
	require.Equal(f.t, want, done)
}
