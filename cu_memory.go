//go:build gpu

package cupool

import (
	"fmt"
	"sort"
	"sync"

	"github.com/cupool/cupool/internal/cudadrv"
	"github.com/cupool/cupool/internal/device"
)

// alignment of what MemAlloc returns. CUDA promises 256 for cuMemAlloc and
// gives 512 when the size is a multiple of it.
const cudaAlignment = 512

// MemAlloc implements Driver. It fails with ErrOutOfMemory and, for a size
// that is not positive, ErrInvalidRange.
func (d *cudaDriver) MemAlloc(size int64) (Ptr, error) {
	if err := d.usable(); err != nil {
		return 0, err
	}
	if size <= 0 || size > 1<<62 {
		return 0, fmt.Errorf("cupool: %s: MemAlloc: %w: size %d", d.label, device.ErrInvalidRange, size)
	}
	rounded := (size + cudaAlignment - 1) &^ (cudaAlignment - 1)
	kind := spanAllocated
	if d.kind == MemoryPinned {
		kind = spanPinned
		if err := pinnable(rounded); err != nil {
			return 0, err
		}
	}
	if err := d.takeManaged(rounded); err != nil {
		return 0, err
	}
	p, call, r := d.ctx.allocate(d.kind, rounded)
	if r != cudadrv.Success {
		d.managed.Add(-rounded)
		return 0, d.ctx.fail(call, r, fmt.Sprintf("%d bytes", rounded))
	}
	s := span{start: p, size: rounded, kind: kind, owner: d}
	if p%cudaAlignment != 0 {
		d.managed.Add(-rounded)
		d.ctx.giveBack(s)
		return 0, fmt.Errorf("cupool: %s: %s of %d bytes returned %v, which is not aligned to %d bytes", d.label, call, rounded, p, cudaAlignment)
	}
	d.ctx.memory.add(s)
	return p, nil
}

// takeManaged counts managed memory against the device's. CUDA would give
// out more than there is and page it in and out, at which a GPU can hang for
// minutes. Other kinds of memory are not counted: the driver refuses them by
// itself.
func (d *cudaDriver) takeManaged(size int64) error {
	now := d.managed.Add(size)
	if d.kind != MemoryManaged {
		return nil
	}
	_, total, err := d.MemInfo()
	if err == nil && now > total {
		err = fmt.Errorf("cupool: %s: cuMemAllocManaged of %d bytes, with %d of %d taken: %w", d.label, size, now-size, total, device.ErrOutOfMemory)
	}
	if err != nil {
		d.managed.Add(-size)
	}
	return err
}

func (c *cudaContext) allocate(k MemoryKind, size int64) (p Ptr, call string, r cudadrv.Result) {
	switch k {
	case MemoryManaged:
		p, r = c.memAllocManaged(size)
		return p, "cuMemAllocManaged", r
	case MemoryPinned:
		q, r := cudadrv.HostAlloc(c.handle, size)
		return Ptr(q), "cuMemHostAlloc", r
	default:
		p, r = c.memAlloc(size)
		return p, "cuMemAlloc", r
	}
}

// giveBack ends a span that was taken out of the book.
func (c *cudaContext) giveBack(s span) (call string, r cudadrv.Result) {
	switch s.kind {
	case spanReserved:
		return "cuMemAddressFree", cudadrv.AddressFree(c.handle, uintptr(s.start), s.size)
	case spanPinned:
		return "cuMemFreeHost", cudadrv.HostFree(c.handle, uintptr(s.start))
	default:
		return "cuMemFree", c.memFree(s.start)
	}
}

// MemFree implements Driver. It fails with ErrInvalidRange for an address
// that MemAlloc of this Driver did not return, or that was freed before.
func (d *cudaDriver) MemFree(p Ptr) error {
	kind := spanAllocated
	if d.kind == MemoryPinned {
		kind = spanPinned
	}
	return d.free("MemFree", p, kind)
}

// free takes the span out of the book first, so that of two calls with the
// same address one frees, and enters it again when the driver refuses.
func (d *cudaDriver) free(op string, p Ptr, kind spanKind) error {
	if err := d.usable(); err != nil {
		return err
	}
	s, ok := d.ctx.memory.take(p, kind, d)
	if !ok {
		return fmt.Errorf("cupool: %s: %s of %v: %w: no allocation of this device starts there", d.label, op, p, device.ErrInvalidRange)
	}
	call, r := d.ctx.giveBack(s)
	if r != cudadrv.Success {
		d.ctx.memory.add(s)
		return d.ctx.failRange(call, r, fmt.Sprintf("%d bytes at %v", s.size, p))
	}
	if op == "MemFree" {
		d.managed.Add(-s.size)
	}
	return nil
}

// MemInfo implements Driver. For managed memory, what MemAlloc gave out
// counts as taken, touched or not. For pinned memory it is the computer's: what may
// still be page-locked, and what there is.
func (d *cudaDriver) MemInfo() (free, total int64, err error) {
	if err := d.usable(); err != nil {
		return 0, 0, err
	}
	if d.kind == MemoryPinned {
		return pinnedMemInfo()
	}
	free, total, r := d.ctx.memInfo()
	if r != cudadrv.Success {
		return 0, 0, d.ctx.fail("cuMemGetInfo", r, "")
	}
	if d.kind == MemoryManaged { // which the driver counts when it is touched
		free = max(0, min(free, total-d.managed.Load()))
	}
	return free, total, nil
}

type spanKind uint8

const (
	spanAllocated spanKind = iota // device or managed memory
	spanPinned                    // page-locked host memory
	spanReserved                  // addresses of virtual memory
)

// A span is a range of addresses that a Driver has from CUDA.
type span struct {
	start  Ptr
	size   int64
	kind   spanKind
	owner  *cudaDriver
	mapped []mapping // spanReserved: by address; guarded by the book's lock
}

// A mapping is a handle at an address.
type mapping struct {
	start Ptr
	size  int64
}

// An addressBook has the spans of a context, by address. They do not overlap.
type addressBook struct {
	mu    sync.RWMutex
	spans []span
}

// after returns the index of the first span that starts after p.
func (b *addressBook) after(p Ptr) int {
	return sort.Search(len(b.spans), func(i int) bool { return b.spans[i].start > p })
}

// holding returns the span that p is in, or nil. The caller holds the lock.
func (b *addressBook) holding(p Ptr) *span {
	i := b.after(p)
	if i == 0 || int64(p-b.spans[i-1].start) >= b.spans[i-1].size {
		return nil
	}
	return &b.spans[i-1]
}

// find returns the bounds of the span that p is in.
func (b *addressBook) find(p Ptr) (start Ptr, size int64, ok bool) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	if s := b.holding(p); s != nil {
		return s.start, s.size, true
	}
	return 0, 0, false
}

func (b *addressBook) add(s span) {
	b.mu.Lock()
	defer b.mu.Unlock()
	i := b.after(s.start)
	b.spans = append(b.spans, span{})
	copy(b.spans[i+1:], b.spans[i:])
	b.spans[i] = s
}

// take removes the span of the Driver that starts at p.
func (b *addressBook) take(p Ptr, kind spanKind, owner *cudaDriver) (span, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	i := b.after(p) - 1
	if i < 0 || b.spans[i].start != p || b.spans[i].kind != kind || b.spans[i].owner != owner {
		return span{}, false
	}
	s := b.spans[i]
	b.spans = append(b.spans[:i], b.spans[i+1:]...)
	return s, true
}

func (b *addressBook) takeAll(owner *cudaDriver) (taken []span) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var kept []span
	for _, s := range b.spans {
		if s.owner == owner {
			taken = append(taken, s)
		} else {
			kept = append(kept, s)
		}
	}
	b.spans = kept
	return taken
}

// checkRange returns nil when the n bytes at p are inside one allocation or
// reservation that work in this context may use. Addresses that no Driver
// handed out are the program's own, and the driver is asked about them.
func (c *cudaContext) checkRange(p Ptr, n int64) error {
	start, size, ok := c.memory.find(p)
	if !ok {
		i, r := cudadrv.Pointer(c.handle, uintptr(p))
		switch {
		case r != cudadrv.Success:
			return c.fail("cuPointerGetAttributes", r, p.String())
		case !i.Known:
			return fmt.Errorf("cupool: %s: %w: %v is not memory that CUDA knows", c.name(), device.ErrInvalidRange, p)
		case !i.Host && !i.Managed && i.Device != c.device:
			return fmt.Errorf("cupool: %s: %w: %v is memory of cuda:%d", c.name(), ErrForeignPointer, p, i.Device)
		case i.Size == 0 || i.Start == 0: // the driver does not say, as of pools in the host's memory
			return nil
		}
		start, size = Ptr(i.Start), i.Size
	}
	if n < 0 || n > size-int64(p-start) {
		return fmt.Errorf("cupool: %s: %w: %d bytes at %v do not fit the %d bytes at %v", c.name(), device.ErrInvalidRange, n, p, size, start)
	}
	return nil
}
