package main

import (
	"image/color"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"

	"github.com/cupool/cupool/bench/internal/picture"
)

// draw writes a picture of the programs' ratios with PyTorch's allocators and with
// cupool's virtual memory.
func draw(rows []program, file string) error {
	p := plot.New()
	p.Title.Text = "Memory reserved, for each byte that a program requests at its peak"
	p.Title.Padding = 3 * vg.Millimeter
	p.Legend.Top, p.Legend.Left, p.Legend.Padding = true, true, vg.Millimeter
	var names []string
	for _, r := range rows {
		names = append(names, r.name)
	}
	p.NominalX(names...)
	width := 9 * vg.Millimeter / 2
	for i, c := range []struct {
		name  string
		ratio func(program) float64
		color color.Color
	}{
		{"PyTorch", func(r program) float64 { return r.byDefault }, color.RGBA{0x8b, 0x94, 0x9e, 0xff}},
		{"PyTorch, expandable segments", func(r program) float64 { return r.expandable }, color.RGBA{0xc9, 0xd1, 0xd9, 0xff}},
		{"cupool", func(r program) float64 { return r.replays["vmm"].Ratio }, color.RGBA{0x09, 0x52, 0xb5, 0xff}},
	} {
		var ratios plotter.Values
		for _, r := range rows {
			ratios = append(ratios, c.ratio(r))
		}
		bars, err := plotter.NewBarChart(ratios, width)
		if err != nil {
			return err
		}
		bars.Color, bars.LineStyle.Width = c.color, 0
		bars.Offset = vg.Length(i-1) * width
		p.Add(bars)
		p.Legend.Add(c.name, bars)
	}
	p.X.Min, p.X.Max, p.Y.Min = -0.6, float64(len(rows))-0.4, 0
	one := plotter.NewFunction(func(float64) float64 { return 1 })
	one.Dashes = []vg.Length{vg.Points(3), vg.Points(3)}
	p.Add(one)
	return picture.Write(p, 20*vg.Centimeter, 8*vg.Centimeter, file)
}
