package replay

import (
	"fmt"
	"slices"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/trace"
	"github.com/cupool/cupool/snapshot"
)

// Explanation says where the memory is that is reserved and not requested, when
// reserved memory reaches its peak: of the events at which it grew to within a
// hundredth of the peak, at the one with the most requested. What is free then did
// not serve that event's request. The last event alone says less: often a small
// block adds a handle when little is requested. A plan holds its memory from the
// start: for it, it is the event at which the trace requests most.
type Explanation struct {
	Event     int    `json:"event"` // from 1; 0 is the start
	Asked     int64  `json:"asked_bytes"`
	Stream    int64  `json:"stream"` // that asked, by its number in the trace
	Reserved  int64  `json:"reserved_bytes"`
	Requested int64  `json:"requested_bytes"` // of live blocks
	Lost      []Loss `json:"lost"`            // every reason; the sum is Reserved - Requested
}

// Loss is the memory that is lost for one reason.
type Loss struct {
	Reason  Reason `json:"reason"`
	Bytes   int64  `json:"bytes"`
	Pieces  int64  `json:"pieces"`        // blocks, or rows of bytes in them; of a plan 0
	Largest int64  `json:"largest_bytes"` // of the pieces
}

// Reason says why bytes are reserved that the program did not request.
type Reason int

// The reasons. Those from PartialHandles on are of free memory. Other streams and
// the other pool are those that did not ask.
const (
	Rounding        Reason = iota // live blocks are larger than what was requested
	Pending                       // freed, while other streams still use it
	Cached                        // freed, and kept whole: in magazines, or not merged yet
	FreeInPlan                    // not live in the memory of a plan
	PartialHandles                // the free part of handles that also have a block
	StitchedEnds                  // the same, where a stitched block begins or ends in the handle
	StitchedRanges                // whole handles that a stitched range without a block keeps mapped
	WholeHandles                  // other whole handles
	PartialSegments               // beside blocks in segments
	WholeSegments                 // segments without a block
	OtherPool                     // free memory of the stream's other pool, for small or for large blocks
	OtherPartial                  // of other streams, in handles or segments that also have a block
	OtherWhole                    // of other streams, whole handles or segments
	numReasons
)

// reasons has the names in JSON, and the texts for people.
var reasons = [numReasons]struct{ name, text string }{
	{"rounding", "in live blocks, more than was requested"},
	{"pending", "freed, and other streams still use it"},
	{"cached", "freed, and kept whole or not merged yet"},
	{"free_in_plan", "free in the plan's memory"},
	{"partial_handles", "smaller than a handle, beside a block"},
	{"stitched_ends", "smaller than a handle, beside a stitched block"},
	{"stitched_ranges", "whole handles, of cached stitched ranges"},
	{"whole_handles", "whole handles"},
	{"partial_segments", "beside blocks in segments"},
	{"whole_segments", "whole segments"},
	{"other_pool", "free for small blocks, or for large ones"},
	{"other_streams_partial", "another stream's, beside its blocks"},
	{"other_streams_whole", "another stream's, whole handles or segments"},
}

// String says the reason for people.
func (r Reason) String() string { return reasons[r].text }

// MarshalText implements encoding.TextMarshaler.
func (r Reason) MarshalText() ([]byte, error) { return []byte(reasons[r].name), nil }

// nearPeak is the part of the peak of reserved memory that counts as the peak.
const nearPeak = 0.99

// requestedAfter returns the bytes that a trace requests after each event, from 0.
func requestedAfter(t *trace.Trace) []int64 {
	after, sizes := make([]int64, len(t.Events)+1), make([]int64, t.Blocks)
	for i, e := range t.Events {
		after[i+1] = after[i]
		switch e.Op {
		case trace.Alloc:
			sizes[e.ID] = e.Size
			after[i+1] += e.Size
		case trace.Free:
			after[i+1] -= sizes[e.ID]
		}
	}
	return after
}

// requestedPeak returns the first event, from 1, at which a trace requests most, or 0.
func requestedPeak(t *trace.Trace) int {
	return max(0, slices.Index(requestedAfter(t), t.PeakRequested))
}

// peakEvent returns the event that an Explanation is about, from a replay's course.
func peakEvent(t *trace.Trace, res *Result, planned bool) (event int) {
	if planned {
		return requestedPeak(t)
	}
	requested := requestedAfter(t)
	before := int64(0)
	for _, p := range res.Reserved {
		grew := p.Bytes > before
		before = p.Bytes
		if grew && float64(p.Bytes) >= nearPeak*float64(res.PeakReservedBytes) && requested[p.Event] >= requested[event] {
			event = p.Event
		}
	}
	return event
}

// explain says what is lost now, after an event.
func (r *run) explain(event int) (*Explanation, error) {
	mapped := r.meter.mapped() // before the Snapshot, as Config.Decay may unmap some
	snap := r.pool.Snapshot()
	asker := place{pool: "large"}
	e := &Explanation{Event: event, Reserved: r.pool.Stats().All.ReservedBytes.Current}
	e.Requested, _ = r.held()
	if event > 0 {
		ev := &r.t.Events[event-1]
		e.Asked, e.Stream, asker.stream = ev.Size, r.t.Streams[ev.Stream], r.streams[ev.Stream].Handle()
		if ev.Op == trace.Alloc {
			b := r.blocks[ev.ID]
			for _, seg := range snap.Segments {
				if b.Ptr()-seg.Address < cupool.Ptr(seg.Size) {
					asker.pool = seg.Type
				}
			}
		}
	}
	var err error
	if e.Lost, err = lostIn(snap, mapped, asker); err != nil {
		return nil, fmt.Errorf("%s: event %d: %w", r.t.Name, event, err)
	}
	if r.planner != nil { // to the pool its memory is live
		st := r.planner.Stats()
		e.Lost[Rounding].Bytes += st.LiveBytes - st.RequestedBytes
		e.Lost[FreeInPlan].Bytes += st.ArenaBytes - st.LiveBytes
	}
	return e, nil
}

// place is where free memory can serve requests.
type place struct {
	stream cupool.StreamHandle
	pool   string // as snapshot.Segment.Type
}

// losses are what is lost for each reason to a request that is served from a place.
type losses struct {
	asker place
	list  []Loss
}

// add counts a piece of memory of a place, if there is any of it.
func (l *losses) add(r Reason, of place, bytes int64) {
	switch {
	case bytes == 0:
		return
	case r < PartialHandles || of == l.asker:
	case of.stream == l.asker.stream:
		r = OtherPool
	case r == StitchedRanges || r == WholeHandles || r == WholeSegments:
		r = OtherWhole
	default:
		r = OtherPartial
	}
	x := &l.list[r]
	x.Bytes += bytes
	x.Pieces++
	x.Largest = max(x.Largest, bytes)
}

// lostIn says where the bytes are that a Snapshot's segments hold beyond what is
// requested of live blocks. What is mapped, by address, tells the handles of
// virtual memory. Addresses without memory are no loss.
func lostIn(p cupool.Snapshot, mapped []piece, asker place) ([]Loss, error) {
	lost := losses{asker, make([]Loss, numReasons)}
	for i := range lost.list {
		lost.list[i].Reason = Reason(i)
	}
	times := map[uintptr]int{} // that a handle is mapped
	for _, m := range mapped {
		times[m.handle]++
	}
	for i := range p.Segments {
		seg := &p.Segments[i]
		of := place{seg.Stream, seg.Type}
		for _, b := range seg.Blocks {
			switch {
			case b.State == "live":
				lost.add(Rounding, of, b.Size-b.Requested)
			case b.State == "pending":
				lost.add(Pending, of, b.Size)
			case b.State == "cached":
				lost.add(Cached, of, b.Size)
			case b.State != "free" || seg.Virtual: // that goes handle by handle
			case b.Size == seg.Size:
				lost.add(WholeSegments, of, b.Size)
			default:
				lost.add(PartialSegments, of, b.Size)
			}
		}
		if seg.Virtual && !seg.Stitched {
			if err := lost.inHandles(seg, mapped, times); err != nil {
				return nil, err
			}
		}
	}
	return lost.list, nil
}

// handleUse is how blocks share a handle.
type handleUse struct {
	piece
	free  int64 // bytes
	parts bool  // some of the rest is of a stitched block
}

// reason says why the handle's free bytes are lost.
func (h *handleUse) reason(times map[uintptr]int) Reason {
	switch {
	case h.free < h.size && h.parts:
		return StitchedEnds
	case h.free < h.size:
		return PartialHandles
	case times[h.handle] > 1:
		return StitchedRanges
	}
	return WholeHandles
}

// inHandles adds what is lost in the free blocks of an address range.
func (l *losses) inHandles(seg *snapshot.Segment, mapped []piece, times map[uintptr]int) error {
	var uses []handleUse
	for _, m := range mapped {
		if m.at-seg.Address < cupool.Ptr(seg.Size) {
			uses = append(uses, handleUse{piece: m})
		}
	}
	err := eachShare(seg, uses, func(b *snapshot.Block, h *handleUse, bytes int64) {
		switch b.State {
		case "free":
			h.free += bytes
		case "part":
			h.parts = true
		}
	})
	if err != nil {
		return err
	}
	var row int64 // bytes side by side in a block for one reason
	var why Reason
	var in *snapshot.Block
	of := place{seg.Stream, seg.Type}
	err = eachShare(seg, uses, func(b *snapshot.Block, h *handleUse, bytes int64) {
		if b.State != "free" {
			return
		}
		if r := h.reason(times); b != in || r != why {
			l.add(why, of, row)
			row, why, in = 0, r, b
		}
		row += bytes
	})
	l.add(why, of, row)
	return err
}

// eachShare calls f for every block of an address range and every handle under
// it, by address, with the bytes that they have in common.
func eachShare(seg *snapshot.Segment, uses []handleUse, f func(*snapshot.Block, *handleUse, int64)) error {
	i := 0
	for k := range seg.Blocks {
		b := &seg.Blocks[k]
		if b.State == "gap" {
			continue
		}
		end := b.Address + cupool.Ptr(b.Size)
		for at := b.Address; at < end; {
			for i < len(uses) && uses[i].at+cupool.Ptr(uses[i].size) <= at {
				i++
			}
			if i == len(uses) || uses[i].at > at {
				return fmt.Errorf("no memory is mapped at %v, in a %s block", at, b.State)
			}
			next := min(end, uses[i].at+cupool.Ptr(uses[i].size))
			f(b, &uses[i], int64(next-at))
			at = next
		}
	}
	return nil
}
