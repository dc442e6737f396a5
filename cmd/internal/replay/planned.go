package replay

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/cupool/cupool/planner"
)

// Backing planned: the whole trace is one iteration of a program. It is
// replayed once for the Planner to record, and then again by the plan. All
// results are of the second replay, in which the plan's memory is held from
// the start; taking that memory counts among the calls of the driver, what
// recording asked for does not. A trace has one order of all its requests, so there
// is one plan for all streams.

// planBudget bounds the time in which a plan is made. The work that a search
// does by itself takes less, so that results do not depend on the processor.
const planBudget = 10 * time.Minute

// rehearse records the trace, has it planned and begins the iteration that
// is measured.
func (r *run) rehearse(ctx context.Context) error {
	p, err := planner.New(r.pool, planner.Config{
		Confirm: 1, Budget: planBudget, Joint: len(r.streams) > 1, MaxRequests: min(r.t.Blocks+1, math.MaxInt32/2),
	})
	if err != nil {
		return err
	}
	r.planner, r.alloc = p, p
	check := r.check
	r.check = nil
	if _, err := r.iteration(ctx); err != nil {
		return err
	}
	if err := p.Wait(ctx); err != nil {
		return err
	}
	r.check = check
	r.result.FailedAllocs, r.result.FirstFailed, r.result.Failure = 0, 0, nil
	r.before = r.meter.calls()
	r.oomsOld = r.pool.Stats().OOMs
	if err := p.BeginIteration(); err != nil {
		return err
	}
	r.pool.ResetPeak()
	r.result.Reserved = []Point{{0, r.pool.Stats().All.ReservedBytes.Current}}
	return nil
}

// iteration replays the trace as an iteration of its own, frees what is left, and
// returns how long the events took.
func (r *run) iteration(ctx context.Context) (took time.Duration, err error) {
	if err := r.planner.BeginIteration(); err != nil {
		return 0, err
	}
	for from := 0; from < len(r.t.Events); from += chunk {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		to := min(from+chunk, len(r.t.Events))
		start := time.Now()
		if err := r.replay(from, to); err != nil {
			return 0, err
		}
		took += time.Since(start)
		if r.o.Progress != nil {
			r.o.Progress(to - from)
		}
	}
	return took, errors.Join(r.freeRest(), r.planner.EndIteration())
}

// planOnly ends the measured iteration and repeats it for its time.
func (r *run) planOnly(ctx context.Context) error {
	if err := r.planner.EndIteration(); err != nil {
		return err
	}
	st := r.planner.Stats()
	r.result.Plan = &st
	r.check = nil
	for i := 1; i < r.o.Repeat && r.result.FailedAllocs == 0; i++ {
		took, err := r.iteration(ctx)
		if err != nil {
			return err
		}
		r.result.NsPerEvent = min(r.result.NsPerEvent, r.perEvent(took))
	}
	return nil
}

// held returns what the program holds now: bytes as requested, and in blocks.
func (r *run) held() (requested, live int64) {
	st := r.pool.Stats()
	requested, live = st.All.RequestedBytes.Current, st.LiveBytes
	if r.planner != nil { // the pool counts the plan's memory as one block
		p := r.planner.Stats()
		requested += p.RequestedBytes - p.ArenaBytes
		live += p.LiveBytes - p.ArenaBytes
	}
	return requested, live
}
