package chart

import (
	"image/color"
	"io"
	"math"
	"slices"

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

// Series is a curve's points, by X, with a name for the legend.
type Series struct {
	Name   string
	Points []Measured
}

// Curve is how something measured grows with X, on a logarithmic axis.
type Curve struct {
	Title, X, Y string // the axes' labels
	Series
	Floor     Series  // what it cannot go below, from the same X on; may be empty
	Bound     float64 // drawn as a dashed line; 0: none
	BoundName string
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
	p.Add(newGrid())
	top := max(k.Bound, 1)
	for _, m := range slices.Concat(k.Points, k.Floor.Points) {
		top = max(top, m.Max)
	}
	p.Legend.Top, p.Legend.Left, p.Legend.Padding = true, true, vg.Points(2)
	p.Legend.TextStyle = text(9, false, ink)
	addSeries(p, k.Series, reservedLine, true)
	addSeries(p, k.Floor, referenceLine, false)
	if n := len(k.Points); n > 0 {
		p.X.Min, p.X.Max = k.Points[0].X/1.5, k.Points[n-1].X*1.5
	}
	p.Y.Min, p.Y.Max = 0, 1.2*top
	if k.Bound > 0 {
		p.Add(bound{k.Bound, k.BoundName})
	}
	p.Draw(draw.Crop(canvas, 4*vg.Millimeter, -6*vg.Millimeter, 4*vg.Millimeter, -3*vg.Millimeter))
	return nil
}

// addSeries joins the medians by a line, and has it in the legend.
func addSeries(p *plot.Plot, s Series, c color.Color, above bool) {
	if len(s.Points) == 0 {
		return
	}
	line := &plotter.Line{LineStyle: draw.LineStyle{Color: c, Width: vg.Points(1.6)}}
	for _, m := range s.Points {
		line.XYs = append(line.XYs, plotter.XY{X: m.X, Y: m.Median})
	}
	p.Add(line, medians{s.Points, c, above})
	p.Legend.Add(s.Name, line)
}

// medians marks every point, with its range and its value.
type medians struct {
	points []Measured
	color  color.Color
	above  bool // the values are above the points
}

// Plot implements plot.Plotter.
func (ms medians) Plot(c draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&c)
	for _, m := range ms.points {
		at, end := vg.Point{X: x(m.X), Y: y(m.Median)}, m.Max
		if !ms.above {
			end = m.Min
		}
		c.StrokeLine2(draw.LineStyle{Color: ms.color, Width: vg.Points(1)}, at.X, y(m.Min), at.X, y(m.Max))
		c.DrawGlyph(draw.GlyphStyle{Color: ms.color, Radius: vg.Points(2.6), Shape: draw.CircleGlyph{}}, at)
		label(c, vg.Point{X: at.X, Y: y(end)}, number(m.Median), ms.color, ms.above)
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
