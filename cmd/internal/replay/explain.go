package replay

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/trace"
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
	Pool      string `json:"pool"`   // "small" or "large", that the request is of
	Reserved  int64  `json:"reserved_bytes"`
	Requested int64  `json:"requested_bytes"` // of live blocks

	PeakRequestedEvent int `json:"peak_requested_event"` // at which the trace requests most

	// Lost is every reason; the sum is Reserved - Requested. Other streams and
	// the other pool are those that did not ask.
	Lost []Loss `json:"lost"`

	// Course is the same over time, with Options.Samples only. Other streams
	// and the other pool are those that did not ask at the peak.
	Course []Moment `json:"-"`
}

// Moment is what is lost after an event.
type Moment struct {
	Event     int // from 1; 0 is the start
	Reserved  int64
	Requested int64
	Lost      []Loss // every reason
}

// moment is a Moment that nobody looks at from a stream or pool of their own
// yet.
type moment struct {
	event               int
	reserved, requested int64
	lost                losses
	asker               place // of a peak: whose request it is
}

func (m *moment) seenFrom(asker place) Moment {
	return Moment{m.event, m.reserved, m.requested, m.lost.seenFrom(asker)}
}

// explainer looks at the memory whenever reserved memory grows to its peak so far.
type explainer struct {
	most   int      // the event at which the trace requests most
	used   int64    // reserved after the event before
	peak   int64    // the most that was
	peaks  []moment // of which one will be the Explanation's
	course []moment
}

// nearPeak is the part of the peak of reserved memory that counts as the peak.
const nearPeak = 0.99

// requestedPeak returns the first event, from 1, at which a trace requests most,
// or 0.
func requestedPeak(t *trace.Trace) int {
	sizes, live := make([]int64, t.Blocks), int64(0)
	for i, e := range t.Events {
		switch e.Op {
		case trace.Alloc:
			sizes[e.ID] = e.Size
			if live += e.Size; live == t.PeakRequested && live > 0 {
				return i + 1
			}
		case trace.Free:
			live -= sizes[e.ID]
		}
	}
	return 0
}

// beginExplaining looks at the memory before the first event.
func (r *run) beginExplaining() error {
	r.explainer = &explainer{most: requestedPeak(r.t), used: -1}
	return r.explainEvent(0, r.o.Samples > 0)
}

// explainEvent looks at the memory after an event when that may be its peak, or
// when it is a sample.
func (r *run) explainEvent(event int, sample bool) error {
	x, used := r.explainer, r.dev.meter.inUse()
	grew := used > x.used
	x.used, x.peak = used, max(x.peak, used)
	peak := x.isPeak(used) && (grew || r.o.planned() && event == x.most)
	if !peak && !sample {
		return nil
	}
	m, err := r.moment(event)
	if err != nil {
		return fmt.Errorf("%s: event %d: %w", r.t.Name, event, err)
	}
	if peak {
		m.asker = r.askerOf(event)
		x.peaks = append(slices.DeleteFunc(x.peaks, func(old moment) bool {
			return !x.isPeak(old.reserved) || old.reserved <= m.reserved && old.requested <= m.requested
		}), m)
	}
	if sample {
		x.course = append(x.course, m)
	}
	return nil
}

// isPeak reports whether so many reserved bytes count as the peak so far.
func (x *explainer) isPeak(reserved int64) bool { return float64(reserved) >= nearPeak*float64(x.peak) }

// moment returns what is lost now.
func (r *run) moment(event int) (moment, error) {
	m := moment{event: event}
	mapped := r.dev.meter.mapped() // before the Snapshot, as Config.Decay may unmap some
	p := r.pool.Snapshot()
	var err error
	if m.lost, err = lostIn(p, mapped); err != nil {
		return m, err
	}
	m.reserved = r.pool.Stats().All.ReservedBytes.Current
	m.requested, _ = r.held()
	if r.planner != nil && len(p.Segments) > 0 { // to the pool its memory is live
		st := r.planner.Stats()
		lost := m.lost.at(&p.Segments[0])
		lost[Rounding].Bytes += st.LiveBytes - st.RequestedBytes
		lost[FreeInPlan].Bytes += st.ArenaBytes - st.LiveBytes
	}
	return m, nil
}

// askerOf returns the place that an event's request is served from.
func (r *run) askerOf(event int) place {
	p := place{pool: "large"}
	if event == 0 {
		return p
	}
	e := &r.t.Events[event-1]
	p.stream = r.streams[e.Stream].Handle()
	if e.Op != trace.Alloc {
		return p
	}
	b := r.blocks[e.ID]
	for _, seg := range r.pool.Snapshot().Segments {
		if b.Ptr()-seg.Address < cupool.Ptr(seg.Size) {
			p.pool = seg.Type
		}
	}
	return p
}

// Text says a reason of Lost or Course for people.
func (e *Explanation) Text(r Reason) string {
	if r == OtherPool && e.Pool == "small" {
		return "free for large blocks"
	}
	return reasonTexts[r]
}

// explanation sums up.
func (r *run) explanation() *Explanation {
	x := r.explainer
	m := slices.MaxFunc(x.peaks, func(a, b moment) int {
		return cmp.Or(cmp.Compare(a.requested, b.requested), cmp.Compare(a.event, b.event))
	})
	peak := m.seenFrom(m.asker)
	e := &Explanation{
		Event: peak.Event, Pool: m.asker.pool, Reserved: peak.Reserved, Requested: peak.Requested,
		PeakRequestedEvent: x.most, Lost: peak.Lost,
	}
	if peak.Event > 0 {
		ev := &r.t.Events[peak.Event-1]
		e.Asked, e.Stream = ev.Size, r.t.Streams[ev.Stream]
	}
	course := x.course
	at, sampled := slices.BinarySearchFunc(course, m.event, func(m moment, event int) int { return cmp.Compare(m.event, event) })
	if len(course) > 0 && !sampled {
		course = slices.Insert(course, at, m)
	}
	for _, c := range course {
		e.Course = append(e.Course, c.seenFrom(m.asker))
	}
	return e
}
