package main

import (
	"fmt"
	"io"
	"math"
	"text/tabwriter"
	"time"

	"github.com/cupool/cupool/cmd/internal/replay"
	"github.com/cupool/cupool/internal/bytesize"
	"github.com/cupool/cupool/internal/trace"
)

// replayRow is a trace's line in the table.
type replayRow struct {
	replay.Result
	t     *trace.Trace
	torch replay.TorchResult
}

func (r *replayRow) torchRatio() float64 {
	if r.PeakRequestedBytes == 0 {
		return 1
	}
	return float64(r.torch.PeakReservedBytes) / float64(r.PeakRequestedBytes)
}

// note sums a replay up for its plot.
func (r *replayRow) note() string {
	if r.FailedAllocs > 0 {
		return fmt.Sprintf("%s, %s: %d allocations failed (PyTorch default: %d)", r.Backing, r.Strategy, r.FailedAllocs, r.torch.FailedAllocs)
	}
	torch := fmt.Sprintf("%.3f ×", r.torchRatio())
	if r.torch.FailedAllocs > 0 {
		torch = fmt.Sprintf("%d allocations failed", r.torch.FailedAllocs)
	}
	return fmt.Sprintf("%s, %s: peak reserved = %.3f × peak requested (PyTorch default: %s)", r.Backing, r.Strategy, r.Ratio, torch)
}

// newTable writes rows, of cells that end in a tab, with aligned columns.
func newTable(w io.Writer) *tabwriter.Writer {
	return tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
}

// printReplays prints the table for people.
func printReplays(out io.Writer, rows []replayRow) error {
	fmt.Fprintf(out, "%s, %s, on %s; the last two columns are a model of PyTorch's default\n\n", rows[0].Backing, rows[0].Strategy, rows[0].Device)
	w := newTable(out)
	fmt.Fprint(w, "trace\tevents\tpeak requested\treserved\tratio\tdriver allocs\tfrees\tdriver time\tns per event\tfailed\tratio\tdriver time\t\n")
	var logs, torchLogs, n float64
	for _, r := range rows {
		fmt.Fprintf(w, "%s\t%d\t%s\t%s\t%.3f\t%d\t%d\t%s\t%.0f\t%d\t%.3f\t%s\t\n",
			shortName(r.Trace), r.Events, bytesize.Format(r.PeakRequestedBytes), bytesize.Format(r.PeakReservedBytes), r.Ratio,
			r.DriverAllocs, r.DriverFrees, driverTime(r.DriverUsModelled), r.NsPerEvent, r.FailedAllocs,
			r.torchRatio(), driverTime(r.torch.DriverUsModelled))
		if r.FailedAllocs+r.torch.FailedAllocs > 0 { // its ratios are of what was left
			continue
		}
		n++
		logs += math.Log(r.Ratio)
		torchLogs += math.Log(r.torchRatio())
	}
	if n > 1 {
		of := ""
		if all := float64(len(rows)); n < all {
			of = fmt.Sprintf(" of %.0f", n)
		}
		fmt.Fprintf(w, "geometric mean%s\t\t\t\t%.3f\t\t\t\t\t\t%.3f\t\t\n", of, math.Exp(logs/n), math.Exp(torchLogs/n))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for i := range rows {
		rows[i].writeRemarks(out)
	}
	for i := range rows {
		if rows[i].Explanation == nil {
			continue
		}
		if err := rows[i].writeExplanation(out); err != nil {
			return err
		}
	}
	return nil
}

func driverTime(us float64) time.Duration {
	return time.Duration(us * float64(time.Microsecond)).Round(time.Microsecond)
}

// writeRemarks prints what the table has no room for.
func (r *replayRow) writeRemarks(w io.Writer) {
	name := shortName(r.Trace)
	if r.FailedAllocs > 0 {
		fmt.Fprintf(w, "%s: %d of %d allocations failed, the first at event %d (by PyTorch's default: %d)\n  %v\n",
			name, r.FailedAllocs, r.t.Blocks, r.FirstFailed, r.torch.FailedAllocs, r.Failure)
	} else if r.torch.FailedAllocs > 0 {
		fmt.Fprintf(w, "%s: by PyTorch's default %d of %d allocations failed\n", name, r.torch.FailedAllocs, r.t.Blocks)
	}
	if r.Checked > 0 {
		fmt.Fprintf(w, "%s: contents of %d blocks checked\n", name, r.Checked)
	}
	if r.t.Failed > 0 {
		fmt.Fprintf(w, "%s: allocations that failed when this was recorded, which are left out: %d\n", name, r.t.Failed)
	}
	if r.t.Skipped > 0 {
		fmt.Fprintf(w, "%s: frees of blocks from before the recording began, which are left out: %d\n", name, r.t.Skipped)
	}
}

// writeExplanation prints where the memory is that is reserved and not
// requested. Reasons that there are no bytes for are left out.
func (r *replayRow) writeExplanation(out io.Writer) error {
	e := r.Explanation
	asked := "before the first event"
	if e.Event > 0 {
		asked = fmt.Sprintf("at event %d, which asks for %s on stream %d", e.Event, bytesize.Format(e.Asked), e.Stream)
	}
	fmt.Fprintf(out, "\n%s: %s, %s are reserved and %s requested\n\n", shortName(r.Trace), asked, bytesize.Format(e.Reserved), bytesize.Format(e.Requested))
	percent := func(bytes int64) float64 { return 100 * float64(bytes) / float64(max(e.Reserved, 1)) }
	w := newTable(out)
	fmt.Fprint(w, "the difference\tbytes\tof reserved\tpieces\tlargest\t\n")
	for _, l := range e.Lost {
		switch {
		case l.Bytes == 0:
		case l.Pieces == 0: // they are not known inside a plan
			fmt.Fprintf(w, "%s\t%s\t%.2f %%\t\t\t\n", l.Reason, bytesize.Format(l.Bytes), percent(l.Bytes))
		default:
			fmt.Fprintf(w, "%s\t%s\t%.2f %%\t%d\t%s\t\n", l.Reason, bytesize.Format(l.Bytes), percent(l.Bytes), l.Pieces, bytesize.Format(l.Largest))
		}
	}
	fmt.Fprintf(w, "together\t%s\t%.2f %%\t\t\t\n", bytesize.Format(e.Reserved-e.Requested), percent(e.Reserved-e.Requested))
	return w.Flush()
}
