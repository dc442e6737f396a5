package cupool

import (
	"context"
	"fmt"
	"runtime"

	"github.com/cupool/cupool/internal/block"
	"github.com/cupool/cupool/internal/heap"
	"github.com/cupool/cupool/internal/history"
	"github.com/cupool/cupool/internal/magazine"
	"github.com/cupool/cupool/internal/origins"
	"github.com/cupool/cupool/snapshot"
)

// History says what an allocator and its private pools record of what they do, as
// events with sizes, streams, times, labels and Go stacks (package snapshot): every
// segment, mapping, trim, snapshot and refused request, and samples of the
// allocations and frees. The zero value is 65,536 events and a sample every 512 KiB.
//
// Samples are drawn as those of Go's heap profile: a block of n bytes is one with a
// probability of 1-exp(-n/SampleBytes), and stands for as many as the inverse of that,
// its Weight. There are some 2,000 a second at most; where there would be more,
// SampleBytes doubles for a while, and weights with it. So a program that does
// nothing but allocate and free what was cached loses less than 5 % of its speed; where
// the lock-free path serves half, some 15 %. A sampled block leaves the lock-free path
// until it is freed.
type History struct {
	Events      int   // that are kept, the last ones, at about 100 bytes each. 0: 65,536; at most 16,777,216
	SampleBytes int64 // mean bytes that are allocated from one sample to the next. 0: 512 KiB. 1: every allocation and free is recorded, at 2 to 3 microseconds for both, and the lock-free path is off
}

// completed returns a copy without zero fields.
func (cfg *History) completed() (*History, error) {
	if cfg == nil {
		return nil, nil
	}
	set, err := history.Settings(*cfg).Completed()
	return (*History)(&set), err
}

// StartHistory begins to record what the allocator and its private pools do, or
// begins anew: events that were recorded before are dropped, and numbers of events go
// on. It fails with a *ConfigError or ErrClosed. Safe from several goroutines.
func (c *Pool) StartHistory(cfg History) error {
	if err := c.made("start history"); err != nil {
		return err
	}
	set, err := cfg.completed()
	if err != nil {
		return err
	}
	if c.closed.Load() {
		return fmt.Errorf("cupool: start history: %w", ErrClosed)
	}
	c.dev.history.Start(history.Settings(*set))
	c.dev.logger.Info("history started", "events", set.Events, "sample_bytes", set.SampleBytes)
	c.dev.unhomeAll() // a block that has its place in a magazine from before is no sample
	return nil
}

// StopHistory ends what StartHistory or Config.History began. A Snapshot still has what was
// recorded, and sampled blocks keep their stacks. Safe from several goroutines.
func (c *Pool) StopHistory() {
	if c.isNone() {
		return
	}
	if c.dev.history.Stop() {
		c.dev.logger.Info("history stopped")
		c.dev.unhomeAll()
	}
}

// unhomeAll takes all blocks out of the magazines of all pools.
func (d *deviceState) unhomeAll() {
	for _, c := range d.open() {
		c.heaps.each(func(h *streamHeap) {
			h.UnhomeAll()
			h.checkLocked()
		})
	}
}

// stay says how long a block stays in the magazines: until it is to be a sample.
func (d *deviceState) stay(size int64) (s block.Stay, ok bool) {
	s.Takes, s.Note, ok = d.history.Draw(size)
	return s, ok
}

// stack returns the stack of the caller without so many frames at its top, or none where stacks
// of Go say nothing about the program.
func (d *deviceState) stack(skip int) (s origins.Stack) {
	if !d.words.NoStacks {
		runtime.Callers(skip+2, s[:])
	}
	return s
}

// note records an event that is no allocation or free.
func (c *pool) note(k snapshot.Kind, s StreamHandle, p Ptr, size int64) {
	if c.dev.history.On() {
		stack := c.dev.stack(1)
		c.dev.history.Add(history.Event{Kind: k, Address: uint64(p), Size: size, Stream: s, Pool: c.name, ID: c.id, Weight: 1, Stack: &stack})
	}
}

var changes = [...]snapshot.Kind{heap.Mapped: snapshot.SegmentMap, heap.Unmapped: snapshot.SegmentUnmap, heap.Stitched: snapshot.Stitch}

// noteChange records a change of virtual memory.
func (t *heapTable) noteChange(owner uint32, k heap.Change, at Ptr, size int64) {
	if h := t.at(owner); h != nil {
		t.note(changes[k], h.stream.handle, at, size)
	}
}

// noteBlock records an event of a block, unless the weight is 0.
func (h *streamHeap) noteBlock(k snapshot.Kind, id block.ID, b *block.Block, weight float64, label string, stack *origins.Stack) {
	if weight > 0 {
		h.c.dev.history.Add(history.Event{
			Kind: k, Address: b.Addr(), Size: b.Requested(), Stream: h.streamOfLocked(id).handle, Pool: h.c.name, ID: h.c.id, Label: label, Weight: weight, Stack: stack,
		})
	}
}

// noteAllocLocked gives a block that goes out its label and, where it is a sample
// or a sanitizer looks at it, its stack.
func (h *streamHeap) noteAllocLocked(ctx context.Context, id block.ID, b *block.Block, weight float64, homed bool) {
	s := h.c.sanitizer
	stacked := weight > 0 || s != nil && s.Delays()
	var name *string // nil: no label
	if ctx != nil {
		name, _ = ctx.Value(labelKey{}).(*string)
	}
	if !stacked && name == nil {
		return
	}
	homed = homed || b.Word().Has(block.Homed)
	h.Unhome(id, b) // so that its free is seen
	var stack origins.Stack
	if stacked {
		stack = h.c.dev.stack(3)
		b.SetOrigin(h.c.stacks.Add(stack, weight, homed && name == nil))
	}
	label := ""
	if name != nil {
		label = *name
		h.NoHomes() // a home is of no use to such blocks
		b.SetOrigin(h.c.stacks.SetLabel(b.Origin(), label))
		h.c.labels.add(label, 1, b.Requested())
	}
	h.noteBlock(snapshot.Alloc, id, b, weight, label, &stack)
}

// takeEndedLocked serves a request by a block of the magazines that is to be a
// sample.
func (h *streamHeap) takeEndedLocked(ctx context.Context, size int64, why magazine.Miss) (out Block, ok bool, err error) {
	id, b, note := h.TakeEnded(size, why)
	if id == 0 {
		return Block{}, false, nil
	}
	out, err = h.handOutLocked(ctx, id, b, h.c.dev.history.Drawn(size, note), true)
	return out, true, err
}

// watched reports whether the frees of a block are noted.
func (h *streamHeap) watched(b *block.Block) bool { return b.Origin() != 0 || h.c.dev.history.All() }

// noteFreeLocked notes that the program frees a block that is watched.
func (h *streamHeap) noteFreeLocked(id block.ID, b *block.Block) {
	log, origin := &h.c.dev.history, b.Origin()
	o := h.c.stacks.At(origin)
	weight := log.Freed(o.Weight)
	if weight == 0 && h.quarantine == nil {
		return
	}
	stack := h.c.dev.stack(1)
	if origin != 0 && h.quarantine != nil {
		h.c.stacks.Freed(origin, stack)
	}
	h.noteBlock(snapshot.FreeRequested, id, b, weight, o.Label, &stack)
}

// forgetLocked forgets the origin of a watched block that nothing uses any more, and reports
// whether it may have its place in the magazines back.
func (h *streamHeap) forgetLocked(id block.ID, b *block.Block) (rehome bool) {
	log, origin := &h.c.dev.history, b.Origin()
	o := h.c.stacks.At(origin)
	h.noteBlock(snapshot.FreeCompleted, id, b, log.Freed(o.Weight), o.Label, nil)
	if origin != 0 {
		if o.Labeled {
			h.c.labels.take(o.Label, b.Requested())
		}
		h.c.stacks.Drop(origin)
		b.SetOrigin(0)
	}
	return o.Homed && !h.unusable()
}
