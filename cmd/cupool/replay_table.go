package main

import (
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/cupool/cupool/cmd/internal/replay"
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
	s := fmt.Sprintf("%s, %s: peak reserved = %.3f × peak requested (PyTorch default: %.3f ×)", r.Backing, r.Strategy, r.Ratio, r.torchRatio())
	if r.FailedAllocs > 0 {
		s = fmt.Sprintf("%s, %s: %s allocations failed (PyTorch default: %s)", r.Backing, r.Strategy, comma(r.FailedAllocs), comma(r.torch.FailedAllocs))
	}
	return s
}

// printReplays prints the table for people.
func printReplays(w io.Writer, rows []replayRow) error {
	cells := [][]string{
		{"", "", "peak", "peak", "", "driver", "driver", "driver", "ns per", "failed", "PyTorch's default:", ""},
		{"trace", "events", "requested", "reserved", "ratio", "allocs", "frees", "time", "event", "allocs", "ratio", "driver time"},
	}
	var logs, torchLogs float64
	for _, r := range rows {
		cells = append(cells, []string{
			shortName(r.Trace), comma(int64(r.Events)), size(r.PeakRequestedBytes), size(r.PeakReservedBytes), ratio(r.Ratio),
			comma(r.DriverAllocs), comma(r.DriverFrees), micros(r.DriverUsModelled), fmt.Sprintf("%.0f", r.NsPerEvent), comma(r.FailedAllocs),
			ratio(r.torchRatio()), micros(r.torch.DriverUsModelled),
		})
		logs += math.Log(r.Ratio)
		torchLogs += math.Log(r.torchRatio())
	}
	if n := float64(len(rows)); n > 1 {
		mean := make([]string, len(cells[0]))
		mean[0], mean[4], mean[10] = "geometric mean", ratio(math.Exp(logs/n)), ratio(math.Exp(torchLogs/n))
		cells = append(cells, mean)
	}
	first := &rows[0]
	if _, err := fmt.Fprintf(w, "%s, %s, on %s\n\n", first.Backing, first.Strategy, first.Device); err != nil {
		return err
	}
	if err := writeCells(w, cells); err != nil {
		return err
	}
	for i := range rows {
		if err := rows[i].writeRemarks(w); err != nil {
			return err
		}
	}
	for i := range rows {
		if rows[i].Explanation == nil {
			continue
		}
		if err := rows[i].writeExplanation(w); err != nil {
			return err
		}
	}
	return nil
}

// writeRemarks prints what the table has no room for.
func (r *replayRow) writeRemarks(w io.Writer) error {
	var remarks []string
	if r.FailedAllocs > 0 {
		remarks = append(remarks, fmt.Sprintf("%s of %s allocations failed, the first at event %s (by PyTorch's default: %s)\n  %v",
			comma(r.FailedAllocs), comma(int64(r.t.Blocks)), comma(int64(r.FirstFailed)), comma(r.torch.FailedAllocs), r.Failure))
	}
	if r.Checked > 0 {
		remarks = append(remarks, fmt.Sprintf("contents of %s blocks checked", comma(r.Checked)))
	}
	if r.t.Failed > 0 {
		remarks = append(remarks, plural(r.t.Failed, "allocation")+" that failed when this was recorded: left out")
	}
	if r.t.Skipped > 0 {
		remarks = append(remarks, plural(r.t.Skipped, "free")+" of blocks from before the recording began: left out")
	}
	for _, s := range remarks {
		if _, err := fmt.Fprintf(w, "%s: %s\n", shortName(r.Trace), s); err != nil {
			return err
		}
	}
	return nil
}

// writeExplanation prints where the memory is that is reserved and not
// requested. Reasons that there are no bytes for are left out.
func (r *replayRow) writeExplanation(w io.Writer) error {
	e := r.Explanation
	asked := "before the first event"
	if e.Event > 0 {
		asked = fmt.Sprintf("at event %s, which asks for %s on stream %d", comma(int64(e.Event)), size(e.Asked), e.Stream)
	}
	lost := e.Reserved - e.Requested
	if _, err := fmt.Fprintf(w, "\n%s: %s, %s are reserved and %s requested\n\n", shortName(r.Trace), asked, size(e.Reserved), size(e.Requested)); err != nil {
		return err
	}
	cells := [][]string{{"the difference", "bytes", "of reserved", "pieces", "largest"}}
	for _, l := range e.Lost {
		row := []string{e.Text(l.Reason), size(l.Bytes), percent(l.Bytes, e.Reserved), "", ""}
		if l.Pieces > 0 { // they are not known inside a plan
			row[3], row[4] = comma(l.Pieces), size(l.Largest)
		}
		if l.Bytes > 0 {
			cells = append(cells, row)
		}
	}
	cells = append(cells, []string{"together", size(lost), percent(lost, e.Reserved), "", ""})
	return writeCells(w, cells)
}

// writeCells prints rows with aligned columns: the first to the left, the
// others to the right.
func writeCells(w io.Writer, rows [][]string) error {
	widths := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			if !strings.HasSuffix(cell, ":") { // a heading of several columns
				widths[i] = max(widths[i], utf8.RuneCountInString(cell))
			}
		}
	}
	for _, row := range rows {
		var line strings.Builder
		for i, cell := range row {
			pad := strings.Repeat(" ", max(0, widths[i]-utf8.RuneCountInString(cell)))
			switch {
			case i == 0:
				line.WriteString(cell + pad)
			case strings.HasSuffix(cell, ":"):
				line.WriteString("  " + cell)
			default:
				line.WriteString("  " + pad + cell)
			}
		}
		if _, err := fmt.Fprintln(w, strings.TrimRight(line.String(), " ")); err != nil {
			return err
		}
	}
	return nil
}

// size prints bytes in binary units, with four digits.
func size(n int64) string {
	v, unit := float64(n), "B"
	for _, u := range []string{"KiB", "MiB", "GiB", "TiB"} {
		if v < 1024 {
			break
		}
		v, unit = v/1024, u
	}
	switch {
	case unit == "B":
		return fmt.Sprintf("%d B", n)
	case v < 10:
		return fmt.Sprintf("%.3f %s", v, unit)
	case v < 100:
		return fmt.Sprintf("%.2f %s", v, unit)
	}
	return fmt.Sprintf("%.1f %s", v, unit)
}

func plural(n int, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return comma(int64(n)) + " " + noun
}

func percent(part, of int64) string {
	return fmt.Sprintf("%.2f %%", 100*float64(part)/float64(max(of, 1)))
}

func ratio(v float64) string { return fmt.Sprintf("%.3f", v) }

// micros prints a time that is given in microseconds.
func micros(us float64) string {
	d := time.Duration(us * float64(time.Microsecond))
	switch {
	case d >= 100*time.Millisecond:
		return fmt.Sprintf("%.2f s", d.Seconds())
	case d >= time.Millisecond:
		return fmt.Sprintf("%.1f ms", d.Seconds()*1e3)
	}
	return fmt.Sprintf("%.0f µs", us)
}

// comma prints a number with a comma between thousands.
func comma(n int64) string {
	s := strconv.FormatInt(n, 10)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
