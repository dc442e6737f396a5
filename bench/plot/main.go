// Plot draws how the time of a step of BenchmarkLive grows with the number of
// live blocks, over that of BenchmarkLiveLooks:
//
//	plot PICTURE RESULTS
//
// PICTURE ends in .svg or .png; the results are what Go's benchmarks print.
package main

import (
	"errors"
	"fmt"
	"math"
	"os"

	"github.com/cupool/cupool/bench/internal/results"
	"github.com/cupool/cupool/internal/chart"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintf(os.Stderr, "plot: %v\n", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) < 2 {
		return errors.New("usage: plot PICTURE RESULTS")
	}
	r, err := results.ReadFiles(args[1:]...)
	if err != nil {
		return err
	}
	points := steps(r, "Live")
	if len(points) == 0 {
		return fmt.Errorf("%v: no result of BenchmarkLive", args[1:])
	}
	return chart.WriteCurve(args[0], chart.Curve{
		Title:     "Free a block, allocate another",
		X:         "live blocks",
		Y:         "ns",
		Series:    chart.Series{Name: "a step", Points: points},
		Floor:     chart.Series{Name: "to look at its two cache lines, alone", Points: steps(r, "LiveLooks")},
		Bound:     2 * points[0].Median,
		BoundName: "goal: at most twice the first",
	})
}

// steps returns the times of a benchmark by powers of ten of live blocks.
func steps(r *results.Results, name string) (points []chart.Measured) {
	for exp := range 10 {
		v := r.Find(results.Metric{Name: fmt.Sprintf("%s/blocks=1e%d", name, exp), Unit: "ns/op"})
		if v != nil {
			points = append(points, chart.Measured{X: math.Pow10(exp), Median: v.Median, Min: v.Min, Max: v.Max})
		}
	}
	return points
}
