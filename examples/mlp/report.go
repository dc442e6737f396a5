package main

import (
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/examples/internal/training"
	"github.com/cupool/cupool/planner"
)

// A report is what -json prints.
type report struct {
	Device                 string  `json:"device"`
	TestAccuracy           float64 `json:"test_accuracy"`
	Steps                  int     `json:"steps"`
	StepMicrosMedian       float64 `json:"step_us_median"`
	HitRatio               float64 `json:"hit_ratio"`
	DriverAllocsFirstEpoch int64   `json:"driver_allocs_first_epoch"`
	DriverAllocsLastEpoch  int64   `json:"driver_allocs_last_epoch"`
	PeakLiveBytes          int64   `json:"peak_live_bytes"`
	PeakReservedBytes      int64   `json:"peak_reserved_bytes"`
	LeakedBlocks           int64   `json:"leaked_blocks"`
	FallbackOps            int64   `json:"gpu_fallback_ops"` // operations that the device left to the host

	Group *groupReport `json:"group,omitempty"`

	// With -plan only.
	PlannedSteps int64 `json:"planned_steps,omitempty"` // served by the plan from beginning to end
	PlanBytes    int64 `json:"plan_bytes,omitempty"`
	PlannedHits  int64 `json:"planned_hits,omitempty"` // allocations served by the plan
}

// A groupReport is what several ranks have in addition.
type groupReport struct {
	Ranks             int     `json:"ranks"`
	Comm              string  `json:"comm"`
	ImagesPerSecond   float64 `json:"images_per_s"` // of all ranks
	WaitMicros        float64 `json:"wait_us"`      // a step of the first rank for the others' gradients; 0: not measured
	WaitShare         float64 `json:"wait_share"`   // of a step's time
	PeakLiveBytes     []int64 `json:"peak_live_bytes"`
	PeakReservedBytes []int64 `json:"peak_reserved_bytes"`
}

// newReport sums up a training whose tensors have all been freed.
func newReport(epochs []epoch, stepTimes []time.Duration, pool cupool.Stats) report {
	r := report{
		Steps:             len(stepTimes),
		StepMicrosMedian:  training.MedianMicros(stepTimes),
		HitRatio:          pool.HitRatio(),
		PeakLiveBytes:     pool.All.AllocatedBytes.Peak,
		PeakReservedBytes: pool.All.ReservedBytes.Peak,
		LeakedBlocks:      pool.All.Allocation.Current,
	}
	if n := len(epochs); n > 0 {
		r.TestAccuracy = epochs[n-1].accuracy
		r.DriverAllocsFirstEpoch = epochs[0].driverAllocs
		r.DriverAllocsLastEpoch = epochs[n-1].driverAllocs
	}
	return r
}

// addPlan adds what came of planning. To the pool, the plan's memory is one
// block.
func (r *report) addPlan(p planner.Stats, pool cupool.Stats) {
	r.PlannedSteps, r.PlanBytes, r.PlannedHits = p.Planned, p.ArenaBytes, p.PlannedHits
	r.LeakedBlocks += p.LiveBlocks - p.Arenas
	if hits := pool.Hits + p.PlannedHits; hits > 0 {
		r.HitRatio = float64(hits) / float64(hits+pool.Misses)
	}
}

// Print writes the summary for people.
func (r report) Print(w io.Writer) {
	fmt.Fprintf(w, "\ntest accuracy   %.2f %%\n", 100*r.TestAccuracy)
	fmt.Fprintf(w, "steps           %d, %.0f µs each (median)\n", r.Steps, r.StepMicrosMedian)
	fmt.Fprintln(w, "the pool")
	fmt.Fprintf(w, "  hit ratio     %.3f %% of the allocations needed no call to the device\n", 100*r.HitRatio)
	fmt.Fprintf(w, "  device calls  %d allocations in the first epoch, %d in the last\n", r.DriverAllocsFirstEpoch, r.DriverAllocsLastEpoch)
	fmt.Fprintf(w, "  peak live     %.1f MiB\n", training.MiB(r.PeakLiveBytes))
	fmt.Fprintf(w, "  reserved      %.1f MiB\n", training.MiB(r.PeakReservedBytes))
	fmt.Fprintf(w, "  leaked        %d blocks\n", r.LeakedBlocks)
	if g := r.Group; g != nil {
		fmt.Fprintf(w, "the %s\n", ranks(g.Ranks))
		fmt.Fprintf(w, "  together      %.0f images/s\n", g.ImagesPerSecond)
		if g.WaitMicros > 0 {
			fmt.Fprintf(w, "  waiting       %.0f µs a step for gradients of others, %.1f %% of it\n", g.WaitMicros, 100*g.WaitShare)
		}
		fmt.Fprintf(w, "  peak live     %.1f to %.1f MiB a rank\n", training.MiB(slices.Min(g.PeakLiveBytes)), training.MiB(slices.Max(g.PeakLiveBytes)))
		fmt.Fprintf(w, "  reserved      %.1f to %.1f MiB a rank\n", training.MiB(slices.Min(g.PeakReservedBytes)), training.MiB(slices.Max(g.PeakReservedBytes)))
	}
	if r.PlannedSteps > 0 {
		fmt.Fprintf(w, "  planned       %d steps, %d allocations, in %.1f MiB\n", r.PlannedSteps, r.PlannedHits, training.MiB(r.PlanBytes))
	}
}

// Leaked implements training.Report.
func (r report) Leaked() int64 { return r.LeakedBlocks }

// printEpoch writes an epoch's line.
func printEpoch(w io.Writer, i, n int, e epoch) {
	fmt.Fprintf(w, "epoch %*d/%d  loss %.4f  test accuracy %.2f %%  device allocations %d  %v\n",
		len(fmt.Sprint(n)), i+1, n, e.loss, 100*e.accuracy, e.driverAllocs, e.duration.Round(time.Millisecond))
}

// ranks is a number of ranks in words.
func ranks(n int) string {
	if n == 1 {
		return "1 rank"
	}
	return fmt.Sprintf("%d ranks", n)
}
