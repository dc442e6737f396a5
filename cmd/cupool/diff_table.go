package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"

	"github.com/cupool/cupool/cmd/cupool/internal/own"
	"github.com/cupool/cupool/snapshot"
)

// place returns the line of the program that a stack is about: the first that is
// not a library's.
func place(s snapshot.Stack) string {
	if len(s) == 0 {
		return "(no stack)"
	}
	f := own.Of(s)[0]
	return fmt.Sprintf("%s:%d %s", f.File, f.Line, f.Function)
}

// print writes the tables for people.
func (d *diff) print(w io.Writer, before, after string, top int) error {
	return errors.Join(
		d.printTotals(w, before, after),
		printChanges(w, "label", d.Labels, top, func(c *change) string { return cmp.Or(c.Label, "(no label)") }),
		printChanges(w, "allocated at", d.Stacks, top, func(c *change) string { return place(c.Stack) }),
		printChanges(w, "size", d.Sizes, top, func(c *change) string { return size(c.Size) }),
		printSegments(w, d.Segments, top),
	)
}

func (d *diff) printTotals(w io.Writer, before, after string) error {
	cells := [][]string{{"", before, after, "change"}}
	for _, row := range []struct {
		name string
		a, b int64
		text func(int64) string
	}{
		{"reserved", d.Before.Reserved, d.After.Reserved, size}, {"live", d.Before.Live, d.After.Live, size},
		{"pending", d.Before.Pending, d.After.Pending, size}, {"cached", d.Before.Cached, d.After.Cached, size},
		{"blocks", d.Before.Blocks, d.After.Blocks, comma}, {"segments", d.Before.Segments, d.After.Segments, comma},
	} {
		cells = append(cells, []string{row.name, row.text(row.a), row.text(row.b), signed(row.b-row.a, row.text)})
	}
	return writeCells(w, cells)
}

// signed prints a change; "0" is none.
func signed(n int64, text func(int64) string) string {
	switch {
	case n > 0:
		return "+" + text(n)
	case n < 0:
		return "-" + text(-n)
	}
	return "0"
}

// printChanges prints the largest changes, of growth and of what shrank.
func printChanges(w io.Writer, title string, list []change, top int, name func(*change) string) error {
	cells := [][]string{{"by " + title, "bytes", "change", "blocks", "change"}}
	for _, c := range largest(list, top, (*change).bytes) {
		cells = append(cells, []string{name(&c), size(whole(c.After.Bytes)), signed(whole(c.bytes()), size), comma(whole(c.After.Blocks)), signed(whole(c.blocks()), comma)})
	}
	return printTable(w, cells, len(list))
}

func printSegments(w io.Writer, list []segmentChange, top int) error {
	cells := [][]string{{"by segment", "bytes", "change", ""}}
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
		cells = append(cells, []string{name, size(s.After), signed(s.After-s.Before, size), what})
	}
	return printTable(w, cells, len(list))
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

func whole(f float64) int64 { return int64(math.Round(f)) }

// printTable prints a table after an empty line, unless it is empty, and how many
// of its lines were left out.
func printTable(w io.Writer, cells [][]string, of int) error {
	if of == 0 {
		return nil
	}
	if _, err := fmt.Fprintln(w); err != nil {
		return err
	}
	if err := writeCells(w, cells); err != nil {
		return err
	}
	if n := of + 1 - len(cells); n > 0 {
		_, err := fmt.Fprintf(w, "and %s more with less change (-top)\n", comma(int64(n)))
		return err
	}
	return nil
}
