// Package heap holds the free memory of one stream in one pool: which blocks
// are free, how a request is cut from them, and how they merge again.
//
// A Heap has two sets of free blocks, for small and for large requests, ordered
// by size and address. Small blocks that were freed lie in fast bins first, and
// blocks of sizes that recur lie in magazines. Memory comes in segments, or from
// address ranges that physical memory is mapped to chunk by chunk; free chunks
// are stitched, that is mapped a second time, side by side.
//
// A Heap knows no events and no other streams. Its lock is the caller's, who
// holds it for every call, but for Magazine.Get. Of the device it calls what
// maps memory, through a vmem.Mapper, and nothing else.
package heap

import (
	"errors"
	"math"
	"math/bits"
	"slices"
	"sync/atomic"

	"github.com/cupool/cupool/device"
	"github.com/cupool/cupool/internal/addrmap"
	"github.com/cupool/cupool/internal/block"
	"github.com/cupool/cupool/internal/ledger"
	"github.com/cupool/cupool/internal/lock"
	"github.com/cupool/cupool/internal/magazine"
	"github.com/cupool/cupool/internal/sizeclass"
	"github.com/cupool/cupool/internal/vmem"
)

// Policy says how heaps choose, split and keep blocks. Sizes are in bytes.
type Policy struct {
	MinBlock      int64 // the unit of blocks
	SmallLimit    int64 // the largest block of the small set
	FastLimit     int64 // the largest block for the fast bins; 0: none is
	HomeLimit     int64 // the largest block for the magazines; 0: none is
	MagazineBytes int64 // the most that the magazines of a heap refer to
	MinSplit      int64 // the smallest rest that a large block of a segment is split for

	NoSplit             bool  // every block has a segment of its own
	FirstFit            bool  // not best fit
	MaxSplit            int64 // the size from which blocks are kept whole; 0: none is
	MaxNonSplitRounding int64 // what may be wasted of a block that is kept whole

	// MaxChunk bounds the size of a handle: the driver's costs go by handle, so larger ones are
	// cheaper, but only whole ones can be stitched or given back.
	MaxChunk int64

	GrowthFactor float64 // see cupool.Config
	// SharedSegment is the size of segments that are not of the size of one large
	// block. 0: no heap spares large segments.
	SharedSegment int64

	TrackIdle  bool // Segment.IdleSince is wanted
	TrackFrees bool // Runs.FreedBefore is wanted
	Quarantine bool // Pending blocks may wait for no other stream
}

// unit returns what all addresses and sizes of blocks are multiples of. Those of
// segments need not be multiples of a larger MinBlock.
func (p *Policy) unit() int64 { return min(p.MinBlock, sizeclass.Quantum) }

// fine reports whether there are blocks of half a quantum.
func (p *Policy) fine() bool { return p.MinBlock < sizeclass.Quantum }

// KindOf returns the set that a request of rounded bytes is served from.
func (p *Policy) KindOf(rounded int64) ledger.Kind { return ledger.KindOf(rounded > p.SmallLimit) }

// FitsBelow returns the size from which on a free block is too large for a
// request of rounded bytes.
func (p *Policy) FitsBelow(k ledger.Kind, rounded int64) int64 {
	switch {
	case p.MaxSplit == 0 || k == ledger.Small:
		return math.MaxInt64
	case rounded < p.MaxSplit:
		return p.MaxSplit
	default:
		return rounded + p.MaxNonSplitRounding
	}
}

// isOversize reports whether a block is kept whole.
func (p *Policy) isOversize(k ledger.Kind, size int64) bool {
	return p.MaxSplit > 0 && k == ledger.Large && size >= p.MaxSplit
}

// Space is what the heaps of one pool share.
type Space struct {
	Policy Policy
	Blocks block.Table
	Index  Index
	Memory *vmem.Mapper // nil: segments
	Book   ledger.Book

	// Stay says how long a block that is asked for with so many bytes stays in the
	// magazines, or that it does not come there. nil: until it is in the way.
	Stay func(size int64) (block.Stay, bool)
	// Time is the device's, which Heap.FreedAt has. nil: it stands still.
	Time *atomic.Uint64
	// Stays has free memory stay mapped where it is, also in idle stitched ranges, which
	// captured work may use. nil: it need not.
	Stays *atomic.Bool
	// Tell is called, with the heap's lock held, for each change of the memory behind
	// the addresses of a heap. nil: nobody is told.
	Tell func(owner uint32, c Change, at device.Ptr, size int64)

	Stitches, StitchReuses atomic.Int64 // ranges mapped so far, and times that one served again

	asked, mapped atomic.Int64 // bytes that heaps were asked for, and chunks of all stitches

	byAddr   [2]atomic.Pointer[addrmap.Map] // see MapAddresses; blocks that went out, of each kind
	found    found
	marks    atomic.Uint64 // see Heap.newMark
	idleTick atomic.Uint64 // of Segment.IdleSince
}

// Init sets up a space whose exported fields are set.
func (s *Space) Init() {
	s.Index.mu.Init(lock.Segments, 0)
	if s.Policy.fine() {
		s.Policy.FastLimit = min(s.Policy.FastLimit, block.FastLimit/2)
	}
	if s.Time == nil {
		s.Time = new(atomic.Uint64)
	}
}

// MapAddresses begins the maps of blocks by address, unless there are any, and reports whether
// it did. They are kept from then on: who names all blocks by their handles does not pay for
// them. NoteAddress has to enter the blocks that there are.
func (s *Space) MapAddresses() (began bool) {
	for k, least := range [...]int64{s.Policy.MinBlock, s.Policy.SmallLimit} {
		unitBits := bits.Len64(uint64(least)) - 1 // no two blocks of the kind begin in one unit
		if s.byAddr[k].Load() == nil {
			began = s.byAddr[k].CompareAndSwap(nil, addrmap.New(uint(unitBits)))
		}
	}
	return began
}

// NoteAddress enters a block of the heap in the maps that MapAddresses began, if it is out or
// may go out without a search.
func (h *Heap) NoteAddress(id block.ID, b *block.Block) {
	if st := b.Word().State(); st == block.Live || st == block.Cached {
		h.space.note(h.space.Policy.KindOf(b.Size), id, b)
	}
}

// note enters a block that serves a request of a kind in the maps, if there are any.
func (s *Space) note(k ledger.Kind, id block.ID, b *block.Block) {
	if m := s.byAddr[k].Load(); m != nil {
		m.Set(b.Addr(), uint32(id))
	}
}

// At returns the block of a kind that began at an address when it last went out, or 0. The
// maps are overwritten, never cleared, so the block may be another by now. There may be none
// yet, or not all blocks may be entered: who finds nothing has to look at the segment.
func (s *Space) At(k ledger.Kind, addr uint64) block.ID {
	if m := s.byAddr[k].Load(); m != nil {
		return block.ID(m.Get(addr))
	}
	return 0
}

// forget gives back what the space knows about size bytes of addresses, where no
// memory is.
func (s *Space) forget(addr uint64, size int64) {
	for k := range s.byAddr {
		if m := s.byAddr[k].Load(); m != nil {
			m.Forget(addr, uint64(size))
		}
	}
}

// Bytes returns the memory that the space's books take.
func (s *Space) Bytes() int64 {
	n := s.Blocks.Bytes() + s.Index.bytes()
	for k := range s.byAddr {
		if m := s.byAddr[k].Load(); m != nil {
			n += m.Bytes()
		}
	}
	return n
}

// Change is what happened to addresses.
type Change uint8

// The changes.
const (
	Mapped   Change = iota // memory was mapped there
	Unmapped               // and taken away
	Stitched               // free memory was mapped there a second time
)

func (h *Heap) tell(c Change, at device.Ptr, size int64) {
	if h.space.Tell != nil {
		h.space.Tell(h.index, c, at, size)
	}
}

// Work counts what a heap had the driver do to get memory.
type Work struct {
	Grown  int64 // times that memory came from the device
	Mapped int64 // times that memory which the pool had was mapped
}

// Heap is the free memory of one stream in one pool.
type Heap struct {
	Ledger   ledger.Ledger
	Magazine magazine.Cache

	space *Space
	index uint32 // by which blocks name the heap

	free  [2]block.FreeSet
	fast  block.FastBins // small blocks that were freed and not merged yet
	slots block.SlotCache

	segs     []*block.Segment // by Block.Seg; nil where one was given back
	segsFull int              // no place below is free
	leaving  []Idle           // segments that the device is being given back

	freedAt uint64 // see FreedAt

	homedBytes int64 // of blocks that the magazines refer to
	noHomes    int   // blocks that get no place in the magazines from now on
	crowd      crowd

	mixed bool     // a small request may have a large block, or had one
	keeps bool     // some segments are Kept, or were; small requests may have these, too
	kept  [2]int64 // bytes of the address ranges that were reserved on purpose

	work     Work               // so far
	ranges   [2][]*addressRange // of virtual memory; the newest grows
	stitches []*stitch
	runs     []run  // of the last stitchable
	rest     []run  // of the last without
	marks    uint64 // the last that newMark returned
	listing  uint64 // the mark of what was last noted of the chunks that are free
	window   uint64 // the mark of the last window
	fragmentation
	lives lifetimes
}

// Init sets up a heap. Blocks name it by index; guard is its lock.
func (h *Heap) Init(s *Space, index uint32, guard *ledger.Guard) {
	h.space, h.index = s, index
	h.Magazine.Init(&s.Blocks, index)
	h.slots.Table, h.fast.Table = &s.Blocks, &s.Blocks
	if s.Policy.fine() {
		h.fast.Fine = 1
	}
	for k := range h.free {
		h.free[k].Table = &s.Blocks
	}
	h.Ledger.Open(&s.Book, guard)
}

// Work returns what the heap had the driver do so far. What it did more of between the
// first search for a request and the block that serves it, it did for the request.
func (h *Heap) Work() Work { return h.work }

// Index returns the number by which blocks name the heap.
func (h *Heap) Index() uint32 { return h.index }

// Kind returns the set that a block which is out or pending belongs to.
func (h *Heap) Kind(b *block.Block) ledger.Kind {
	if h.space.Policy.NoSplit || h.mixed {
		return ledger.KindOf(h.segs[b.Seg].Large)
	}
	return h.space.Policy.KindOf(b.Size)
}

// Pend makes a live block Pending: the program gave it back, and other streams
// may still use it. The next noHomesAfterPending blocks get no place in the
// magazines.
func (h *Heap) Pend(b *block.Block) {
	b.SetWord(block.MakeWord(b.Word().Gen(), block.Pending))
	b.SetGivenBack(h.space.Time.Load())
	h.Ledger.Pending(h.Kind(b), b.Size, b.Requested())
	h.noHomes = noHomesAfterPending
}

// Put takes back a block that nothing uses any more: a small one to the fast
// bins, others merged with their free neighbours. The block is Live, Cached or
// Pending.
func (h *Heap) Put(id block.ID, b *block.Block) {
	k := h.Kind(b)
	if k == ledger.Large {
		h.lives.ended(b.Size)
	}
	at := h.space.Time.Load()
	if b.Word().State() == block.Pending {
		at = b.GivenBack() // nothing was done with it since
		h.Ledger.Done(k, b.Size, b.Requested())
	} else {
		h.Ledger.Freed(k, b.Size, b.Requested())
	}
	h.freedAt = max(h.freedAt, at)
	if b.Size <= h.space.Policy.FastLimit && k == ledger.Small {
		h.fast.Push(id, b)
	} else if seg := h.segs[b.Seg]; seg.Stitched {
		h.unstitch(seg, id, b, at)
	} else {
		h.insertFreed(seg, id, b, at)
	}
}

// FreedAt returns the device's time at which the program gave the last of the free blocks back,
// or later. What the magazines hold becomes free by Flush.
func (h *Heap) FreedAt() uint64 { return h.freedAt }

// KeepSegment notes that a segment was reserved on purpose.
func (h *Heap) KeepSegment(seg *block.Segment) { h.keeps, h.mixed, seg.Kept = true, true, true }

// KeepRanges notes that size bytes of the address ranges of a kind were reserved
// on purpose.
func (h *Heap) KeepRanges(k ledger.Kind, size int64) {
	h.keeps, h.mixed, h.kept[k] = true, true, max(h.kept[k], size)
	for _, r := range h.ranges[k] {
		r.seg.Kept = true
	}
}

// KeepAtMost lowers what was reserved of the address ranges to so many bytes, and returns what is
// left of these.
func (h *Heap) KeepAtMost(bytes int64) int64 {
	for k := range h.kept {
		h.kept[k] = min(h.kept[k], bytes)
		bytes -= h.kept[k]
	}
	return bytes
}

// Unkeep ends what KeepSegment and KeepRanges began.
func (h *Heap) Unkeep() {
	h.kept = [2]int64{}
	for _, seg := range h.segs {
		if seg != nil {
			seg.Kept = false
		}
	}
}

// Kept returns the bytes that were reserved on purpose.
func (h *Heap) Kept() int64 {
	n := h.kept[ledger.Small] + h.kept[ledger.Large]
	if h.keeps {
		for _, seg := range h.segs {
			if seg != nil && seg.Kept && !seg.Virtual {
				n += seg.Size
			}
		}
	}
	return n
}

// Slots makes sure that the heap can make n blocks more.
func (h *Heap) Slots(n int) error {
	if err := h.slots.Ensure(n); err != nil {
		return errors.Join(errSlots, err)
	}
	return nil
}

var errSlots = errors.New("cupool: no more blocks")

// Held returns the bytes of memory that the heap holds.
func (h *Heap) Held() (n int64) {
	for _, seg := range h.segs {
		if seg != nil && !seg.Virtual && !seg.Stitched {
			n += seg.Size
		}
	}
	for _, ranges := range h.ranges {
		for _, r := range ranges {
			n += r.seg.Size - r.gaps
		}
	}
	return n
}

// Usage returns the bytes of live and pending blocks and those that the heap
// holds, without a look at each block. What its ledger counted of memory that came
// from or went to other heaps is in it.
func (h *Heap) Usage() (live, pending, held int64) {
	var homes [2]Homes
	h.AddHomes(&homes)
	for k := range homes {
		t := h.Ledger.Tallies(ledger.Kind(k))
		live += t[ledger.OutBytes].Now() - homes[k].CachedBytes
		pending += t[ledger.PendingBytes].Now()
	}
	return live, pending, h.Held()
}

// FreeBytes returns the bytes of the free set of a kind.
func (h *Heap) FreeBytes(k ledger.Kind) int64 { return h.free[k].Bytes() }

// Spare returns how many blocks are free or in the fast bins, and the bytes of the largest,
// without a look at each of them.
func (h *Heap) Spare() (blocks, largest int64) {
	blocks, largest = int64(h.fast.Len()), h.fast.Largest()
	for k := range h.free {
		blocks += int64(h.free[k].Len())
		if id := h.free[k].Largest(); id != 0 {
			largest = max(largest, h.space.Blocks.At(id).Size)
		}
	}
	return blocks, largest
}

// Each calls f for every block of the heap, by segment and address.
func (h *Heap) Each(f func(seg *block.Segment, id block.ID, b *block.Block)) {
	for _, seg := range h.segs {
		if seg != nil {
			seg.Each(&h.space.Blocks, func(id block.ID, b *block.Block) { f(seg, id, b) })
		}
	}
}

// InUse reports whether a block of the heap is out or pending. It looks at few blocks of
// a segment: free ones have no free neighbours.
func (h *Heap) InUse() bool {
	for _, seg := range h.segs {
		if seg == nil {
			continue
		}
		for id := seg.First; id != 0; {
			b := h.space.Blocks.At(id)
			if st := b.Word().State(); st != block.Free && st != block.Gap {
				return true
			}
			id = b.Next
		}
	}
	return false
}

// IsEmpty reports whether the heap holds no memory and no addresses.
func (h *Heap) IsEmpty() bool {
	return len(h.leaving) == 0 && !slices.ContainsFunc(h.segs, func(s *block.Segment) bool { return s != nil })
}

// Close ends an empty heap.
func (h *Heap) Close() {
	h.tellAsked()
	h.slots.Drain()
	h.Magazine.Drop()
	h.Ledger.Close()
}
