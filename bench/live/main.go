// Live draws how the time of a step of BenchmarkLive grows with the number of
// live blocks, over that of BenchmarkLiveLooks, from what "go test -bench" prints:
//
//	go run ./bench/live PICTURE <RESULTS
//
// PICTURE ends in .svg or .png.
package main

import (
	"bufio"
	"errors"
	"fmt"
	"image/color"
	"io"
	"os"
	"slices"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"

	"github.com/cupool/cupool/bench/internal/picture"
)

func main() {
	if err := run(os.Args[1:], os.Stdin); err != nil {
		fmt.Fprintf(os.Stderr, "live: %v\n", err)
		os.Exit(1)
	}
}

func run(args []string, in io.Reader) error {
	if len(args) != 1 {
		return errors.New("usage: live PICTURE <RESULTS")
	}
	steps, looks, err := read(in)
	if err != nil {
		return err
	}
	if len(steps) == 0 {
		return errors.New("no result of BenchmarkLive")
	}
	p := plot.New()
	p.Title.Text = "Free a block, allocate another"
	p.X.Label.Text, p.Y.Label.Text = "live blocks", "ns"
	p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
	p.Legend.Top, p.Legend.Left = true, true
	p.Add(plotter.NewGrid())
	for _, c := range []struct {
		name   string
		points plotter.XYs
		color  color.Color
	}{
		{"a step", steps, color.RGBA{0x09, 0x52, 0xb5, 0xff}},
		{"to look at its two cache lines, alone", looks, color.RGBA{0x8b, 0x94, 0x9e, 0xff}},
	} {
		if len(c.points) == 0 {
			continue
		}
		line, dots, err := plotter.NewLinePoints(c.points)
		if err != nil {
			return err
		}
		line.Color, dots.Color = c.color, c.color
		p.Add(line, dots)
		p.Legend.Add(c.name, line)
	}
	p.Y.Min = 0
	return picture.Write(p, 16*vg.Centimeter, 9*vg.Centimeter, args[0])
}

// read returns the median of each benchmark by its number of live blocks.
func read(in io.Reader) (steps, looks plotter.XYs, err error) {
	times := map[string]map[float64][]float64{}
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		var name string
		var blocks, runs, ns float64
		line := strings.Replace(lines.Text(), "/blocks=", " ", 1)
		line = strings.Replace(line, "-", " -", 1) // the number of processors
		var procs int
		if n, _ := fmt.Sscan(line, &name, &blocks, &procs, &runs, &ns); n < 5 {
			continue
		}
		if times[name] == nil {
			times[name] = map[float64][]float64{}
		}
		times[name][blocks] = append(times[name][blocks], ns)
	}
	return medians(times["BenchmarkLive"]), medians(times["BenchmarkLiveLooks"]), lines.Err()
}

func medians(times map[float64][]float64) (points plotter.XYs) {
	for blocks, ns := range times {
		slices.Sort(ns)
		points = append(points, plotter.XY{X: blocks, Y: ns[len(ns)/2]})
	}
	slices.SortFunc(points, func(a, b plotter.XY) int { return int(a.X - b.X) })
	return points
}
