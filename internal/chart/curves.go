package chart

import (
	"io"
	"math"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// Measured is a measurement at X, which is positive: a median with the least
// and the largest.
type Measured struct {
	X, Median, Min, Max float64
}

// Curve is how something measured grows with X, on a logarithmic axis.
type Curve struct {
	Title, X, Y string // the axes' labels
	Points      []Measured
	Bound       float64 // drawn as a dashed line; 0: none
	BoundName   string
}

// Size of the picture of a curve.
const (
	curveWidth  = 16 * vg.Centimeter
	curveHeight = 8.5 * vg.Centimeter
)

// WriteCurve draws a curve into a file.
func WriteCurve(name string, c Curve) error {
	return writeFile(name, func(w io.Writer, format string) error {
		return render(w, format, curveWidth, curveHeight, func(canvas draw.Canvas) error { return c.draw(canvas) })
	})
}

func (k Curve) draw(canvas draw.Canvas) error {
	p := newPlot(k.X, k.Y)
	p.Title.Text = k.Title
	p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, powersOfTen{}
	p.Y.Tick.Marker = ticks{6}
	top := k.Bound
	line := make(plotter.XYs, len(k.Points))
	for i, m := range k.Points {
		line[i] = plotter.XY{X: m.X, Y: m.Median}
		top = max(top, m.Max)
	}
	p.Add(newGrid(), &plotter.Line{XYs: line, LineStyle: draw.LineStyle{Color: reservedLine, Width: vg.Points(1.6)}}, medians(k.Points))
	if len(line) > 0 {
		p.X.Min, p.X.Max = line[0].X/1.5, line[len(line)-1].X*1.5
	}
	p.Y.Min, p.Y.Max = 0, 1.2*max(top, 1)
	if k.Bound > 0 {
		p.Add(bound{k.Bound, k.BoundName})
	}
	p.Draw(draw.Crop(canvas, 4*vg.Millimeter, -6*vg.Millimeter, 4*vg.Millimeter, -3*vg.Millimeter))
	return nil
}

// medians marks every point, with its range and its value.
type medians []Measured

// Plot implements plot.Plotter.
func (ms medians) Plot(c draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&c)
	for _, m := range ms {
		at := vg.Point{X: x(m.X), Y: y(m.Median)}
		c.StrokeLine2(draw.LineStyle{Color: reservedLine, Width: vg.Points(1)}, at.X, y(m.Min), at.X, y(m.Max))
		c.DrawGlyph(draw.GlyphStyle{Color: reservedLine, Radius: vg.Points(2.6), Shape: draw.CircleGlyph{}}, at)
		label(c, vg.Point{X: at.X, Y: y(m.Max)}, number(m.Median), reservedLine, true)
	}
}

// bound is a dashed line over the whole width, with its name.
type bound struct {
	y    float64
	name string
}

// Plot implements plot.Plotter.
func (b bound) Plot(c draw.Canvas, p *plot.Plot) {
	_, y := p.Transforms(&c)
	dashed := draw.LineStyle{Color: referenceLine, Width: vg.Points(1.2), Dashes: []vg.Length{vg.Points(5), vg.Points(3)}}
	c.StrokeLine2(dashed, c.Min.X, y(b.y), c.Max.X, y(b.y))
	label(c, vg.Point{X: c.Min.X, Y: y(b.y)}, b.name, referenceLine, true)
}

// powersOfTen places a tick at each.
type powersOfTen struct{}

// Ticks implements plot.Ticker.
func (powersOfTen) Ticks(lo, hi float64) (out []plot.Tick) {
	for e := math.Ceil(math.Log10(lo)); e <= math.Log10(hi); e++ {
		out = append(out, plot.Tick{Value: math.Pow(10, e), Label: thousands(math.Pow(10, e))})
	}
	return out
}
