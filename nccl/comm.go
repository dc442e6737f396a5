package nccl

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/dist"
	"github.com/cupool/cupool/internal/ncclapi"
)

// Comm is a rank whose memory is on the GPU of its pool. It implements dist.Comm.
//
// NCCL's calls of several ranks wait for each other on the host the first time,
// and on the GPU. In a group of several, each costs NCCL a thread of its own, so
// that it cannot hang: many small calls belong in a Group or a graph. A call returns when its work is in the stream, or fails after
// Config.Timeout. What goes wrong later is noticed within a second: the Comm is
// aborted, so that no stream waits for it for ever, and every later call fails
// with the same error. Close gives the rest back then.
//
// Within Group, memory is to be freed after Group has returned, and other
// goroutines make no calls.
type Comm struct {
	cfg        Config
	pool       *cupool.Pool
	lib        library
	rank, size int

	order   sync.Mutex // held by a call of the Comm until it is in the stream
	tasks   []ncclapi.Task
	streams []*cupool.Stream // of tasks
	depth   int              // of Group

	mu         sync.Mutex   // held while NCCL is called, and for what follows
	comm       communicator // nil: ended
	failed     error
	closed     bool
	used       map[*cupool.Stream]bool // since the watch looked: whether also behind the last mark
	marks      []mark                  // since the watch looked
	registered map[cupool.Ptr]uintptr

	stop     chan struct{} // closed to end the watch
	watching sync.WaitGroup
	queued   []mark // the watch's
}

var _ dist.Comm = (*Comm)(nil)

var errNoContext = fmt.Errorf("nccl: the context is nil: %w", cupool.ErrInvalidHandle)

// New makes this process's Comm of a group of ranks, for memory of pool, and waits
// until all ranks have done so. The pool's Driver is one that cuda.Open has
// opened, as NCCL works in the GPU's primary context. It fails with
// cupool.ErrNotSupported where NCCL is missing or the pool is not on a GPU, with
// a *cupool.ConfigError, also for what is not the same on all ranks, with
// dist.ErrRank and the cause of ctx where ranks do not come, with
// cupool.ErrInvalidHandle for a nil ctx, or with an *Error. So do the calls of a Comm
// that is nil or zero.
func New(ctx context.Context, pool *cupool.Pool, cfg Config) (*Comm, error) {
	cfg = cfg.withDefaults()
	return newComm(ctx, pool, cfg, cfg.share)
}

// A sharing returns on all ranks what draw returns on rank 0.
type sharing func(ctx context.Context, draw func() ([]byte, error)) ([]byte, error)

// newComm makes a Comm. All ranks share the ID of rank 0.
func newComm(ctx context.Context, pool *cupool.Pool, cfg Config, share sharing) (*Comm, error) {
	if ctx == nil {
		return nil, errNoContext
	}
	if pool.Driver() == nil {
		return nil, &cupool.ConfigError{Field: "pool", Reason: "a rank's memory needs one"}
	}
	device, ok := pool.Driver().(interface{ Context() uintptr })
	if !ok {
		return nil, fmt.Errorf("nccl: %s: %w: NCCL moves memory of NVIDIA's GPUs; use dist.Local", pool.Driver().Name(), cupool.ErrNotSupported)
	}
	lib, err := load(cfg.Library)
	if err != nil {
		return nil, err
	}
	return begin(ctx, pool, device.Context(), lib, cfg, share)
}

// begin is newComm with a library, for the GPU of a context.
func begin(ctx context.Context, pool *cupool.Pool, device uintptr, lib library, cfg Config, share sharing) (*Comm, error) {
	ctx, cancel := cfg.bound(ctx)
	defer cancel()
	c := &Comm{cfg: cfg, pool: pool, lib: lib, rank: cfg.Rank, size: cfg.Size, used: map[*cupool.Stream]bool{}, registered: map[cupool.Ptr]uintptr{}, stop: make(chan struct{})}
	id, err := share(ctx, c.newID)
	if err != nil {
		return nil, fmt.Errorf("nccl: rank %d of %d: %w", c.rank, c.size, err)
	}
	if err := c.join(ctx, id, device); err != nil {
		return nil, err
	}
	c.watching.Add(1)
	go c.watch()
	return c, nil
}

// newID draws the ID of a communicator.
func (c *Comm) newID() ([]byte, error) {
	id, res := c.lib.NewID()
	if res != ncclapi.Success {
		return nil, c.errorOf("ncclGetUniqueId", res, "")
	}
	return id[:], nil
}

// join makes the communicator of an ID.
func (c *Comm) join(ctx context.Context, shared []byte, device uintptr) error {
	var id ncclapi.ID
	if len(shared) != len(id) {
		return fmt.Errorf("nccl: rank %d of %d: %d bytes are not the %d of an ncclUniqueId: %w", c.rank, c.size, len(shared), len(id), cupool.ErrSizeMismatch)
	}
	copy(id[:], shared)
	const call = "ncclCommInitRankConfig"
	comm, res := c.lib.Init(device, c.size, &id, c.rank)
	if comm == nil {
		return c.errorOf(call, res, "")
	}
	c.comm = comm
	return c.settle(ctx, call, res)
}

// check fails for a Comm that is none.
func (c *Comm) check() error {
	if c == nil || c.pool == nil {
		return fmt.Errorf("nccl: the Comm is nil, or New did not make it: %w", cupool.ErrInvalidHandle)
	}
	return nil
}

// Rank implements dist.Comm.
func (c *Comm) Rank() int {
	if c == nil {
		return 0
	}
	return c.rank
}

// Size implements dist.Comm.
func (c *Comm) Size() int {
	if c == nil {
		return 0
	}
	return c.size
}

// looks is how often the host looks again before it sleeps: NCCL needs some ten
// microseconds to queue a call, less than a sleep takes.
const looks = 100

// settle ends a call of NCCL. One that fails ends the Comm.
func (c *Comm) settle(ctx context.Context, call string, r ncclapi.Result) (err error) {
	if r == ncclapi.InProgress {
		r, err = c.await(ctx, call)
	}
	switch {
	case err != nil:
		return err
	case r != ncclapi.Success:
		return c.failWith(call, r)
	}
	return nil
}

// await waits until a call of NCCL is no longer in progress. It does not hold c.mu
// meanwhile, so that Abort need not wait.
func (c *Comm) await(ctx context.Context, call string) (r ncclapi.Result, err error) {
	for range looks {
		runtime.Gosched()
		if r, err = c.state(); err != nil || r != ncclapi.InProgress {
			return r, err
		}
	}
	ctx, cancel := c.cfg.bound(ctx)
	defer cancel()
	for wait := time.Microsecond; ; wait = min(2*wait, time.Millisecond) {
		time.Sleep(wait)
		over := ctx.Err() != nil // before the look: what is done by then is not late
		if r, err = c.state(); err != nil || r != ncclapi.InProgress {
			return r, err
		}
		if over {
			return 0, c.fail(c.late(ctx, call))
		}
	}
}

// state returns the state of NCCL, or why the Comm has ended.
func (c *Comm) state() (ncclapi.Result, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.comm == nil {
		return 0, c.usableLocked()
	}
	return c.comm.State(), nil
}

// late is the error of a call that is in progress when ctx is done.
func (c *Comm) late(ctx context.Context, call string) error {
	cause := context.Cause(ctx)
	if errors.Is(cause, context.DeadlineExceeded) {
		return late(call, c.rank, c.size, "other ranks did not come in time", cause)
	}
	return fmt.Errorf("nccl: rank %d of %d: %s: %w", c.rank, c.size, call, cause)
}

// failWith ends the Comm for a result of NCCL.
func (c *Comm) failWith(call string, r ncclapi.Result) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.failWithLocked(call, r)
}

func (c *Comm) failWithLocked(call string, r ncclapi.Result) error {
	if c.comm == nil {
		return c.usableLocked()
	}
	return c.failLocked(c.errorOf(call, r, c.comm.LastError()))
}

// errorOf is the error of a result, with what NCCL noted last.
func (c *Comm) errorOf(call string, r ncclapi.Result, last string) *Error {
	return newError(call, r, c.rank, c.size, c.lib.Text(r), last)
}

// fail ends the Comm, unless it has ended, and returns the error that all later
// calls have.
func (c *Comm) fail(err error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.failLocked(err)
}

func (c *Comm) failLocked(err error) error {
	if c.comm != nil {
		c.failed = err
		_ = c.comm.Abort() // the first error is the one that matters
		c.comm = nil
	}
	return c.usableLocked()
}

// usableLocked returns what calls fail with, or nil.
func (c *Comm) usableLocked() error {
	switch {
	case c.failed != nil:
		return c.failed
	case c.comm == nil || c.closed:
		return fmt.Errorf("nccl: rank %d of %d: %w", c.rank, c.size, cupool.ErrClosed)
	}
	return nil
}

// Err implements dist.Comm.
func (c *Comm) Err() error {
	if err := c.check(); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.comm != nil {
		if r := c.comm.State(); r != ncclapi.Success && r != ncclapi.InProgress {
			_ = c.failWithLocked("ncclCommGetAsyncError", r)
		}
	}
	return c.failed
}

// Abort implements dist.Comm. Later calls fail with what went wrong before, or
// else with cupool.ErrClosed.
func (c *Comm) Abort() error {
	if err := c.check(); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed {
		close(c.stop)
	}
	c.closed = true
	if c.comm == nil {
		return nil
	}
	r := c.comm.Abort()
	c.comm = nil
	if r != ncclapi.Success && r != ncclapi.InProgress {
		return c.errorOf("ncclCommAbort", r, "")
	}
	return nil
}

// Close implements dist.Comm. It gives registrations back first. It fails with
// what went wrong before, and with cupool.ErrClosed after Close and Abort. What is
// not done after Config.Timeout is aborted.
func (c *Comm) Close() error {
	if err := c.check(); err != nil {
		return err
	}
	c.order.Lock()
	defer c.order.Unlock()
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return fmt.Errorf("nccl: rank %d of %d: closing: %w", c.rank, c.size, cupool.ErrClosed)
	}
	c.closed = true
	close(c.stop)
	c.mu.Unlock()
	c.watching.Wait()
	ctx, cancel := c.cfg.bound(context.Background())
	defer cancel()
	return c.finish(ctx)
}

// finish ends a Comm whose watch has ended.
func (c *Comm) finish(ctx context.Context) error {
	for _, s := range c.behind() {
		c.mark(s, time.Now())
	}
	c.lookAt()
	defer c.forget()
	for len(c.queued) > 0 && c.Err() == nil {
		if ctx.Err() != nil {
			return c.fail(c.late(ctx, "closing: work in a stream"))
		}
		time.Sleep(time.Millisecond)
		c.lookAt()
	}
	c.deregisterAll()
	c.mu.Lock()
	if c.comm == nil {
		defer c.mu.Unlock()
		return c.failed
	}
	r := c.comm.Finalize()
	c.mu.Unlock()
	_ = c.settle(ctx, "ncclCommFinalize", r) // what fails ends the Comm
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.comm == nil {
		return c.failed
	}
	r = c.comm.Destroy()
	c.comm = nil
	if r != ncclapi.Success && r != ncclapi.InProgress {
		return c.errorOf("ncclCommDestroy", r, "")
	}
	return nil
}
