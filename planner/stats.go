package planner

import (
	"fmt"
	"time"

	"github.com/cupool/cupool"
)

// Stats is a snapshot of what a Planner has done.
type Stats struct {
	Iterations int64 // iterations that have ended; of detected ones, those that were planned
	Planned    int64 // iterations of a stream that were as planned to their end

	PlannedHits int64 // requests served from their place in the plan
	Passed      int64 // requests passed through to the Pool
	Strays      int64 // passed requests served from an arena, for lack of other memory
	Deviations  int64 // iterations of a stream that were not as planned

	Plans      int64 // plans that came into use
	Arenas     int64 // memory ranges of plans, one a stream; to the Pool each is a live block
	ArenaBytes int64 // bytes of the arenas
	HeldBlocks int64 // freed blocks in arenas that other streams still use

	LiveBlocks     int64 // live blocks in arenas
	LiveBytes      int64 // their bytes
	RequestedBytes int64 // their bytes as requested

	// Of the plans that were made last, over all streams:
	Height    int64         // bytes that they take
	Bound     int64         // bytes that live at once; no plan takes less
	Rounds    int64         // placements that were tried
	SolveTime time.Duration // time that this took

	LastDeviation Deviation // the zero value when there was none
}

// Deviation says why an iteration was not as planned.
type Deviation struct {
	Stream   cupool.StreamHandle
	Request  int   // of the iteration, from 0
	Size     int64 // bytes requested; 0 for a deviation that was no request
	Recorded int64 // bytes in the plan, rounded; 0: none
	Reason   string
}

// String prints the deviation for people.
func (d Deviation) String() string {
	if d.Reason == "" {
		return "none"
	}
	return fmt.Sprintf("%v, request %d of %d bytes (%d planned): %s", d.Stream, d.Request, d.Size, d.Recorded, d.Reason)
}

// add adds what another lane did. Plans go with their lane.
func (s *Stats) add(o *Stats) {
	s.Planned += o.Planned
	s.PlannedHits += o.PlannedHits
	s.Passed += o.Passed
	s.Strays += o.Strays
	s.Deviations += o.Deviations
	s.Plans += o.Plans
	if o.Deviations > 0 {
		s.LastDeviation = o.LastDeviation
	}
}

func (s *Stats) solved(pl *layout) {
	s.Height, s.Bound, s.Rounds, s.SolveTime = pl.height, pl.bound, int64(pl.rounds), pl.took
}
