package ipc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cupool/cupool/device"
	"github.com/cupool/cupool/internal/fdpass"
)

// supported says whether this system has what the package needs.
const supported = true

// conn is one end of a connection. One goroutine at a time receives.
type conn struct {
	*net.UnixConn
	sending sync.Mutex
}

// send sends messages, the i-th with the i-th file unless that is nil.
func (c *conn) send(messages [][]byte, files []*os.File) error {
	c.sending.Lock()
	defer c.sending.Unlock()
	for i, m := range messages {
		var rights []byte
		if i < len(files) && files[i] != nil {
			rights = unix.UnixRights(int(files[i].Fd()))
		}
		n, _, err := c.WriteMsgUnix(m, rights, nil)
		if err == nil && n < len(m) { // the rest, without the descriptor
			_, err = c.Write(m[n:])
		}
		if err != nil {
			return lost(err)
		}
	}
	return nil
}

func (c *conn) say(m []byte) error { return c.send([][]byte{m}, nil) }

// receive returns the next message and the file that came with it, or nil.
func (c *conn) receive() (*body, *os.File, error) {
	var head [headerSize]byte
	var file *os.File
	for n := 0; n < headerSize; {
		more, f, err := fdpass.Read(c.UnixConn, head[n:], "shared memory")
		if file == nil {
			file = f
		} else if f != nil {
			err = errors.Join(fdpass.ErrSeveral, f.Close())
		}
		if errors.Is(err, fdpass.ErrSeveral) {
			err = fmt.Errorf("cupool: ipc: %w: %w", ErrProtocol, err)
		}
		if err != nil {
			return nil, nil, lost(errors.Join(err, closeFile(file)))
		}
		n += more
	}
	h, err := parseHeader(head)
	if err == nil && h.file != (file != nil) {
		err = fmt.Errorf("cupool: ipc: a message of kind %d with or without a file descriptor: %w", h.kind, ErrProtocol)
	}
	b := &body{kind: h.kind, rest: make([]byte, h.size)}
	if err == nil {
		_, err = io.ReadFull(c, b.rest)
	}
	if err != nil {
		return nil, nil, lost(errors.Join(err, closeFile(file)))
	}
	return b, file, nil
}

func closeFile(f *os.File) error {
	if f == nil {
		return nil
	}
	return f.Close()
}

// lost makes an error that is the end of a connection ErrGone.
func lost(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, unix.EPIPE) || errors.Is(err, unix.ECONNRESET) {
		return fmt.Errorf("cupool: ipc: the connection has ended: %w", ErrGone)
	}
	if errors.Is(err, ErrProtocol) {
		return err
	}
	return fmt.Errorf("cupool: ipc: %w", err)
}

// during ends the connection's calls when ctx is done, until stop is called.
func (c *conn) during(ctx context.Context) (stop func() bool) {
	return context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })
}

// peer returns who is at the other end.
func (c *conn) peer() (Peer, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return Peer{}, fmt.Errorf("cupool: ipc: %w", err)
	}
	var cred *unix.Ucred
	var failed error
	err = raw.Control(func(fd uintptr) { cred, failed = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	if err = errors.Join(err, failed); err != nil {
		return Peer{}, fmt.Errorf("cupool: ipc: asking who is at the other end: %w", err)
	}
	return Peer{PID: int(cred.Pid), UID: int(cred.Uid)}, nil
}

// process is another process, whose end can be waited for.
type process struct{ fd int }

// watch returns a process that lives.
func watch(pid int) (*process, error) {
	fd, err := unix.PidfdOpen(pid, 0)
	switch {
	case errors.Is(err, unix.ESRCH):
		return nil, fmt.Errorf("cupool: ipc: process %d: %w", pid, ErrGone)
	case errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EPERM):
		return nil, fmt.Errorf("cupool: ipc: watching process %d (pidfd_open, Linux 5.3): %w: %w", pid, device.ErrNotSupported, err)
	case err != nil:
		return nil, fmt.Errorf("cupool: ipc: watching process %d: %w", pid, err)
	}
	return &process{fd}, nil
}

// wait waits until the process has ended, with all its threads and descriptors, or stop
// is closed, and reports whether it has.
func (p *process) wait(stop <-chan struct{}) bool {
	for {
		fds := []unix.PollFd{{Fd: int32(p.fd), Events: unix.POLLIN}}
		if n, _ := unix.Poll(fds, 20); n > 0 {
			return true
		}
		select {
		case <-stop:
			return false
		default:
		}
	}
}

func (p *process) close() { _ = unix.Close(p.fd) }
