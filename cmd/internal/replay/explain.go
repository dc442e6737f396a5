package replay

import (
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
	Pieces  int64  `json:"pieces"`        // blocks, or handles; of a plan 0
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
	WholeHandles                  // the others
	PartialSegments               // beside blocks in segments
	WholeSegments                 // segments without a block
	OtherPool                     // free memory of the stream's other pool, for small or for large blocks
	OtherStreams                  // free memory of other streams
	numReasons
)

// reasons has the names in JSON, and the texts for people.
var reasons = [numReasons]struct{ name, text string }{
	{"rounding", "in live blocks, more than was requested"},
	{"pending", "freed, and other streams still use it"},
	{"cached", "freed, and kept whole or not merged yet"},
	{"free_in_plan", "free in the plan's memory"},
	{"partial_handles", "smaller than a handle, beside a block"},
	{"whole_handles", "whole handles"},
	{"partial_segments", "beside blocks in segments"},
	{"whole_segments", "whole segments"},
	{"other_pool", "free for small blocks, or for large ones"},
	{"other_streams", "another stream's"},
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
func (r *run) explain(event int) *Explanation {
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
	e.Lost = lostIn(snap, mapped, asker)
	if r.planner != nil { // to the pool its memory is live
		st := r.planner.Stats()
		e.Lost[Rounding].Bytes += st.LiveBytes - st.RequestedBytes
		e.Lost[FreeInPlan].Bytes += st.ArenaBytes - st.LiveBytes
	}
	return e
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

// add counts a piece of memory of a segment, if there is any of it.
func (l *losses) add(r Reason, seg *snapshot.Segment, bytes int64) {
	if bytes == 0 {
		return
	}
	if r >= PartialHandles {
		switch of := (place{seg.Stream, seg.Type}); {
		case of.stream != l.asker.stream:
			r = OtherStreams
		case of != l.asker:
			r = OtherPool
		}
	}
	x := &l.list[r]
	x.Bytes += bytes
	x.Pieces++
	x.Largest = max(x.Largest, bytes)
}

// lostIn says where the bytes are that a Snapshot's segments hold beyond what is
// requested of live blocks. What is mapped, by address, tells the handles of
// virtual memory. Addresses without memory are no loss.
func lostIn(p cupool.Snapshot, mapped []piece, asker place) []Loss {
	lost := losses{asker, make([]Loss, numReasons)}
	for i := range lost.list {
		lost.list[i].Reason = Reason(i)
	}
	for i := range p.Segments {
		seg := &p.Segments[i]
		for _, b := range seg.Blocks {
			switch {
			case b.State == "live":
				lost.add(Rounding, seg, b.Size-b.Requested)
			case b.State == "pending":
				lost.add(Pending, seg, b.Size)
			case b.State == "cached":
				lost.add(Cached, seg, b.Size)
			case b.State != "free" || seg.Virtual: // that goes handle by handle
			case b.Size == seg.Size:
				lost.add(WholeSegments, seg, b.Size)
			default:
				lost.add(PartialSegments, seg, b.Size)
			}
		}
		if seg.Virtual && !seg.Stitched { // whose memory is that of another address range
			lost.inHandles(seg, mapped)
		}
	}
	return lost.list
}

// inHandles adds what is free in each handle of an address range.
func (l *losses) inHandles(seg *snapshot.Segment, mapped []piece) {
	blocks := seg.Blocks
	for _, m := range mapped {
		if m.at-seg.Address >= cupool.Ptr(seg.Size) {
			continue
		}
		end, free := m.at+cupool.Ptr(m.size), int64(0)
		for len(blocks) > 0 {
			b := blocks[0]
			last := b.Address + cupool.Ptr(b.Size)
			if from, to := max(b.Address, m.at), min(last, end); b.State == "free" && from < to {
				free += int64(to - from)
			}
			if last > end { // the next handle has the rest
				break
			}
			blocks = blocks[1:]
		}
		if free == m.size {
			l.add(WholeHandles, seg, free)
		} else {
			l.add(PartialHandles, seg, free)
		}
	}
}
