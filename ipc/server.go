package ipc

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/device"
	"github.com/cupool/cupool/internal/gate"
	"github.com/cupool/cupool/internal/rarelog"
)

// Server gives blocks of a pool to other processes. All methods are safe from several
// goroutines.
type Server struct {
	pool *cupool.Pool
	dev  device.RangeSharing
	cfg  Config

	ended context.Context // done when the server has ended
	end   context.CancelFunc
	calls sync.WaitGroup // Serve and ServeConn
	gate  gate.Gate      // where connections wait until they have said hello
	rare  *slog.Logger   // of what strangers may cause as often as they like

	mu      sync.Mutex
	shares  map[string]*Share
	refs    map[uint64]*ref
	last    uint64 // of refs, which begin with 1
	came    uint64 // connections
	conns   map[*conn]visit
	closing bool
	changed chan struct{} // closed when a ref has gone
}

// ref is one opening by another process.
type ref struct {
	share *Share
	conn  *conn
	use   Use
}

// visit is a connection that is served.
type visit struct {
	number uint64
	pid    int // 0: it has not said hello
}

// Share is a block that other processes may open by its name. All methods are safe from
// several goroutines.
type Share struct {
	server *Server
	name   string
	block  cupool.Block

	// What follows is guarded by Server.mu.
	ready     *cupool.Event // after what the exporter gave to the stream
	release   func()        // of the block's memory
	refs      int
	withdrawn bool
}

// NewServer returns a server for the blocks of a pool and of its private ones. It fails
// with ErrNotSupported where the device or the system cannot share memory, or with a
// *cupool.ConfigError.
func NewServer(pool *cupool.Pool, cfg Config) (*Server, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	if !supported {
		return nil, fmt.Errorf("cupool: ipc: it takes Linux: %w", cupool.ErrNotSupported)
	}
	dev, err := sharing(pool)
	if err != nil {
		return nil, err
	}
	s := &Server{
		pool: pool, dev: dev, cfg: cfg, shares: map[string]*Share{}, refs: map[uint64]*ref{}, conns: map[*conn]visit{},
		changed: make(chan struct{}), rare: rarelog.Limit(cfg.Logger),
	}
	s.ended, s.end = context.WithCancel(context.Background())
	return s, nil
}

// isNone reports whether NewServer did not make s.
func (s *Server) isNone() bool { return s == nil || s.pool == nil }

// Share makes a live block available under a name of 1 to 255 bytes. Whoever opens it
// finds what the work that on (nil: the default stream) has been given until now wrote.
// The block can be freed at any time: its memory is not reused before the share and all
// that was opened of it are closed. Share fails with cupool.ErrInvalidConfig for a name
// that is taken or too long, as Pool.Hold does, with ErrForeignStream for a stream of
// another allocator, with ErrNotSupported for one that is captured and where the device
// was not opened for it, with ErrClosed, or with what the device says.
func (s *Server) Share(name string, b cupool.Block, on *cupool.Stream) (*Share, error) {
	if s.isNone() {
		return nil, nothing("Server")
	}
	if name == "" || len(name) > maxName {
		return nil, &cupool.ConfigError{Field: "name", Value: name, Reason: "must have 1 to 255 bytes"}
	}
	if on == nil {
		on = s.pool.DefaultStream()
	}
	if err := s.pool.RecordStream(cupool.Block{}, on); err != nil {
		return nil, fmt.Errorf("cupool: ipc: sharing %q: %w", name, err)
	}
	if on.Captured() {
		return nil, fmt.Errorf("cupool: ipc: sharing %q on a stream that is captured, whose work is not done before a launch: %w", name, cupool.ErrNotSupported)
	}
	release, err := s.pool.Hold(b)
	if err != nil {
		return nil, err
	}
	x := &Share{server: s, name: name, block: b, release: release}
	if err := x.prepare(on); err != nil {
		release()
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closing:
		err = fmt.Errorf("cupool: ipc: sharing %q: the server is %w", name, cupool.ErrClosed)
	case s.shares[name] != nil:
		err = &cupool.ConfigError{Field: "name", Value: name, Reason: "another block is shared under it; close that Share first"}
	}
	if err != nil {
		return nil, errors.Join(err, x.finish())
	}
	s.shares[name] = x
	return x, nil
}

// prepare sees whether the block can be exported, and marks the end of the work that an
// importer waits for.
func (x *Share) prepare(on *cupool.Stream) error {
	r, err := x.server.dev.ExportRange(x.block.Ptr(), x.block.Size())
	if err != nil {
		return fmt.Errorf("cupool: ipc: sharing %v: %w", x.block, err)
	}
	if err = r.Close(); err == nil {
		x.ready, err = on.Record()
	}
	return err
}

// finish gives up the memory, which nobody else has any more.
func (x *Share) finish() error {
	x.release()
	return x.ready.Close()
}

// Name returns the name.
func (x *Share) Name() string { return x.orZero().name }

// Block returns the block.
func (x *Share) Block() cupool.Block { return x.orZero().block }

// orZero is the Share, or a zero one for nil.
func (x *Share) orZero() *Share {
	if x == nil {
		return new(Share)
	}
	return x
}

// Close withdraws the name: nobody can open the block any more. What is open stays
// so. It does not wait. It fails with ErrClosed where it was called before, or the
// Server was closed.
func (x *Share) Close() error {
	s := x.orZero().server
	if s == nil {
		return nothing("Share")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if x.withdrawn {
		return fmt.Errorf("cupool: ipc: share %q: %w", x.name, cupool.ErrClosed)
	}
	return s.withdrawLocked(x)
}

func (s *Server) withdrawLocked(x *Share) error {
	x.withdrawn = true
	delete(s.shares, x.name)
	if x.refs > 0 {
		return nil
	}
	return x.finish()
}

// take counts an opening of a name.
func (s *Server) take(c *conn, p Peer, name string) (uint64, *Share, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	x := s.shares[name]
	switch {
	case s.closing:
		return 0, nil, fmt.Errorf("cupool: ipc: opening %q: the server is %w", name, cupool.ErrClosed)
	case s.conns[c].number == 0: // seat has ended it: nobody would close what is opened
		return 0, nil, fmt.Errorf("cupool: ipc: opening %q: %w", name, ErrGone)
	case x == nil:
		return 0, nil, fmt.Errorf("cupool: ipc: opening %q: %w", name, ErrUnknownName)
	}
	n := 0
	for _, r := range s.refs {
		if r.use.Peer.PID == p.PID {
			n++
		}
	}
	if n >= s.cfg.MaxOpen {
		return 0, nil, fmt.Errorf("cupool: ipc: opening %q: process %d has %d open, and Config.MaxOpen is as much: %w", name, p.PID, n, ErrRefused)
	}
	s.last++
	x.refs++
	s.refs[s.last] = &ref{share: x, conn: c, use: Use{Name: name, Peer: p, Bytes: x.block.Size(), Since: time.Now()}}
	return s.last, x, nil
}

// drop ends an opening over a connection, and reports whether there was one.
func (s *Server) drop(c *conn, id uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.refs[id]
	if r == nil || r.conn != c {
		return false
	}
	s.dropLocked(id)
	return true
}

// dropAll ends all openings over a connection.
func (s *Server) dropAll(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range s.idsOf(c) {
		s.dropLocked(id)
	}
}

func (s *Server) dropLocked(id uint64) {
	x := s.refs[id].share
	delete(s.refs, id)
	if x.refs--; x.refs == 0 && x.withdrawn {
		if err := x.finish(); err != nil {
			s.cfg.Logger.Warn("ipc: closing a share", "name", x.name, "error", err)
		}
	}
	close(s.changed)
	s.changed = make(chan struct{})
}

// idsOf returns the openings over a connection.
func (s *Server) idsOf(c *conn) (ids []uint64) {
	for id, r := range s.refs {
		if r.conn == c {
			ids = append(ids, id)
		}
	}
	return ids
}

// Uses lists what other processes have open, the oldest first.
func (s *Server) Uses() []Use {
	if s.isNone() {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.usesLocked()
}

func (s *Server) usesLocked() (uses []Use) {
	for _, r := range s.refs {
		uses = append(uses, r.use)
	}
	slices.SortFunc(uses, func(a, b Use) int {
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Peer.PID, b.Peer.PID), cmp.Compare(a.Name, b.Name))
	})
	return uses
}

// Close withdraws all names, waits until nothing is open any more, and ends all
// connections. When ctx is done first it fails with a *BusyError, which matches the
// cause of ctx: connections and memory stay, and Close can be called again, or Force.
// It fails with ErrClosed after it succeeded, or Force was called.
func (s *Server) Close(ctx context.Context) error {
	if s.isNone() || ctx == nil {
		return nothing("Server or context")
	}
	s.mu.Lock()
	if s.ended.Err() != nil {
		s.mu.Unlock()
		return fmt.Errorf("cupool: ipc: server: %w", cupool.ErrClosed)
	}
	s.closing = true
	err := s.withdrawAllLocked()
	for len(s.refs) > 0 {
		changed := s.changed
		s.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
		}
		s.mu.Lock()
		if ctx.Err() != nil && len(s.refs) > 0 {
			err = errors.Join(err, &BusyError{Uses: s.usesLocked(), Err: context.Cause(ctx)})
			s.mu.Unlock()
			return err
		}
	}
	s.endLocked()
	s.mu.Unlock()
	s.calls.Wait()
	return err
}

func (s *Server) withdrawAllLocked() error {
	var errs []error
	for _, x := range s.shares {
		errs = append(errs, s.withdrawLocked(x))
	}
	return errors.Join(errs...)
}

// endLocked ends all connections and calls.
func (s *Server) endLocked() {
	s.end()
	for c := range s.conns {
		_ = c.UnixConn.Close()
	}
}

// Force is Close that does not wait for other processes. What they have open is reused
// while they may read and write it, and segments of CUDA must not be given back to
// the device meanwhile. It is for processes that hang. It returns what was open.
func (s *Server) Force() []Use {
	if s.isNone() {
		return nil
	}
	s.mu.Lock()
	uses := s.usesLocked()
	s.closing = true
	s.endLocked()
	s.mu.Unlock()
	s.calls.Wait() // so that nobody is given memory that is not held any more
	s.mu.Lock()
	defer s.mu.Unlock()
	_ = s.withdrawAllLocked()
	for id := range s.refs {
		s.dropLocked(id)
	}
	return uses
}
