package ipc_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	sharing "github.com/cupool/cupool/device"
	"github.com/cupool/cupool/internal/testkit"
	"github.com/cupool/cupool/ipc"
)

// changed is a device that exports and imports in another way.
type changed struct {
	cupool.Driver
	sharing.RangeSharing
	exports func(r sharing.SharedRange) (sharing.SharedRange, error)
	imports func(r sharing.SharedRange) (sharing.Ptr, error)
	closes  error       // what CloseRange says
	broken  atomic.Bool // an event is not looked at
}

func (d *changed) QueryEvent(e cupool.EventHandle) (bool, error) {
	if d.broken.Load() {
		return false, errors.New("not looked at")
	}
	return d.Driver.QueryEvent(e)
}

func (d *changed) CloseRange(p sharing.Ptr) error {
	if d.closes != nil {
		return d.closes
	}
	return d.RangeSharing.CloseRange(p)
}

func (d *changed) ExportRange(p sharing.Ptr, size int64) (sharing.SharedRange, error) {
	r, err := d.RangeSharing.ExportRange(p, size)
	if err == nil && d.exports != nil {
		r, err = d.exports(r)
	}
	return r, err
}

func (d *changed) ImportRange(r sharing.SharedRange) (sharing.Ptr, error) {
	if d.imports != nil {
		return d.imports(r)
	}
	return d.RangeSharing.ImportRange(r)
}

// newChanged returns a pool of such a device.
func newChanged(t *testing.T) (*changed, *cupool.Pool) {
	d := &changed{}
	return d, newPool(t, func() (cupool.Driver, error) {
		host, err := openHost()
		d.Driver, d.RangeSharing = host, host.(sharing.RangeSharing)
		return d, err
	})
}

// TestCloseWhileMapping: Close closes what another goroutine is just mapping, too.
func TestCloseWhileMapping(t *testing.T) {
	g := newRig(t, ipc.Config{})
	var d *changed
	d, g.other = newChanged(t)
	importing, finish := make(chan struct{}), make(chan struct{})
	var calls atomic.Int32
	d.imports = func(r sharing.SharedRange) (sharing.Ptr, error) {
		if calls.Add(1) == 1 {
			close(importing)
			<-finish
		}
		return d.RangeSharing.ImportRange(r)
	}
	g.share("x", 5*mib)
	c := g.connect()
	type result struct {
		m   *ipc.Memory
		err error
	}
	opened, closed := make(chan result), make(chan error)
	go func() { m, err := c.Open(t.Context(), "x"); opened <- result{m, err} }()
	<-importing
	go func() { closed <- c.Close(t.Context()) }()
	require.Eventually(t, func() bool { // until Close is at work
		m, err := c.Open(t.Context(), "x")
		if err == nil {
			err = m.Close(t.Context())
		}
		return errors.Is(err, cupool.ErrClosed)
	}, waitTime, 1e6)
	close(finish)
	r := <-opened
	require.NoError(t, r.err)
	require.NoError(t, <-closed)
	require.ErrorIs(t, r.m.Close(t.Context()), cupool.ErrClosed)
	require.Eventually(t, func() bool { return len(g.server.Uses()) == 0 }, waitTime, 1e6)
	require.NoError(t, g.server.Close(t.Context()))
}

// TestCloseWhileOpening: Close does not wait for an exporter whose stream is busy, and
// the exporter knows that what it opens then is not mapped.
func TestCloseWhileOpening(t *testing.T) {
	g := newRig(t, ipc.Config{})
	g.share("before", 1000)
	c := g.connect()
	m, err := c.Open(t.Context(), "before")
	require.NoError(t, err)
	require.NoError(t, m.Close(t.Context()))
	release := make(chan struct{})
	require.NoError(t, g.pool.DefaultStream().Launch(func() { <-release }))
	g.share("x", 5*mib)
	opened := make(chan error)
	go func() { _, err := c.Open(t.Context(), "x"); opened <- err }()
	require.Eventually(t, func() bool { return len(g.server.Uses()) == 1 }, waitTime, 1e6)
	require.NoError(t, c.Close(t.Context()))
	require.ErrorIs(t, <-opened, cupool.ErrClosed)
	require.Len(t, g.server.Uses(), 1, "until the stream is there")
	close(release)
	require.Eventually(t, func() bool { return len(g.server.Uses()) == 0 }, waitTime, 1e6)
	require.NoError(t, g.server.Close(t.Context()))
}

// closing calls a Close that waits for a stream, whose error comes later. Another call of it
// meanwhile is bounded by its own context.
func closing(t *testing.T, end func(context.Context) error) <-chan error {
	t.Helper()
	closed, waits := make(chan error, 1), make(chan struct{})
	go func() { closed <- end(asked{t.Context(), sync.OnceFunc(func() { close(waits) })}) }()
	<-waits
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	var late *cupool.WaitError
	testkit.Finishes(t, "Close", func() { require.ErrorAs(t, end(ctx), &late) })
	return closed
}

// TestCloseMemoryTwice: while Close of a Memory waits for a stream, another one is bounded by its
// own context, and the stream's work may record a stream, which is waited for, too.
func TestCloseMemoryTwice(t *testing.T) {
	g := newRig(t, ipc.Config{})
	g.share("x", 1000)
	m, err := g.connect().Open(t.Context(), "x")
	require.NoError(t, err)
	s, err := g.other.NewStream()
	require.NoError(t, err)
	gate, last := make(chan struct{}), make(chan struct{})
	var recorded error
	require.NoError(t, g.other.DefaultStream().Launch(func() { <-gate; recorded = m.RecordStream(s) }))
	require.NoError(t, s.Launch(func() { <-last }))
	closed := closing(t, m.Close)
	close(gate)
	require.NoError(t, g.other.DefaultStream().Sync())
	require.NoError(t, recorded)
	require.Empty(t, closed, "a stream that was recorded meanwhile is waited for")
	close(last)
	require.NoError(t, <-closed)
	require.NoError(t, g.server.Close(t.Context()))
}

// TestCloseClientTwice: while Close of a Client waits for a stream, another one is bounded by its own
// context, and nothing is opened.
func TestCloseClientTwice(t *testing.T) {
	g := newRig(t, ipc.Config{})
	g.share("x", 1000)
	c := g.connect()
	m, err := c.Open(t.Context(), "x")
	require.NoError(t, err)
	gate := make(chan struct{})
	require.NoError(t, g.other.DefaultStream().Launch(func() { <-gate }))
	closed := closing(t, c.Close)
	_, err = c.Open(t.Context(), "x")
	require.ErrorIs(t, err, cupool.ErrClosed)
	close(gate)
	require.NoError(t, <-closed)
	require.ErrorIs(t, m.Close(t.Context()), cupool.ErrClosed)
	require.ErrorIs(t, c.Close(t.Context()), cupool.ErrClosed)
	require.NoError(t, g.server.Close(t.Context()))
}

// TestCloseUnanswered: what a process closed before it closed the connection is closed,
// though nobody reads the answers.
func TestCloseUnanswered(t *testing.T) {
	g := newRig(t, ipc.Config{})
	release := make(chan struct{})
	g.share("x", 5*mib)
	c := g.dial()
	_, err := c.Write(hello(1, os.Getpid()))
	require.NoError(t, err)
	_, err = io.ReadFull(c, make([]byte, 24)) // welcome
	require.NoError(t, err)
	require.NoError(t, g.pool.DefaultStream().Launch(func() { <-release }))
	g.share("late", 5*mib)
	open := func(request byte, name string) []byte {
		return append([]byte{3, 0, 0, 0, byte(8 + len(name)), 0, 0, 0, request, 0, 0, 0, 0, 0, 0, 0}, name...)
	}
	b := append(open(1, "x"), open(2, "late")...)
	b = append(append(b, frame(6, 0, 3, 1)...), frame(6, 0, 4, 2)...)
	_, err = c.Write(b)
	require.NoError(t, err)
	require.Eventually(t, func() bool { return len(g.server.Uses()) == 2 }, waitTime, 1e6)
	require.NoError(t, c.Close())
	close(release)
	require.Eventually(t, func() bool { return len(g.server.Uses()) == 0 }, waitTime, 1e6)
	require.NoError(t, g.server.Close(t.Context()))
}

// TestCloseBeforeMapping: what an exporter has opened is not mapped after Close.
func TestCloseBeforeMapping(t *testing.T) {
	g := newRig(t, ipc.Config{})
	g.share("x", 5*mib)
	c := g.connect()
	_, err := c.Open(asked{t.Context(), func() {
		m, err := c.Open(t.Context(), "x") // whose answer comes after that of the other
		require.NoError(t, err)
		require.NoError(t, m.Close(t.Context()))
		require.NoError(t, c.Close(t.Context()))
	}}, "x")
	require.ErrorIs(t, err, cupool.ErrClosed)
	require.Eventually(t, func() bool { return len(g.server.Uses()) == 0 }, waitTime, 1e6)
	require.NoError(t, g.server.Close(t.Context()))
}

// asked is a context that does something before anybody waits for it.
type asked struct {
	context.Context
	do func()
}

func (a asked) Done() <-chan struct{} {
	a.do()
	return a.Context.Done()
}

// TestMappingFails: an exporter knows what a device could not map, and the connection
// is as good as before.
func TestMappingFails(t *testing.T) {
	g := newRig(t, ipc.Config{})
	var d *changed
	d, g.other = newChanged(t)
	g.share("x", 5*mib)
	c := g.connect()
	no := errors.New("no")
	d.imports = func(sharing.SharedRange) (sharing.Ptr, error) { return 0, no }
	m, err := c.Open(t.Context(), "x")
	require.Nil(t, m)
	require.ErrorIs(t, err, no)
	require.ErrorContains(t, err, fmt.Sprintf(`mapping "x" of process %d`, os.Getpid()))
	require.Empty(t, g.server.Uses())
	d.imports = nil
	m, err = c.Open(t.Context(), "x")
	require.NoError(t, err)
	require.NoError(t, m.Close(t.Context()))
	d.imports = func(sharing.SharedRange) (sharing.Ptr, error) {
		g.server.Force()
		<-c.Done()
		return 0, no
	}
	_, err = c.Open(t.Context(), "x")
	require.ErrorIs(t, err, no)
	require.ErrorIs(t, err, ipc.ErrGone)
	require.NoError(t, c.Close(t.Context()))
}

// TestPieces: memory of more pieces than can be told is not opened, nor what the device
// does not export.
func TestPieces(t *testing.T) {
	g := &rig{t: t}
	exporter, pool := newChanged(t)
	var calls atomic.Int32
	exporter.exports = func(r sharing.SharedRange) (sharing.SharedRange, error) {
		err := r.Close()
		if calls.Add(1) == 3 { // the first is Share's
			return sharing.SharedRange{}, errors.Join(err, errors.New("not exported"))
		}
		r.Pieces = make([]sharing.SharedPiece, ipc.MaxPieces+1)
		return r, err
	}
	g.serve(pool, newPool(t, openHost), ipc.Config{})
	g.share("x", 5*mib)
	c := g.connect()
	_, err := c.Open(t.Context(), "x")
	require.ErrorIs(t, err, cupool.ErrNotSupported)
	require.ErrorContains(t, err, "65537 pieces")
	require.Empty(t, g.server.Uses())
	_, err = c.Open(t.Context(), "x")
	require.EqualError(t, err, "cupool: ipc: the other process says: not exported")
	require.Empty(t, g.server.Uses())
	require.NoError(t, c.Close(t.Context()))
}

// TestUnmappingFails: memory that the device does not unmap stays open, and with it the
// client.
func TestUnmappingFails(t *testing.T) {
	g := newRig(t, ipc.Config{})
	var d *changed
	d, g.other = newChanged(t)
	g.share("x", 1000)
	c := g.connect()
	m, err := c.Open(t.Context(), "x")
	require.NoError(t, err)
	d.closes = errors.New("not unmapped")
	for _, err := range []error{m.Close(t.Context()), c.Close(t.Context())} {
		require.EqualError(t, err, `cupool: ipc: closing "x": not unmapped`)
	}
	require.Len(t, g.server.Uses(), 1)
	d.closes = nil
	require.NoError(t, m.Close(t.Context()))
	require.NoError(t, c.Close(t.Context()))
}

// TestDeviceClosed: memory can be closed after the device that had it mapped, and the
// exporter has it back.
func TestDeviceClosed(t *testing.T) {
	g := &rig{t: t}
	d, err := openHost()
	require.NoError(t, err)
	pool, err := cupool.New(cupool.Config{Driver: d})
	require.NoError(t, err)
	g.serve(newPool(t, openHost), pool, ipc.Config{})
	g.share("x", 1000)
	c := g.connect()
	m, err := c.Open(t.Context(), "x")
	require.NoError(t, err)
	_, err = c.Open(t.Context(), "x")
	require.NoError(t, err)
	require.NoError(t, pool.Close())
	require.NoError(t, d.Close())
	require.NoError(t, m.Close(t.Context()))
	require.NoError(t, c.Close(t.Context()))
	require.NoError(t, g.server.Close(t.Context()))
}

// TestNotReady: memory is not opened where the device does not say whether it is written.
func TestNotReady(t *testing.T) {
	g := &rig{t: t}
	exporter, pool := newChanged(t)
	g.serve(pool, newPool(t, openHost), ipc.Config{})
	release := make(chan struct{})
	require.NoError(t, exporter.Driver.(cupool.Launcher).Launch(pool.DefaultStream().Handle(), func() { <-release }))
	g.share("x", 1000)
	c := g.connect()
	exporter.broken.Store(true)
	_, err := c.Open(t.Context(), "x")
	exporter.broken.Store(false)
	require.ErrorContains(t, err, "the other process says: ")
	require.ErrorContains(t, err, "not looked at")
	require.Empty(t, g.server.Uses())
	close(release)
	require.NoError(t, c.Close(t.Context()))
}

// TestConnectCanceled: who waits for an exporter that says nothing can end that.
func TestConnectCanceled(t *testing.T) {
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: t.TempDir() + "/s", Net: "unix"})
	require.NoError(t, err)
	defer l.Close()
	uc, err := net.DialUnix("unix", nil, l.Addr().(*net.UnixAddr))
	require.NoError(t, err)
	_, err = ipc.Connect(t.Context(), newPool(t, openHost), uc, ipc.Config{MaxOpen: -1})
	require.ErrorIs(t, err, cupool.ErrInvalidConfig)
	uc, err = net.DialUnix("unix", nil, l.Addr().(*net.UnixAddr))
	require.NoError(t, err)
	enough := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	go cancel(enough)
	_, err = ipc.Connect(ctx, newPool(t, openHost), uc, ipc.Config{})
	require.ErrorIs(t, err, enough)
	require.ErrorIs(t, uc.Close(), net.ErrClosed)
}

// TestCloseIsNotAnswered: memory is closed, though the exporter does not say so in time.
func TestCloseIsNotAnswered(t *testing.T) {
	g := newRig(t, ipc.Config{})
	g.share("x", 1000)
	release := make(chan struct{})
	require.NoError(t, g.pool.DefaultStream().Launch(func() { <-release }))
	g.share("late", 1000)
	c := g.connect()
	m, err := c.Open(t.Context(), "x")
	require.NoError(t, err)
	opened := make(chan error)
	go func() { _, err := c.Open(t.Context(), "late"); opened <- err }()
	require.Eventually(t, func() bool { return len(g.server.Uses()) == 2 }, waitTime, 1e6)
	enough := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	require.ErrorIs(t, m.Close(asked{ctx, func() { cancel(enough) }}), enough)
	require.ErrorIs(t, m.Close(t.Context()), cupool.ErrClosed)
	close(release)
	require.NoError(t, <-opened)
	require.Eventually(t, func() bool { return len(g.server.Uses()) == 1 }, waitTime, 1e6)
	require.NoError(t, c.Close(t.Context()))
}

// TestNothingIsKept: neither side keeps anything of what is over.
func TestNothingIsKept(t *testing.T) {
	var log logged
	g := newRig(t, ipc.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	g.share("w", 1000) // the device's goroutines are there
	before := runtime.NumGoroutine()
	c := g.connect()
	for i := range 10 {
		x := g.share("x", 1000)
		m, err := c.Open(t.Context(), "x")
		require.NoError(t, err)
		if i%2 == 0 {
			require.NoError(t, m.Close(t.Context()))
		}
		require.NoError(t, x.Close())
		if i%2 == 1 {
			require.NoError(t, m.Close(t.Context()))
		}
		_, err = c.Open(t.Context(), "x")
		require.ErrorIs(t, err, ipc.ErrUnknownName)
	}
	require.Zero(t, ipc.KeptBy(c))
	require.NoError(t, c.Close(t.Context()))
	require.Eventually(t, func() bool { return ipc.Kept(g.server) == 1 }, waitTime, 1e6)
	noMoreGoroutines(t, before)
	require.Empty(t, log.text())
}

// noMoreGoroutines waits until there are no more goroutines than before a connection that has
// ended.
func noMoreGoroutines(t *testing.T, before int) {
	t.Helper()
	for end := time.Now().Add(waitTime); runtime.NumGoroutine() > before; time.Sleep(time.Millisecond) {
		require.True(t, time.Now().Before(end), "%d goroutines, not %d", runtime.NumGoroutine(), before)
	}
}

// TestExporterDoesNotRead: calls end with their context, however much an exporter has not
// read, and so does Close. Calls that have ended leave no goroutine and no message.
func TestExporterDoesNotRead(t *testing.T) {
	ends := make(chan *net.UnixConn, 1)
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: t.TempDir() + "/s", Net: "unix"})
	require.NoError(t, err)
	defer l.Close()
	go func() {
		c, err := l.AcceptUnix()
		if err == nil {
			_, _ = io.ReadFull(c, make([]byte, len(hello(1, 1))))
			_, _ = c.Write(frame(2, 0, 0x4350497563, 1))
		}
		ends <- c
	}()
	c, err := net.DialUnix("unix", nil, l.Addr().(*net.UnixAddr))
	require.NoError(t, err)
	pool := newPool(t, openHost)
	before := runtime.NumGoroutine()
	client, err := ipc.Connect(t.Context(), pool, c, ipc.Config{})
	require.NoError(t, err)
	exporter := <-ends
	defer exporter.Close()
	const own = 3 // the Client's two and the one that calls
	var goroutines, unsent int
	over := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithCancelCause(context.Background())
		cancel(errEnough)
		for range 3000 { // more than a socket holds
			if _, err := client.Open(ctx, "x"); !errors.Is(err, errEnough) {
				over <- err
				return
			}
		}
		goroutines, unsent = runtime.NumGoroutine(), ipc.Unsent(client)
		over <- client.Close(ctx)
	}()
	select {
	case err = <-over:
	case <-time.After(waitTime):
		require.NoError(t, exporter.Close()) // so that the calls end
		err = errors.New("a call hangs")
	}
	require.NoError(t, err)
	require.LessOrEqual(t, goroutines, before+own)
	require.Zero(t, unsent)
	noMoreGoroutines(t, before)
}

var errEnough = errors.New("enough")

// TestManyGiveUp: many who ask at once and do not wait for the answer leave nothing open,
// and do not keep the exporter from answering.
func TestManyGiveUp(t *testing.T) {
	const many = 3000 // more than the sockets hold
	g := newRig(t, ipc.Config{})
	release := make(chan struct{})
	require.NoError(t, g.pool.DefaultStream().Launch(func() { <-release }))
	g.share("x", 1000)
	c := g.connect()
	ctx, cancel := context.WithCancelCause(t.Context())
	var wg sync.WaitGroup
	for range many {
		wg.Go(func() {
			if m, err := c.Open(ctx, "x"); err == nil { // the answer was faster
				_ = m.Close(t.Context())
			}
		})
	}
	require.Eventually(t, func() bool { return ipc.KeptBy(c) == many }, waitTime, 1e6)
	cancel(errEnough)
	close(release)
	wg.Wait()
	m, err := c.Open(t.Context(), "x")
	require.NoError(t, err)
	require.NoError(t, m.Close(t.Context()))
	require.Eventually(t, func() bool { return len(g.server.Uses()) == 0 }, waitTime, 1e6)
}
