package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	"github.com/cupool/cupool/bench/internal/results"
)

// report is the table.
type report struct {
	Machine string `json:"machine"` // what the results say of it
	Rows    []line `json:"rows"`
}

// line is a row with its values; times are in ns.
type line struct {
	Work        string         `json:"work"`
	Ours        *results.Value `json:"ours,omitempty"`
	PyTorch     *results.Value `json:"pytorch,omitempty"`
	Async       *results.Value `json:"cuda_malloc_async,omitempty"`
	OverPyTorch float64        `json:"pytorch_over_ours,omitempty"` // ratio of the medians
	OverAsync   float64        `json:"cuda_malloc_async_over_ours,omitempty"`
	Goal        *float64       `json:"goal,omitempty"`
	Met         *bool          `json:"met,omitempty"`
}

func newReport(ours, pytorch, async *results.Results) report {
	r := report{Machine: machine(ours, pytorch, async)}
	for _, row := range rows {
		l := line{Work: row.work, Ours: ours.Find(row.ours)}
		if row.peer.Name != "" {
			l.PyTorch, l.Async = pytorch.Find(row.peer), async.Find(row.peer)
		}
		l.OverPyTorch, l.OverAsync = ratio(l.PyTorch, l.Ours), ratio(l.Async, l.Ours)
		if row.goal > 0 || row.zero {
			l.Goal = &row.goal
			if l.Ours != nil {
				met := l.Ours.Median <= row.goal
				l.Met = &met
			}
		}
		r.Rows = append(r.Rows, l)
	}
	return r
}

func ratio(peer, ours *results.Value) float64 {
	if peer == nil || ours == nil || ours.Median == 0 {
		return 0
	}
	return math.Round(100*peer.Median/ours.Median) / 100
}

// machine is a sentence on where the results come from.
func machine(sides ...*results.Results) string {
	var parts []string
	for _, key := range []string{"date", "gpu", "cpu"} {
		if v := sides[0].Setting(key); v != "" {
			parts = append(parts, v)
		}
	}
	for _, side := range sides[1:] {
		if v := side.Setting("peer"); v != "" {
			parts = append(parts, v)
		}
	}
	return strings.Join(parts, "; ")
}

func writeJSON(w io.Writer, r report) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(r)
}

func writeMarkdown(w io.Writer, r report) error {
	var s strings.Builder
	fmt.Fprintf(&s, "%s. Medians in ns, with the least and the largest.\n\n", cmp.Or(r.Machine, "An unknown machine"))
	s.WriteString("| work | ours | PyTorch | ÷ ours | cudaMallocAsync | ÷ ours | goal | |\n|---|---|---|---|---|---|---|---|\n")
	for _, l := range r.Rows {
		goal, verdict := "", ""
		if l.Goal != nil {
			goal = number(*l.Goal)
		}
		if l.Met != nil {
			verdict = map[bool]string{true: "met", false: "**missed**"}[*l.Met]
		}
		cells := []string{l.Work, summary(l.Ours), summary(l.PyTorch), times(l.OverPyTorch), summary(l.Async), times(l.OverAsync), goal, verdict}
		fmt.Fprintf(&s, "| %s |\n", strings.Join(cells, " | "))
	}
	_, err := io.WriteString(w, s.String())
	return err
}

// summary is the median and, where it differs, the range; nothing for nil.
func summary(v *results.Value) string {
	switch {
	case v == nil:
		return ""
	case number(v.Min) == number(v.Max):
		return number(v.Median)
	}
	return fmt.Sprintf("%s (%s–%s)", number(v.Median), number(v.Min), number(v.Max))
}

// times prints a ratio; 0 is none.
func times(ratio float64) string {
	if ratio == 0 {
		return ""
	}
	return number(ratio)
}

// number prints three digits, or all of those before the point with commas.
func number(v float64) string {
	if v < 99.95 {
		return strings.TrimSuffix(strconv.FormatFloat(v, 'f', 1, 64), ".0")
	}
	s := strconv.FormatFloat(v, 'f', 0, 64)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
