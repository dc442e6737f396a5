package cupool

import (
	"context"
	"errors"
	"fmt"
	"math"
	"unsafe"

	"github.com/cupool/cupool/internal/block"
	"github.com/cupool/cupool/internal/heap"
	"github.com/cupool/cupool/internal/ledger"
	"github.com/cupool/cupool/internal/poolaccess"
	"github.com/cupool/cupool/snapshot"
)

// access is a pool as other packages of the module see it.
type access struct{ c *Pool }

func init() {
	poolaccess.Of = func(pool any) poolaccess.Access { return access{pool.(*Pool)} }
}

func (a access) DriverError(err error) error       { return a.c.dev.failed(err) }
func (a access) Reclaim(need int64) (int64, error) { return a.c.reclaimAll(need) }
func (a access) Cut(block any) error               { return a.c.reclaim.cutLast(block.(Block)) }

func (a access) Snapshot() snapshot.Snapshot { return a.c.ownSnapshot() }

func (a access) Events(after uint64) []snapshot.Event {
	return a.c.dev.history.Copy(after, math.MaxUint64).EventsOf(a.c.id)
}

func (a access) Home(p Ptr) (line unsafe.Pointer, owner uint32) {
	a.c.heaps.mapAddresses()
	for _, k := range [...]ledger.Kind{small, large} {
		id := a.c.space.At(k, uint64(p))
		if id == 0 {
			continue
		}
		if line, owner, ok := a.c.space.Blocks.At(id).HomeAt(uint64(p)); ok {
			return line, owner
		}
	}
	return nil, 0
}

func (a access) At(p Ptr) (at poolaccess.Place, ok bool) {
	of := a.c.dev.holder(p)
	if of == nil {
		return at, false
	}
	h, seg := of.heaps.lockSegment(p)
	if h == nil {
		return at, false
	}
	defer h.mu.Unlock()
	stretch := poolaccess.Place{Pool: of, Virtual: seg.Virtual || seg.Stitched}
	seg.Each(&of.space.Blocks, func(id block.ID, b *block.Block) {
		w := b.Word()
		if st := w.State(); st == block.Gap || st == block.Part {
			stretch.BaseSize = 0
			return
		}
		if stretch.BaseSize == 0 {
			stretch.Base = Ptr(b.Addr())
		}
		stretch.BaseSize += b.Size
		switch {
		case ok && at.Base == stretch.Base:
			at.BaseSize = stretch.BaseSize
		case uint64(p)-b.Addr() < uint64(b.Size):
			at, ok = stretch, true
			at.Address, at.Size, at.Stream, at.State = Ptr(b.Addr()), b.Size, h.streamOfLocked(id).handle, stateNames[w.State()]
			if w.State() == block.Live || w.State() == block.Pending {
				at.Requested = b.Requested()
			}
		}
	})
	return at, ok
}

func (a access) AllocAt(p Ptr, size, requested int64, stream any) error {
	c, s := a.c, stream.(*Stream)
	if s == nil {
		s = c.dev.def
	}
	fail := func(reason error, detail string) error {
		return &BlockError{Op: "allocation at", Ptr: p, Size: size, Stream: s.handle, Err: reason, Detail: detail}
	}
	switch unit := c.space.Policy.MinBlock; {
	case size <= 0 || size%unit != 0:
		return fail(ErrInvalidSize, fmt.Sprintf("a block has a multiple of %d bytes", unit))
	case requested <= 0 || requested > size:
		return fail(ErrInvalidSize, fmt.Sprintf("%d bytes of it cannot have been requested", requested))
	case c.sanitizer != nil:
		return fail(ErrNotSupported, "blocks of a pool with Config.Sanitize have room beside them")
	}
	if h := c.heaps.of(s); h != nil {
		h.locked(func(h *streamHeap) { h.Flush() }) // segments may go with that
	}
	h, seg := c.heaps.lockSegment(p)
	if h == nil {
		h = c.heaps.lockStitched(p)
	}
	switch {
	case h == nil:
		return fail(ErrForeignPointer, "no segment of the pool holds the address")
	case h.stream != s:
		h.mu.Unlock()
		return fail(ErrForeignStream, fmt.Sprintf("the memory is of %v", h.stream.handle))
	}
	defer h.mu.Unlock()
	if err := h.usableLocked(); err != nil {
		return err
	}
	id, b := h.TakeAt(seg, uint64(p), size, requested)
	if id == 0 {
		return fail(ErrInvalidRange, "not all of it is one free block that may be cut there")
	}
	_, err := h.handleLocked(context.Background(), id, b)
	return err
}

func (a access) ForgetStream(h StreamHandle) (err error) {
	for _, s := range a.c.dev.streams.All() {
		if s.adopted && s.handle == h && !s.Closed() {
			if e := s.Close(); !errors.Is(e, ErrClosed) {
				err = errors.Join(err, e)
			}
		}
	}
	return err
}

func (a access) SetLimit(bytes, memory, limit int64, fraction float64) {
	d := a.c.dev
	d.mu.Lock() // so that no pool joins with a threshold from before
	defer d.mu.Unlock()
	d.budget.SetCeiling(bytes)
	for set := false; !set; {
		before := a.c.tuned.Load()
		cfg := *before
		cfg.Limit, cfg.Fraction = limit, fraction
		set = a.c.tuned.CompareAndSwap(before, &cfg)
	}
	for _, c := range d.open() {
		part, most := c.tuned.Load().GarbageCollectionThreshold, c.budget.Bound()
		if part == 0 {
			continue
		}
		if most == math.MaxInt64 {
			most = memory
		}
		_, unlock := c.heaps.lockAll()
		c.collectFrom(partOf(most, part))
		unlock()
	}
}

func (a access) SetFlags(isolated, useOnOOM, noSplit bool) bool {
	c := a.c
	heaps, unlock := c.heaps.lockAll()
	defer unlock()
	p := &c.space.Policy
	if noSplit && !p.NoSplit {
		if c.memory != nil {
			return false
		}
		for _, h := range heaps { // what lies in the fast bins and magazines is cut already
			h.UnhomeAll()
		}
		p.NoSplit, p.SharedSegment = true, 0
	}
	c.isolated.Store(isolated)
	c.lends.Store(useOnOOM)
	return true
}

func (a access) Flush() { a.c.heaps.flush() }

func (a access) Resets() uint64 { return a.c.resets.Load() }

func (a access) Shape() (shape [2]poolaccess.Shape) {
	heaps, unlock := a.c.heaps.lockAll()
	defer unlock()
	for _, h := range heaps {
		h.AddShape((*[2]heap.Shape)(&shape))
	}
	return shape
}
