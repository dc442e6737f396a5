package cupool

import (
	"fmt"
	"slices"

	"github.com/cupool/cupool/internal/block"
	"github.com/cupool/cupool/internal/sizeclass"
)

// nativeBooks know the blocks of a Native by address. What was freed stays in
// the list until its addresses are used otherwise or too much is gone: pools
// hand the same addresses out again and again, so a block is most often entered
// without moving others, and a second free is told from a foreign address.
type nativeBooks struct {
	id     uint32
	list   []*nativeBlock // by address, none overlap
	live   int            // of them
	gen    uint64         // counts blocks
	slots  uint32         // numbers given out
	free   []uint32       // those to be given out again
	spare  []*nativeBlock
	bytes  int64 // live, as requested
	peak   int64 // the most that was
	allocs int64
	frees  int64

	retries, ooms int64
}

// nativeBlock is memory that is or was live.
type nativeBlock struct {
	base  Ptr
	size  int64 // bytes as requested
	gen   uint64
	slot  uint32 // unlike those of all that are live
	live  bool
	stack uint32
	s     *Stream
	users []*Stream // others that were recorded
}

func (b *nativeBlock) end() Ptr { return b.base + Ptr(sizeclass.Round(b.size)) }

// search returns the place of the first block that ends after p.
func (k *nativeBooks) search(p Ptr) int {
	i, _ := slices.BinarySearchFunc(k.list, p, func(b *nativeBlock, p Ptr) int {
		if b.end() <= p {
			return -1
		}
		return 1
	})
	return i
}

// at returns the block that holds p, live or not, or nil.
func (k *nativeBooks) at(p Ptr) *nativeBlock {
	if i := k.search(p); i < len(k.list) && k.list[i].base <= p {
		return k.list[i]
	}
	return nil
}

func (k *nativeBooks) handle(b *nativeBlock) Block {
	return newBlock(b.base, b.size, b.gen, block.ID(b.slot), k.id)
}

// add enters memory that the driver has given. It fails when that cannot be.
func (k *nativeBooks) add(p Ptr, size int64, s *Stream) (*nativeBlock, error) {
	if p == 0 || uint64(p)%sizeclass.Quantum != 0 {
		return nil, fmt.Errorf("cupool: the driver's pool returned the address %v, which is no multiple of %d", p, sizeclass.Quantum)
	}
	b, err := k.place(p, size)
	if err != nil {
		return nil, err
	}
	k.gen++
	*b = nativeBlock{base: p, size: size, gen: k.gen, slot: k.takeSlot(), live: true, s: s, users: b.users[:0]}
	k.live++
	k.allocs++
	k.bytes += size
	k.peak = max(k.peak, k.bytes)
	return b, nil
}

// place makes room in the list for a block, in place of those that are gone.
func (k *nativeBooks) place(p Ptr, size int64) (*nativeBlock, error) {
	i := k.search(p)
	j := i
	for ; j < len(k.list) && k.list[j].base < p+Ptr(size); j++ {
		if o := k.list[j]; o.live {
			return nil, fmt.Errorf("cupool: the driver's pool returned %v, where a block of %d bytes at %v is live", p, o.size, o.base)
		}
	}
	if j > i { // most often the same memory
		k.spare = append(k.spare, k.list[i+1:j]...)
		k.list = slices.Delete(k.list, i+1, j)
		return k.list[i], nil
	}
	var b *nativeBlock
	if n := len(k.spare); n > 0 {
		b, k.spare = k.spare[n-1], k.spare[:n-1]
	} else {
		b = new(nativeBlock)
	}
	k.list = slices.Insert(k.list, i, b)
	return b, nil
}

func (k *nativeBooks) takeSlot() uint32 {
	if n := len(k.free); n > 0 {
		slot := k.free[n-1]
		k.free = k.free[:n-1]
		return slot
	}
	k.slots++ // 0 is no slot
	return k.slots
}

// drop notes that a block is not live any more. Its slot is free when the driver
// has taken the memory.
func (k *nativeBooks) drop(b *nativeBlock) {
	b.live = false
	k.live--
	k.frees++
	k.bytes -= b.size
	if gone := len(k.list) - k.live; gone > k.live+minGone {
		k.list = slices.DeleteFunc(k.list, func(b *nativeBlock) bool {
			if !b.live {
				k.spare = append(k.spare, b)
			}
			return !b.live
		})
	}
}

// minGone is how many blocks that are gone the list may always have.
const minGone = 1 << 10

// putBack is the opposite of drop, for a block that the driver did not take.
func (k *nativeBooks) putBack(old nativeBlock) {
	b, err := k.place(old.base, old.size)
	if err != nil {
		return // cannot be: the memory was not given back
	}
	*b = old
	k.live++
	k.frees--
	k.bytes += b.size
}

// takeLive empties the books and returns what was live, by address.
func (k *nativeBooks) takeLive() (live []nativeBlock) {
	for _, b := range k.list {
		if b.live {
			live = append(live, *b)
			b.live = false
		}
	}
	k.frees += int64(k.live)
	k.live, k.bytes = 0, 0
	return live
}

// findLocked returns the live block of a handle; else gone is the reason.
func (n *Native) findLocked(op string, h Block, gone error) (*nativeBlock, error) {
	if h.pool() != n.books.id {
		return nil, n.c.blockError(op, h, nil, ErrForeignPointer)
	}
	if n.closed || n.c.closed.Load() {
		return nil, n.c.blockError(op, h, nil, ErrClosed)
	}
	b := n.books.at(h.ptr)
	if b != nil && b.live && b.base == h.ptr && b.gen == h.gen {
		return b, nil
	}
	if b != nil && b.live && gone == ErrDoubleFree {
		gone = ErrStaleBlock
	}
	return nil, n.c.blockError(op, h, nil, gone)
}

// lookupLocked finds the live block at an address or, unless exact, around it.
func (n *Native) lookupLocked(op string, p Ptr, size int64, exact bool) (*nativeBlock, error) {
	e := &BlockError{Op: op, Ptr: p, Size: size}
	b := n.books.at(p)
	if b != nil {
		e.Stream = b.s.handle
	}
	switch {
	case n.closed || n.c.closed.Load():
		e.Err, e.Detail = ErrClosed, "the allocator is closed"
	case b == nil:
		e.Err, e.Detail = ErrForeignPointer, "no block of this allocator holds the address"
	case b.live && exact && b.base != p:
		e.Err, e.Detail = ErrInteriorPointer, fmt.Sprintf("it is %d bytes into the block at %v of %d bytes", p-b.base, b.base, b.size)
	case b.live:
		return b, nil
	case exact && b.base == p:
		e.Err, e.Detail = ErrDoubleFree, "no block is live there"
	case exact:
		e.Err, e.Detail = ErrForeignPointer, "it is inside memory of this allocator that is not live"
	default:
		e.Err, e.Detail = ErrUseAfterFree, "no block is live there"
	}
	return nil, e
}

// NativeStats is a snapshot of a Native. Sizes are in bytes. Used and Reserved
// are the driver's, and of the whole pool, whoever uses it.
type NativeStats struct {
	LiveBlocks, LiveBytes, PeakBytes int64 // as requested, by this allocator
	Allocations, Frees               int64
	Retries                          int64 // allocations that succeeded only after room was made
	OOMs                             int64 // allocations that failed for lack of memory

	Used, UsedHigh         int64 // in blocks
	Reserved, ReservedHigh int64 // held from the device
}

// Stats returns a snapshot. It fails with what the device says.
func (n *Native) Stats() (NativeStats, error) {
	n.mu.Lock()
	k := &n.books
	st := NativeStats{
		LiveBlocks: int64(k.live), LiveBytes: k.bytes, PeakBytes: k.peak,
		Allocations: k.allocs, Frees: k.frees, Retries: k.retries, OOMs: k.ooms,
	}
	n.mu.Unlock()
	for a, p := range map[NativePoolAttribute]*int64{
		PoolUsedCurrent: &st.Used, PoolUsedHigh: &st.UsedHigh, PoolReservedCurrent: &st.Reserved, PoolReservedHigh: &st.ReservedHigh,
	} {
		v, err := n.Attribute(a)
		if err != nil {
			return st, err
		}
		*p = int64(v)
	}
	return st, nil
}

// Attribute reads an attribute of the pool: the reuse policies, the release
// threshold, what is and was at most reserved and used. It fails with ErrClosed
// or what the device says.
func (n *Native) Attribute(a NativePoolAttribute) (uint64, error) {
	if err := n.usable("attribute"); err != nil {
		return 0, err
	}
	v, err := n.d.NativePoolAttribute(n.pool, a)
	return v, n.c.driverError(err)
}

// SetAttribute sets an attribute of the pool. It fails with ErrClosed or what
// the device says, which is an error for those that can only be read.
func (n *Native) SetAttribute(a NativePoolAttribute, v uint64) error {
	if err := n.usable("set attribute"); err != nil {
		return err
	}
	return n.c.driverError(n.d.SetNativePoolAttribute(n.pool, a, v))
}

// ResetPeak sets the high marks, the driver's and the allocator's own, to what
// there is.
func (n *Native) ResetPeak() error {
	for _, a := range []NativePoolAttribute{PoolReservedHigh, PoolUsedHigh} {
		if err := n.SetAttribute(a, 0); err != nil {
			return err
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.books.peak = n.books.bytes
	return nil
}

// TrimTo gives memory back to the device until keep bytes are reserved, or what
// is in use. What was freed counts as in use until the work before the free is
// done. It fails with ErrInvalidSize, ErrClosed or what the device says.
func (n *Native) TrimTo(keep int64) error {
	if keep < 0 {
		return &BlockError{Op: "trim", Size: keep, Err: ErrInvalidSize}
	}
	if err := n.usable("trim"); err != nil {
		return err
	}
	return n.c.driverError(n.d.TrimNativePool(n.pool, keep))
}

// Access returns what a device may do with the pool's memory. It fails with
// ErrClosed or what the device says.
func (n *Native) Access(ordinal int) (Access, error) {
	if err := n.usable("access"); err != nil {
		return NoAccess, err
	}
	a, err := n.d.NativePoolAccess(n.pool, ordinal)
	return a, n.c.driverError(err)
}

// SetAccess lets another device use the pool's memory, or no longer. It fails
// with ErrClosed or what the device says, as where the devices are not peers.
func (n *Native) SetAccess(ordinal int, a Access) error {
	if err := n.usable("set access"); err != nil {
		return err
	}
	return n.c.driverError(n.d.SetNativePoolAccess(n.pool, ordinal, a))
}
