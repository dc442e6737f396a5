package ipc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/gate"
)

const (
	// helloTime is how long a process that connects may say nothing.
	helloTime = 30 * time.Second
	// maxConns is how many connections a process has at most.
	maxConns = 256
)

// Serve accepts connections and serves each in a goroutine of its own, until the server
// is closed, when it returns nil, or ctx is done, when it returns the cause of ctx and
// cuts its connections (ServeConn). Where descriptors or memory are short it ends half of
// the connections that have not said hello, and goes on after a pause of 5 milliseconds
// to a second. It returns the listener's other errors. The caller closes l.
func (s *Server) Serve(ctx context.Context, l *net.UnixListener) error {
	if s.isNone() || ctx == nil || l == nil {
		return nothing("Server, context or listener")
	}
	if err := s.enter(nil); err != nil {
		return err
	}
	defer s.calls.Done()
	either, end := context.WithCancel(ctx)
	defer end()
	defer context.AfterFunc(s.ended, end)()
	woken := make(chan struct{})
	stop := context.AfterFunc(either, func() { defer close(woken); _ = l.SetDeadline(time.Unix(1, 0)) })
	defer func() {
		if !stop() { // the caller's listener is to be as before
			<-woken
			_ = l.SetDeadline(time.Time{})
		}
	}()
	short := func(err error, pause time.Duration) {
		s.rare.Warn("ipc: no connection can be accepted for a moment", "error", err, "pause", pause)
	}
	for {
		c, err := gate.Accept(&s.gate, either.Done(), short, l.AcceptUnix)
		switch {
		case s.ended.Err() != nil:
			return closeConn(c)
		case ctx.Err() != nil:
			return errors.Join(context.Cause(ctx), closeConn(c))
		case err != nil:
			return fmt.Errorf("cupool: ipc: accepting connections: %w", err)
		}
		guest := s.gate.Come(c, either.Done())
		go func() {
			if err := s.serve(ctx, c, guest); err != nil {
				s.rare.Warn("ipc: a connection ended", "error", err)
			}
		}()
	}
}

func closeConn(c *net.UnixConn) error {
	if c == nil {
		return nil
	}
	return c.Close()
}

// enter counts a call, with its connection if any, unless the server has ended.
func (s *Server) enter(c *conn) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended.Err() != nil {
		return fmt.Errorf("cupool: ipc: server: %w", cupool.ErrClosed)
	}
	s.calls.Add(1)
	if c != nil {
		s.came++
		s.conns[c] = visit{number: s.came}
	}
	return nil
}

// seat counts a connection of a process. One too many ends the oldest over which the
// process has nothing open.
func (s *Server) seat(c *conn, p Peer) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	busy := map[*conn]bool{}
	for _, r := range s.refs {
		busy[r.conn] = true
	}
	n, oldest := 0, (*conn)(nil)
	for o, v := range s.conns {
		if v.pid != p.PID {
			continue
		}
		n++
		if !busy[o] && (oldest == nil || v.number < s.conns[oldest].number) {
			oldest = o
		}
	}
	if n >= maxConns {
		if oldest == nil {
			return fmt.Errorf("cupool: ipc: process %d has %d connections, with memory open over each: %w", p.PID, n, ErrRefused)
		}
		_ = oldest.UnixConn.Close()
		delete(s.conns, oldest)
	}
	s.conns[c] = visit{s.conns[c].number, p.PID}
	return nil
}

func (s *Server) leave(c *conn) {
	_ = c.UnixConn.Close()
	s.mu.Lock()
	delete(s.conns, c)
	s.mu.Unlock()
	s.calls.Done()
}

// ServeConn serves one process over a connection, which it closes at the end. When the
// process closes the connection or has ended, or ctx is done, ServeConn waits for the
// end of the process where that had something open. It returns nil then, or
// ErrRefused for a process that may not connect, ErrProtocol for one that does not
// speak the protocol, ErrNotSupported where it cannot be seen when a process ends,
// ErrClosed, or the connection's error.
func (s *Server) ServeConn(ctx context.Context, uc *net.UnixConn) error {
	if s.isNone() || ctx == nil || uc == nil {
		return nothing("Server, context or connection")
	}
	return s.serve(ctx, uc, s.gate.Come(uc, ctx.Done()))
}

// serve is ServeConn of a connection that waits at the gate.
func (s *Server) serve(ctx context.Context, uc *net.UnixConn, guest *gate.Guest) error {
	defer guest.Leave()
	c := &conn{UnixConn: uc}
	if err := s.enter(c); err != nil {
		return errors.Join(err, uc.Close())
	}
	defer s.leave(c)
	defer c.during(ctx)()
	peer, p, err := s.greet(ctx, c)
	guest.Leave()
	for err == nil {
		err = s.serveNext(ctx, c, peer)
	}
	if !errors.Is(err, ErrGone) {
		_ = c.say(errorMessage(0, err)) // it may have gone by now
	}
	if p != nil {
		s.cut(c, peer, p)
		p.close()
	}
	if errors.Is(err, ErrGone) || s.ended.Err() != nil || ctx.Err() != nil {
		return nil
	}
	return err
}

// greet finds out who is at the other end, and agrees on the protocol. It may fail
// with the process, too.
func (s *Server) greet(ctx context.Context, c *conn) (Peer, *process, error) {
	peer, err := c.peer()
	if err == nil {
		err = s.cfg.admit(peer)
	}
	if err != nil {
		return peer, nil, err
	}
	_ = c.SetReadDeadline(time.Now().Add(helloTime))
	if ctx.Err() != nil { // its deadline is gone
		return peer, nil, context.Cause(ctx)
	}
	b, file, err := c.receive()
	if err != nil {
		return peer, nil, err
	}
	_ = c.SetReadDeadline(time.Time{})
	if ctx.Err() != nil { // here, too
		return peer, nil, errors.Join(context.Cause(ctx), closeFile(file))
	}
	if err := errors.Join(closeFile(file), b.expect(helloKind)); err != nil {
		return peer, nil, err
	}
	if err := parseHello(b, peer); err != nil {
		return peer, nil, err
	}
	if err := s.seat(c, peer); err != nil {
		return peer, nil, err
	}
	p, err := watch(peer.PID)
	if err == nil {
		err = c.say(message(welcomeKind, nil, magic, version))
	}
	return peer, p, err
}

// parseHello reads what an importer says first.
func parseHello(b *body, peer Peer) error {
	word, v := b.number(), b.number()
	switch {
	case word != magic:
		return fmt.Errorf("cupool: ipc: no hello: %w", ErrProtocol)
	case v != version:
		return fmt.Errorf("cupool: ipc: process %d speaks version %d of the protocol, process %d version %d: %w", peer.PID, v, os.Getpid(), version, ErrProtocol)
	}
	pid := b.number()
	if err := b.end(); err != nil {
		return err
	}
	if peer.PID == os.Getpid() && pid != uint64(peer.PID) {
		return fmt.Errorf("cupool: ipc: the socket was made by this process and is used by process %d, whose end could not be seen: connect there: %w", pid, ErrRefused)
	}
	return nil
}

// serveNext answers the next request.
func (s *Server) serveNext(ctx context.Context, c *conn, peer Peer) error {
	b, file, err := c.receive()
	if err != nil {
		return err
	}
	_ = closeFile(file) // an importer sends none
	request := b.number()
	switch b.kind {
	case openKind:
		name := string(b.tail(maxName))
		if err = b.end(); err == nil {
			return s.open(ctx, c, peer, request, name)
		}
	case closeKind:
		id := b.number()
		if err = b.end(); err != nil {
			return err
		}
		switch {
		case id == allRefs:
			s.dropAll(c)
			err = lost(io.EOF)
		case s.drop(c, id):
			err = reply(c, message(closedKind, nil, request))
		default:
			err = fmt.Errorf("cupool: ipc: closing what is not open: %w", ErrProtocol)
		}
	default:
		err = fmt.Errorf("cupool: ipc: a message of kind %d from an importer: %w", b.kind, ErrProtocol)
	}
	return err
}

// reply answers a request. That the process does not read any more is not an error: what
// it has said before its end is still to be read, as it may close what it has.
func reply(c *conn, m []byte) error { return replies(c, [][]byte{m}, nil) }

func replies(c *conn, messages [][]byte, files []*os.File) error {
	if err := c.send(messages, files); !errors.Is(err, ErrGone) {
		return err
	}
	return nil
}

// open answers a request to open a name. An error that is returned ends the connection.
func (s *Server) open(ctx context.Context, c *conn, peer Peer, request uint64, name string) error {
	id, x, err := s.take(c, peer, name)
	if err != nil {
		return reply(c, errorMessage(request, err))
	}
	if err = s.await(ctx, x.ready); err != nil {
		s.drop(c, id)
		return reply(c, errorMessage(request, err))
	}
	r, err := s.dev.ExportRange(x.block.Ptr(), x.block.Size())
	if err != nil || len(r.Pieces) > maxPieces {
		s.drop(c, id)
		if err == nil {
			err = errors.Join(fmt.Errorf("cupool: ipc: %q has %d pieces of memory, %d at most can be shared: %w", name, len(r.Pieces), maxPieces, cupool.ErrNotSupported), r.Close())
		}
		return reply(c, errorMessage(request, err))
	}
	defer r.Close()
	// From here on the process may have the memory, whether it could be told or not.
	messages := [][]byte{opened{request: request, ref: id, skip: r.Skip, size: r.Size, pieces: len(r.Pieces)}.message()}
	files := []*os.File{nil}
	for _, p := range r.Pieces {
		messages = append(messages, pieceMessage(p))
		files = append(files, p.File)
	}
	return replies(c, messages, files)
}

// The time between two looks at an event.
const (
	firstPause = 20 * time.Microsecond
	lastPause  = 2 * time.Millisecond
)

// await waits for an event, until ctx is done or the server has ended.
func (s *Server) await(ctx context.Context, e *cupool.Event) error {
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		done, err := e.Done()
		switch {
		case done || err != nil:
			return err
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case s.ended.Err() != nil:
			return fmt.Errorf("cupool: ipc: server: %w", cupool.ErrClosed)
		}
		time.Sleep(pause)
	}
}

// cut ends what a process has open whose connection has ended: when the process ends,
// as until then it can use the memory.
func (s *Server) cut(c *conn, peer Peer, p *process) {
	_ = c.UnixConn.Close()
	s.mu.Lock()
	ids := s.idsOf(c)
	for _, id := range ids {
		s.refs[id].use.Cut = true
	}
	s.mu.Unlock()
	if len(ids) == 0 {
		return
	}
	s.cfg.Logger.Warn("ipc: a process lost its connection; its end is waited for", "pid", peer.PID, "open", len(ids))
	if p.wait(s.ended.Done()) {
		s.dropAll(c)
	}
}
