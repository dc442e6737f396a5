package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"

	"github.com/cupool/cupool/cmd/internal/printable"
	"github.com/cupool/cupool/internal/bytesize"
	"github.com/cupool/cupool/snapshot"
)

// place returns the line of the program that a stack is about: the first that is
// not a library's.
func place(s snapshot.Stack) string {
	if len(s) == 0 {
		return "(no stack)"
	}
	f := s.Program()[0]
	return fmt.Sprintf("%s:%d %s", f.File, f.Line, f.Function)
}

// print writes the tables for people.
func (d *diff) print(w io.Writer, before, after string, top int) error {
	return errors.Join(
		d.printTotals(w, before, after),
		printChanges(w, "label", d.Labels, top, func(c *change) string { return cmp.Or(c.Label, "(no label)") }),
		printChanges(w, "allocated at", d.places, top, func(c *change) string { return place(c.Stack) }),
		printChanges(w, "size", d.Sizes, top, func(c *change) string { return bytesize.Format(c.Size) }),
		printSegments(w, d.Segments, top),
	)
}

func (d *diff) printTotals(out io.Writer, before, after string) error {
	w := newTable(out)
	fmt.Fprintf(w, "\t%s\t%s\tchange\t\n", before, after)
	a, b := d.Before, d.After
	for _, row := range []struct {
		name string
		a, b int64
	}{{"reserved", a.Reserved, b.Reserved}, {"live", a.Live, b.Live}, {"pending", a.Pending, b.Pending}, {"cached", a.Cached, b.Cached}} {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t\n", row.name, bytesize.Format(row.a), bytesize.Format(row.b), grown(row.b-row.a))
	}
	fmt.Fprintf(w, "blocks\t%d\t%d\t%+d\t\n", a.Blocks, b.Blocks, b.Blocks-a.Blocks)
	fmt.Fprintf(w, "segments\t%d\t%d\t%+d\t\n", a.Segments, b.Segments, b.Segments-a.Segments)
	return w.Flush()
}

// grown prints a change of bytes.
func grown(bytes int64) string {
	if bytes > 0 {
		return "+" + bytesize.Format(bytes)
	}
	return bytesize.Format(bytes)
}

// printChanges prints the largest changes, of growth and of what shrank.
func printChanges(out io.Writer, title string, list []change, top int, name func(*change) string) error {
	if len(list) == 0 {
		return nil
	}
	w := newTable(out)
	fmt.Fprintf(w, "\nby %s\tbytes\tchange\tblocks\tchange\t\n", title)
	for _, c := range largest(list, top, (*change).bytes) {
		fmt.Fprintf(w, "%s\t%s\t%s\t%.0f\t%+.0f\t\n", printable.Line(name(&c)), bytesize.Format(whole(c.After.Bytes)), grown(whole(c.bytes())), c.After.Blocks, c.blocks())
	}
	return errors.Join(w.Flush(), leftOut(out, len(list)-top))
}

func printSegments(out io.Writer, list []segmentChange, top int) error {
	if len(list) == 0 {
		return nil
	}
	w := newTable(out)
	fmt.Fprint(w, "\nby segment\tbytes\tchange\t\t\n")
	for _, s := range largest(list, top, func(s *segmentChange) float64 { return float64(s.After - s.Before) }) {
		what := ""
		switch {
		case s.Before == 0:
			what = "new"
		case s.After == 0:
			what = "gone"
		}
		name := fmt.Sprintf("%v %s", s.Address, s.Type)
		if s.Pool != "" {
			name += " of pool " + s.Pool
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t\n", printable.Line(name), bytesize.Format(s.After), grown(s.After-s.Before), what)
	}
	return errors.Join(w.Flush(), leftOut(out, len(list)-top))
}

// leftOut says how many lines a table has no room for.
func leftOut(out io.Writer, n int) error {
	if n <= 0 {
		return nil
	}
	_, err := fmt.Fprintf(out, "and %d more with less change (-top)\n", n)
	return err
}

// largest returns the n largest changes of a list in their order.
func largest[T any](list []T, n int, change func(*T) float64) []T {
	if len(list) <= n {
		return list
	}
	sizes := make([]float64, len(list))
	for i := range list {
		sizes[i] = math.Abs(change(&list[i]))
	}
	slices.Sort(sizes)
	least := sizes[len(sizes)-n]
	var out []T
	for i := range list {
		if len(out) < n && math.Abs(change(&list[i])) >= least {
			out = append(out, list[i])
		}
	}
	return out
}

// whole rounds a sum, of which a stranger's file may claim more than an int64 holds.
func whole(f float64) int64 {
	switch {
	case f >= math.MaxInt64:
		return math.MaxInt64
	case f <= -math.MaxInt64:
		return -math.MaxInt64
	}
	return int64(math.Round(f))
}
