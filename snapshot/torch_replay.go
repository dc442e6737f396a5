package snapshot

import (
	"cmp"
	"slices"
	"time"
)

// PyTorch's viewer shows the memory after any event by going back from the
// snapshot, one event after the other. It fails where a block lies in no segment, or
// something goes that is not there. A history that holds samples, or the last
// events only, has such places. So the same walk is done here first.

// replay is what there was at a point of the history.
type replay struct {
	segments []*replayed  // by address
	events   []torchEvent // backwards
}

// replayed is a segment with the blocks that the program or a stream uses.
type replayed struct {
	start, end Ptr
	stream     StreamHandle
	merges     bool  // with neighbours, as virtual memory does
	blocks     *tree // their allocations
}

// replayable returns the events of a device that the viewer can follow.
func (t *torch) replayable(device int) []torchEvent {
	var r replay
	first, _ := slices.BinarySearchFunc(t.segments, device, func(s torchSegment, device int) int { return cmp.Compare(s.device, device) })
	for _, s := range t.segments[first:] {
		if s.device != device {
			break
		}
		seg := &replayed{s.Address, s.Address + Ptr(s.Size), s.Stream, s.Virtual, nil}
		for _, b := range s.Blocks {
			if b.active() {
				seg.blocks = join(seg.blocks, leaf(&torchEvent{Event{Kind: Alloc, Address: b.Address, Size: b.Requested, Stream: s.Stream, Label: b.Label, Stack: b.Stack, Weight: 1}, s.pool}))
			}
		}
		r.segments = append(r.segments, seg)
	}
	for _, e := range slices.Backward(t.traces[device]) {
		if r.undo(e) {
			r.events = append(r.events, e)
		}
	}
	slices.Reverse(r.events)
	return r.events
}

// find returns the segment that an address is in, or the place of a new one.
func (r *replay) find(p Ptr) (i int, seg *replayed) {
	i, ok := slices.BinarySearchFunc(r.segments, p, func(s *replayed, p Ptr) int { return cmp.Compare(s.start, p) })
	if !ok && i > 0 && p < r.segments[i-1].end {
		i, ok = i-1, true
	}
	if ok {
		seg = r.segments[i]
	}
	return i, seg
}

// undo goes back over an event, and says whether the viewer can.
func (r *replay) undo(e torchEvent) bool {
	_, seg := r.find(e.Address)
	switch e.Kind {
	case Alloc:
		return seg != nil && seg.take(e.Address, e.Address) != nil
	case FreeRequested:
		if seg == nil {
			return false
		}
		b := seg.blocks.find(e.Address)
		return b != nil && b.Address == e.Address
	case FreeCompleted:
		if seg == nil || e.Address+Ptr(e.Size) > seg.end {
			return false
		}
		r.allocate(seg, e.Address, e.Address+Ptr(e.Size), e.Time)
		was := e
		was.Kind = Alloc
		below, above := seg.blocks.cut(e.Address, false)
		seg.blocks = join(join(below, leaf(&was)), above)
		return true
	case SegmentAlloc, SegmentMap:
		return seg != nil && r.unmap(seg, e)
	case SegmentFree, SegmentUnmap:
		return r.remap(e)
	}
	return true
}

// take takes the blocks away that begin between two addresses, both included.
func (s *replayed) take(first, last Ptr) *tree {
	below, rest := s.blocks.cut(first, false)
	taken, above := rest.cut(last, true)
	s.blocks = join(below, above)
	return taken
}

// unmap takes a segment, or a part of one, away.
func (r *replay) unmap(seg *replayed, e torchEvent) bool {
	end := e.Address + Ptr(e.Size)
	if end > seg.end || e.Kind == SegmentAlloc && (seg.start != e.Address || seg.end != end) {
		return false
	}
	r.allocate(seg, e.Address, end, e.Time)
	i, _ := r.find(seg.start)
	before, after := *seg, *seg
	before.end, after.start = e.Address, end
	before.blocks, after.blocks = seg.blocks.cut(end, false)
	var left []*replayed
	for _, s := range []*replayed{&before, &after} {
		if s.start < s.end {
			left = append(left, s)
		}
	}
	r.segments = slices.Replace(r.segments, i, i+1, left...)
	return true
}

// allocate puts in the allocations of the blocks in a range that comes, or was
// something else before. They were not recorded.
func (r *replay) allocate(seg *replayed, start, end Ptr, at time.Time) {
	first := start
	if b := seg.blocks.find(start); b != nil && b.ends() > start {
		first = b.Address
	}
	seg.take(first, max(end, start+1)-1).backward(func(b *torchEvent) {
		b.Time = at
		r.events = append(r.events, *b)
	})
}

func (e *torchEvent) ends() Ptr { return e.Address + Ptr(max(e.Size, 1)) }

// remap adds a segment, or a part of one.
func (r *replay) remap(e torchEvent) bool {
	n := &replayed{e.Address, e.Address + Ptr(e.Size), e.Stream, e.Kind == SegmentUnmap, nil}
	i, seg := r.find(n.start)
	if seg != nil || i < len(r.segments) && r.segments[i].start < n.end {
		return false
	}
	r.segments = slices.Insert(r.segments, i, n)
	if n.merges && i+1 < len(r.segments) {
		r.merge(i)
	}
	if n.merges && i > 0 {
		r.merge(i - 1)
	}
	return true
}

// merge joins a segment and the next one if the viewer does so.
func (r *replay) merge(i int) {
	a, b := r.segments[i], r.segments[i+1]
	if a.end != b.start || a.stream != b.stream {
		return
	}
	a.end = b.end
	a.blocks = join(a.blocks, b.blocks)
	r.segments = slices.Delete(r.segments, i+1, i+2)
}
