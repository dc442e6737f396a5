package native

import (
	"fmt"
	"slices"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/cuda"
	"github.com/cupool/cupool/internal/blockerr"
	"github.com/cupool/cupool/internal/poolaccess"
	"github.com/cupool/cupool/internal/sizeclass"
)

// books know the blocks of an Allocator by address. A block that was freed stays
// in the list until other blocks use its addresses, or until the list has too many
// freed blocks. Pools hand the same addresses out again and again, so most blocks
// are entered without moving others, and a second free is told from a foreign
// address.
type books struct {
	mint   cupool.Mint
	list   []*entry // by address; none overlap
	live   int      // of them
	gen    uint64   // counts blocks
	bytes  int64    // live, as requested
	peak   int64    // the most that bytes was
	allocs int64
	frees  int64

	retries, ooms int64
}

// entry is memory that is or was live.
type entry struct {
	base  cupool.Ptr
	size  int64 // bytes as requested
	gen   uint64
	live  bool
	stack *[16]uintptr // where it was allocated; nil: not recorded
	s     *cupool.Stream
	users []*cupool.Stream // the other streams that were recorded
}

func (b *entry) end() cupool.Ptr { return b.base + cupool.Ptr(sizeclass.Round(b.size)) }

// search returns the place of the first block that ends after p.
func (k *books) search(p cupool.Ptr) int {
	i, _ := slices.BinarySearchFunc(k.list, p, func(b *entry, p cupool.Ptr) int {
		if b.end() <= p {
			return -1
		}
		return 1
	})
	return i
}

// at returns the block that holds p, live or not, or nil.
func (k *books) at(p cupool.Ptr) *entry {
	if i := k.search(p); i < len(k.list) && k.list[i].base <= p {
		return k.list[i]
	}
	return nil
}

func (k *books) handle(b *entry) cupool.Block {
	return k.mint.Block(b.base, b.size, b.gen, 0)
}

// add enters memory that the driver has given. It fails for an address that is no
// multiple of the quantum, and for memory that overlaps a live block.
func (k *books) add(p cupool.Ptr, size int64, s *cupool.Stream) (*entry, error) {
	if p == 0 || uint64(p)%sizeclass.Quantum != 0 {
		return nil, fmt.Errorf("cupool: the driver's pool returned the address %v, which is no multiple of %d", p, sizeclass.Quantum)
	}
	b, err := k.place(p, size)
	if err != nil {
		return nil, err
	}
	k.gen++
	*b = entry{base: p, size: size, gen: k.gen, live: true, s: s}
	k.live++
	k.allocs++
	k.bytes += size
	k.peak = max(k.peak, k.bytes)
	return b, nil
}

// place makes room in the list for a block, in place of freed blocks.
func (k *books) place(p cupool.Ptr, size int64) (*entry, error) {
	i := k.search(p)
	j := i
	for ; j < len(k.list) && k.list[j].base < p+cupool.Ptr(size); j++ {
		if o := k.list[j]; o.live {
			return nil, fmt.Errorf("cupool: the driver's pool returned %v, where a block of %d bytes at %v is live", p, o.size, o.base)
		}
	}
	if j == i {
		k.list = slices.Insert(k.list, i, new(entry))
		return k.list[i], nil
	}
	k.list = slices.Delete(k.list, i+1, j)
	return k.list[i], nil // most often the same memory
}

// drop notes that a block is not live any more.
func (k *books) drop(b *entry) {
	b.live = false
	k.live--
	k.frees++
	k.bytes -= b.size
	if gone := len(k.list) - k.live; gone > k.live+minGone {
		k.list = slices.DeleteFunc(k.list, func(b *entry) bool { return !b.live })
	}
}

// minGone is the number of freed blocks that the list may always have.
const minGone = 1 << 10

// putBack is the opposite of drop, for a block that the driver did not take.
func (k *books) putBack(old entry) {
	b, err := k.place(old.base, old.size)
	if err != nil {
		return // cannot be: the memory was not given back
	}
	*b = old
	k.live++
	k.frees--
	k.bytes += b.size
}

// takeLive returns the blocks that were live, by address. The books are over then.
func (k *books) takeLive() (live []entry) {
	for _, b := range k.list {
		if b.live {
			live = append(live, *b)
		}
	}
	return live
}

// findLocked returns the live block of a handle. For a block that was freed it
// fails with gone.
func (n *Allocator) findLocked(op string, h cupool.Block, gone error) (*entry, error) {
	_, gen, ok := n.books.mint.Open(h)
	if !ok {
		return nil, blockerr.Of(op, h, nil, cupool.ErrForeignPointer)
	}
	if n.closed || isClosed(n.c) {
		return nil, blockerr.Of(op, h, nil, cupool.ErrClosed)
	}
	b := n.books.at(h.Ptr())
	if b != nil && b.live && b.base == h.Ptr() && b.gen == gen {
		return b, nil
	}
	return nil, blockerr.Of(op, h, nil, blockerr.Gone(gone, b != nil && b.live))
}

// atLocked returns the block that holds an address, or nil, and what errors say of it.
func (n *Allocator) atLocked(p cupool.Ptr) (*entry, blockerr.At) {
	at := blockerr.At{Ptr: p, Closed: n.closed || isClosed(n.c)}
	b := n.books.at(p)
	if b == nil {
		return nil, at
	}
	at.Stream, at.Ours, at.Began = b.s, true, b.base == p
	if b.live {
		at.Live = n.books.handle(b)
	}
	return b, at
}

// Stats is a snapshot of an Allocator. Sizes are in bytes. Used and Reserved are
// the driver's figures for the whole pool, which other libraries and processes may
// use, too.
type Stats struct {
	LiveBlocks, LiveBytes, PeakBytes int64 // as requested, by this allocator
	Allocations, Frees               int64
	Retries                          int64 // allocations that succeeded only after room was made
	OOMs                             int64 // allocations that failed for lack of memory

	Used, UsedHigh         int64 // in blocks
	Reserved, ReservedHigh int64 // held from the device
}

// Stats returns a snapshot. It fails with ErrClosed or the device's error.
func (n *Allocator) Stats() (Stats, error) {
	if err := n.made("statistics"); err != nil {
		return Stats{}, err
	}
	n.mu.Lock()
	k := &n.books
	st := Stats{
		LiveBlocks: int64(k.live), LiveBytes: k.bytes, PeakBytes: k.peak,
		Allocations: k.allocs, Frees: k.frees, Retries: k.retries, OOMs: k.ooms,
	}
	n.mu.Unlock()
	for a, p := range map[cuda.NativePoolAttribute]*int64{
		cuda.PoolUsedCurrent: &st.Used, cuda.PoolUsedHigh: &st.UsedHigh, cuda.PoolReservedCurrent: &st.Reserved, cuda.PoolReservedHigh: &st.ReservedHigh,
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
// threshold, the bytes that are reserved and used, and the most that were. It
// fails with ErrClosed or the device's error.
func (n *Allocator) Attribute(a cuda.NativePoolAttribute) (v uint64, err error) {
	if err := n.begin("attribute"); err != nil {
		return 0, err
	}
	defer n.end(&err)
	v, err = n.d.NativePoolAttribute(n.pool, a)
	return v, poolaccess.Of(n.c).DriverError(err)
}

// SetAttribute sets an attribute of the pool. It fails with ErrClosed or the
// device's error, as for an attribute that can only be read.
func (n *Allocator) SetAttribute(a cuda.NativePoolAttribute, v uint64) (err error) {
	if err := n.begin("set attribute"); err != nil {
		return err
	}
	defer n.end(&err)
	return poolaccess.Of(n.c).DriverError(n.d.SetNativePoolAttribute(n.pool, a, v))
}

// ResetPeak sets the high marks, the driver's and the allocator's own, to the
// current values. It fails with ErrClosed or the device's error.
func (n *Allocator) ResetPeak() error {
	for _, a := range []cuda.NativePoolAttribute{cuda.PoolReservedHigh, cuda.PoolUsedHigh} {
		if err := n.SetAttribute(a, 0); err != nil {
			return err
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.books.peak = n.books.bytes
	return nil
}

// TrimTo gives memory back to the device until keep bytes are reserved, or the
// bytes in use if these are more. Freed memory counts as in use until the work
// before the free is done. TrimTo fails with ErrInvalidSize, ErrClosed or the
// device's error.
func (n *Allocator) TrimTo(keep int64) (err error) {
	if err := n.begin("trim"); err != nil {
		return err
	}
	defer n.end(&err)
	if keep < 0 {
		return &cupool.BlockError{Op: "trim", Size: -1, Err: cupool.ErrInvalidSize, Detail: fmt.Sprintf("%d bytes cannot stay", keep)}
	}
	return poolaccess.Of(n.c).DriverError(n.d.TrimNativePool(n.pool, keep))
}

// Access returns the access that a device has to the pool's memory. It fails with
// ErrClosed or the device's error.
func (n *Allocator) Access(ordinal int) (a cuda.Access, err error) {
	if err := n.begin("access"); err != nil {
		return cuda.NoAccess, err
	}
	defer n.end(&err)
	a, err = n.d.NativePoolAccess(n.pool, ordinal)
	return a, poolaccess.Of(n.c).DriverError(err)
}

// SetAccess sets the access that another device has to the pool's memory. It fails
// with ErrClosed or the device's error, as for devices that are not peers.
func (n *Allocator) SetAccess(ordinal int, a cuda.Access) (err error) {
	if err := n.begin("set access"); err != nil {
		return err
	}
	defer n.end(&err)
	return poolaccess.Of(n.c).DriverError(n.d.SetNativePoolAccess(n.pool, ordinal, a))
}
