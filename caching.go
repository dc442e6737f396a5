package cupool

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/cupool/cupool/internal/block"
	"github.com/cupool/cupool/internal/budget"
	"github.com/cupool/cupool/internal/heap"
	"github.com/cupool/cupool/internal/history"
	"github.com/cupool/cupool/internal/lock"
	"github.com/cupool/cupool/internal/magazine"
	"github.com/cupool/cupool/internal/rarelog"
	"github.com/cupool/cupool/internal/sizeclass"
	"github.com/cupool/cupool/internal/vmem"
)

// Pool is the caching allocator: memory that is freed stays reserved and
// serves later requests of the same stream without a call to the device. Its
// way of working is in the package's doc comment. All methods are safe from
// several goroutines. Methods of the zero Pool and of a nil one fail with
// ErrInvalidHandle, those that return no error answer with zero values.
//
// New makes an allocator, the root, and NewPool private pools of it, which share
// its streams and its limit.
type Pool struct {
	pool
	def     *streamHeap // of the default stream
	heaps   heapTable
	idle    lending
	reclaim reclaimer
	sheds   atomic.Bool // frees give memory beyond the soft limit back; set by SetSoftLimit
}

// pools counts allocators, so that handles of one are foreign to another.
var pools atomic.Uint32

// New returns an allocator over cfg.Driver. It fails with a *ConfigError, as
// ConfigFromEnv does, with ErrNotSupported where BackingVMM or Sanitize.Guard need
// virtual memory that the device has not, with ErrOutOfMemory where InitialSize does
// not fit, or with what the device says when it is asked for its size.
func New(cfg Config) (*Pool, error) {
	cfg, err := cfg.fromEnviron()
	if err != nil {
		return nil, err
	}
	if cfg, err = cfg.withDefaults(); err != nil {
		return nil, err
	}
	owns := cfg.Driver == nil
	if owns {
		if cfg.Driver, err = OpenHost(HostConfig{}); err != nil {
			return nil, err
		}
	}
	limit, err := limitOf(cfg.Driver, cfg.Limit, cfg.Fraction)
	if err != nil {
		return nil, fmt.Errorf("cupool: reading the size of %s: %w", cfg.Driver.Name(), err)
	}
	c := &Pool{pool: pool{driver: cfg.Driver, ownsDriver: owns, cfg: cfg, id: pools.Add(1)}}
	c.log = rarelog.Limit(cfg.Logger.With("device", cfg.Driver.Name()))
	c.dev = newDevice(c, cfg.Driver, c.log, limit)
	c.budget.Limit = limit
	c.logSettings()
	if err := c.begin(false); err != nil {
		return nil, err
	}
	if cfg.History != nil {
		c.dev.history.Start(history.Settings(*cfg.History))
	}
	c.dev.mu.Lock()
	c.dev.def = c.dev.addStreamLocked(0, true)
	c.dev.mu.Unlock()
	c.def = c.heaps.of(c.dev.def)
	if err := c.reserveInitial(); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	c.reclaim.startDecay()
	return c, nil
}

// begin sets up what follows from the fields that New or NewPool have set.
func (c *Pool) begin(noSplit bool) error {
	cfg := &c.cfg
	c.heaps.pool = &c.pool
	c.idle = lending{pool: &c.pool, heaps: &c.heaps, of: map[*streamHeap]lender{}}
	c.reclaim = reclaimer{pool: &c.pool, heaps: &c.heaps, idle: &c.idle, regrets: heap.Regrets{}}
	c.heaps.mu.Init(lock.HeapTable, uint64(c.id))
	c.idle.mu.Init(lock.Lending, uint64(c.id))
	c.reclaim.ReclaimLock = budget.NewReclaimLock(uint64(c.id), c.reclaim.noteReleased)
	c.budget.Device, c.budget.Lock = &c.dev.budget, c.reclaim.ReclaimLock
	c.tuned.Store(cfg)
	threshold, err := thresholdOf(cfg.Driver, c.budget.Bound(), cfg.GarbageCollectionThreshold)
	if err != nil {
		return fmt.Errorf("cupool: reading the size of %s: %w", cfg.Driver.Name(), err)
	}
	if err := c.startSanitizers(); err != nil {
		return err
	}
	vm, err := cfg.virtualMemory()
	if err != nil {
		return err
	} else if vm != nil {
		_, capacity, err := cfg.Driver.MemInfo()
		if err != nil {
			return fmt.Errorf("cupool: reading the size of %s: %w", cfg.Driver.Name(), err)
		}
		c.memory = vmem.New(vm, c.driver.Name(), capacity, &c.budget, c.dev.failed)
	}
	c.space.Memory, c.space.Policy = c.memory, cfg.policy(noSplit || c.guards != nil)
	c.space.Policy.Quarantine = c.sanitizer != nil
	c.space.Policy.TrackFrees = c.memory != nil && cfg.GrowWait > 0
	c.collectFrom(threshold)
	c.budget.Soft.Store(cfg.SoftLimit)
	c.space.Stay, c.space.Tell, c.space.Time, c.space.Stays = c.dev.stay, c.heaps.noteChange, &c.dev.events.Time, &c.isolated
	c.space.Init()
	return nil
}

// collectFrom has cached memory collected beyond so many bytes; 0: never. The heaps are locked, or
// not in use yet.
func (c *Pool) collectFrom(threshold int64) {
	c.collectAbove.Store(threshold)
	if c.memory != nil {
		c.budget.Threshold.Store(threshold)
	}
	c.space.Policy.TrackIdle = threshold > 0 || c.cfg.TrimOldest
}

// isNone reports whether this is nil or the zero Pool.
func (c *Pool) isNone() bool { return c == nil || c.def == nil }

// made fails with ErrInvalidHandle for such a Pool.
func (c *Pool) made(op string) error {
	if c.isNone() {
		return noPool(op)
	}
	return nil
}

// mayWait fails as made does, and as deviceState.outside.
func (c *Pool) mayWait(op string) error {
	if err := c.made(op); err != nil {
		return err
	}
	return c.dev.outside(op)
}

func noPool(op string) error {
	return fmt.Errorf("cupool: %s: the Pool is nil, or New did not make it: %w", op, ErrInvalidHandle)
}

// Driver returns the device, nil for no Pool.
func (c *Pool) Driver() Driver {
	if c.isNone() {
		return nil
	}
	return c.dev.driver
}

// DefaultStream returns the device's default stream.
func (c *Pool) DefaultStream() *Stream {
	if c.isNone() {
		return nil
	}
	return c.dev.def
}

// Config returns the configuration in force: what was left to the defaults is
// filled in, Backing is the one in use, and History what is recorded at present.
func (c *Pool) Config() Config {
	if c.isNone() {
		return Config{}
	}
	cfg := *c.tuned.Load()
	cfg.History, cfg.found, cfg.zeros = nil, nil, nil
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
	if err := c.made("allocation"); err != nil {
		return err
	}
	if !c.closed.Load() && c.dev.lost.Load() == nil && !c.asleep.Load() {
		return nil
	}
	return c.err()
}

// Sync waits until everything is done that was submitted to the streams of the
// allocator, as Stream.Sync does for one. It fails as that does.
func (c *Pool) Sync() error {
	if err := c.mayWait("synchronize"); err != nil {
		return err
	}
	if c.closed.Load() {
		return fmt.Errorf("cupool: synchronize: %w", ErrClosed)
	}
	ctx, cancel := c.dev.waiting(context.Background())
	defer cancel()
	defer c.dev.shed()
	return c.dev.syncAll(ctx)
}

// Alloc implements Allocator. A size that was lately freed on the same
// stream is served without a lock.
func (c *Pool) Alloc(size int64, s *Stream) (Block, error) {
	if c.isNone() {
		return Block{}, noPool("allocation")
	}
	hits := &c.def.Magazine
	if s != nil {
		if s.root != c {
			return c.allocPrivate(context.Background(), size, s)
		}
		hits = s.hits
	}
	id, at, gen, why := hits.Get(size)
	if id != 0 {
		return newBlock(Ptr(at), size, gen, id, c.id), nil
	}
	//lint:ignore SA1012 allocSlow takes none, which costs less than the background
	return c.allocSlow(nil, size, s, why, false)
}

// AllocContext is Alloc that gives up when ctx is done. A request that the cache
// serves does not look at it. One that misses may have to wait for work of the
// device, when memory runs out: it then fails with an error that matches the
// cause of ctx. Use Alloc where nothing is to be cancelled.
func (c *Pool) AllocContext(ctx context.Context, size int64, s *Stream) (Block, error) {
	if c.isNone() {
		return Block{}, noPool("allocation")
	}
	if ctx == nil {
		return Block{}, &BlockError{Op: "allocation", Size: size, Err: ErrInvalidHandle, Detail: "the context is nil"}
	}
	hits := &c.def.Magazine
	if s != nil {
		if s.root != c {
			return c.allocPrivate(ctx, size, s)
		}
		hits = s.hits
	}
	id, at, gen, why := hits.Get(size)
	if id != 0 {
		return newBlock(Ptr(at), size, gen, id, c.id), nil
	}
	return c.allocSlow(ctx, size, s, why, false)
}

// allocPrivate serves requests to a private pool.
func (c *Pool) allocPrivate(ctx context.Context, size int64, s *Stream) (Block, error) {
	if s.root == c.dev.root {
		if h := c.heaps.of(s); h != nil {
			id, at, gen, why := h.Magazine.Get(size)
			if id != 0 {
				return newBlock(Ptr(at), size, gen, id, c.id), nil
			}
			return c.allocSlow(ctx, size, s, why, false)
		}
	}
	return c.allocSlow(ctx, size, s, 0, false)
}

// allocSlow serves what no magazine could, and why. A nil ctx holds no label and is never done.
func (c *Pool) allocSlow(ctx context.Context, size int64, s *Stream, why magazine.Miss, reserving bool) (Block, error) {
	h := c.def
	if s != nil {
		if h = c.heaps.of(s); h == nil {
			var err error
			if h, err = c.heapFor(size, s); err != nil {
				return Block{}, err
			}
		}
	}
	if uint64(size-1) >= sizeclass.MaxRequest {
		if size == 0 {
			if c.closed.Load() || c.retired.Load() {
				h.mu.Lock()
				defer h.mu.Unlock()
				return Block{}, h.usableLocked()
			}
			return Block{}, nil
		}
		return Block{}, &BlockError{Op: "allocation", Size: size, Stream: h.stream.handle, Err: ErrInvalidSize, Detail: fmt.Sprintf("%d is not between 0 and %d bytes", size, int64(sizeclass.MaxRequest))}
	}
	room := size
	if c.sanitizer != nil {
		room = c.sanitizer.Room(size)
	}
	rounded := sizeclass.Round(room)
	if cfg := c.tuned.Load(); cfg.classed {
		rounded = cfg.classes.Round(room)
	}
	h.mu.Lock()
	if h.unusable() {
		if err := h.usableLocked(); err != nil { // a Sleep that failed since is no reason
			h.mu.Unlock()
			return Block{}, err
		}
	}
	misses := h.Missed(size, why)
	if why.Ends() {
		if out, ok, err := h.takeEndedLocked(ctx, size, why); ok {
			h.mu.Unlock()
			return out, err
		}
	}
	id, b := h.Take(size, rounded, misses)
	if id != 0 {
		if h.unnoted(ctx) { // what handleLocked does, without a call
			h.checkLocked()
			out := h.handle(id, b)
			h.mu.Unlock()
			return out, nil
		}
		out, err := h.handleLocked(ctx, id, b)
		h.mu.Unlock()
		return out, err
	}
	h.mu.Unlock()
	if ctx == nil {
		ctx = context.Background()
	}
	return c.allocMiss(request{ctx: ctx, size: size, rounded: rounded, kind: c.space.Policy.KindOf(rounded), h: h, misses: misses, reserving: reserving})
}

// heapFor is heapTable.make that refuses streams of another allocator.
func (c *Pool) heapFor(size int64, s *Stream) (*streamHeap, error) {
	if s.root != c.dev.root {
		return nil, foreignStream("allocation", 0, size, s)
	}
	return c.heaps.make(s)
}

// foreignStream says whose a stream is that was given to another allocator.
func foreignStream(op string, p Ptr, size int64, s *Stream) error {
	detail := "no allocator made the stream"
	if s.root != nil {
		detail = "the stream was made by another allocator, on " + s.root.dev.driver.Name()
	}
	return &BlockError{Op: op, Ptr: p, Size: size, Stream: s.handle, Err: ErrForeignStream, Detail: detail}
}

// Free implements Allocator.
func (c *Pool) Free(b Block) error {
	if c.isNone() {
		return noPool("free")
	}
	if b.pool() != c.id {
		err := c.freeSlow(b)
		c.dev.shed()
		return err
	}
	x := c.space.Blocks.At(b.id())
	if x.FreeHomed(b.gen) {
		return nil
	}
	h := c.heaps.at(x.Owner())
	if h == nil || c.sanitizer != nil {
		return c.freeShed(b)
	}
	h.mu.Lock()
	if !h.owns(x) || x.Word()&^block.Used != block.MakeWord(b.gen, block.Live) || c.closed.Load() {
		h.mu.Unlock()
		return c.freeShed(b)
	}
	if h.isPlain(x) { // the call costs as much as the question
		h.Put(b.id(), x)
		h.checkLocked()
	} else {
		h.backLocked(b.id(), x)
	}
	h.mu.Unlock()
	c.shed()
	return nil
}

// freeSlow frees blocks that are homed, used by other streams, or of another
// pool, and says what is wrong with others.
func (c *Pool) freeSlow(b Block) error {
	if b.IsEmpty() {
		return nil
	}
	if o := c.other(b); o != nil {
		return o.freeSlow(b)
	}
	return c.heaps.free(b)
}

// other returns the pool that a handle is of when that is not c, or nil.
func (c *Pool) other(h Block) *Pool {
	if h.pool() == c.id {
		return nil
	}
	return c.dev.byID(h.pool())
}

// RecordStream implements Allocator. Recording the allocating stream, or
// the same one twice, changes nothing. It fails with ErrUseAfterFree,
// ErrForeignPointer, ErrForeignStream or ErrClosed.
func (c *Pool) RecordStream(b Block, s *Stream) error {
	if err := c.made("record stream"); err != nil {
		return err
	}
	h, _, err := c.recordUse("record stream", b, s)
	if h != nil {
		h.mu.Unlock()
	}
	return err
}

// FreeOn is RecordStream followed by Free: the block was last used by work
// that s has been given.
func (c *Pool) FreeOn(b Block, s *Stream) error {
	if err := c.made("free"); err != nil {
		return err
	}
	if o := c.other(b); o != nil {
		return o.FreeOn(b, s)
	}
	h, x, err := c.recordUse("free", b, s)
	if h == nil {
		return err
	}
	err = h.freeAndUnlock(b, x)
	if err == nil && c.sanitizer != nil {
		err = c.heaps.damage(b)
	}
	c.shed()
	return err
}

// recordUse notes that s uses a live block and returns the block's heap,
// locked, or nil with an error and for the empty Block.
func (c *Pool) recordUse(op string, b Block, s *Stream) (*streamHeap, *block.Block, error) {
	if s == nil {
		s = c.dev.def
	}
	if s.root != c.dev.root {
		return nil, nil, foreignStream(op, b.ptr, b.size, s)
	}
	if b.IsEmpty() {
		return nil, nil, nil
	}
	if o := c.other(b); o != nil {
		return o.recordUse(op, b, s)
	}
	h, x := c.heaps.lockLive(b)
	if h == nil {
		return nil, nil, c.heaps.notLive(op, b, ErrUseAfterFree)
	}
	if h.stream == s { // ordered already
		return h, x, nil
	}
	if !h.Unhome(b.id(), x) {
		h.mu.Unlock()
		return nil, nil, c.blockError(op, b, h.stream, ErrUseAfterFree)
	}
	if h.pending.Record(x, s.clock); x.Uses() != 0 {
		x.MarkUsed()
	}
	return h, x, nil
}

// Reserve sees to it that a request of size bytes on s (nil: the default
// stream) would be served without the device, so that the first steps of a
// program are as fast as later ones. The memory serves smaller requests of the
// stream, too, and other streams may take it over while it is idle. It goes back
// to the device by Trim, EmptyCache or before an out of memory only. Reserve
// fails as Alloc does.
func (c *Pool) Reserve(size int64, s *Stream) error {
	if err := c.made("reserve"); err != nil {
		return err
	}
	b, err := c.allocSlow(context.Background(), size, s, 0, true)
	if err != nil {
		return err
	}
	if freed, err := c.keep(b); freed || err != nil {
		return err
	}
	return c.Free(b)
}

// keep notes that the memory of a live block was reserved on purpose. It frees one that would be
// in quarantine else, where no request finds it: nobody has used it.
func (c *Pool) keep(b Block) (freed bool, err error) {
	if b.IsEmpty() {
		return true, nil
	}
	h, x, err := c.heaps.lockOwner("reserve", b, ErrUseAfterFree)
	if err != nil {
		return false, err
	}
	defer h.mu.Unlock()
	if c.memory == nil {
		h.KeepSegment(h.SegmentOf(x))
	} else {
		h.KeepRanges(h.Kind(x), x.Size)
	}
	if freed = h.quarantine != nil && c.guards == nil; freed {
		if h.watched(x) {
			h.noteFreeLocked(b.id(), x)
		}
		h.putFree(b.id(), x)
		h.checkLocked()
	}
	return freed, nil
}
