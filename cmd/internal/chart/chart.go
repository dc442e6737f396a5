// Package chart draws the memory of replayed traces over time, as SVG or PNG, with
// gonum's plots.
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

// Point is a number of bytes after an event.
type Point struct {
	Event int
	Bytes int64
}

// Panel is the picture of one trace.
type Panel struct {
	Title  string
	Note   string // behind the title
	Events int    // where the axis ends

	Requested []Point // by the program
	Live      []Point // in the allocator's blocks
	Reserved  []Point // from the device; holds until the next point
	Reference []Point // the same of the allocator compared with; may be empty

	PeakRequested, PeakReserved int64 // bytes
}

// Reference names what Panel.Reference shows.
const Reference = "reserved by PyTorch's default allocator (model)"

// Sizes of the picture.
const (
	width       = 26 * vg.Centimeter
	panelHeight = 8.5 * vg.Centimeter
	legendSpace = 1.1 * vg.Centimeter
	dpi         = 110
)

// Colours: what is used is green, what is reserved for it blue, and the
// allocator compared with stays in the background.
var (
	ink           = color.RGBA{0x24, 0x29, 0x2f, 0xff}
	faint         = color.RGBA{0xe3, 0xe6, 0xea, 0xff}
	requestedLine = color.RGBA{0x1a, 0x7f, 0x37, 0xff}
	liveFill      = color.RGBA{0xb4, 0xdf, 0xc0, 0xff}
	reservedLine  = color.RGBA{0x09, 0x52, 0xb5, 0xff}
	reservedFill  = color.RGBA{0xdd, 0xeb, 0xfb, 0xff}
	referenceLine = color.RGBA{0x8b, 0x94, 0x9e, 0xff}
)

// Write draws the panels below one another into a file.
func Write(name string, panels []Panel) error {
	return writeFile(name, func(w io.Writer, format string) error { return Draw(w, format, panels) })
}

// Draw is Write to a writer; the format is ".svg" or ".png".
func Draw(w io.Writer, format string, panels []Panel) error {
	height := panelHeight*vg.Length(len(panels)) + legendSpace
	return render(w, format, width, height, func(c draw.Canvas) error { return drawPanels(c, height, panels) })
}

func drawPanels(c draw.Canvas, height vg.Length, panels []Panel) error {
	rows := make([][]*plot.Plot, len(panels))
	withReference := false
	for i := range panels {
		p, err := panels[i].plot()
		if err != nil {
			return err
		}
		rows[i] = []*plot.Plot{p}
		withReference = withReference || len(panels[i].Reference) > 0
	}
	drawLegend(draw.Crop(c, 0, 0, height-legendSpace, 0), withReference)
	tiles := draw.Tiles{Rows: len(rows), Cols: 1, PadY: 6 * vg.Millimeter, PadLeft: 4 * vg.Millimeter, PadRight: 8 * vg.Millimeter, PadBottom: 4 * vg.Millimeter}
	for i, row := range plot.Align(rows, tiles, draw.Crop(c, 0, 0, 0, -legendSpace)) {
		rows[i][0].Draw(row[0])
		drawTitle(row[0], rows[i][0], panels[i].Title, panels[i].Note)
	}
	return nil
}

// plot makes a panel's plot.
func (panel *Panel) plot() (*plot.Plot, error) {
	unit, scale := "GiB", float64(1<<30)
	if panel.PeakReserved < 1<<29 {
		unit, scale = "MiB", 1<<20
	}
	p := newPlot("events", unit)
	p.Title.Text = " " // its space; drawTitle writes there
	p.X.Tick.Marker, p.Y.Tick.Marker = ticks{8}, ticks{6}
	p.X.Min, p.X.Max = 0, float64(max(panel.Events, 1))

	top := panel.PeakReserved
	for _, r := range panel.Reference {
		top = max(top, r.Bytes)
	}
	p.Y.Min, p.Y.Max = 0, 1.12*float64(max(top, 1))/scale

	reserved := line(steps(panel.Reserved, panel.Events), scale, 1.6, reservedLine)
	reserved.FillColor = reservedFill
	reference := line(steps(panel.Reference, panel.Events), scale, 1.2, referenceLine)
	reference.Dashes = []vg.Length{vg.Points(5), vg.Points(3)}
	live := line(panel.Live, scale, 0, nil)
	live.FillColor = liveFill
	p.Add(&plotter.Line{XYs: reserved.XYs, FillColor: reservedFill}, live, newGrid(), reference,
		line(panel.Requested, scale, 0.9, requestedLine), &plotter.Line{XYs: reserved.XYs, LineStyle: reserved.LineStyle},
		peaks{panel, unit, scale})
	return p, nil
}

// line makes a line in units of scale bytes. A width of 0 draws none.
func line(points []Point, scale float64, width float64, c color.Color) *plotter.Line {
	xys := make(plotter.XYs, len(points))
	for i, p := range points {
		xys[i].X, xys[i].Y = float64(p.Event), float64(p.Bytes)/scale
	}
	return &plotter.Line{XYs: xys, LineStyle: draw.LineStyle{Color: c, Width: vg.Points(width)}}
}

// steps turns values that hold until the next one into a line from the
// start to the end.
func steps(points []Point, end int) (out []Point) {
	if len(points) == 0 {
		return nil
	}
	out = append(out, Point{})
	for _, p := range points {
		out = append(out, Point{p.Event, out[len(out)-1].Bytes}, p)
	}
	return append(out, Point{end, out[len(out)-1].Bytes})
}

// peaks marks the highest points and writes their values next to them.
type peaks struct {
	*Panel
	unit  string
	scale float64
}

// Plot implements plot.Plotter.
func (k peaks) Plot(c draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&c)
	mark := func(points []Point, peak int64, name string, col color.Color, above bool) {
		at, ok := highest(points)
		if !ok {
			return
		}
		pt := vg.Point{X: x(float64(at.Event)), Y: y(float64(peak) / k.scale)}
		c.DrawGlyph(draw.GlyphStyle{Color: col, Radius: vg.Points(2.6), Shape: draw.CircleGlyph{}}, pt)
		label(c, pt, fmt.Sprintf("%s %s %s", name, number(float64(peak)/k.scale), k.unit), col, above)
	}
	mark(k.Reserved, k.PeakReserved, "peak reserved", reservedLine, true)
	mark(k.Requested, k.PeakRequested, "peak requested", requestedLine, false)
}

// highest returns the first of the highest points.
func highest(points []Point) (best Point, ok bool) {
	for _, p := range points {
		if p.Bytes > best.Bytes {
			best, ok = p, true
		}
	}
	return best, ok
}

// drawLegend explains the colours, once for all panels.
func drawLegend(c draw.Canvas, withReference bool) {
	type entry struct {
		name   string
		fill   color.Color
		stroke color.Color
		dashed bool
	}
	entries := []entry{
		{"requested by the program", nil, requestedLine, false},
		{"live blocks", liveFill, nil, false},
		{"reserved from the device", reservedFill, reservedLine, false},
	}
	if withReference {
		entries = append(entries, entry{Reference, nil, referenceLine, true})
	}
	style := text(9.5, false, ink)
	style.XAlign, style.YAlign = draw.XLeft, draw.YCenter
	pos := vg.Point{X: c.Min.X + 14*vg.Millimeter, Y: (c.Min.Y + c.Max.Y) / 2}
	const swatch, gap = 8 * vg.Millimeter, 2 * vg.Millimeter
	for _, e := range entries {
		lo, hi := vg.Point{X: pos.X, Y: pos.Y - vg.Points(4)}, vg.Point{X: pos.X + swatch, Y: pos.Y + vg.Points(4)}
		y := pos.Y
		if e.fill != nil {
			c.FillPolygon(e.fill, []vg.Point{lo, {X: hi.X, Y: lo.Y}, hi, {X: lo.X, Y: hi.Y}})
			y = hi.Y
		}
		if e.stroke != nil {
			ls := draw.LineStyle{Color: e.stroke, Width: vg.Points(1.6)}
			if e.dashed {
				ls.Dashes = []vg.Length{vg.Points(5), vg.Points(3)}
			}
			c.StrokeLine2(ls, lo.X, y, hi.X, y)
		}
		pos.X = hi.X + gap
		c.FillText(style, pos, e.name)
		pos.X += 1.1*style.Width(e.name) + 4*gap
	}
}
