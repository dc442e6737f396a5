package main

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/cupool/cupool"
	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"
	"golang.org/x/term"
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

	// With -plan only.
	PlannedSteps int64 `json:"planned_steps,omitempty"` // served by the plan from beginning to end
	PlanBytes    int64 `json:"plan_bytes,omitempty"`
	PlannedHits  int64 `json:"planned_hits,omitempty"` // allocations served by the plan
}

// newReport sums up a training whose tensors have all been freed.
func newReport(epochs []epoch, stepTimes []time.Duration, pool cupool.Stats) report {
	r := report{
		Steps:             len(stepTimes),
		StepMicrosMedian:  float64(median(stepTimes).Nanoseconds()) / 1e3,
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
func (r *report) addPlan(p cupool.PlannerStats, pool cupool.Stats) {
	r.PlannedSteps, r.PlanBytes, r.PlannedHits = p.Planned, p.ArenaBytes, p.PlannedHits
	r.LeakedBlocks += p.LiveBlocks - p.Arenas
	if hits := pool.Hits + p.PlannedHits; hits > 0 {
		r.HitRatio = float64(hits) / float64(hits+pool.Misses)
	}
}

func median(times []time.Duration) time.Duration {
	if len(times) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(times))
	return sorted[len(sorted)/2]
}

// print writes the summary for people.
func (r report) print(w io.Writer) {
	fmt.Fprintf(w, "\ntest accuracy   %.2f %%\n", 100*r.TestAccuracy)
	fmt.Fprintf(w, "steps           %d, %.0f µs each (median)\n", r.Steps, r.StepMicrosMedian)
	fmt.Fprintln(w, "the pool")
	fmt.Fprintf(w, "  hit ratio     %.3f %% of the allocations needed no call to the device\n", 100*r.HitRatio)
	fmt.Fprintf(w, "  device calls  %d allocations in the first epoch, %d in the last\n", r.DriverAllocsFirstEpoch, r.DriverAllocsLastEpoch)
	fmt.Fprintf(w, "  peak live     %.1f MiB\n", mib(r.PeakLiveBytes))
	fmt.Fprintf(w, "  reserved      %.1f MiB\n", mib(r.PeakReservedBytes))
	fmt.Fprintf(w, "  leaked        %d blocks\n", r.LeakedBlocks)
	if r.PlannedSteps > 0 {
		fmt.Fprintf(w, "  planned       %d steps, %d allocations, in %.1f MiB\n", r.PlannedSteps, r.PlannedHits, mib(r.PlanBytes))
	}
}

// printJSON writes the report as one line.
func (r report) printJSON(w io.Writer) error { return json.NewEncoder(w).Encode(r) }

func mib(bytes int64) float64 { return float64(bytes) / (1 << 20) }

// printEpoch writes an epoch's line.
func printEpoch(w io.Writer, i, n int, e epoch) {
	fmt.Fprintf(w, "epoch %*d/%d  loss %.4f  test accuracy %.2f %%  device allocations %d  %v\n",
		len(fmt.Sprint(n)), i+1, n, e.loss, 100*e.accuracy, e.driverAllocs, e.duration.Round(time.Millisecond))
}

// A bar shows the progress of an epoch on a terminal; elsewhere it is silent.
type bar struct {
	container *mpb.Progress
	bar       *mpb.Bar
}

// newBar starts a bar of so many steps if w is a terminal.
func newBar(w io.Writer, name string, steps int) *bar {
	if f, ok := w.(interface{ Fd() uintptr }); !ok || !term.IsTerminal(int(f.Fd())) {
		return &bar{}
	}
	c := mpb.New(mpb.WithOutput(w), mpb.WithWidth(60))
	return &bar{c, c.AddBar(int64(steps),
		mpb.BarRemoveOnComplete(),
		mpb.PrependDecorators(decor.Name(name+" ")),
		mpb.AppendDecorators(decor.CountersNoUnit(" %d/%d steps"), decor.AverageETA(decor.ET_STYLE_GO, decor.WCSyncSpace)),
	)}
}

// step moves the bar on.
func (b *bar) step() {
	if b.bar != nil {
		b.bar.Increment()
	}
}

// close removes the bar.
func (b *bar) close() {
	if b.bar != nil {
		b.bar.Abort(true)
		b.container.Wait()
	}
}
