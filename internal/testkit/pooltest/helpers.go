package pooltest

import (
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/conformance"
	"github.com/cupool/cupool/internal/hook"
)

// MiB is 1,048,576 bytes.
const MiB = 1 << 20

// OpenHost opens a host device of 8 GiB.
func OpenHost(t *testing.T) cupool.Driver {
	d, err := cupool.OpenHost(cupool.HostConfig{Capacity: 8 << 30})
	require.NoError(t, err)
	return d
}

// Open returns an allocator, over the host device where cfg names none.
func Open(t testing.TB, cfg cupool.Config) *cupool.Pool {
	t.Helper()
	c, err := cupool.New(cfg)
	require.NoError(t, err)
	return c
}

// NewPrivate returns a private pool of an allocator.
func NewPrivate(t *testing.T, c *cupool.Pool, cfg cupool.PoolConfig) *cupool.Pool {
	t.Helper()
	p, err := c.NewPool(cfg)
	require.NoError(t, err)
	return p
}

// NewStream returns a stream of an allocator.
func NewStream(t *testing.T, c *cupool.Pool) *cupool.Stream {
	t.Helper()
	s, err := c.NewStream()
	require.NoError(t, err)
	return s
}

// WithStrategy sets the strategy, on segments.
func WithStrategy(s cupool.Strategy) func(*cupool.Config) {
	return func(cfg *cupool.Config) { cfg.Strategy, cfg.Backing = s, cupool.BackingSegments }
}

// EachBacking runs a test for segments and, where the host has it, for virtual memory.
func EachBacking(t *testing.T, f func(t *testing.T, b cupool.Backing)) {
	for _, b := range []cupool.Backing{cupool.BackingSegments, cupool.BackingVMM} {
		t.Run(b.String(), func(t *testing.T) {
			if b == cupool.BackingVMM && hostGranularity(t) == 0 {
				t.Skip("no virtual memory here")
			}
			f(t, b)
		})
	}
}

// hostGranularity returns the bytes of a chunk of the host device, 0 where it has no virtual memory.
func hostGranularity(t *testing.T) int64 {
	d, err := cupool.OpenHost(cupool.HostConfig{})
	require.NoError(t, err)
	defer d.Close()
	return d.(cupool.VirtualMemory).VMMGranularity()
}

// FailingInfo returns a device whose MemInfo fails with "no luck".
func FailingInfo() cupool.Driver {
	d := NewDriver(1 << 30)
	d.Fail("MemInfo", errors.New("no luck"))
	return d
}

// HeapInUse returns the bytes that Go's heap holds, without garbage.
func HeapInUse() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// Ignore returns err, or nil for an error that is known.
func Ignore(err, known error) error {
	if errors.Is(err, known) {
		return nil
	}
	return err
}

// PanicOf calls f and returns what it panicked with, or nil.
func PanicOf(f func()) (p any) {
	defer func() { p = recover() }()
	f()
	return nil
}

// Patience is how long a call that must wait is given to return too early. A
// call that waits as it should is never failed by it.
const Patience = 50 * time.Millisecond

// Returns reports whether a call returned within Patience.
func Returns(done <-chan error) (early bool, err error) {
	select {
	case err = <-done:
		return true, err
	case <-time.After(Patience):
		return false, nil
	}
}

// Patiently repeats a call whose wait timed out: on a busy machine even an empty stream may
// take longer than a short Config.WaitTimeout.
func Patiently(call func() error) error {
	for {
		var late *cupool.WaitError
		if err := call(); !errors.As(err, &late) {
			return err
		}
	}
}

// Start runs a call in a goroutine of its own.
func Start(f func() error) <-chan error {
	done := make(chan error, 1)
	go func() { done <- f() }()
	return done
}

// Elsewhere runs f in another goroutine, which holds no locks, and waits for it.
func Elsewhere(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	<-done
}

// Gate keeps a stream busy until it is opened.
type Gate struct {
	ch     chan struct{}
	opened atomic.Bool
}

// HoldStream keeps a stream busy until the Gate is opened.
func HoldStream(t *testing.T, s *cupool.Stream) *Gate {
	t.Helper()
	g := &Gate{ch: make(chan struct{})}
	require.NoError(t, s.Launch(func() { <-g.ch }))
	return g
}

// Open lets the stream go on. Further calls do nothing.
func (g *Gate) Open() {
	if g.opened.CompareAndSwap(false, true) {
		close(g.ch)
	}
}

// Opened reports whether Open was called.
func (g *Gate) Opened() bool { return g.opened.Load() }

// Watched is a host device that tells a test about calls before it makes them.
type Watched struct {
	*conformance.Failing
	before atomic.Pointer[func(call string, s cupool.StreamHandle)]
}

// NewWatched opens a Watched of 1 GiB, and closes it when the test ends.
func NewWatched(t *testing.T) *Watched {
	t.Helper()
	d, err := cupool.OpenHost(cupool.HostConfig{Capacity: 1 << 30})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	w := &Watched{Failing: conformance.NewFailing(d)}
	around := w.Driver.Around
	w.Driver.Around = func(c *hook.Call, do func() error) error {
		if f := w.before.Load(); f != nil {
			(*f)(c.Name, c.Stream)
		}
		return around(c, do)
	}
	return w
}

// Watch calls f before each of the device's calls that follow.
func (d *Watched) Watch(f func(call string, s cupool.StreamHandle)) { d.before.Store(&f) }

// Stop has the next call of a kind stop before it is made: stopped is closed when it has
// come, and the call goes on when goOn is called.
func (d *Watched) Stop(t *testing.T, kind string) (stopped <-chan struct{}, goOn func()) {
	come, on := make(chan struct{}), make(chan struct{})
	var once sync.Once
	d.Watch(func(call string, _ cupool.StreamHandle) {
		if call == kind {
			once.Do(func() { close(come); <-on })
		}
	})
	goOn = sync.OnceFunc(func() { close(on) })
	t.Cleanup(goOn)
	return come, goOn
}
