package heap

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool/device"
	"github.com/cupool/cupool/internal/block"
	"github.com/cupool/cupool/internal/budget"
	"github.com/cupool/cupool/internal/ledger"
	"github.com/cupool/cupool/internal/simdev"
	"github.com/cupool/cupool/internal/sizeclass"
	"github.com/cupool/cupool/internal/vmem"
)

const (
	kib  = 1 << 10
	mib  = 1 << 20
	unit = 2 * mib // the granularity of virtual memory
)

// policy is what most tests use.
var policy = Policy{SmallLimit: mib, FastLimit: 0, MinSplit: mib, MaxChunk: 32 * mib}

// rig is a pool of some heaps over a device without memory behind it, with
// virtual memory or segments.
type rig struct {
	t      *testing.T
	d      *device1
	space  *Space
	heaps  []*Heap
	budget *budget.Pool
	late   []block.ID // Pending blocks
	extra  int64      // bytes that are said to be of more, of the first heap

	told map[device.Ptr]int64 // what Space.Tell said is mapped
}

// tell notes what Space.Tell says: nothing is mapped where something is, or the other way.
func (r *rig) tell(_ uint32, c Change, at device.Ptr, size int64) {
	r.t.Helper()
	switch c {
	case Mapped:
		require.NotContains(r.t, r.told, at)
		r.told[at] = size
	case Unmapped:
		require.Equal(r.t, size, r.told[at])
		delete(r.told, at)
	case Stitched:
		require.NotContains(r.t, r.told, at)
	}
}

// device1 is a simulated device that can refuse large reservations.
type device1 struct {
	*simdev.Device
	most   int64    // bytes of addresses in one reservation; 0: any
	mapped []mapped // by address

	freedAt map[uintptr]uint64 // when memory of a handle was freed last
}

func (d *device1) AddressReserve(size int64) (device.Ptr, error) {
	if d.most > 0 && size > d.most {
		return 0, fmt.Errorf("%w: %d bytes of addresses", device.ErrOutOfMemory, size)
	}
	return d.Device.AddressReserve(size)
}

// newRig returns a rig of n heaps. Its device has 1 GiB.
func newRig(t *testing.T, n int, virtual bool, p Policy) *rig {
	t.Helper()
	const capacity = 1 << 30
	p.MinBlock = cmp.Or(p.MinBlock, sizeclass.Quantum)
	r := &rig{t: t, d: &device1{Device: simdev.New(simdev.Config{Capacity: capacity}), freedAt: map[uintptr]uint64{}}}
	r.budget = &budget.Pool{Device: &budget.Device{Limit: capacity}, Limit: capacity, Lock: budget.NewReclaimLock(1, nil)}
	r.space = &Space{Policy: p}
	if virtual {
		r.space.Memory = vmem.New(r.d, "sim", capacity, r.budget, func(err error) error { return err })
	}
	r.told = map[device.Ptr]int64{}
	r.space.Tell = r.tell
	r.space.Init()
	r.space.MapAddresses()
	for i := range n {
		h := &Heap{}
		h.Init(r.space, uint32(i), new(ledger.Guard))
		require.EqualValues(t, i, h.Index())
		r.heaps = append(r.heaps, h)
	}
	return r
}

// alloc returns a live block of a heap, with memory of the device where the heap
// has none.
func (r *rig) alloc(h *Heap, size int64) block.ID {
	r.t.Helper()
	id, err := r.try(h, size, Allow{SmallChunks: true})
	require.NoError(r.t, err)
	return id
}

// segment returns the bytes of the segment for a request.
func segment(rounded int64) int64 {
	if rounded <= mib {
		return 2 * mib
	}
	return max(20*mib, sizeclass.RoundTo(rounded, 2*mib))
}

func (r *rig) try(h *Heap, size int64, allow Allow) (block.ID, error) {
	rounded := sizeclass.RoundTo(size, r.space.Policy.MinBlock)
	misses := h.Missed(size, 0)
	if id, _ := h.Take(size, rounded, misses); id != 0 {
		return id, nil
	}
	k := r.space.Policy.KindOf(rounded)
	var id block.ID
	var b *block.Block
	var err error
	if r.space.Memory != nil {
		id, b, err = h.TakeVirtual(k, rounded, allow)
	} else if err = h.Slots(2); err == nil {
		var p device.Ptr
		if p, err = r.d.MemAlloc(segment(rounded)); err == nil {
			id, b = h.AddSegment(p, segment(rounded), k)
		}
	}
	if err != nil {
		return 0, err
	}
	id, _ = h.HandOut(size, rounded, id, b, misses)
	return id, nil
}

// free gives blocks back.
func (r *rig) free(ids ...block.ID) {
	for _, id := range ids {
		b := r.block(id)
		r.noteFreed(id)
		r.heaps[b.Owner()].Put(id, b)
	}
}

// pend gives blocks back that a stream still uses, and finish frees them, which nothing has
// used since.
func (r *rig) pend(ids ...block.ID) {
	for _, id := range ids {
		b := r.block(id)
		r.noteFreed(id)
		b.SetUses(1)
		r.heaps[b.Owner()].Pend(b)
		r.late = append(r.late, id)
	}
}

func (r *rig) finish(ids ...block.ID) {
	for _, id := range ids {
		b := r.block(id)
		b.SetUses(0)
		r.late = slices.DeleteFunc(r.late, func(l block.ID) bool { return l == id })
		r.heaps[b.Owner()].Put(id, b)
	}
}

func (r *rig) block(id block.ID) *block.Block { return r.space.Blocks.At(id) }

// at returns the small and the large block that the space knows at an address.
func (r *rig) at(addr uint64) []block.ID {
	return slices.DeleteFunc([]block.ID{r.space.At(ledger.Small, addr), r.space.At(ledger.Large, addr)}, func(id block.ID) bool { return id == 0 })
}

// addr returns the address of a block as an offset from the first address of the
// device.
func (r *rig) addr(id block.ID) int64 { return int64(r.block(id).Addr() - 1<<40) }

// layout prints the segments of a heap.
func (r *rig) layout(h *Heap) string {
	var parts []string
	for _, seg := range h.segs {
		if seg == nil {
			continue
		}
		name := "small"
		if seg.Large {
			name = "large"
		}
		if seg.Stitched {
			name = "stitched"
		}
		parts = append(parts, name+" "+seg.Layout(&r.space.Blocks))
	}
	return strings.Join(parts, ", ")
}

// check verifies the rules of all heaps and compares the books with what is in
// the segments.
func (r *rig) check() {
	r.t.Helper()
	var found [2]Census
	var ledgers []*ledger.Ledger
	for i, h := range r.heaps {
		pending := int64(0)
		if i == 0 {
			pending = r.extra
		}
		for _, id := range r.late {
			if b := r.block(id); r.heaps[b.Owner()] == h {
				pending += b.Size
			}
		}
		require.NoError(r.t, h.Check(pending))
		h.Count(&found)
		ledgers = append(ledgers, &h.Ledger)
	}
	counted := found[ledger.Small].Reserved + found[ledger.Large].Reserved
	if r.space.Memory != nil {
		counted = r.budget.Held()
	}
	require.NoError(r.t, r.space.Compare(r.space.Book.Sum(ledgers), &found, counted), r.layout(r.heaps[0]))
	backed := map[device.Ptr]int64{}
	for _, h := range r.heaps {
		for _, x := range slices.Concat(h.ranges[:]...) {
			for _, ch := range x.chunks {
				if ch.backed() {
					backed[x.at(ch.off)] = ch.size
				}
			}
		}
	}
	require.Equal(r.t, backed, r.told)
	require.NoError(r.t, r.d.Check())
}

// close gives everything back and finds nothing left on the device.
func (r *rig) close() {
	r.t.Helper()
	for _, h := range r.heaps {
		h.MergeFast()
		_, err := h.CloseRanges()
		require.NoError(r.t, err)
		idle := h.AppendIdle(nil)
		h.DetachSegments(idle)
		require.True(r.t, len(idle) == 0 || !h.IsEmpty(), "the device has not answered")
		for _, f := range idle {
			require.NoError(r.t, r.d.MemFree(device.Ptr(f.Seg.Base)))
		}
		h.Forget(idle, len(idle))
		require.True(r.t, h.IsEmpty(), r.layout(h))
	}
	r.check()
	var ledgers []*ledger.Ledger
	for _, h := range r.heaps {
		ledgers = append(ledgers, &h.Ledger)
	}
	sum := r.space.Book.Sum(ledgers)
	for _, h := range r.heaps {
		h.Close()
	}
	require.Equal(r.t, sum, r.space.Book.Past(), "the books go on counting it")
	if r.space.Memory != nil {
		require.NoError(r.t, r.space.Memory.Retry())
	}
	s := r.d.Stats()
	require.Zero(r.t, s.Allocations+s.Reservations+s.MemHandles+s.Mappings)
	require.Zero(r.t, s.UsedBytes)
	require.Zero(r.t, r.budget.Held())
	require.Len(r.t, r.space.Index.list, r.space.Index.gone, "an entry is left")
}
