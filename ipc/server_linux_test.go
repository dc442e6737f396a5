package ipc_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/cuda"
	sharing "github.com/cupool/cupool/device"
	"github.com/cupool/cupool/internal/simdev"
	"github.com/cupool/cupool/internal/testkit/gputest"
	"github.com/cupool/cupool/ipc"
)

// rig is an exporter and importers in one process, which the host device allows.
type rig struct {
	t        *testing.T
	pool     *cupool.Pool // of the exporter
	other    *cupool.Pool // of the importers
	server   *ipc.Server
	listener *net.UnixListener
	served   chan error
	cancel   context.CancelCauseFunc // of Serve
}

func newRig(t *testing.T, cfg ipc.Config, change ...func(s *ipc.Server)) *rig {
	t.Helper()
	g := &rig{t: t}
	g.serve(newPool(t, openHost), newPool(t, openHost), cfg, change...)
	return g
}

// serve has a pool export and another one import.
func (g *rig) serve(pool, other *cupool.Pool, cfg ipc.Config, change ...func(s *ipc.Server)) {
	t := g.t
	t.Helper()
	g.pool, g.other, g.served = pool, other, make(chan error, 1)
	var err error
	g.server, err = ipc.NewServer(g.pool, cfg)
	require.NoError(t, err)
	for _, f := range change {
		f(g.server)
	}
	g.listener, err = net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(t.TempDir(), "s"), Net: "unix"})
	require.NoError(t, err)
	ctx, cancel := context.WithCancelCause(context.Background())
	g.cancel = cancel
	go func() { g.served <- g.server.Serve(ctx, g.listener) }()
	t.Cleanup(func() {
		g.server.Force()
		cancel(nil)
		require.NoError(t, g.listener.Close())
	})
}

func newPool(t *testing.T, open func() (cupool.Driver, error)) *cupool.Pool {
	t.Helper()
	d, err := open()
	require.NoError(t, err)
	c, err := cupool.New(cupool.Config{Driver: d})
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, c.Close())
		require.NoError(t, d.Close())
	})
	return c
}

func (g *rig) dial() *net.UnixConn {
	g.t.Helper()
	c, err := net.DialUnix("unix", nil, g.listener.Addr().(*net.UnixAddr))
	require.NoError(g.t, err)
	g.t.Cleanup(func() { _ = c.Close() })
	return c
}

func (g *rig) connect() *ipc.Client {
	g.t.Helper()
	c, err := ipc.Connect(g.t.Context(), g.other, g.dial(), ipc.Config{})
	require.NoError(g.t, err)
	return c
}

// share shares a new block of n bytes, which is freed at once.
func (g *rig) share(name string, n int64) *ipc.Share {
	g.t.Helper()
	b, err := g.pool.Alloc(n, nil)
	require.NoError(g.t, err)
	x, err := g.server.Share(name, b, nil)
	require.NoError(g.t, err)
	require.NoError(g.t, g.pool.Free(b))
	return x
}

// TestRefused: a user or a process that is not one of those of the Config has no way in,
// from either side, and the others have.
func TestRefused(t *testing.T) {
	uid, pid := os.Geteuid(), os.Getpid()
	for name, c := range map[string]struct {
		server, client ipc.Config
		want           string
	}{
		"all":             {ipc.Config{}, ipc.Config{}, ""},
		"named":           {ipc.Config{UIDs: []int{uid}, PIDs: []int{pid}}, ipc.Config{UIDs: []int{uid + 1, uid}}, ""},
		"another user":    {ipc.Config{UIDs: []int{uid + 1}}, ipc.Config{}, "the other process says"},
		"nobody":          {ipc.Config{UIDs: []int{}}, ipc.Config{}, "the other process says"},
		"another process": {ipc.Config{PIDs: []int{pid + 1}}, ipc.Config{}, "the other process says"},
		"another server":  {ipc.Config{}, ipc.Config{PIDs: []int{pid + 1}}, "Config.PIDs"},
		"a server's user": {ipc.Config{}, ipc.Config{UIDs: []int{uid + 1}}, "Config.UIDs"},
	} {
		t.Run(name, func(t *testing.T) {
			var log logged
			c.server.Logger = slog.New(slog.NewTextHandler(&log, nil))
			g := newRig(t, c.server)
			client, err := ipc.Connect(t.Context(), g.other, g.dial(), c.client)
			if c.want != "" {
				require.ErrorIs(t, err, ipc.ErrRefused)
				require.ErrorContains(t, err, c.want)
				if strings.Contains(c.want, "says") {
					require.Eventually(t, func() bool {
						return strings.Contains(log.text(), `msg="ipc: a connection ended" error="cupool: ipc: process `)
					}, waitTime, 1e6)
				}
				return
			}
			require.NoError(t, err)
			require.Equal(t, ipc.Peer{PID: pid, UID: uid}, client.Peer())
			require.NoError(t, client.Close(t.Context()))
			require.Empty(t, log.text())
		})
	}
}

// logged is what a logger was told.
type logged struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *logged) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *logged) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// TestSocketpair: the credentials of a socket that another process made are not those
// of who uses it. In one process they are.
func TestSocketpair(t *testing.T) {
	g := newRig(t, ipc.Config{})
	ends := socketpair(t)
	served := make(chan error)
	go func() { served <- g.server.ServeConn(t.Context(), ends[0]) }()
	// What another process says that has inherited the other end.
	_, err := ends[1].Write(hello(1, os.Getpid()+1))
	require.NoError(t, err)
	require.ErrorIs(t, <-served, ipc.ErrRefused)
	require.NoError(t, ends[1].Close())
}

// socketpair returns two ends of a connection.
func socketpair(t *testing.T) (ends [2]*net.UnixConn) {
	t.Helper()
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "socket")
		c, err := net.FileConn(f)
		require.NoError(t, err)
		require.NoError(t, f.Close())
		ends[i] = c.(*net.UnixConn)
		t.Cleanup(func() { _ = c.Close() })
	}
	return ends
}

// TestServeConn: what it returns for each end of a connection, which it has closed then.
func TestServeConn(t *testing.T) {
	pid := os.Getpid()
	asked := append(hello(1, pid), frame(3, 0, 1, 0x78)...) // to open "x" and seven zeros
	for name, test := range map[string]struct {
		says []byte
		end  func(g *rig, importer *net.UnixConn, cancel func())
		want error
	}{
		"closed before its hello": {nil, func(_ *rig, c *net.UnixConn, _ func()) { _ = c.Close() }, nil},
		"closed in its hello":     {hello(1, pid)[:9], func(_ *rig, c *net.UnixConn, _ func()) { _ = c.Close() }, nil},
		"closed after its hello":  {hello(1, pid), func(_ *rig, c *net.UnixConn, _ func()) { _ = c.Close() }, nil},
		"closed after a request":  {asked, func(_ *rig, c *net.UnixConn, _ func()) { _ = c.Close() }, nil},
		"no protocol":             {[]byte("GET / HTTP/1.1\r\n\r\n"), nil, ipc.ErrProtocol},
		"no request":              {append(hello(1, pid), frame(1, 0)...), nil, ipc.ErrProtocol},
		"another process":         {hello(1, pid+1), nil, ipc.ErrRefused},
		"nothing and no context":  {nil, func(_ *rig, _ *net.UnixConn, cancel func()) { cancel() }, nil},
		"hello and no context":    {hello(1, pid), func(_ *rig, _ *net.UnixConn, cancel func()) { cancel() }, nil},
		"nothing and no server":   {nil, func(g *rig, _ *net.UnixConn, _ func()) { g.server.Force() }, nil},
		"hello and no server":     {hello(1, pid), func(g *rig, _ *net.UnixConn, _ func()) { g.server.Force() }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			g := newRig(t, ipc.Config{})
			for i := range 8 {
				ends := socketpair(t)
				_, err := ends[1].Write(test.says)
				require.NoError(t, err)
				ctx, cancel := context.WithCancel(t.Context())
				end := func() {
					if test.end != nil {
						test.end(g, ends[1], cancel)
					}
				}
				if i%2 == 0 && !strings.HasSuffix(name, "server") { // before it is served
					end()
					end = func() {}
				}
				served := make(chan error)
				go func() { served <- g.server.ServeConn(ctx, ends[0]) }()
				end()
				if err := <-served; test.want == nil && !errors.Is(err, cupool.ErrClosed) {
					require.NoError(t, err)
				} else if test.want != nil {
					require.ErrorIs(t, err, test.want)
				}
				require.ErrorIs(t, ends[0].Close(), net.ErrClosed)
				cancel()
			}
		})
	}
}

// overAt is a context that is done from the n-th look on, and whose end was told before.
type overAt struct {
	context.Context
	n *int
}

func (overAt) Done() <-chan struct{} { return nil }

func (o overAt) Err() error {
	if *o.n--; *o.n > 0 {
		return nil
	}
	return context.Canceled
}

// TestOverBeforeHello: a context that is done just before the server sets a time for the hello,
// or takes it back, ends the connection.
func TestOverBeforeHello(t *testing.T) {
	for n, says := range map[int][]byte{1: nil, 2: hello(1, os.Getpid())} {
		g := newRig(t, ipc.Config{})
		ends := socketpair(t)
		_, err := ends[1].Write(says)
		require.NoError(t, err)
		served := make(chan error, 1)
		go func() { served <- g.server.ServeConn(overAt{t.Context(), &n}, ends[0]) }()
		select {
		case err := <-served:
			require.NoError(t, err)
		case <-time.After(ipc.HelloTime / 2):
			t.Errorf("it is waited for, at look %d", n)
			require.NoError(t, ends[1].Close())
			<-served
		}
	}
}

// TestCloseWaits: Close returns as the last opening ends that it waited for.
func TestCloseWaits(t *testing.T) {
	g := newRig(t, ipc.Config{})
	g.share("x", 1000)
	c := g.connect()
	var open []*ipc.Memory
	for range 2 {
		m, err := c.Open(t.Context(), "x")
		require.NoError(t, err)
		open = append(open, m)
	}
	closed := make(chan error)
	go func() { closed <- g.server.Close(t.Context()) }()
	b, err := g.pool.Alloc(1000, nil)
	require.NoError(t, err)
	require.Eventually(t, func() bool { // until it waits
		x, err := g.server.Share("y", b, nil)
		if err == nil {
			err = x.Close()
		}
		return errors.Is(err, cupool.ErrClosed)
	}, waitTime, 1e6)
	for _, m := range open {
		require.NoError(t, m.Close(t.Context()))
	}
	require.NoError(t, <-closed)
	require.NoError(t, g.pool.Free(b))
	require.Zero(t, g.pool.Stats().PendingBytes)
}

// TestForceWhileOpening: Force returns when nobody is given memory any more.
func TestForceWhileOpening(t *testing.T) {
	g := &rig{t: t}
	d, pool := newChanged(t)
	exporting, release := make(chan struct{}), make(chan struct{})
	var calls atomic.Int32
	d.exports = func(r sharing.SharedRange) (sharing.SharedRange, error) {
		if calls.Add(1) == 2 { // the first is Share's
			close(exporting)
			<-release
		}
		return r, nil
	}
	g.serve(pool, newPool(t, openHost), ipc.Config{})
	g.share("x", 5*mib)
	c := g.connect()
	opened, forced := make(chan error), make(chan []ipc.Use)
	go func() { _, err := c.Open(t.Context(), "x"); opened <- err }()
	<-exporting
	go func() { forced <- g.server.Force() }()
	require.ErrorIs(t, <-opened, ipc.ErrGone)
	select {
	case <-forced:
		t.Error("the device is still exporting")
	case <-time.After(20 * time.Millisecond): // time to be wrong
	}
	require.NotZero(t, g.pool.Stats().PendingBytes)
	close(release)
	require.Len(t, <-forced, 1)
	require.Zero(t, g.pool.Stats().PendingBytes)
	b, err := g.pool.Alloc(1000, nil)
	require.NoError(t, err)
	_, err = g.server.Share("y", b, nil)
	require.ErrorIs(t, err, cupool.ErrClosed)
	require.NoError(t, g.pool.Free(b))
	require.NoError(t, c.Close(t.Context()))
}

// TestNames: what can be shared under which name, and opened.
func TestNames(t *testing.T) {
	g := newRig(t, ipc.Config{MaxOpen: 3})
	long := strings.Repeat("x", 255)
	b, err := g.pool.Alloc(1000, nil)
	require.NoError(t, err)
	for _, name := range []string{"", long + "x"} {
		_, err := g.server.Share(name, b, nil)
		require.ErrorIs(t, err, cupool.ErrInvalidConfig)
		_, err = g.connect().Open(t.Context(), name)
		require.ErrorIs(t, err, cupool.ErrInvalidConfig)
	}
	x, err := g.server.Share(long, b, nil)
	require.NoError(t, err)
	require.Equal(t, b, x.Block())
	require.Equal(t, long, x.Name())
	_, err = g.server.Share(long, b, nil)
	require.ErrorIs(t, err, cupool.ErrInvalidConfig, "the name is taken")
	y, err := g.server.Share("y", b, nil)
	require.NoError(t, err, "the same block again")
	c := g.connect()
	for i := range 4 {
		m, err := c.Open(t.Context(), []string{long, "y", long, "y"}[i])
		if i == 3 {
			require.ErrorIs(t, err, ipc.ErrRefused)
			require.ErrorContains(t, err, fmt.Sprintf("process %d has 3 open, and Config.MaxOpen is as much", os.Getpid()))
			break
		}
		require.NoError(t, err)
		require.EqualValues(t, 1000, m.Size())
	}
	require.Len(t, g.server.Uses(), 3)
	require.NoError(t, y.Close())
	require.ErrorIs(t, y.Close(), cupool.ErrClosed)
	_, err = g.connect().Open(t.Context(), "y")
	require.ErrorIs(t, err, ipc.ErrUnknownName)
	require.NoError(t, g.pool.Free(b))
	require.ErrorIs(t, g.pool.Close(), cupool.ErrNotSupported, "other processes use it")
	require.NoError(t, c.Close(t.Context()))
	require.ErrorIs(t, c.Close(t.Context()), cupool.ErrClosed)
	require.ErrorIs(t, c.Err(), cupool.ErrClosed)
	require.NoError(t, g.server.Close(t.Context()))
	require.NoError(t, <-g.served)
	require.Zero(t, g.pool.Stats().PendingBytes)
	require.ErrorIs(t, g.server.Close(t.Context()), cupool.ErrClosed)
	require.ErrorIs(t, x.Close(), cupool.ErrClosed)
	_, err = g.server.Share("z", b, nil)
	require.ErrorIs(t, err, cupool.ErrUseAfterFree)
	require.ErrorIs(t, g.server.Serve(t.Context(), g.listener), cupool.ErrClosed)
}

// TestNotShareable: a device that was not opened for it says how it has to be.
func TestNotShareable(t *testing.T) {
	_, err := ipc.NewServer(newPool(t, func() (cupool.Driver, error) { return simdev.New(simdev.Config{}), nil }), ipc.Config{})
	require.ErrorIs(t, err, cupool.ErrNotSupported)
	require.ErrorContains(t, err, "sim shares no memory with other processes")
	c := newPool(t, func() (cupool.Driver, error) { return cupool.OpenHost(cupool.HostConfig{}) })
	s, err := ipc.NewServer(c, ipc.Config{})
	require.NoError(t, err)
	b, err := c.Alloc(1000, nil)
	require.NoError(t, err)
	_, err = s.Share("x", b, nil)
	require.ErrorIs(t, err, cupool.ErrNotSupported)
	require.ErrorContains(t, err, "HostConfig.Shareable")
	require.NoError(t, c.Free(b))
	require.Zero(t, c.Stats().PendingBytes, "it is not held")
	require.NoError(t, s.Close(t.Context()))
	_, err = ipc.NewServer(c, ipc.Config{MaxOpen: -1})
	require.ErrorIs(t, err, cupool.ErrInvalidConfig)
}

// TestPrivatePool: blocks of private pools are shared, too.
func TestPrivatePool(t *testing.T) {
	g := newRig(t, ipc.Config{})
	p, err := g.pool.NewPool(cupool.PoolConfig{})
	require.NoError(t, err)
	b, err := p.Alloc(3*mib, nil)
	require.NoError(t, err)
	require.NoError(t, p.DefaultStream().Memset(b.Ptr(), 5, b.Size()))
	_, err = g.server.Share("x", b, nil)
	require.NoError(t, err)
	c := g.connect()
	m, err := c.Open(t.Context(), "x")
	require.NoError(t, err)
	got := make([]byte, m.Size())
	require.NoError(t, g.other.DefaultStream().CopyOut(got, m.Ptr()))
	require.EqualValues(t, 5, got[len(got)-1])
	require.NoError(t, p.Retire())
	require.NoError(t, g.pool.Free(b))
	require.NoError(t, c.Close(t.Context()))
	require.NoError(t, g.server.Close(t.Context()))
}

// TestStreams: Close of memory waits for the streams that use it.
func TestStreams(t *testing.T) {
	g := newRig(t, ipc.Config{})
	g.share("x", 1000)
	c := g.connect()
	m, err := c.Open(t.Context(), "x")
	require.NoError(t, err)
	s, err := g.other.NewStream()
	require.NoError(t, err)
	foreign, err := g.pool.NewStream()
	require.NoError(t, err)
	require.ErrorIs(t, m.RecordStream(foreign), cupool.ErrForeignStream)
	require.NoError(t, m.RecordStream(s))
	require.NoError(t, m.RecordStream(nil), "it is always waited for")
	ended, err := g.other.NewStream()
	require.NoError(t, err)
	require.NoError(t, m.RecordStream(ended))
	require.NoError(t, ended.Close())
	another, err := g.other.NewStream()
	require.NoError(t, err)
	require.NoError(t, m.RecordStream(another))
	require.Equal(t, 3, ipc.RecordedOn(m), "of closed streams nothing stays")
	release := make(chan struct{})
	require.NoError(t, s.Launch(func() { <-release }))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err = m.Close(ctx)
	var late *cupool.WaitError
	require.ErrorAs(t, err, &late)
	require.Equal(t, s.Handle(), late.Stream)
	require.ErrorAs(t, c.Close(ctx), &late)
	require.Len(t, g.server.Uses(), 1)
	require.NoError(t, c.Err())
	close(release)
	require.NoError(t, m.Close(t.Context()))
	require.ErrorIs(t, m.Close(t.Context()), cupool.ErrClosed)
	require.ErrorIs(t, m.RecordStream(s), cupool.ErrClosed)
	require.Empty(t, g.server.Uses())
	require.NoError(t, c.Close(t.Context()))
}

// TestAbandoned: what is opened for one who did not wait is closed.
func TestAbandoned(t *testing.T) {
	g := newRig(t, ipc.Config{})
	release := make(chan struct{})
	require.NoError(t, g.pool.DefaultStream().Launch(func() { <-release }))
	g.share("x", 5*mib)
	c := g.connect()
	files, err := openFiles("")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	opened := make(chan error)
	go func() { _, err := c.Open(ctx, "x"); opened <- err }()
	require.Eventually(t, func() bool { return len(g.server.Uses()) == 1 }, waitTime, 1e6)
	cancel()
	require.ErrorIs(t, <-opened, context.Canceled)
	close(release)
	require.Eventually(t, func() bool { return len(g.server.Uses()) == 0 }, waitTime, 1e6)
	require.Eventually(t, func() bool { n, err := openFiles(""); return n == files && err == nil }, waitTime, 1e6)
	m, err := c.Open(t.Context(), "x")
	require.NoError(t, err, "the connection is as good as before")
	require.NoError(t, m.Close(t.Context()))
	require.NoError(t, c.Close(t.Context()))
}

// TestNoDescriptorLeaks: opening and closing leaves no file open on either side.
func TestNoDescriptorLeaks(t *testing.T) {
	connections := func() (int, error) { return openFiles("anon_inode:[pidfd]", "socket:") }
	others, err := connections() // CUDA's driver has a socket, where another test has opened it
	require.NoError(t, err)
	g := newRig(t, ipc.Config{})
	g.share("x", 5*mib)
	var before int
	for i := range 20 {
		c := g.connect()
		for range 3 {
			_, err := c.Open(t.Context(), "x")
			require.NoError(t, err)
		}
		require.NoError(t, c.Close(t.Context()))
		require.Eventually(t, func() bool { n, err := connections(); return n <= others+1 && err == nil }, waitTime, 1e6)
		n, err := openFiles("")
		require.NoError(t, err)
		if i == 0 {
			before = n
		}
		require.Equal(t, before, n)
	}
}

// TestCut: when the context of Serve is done the importer is told, and what it has open
// is kept for as long as its process is there.
func TestCut(t *testing.T) {
	var log logged
	g := newRig(t, ipc.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	g.share("x", 1000)
	c := g.connect()
	m, err := c.Open(t.Context(), "x")
	require.NoError(t, err)
	g.cancel(errors.New("enough"))
	require.EqualError(t, <-g.served, "enough")
	<-c.Done()
	require.ErrorIs(t, c.Err(), ipc.ErrGone)
	require.Eventually(t, func() bool { return g.server.Uses()[0].Cut }, waitTime, 1e6)
	said := fmt.Sprintf(`level=WARN msg="ipc: a process lost its connection; its end is waited for" pid=%d open=1`, os.Getpid())
	require.Eventually(t, func() bool { return strings.Contains(log.text(), said) }, waitTime, 1e6)
	require.NoError(t, m.Close(t.Context()))
	late, stop := context.WithCancel(t.Context())
	stop()
	var busy *ipc.BusyError
	err = g.server.Close(late)
	require.ErrorAs(t, err, &busy)
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorContains(t, err, "without a connection")
	require.Len(t, g.server.Force(), 1)
	require.Zero(t, g.pool.Stats().PendingBytes)
}

// TestCutWhileOpening: what was not opened yet when the context of Serve is done, or the
// server ends, is not kept, though the stream is busy.
func TestCutWhileOpening(t *testing.T) {
	for name, cut := range map[string]func(g *rig){
		"the context": func(g *rig) { g.cancel(errors.New("enough")) },
		"the server":  func(g *rig) { g.server.Force() },
	} {
		t.Run(name, func(t *testing.T) {
			g := newRig(t, ipc.Config{})
			release := make(chan struct{})
			require.NoError(t, g.pool.DefaultStream().Launch(func() { <-release }))
			g.share("x", 1000)
			c := g.connect()
			opened := make(chan error)
			go func() { _, err := c.Open(t.Context(), "x"); opened <- err }()
			require.Eventually(t, func() bool { return len(g.server.Uses()) == 1 }, waitTime, 1e6)
			cut(g)
			require.Error(t, <-opened)
			require.Eventually(t, func() bool { return len(g.server.Uses()) == 0 }, waitTime, 1e6)
			close(release)
			require.NoError(t, c.Close(t.Context()))
		})
	}
}

// TestCloseBeforeHello: a server that closes ends the connections that have said nothing.
func TestCloseBeforeHello(t *testing.T) {
	g := newRig(t, ipc.Config{})
	c := g.dial()
	require.Eventually(t, func() bool { return ipc.Kept(g.server) == 1 }, waitTime, 1e6)
	require.NoError(t, g.server.Close(t.Context()))
	_, err := io.ReadAll(c)
	require.NoError(t, err)
	require.Zero(t, ipc.Kept(g.server))
}

// TestServeAgain: a listener that was served until a context was done is as good as before.
func TestServeAgain(t *testing.T) {
	g := newRig(t, ipc.Config{})
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(t.TempDir(), "again"), Net: "unix"})
	require.NoError(t, err)
	defer l.Close()
	over, cancel := context.WithCancel(t.Context())
	cancel()
	for range 100 {
		for range 2 {
			c, err := net.Dial("unix", l.Addr().String())
			require.NoError(t, err)
			defer c.Close()
		}
		require.ErrorIs(t, g.server.Serve(over, l), context.Canceled) // it may take one of them
		runtime.Gosched()
		c, err := l.Accept()
		require.NoError(t, err)
		require.NoError(t, c.Close())
	}
}

// TestServeFails: what the listener says, Serve returns.
func TestServeFails(t *testing.T) {
	g := newRig(t, ipc.Config{})
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(t.TempDir(), "s"), Net: "unix"})
	require.NoError(t, err)
	require.NoError(t, l.Close())
	err = g.server.Serve(t.Context(), l)
	require.ErrorIs(t, err, net.ErrClosed)
	require.ErrorContains(t, err, "cupool: ipc: accepting connections: ")
}

// TestBusyError lists ten that have memory open.
func TestBusyError(t *testing.T) {
	use := ipc.Use{Name: "x", Peer: ipc.Peer{PID: 7, UID: 8}, Bytes: 9, Since: time.Unix(0, 0).UTC()}
	cut := use
	cut.Cut = true
	const head, line = "cupool: ipc: other processes have memory open %d times: late; wait for them, or call Force", "\n  process 7 (user 8): \"x\", 9 bytes, since 1970-01-01T00:00:00Z"
	text := func(uses ...ipc.Use) string { return (&ipc.BusyError{Uses: uses, Err: errors.New("late")}).Error() }
	require.Equal(t, fmt.Sprintf(head, 2)+line+line+", without a connection", text(use, cut))
	require.Equal(t, fmt.Sprintf(head, 10)+strings.Repeat(line, 10), text(slices.Repeat([]ipc.Use{use}, 10)...))
	require.Equal(t, fmt.Sprintf(head, 11)+strings.Repeat(line, 10)+"\n  ...", text(slices.Repeat([]ipc.Use{use}, 11)...))
}

// TestShareCaptured: a block is not shared after work that a graph keeps, which may never be
// done.
func TestShareCaptured(t *testing.T) {
	gputest.Need(t)
	pool := newPool(t, func() (cupool.Driver, error) { return cuda.Open(0, cuda.Shareable()) })
	s, err := pool.NewStream()
	require.NoError(t, err)
	e, err := cupool.NewEngine(pool, cupool.WithStream(s))
	require.NoError(t, err)
	server, err := ipc.NewServer(pool, ipc.Config{})
	require.NoError(t, err)
	b, err := pool.Alloc(1000, nil)
	require.NoError(t, err)
	g, err := e.Capture(func() error {
		_, err := server.Share("x", b, s)
		require.ErrorIs(t, err, cupool.ErrNotSupported)
		return nil
	})
	require.NoError(t, err)
	require.NoError(t, g.Close())
	_, err = server.Share("x", b, s)
	require.NoError(t, err)
	require.NoError(t, pool.Free(b))
	require.NoError(t, server.Close(t.Context()))
}
