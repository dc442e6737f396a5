package ipc_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/cuda"
	"github.com/cupool/cupool/internal/testkit/gputest"
	"github.com/cupool/cupool/ipc"
)

// The tests start processes, which are this program again with a variable set. Each
// does what it is told, a line at a time, and answers with a line.

const peerVar = "CUPOOL_TEST_IPC" // the device of a process

func TestMain(m *testing.M) {
	if name := os.Getenv(peerVar); name != "" {
		if err := runPeer(name); err != nil {
			fmt.Println("err", err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// device is a way to have memory that is shared.
type device struct {
	name    string
	backing cupool.Backing
	open    func() (cupool.Driver, error)
	// work returns what fills and checks memory with work of streams, and keeps
	// a stream busy until release is called.
	work func(c *cupool.Pool, d cupool.Driver) (worker, error)
}

type worker interface {
	fill(p cupool.Ptr, n int64, value uint32, s *cupool.Stream) error
	wrong(p cupool.Ptr, n int64, value uint32, s *cupool.Stream) (words int, err error)
	busy(s *cupool.Stream) (release func(), err error)
}

var devices = []device{
	{"host", cupool.BackingVMM, openHost, hostWork},
	{"host segments", cupool.BackingSegments, openHost, hostWork},
	{onGPU, cupool.BackingVMM, func() (cupool.Driver, error) { return cuda.Open(0, cuda.Shareable()) }, gpuWork},
	{onGPU + " segments", cupool.BackingSegments, func() (cupool.Driver, error) { return cuda.Open(0) }, gpuWork},
}

const onGPU = "cuda" // what the names of devices begin with that need a GPU

func openHost() (cupool.Driver, error) { return cupool.OpenHost(cupool.HostConfig{Shareable: true}) }

func hostWork(c *cupool.Pool, d cupool.Driver) (worker, error) { return host{d}, nil }

// host works without kernels.
type host struct{ d cupool.Driver }

func (h host) fill(p cupool.Ptr, n int64, value uint32, s *cupool.Stream) error {
	return s.Memset(p, byte(value), n)
}

func (h host) wrong(p cupool.Ptr, n int64, value uint32, s *cupool.Stream) (int, error) {
	got := make([]byte, n)
	err := s.CopyOut(got, p)
	return int(n) - bytes.Count(got, []byte{byte(value)}), err
}

func (h host) busy(s *cupool.Stream) (func(), error) {
	ch := make(chan struct{})
	return func() { close(ch) }, s.Launch(func() { <-ch })
}

// gpu works with kernels.
type gpu struct {
	kernels *gputest.Kernels
	count   cupool.Ptr // of wrong words
}

func gpuWork(c *cupool.Pool, d cupool.Driver) (worker, error) {
	k, err := gputest.Load(d.(cuda.Driver).Context())
	if err != nil {
		return nil, err
	}
	p, err := d.MemAlloc(4)
	return gpu{k, p}, err
}

func (g gpu) fill(p cupool.Ptr, n int64, value uint32, s *cupool.Stream) error {
	return g.kernels.Fill(uintptr(s.Handle()), uintptr(p), n, value)
}

func (g gpu) wrong(p cupool.Ptr, n int64, value uint32, s *cupool.Stream) (int, error) {
	if err := s.Memset(g.count, 0, 4); err != nil {
		return 0, err
	}
	if err := g.kernels.Check(uintptr(s.Handle()), uintptr(p), n, value, uintptr(g.count)); err != nil {
		return 0, err
	}
	var words [4]byte
	err := s.CopyOut(words[:], g.count)
	return int(binary.LittleEndian.Uint32(words[:])), err
}

func (g gpu) busy(s *cupool.Stream) (func(), error) { return g.kernels.Busy(uintptr(s.Handle())) }

// peer is one of the processes, from the inside.
type peer struct {
	d      cupool.Driver
	pool   *cupool.Pool
	work   worker
	stream *cupool.Stream

	server *ipc.Server
	blocks map[string]cupool.Block
	shares map[string]*ipc.Share
	idle   func() // ends what "busy" began

	client *ipc.Client
	memory map[string]*ipc.Memory
}

func newPeer(name string) (*peer, error) {
	for _, dev := range devices {
		if dev.name != name {
			continue
		}
		d, err := dev.open()
		if err != nil {
			return nil, err
		}
		c, err := cupool.New(cupool.Config{Driver: d, Backing: dev.backing})
		if err != nil {
			return nil, err
		}
		p := &peer{d: d, pool: c, blocks: map[string]cupool.Block{}, shares: map[string]*ipc.Share{}, memory: map[string]*ipc.Memory{}}
		if p.stream, err = c.NewStream(); err == nil {
			p.work, err = dev.work(c, d)
		}
		inherited, _ = descriptors() // CUDA's driver has opened some
		return p, err
	}
	return nil, fmt.Errorf("no device %q", name)
}

func runPeer(name string) error {
	p, err := newPeer(name)
	if err != nil {
		return err
	}
	fmt.Println("ok")
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		words := strings.Fields(in.Text())
		answer, err := p.do(words[0], words[1:])
		if err != nil {
			fmt.Println("err", strings.ReplaceAll(err.Error(), "\n", " "))
		} else {
			fmt.Println("ok", answer)
		}
		if words[0] == "quit" {
			return err
		}
	}
	return in.Err()
}

// waitTime bounds what the processes wait for where they should not have to.
const waitTime = time.Minute

func (p *peer) do(what string, args []string) (answer any, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), waitTime)
	defer cancel()
	switch what {
	case "serve", "share", "free", "withdraw", "busy", "idle", "uses", "pending", "end", "force", "check":
		return p.export(ctx, what, args)
	case "quit":
		if p.client != nil {
			if err = p.client.Close(ctx); errors.Is(err, cupool.ErrClosed) {
				err = nil
			}
		}
		return nil, errors.Join(err, p.pool.Close(), p.d.Close())
	case "files": // that begin with one of the args
		return openFiles(args...)
	}
	return p.importing(ctx, what, args)
}

// inherited are the descriptors that this process was started with, as a socket that is
// its standard error, and those of its device.
var inherited, _ = descriptors()

// descriptors returns the names of the files that are open, by descriptor.
func descriptors() (map[string]string, error) {
	files, err := os.ReadDir("/proc/self/fd")
	links := map[string]string{}
	for _, f := range files {
		links[f.Name()], _ = os.Readlink("/proc/self/fd/" + f.Name())
	}
	return links, err
}

// openFiles counts the descriptors that this process has opened and that stand for files
// whose names begin with one of those given.
func openFiles(names ...string) (n int, err error) {
	links, err := descriptors()
	for fd, link := range links {
		if inherited[fd] != link && slices.ContainsFunc(names, func(name string) bool { return strings.HasPrefix(link, name) }) {
			n++
		}
	}
	return n, err
}

// export does what an exporter can.
func (p *peer) export(ctx context.Context, what string, args []string) (answer any, err error) {
	switch what {
	case "serve": // a path
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: args[0], Net: "unix"})
		if err != nil {
			return nil, err
		}
		if p.server, err = ipc.NewServer(p.pool, ipc.Config{}); err != nil {
			return nil, err
		}
		go func() { _ = p.server.Serve(context.Background(), l) }()
	case "files": // how many more descriptors there may be
		var more uint64
		if _, err := fmt.Sscan(args[0], &more); err != nil {
			return nil, err
		}
		now, err := descriptors()
		if err != nil {
			return nil, err
		}
		limit := syscall.Rlimit{Cur: uint64(len(now)) + more, Max: uint64(len(now)) + more}
		return nil, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit)
	case "share": // name, bytes, value
		var size int64
		var value uint32
		if _, err := fmt.Sscan(strings.Join(args[1:], " "), &size, &value); err != nil {
			return nil, err
		}
		b, err := p.pool.Alloc(size, p.stream)
		if err != nil {
			return nil, err
		}
		if err := p.work.fill(b.Ptr(), size, value, p.stream); err != nil {
			return nil, err
		}
		p.blocks[args[0]] = b
		if p.shares[args[0]], err = p.server.Share(args[0], b, p.stream); err != nil {
			return nil, errors.Join(err, p.pool.Free(b))
		}
		return fmt.Sprintf("%d", b.Ptr()), nil
	case "check": // name, value
		var value uint32
		if _, err := fmt.Sscan(args[1], &value); err != nil {
			return nil, err
		}
		b := p.blocks[args[0]]
		return p.work.wrong(b.Ptr(), b.Size(), value, p.stream)
	case "free": // name
		return nil, p.pool.Free(p.blocks[args[0]])
	case "withdraw": // name
		return nil, p.shares[args[0]].Close()
	case "busy":
		p.idle, err = p.work.busy(p.stream)
		return nil, err
	case "idle":
		p.idle()
	case "uses":
		return len(p.server.Uses()), nil
	case "pending":
		return p.pool.Stats().PendingBytes, errors.Join(p.pool.Check(), p.stream.Sync())
	case "end": // ms
		var ms int
		if _, err := fmt.Sscan(args[0], &ms); err != nil {
			return nil, err
		}
		ctx, cancel := context.WithTimeout(ctx, time.Duration(ms)*time.Millisecond)
		defer cancel()
		return nil, p.server.Close(ctx)
	case "force":
		return len(p.server.Force()), nil
	}
	return nil, err
}

// importing does what an importer can.
func (p *peer) importing(ctx context.Context, what string, args []string) (answer any, err error) {
	switch what {
	case "connect": // path
		conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: args[0], Net: "unix"})
		if err != nil {
			return nil, err
		}
		p.client, err = ipc.Connect(ctx, p.pool, conn, ipc.Config{})
		return nil, err
	case "open": // name, as
		m, err := p.client.Open(ctx, args[0])
		if err != nil {
			return nil, err
		}
		p.memory[args[1]] = m
		return m.Size(), m.RecordStream(p.stream)
	case "opening": // name: does not wait for it
		go func() { _, _ = p.client.Open(context.Background(), args[0]) }()
	case "expect", "fill": // as, value
		var value uint32
		if _, err := fmt.Sscan(args[1], &value); err != nil {
			return nil, err
		}
		m := p.memory[args[0]]
		if what == "fill" {
			return nil, p.work.fill(m.Ptr(), m.Size(), value, p.stream)
		}
		return p.work.wrong(m.Ptr(), m.Size(), value, p.stream)
	case "close": // as
		return nil, p.memory[args[0]].Close(ctx)
	case "disconnect":
		return nil, p.client.Close(ctx)
	case "gone":
		select {
		case <-p.client.Done():
			return p.client.Err(), nil
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	default:
		return nil, fmt.Errorf("what is %q?", what)
	}
	return nil, err
}

// process is one of the processes, from the outside.
type process struct {
	t    *testing.T
	name string
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  *bufio.Reader
}

func start(t *testing.T, dev device, name string) *process {
	t.Helper()
	p := &process{t: t, name: name, cmd: exec.Command(os.Args[0])}
	p.cmd.Env = append(os.Environ(), peerVar+"="+dev.name)
	p.cmd.Stderr = os.Stderr
	in, err := p.cmd.StdinPipe()
	require.NoError(t, err)
	out, err := p.cmd.StdoutPipe()
	require.NoError(t, err)
	p.in, p.out = in, bufio.NewReader(out)
	require.NoError(t, p.cmd.Start())
	t.Cleanup(func() {
		if p.cmd.ProcessState == nil {
			_ = p.cmd.Process.Kill()
			_ = p.cmd.Wait()
		}
	})
	answer, err := p.answer()
	require.NoError(t, err, name)
	require.Empty(t, answer)
	return p
}

func (p *process) answer() (string, error) {
	line, err := p.out.ReadString('\n')
	if err != nil {
		return "", err
	}
	word, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
	if word == "ok" {
		return strings.TrimPrefix(rest, "<nil>"), nil
	}
	return "", errors.New(line)
}

// try tells a process to do something.
func (p *process) try(format string, args ...any) (string, error) {
	if _, err := fmt.Fprintf(p.in, format+"\n", args...); err != nil {
		return "", err
	}
	return p.answer()
}

// do is try that has to succeed.
func (p *process) do(format string, args ...any) string {
	p.t.Helper()
	answer, err := p.try(format, args...)
	require.NoError(p.t, err, "%s: %s", p.name, fmt.Sprintf(format, args...))
	return answer
}

// eventually tells a process to do something until the answer is the one wanted.
func (p *process) eventually(want, format string, args ...any) {
	p.t.Helper()
	for end := time.Now().Add(waitTime); ; time.Sleep(time.Millisecond) {
		answer := p.do(format, args...)
		if answer == want {
			return
		}
		require.True(p.t, time.Now().Before(end), "%s: %s: %s, not %s", p.name, fmt.Sprintf(format, args...), answer, want)
	}
}

// kill ends a process as nothing can prevent, and waits for its end.
func (p *process) kill() {
	p.t.Helper()
	require.NoError(p.t, p.cmd.Process.Signal(syscall.SIGKILL))
	_ = p.cmd.Wait()
}

// quit ends a process in order.
func (p *process) quit() {
	p.t.Helper()
	p.do("quit")
	require.NoError(p.t, p.cmd.Wait(), p.name)
}
