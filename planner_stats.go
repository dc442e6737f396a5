package cupool

import (
	"fmt"
	"time"
)

// PlannerStats is a snapshot of what a Planner has done.
type PlannerStats struct {
	Iterations int64 // that have ended; where they are detected, only planned ones
	Planned    int64 // iterations of a stream that were as planned to their end

	PlannedHits int64 // requests served from their place in the plan
	Passed      int64 // requests passed through to the Caching
	Strays      int64 // of them those served from an arena, for lack of other memory
	Deviations  int64 // iterations of a stream that were not as planned

	Plans      int64 // plans that came into use
	Arenas     int64 // memory ranges of plans, one a stream; to the Caching each is a live block
	ArenaBytes int64 // in them
	HeldBlocks int64 // freed blocks in it that other streams still use

	LiveBlocks     int64 // in the memory of plans
	LiveBytes      int64 // of them
	RequestedBytes int64 // of them, as requested

	// Of the plans that were made last, over all streams:
	Height    int64         // bytes that they take
	Bound     int64         // bytes that live at once; no plan takes less
	Rounds    int64         // placements that were tried
	SolveTime time.Duration // that it took

	LastDeviation Deviation // the zero value when there was none
}

// Deviation says why an iteration was not as planned.
type Deviation struct {
	Stream   StreamHandle
	Request  int   // of the iteration, from 0
	Size     int64 // bytes requested; 0 where it was no request
	Recorded int64 // bytes in the plan, rounded; 0: none
	Reason   string
}

// String prints the deviation for people.
func (d Deviation) String() string {
	if d.Reason == "" {
		return "none"
	}
	return fmt.Sprintf("stream 0x%x, request %d of %d bytes (%d planned): %s", uintptr(d.Stream), d.Request, d.Size, d.Recorded, d.Reason)
}

// laneStats are a lane's part of PlannerStats.
type laneStats struct {
	planned, hits, passed, strays, deviations, plans int64
	height, bound, rounds                            int64
	took                                             time.Duration
	last                                             Deviation
}

// add adds what o counts. Plans go with their lane.
func (s *laneStats) add(o *laneStats) {
	s.planned += o.planned
	s.hits += o.hits
	s.passed += o.passed
	s.strays += o.strays
	s.deviations += o.deviations
	s.plans += o.plans
	if o.deviations > 0 {
		s.last = o.last
	}
}

func (s *laneStats) solved(pl *layout) {
	s.height, s.bound, s.rounds, s.took = pl.height, pl.bound, int64(pl.rounds), pl.took
}

// Stats returns a snapshot.
func (p *Planner) Stats() PlannerStats {
	p.mu.Lock()
	defer p.mu.Unlock()
	st, sum := PlannerStats{}, p.past
	for _, l := range *p.lanes.Load() {
		l.mu.Lock()
		n := &l.stats
		sum.add(n)
		if !l.arena.IsEmpty() {
			st.Arenas++
		}
		st.ArenaBytes += l.arena.size
		st.LiveBlocks += int64(l.live)
		st.LiveBytes += l.liveBytes
		st.RequestedBytes += l.requested
		st.HeldBlocks += int64(l.heldLocked())
		st.Height += n.height
		st.Bound += n.bound
		st.Rounds += n.rounds
		st.SolveTime += n.took
		l.mu.Unlock()
	}
	st.Planned, st.PlannedHits, st.Passed, st.Strays = sum.planned, sum.hits, sum.passed, sum.strays
	st.Deviations, st.LastDeviation, st.Plans = sum.deviations, sum.last, sum.plans
	if st.Iterations = p.counted.Load(); p.cfg.Detect {
		st.Iterations += sum.planned
	}
	return st
}

// heldLocked returns the number of freed blocks whose memory is held.
func (l *lane) heldLocked() (n int) {
	for id := range l.held {
		if l.slot(id).state == slotHeld {
			n++
		}
	}
	return n
}
