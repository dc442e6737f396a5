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
// Locks, in the order in which they are taken: reclaim, streamsMu, stranded,
// Stream.mu, Stream.clock.mu, segments.mu, books.mu, family.mu; of a family, those
// of the root before those of a pool. A stream's lock is held across MemAlloc and
// the mapping of memory for that stream; none but reclaim is held while waiting for
// events, and none in callbacks.
type Caching struct {
	driver     Driver
	ownsDriver bool
	cfg        Config
	limit      int64 // bytes, MaxInt64 without one
	id         uint32

	family                   *family
	name                     string // of a private pool, as what follows
	noSplit, isolated, lends bool
	retired                  atomic.Bool

	blocks   block.Table
	procs    *magazine.Procs
	byAddr   [2]*addrmap.Map // live blocks by address, of each kind of pool
	segments segmentIndex
	books    books
	events   eventPool
	stacks   stackTable
	later    laterQueue

	streams   atomic.Pointer[[]*Stream] // by place; closed ones stay until others have theirs
	streamsMu sync.Mutex                // taken to change streams
	numbers   uint64                    // streams made so far; guarded by streamsMu
	def       *Stream

	vm          VirtualMemory // nil: segments
	granularity int64         // of vm, in bytes
	capacity    int64         // bytes that the device has

	fastLimit int64 // bytes of the largest block for the fast bins; 0: none is
	homeLimit int64 // bytes of the largest block for magazines; 0: none is
	left      leftovers

	collectAbove int64         // bytes reserved; 0: no GarbageCollectionThreshold
	idleTick     atomic.Uint64 // of Segment.IdleSince
	stranded     stranded
	decay        decay
	sleep        sleep
	pressure     pressure

	reserved  atomic.Int64   // bytes held from the device
	highWater atomic.Int64   // the most that reserved has been
	regrets   map[regret]int // segments given back, by size; guarded by reclaim
	idle      []idle         // what a release looks through; guarded by reclaim
	reclaim   reclaimLock    // one goroutine at a time takes memory away from pools
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
	c.family = newFamily(c)
	if err := c.begin(); err != nil {
		return nil, err
	}
	return c, nil
}

// begin sets up what follows from the fields that New or NewPool have set.
func (c *Caching) begin() (err error) {
	cfg := &c.cfg
	if c.collectAbove, err = cfg.collectAboveOn(cfg.Driver, c.limit); err != nil {
		return fmt.Errorf("cupool: reading the size of %s: %w", cfg.Driver.Name(), err)
	}
	c.reclaim.tell = cfg.OnRelease
	c.events.driver = cfg.Driver
	c.procs = &magazine.Procs{}
	if cfg.MagazineBytes >= 0 && !cfg.RecordStacks {
		if cfg.Strategy != FirstFit {
			c.fastLimit = min(cfg.SmallLimit, block.FastLimit)
		}
		c.homeLimit = cfg.MagazineBytes / 4
		c.procs = magazine.NewProcs()
	}
	c.byAddr[small] = addrmap.New(uint(bits.TrailingZeros(sizeclass.Quantum)))
	c.byAddr[large] = addrmap.New(uint(bits.Len64(uint64(cfg.SmallLimit)) - 1)) // no large block is smaller
	if c.vm, err = cfg.virtualMemory(); err != nil {
		return err
	} else if c.vm != nil {
		c.granularity = c.vm.VMMGranularity()
		if _, c.capacity, err = cfg.Driver.MemInfo(); err != nil {
			return fmt.Errorf("cupool: reading the size of %s: %w", cfg.Driver.Name(), err)
		}
	}
	c.streams.Store(new([]*Stream))
	c.def = c.addStream(0, true)
	if err := c.reserveInitial(); err != nil {
		return errors.Join(err, c.Close())
	}
	c.startDecay()
	return nil
}

// Driver returns the device.
func (c *Caching) Driver() Driver { return c.family.root.driver }

// DefaultStream returns the device's default stream.
func (c *Caching) DefaultStream() *Stream { return c.family.root.def }

// Alloc implements Allocator. A size that was lately freed on the same
// processor and stream is served without a lock.
func (c *Caching) Alloc(size int64, s *Stream) (Block, error) {
	if s == nil {
		s = c.def
	}
	if s.c != c {
		return c.allocElse(size, s)
	}
	id, b, gen, misses := s.magazine.Get(size)
	if id != 0 {
		return newBlock(Ptr(b.Addr()), size, gen, id, c.id), nil
	}
	return c.allocSlow(size, s, misses)
}

// Free implements Allocator.
func (c *Caching) Free(h Block) error {
	if h.pool() != c.id {
		return c.freeOther(h)
	}
	b := c.blocks.At(h.id())
	if b.FreeHomed(h.gen) {
		return nil
	}
	w := b.Word()
	if w&^block.Used != block.MakeWord(h.gen, block.Live) {
		return c.freeOther(h)
	}
	s := c.stream(b.Owner())
	s.mu.Lock()
	if b.Word() != w || b.Owner() != s.index || c.closed.Load() {
		s.mu.Unlock()
		return c.freeOther(h)
	}
	s.backLocked(h.id(), b)
	s.mu.Unlock()
	return nil
}

// allocSlow serves what no magazine could.
func (c *Caching) allocSlow(size int64, s *Stream, misses magazine.Misses) (Block, error) {
	if s.c != c || uint64(size-1) >= sizeclass.MaxRequest {
		return c.allocElse(size, s)
	}
	rounded := sizeclass.Round(size)
	if c.cfg.classes {
		rounded = c.cfg.roundClass(rounded)
	}
	s.mu.Lock()
	if c.closed.Load() || c.lost.Load() != nil || s.heir.Load() != nil || c.sleep.asleep.Load() || c.retired.Load() {
		err := s.usableLocked()
		s.mu.Unlock()
		return Block{}, err
	}
	h, ok := s.takeLocked(size, rounded, misses)
	s.mu.Unlock()
	if ok {
		return h, nil
	}
	return c.allocMiss(request{size: size, rounded: rounded, kind: c.kindOfSize(rounded), s: s, misses: misses})
}

// allocElse answers requests for the streams of a pool's family, for no bytes
// and those that are mistakes.
func (c *Caching) allocElse(size int64, s *Stream) (Block, error) {
	if own := c.own(s); own != nil && own != s {
		return c.Alloc(size, own)
	}
	e := &BlockError{Op: "allocation", Size: size, Stream: s.handle}
	switch {
	case s.c == c.family.root && s.heir.Load() != nil:
		return Block{}, s.usable("allocation")
	case s.c != c:
		e.Err, e.Detail = ErrForeignStream, "the stream was made by another allocator"
	case size == 0:
		return Block{}, nil
	default:
		e.Err, e.Detail = ErrInvalidSize, fmt.Sprintf("a size lies between 0 and %d bytes", int64(sizeclass.MaxRequest))
	}
	return Block{}, e
}

// kindOfSize returns the pool of a block that is or was handed out: what is
// cut from a small segment is small. Free blocks of the large pool may be of
// any size.
func (c *Caching) kindOfSize(size int64) kind { return kindOf(size > c.cfg.SmallLimit) }

// usableLocked reports why nothing can be allocated on s any more.
func (s *Stream) usableLocked() error {
	switch {
	case s.c.closed.Load():
		return fmt.Errorf("cupool: allocator on %s: %w", s.c.driver.Name(), ErrClosed)
	case s.heir.Load() != nil:
		return fmt.Errorf("cupool: stream 0x%x: %w", uintptr(s.handle), ErrClosed)
	case s.c.sleep.asleep.Load():
		return s.c.asleepError("allocation")
	case s.c.retired.Load():
		return fmt.Errorf("cupool: %s on %s was retired: %w", s.c.name, s.c.driver.Name(), ErrClosed)
	}
	return s.c.lostError()
}

// freeOther frees blocks that are homed or used by other streams, and says
// what is wrong with others.
func (c *Caching) freeOther(h Block) error {
	if h.IsEmpty() {
		return nil
	}
	if o := c.other(h); o != nil {
		return o.Free(h)
	}
	s, b, err := c.lockOwner("free", h, ErrDoubleFree)
	if err != nil {
		return err
	}
	defer s.mu.Unlock()
	return s.freeLocked(h, b)
}

// freeLocked takes back a block that may be homed, if it is live.
func (s *Stream) freeLocked(h Block, b *block.Block) error {
	if !s.unhomeLocked(h.id(), b) {
		return s.c.blockError("free", h, s, ErrDoubleFree)
	}
	s.backLocked(h.id(), b)
	return nil
}

// backLocked takes back a live block without a home: at once, or when the
// streams recorded on it are done with it.
func (s *Stream) backLocked(id block.ID, b *block.Block) {
	if b.Uses() != 0 {
		s.pendLocked(id, b)
	} else {
		s.releaseLocked(id, b)
	}
	s.checkLocked()
}

// releaseLocked returns a block that nothing uses any more to its pool: a
// small one to the fast bins, others merged with their free neighbours. The
// block is Live, Cached or Pending.
func (s *Stream) releaseLocked(id block.ID, b *block.Block) {
	c, k := s.c, s.c.kindOfSize(b.Size)
	if b.Stack != 0 {
		c.stacks.drop(b.Stack, b.Requested())
		b.Stack = 0
	}
	if b.Word().State() == block.Pending {
		s.noteDone(k, b.Size)
	} else {
		s.noteFreed(k, b.Size, b.Requested())
	}
	if b.Size <= c.fastLimit {
		s.fast.Push(id, b)
	} else if seg := s.segs[b.Seg]; seg.Stitched {
		s.unstitchLocked(seg, id, b)
	} else {
		s.insertFreeLocked(seg, id, b)
	}
}

func (c *Caching) stream(index uint32) *Stream { return (*c.streams.Load())[index] }

// openStreams returns the streams that are not closed, by index.
func (c *Caching) openStreams() []*Stream {
	return slices.DeleteFunc(slices.Clone(*c.streams.Load()), func(s *Stream) bool { return s.heir.Load() != nil })
}

// driverError remembers a device that is lost, for the whole family, and
// passes the error on.
func (c *Caching) driverError(err error) error {
	if !errors.Is(err, ErrDeviceLost) || !c.family.root.lost.CompareAndSwap(nil, &err) {
		return err
	}
	for _, m := range c.family.list() {
		m.lost.Store(&err)
		m.procs.Shut()
	}
	c.cfg.Logger.Error("device lost", "device", c.driver.Name(), "error", err)
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

// callers returns the program counters of the code that called Alloc, which is
// below the first skip ones.
func callers(skip int) (pc [16]uintptr) {
	runtime.Callers(skip, pc[:])
	return pc
}
