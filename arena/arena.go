// Package arena hands out parts of one block by moving an offset, and takes
// them all back at once.
package arena

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/blockerr"
	"github.com/cupool/cupool/internal/nilptr"
	"github.com/cupool/cupool/internal/oomhint"
	"github.com/cupool/cupool/internal/poolaccess"
	"github.com/cupool/cupool/internal/sanitize"
	"github.com/cupool/cupool/internal/sizeclass"
)

// Config sets up an Arena.
type Config struct {
	// Size is the arena's memory in bytes. It must be positive.
	Size int64
	// Stream is the stream that the memory is allocated for and that Reset
	// orders after all others. nil: the allocator's default stream.
	Stream *cupool.Stream
	// Overflow has the allocator serve the requests that do not fit, with a
	// block for each, until Reset or Release. Otherwise such requests fail.
	Overflow bool
}

// Arena is for phases of a program that allocate much and give everything back
// at once: with Reset, or with Release back to a Mark. An allocation costs some
// tens of nanoseconds, and a Reset a few for each block.
//
// It is a cupool.Allocator, so that engines and buffers can live in it. Free
// ends a block's life, but its memory comes back only with the rest. A handle
// that was made before a Reset or Release is told from later ones: its use is
// an error.
//
// Streams need no more care than with any Allocator. Reset and Release make the
// arena's stream wait, on the device, for the other streams that its blocks
// were allocated for or recorded on. A stream that blocks are then allocated
// for waits for the arena's. Where one of the two is captured, the call fails with
// ErrNotSupported. All methods are safe from several goroutines.
//
// For the allocator the arena is one block: Config.Sanitize looks at its end alone, and
// ZeroOnAlloc and ZeroOnFree do not fill its parts between two users.
type Arena struct {
	a      cupool.Allocator
	pool   *cupool.Pool      // that the memory is of; nil: of another allocator
	access poolaccess.Access // to it
	born   uint64            // Resets of the pool by then
	s      *cupool.Stream
	mint   cupool.Mint
	cfg    Config

	mu       sync.Mutex // taken before the locks of the allocator
	memory   cupool.Block
	off      int64 // bytes of memory that are taken
	gen      uint64
	blocks   []entry // in memory, by address
	over     []entry // blocks that overflowed, in the order of allocation
	overflow int64   // bytes in over that are live
	spilled  int64   // bytes in over, freed ones too, as memory of the arena comes back with the rest
	marks    []point
	users    []*cupool.Stream // other streams that may use the memory: Reset waits for them
	ordered  []*cupool.Stream // other streams that come after the last Reset
	stats    Stats
	closed   bool
}

// Stats are the statistics of an Arena.
type Stats struct {
	Size     int64 // bytes of the arena's own memory
	Used     int64 // bytes of it that are taken, with gaps for alignment
	Overflow int64 // bytes that the allocator serves beside it
	Peak     int64 // the most that all blocks took until Reset or Release: with this Size nothing overflows, but what is aligned to more than 512
	Blocks   int64 // live blocks
	Resets   int64 // calls of Reset so far
}

// entry is one allocation.
type entry struct {
	ptr   cupool.Ptr
	size  int64 // as requested
	gen   uint64
	freed bool
	from  cupool.Block // the allocator's block, where it overflowed
}

// overflowID is set in the numbers of blocks that overflowed.
const overflowID = 1 << 31

// New takes the memory of an arena from an allocator, which is closed after the
// arena. It fails with a *cupool.ConfigError, or as the allocator's Alloc does.
func New(a cupool.Allocator, cfg Config) (*Arena, error) {
	if nilptr.Is(a) {
		return nil, &cupool.ConfigError{Field: "allocator", Reason: "an arena's memory is of one"}
	}
	if cfg.Size <= 0 {
		return nil, &cupool.ConfigError{Field: "Size", Value: cfg.Size, Reason: "must be positive"}
	}
	if cfg.Stream == nil {
		cfg.Stream = a.DefaultStream()
	}
	b, err := a.Alloc(cfg.Size, cfg.Stream)
	if err != nil {
		return nil, fmt.Errorf("cupool: new arena: %w", err)
	}
	r := &Arena{a: a, s: cfg.Stream, mint: cupool.NewMint(), cfg: cfg, memory: b, stats: Stats{Size: cfg.Size}}
	root := cfg.Stream.Pool()
	for _, p := range append(root.Pools(), root) {
		if p.StreamOf(b) != nil {
			r.pool, r.access = p, poolaccess.Of(p)
			r.born = r.access.Resets()
		}
	}
	return r, nil
}

// isNone reports whether New did not make the Arena.
func (r *Arena) isNone() bool { return r == nil || r.a == nil }

// made fails for such an Arena.
func (r *Arena) made(op string) error {
	if r.isNone() {
		return fmt.Errorf("cupool: %s: the Arena is nil, or New did not make it: %w", op, cupool.ErrInvalidHandle)
	}
	return nil
}

// Driver returns the device.
func (r *Arena) Driver() cupool.Driver {
	if r.isNone() {
		return nil
	}
	return r.a.Driver()
}

// DefaultStream returns the device's default stream.
func (r *Arena) DefaultStream() *cupool.Stream {
	if r.isNone() {
		return nil
	}
	return r.a.DefaultStream()
}

// NewStream makes a stream of the device. It fails with ErrClosed or as the
// allocator's NewStream does.
func (r *Arena) NewStream() (*cupool.Stream, error) {
	if err := r.made("new stream"); err != nil {
		return nil, err
	}
	r.mu.Lock()
	closed := r.closed
	r.mu.Unlock()
	if closed {
		return nil, r.closedError("new stream")
	}
	return r.a.NewStream()
}

// Stream returns the stream that the arena's memory was allocated for.
func (r *Arena) Stream() *cupool.Stream {
	if r.isNone() {
		return nil
	}
	return r.s
}

// Stats returns the statistics. They are exact.
func (r *Arena) Stats() Stats {
	if r.isNone() {
		return Stats{}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.stats
}

// Alloc implements cupool.Allocator. Without Overflow, it fails with an *OOMError
// when the arena is full.
func (r *Arena) Alloc(size int64, s *cupool.Stream) (cupool.Block, error) {
	return r.AllocAligned(size, sizeclass.Quantum, s)
}

// AllocAligned is Alloc with an address that is a multiple of align bytes, a
// power of two. Every address is a multiple of 512 bytes, too. For another
// alignment it fails with ErrInvalidSize.
func (r *Arena) AllocAligned(size, align int64, s *cupool.Stream) (cupool.Block, error) {
	if err := r.made("allocation"); err != nil {
		return cupool.Block{}, err
	}
	if s == nil {
		s = r.a.DefaultStream()
	}
	switch {
	case align <= 0 || align&(align-1) != 0:
		return cupool.Block{}, r.fail("allocation", 0, size, cupool.ErrInvalidSize, "an alignment is a power of two, not %d", align)
	case size < 0 || size > sizeclass.MaxRequest-align:
		return cupool.Block{}, r.fail("allocation", 0, size, cupool.ErrInvalidSize, "no device has %d bytes aligned to %d", size, align)
	case s.Pool() != r.s.Pool():
		return cupool.Block{}, r.fail("allocation", 0, -1, cupool.ErrForeignStream, "the stream was made by another allocator")
	case s.Closed():
		return cupool.Block{}, fmt.Errorf("cupool: allocation on %v: %w", s.Handle(), cupool.ErrClosed)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.closed:
		return cupool.Block{}, r.closedError("allocation")
	case size == 0:
		return cupool.Block{}, nil
	}
	if r.pool != nil {
		if err := r.pool.Err(); err != nil { // it sleeps, or its device is lost
			return cupool.Block{}, err
		}
		if r.access.Resets() != r.born {
			return cupool.Block{}, r.fail("allocation", r.memory.Ptr(), size, cupool.ErrUseAfterFree, "Reset of the pool has ended the arena's memory")
		}
	}
	pad := -int64(r.memory.Ptr()) - r.off
	pad &= max(align, sizeclass.Quantum) - 1
	at := r.off + pad
	if size > r.cfg.Size-at {
		return r.overflowLocked(at, size, align, s)
	}
	if err := r.orderLocked(s); err != nil {
		return cupool.Block{}, err
	}
	b := r.addLocked(&r.blocks, 0, entry{ptr: r.memory.Ptr() + cupool.Ptr(at), size: size})
	r.off = min(at+sizeclass.Round(size), r.cfg.Size)
	r.countLocked()
	return b, nil
}

// addLocked appends a block to a list and returns its handle.
func (r *Arena) addLocked(list *[]entry, flag uint32, b entry) cupool.Block {
	r.gen++
	b.gen = r.gen
	*list = append(*list, b)
	r.stats.Blocks++
	return r.mint.Block(b.ptr, b.size, b.gen, flag|uint32(len(*list)))
}

func (r *Arena) countLocked() {
	r.stats.Used, r.stats.Overflow = r.off, r.overflow
	need := r.off
	if r.spilled > 0 { // it would lie behind the last block, which may end with the memory
		need = sizeclass.Round(need) + r.spilled
	}
	r.stats.Peak = max(r.stats.Peak, need)
}

// overflowLocked serves a request that does not fit at an offset. The lock is given away meanwhile.
func (r *Arena) overflowLocked(at, size, align int64, s *cupool.Stream) (cupool.Block, error) {
	align = max(align, sizeclass.Quantum)
	if !r.cfg.Overflow {
		need := max(at, sizeclass.Round(r.off)+align-sizeclass.Quantum) + size // another arena may begin anywhere
		return cupool.Block{}, &cupool.OOMError{
			Device: r.Driver().Name(), Stream: s.Handle(), Requested: size, Rounded: sizeclass.Round(size), Segment: r.cfg.Size,
			Live: r.off, Cached: r.cfg.Size - r.off, LargestFree: r.cfg.Size - r.off, Reserved: r.cfg.Size, Limit: r.cfg.Size,
			DeviceFree: -1, DeviceTotal: -1, Hint: "Reset the arena, make it larger, or let it Overflow",
			Reason: "limit", Settings: []string{"Overflow: true", "Size: " + oomhint.Expr(need)},
		}
	}
	r.mu.Unlock() // the allocator may wait for work, which may free blocks of the arena
	from, pad, err := r.beside(size, align, s)
	r.mu.Lock()
	switch {
	case err != nil:
		return cupool.Block{}, err
	case r.closed:
		return cupool.Block{}, errors.Join(r.closedError("allocation"), r.a.Free(from))
	}
	b := r.addLocked(&r.over, overflowID, entry{ptr: (from.Ptr() + cupool.Ptr(pad)) &^ cupool.Ptr(align-1), size: size, from: from})
	r.overflow += sizeclass.Round(from.Size())
	r.spilled += sizeclass.Round(from.Size())
	r.countLocked()
	return b, nil
}

// beside returns a block of the allocator that has size bytes at a multiple of align, which
// is one of the quantum, in its first pad bytes.
func (r *Arena) beside(size, align int64, s *cupool.Stream) (from cupool.Block, pad int64, err error) {
	pad = align - sizeclass.Quantum // most addresses are multiples of the quantum
	from, err = r.a.Alloc(size+pad, s)
	if err == nil && from.Ptr()%sizeclass.Quantum != 0 { // with a MinBlock that is finer
		pad = align - sizeclass.Least
		if err = r.a.Free(from); err == nil {
			from, err = r.a.Alloc(size+pad, s)
		}
	}
	return from, pad, err
}

// orderLocked makes work that is submitted to s from now on come after all work
// that used the arena's memory before the last Reset.
func (r *Arena) orderLocked(s *cupool.Stream) error {
	if s == r.s || slices.Contains(r.ordered, s) {
		return nil
	}
	if err := waitFor(s, r.s); err != nil {
		return err
	}
	r.ordered = append(slices.DeleteFunc(r.ordered, (*cupool.Stream).Closed), s)
	r.usedByLocked(s)
	return nil
}

// waitFor has a stream wait for another one. Where one is captured, both would be of its graph
// from then on, or the capture would end.
func waitFor(s, o *cupool.Stream) error {
	if s.Captured() || o.Captured() {
		return fmt.Errorf("cupool: the order of %v and %v: one of them is captured: %w", s.Handle(), o.Handle(), cupool.ErrNotSupported)
	}
	return s.WaitStream(o)
}

func (r *Arena) usedByLocked(s *cupool.Stream) {
	if s != r.s && !slices.Contains(r.users, s) {
		r.users = append(slices.DeleteFunc(r.users, (*cupool.Stream).Closed), s) // Close has waited for their work
	}
}

// fail describes a call that cannot be right.
func (r *Arena) fail(op string, p cupool.Ptr, size int64, reason error, detail string, args ...any) error {
	return &cupool.BlockError{Op: op, Ptr: p, Size: size, Stream: r.s.Handle(), Err: reason, Detail: fmt.Sprintf(detail, args...)}
}

func (r *Arena) closedError(op string) error {
	return r.fail(op, r.memory.Ptr(), -1, cupool.ErrClosed, "the arena is closed")
}

// findLocked returns the live block of a handle.
func (r *Arena) findLocked(op string, h cupool.Block, gone error) (*entry, error) {
	id, gen, ok := r.mint.Open(h)
	switch {
	case r.closed:
		return nil, r.closedError(op)
	case !ok:
		return nil, r.fail(op, h.Ptr(), h.Size(), cupool.ErrForeignPointer, "the block was not allocated in this arena")
	}
	list, i := r.blocks, int(id&^overflowID)-1
	if id&overflowID != 0 {
		list = r.over
	}
	switch {
	case i >= len(list) || list[i].gen != gen:
		return nil, r.fail(op, h.Ptr(), h.Size(), blockerr.Gone(gone, true), "the arena was reset or released since")
	case list[i].freed:
		again := slices.ContainsFunc(r.over, func(b entry) bool { return !b.freed && b.ptr == h.Ptr() }) // the allocator below gave it again
		return nil, blockerr.Of(op, h, r.s, blockerr.Gone(gone, again))
	}
	return &list[i], nil
}

// Free implements cupool.Allocator.
func (r *Arena) Free(h cupool.Block) error {
	if err := r.made("free"); err != nil {
		return err
	}
	if h.IsEmpty() {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	b, err := r.findLocked("free", h, cupool.ErrDoubleFree)
	if err != nil {
		return err
	}
	if !b.from.IsEmpty() {
		if err = r.a.Free(b.from); !sanitize.WasFreed(err) {
			return err
		}
		r.overflow -= sizeclass.Round(b.from.Size())
		r.countLocked()
	}
	b.freed = true
	r.stats.Blocks--
	return err
}

// RecordStream implements cupool.Allocator.
func (r *Arena) RecordStream(h cupool.Block, s *cupool.Stream) error {
	if err := r.made("record stream"); err != nil {
		return err
	}
	if h.IsEmpty() {
		return nil
	}
	if s == nil {
		s = r.a.DefaultStream()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	b, err := r.findLocked("record stream", h, cupool.ErrUseAfterFree)
	switch {
	case err != nil:
		return err
	case !b.from.IsEmpty():
		return r.a.RecordStream(b.from, s)
	case s.Pool() != r.s.Pool():
		return r.fail("record stream", h.Ptr(), h.Size(), cupool.ErrForeignStream, "the stream was made by another allocator")
	}
	r.usedByLocked(s)
	return nil
}

// FreePtr implements cupool.Allocator.
func (r *Arena) FreePtr(p cupool.Ptr, size int64) error {
	if err := r.made("free"); err != nil {
		return err
	}
	if p == 0 && size <= 0 {
		return nil
	}
	h, err := r.lookup("free", p, size, true)
	if err != nil {
		return err
	}
	return r.Free(h)
}

// Lookup implements cupool.Allocator. The allocator's other blocks are foreign. It
// takes time in proportion to the number of blocks that overflowed.
func (r *Arena) Lookup(p cupool.Ptr) (cupool.Block, error) {
	if err := r.made("look-up"); err != nil {
		return cupool.Block{}, err
	}
	return r.lookup("look-up", p, -1, false)
}

func (r *Arena) lookup(op string, p cupool.Ptr, size int64, exact bool) (cupool.Block, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	inside := p >= r.memory.Ptr() && p < r.memory.Ptr()+cupool.Ptr(r.memory.Size())
	at := blockerr.At{Ptr: p, Stream: r.s, Ours: inside, Began: inside, Closed: r.closed}
	holds := func(b entry) bool { return !b.freed && p >= b.ptr && p < b.ptr+cupool.Ptr(b.size) }
	if inside {
		i, _ := slices.BinarySearchFunc(r.blocks, p, func(b entry, p cupool.Ptr) int { return cmp.Or(cmp.Compare(b.ptr, p), -1) })
		if i > 0 && holds(r.blocks[i-1]) {
			at.Live = r.handle(r.blocks[i-1], uint32(i))
		}
	} else if i := slices.IndexFunc(r.over, holds); i >= 0 {
		at.Live = r.handle(r.over[i], overflowID|uint32(i+1))
	}
	return at.Find(op, size, exact)
}

func (r *Arena) handle(b entry, id uint32) cupool.Block {
	return r.mint.Block(b.ptr, b.size, b.gen, id)
}
