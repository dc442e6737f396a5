package main

import (
	"fmt"
	"io"
	"runtime"
	"time"

	"github.com/cupool/cupool/examples/internal/training"
	"github.com/cupool/cupool/gorgoniavm"
)

// A measurement is what is noted of all steps.
type measurement struct {
	began               time.Time // the present epoch
	times, twinTimes    []time.Duration
	lossFirst, lossLast float64
	accuracy            float64
	liveFirst, liveLast int64 // bytes of the pool after a step

	fromPool, fromGo int64                      // bytes that the weighed steps took
	records          []runtime.MemProfileRecord // room for the heap's profile
}

// note notes what came of an epoch's step i. CUDA graphs have their memory from
// the second step of all on.
func (t *trainer) note(loss float64, i int) {
	n, first := len(t.m.times), 1
	if t.o.graph {
		first = 2
	}
	if n > first && i < t.steps-1 {
		return
	}
	live := t.pool.Stats().All.AllocatedBytes.Current
	if n == 1 {
		t.m.lossFirst = loss
	}
	if n <= first {
		t.m.liveFirst = live
	}
	t.m.lossLast, t.m.liveLast = loss, live
}

// tensorBytes is the size from which an object of Go's heap counts as a
// tensor's data, in bytes: headers and slices are smaller, and the pool's blocks
// are at least that large.
const tensorBytes = 512

// weighed does a step and counts the bytes of tensors that it takes: from the
// pool by its own counters, and from Go's heap by a profile of every allocation.
func (t *trainer) weighed(step func() error) error {
	defer func(rate int) { runtime.MemProfileRate = rate }(runtime.MemProfileRate)
	if t.m.records == nil {
		n, _ := runtime.MemProfile(nil, true)
		t.m.records = make([]runtime.MemProfileRecord, n+10_000)
	}
	fromGo, fromPool := t.m.heapBytes(), t.pool.Stats().All.AllocatedBytes.Allocated
	runtime.MemProfileRate = 1
	err := step()
	t.m.fromPool += t.pool.Stats().All.AllocatedBytes.Allocated - fromPool
	t.m.fromGo += t.m.heapBytes() - fromGo
	return err
}

// heapBytes returns the bytes in large objects that Go's heap profile has ever
// seen. It makes none itself.
func (m *measurement) heapBytes() (sum int64) {
	runtime.GC()
	runtime.GC() // publishes what was allocated before the first one
	n, _ := runtime.MemProfile(m.records, true)
	for _, r := range m.records[:min(n, len(m.records))] {
		if r.AllocObjects > 0 && r.AllocBytes/r.AllocObjects >= tensorBytes {
			sum += r.AllocBytes
		}
	}
	return sum
}

// A report is what -json prints.
type report struct {
	Device               string           `json:"device"`
	VM                   string           `json:"vm"`
	Net                  string           `json:"net"`
	TestAccuracy         float64          `json:"test_accuracy"`
	LossFirst            float64          `json:"loss_first"` // of the first step
	LossLast             float64          `json:"loss_last"`
	Steps                int              `json:"steps"`
	StepMicrosMedian     float64          `json:"step_us_median"`
	TapeStepMicrosMedian float64          `json:"tape_step_us_median,omitempty"` // the twin's, with -compare
	PoolByteShare        float64          `json:"pool_byte_share"`               // of the bytes of tensors that a step takes; 0: it takes none of the pool's, as with -graph
	LiveBytesFirst       int64            `json:"live_bytes_first"`              // after the first step, with -graph the second
	LiveBytesLast        int64            `json:"live_bytes_last"`
	PeakLiveBytes        int64            `json:"peak_live_bytes"`
	PeakReservedBytes    int64            `json:"peak_reserved_bytes"`
	LeakedBlocks         int64            `json:"leaked_blocks"`
	ForeignOps           map[string]int64 `json:"foreign_ops,omitempty"` // that Gorgonia computed on the CPU
	FallbackOps          int64            `json:"gpu_fallback_ops"`      // operations that the device left to the host

	// With -graph only.
	GraphSteps int64  `json:"graph_steps,omitempty"` // that were launched as CUDA graphs
	GraphError string `json:"graph_error,omitempty"` // why others were not
}

// report sums up a training whose tensors have all been freed.
func (t *trainer) report() report {
	pool := t.pool.Stats().All
	r := report{
		VM:                   t.o.vm,
		Net:                  t.o.net.name,
		TestAccuracy:         t.m.accuracy,
		LossFirst:            t.m.lossFirst,
		LossLast:             t.m.lossLast,
		Steps:                len(t.m.times),
		StepMicrosMedian:     training.MedianMicros(t.m.times),
		TapeStepMicrosMedian: training.MedianMicros(t.m.twinTimes),
		LiveBytesFirst:       t.m.liveFirst,
		LiveBytesLast:        t.m.liveLast,
		PeakLiveBytes:        pool.AllocatedBytes.Peak,
		PeakReservedBytes:    pool.ReservedBytes.Peak,
		LeakedBlocks:         pool.Allocation.Current,
		FallbackOps:          t.eng.Stats().Fallbacks,
	}
	if all := t.m.fromPool + t.m.fromGo; all > 0 {
		r.PoolByteShare = float64(t.m.fromPool) / float64(all)
	}
	if vm, ok := t.machine.vm.(*gorgoniavm.VM); ok {
		r.ForeignOps = vm.Fallbacks()
		r.addReplays(vm.Replays())
	}
	return r
}

func (r *report) addReplays(s gorgoniavm.ReplayStats) {
	r.GraphSteps = s.Launches
	if s.Err != nil {
		r.GraphError = s.Err.Error()
	}
}

// Print writes the summary for people.
func (r report) Print(w io.Writer) {
	fmt.Fprintf(w, "\ntest accuracy   %.2f %%\n", 100*r.TestAccuracy)
	fmt.Fprintf(w, "loss            %.4f in the first step, %.4f in the last\n", r.LossFirst, r.LossLast)
	fmt.Fprintf(w, "steps           %d, %.0f µs each (median)\n", r.Steps, r.StepMicrosMedian)
	if r.TapeStepMicrosMedian > 0 {
		fmt.Fprintf(w, "  stock         %.0f µs each, of the tape machine in Go's memory\n", r.TapeStepMicrosMedian)
	}
	if r.GraphSteps > 0 {
		fmt.Fprintf(w, "  CUDA graphs   %d of them\n", r.GraphSteps)
	}
	if r.GraphError != "" {
		fmt.Fprintf(w, "  no CUDA graph %s\n", r.GraphError)
	}
	fmt.Fprintln(w, "the pool")
	if r.PoolByteShare > 0 {
		fmt.Fprintf(w, "  share         %.2f %% of the bytes of tensors that a step takes\n", 100*r.PoolByteShare)
	}
	fmt.Fprintf(w, "  live          %d bytes after the first step, %d after the last, at most %d\n", r.LiveBytesFirst, r.LiveBytesLast, r.PeakLiveBytes)
	fmt.Fprintf(w, "  reserved      %.1f MiB\n", training.MiB(r.PeakReservedBytes))
	fmt.Fprintf(w, "  leaked        %d blocks\n", r.LeakedBlocks)
	for op, n := range r.ForeignOps {
		fmt.Fprintf(w, "  by Gorgonia   %s, %d times, on the CPU\n", op, n)
	}
}

// Leaked implements training.Report.
func (r report) Leaked() int64 { return r.LeakedBlocks }
