package cupool

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/cupool/cupool/internal/block"
	"github.com/cupool/cupool/internal/sizeclass"
)

// ArenaConfig sets up an Arena.
type ArenaConfig struct {
	// Size is the arena's memory in bytes. It must be positive.
	Size int64
	// Stream is what the memory is allocated for and what Reset orders. nil:
	// the allocator's default stream.
	Stream *Stream
	// Overflow has the allocator serve what does not fit, with a block for
	// each request, until Reset or Release. Otherwise such requests fail.
	Overflow bool
}

// Arena hands out parts of one block by moving an offset, for phases of a
// program that allocate much and give everything back at once: Reset, or
// Release back to a Mark. An allocation costs some tens of nanoseconds, Reset
// as much for all of them.
//
// It is an Allocator, so that engines and buffers can live in it. Free ends a
// block's life, but its memory comes back only with the rest. Handles of before
// a Reset or Release are told from later ones: their use is an error.
//
// Streams need no care beyond that of any Allocator: Reset and Release make the
// arena's stream wait, on the device, for the others that its blocks were
// allocated for or recorded on, and a stream that blocks are then allocated
// for waits for the arena's. All methods are safe from several goroutines.
type Arena struct {
	a   Allocator
	s   *Stream
	id  uint32
	cfg ArenaConfig

	mu       sync.Mutex // taken before the locks of the allocator
	memory   Block
	off      int64 // bytes that are taken of it
	gen      uint64
	blocks   []arenaBlock // in memory, by address
	over     []arenaBlock // elsewhere, in the order of allocation
	overflow int64        // bytes in over that are live
	marks    []arenaMark
	users    []*Stream // other streams, which Reset waits for
	ordered  []*Stream // other streams, which are ordered after the last Reset
	stats    ArenaStats
	closed   bool
}

// ArenaStats are the statistics of an Arena, in bytes.
type ArenaStats struct {
	Size     int64 // of the arena's own memory
	Used     int64 // taken of it, with what alignment costs
	Overflow int64 // held from the allocator beyond it
	Peak     int64 // the most that Used and Overflow were together: the Size that overflows nothing
	Blocks   int64 // live
	Resets   int64 // Resets so far
}

// arenaBlock is one allocation.
type arenaBlock struct {
	ptr   Ptr
	size  int64 // as requested
	gen   uint64
	freed bool
	from  Block // of the allocator, for one that overflowed
}

// overflowID distinguishes the handles of blocks that overflowed.
const overflowID = 1 << 31

// NewArena takes the memory of an arena from an allocator. It fails with a
// *ConfigError and as Alloc does.
func NewArena(a Allocator, cfg ArenaConfig) (*Arena, error) {
	if cfg.Size <= 0 {
		return nil, &ConfigError{Field: "Size", Value: cfg.Size, Reason: "must be positive"}
	}
	if cfg.Stream == nil {
		cfg.Stream = a.DefaultStream()
	}
	b, err := a.Alloc(cfg.Size, cfg.Stream)
	if err != nil {
		return nil, fmt.Errorf("cupool: new arena: %w", err)
	}
	return &Arena{a: a, s: cfg.Stream, id: pools.Add(1), cfg: cfg, memory: b, stats: ArenaStats{Size: cfg.Size}}, nil
}

// Driver returns the device.
func (r *Arena) Driver() Driver { return r.a.Driver() }

// DefaultStream returns the device's default stream.
func (r *Arena) DefaultStream() *Stream { return r.a.DefaultStream() }

// NewStream makes a stream of the device.
func (r *Arena) NewStream() (*Stream, error) { return r.a.NewStream() }

// Stream returns the stream that the arena's memory was allocated for.
func (r *Arena) Stream() *Stream { return r.s }

// Stats returns the statistics. They are exact.
func (r *Arena) Stats() ArenaStats {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.stats
}

// Alloc implements Allocator. Without Overflow, it fails with an *OOMError
// when the arena is full.
func (r *Arena) Alloc(size int64, s *Stream) (Block, error) {
	return r.AllocAligned(size, sizeclass.Quantum, s)
}

// AllocAligned is Alloc with an address that is a multiple of align bytes, a
// power of two; it is one of 512 in any case. It fails with ErrInvalidSize for
// another alignment.
func (r *Arena) AllocAligned(size, align int64, s *Stream) (Block, error) {
	if s == nil {
		s = r.a.DefaultStream()
	}
	switch {
	case align <= 0 || align&(align-1) != 0 || align > sizeclass.MaxRequest:
		return Block{}, r.fail("allocation", 0, size, ErrInvalidSize, "an alignment is a power of two, not %d", align)
	case size < 0 || size > sizeclass.MaxRequest-align:
		return Block{}, r.fail("allocation", 0, size, ErrInvalidSize, "no device has such memory")
	case size == 0:
		return Block{}, nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return Block{}, r.closedError("allocation")
	}
	pad := -int64(r.memory.ptr) - r.off
	pad &= max(align, sizeclass.Quantum) - 1
	at := r.off + pad
	if size > r.cfg.Size-at {
		return r.overflowLocked(size, align, s)
	}
	if err := r.orderLocked(s); err != nil {
		return Block{}, err
	}
	b := r.addLocked(&r.blocks, 0, arenaBlock{ptr: r.memory.ptr + Ptr(at), size: size})
	r.off = min(at+sizeclass.Round(size), r.cfg.Size)
	r.countLocked()
	return b, nil
}

// addLocked enters a block and returns its handle.
func (r *Arena) addLocked(list *[]arenaBlock, flag block.ID, b arenaBlock) Block {
	r.gen++
	b.gen = r.gen
	*list = append(*list, b)
	r.stats.Blocks++
	return newBlock(b.ptr, b.size, b.gen, flag|block.ID(len(*list)), r.id)
}

func (r *Arena) countLocked() {
	r.stats.Used, r.stats.Overflow = r.off, r.overflow
	r.stats.Peak = max(r.stats.Peak, r.off+r.overflow)
}

// overflowLocked serves a request that does not fit.
func (r *Arena) overflowLocked(size, align int64, s *Stream) (Block, error) {
	if !r.cfg.Overflow {
		return Block{}, &OOMError{
			Device: r.Driver().Name(), Stream: s.handle, Requested: size, Rounded: sizeclass.Round(size), Segment: r.cfg.Size,
			Live: r.off, Cached: r.cfg.Size - r.off, LargestFree: r.cfg.Size - r.off, Reserved: r.cfg.Size, Limit: r.cfg.Size,
			DeviceFree: -1, DeviceTotal: -1, Hint: "Reset the arena, make it larger, or let it Overflow",
		}
	}
	pad := max(align-sizeclass.Quantum, 0) // every address is a multiple of the quantum
	from, err := r.a.Alloc(size+pad, s)
	if err != nil {
		return Block{}, err
	}
	b := r.addLocked(&r.over, overflowID, arenaBlock{ptr: (from.ptr + Ptr(pad)) &^ Ptr(align-1), size: size, from: from})
	r.overflow += sizeclass.Round(from.size)
	r.countLocked()
	return b, nil
}

// orderLocked sees to it that work on s that is submitted from now on comes
// after all that used the arena's memory before the last Reset.
func (r *Arena) orderLocked(s *Stream) error {
	if s == r.s || slices.Contains(r.ordered, s) {
		return s.usable("allocation")
	}
	if s.c.family != r.s.c.family {
		return r.fail("allocation", 0, -1, ErrForeignStream, "the stream was made by another allocator")
	}
	if err := s.WaitStream(r.s); err != nil {
		return err
	}
	r.ordered = append(r.ordered, s)
	r.usedByLocked(s)
	return nil
}

func (r *Arena) usedByLocked(s *Stream) {
	if s != r.s && !slices.Contains(r.users, s) {
		r.users = append(r.users, s)
	}
}

// fail describes a call that cannot be right.
func (r *Arena) fail(op string, p Ptr, size int64, reason error, detail string, args ...any) error {
	return &BlockError{Op: op, Ptr: p, Size: size, Stream: r.s.handle, Err: reason, Detail: fmt.Sprintf(detail, args...)}
}

func (r *Arena) closedError(op string) error {
	return r.fail(op, r.memory.ptr, -1, ErrClosed, "the arena is closed")
}

// findLocked returns the live block of a handle.
func (r *Arena) findLocked(op string, h Block, gone error) (*arenaBlock, error) {
	switch {
	case r.closed:
		return nil, r.closedError(op)
	case h.pool() != r.id:
		return nil, r.fail(op, h.ptr, h.size, ErrForeignPointer, "the block was not allocated in this arena")
	}
	list, i := r.blocks, int(h.id()&^overflowID)-1
	if h.id()&overflowID != 0 {
		list = r.over
	}
	switch {
	case i >= len(list) || list[i].gen != h.gen:
		if gone == ErrDoubleFree {
			gone = ErrStaleBlock
		}
		return nil, r.fail(op, h.ptr, h.size, gone, "the arena was reset or released since")
	case list[i].freed:
		return nil, r.fail(op, h.ptr, h.size, gone, "the block was freed before")
	}
	return &list[i], nil
}

// Free implements Allocator.
func (r *Arena) Free(h Block) error {
	if h.IsEmpty() {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	b, err := r.findLocked("free", h, ErrDoubleFree)
	if err != nil {
		return err
	}
	if !b.from.IsEmpty() {
		if err := r.a.Free(b.from); err != nil {
			return err
		}
		r.overflow -= sizeclass.Round(b.from.size)
		r.countLocked()
	}
	b.freed = true
	r.stats.Blocks--
	return nil
}

// RecordStream implements Allocator.
func (r *Arena) RecordStream(h Block, s *Stream) error {
	if h.IsEmpty() {
		return nil
	}
	if s == nil {
		s = r.a.DefaultStream()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	b, err := r.findLocked("record stream", h, ErrUseAfterFree)
	switch {
	case err != nil:
		return err
	case !b.from.IsEmpty():
		return r.a.RecordStream(b.from, s)
	case s.c.family != r.s.c.family:
		return r.fail("record stream", h.ptr, h.size, ErrForeignStream, "the stream was made by another allocator")
	}
	r.usedByLocked(s)
	return nil
}

// FreePtr implements Allocator.
func (r *Arena) FreePtr(p Ptr, size int64) error {
	if p == 0 && size <= 0 {
		return nil
	}
	h, err := r.lookup("free", p, size)
	switch {
	case errors.Is(err, ErrUseAfterFree):
		return r.fail("free", p, size, ErrDoubleFree, "no block is live there")
	case err != nil:
		return err
	case h.ptr != p:
		return r.fail("free", p, size, ErrInteriorPointer, "it is %d bytes into the block at %v", p-h.ptr, h)
	case size >= 0 && size != h.size:
		return r.fail("free", p, size, ErrSizeMismatch, "%d bytes were allocated there", h.size)
	}
	return r.Free(h)
}

// Lookup implements Allocator. The allocator's other blocks are foreign. It
// takes time in proportion to the number of blocks that overflowed.
func (r *Arena) Lookup(p Ptr) (Block, error) { return r.lookup("look-up", p, -1) }

func (r *Arena) lookup(op string, p Ptr, size int64) (Block, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return Block{}, r.closedError(op)
	}
	holds := func(b arenaBlock) bool { return !b.freed && p >= b.ptr && p < b.ptr+Ptr(b.size) }
	if p >= r.memory.ptr && p < r.memory.ptr+Ptr(r.memory.size) {
		i, _ := slices.BinarySearchFunc(r.blocks, p, func(b arenaBlock, p Ptr) int { return cmp.Or(cmp.Compare(b.ptr, p), -1) })
		if i > 0 && holds(r.blocks[i-1]) {
			return r.handle(r.blocks[i-1], block.ID(i)), nil
		}
		return Block{}, r.fail(op, p, size, ErrUseAfterFree, "no block is live there")
	}
	if i := slices.IndexFunc(r.over, holds); i >= 0 {
		return r.handle(r.over[i], overflowID|block.ID(i+1)), nil
	}
	return Block{}, r.fail(op, p, size, ErrForeignPointer, "it is not in this arena")
}

func (r *Arena) handle(b arenaBlock, id block.ID) Block {
	return newBlock(b.ptr, b.size, b.gen, id, r.id)
}
