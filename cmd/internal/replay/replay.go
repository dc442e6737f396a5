// Package replay gives recorded traces to the allocator and reports what it
// made of them: how much it reserved, what it asked of the driver, what that
// would have cost, and how long it took itself.
//
// Files: replay.go runs a trace, planned.go by a plan, options.go says how and on
// which device, late.go keeps a device behind the program, meter.go counts the calls
// of devices that do not, verify.go checks that memory keeps its contents, explain.go says why more is reserved than
// requested, torchmodel.go is PyTorch's default allocator on the same trace, for
// comparison.
package replay

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"time"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/simdev"
	"github.com/cupool/cupool/internal/trace"
	"github.com/cupool/cupool/planner"
)

// Result is what came out of a replay. The fields with JSON names are the
// line that cupool replay -json prints.
type Result struct {
	Trace              string  `json:"trace"`
	Backing            string  `json:"backing"`
	Strategy           string  `json:"strategy"`
	Events             int     `json:"events"`
	PeakRequestedBytes int64   `json:"peak_requested_bytes"` // by the trace, whether or not it was served
	PeakReservedBytes  int64   `json:"peak_reserved_bytes"`
	Ratio              float64 `json:"ratio"` // reserved ÷ requested; 1 when nothing was requested
	DriverAllocs       int64   `json:"driver_allocs"`
	DriverUsModelled   float64 `json:"driver_us_modelled"` // of all driver calls, by simdev.Cost
	NsPerEvent         float64 `json:"ns_per_event"`       // wall time of the allocator's calls; see Options.Repeat
	FailedAllocs       int64   `json:"failed_allocs"`

	Explanation *Explanation `json:"explain,omitempty"` // with Options.Explain only

	FirstFailed int    `json:"-"` // its event, from 1; 0: none
	Failure     error  `json:"-"` // of the first that failed
	DriverFrees int64  `json:"-"`
	OOMs        int64  `json:"-"` // by the allocator's books
	Checked     int64  `json:"-"` // blocks whose contents were verified
	Device      string `json:"-"`

	Plan *planner.Stats `json:"-"` // after the first planned replay

	Samples  []Sample `json:"-"` // requested and live, at their ups and downs; with Options.Samples
	Reserved []Point  `json:"-"` // at every change
}

// Sample is what the program holds after an event.
type Sample struct {
	Event           int   // from 1; 0 is the start
	Requested, Live int64 // bytes as requested, and in blocks
}

// Point is a quantity after an event.
type Point struct {
	Event int // from 1; 0 is the start
	Bytes int64
}

// chunk is the number of events between two looks at the clock, the context
// and the progress: many, so that these cost nothing.
const chunk = 1024

// Run replays a trace. It fails when the options or the device do not work,
// when the allocator breaks its contract, or with Verify when memory lost
// its contents; an allocation for which there is no memory is counted.
func Run(ctx context.Context, t *trace.Trace, o Options) (Result, error) {
	if err := o.complete(); err != nil {
		return Result{}, err
	}
	res, err := runOnce(ctx, t, o, nil)
	o.Samples = 0
	for i := 1; i < o.Repeat && err == nil && res.FailedAllocs == 0 && !o.planned(); i++ {
		var again Result
		again, err = runOnce(ctx, t, o, nil)
		res.NsPerEvent = min(res.NsPerEvent, again.NsPerEvent)
	}
	if err == nil && o.Explain {
		event := peakEvent(t, &res, o.planned())
		o.Repeat = 1
		_, err = runOnce(ctx, t, o, &look{event, func(r *run) error {
			res.Explanation = r.explain(event)
			return nil
		}})
	}
	return res, err
}

// AtPeak replays a trace up to the first event at which it requests most, and
// returns what the allocator holds then. It fails as Run does.
func AtPeak(ctx context.Context, t *trace.Trace, o Options) (p cupool.Snapshot, err error) {
	err = After(ctx, t, o, requestedPeak(t), func(c *cupool.Pool) error {
		p = c.Snapshot()
		return nil
	})
	return p, err
}

// After replays a trace and calls f after an event, from 1. It fails as Run does.
func After(ctx context.Context, t *trace.Trace, o Options, event int, f func(*cupool.Pool) error) error {
	err := o.complete()
	if err == nil {
		_, err = runOnce(ctx, t, o, &look{event, func(r *run) error { return f(r.pool) }})
	}
	return err
}

// look is what to do after an event.
type look struct {
	event int // from 1; 0 is the start
	do    func(*run) error
}

func runOnce(ctx context.Context, t *trace.Trace, o Options, look *look) (Result, error) {
	d, err := o.open()
	if err != nil {
		return Result{}, err
	}
	dev, m := newMeter(d)
	r, err := newRun(t, o, dev, m)
	if err == nil && o.Lag > 0 {
		r.late, err = newLate(d.(*simdev.Device), o.Lag, o.Config.GrowWait > 0)
	}
	if err == nil && o.planned() {
		err = r.rehearse(ctx)
	}
	if err == nil {
		err = r.events(ctx, look)
	}
	if err == nil {
		err = r.finish()
	}
	if r.planner != nil {
		if err == nil {
			err = r.planOnly(ctx)
		}
		err = errors.Join(err, r.planner.Close())
	}
	if r.pool != nil {
		closed := r.pool.Close()
		if err == nil { // else blocks are live, which says nothing
			err = closed
		}
	}
	if r.late != nil {
		r.late.close()
	}
	return r.result, errors.Join(err, dev.Close())
}

// run is one replay on its way.
type run struct {
	t       *trace.Trace
	o       Options
	meter   *meter
	pool    *cupool.Pool
	planner *planner.Planner // nil but for backing planned
	alloc   cupool.Allocator // which of the two is asked
	before  calls            // what is not to be counted
	oomsOld int64            // likewise
	streams []*cupool.Stream
	blocks  []cupool.Block // by ID; empty when not live, or never served
	marks   []*cupool.Event
	check   *checker // nil: contents are not verified
	late    *late    // nil: the device is not behind
	result  Result
	at      int // the event that is being replayed, from 0
}

func newRun(t *trace.Trace, o Options, dev cupool.Driver, m *meter) (*run, error) {
	r := &run{t: t, o: o, meter: m, blocks: make([]cupool.Block, t.Blocks), marks: make([]*cupool.Event, t.Marks)}
	cfg := o.Config
	cfg.Driver = dev
	var err error
	if r.pool, err = cupool.New(cfg); err != nil {
		return r, err
	}
	r.alloc = r.pool
	r.streams = []*cupool.Stream{r.pool.DefaultStream()}
	for range t.Streams[1:] {
		s, err := r.pool.NewStream()
		if err != nil {
			return r, err
		}
		r.streams = append(r.streams, s)
	}
	if o.Verify {
		r.check = newChecker(dev, t)
	}
	r.result = Result{
		Trace: t.Name, Backing: o.backingOf(dev), Strategy: o.Strategy, Device: dev.Name(),
		Events: len(t.Events), PeakRequestedBytes: t.PeakRequested,
	}
	return r, nil
}

// events replays all events, a chunk at a time.
func (r *run) events(ctx context.Context, look *look) error {
	r.meter.changed = r.noteReserved
	defer func() { r.meter.changed = nil }()
	samples := sampleEvents(r.t, r.o.Samples)
	runtime.GC() // what reading the trace left behind, now and not meanwhile
	var took time.Duration
	for from := 0; ; {
		if look != nil && look.event == from {
			if err := look.do(r); err != nil {
				return err
			}
		}
		if from == len(r.t.Events) {
			r.result.NsPerEvent = r.perEvent(took)
			return nil
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		to := min(from+chunk, len(r.t.Events))
		if len(samples) > 0 {
			to = min(to, samples[0])
		}
		if look != nil && look.event > from {
			to = min(to, look.event)
		}
		start := time.Now()
		err := r.replay(from, to)
		took += time.Since(start)
		if err != nil {
			return err
		}
		if len(samples) > 0 && to == samples[0] {
			requested, live := r.held()
			r.result.Samples = append(r.result.Samples, Sample{to, requested, live})
			samples = samples[1:]
		}
		if r.o.Progress != nil {
			r.o.Progress(to - from)
		}
		from = to
	}
}

// perEvent returns the ns of an event, to a tenth.
func (r *run) perEvent(took time.Duration) float64 {
	return math.Round(10*float64(took)/float64(max(len(r.t.Events), 1))) / 10
}

// noteReserved keeps the last reserved bytes of each event.
func (r *run) noteReserved(bytes int64) {
	p := Point{r.at + 1, bytes}
	if n := len(r.result.Reserved); n > 0 && r.result.Reserved[n-1].Event == p.Event {
		r.result.Reserved[n-1] = p
		return
	}
	r.result.Reserved = append(r.result.Reserved, p)
}

// sampleEvents chooses the events, from 1 and ascending, after which to
// look: the highest and the lowest point of each of n equal parts of the
// trace, and the last.
func sampleEvents(t *trace.Trace, n int) (at []int) {
	total := len(t.Events)
	if n <= 0 || total == 0 {
		return nil
	}
	live, sizes := int64(0), make([]int64, t.Blocks)
	for part := range n {
		from, to := total*part/n, total*(part+1)/n
		hi, lo := Point{Bytes: -1}, Point{Bytes: math.MaxInt64}
		for i := from; i < to; i++ {
			switch e := &t.Events[i]; e.Op {
			case trace.Alloc:
				sizes[e.ID] = e.Size
				live += e.Size
			case trace.Free:
				live -= sizes[e.ID]
			}
			if live > hi.Bytes {
				hi = Point{i + 1, live}
			}
			if live < lo.Bytes {
				lo = Point{i + 1, live}
			}
		}
		if from < to {
			at = append(at, min(hi.Event, lo.Event), max(hi.Event, lo.Event))
		}
	}
	return slices.Compact(append(at, total))
}

// replay is the loop that is timed.
func (r *run) replay(from, to int) error {
	for i := from; i < to; i++ {
		e := &r.t.Events[i]
		r.at = i
		var err error
		switch e.Op {
		case trace.Alloc:
			var b cupool.Block
			if b, err = r.alloc.Alloc(e.Size, r.streams[e.Stream]); err == nil {
				r.blocks[e.ID] = b
				if r.late != nil {
					err = r.late.work(r.streams[e.Stream])
				}
				if r.check != nil && err == nil {
					err = r.check.fill(e.ID, b, r.streams[e.Stream])
				}
			} else if errors.Is(err, cupool.ErrOutOfMemory) {
				r.failed(i, err)
				err = nil
			}
		case trace.Free: // of the empty Block when it was never served, which does nothing
			if r.check != nil {
				err = r.check.verify(e.ID, r.blocks[e.ID])
			}
			if err == nil {
				err = r.alloc.Free(r.blocks[e.ID])
				r.blocks[e.ID] = cupool.Block{}
			}
		case trace.Use:
			if !r.blocks[e.ID].IsEmpty() {
				err = r.alloc.RecordStream(r.blocks[e.ID], r.streams[e.Stream])
				if r.late != nil && err == nil {
					err = r.late.work(r.streams[e.Stream])
				}
			}
		default:
			err = r.order(e)
		}
		if err != nil {
			return fmt.Errorf("%s: event %d: %w", r.t.Name, i+1, err)
		}
	}
	return nil
}

// failed notes an allocation that got no memory.
func (r *run) failed(i int, err error) {
	if r.result.FailedAllocs++; r.result.FailedAllocs == 1 {
		r.result.FirstFailed, r.result.Failure = i+1, err
	}
}

// order replays what the program did to order its streams.
func (r *run) order(e *trace.Event) error {
	s := r.streams[e.Stream]
	if e.Op == trace.Wait {
		return s.Wait(r.marks[e.ID])
	}
	old := r.marks[e.ID]
	m, err := s.Record()
	if err != nil {
		return err
	}
	r.marks[e.ID] = m
	if old != nil {
		return old.Close()
	}
	return nil
}

// finish reads the books, verifies what is still live, and frees it.
func (r *run) finish() error {
	st := r.pool.Stats()
	res := &r.result
	res.PeakReservedBytes = st.All.ReservedBytes.Peak
	res.Ratio = 1
	if res.PeakRequestedBytes > 0 {
		res.Ratio = float64(res.PeakReservedBytes) / float64(res.PeakRequestedBytes)
	}
	res.OOMs = st.OOMs - r.oomsOld
	calls := r.meter.calls()
	res.DriverAllocs, res.DriverFrees = calls.allocs-r.before.allocs, calls.frees-r.before.frees
	res.DriverUsModelled = float64(calls.cost-r.before.cost) / float64(time.Microsecond)
	err := r.freeRest()
	if r.check != nil {
		res.Checked = r.check.checked
	}
	return err
}

// freeRest verifies and frees what is still live.
func (r *run) freeRest() error {
	var errs []error
	for id, b := range r.blocks {
		if b.IsEmpty() {
			continue
		}
		if r.check != nil {
			errs = append(errs, r.check.verify(uint32(id), b))
		}
		errs = append(errs, r.alloc.Free(b))
	}
	clear(r.blocks)
	for _, m := range r.marks {
		if m != nil {
			errs = append(errs, m.Close())
		}
	}
	clear(r.marks)
	return errors.Join(errs...)
}
