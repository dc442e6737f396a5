package cupool

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/cupool/cupool/internal/addrmap"
	"github.com/cupool/cupool/internal/block"
	"github.com/cupool/cupool/internal/invariant"
	"github.com/cupool/cupool/internal/magazine"
	"github.com/cupool/cupool/internal/sizeclass"
)

// Caching is the caching allocator: memory that is freed stays reserved and
// serves later requests of the same stream without a call to the device.
// Its way of working is in the package's doc comment. All methods are safe
// from several goroutines.
//
// Locks, in the order in which they are taken: reclaim, Stream.mu,
// Stream.waits.mu, segments.mu, books.mu. A stream's lock is held across
// MemAlloc and MemFree for that stream; none but reclaim is held while
// waiting for events, and none in callbacks.
type Caching struct {
	driver     Driver
	ownsDriver bool
	cfg        Config
	limit      int64 // bytes, MaxInt64 without one
	id         uint32

	blocks   block.Table
	byAddr   [2]*addrmap.Map // live blocks by address, of each kind of pool
	segments segmentIndex
	books    books
	events   eventPool
	stacks   stackTable
	later    laterQueue

	streams   atomic.Pointer[[]*Stream] // by index; closed ones stay
	streamsMu sync.Mutex                // taken to append to streams
	def       *Stream

	vm          VirtualMemory // nil: segments
	granularity int64         // of vm, in bytes
	capacity    int64         // bytes that the device has
	left        leftovers
	stranded    stranded

	reserved  atomic.Int64   // bytes held from the device
	highWater atomic.Int64   // the most that reserved has been
	waiting   atomic.Int64   // blocks in some stream's wait list
	regrets   map[regret]int // segments given back, by size; guarded by reclaim
	reclaim   sync.Mutex     // one goroutine at a time takes memory away from pools
	closed    atomic.Bool
	lost      atomic.Pointer[error] // the error after which the device is gone
}

// pools counts allocators, so that handles of one are foreign to another.
var pools atomic.Uint32

// New returns an allocator over cfg.Driver. It fails with a *ConfigError, or
// with what the device says when a Fraction needs its size.
func New(cfg Config) (*Caching, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	owns := cfg.Driver == nil
	if owns {
		if cfg.Driver, err = OpenHost(HostConfig{}); err != nil {
			return nil, err
		}
	}
	limit, err := cfg.limitOn(cfg.Driver)
	if err != nil {
		return nil, fmt.Errorf("cupool: reading the size of %s: %w", cfg.Driver.Name(), err)
	}
	c := &Caching{driver: cfg.Driver, ownsDriver: owns, cfg: cfg, limit: limit, id: pools.Add(1), regrets: map[regret]int{}}
	c.events.driver = cfg.Driver
	c.byAddr[small] = addrmap.New(uint(bits.TrailingZeros(sizeclass.Quantum)))
	c.byAddr[large] = addrmap.New(uint(bits.Len64(uint64(cfg.SmallLimit)) - 1)) // no large block is smaller
	if c.vm, err = cfg.virtualMemory(); err != nil {
		return nil, err
	} else if c.vm != nil {
		c.granularity = c.vm.VMMGranularity()
		if _, c.capacity, err = cfg.Driver.MemInfo(); err != nil {
			return nil, fmt.Errorf("cupool: reading the size of %s: %w", cfg.Driver.Name(), err)
		}
	}
	c.streams.Store(new([]*Stream))
	c.def = c.addStream(0, true)
	return c, nil
}

// Driver returns the device.
func (c *Caching) Driver() Driver { return c.driver }

// DefaultStream returns the device's default stream.
func (c *Caching) DefaultStream() *Stream { return c.def }

// Alloc implements Allocator. A size that was lately freed on the same
// processor and stream is served with one atomic and no lock.
func (c *Caching) Alloc(size int64, s *Stream) (Block, error) {
	if s == nil {
		s = c.def
	}
	proc := magazine.Proc()
	if s.c == c {
		if id, b, gen := s.magazine.Get(proc, size); id != 0 {
			h := newBlock(Ptr(b.Addr()), b.Requested(), gen, id, c.id)
			if h.size == size {
				return h, nil
			}
			c.takeBack(h)
		}
	}
	return c.allocSlow(size, s, proc)
}

// Free implements Allocator.
func (c *Caching) Free(h Block) error {
	if h.pool() == c.id {
		b := c.blocks.At(h.id())
		live := block.MakeWord(h.gen, block.Live|block.Homed)
		if b.Word() == live && b.Swap(live, block.MakeWord(h.gen, block.Cached|block.Homed)) {
			return nil
		}
	}
	return c.freeSlow(h)
}

// takeBack ends the life of a block that a stale slot led to and that is of
// another size than was asked for, as if it had not gone out.
func (c *Caching) takeBack(h Block) {
	s, b, err := c.lockOwner("free", h, ErrDoubleFree)
	if err != nil {
		return
	}
	defer s.mu.Unlock()
	c.books.begin()
	c.books.hits(s.kindOf(b), -1, b.Size, b.Requested())
	c.books.end()
	_ = s.freeLocked(h, b)
}

// request is one allocation on its way through the slow path.
type request struct {
	size    int64 // bytes as asked for
	rounded int64 // bytes of the block
	segment int64 // bytes to ask the device for, when it comes to that
	kind    kind
	s       *Stream
	proc    int // the processor whose magazines are concerned
}

func (c *Caching) allocSlow(size int64, s *Stream, proc int) (Block, error) {
	switch {
	case s.c != c:
		return Block{}, &BlockError{Op: "allocation", Size: size, Stream: s.handle, Err: ErrForeignStream, Detail: "the stream was made by another allocator"}
	case size == 0:
		return Block{}, nil
	case size < 0 || size > sizeclass.MaxRequest:
		return Block{}, &BlockError{Op: "allocation", Size: size, Stream: s.handle, Err: ErrInvalidSize, Detail: fmt.Sprintf("a size lies between 0 and %d bytes", int64(sizeclass.MaxRequest))}
	}
	rounded := sizeclass.Round(size)
	r := request{size: size, rounded: rounded, kind: kindOf(rounded > c.cfg.SmallLimit), segment: c.cfg.segmentSize(rounded), s: s, proc: proc}
	s.mu.Lock()
	if err := s.usableLocked(); err != nil {
		s.mu.Unlock()
		return Block{}, err
	}
	h, ok, err := s.takeLocked(r)
	s.mu.Unlock()
	if ok || err != nil {
		return h, err
	}
	return c.allocMiss(r)
}

// usableLocked reports why nothing can be allocated on s any more.
func (s *Stream) usableLocked() error {
	switch {
	case s.c.closed.Load():
		return fmt.Errorf("cupool: allocator on %s: %w", s.c.driver.Name(), ErrClosed)
	case s.heir.Load() != nil:
		return fmt.Errorf("cupool: stream 0x%x: %w", uintptr(s.handle), ErrClosed)
	}
	return s.c.lostError()
}

// takeLocked serves the request from the stream's free blocks.
func (s *Stream) takeLocked(r request) (Block, bool, error) {
	s.searches++
	free := &s.pools[r.kind]
	id := free.BestFit(r.rounded)
	if id == 0 {
		return Block{}, false, nil
	}
	if err := s.slots.Ensure(1); err != nil {
		return Block{}, false, fmt.Errorf("cupool: %w", err)
	}
	b := s.c.blocks.At(id)
	free.Remove(id, b)
	return s.handOutLocked(r, id, b), true, nil
}

// handOutLocked makes a Free block that is in no set the program's. It
// splits off what is not needed, and homes the block when its size recurs.
func (s *Stream) handOutLocked(r request, id block.ID, b *block.Block) Block {
	c := s.c
	shared, whole := b.Prev|b.Next != 0, b.Size
	var rest *block.Block
	if b.Size-r.rounded >= c.minSplit(r.kind) {
		var restID block.ID
		restID, rest = s.segs[b.Seg].Split(id, b, r.rounded, &s.slots)
		s.pools[r.kind].Insert(restID, rest)
	}
	gen := b.Word().Gen() + 1
	b.SetRequested(r.size)
	c.byAddr[r.kind].Set(b.Addr(), uint32(id))
	if c.cfg.RecordStacks {
		b.Stack = c.stacks.add(callers())
	}
	b.SetWord(block.MakeWord(gen, block.Live))

	c.books.begin()
	if shared {
		c.books.splitTaken(r.kind, 1, whole)
	}
	if rest != nil {
		c.books.splitAdded(r.kind, rest.Size)
	}
	c.books.allocated(r.kind, b.Size, r.size)
	c.books.end()
	s.maybeHomeLocked(r.proc, id, b, gen) // may merge an evicted block with rest
	s.checkLocked()
	return newBlock(Ptr(b.Addr()), r.size, gen, id, c.id)
}

// minSplit returns the smallest rest worth a block of its own, in bytes.
func (c *Caching) minSplit(k kind) int64 {
	if k == small || c.vm != nil {
		return sizeclass.Quantum
	}
	return c.cfg.MinSplit
}

// maybeHomeLocked gives a live block a place in the magazines when its size
// recurs and the bound allows it.
func (s *Stream) maybeHomeLocked(proc int, id block.ID, b *block.Block, gen uint64) {
	if s.crossed > 0 {
		s.crossed--
		return
	}
	bound := s.c.cfg.MagazineBytes
	if bound < 0 || s.c.cfg.RecordStacks || s.c.lost.Load() != nil || b.Size > bound/4 || !s.magazine.Wants(proc, b.Requested(), s.kindOf(b) == large) || s.homedBytes+b.Size > bound {
		return
	}
	b.SetHome(gen)
	b.SetWord(block.MakeWord(gen, block.Live|block.Homed))
	s.homedBytes += b.Size
	if evicted := s.magazine.Home(proc, id, b.Requested()); evicted != 0 {
		s.evictLocked(evicted)
	}
}

// evictLocked takes a block that lost its slot out of the magazines: a live
// one stays live, a cached one goes back to the pool.
func (s *Stream) evictLocked(id block.ID) {
	b := s.c.blocks.At(id)
	if b.Owner() != s.index {
		return // the slot was stale
	}
	if w, ok := s.unhomeLocked(b); ok && w.State() == block.Cached {
		s.releaseLocked(id, b)
	}
}

// unhomeLocked ends the time in which a block may change without the lock
// and books what it did meanwhile. It returns the word it left, or false for
// a block that is not homed.
func (s *Stream) unhomeLocked(b *block.Block) (block.Word, bool) {
	w := b.Word()
	for w.Has(block.Homed) && !b.Swap(w, w&^block.Homed) {
		w = b.Word()
	}
	if !w.Has(block.Homed) {
		return w, false
	}
	s.homedBytes -= b.Size
	if n := w.Gen() - b.HomeGen(); n > 0 {
		c := s.c
		c.books.begin()
		c.books.hits(s.kindOf(b), int64(n), b.Size, b.Requested())
		c.books.end()
	}
	return w &^ block.Homed, true
}

func (s *Stream) kindOf(b *block.Block) kind { return kindOf(s.segs[b.Seg].Large) }

func (c *Caching) freeSlow(h Block) error {
	if h.IsEmpty() {
		return nil
	}
	s, b, err := c.lockOwner("free", h, ErrDoubleFree)
	if err != nil {
		return err
	}
	defer s.mu.Unlock()
	return s.freeLocked(h, b)
}

// freeLocked takes back a live block: at once, or when the streams recorded
// on it are done with it.
func (s *Stream) freeLocked(h Block, b *block.Block) error {
	if w, _ := s.unhomeLocked(b); w.State() != block.Live {
		return s.c.blockError("free", h, s, ErrDoubleFree)
	}
	if b.Uses != 0 {
		s.pendLocked(h.id(), b)
	} else {
		s.releaseLocked(h.id(), b)
	}
	s.checkLocked()
	return nil
}

// releaseLocked returns a block that nothing uses any more to its pool,
// merged with its free neighbours. The block is Live, Cached or Pending.
func (s *Stream) releaseLocked(id block.ID, b *block.Block) {
	c, seg := s.c, s.segs[b.Seg]
	k := kindOf(seg.Large)
	if b.Stack != 0 {
		c.stacks.drop(b.Stack)
		b.Stack = 0
	}
	c.books.begin()
	if b.Word().State() == block.Pending {
		c.books.pend(k, -1, b.Size)
	} else {
		c.books.freed(k, b.Size, b.Requested())
	}
	c.books.end()
	if seg.Stitched {
		s.unstitchLocked(seg, id, b)
	} else {
		s.insertFreeLocked(seg, id, b)
	}
}

// flushLocked returns everything that lies in the stream's magazines to its
// pools and reports whether there was anything.
func (s *Stream) flushLocked() bool {
	found := false
	s.magazine.Each(func(id block.ID) bool {
		b := s.c.blocks.At(id)
		if w := b.Word(); !w.Has(block.Homed) || b.Owner() != s.index {
			return true
		} else if w.State() != block.Cached {
			return false
		}
		if w, ok := s.unhomeLocked(b); ok && w.State() == block.Cached {
			s.releaseLocked(id, b)
			found = true
		}
		return true
	})
	s.checkLocked()
	return found
}

// lockOwner finds the stream that owns a handle's block and locks it, after
// which the block's state stays, but for the magazines. The handle must be
// of this allocator and its block live; else gone is the reason given.
func (c *Caching) lockOwner(op string, h Block, gone error) (*Stream, *block.Block, error) {
	if h.pool() != c.id || !c.blocks.Known(h.id()) {
		return nil, nil, c.blockError(op, h, nil, ErrForeignPointer)
	}
	b := c.blocks.At(h.id())
	for {
		s := c.stream(b.Owner())
		s.mu.Lock()
		if b.Owner() != s.index {
			s.mu.Unlock() // the stream was closed and its blocks moved
			continue
		}
		if c.closed.Load() {
			s.mu.Unlock()
			return nil, nil, c.blockError(op, h, nil, ErrClosed)
		}
		if w := b.Word(); w.Gen() != h.gen || w.State() != block.Live {
			s.mu.Unlock()
			if w.Gen() != h.gen && gone == ErrDoubleFree {
				gone = ErrStaleBlock
			}
			return nil, nil, c.blockError(op, h, s, gone)
		}
		return s, b, nil
	}
}

func (c *Caching) stream(index uint32) *Stream { return (*c.streams.Load())[index] }

// openStreams returns the streams that are not closed, by index.
func (c *Caching) openStreams() []*Stream {
	return slices.DeleteFunc(slices.Clone(*c.streams.Load()), func(s *Stream) bool { return s.heir.Load() != nil })
}

// driverError remembers a device that is lost and passes the error on.
func (c *Caching) driverError(err error) error {
	if errors.Is(err, ErrDeviceLost) && c.lost.CompareAndSwap(nil, &err) {
		for _, s := range *c.streams.Load() {
			s.magazine.Drop()
		}
		c.cfg.Logger.Error("device lost", "device", c.driver.Name(), "error", err)
	}
	return err
}

func (c *Caching) lostError() error {
	if p := c.lost.Load(); p != nil {
		return fmt.Errorf("cupool: %s is lost: %w", c.driver.Name(), *p)
	}
	return nil
}

// limitBytes returns the limit as Stats and errors print it: 0 for none.
func (c *Caching) limitBytes() int64 {
	if c.limit == math.MaxInt64 {
		return 0
	}
	return c.limit
}

// checkLocked verifies the stream's books in builds with -tags invariants.
func (s *Stream) checkLocked() {
	if invariant.Enabled {
		if err := s.verifyLocked(); err != nil {
			panic(err)
		}
	}
}

// callers returns the program counters of the code that called Alloc.
func callers() (pc [16]uintptr) {
	runtime.Callers(5, pc[:])
	return pc
}
