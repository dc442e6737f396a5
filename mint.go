package cupool

import (
	"context"
	"errors"

	"github.com/cupool/cupool/internal/block"
	"github.com/cupool/cupool/snapshot"
)

// Mint makes the Blocks of an allocator of one's own: whoever writes an
// Allocator takes one Mint for it. A Mint is a plain value that may be copied
// and used from several goroutines.
//
// What else such an allocator needs to know of the one below it is said by
// Stream.Pool, Stream.Closed, Pool.Config and Pool.Err.
type Mint struct{ number uint32 }

// NewMint returns a Mint whose blocks are foreign to all other allocators.
func NewMint() Mint { return Mint{pools.Add(1)} }

// Number tells this Mint from all others. It is the Maker of its blocks.
func (m Mint) Number() uint32 { return m.number }

// Block makes a handle of size bytes at p. id and gen are the allocator's own:
// most often the place where it keeps the block, and how many blocks it has
// kept there.
func (m Mint) Block(p Ptr, size int64, gen uint64, id uint32) Block {
	return newBlock(p, size, gen, block.ID(id), m.number)
}

// Open returns what the handle was made with. ok is false for the handles of
// other allocators and for the empty Block.
func (m Mint) Open(b Block) (id uint32, gen uint64, ok bool) {
	return uint32(b.id()), b.gen, b.pool() == m.number
}

// Maker returns the number of the Mint or Pool that made the handle, 0 for
// the empty Block.
func (b Block) Maker() uint32 { return b.pool() }

// Pool returns the allocator that made the stream. Its private pools use
// the same streams. A stream of another one is a foreign stream.
func (s *Stream) Pool() *Pool { return s.root }

// Closed reports whether the stream takes no more work, because it or its
// allocator was closed.
func (s *Stream) Closed() bool { return s.calls.IsClosed() || s.root.closed.Load() }

// Captured reports whether the stream's work is being kept as a graph.
func (s *Stream) Captured() bool { return s.clock.Captured() }

// Config returns the configuration in force: what was left to the defaults is
// filled in, Backing is the one in use, and History what is recorded at present.
func (c *Pool) Config() Config {
	cfg := c.cfg
	cfg.History = nil
	if set, ok := c.dev.history.Settings(); ok {
		cfg.History = (*History)(&set)
	}
	cfg.SoftLimit = c.budget.Soft.Load()
	if cfg.Backing = BackingSegments; c.memory != nil {
		cfg.Backing = BackingVMM
	}
	return cfg
}

// Err returns nil while the allocator works. Otherwise its error says why
// there is no memory: it matches ErrClosed, ErrDeviceLost or ErrAsleep. A pool
// that was retired works until it is closed.
func (c *Pool) Err() error {
	if !c.closed.Load() && c.dev.lost.Load() == nil && !c.asleep.Load() {
		return nil
	}
	return c.err()
}

func (c *Pool) err() error {
	if c.closed.Load() {
		return c.closedError()
	}
	if err := c.dev.lostError(); err != nil {
		return err
	}
	return c.asleepError("allocation")
}

// DriverError returns err, which a call to the Driver returned that did not go
// through the allocator. When it says that the device is lost, the allocator
// fails from then on, too.
func (c *Pool) DriverError(err error) error { return c.dev.failed(err) }

// Sync waits until everything is done that was submitted to the streams of the
// allocator, as Stream.Sync does for one.
func (c *Pool) Sync() error {
	ctx, cancel := c.dev.waiting(context.Background())
	defer cancel()
	return c.dev.syncAll(ctx)
}

// Reclaim gives idle memory back to the device, for memory that the program
// takes from the device in another way. The allocator and each of its pools
// that is not Isolated give need bytes, or what they have, and do not wait for
// pending blocks. It returns the bytes that went.
func (c *Pool) Reclaim(need int64) (released int64, err error) {
	ctx, cancel := c.dev.waiting(context.Background())
	defer cancel()
	for _, m := range c.dev.open() {
		if !m.isolated {
			m.flushAll()
			n, e := m.releaseUpTo(ctx, need)
			released, err = released+n, errors.Join(err, e)
		}
	}
	return released, err
}

// AllocExact is Alloc for memory that an allocator keeps. Where the memory ends in a large
// handle of virtual memory that nothing else uses, a smaller one takes the handle's
// place, and the rest goes back to the device. That waits for the stream's work, no
// longer than Config.WaitTimeout; where the work is late, the handle stays. It is safe for
// use from several goroutines. It fails as Alloc does, and with the device's error where
// neither handle could be mapped: the memory is not used any more then.
func (c *Pool) AllocExact(size int64, s *Stream) (Block, error) {
	b, err := c.Alloc(size, s)
	if err != nil || size == 0 || c.memory == nil || c.sanitizer != nil { // a sanitizer has filled it
		return b, err
	}
	if err := c.cutLast(b); err != nil {
		return Block{}, err
	}
	return b, nil
}

// cutLast gives the memory back that the last handle of a block has behind it.
func (c *Pool) cutLast(b Block) error {
	ctx, cancel := c.dev.waiting(context.Background())
	defer cancel()
	if !c.reclaim.LockUntil(ctx) {
		return nil
	}
	defer c.reclaim.Unlock()
	x := c.space.Blocks.At(b.id())
	h := c.heapAt(x.Owner())
	if h == nil { // its stream is being closed
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if x.Owner() != h.Index() || h.lent[b.id()] != nil || c.asleep.Load() || h.stream.clock.Captured() || h.stream.calls.WaitIdle(ctx) != nil {
		return nil
	}
	released, err := h.CutLast(x)
	h.checkLocked()
	if released > 0 {
		c.note(snapshot.Trim, 0, 0, released)
	}
	return err
}

// StreamOf returns the stream that a live block was allocated for, or nil for
// a block of another allocator. Blocks of a stream that was closed are the
// default stream's; while Close is at work it may be either. It takes no lock, but for
// blocks that were recorded on a stream.
func (c *Pool) StreamOf(b Block) *Stream {
	if b.pool() != c.id || !c.space.Blocks.Known(b.id()) {
		return nil
	}
	x := c.space.Blocks.At(b.id())
	owner := x.Owner()
	h := c.heapAt(owner)
	switch {
	case x.Owner() != owner: // its stream was closed meanwhile
		return c.StreamOf(b)
	case h == nil:
		return nil
	}
	if !x.Word().Has(block.Used) {
		return h.stream
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.streamOfLocked(b.id())
}
