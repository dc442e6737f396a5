package chart

import (
	"fmt"
	"image/color"
	"io"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// Stack is the picture of what the memory of one trace is used for, with layers
// on top of each other.
type Stack struct {
	Title  string
	Note   string // behind the title
	Events int    // where the axis ends

	At     []int   // the events that the layers have values after, ascending
	Layers []Layer // from the bottom up; a colour for each place in the list

	Peak      int   // the event of the peak
	PeakBytes int64 // the sum of the layers there
}

// Layer is one use of memory. One that is always 0 is not drawn.
type Layer struct {
	Name  string
	Bytes []int64 // one for each of Stack.At
	Peak  int64   // bytes at the peak
}

// Sizes of the picture.
const (
	stackHeight  = 9.5 * vg.Centimeter
	stackWidth   = 32 * vg.Centimeter
	stackLegends = 10 * vg.Centimeter // to the right of the data
)

// layerColors are those of the layers, from the bottom up. They are told apart by
// people who see colours differently, too.
var layerColors = []color.RGBA{
	liveFill, requestedLine, {0x6e, 0x40, 0xc9, 0xff}, {0xc2, 0x9f, 0xf2, 0xff}, {0xe8, 0xb4, 0x2a, 0xff},
	{0xd9, 0x5f, 0x0e, 0xff}, {0x8c, 0x2d, 0x04, 0xff}, {0xf7, 0xa8, 0xb8, 0xff}, {0xd5, 0xda, 0xe0, 0xff},
	{0xd9, 0x5f, 0x0e, 0xff}, {0xd5, 0xda, 0xe0, 0xff}, {0x57, 0x60, 0x6a, 0xff}, {0x80, 0xb6, 0xf4, 0xff}, reservedLine,
}

// WriteStacks draws the stacks below one another into a file.
func WriteStacks(name string, stacks []Stack) error {
	height := stackHeight * vg.Length(max(len(stacks), 1))
	return writeFile(name, func(w io.Writer, format string) error {
		return render(w, format, stackWidth, height, func(c draw.Canvas) error { return drawStacks(c, stacks) })
	})
}

func drawStacks(c draw.Canvas, stacks []Stack) error {
	if len(stacks) == 0 {
		return nil
	}
	rows := make([][]*plot.Plot, len(stacks))
	for i := range stacks {
		rows[i] = []*plot.Plot{stacks[i].plot()}
	}
	tiles := draw.Tiles{Rows: len(rows), Cols: 1, PadY: 6 * vg.Millimeter, PadTop: 4 * vg.Millimeter, PadLeft: 4 * vg.Millimeter, PadBottom: 4 * vg.Millimeter}
	for i, row := range plot.Align(rows, tiles, draw.Crop(c, 0, -stackLegends, 0, 0)) {
		rows[i][0].Draw(row[0])
		drawTitle(row[0], rows[i][0], stacks[i].Title, stacks[i].Note)
		data := rows[i][0].DataCanvas(row[0])
		stacks[i].drawLegend(c, vg.Point{X: data.Max.X + 5*vg.Millimeter, Y: data.Max.Y})
	}
	return nil
}

// scaled returns the unit of the axis, and its bytes.
func (s *Stack) scaled() (unit string, scale float64) {
	if s.PeakBytes < 1<<29 {
		return "MiB", 1 << 20
	}
	return "GiB", 1 << 30
}

// plot makes a stack's plot.
func (s *Stack) plot() *plot.Plot {
	unit, scale := s.scaled()
	p := newPlot("events", unit)
	p.Title.Text = " " // its space; drawTitle writes there
	p.X.Tick.Marker, p.Y.Tick.Marker = ticks{6}, ticks{6}
	p.X.Min, p.X.Max = 0, float64(max(s.Events, 1))
	base, top := make([]float64, len(s.At)), s.PeakBytes
	for i, l := range s.Layers {
		if l.isEmpty() {
			continue
		}
		a := area{fill: layerColor(i)}
		for k, event := range s.At {
			above := base[k] + float64(l.Bytes[k])
			a.lower = append(a.lower, plotter.XY{X: float64(event), Y: base[k] / scale})
			a.upper = append(a.upper, plotter.XY{X: float64(event), Y: above / scale})
			base[k] = above
			top = max(top, int64(above))
		}
		p.Add(a)
	}
	p.Y.Min, p.Y.Max = 0, 1.12*float64(max(top, 1))/scale
	p.Add(newGrid(), stackPeak{s, unit, scale})
	return p
}

func (l *Layer) isEmpty() bool {
	for _, n := range l.Bytes {
		if n != 0 {
			return false
		}
	}
	return true
}

func layerColor(i int) color.Color { return layerColors[i%len(layerColors)] }

// area is what lies between two lines with the same X.
type area struct {
	lower, upper plotter.XYs
	fill         color.Color
}

// Plot implements plot.Plotter.
func (a area) Plot(c draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&c)
	var points []vg.Point
	for _, at := range a.upper {
		points = append(points, vg.Point{X: x(at.X), Y: y(at.Y)})
	}
	for i := len(a.lower) - 1; i >= 0; i-- {
		points = append(points, vg.Point{X: x(a.lower[i].X), Y: y(a.lower[i].Y)})
	}
	c.FillPolygon(a.fill, points)
}

// stackPeak marks the peak.
type stackPeak struct {
	*Stack
	unit  string
	scale float64
}

// Plot implements plot.Plotter.
func (k stackPeak) Plot(c draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&c)
	at := vg.Point{X: x(float64(k.Peak)), Y: y(float64(k.PeakBytes) / k.scale)}
	c.StrokeLine2(draw.LineStyle{Color: ink, Width: vg.Points(0.8), Dashes: []vg.Length{vg.Points(3), vg.Points(2)}}, at.X, c.Min.Y, at.X, at.Y)
	c.DrawGlyph(draw.GlyphStyle{Color: ink, Radius: vg.Points(2.6), Shape: draw.CircleGlyph{}}, at)
	label(c, at, fmt.Sprintf("%s %s reserved at event %s", number(float64(k.PeakBytes)/k.scale), k.unit, thousands(float64(k.Peak))), ink, true)
}

// drawLegend lists the layers, the highest first, with their bytes at the peak.
func (s *Stack) drawLegend(c draw.Canvas, at vg.Point) {
	style, bold := text(9, false, ink), text(9, true, ink)
	style.YAlign, bold.YAlign = draw.YCenter, draw.YCenter
	right := style
	right.XAlign = draw.XRight
	const swatch, row, edge = 5 * vg.Millimeter, 5.2 * vg.Millimeter, 6 * vg.Millimeter
	at.Y -= row / 2
	bold.XAlign = draw.XRight
	c.FillText(bold, vg.Point{X: c.Max.X - edge, Y: at.Y}, "at the peak, MiB")
	for i := len(s.Layers) - 1; i >= 0; i-- {
		l := &s.Layers[i]
		if l.isEmpty() {
			continue
		}
		at.Y -= row
		lo, hi := vg.Point{X: at.X, Y: at.Y - vg.Points(4)}, vg.Point{X: at.X + swatch, Y: at.Y + vg.Points(4)}
		c.FillPolygon(layerColor(i), []vg.Point{lo, {X: hi.X, Y: lo.Y}, hi, {X: lo.X, Y: hi.Y}})
		c.FillText(style, vg.Point{X: hi.X + 2*vg.Millimeter, Y: at.Y}, l.Name)
		c.FillText(right, vg.Point{X: c.Max.X - edge, Y: at.Y}, number(float64(l.Peak)/(1<<20)))
	}
}
