package ipc

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/device"
	"github.com/cupool/cupool/internal/poolaccess"
)

// Client opens what another process shares. All methods are safe from several
// goroutines. It has two goroutines of its own, which end when the connection does.
//
// The exporter answers what is asked over one connection in turn: an Open that waits for
// a busy stream, or whose memory has many pieces, keeps those behind it waiting, and the
// Close of a Memory. Other connections do not wait for it: what must not wait takes a Client
// of its own. A call whose context is done returns and leaves nothing behind but its answer,
// which still comes in its turn.
type Client struct {
	pool *cupool.Pool
	dev  device.RangeSharing
	conn *conn
	peer Peer
	done chan struct{} // closed when the connection has ended

	// mapping is held for reading while memory is mapped, and by Close until it knows what is.
	// While closing is not 0, nothing more is.
	mapping sync.RWMutex
	closing atomic.Int32 // calls of Close

	mu      sync.Mutex
	err     error // why the connection has ended
	last    uint64
	waiting map[uint64]chan answer
	open    map[*Memory]struct{}
	unsent  []unsent  // in their order
	sending sync.Cond // signaled when there is more of them, or the connection has ended
}

// unsent is a message that is to be sent.
type unsent struct {
	request uint64 // 0: nobody waits for an answer
	message []byte
}

// answer is what a request gets.
type answer struct {
	ref    uint64
	memory device.SharedRange
	err    error
}

// Connect returns a client over a connection to a Server, which it closes in the end. The
// memory is mapped by the device of pool. Connect fails with ErrRefused where one of
// the processes does not admit the other, with ErrProtocol, ErrGone, with
// ErrNotSupported where the device or the system cannot share memory, with a
// *cupool.ConfigError, or when ctx is done.
func Connect(ctx context.Context, pool *cupool.Pool, uc *net.UnixConn, cfg Config) (*Client, error) {
	if ctx == nil || uc == nil {
		return nil, nothing("context or connection")
	}
	c, err := connect(ctx, pool, uc, cfg)
	if err != nil {
		return nil, errors.Join(err, uc.Close())
	}
	go c.read()
	go c.write()
	return c, nil
}

func connect(ctx context.Context, pool *cupool.Pool, uc *net.UnixConn, cfg Config) (*Client, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	if !supported {
		return nil, fmt.Errorf("cupool: ipc: it takes Linux: %w", cupool.ErrNotSupported)
	}
	c := &Client{pool: pool, conn: &conn{UnixConn: uc}, done: make(chan struct{}), waiting: map[uint64]chan answer{}, open: map[*Memory]struct{}{}}
	c.sending.L = &c.mu
	if c.dev, err = sharing(pool); err != nil {
		return nil, err
	}
	if c.peer, err = c.conn.peer(); err == nil {
		err = cfg.admit(c.peer)
	}
	if err != nil {
		return nil, err
	}
	stop := c.conn.during(ctx)
	err = c.greet()
	if !stop() {
		return nil, fmt.Errorf("cupool: ipc: connecting: %w", context.Cause(ctx))
	}
	return c, errors.Join(err, uc.SetDeadline(time.Time{}))
}

func (c *Client) greet() error {
	// A server that refuses says so and may have gone when the hello comes.
	said := c.conn.say(message(helloKind, nil, magic, version, uint64(os.Getpid())))
	b, file, err := c.conn.receive()
	if err != nil {
		return errors.Join(err, said)
	}
	_ = closeFile(file) // an exporter sends none here
	if b.kind == errorKind {
		_, err := parseError(b)
		return err
	}
	if err := b.expect(welcomeKind); err != nil {
		return err
	}
	if word, v := b.number(), b.number(); word != magic || v != version {
		return fmt.Errorf("cupool: ipc: process %d welcomes with version %d of the protocol, this is version %d: %w", c.peer.PID, v, version, ErrProtocol)
	}
	return b.end()
}

// read reads answers until the connection ends.
func (c *Client) read() {
	for {
		request, a, err := c.readAnswer()
		if err == nil {
			err = c.deliver(request, a)
		}
		if err != nil {
			c.fail(err)
			return
		}
	}
}

// readAnswer returns the next answer and which request it is for.
func (c *Client) readAnswer() (request uint64, a answer, err error) {
	b, file, err := c.conn.receive()
	if err != nil {
		return 0, a, err
	}
	_ = closeFile(file) // only a piece of memory comes with one
	switch b.kind {
	case openedKind:
		return c.readOpened(b)
	case closedKind:
		request = b.number()
		return request, a, b.end()
	case errorKind:
		if request, a.err = parseError(b); request == 0 {
			return 0, answer{}, a.err
		}
		return request, a, nil
	}
	return 0, a, fmt.Errorf("cupool: ipc: a message of kind %d from an exporter: %w", b.kind, ErrProtocol)
}

// readOpened reads the pieces of memory that were opened.
func (c *Client) readOpened(b *body) (uint64, answer, error) {
	o, err := parseOpened(b)
	r := device.SharedRange{Skip: o.skip, Size: o.size}
	for i := 0; err == nil && i < o.pieces; i++ {
		var b *body
		var file *os.File
		if b, file, err = c.conn.receive(); err != nil {
			break
		}
		var p device.SharedPiece
		p, err = parsePiece(b, file != nil)
		p.File = file
		r.Pieces = append(r.Pieces, p)
	}
	if err == nil {
		if _, err = r.Total(); err != nil {
			err = fmt.Errorf("cupool: ipc: %w: %w", ErrProtocol, err)
		}
	}
	if err != nil {
		return 0, answer{}, errors.Join(err, r.Close())
	}
	return o.request, answer{ref: o.ref, memory: r}, nil
}

// deliver hands an answer to who asked. What was opened for one who does not wait any
// more is closed again.
func (c *Client) deliver(request uint64, a answer) error {
	c.mu.Lock()
	ch := c.waiting[request]
	delete(c.waiting, request)
	known := request <= c.last
	c.mu.Unlock()
	switch {
	case ch != nil:
		ch <- a
	case !known:
		return errors.Join(fmt.Errorf("cupool: ipc: an answer to nothing: %w", ErrProtocol), a.memory.Close())
	case a.ref != 0:
		c.mu.Lock()
		c.sendLocked(0, message(closeKind, nil, 0, a.ref))
		c.mu.Unlock()
		return a.memory.Close()
	}
	return nil
}

// write sends messages until the connection ends. It is one goroutine, however many ask and
// however long the exporter does not read.
func (c *Client) write() {
	for m := c.nextUnsent(); m != nil; m = c.nextUnsent() {
		if err := c.conn.say(m); err != nil {
			c.fail(err)
		}
	}
}

// nextUnsent waits for the next message. nil: the connection has ended.
func (c *Client) nextUnsent() []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.unsent) == 0 && c.err == nil {
		c.sending.Wait()
	}
	if c.err != nil {
		return nil
	}
	m := c.unsent[0].message
	c.unsent = c.unsent[1:]
	return m
}

// sendLocked has a message sent, and does not wait for that.
func (c *Client) sendLocked(request uint64, m []byte) {
	c.unsent = append(c.unsent, unsent{request, m})
	c.sending.Signal()
}

// fail ends the connection.
func (c *Client) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		c.err = err
		_ = c.conn.UnixConn.Close()
		close(c.done)
		c.sending.Signal()
	}
}

// ask sends a request and waits for the answer.
func (c *Client) ask(ctx context.Context, k kind, tail []byte, numbers ...uint64) (answer, error) {
	c.mu.Lock()
	if c.err != nil {
		defer c.mu.Unlock()
		return answer{}, c.err
	}
	c.last++
	request, ch := c.last, make(chan answer, 1)
	c.waiting[request] = ch
	c.sendLocked(request, message(k, tail, append([]uint64{request}, numbers...)...))
	c.mu.Unlock()
	var err error
	select {
	case a := <-ch:
		return c.answered(k, a)
	case <-ctx.Done():
		err = fmt.Errorf("cupool: ipc: waiting for process %d: %w", c.peer.PID, context.Cause(ctx))
	case <-c.done:
		err = c.Err()
	}
	c.mu.Lock()
	_, still := c.waiting[request]
	delete(c.waiting, request)
	if k == openKind { // what is closed is told all the same
		c.unsent = slices.DeleteFunc(c.unsent, func(u unsent) bool { return u.request == request })
	}
	c.mu.Unlock()
	if still {
		return answer{}, err
	}
	return c.answered(k, <-ch) // it came at the same time
}

// answered returns an answer to a request, unless it is one to another kind of request.
func (c *Client) answered(k kind, a answer) (answer, error) {
	if a.err == nil && (a.ref != 0) != (k == openKind) { // only what was opened has a reference
		a.err = fmt.Errorf("cupool: ipc: an answer to another request: %w", ErrProtocol)
		c.fail(a.err)
		a.err = errors.Join(a.err, a.memory.Close())
	}
	return a, a.err
}

// Open maps what the other process shares under a name. It waits for the work that the
// exporter had given to the stream when it shared the block. The same name may
// be opened several times, and each is closed for itself. Open fails with
// ErrUnknownName, with ErrRefused beyond the exporter's Config.MaxOpen, with ErrGone,
// with ErrClosed after Close or while that waits, with the cause of ctx when that is done
// first, with what the exporter's device said, or with what this process's device says.
func (c *Client) Open(ctx context.Context, name string) (*Memory, error) {
	if c.isNone() || ctx == nil {
		return nil, nothing("Client or context")
	}
	if name == "" || len(name) > maxName {
		return nil, &cupool.ConfigError{Field: "name", Value: name, Reason: "must have 1 to 255 bytes"}
	}
	a, err := c.ask(ctx, openKind, []byte(name))
	if err != nil {
		return nil, err
	}
	m, err := c.keep(name, a)
	if err != nil {
		if _, e := c.ask(ctx, closeKind, nil, a.ref); !errors.Is(err, e) {
			err = errors.Join(err, e)
		}
		return nil, err
	}
	return m, nil
}

// keep maps what was opened, unless the client is being closed.
func (c *Client) keep(name string, a answer) (*Memory, error) {
	if !c.mapping.TryRLock() {
		return nil, errors.Join(errClientClosed, a.memory.Close())
	}
	defer c.mapping.RUnlock()
	err := c.Err()
	if c.closing.Load() > 0 {
		err = errClientClosed
	}
	if err != nil {
		return nil, errors.Join(err, a.memory.Close())
	}
	p, err := c.dev.ImportRange(a.memory)
	if err = errors.Join(err, a.memory.Close()); err != nil {
		return nil, poolaccess.Of(c.pool).DriverError(fmt.Errorf("cupool: ipc: mapping %q of process %d: %w", name, c.peer.PID, err))
	}
	m := &Memory{client: c, name: name, ref: a.ref, ptr: p, size: a.memory.Size, streams: []*cupool.Stream{c.pool.DefaultStream()}}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open[m] = struct{}{}
	return m, nil
}

// Peer returns the process that exports.
func (c *Client) Peer() Peer {
	if c.isNone() {
		return Peer{}
	}
	return c.peer
}

// Done returns a channel that is closed when the connection has ended, as the exporter
// has ended or closed it, or Close was called. What is open stays valid as
// the package's section on life says.
func (c *Client) Done() <-chan struct{} {
	if c.isNone() {
		return nil
	}
	return c.done
}

// isNone reports whether Connect did not make c.
func (c *Client) isNone() bool { return c == nil || c.pool == nil }

// Err returns why the connection has ended: ErrGone, ErrProtocol, ErrClosed after
// Close, or the connection's error. It returns nil before.
func (c *Client) Err() error {
	if c.isNone() {
		return nothing("Client")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Close closes all that is open, as Memory.Close does, and the connection. It waits for an
// Open that is just mapping, and one that waits for the exporter fails. Close fails as
// Memory.Close does, and leaves the connection then; with ErrClosed it was called before.
func (c *Client) Close(ctx context.Context) error {
	if c.isNone() || ctx == nil {
		return nothing("Client or context")
	}
	c.closing.Add(1)
	defer c.closing.Add(-1)
	c.mapping.Lock() // what is just being mapped is open then
	//lint:ignore SA2001 to have waited is all
	c.mapping.Unlock()
	c.mu.Lock()
	if errors.Is(c.err, errClientClosed) {
		defer c.mu.Unlock()
		return c.err
	}
	var open []*Memory
	for m := range c.open {
		open = append(open, m)
	}
	c.mu.Unlock()
	var errs []error
	for _, m := range open {
		if err := m.Close(ctx); !errors.Is(err, errMemoryClosed) { // another goroutine was faster
			errs = append(errs, err)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	// An exporter that is gone or hangs is not told.
	_ = c.conn.SetWriteDeadline(time.Now().Add(leaveTime))
	_ = c.conn.say(message(closeKind, nil, 0, allRefs))
	c.fail(errClientClosed)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.err = errClientClosed
	return nil
}

// leaveTime is how long Close tries to tell an exporter that does not read.
const leaveTime = time.Second

var errClientClosed = fmt.Errorf("cupool: ipc: client: %w", cupool.ErrClosed)
