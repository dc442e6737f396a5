// Package chart draws the memory of replayed traces over time, as SVG or PNG, with
// gonum's plots.
package chart

import (
	"fmt"
	"image/color"
	"io"
	"path/filepath"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/cupool/cupool/internal/newfile"
)

// Point is a number of bytes after an event.
type Point struct {
	Event int
	Bytes int64
}

// Panel is the picture of one trace.
type Panel struct {
	Title  string
	Events int // where the axis ends

	Requested []Point // by the program
	Live      []Point // in the allocator's blocks
	Reserved  []Point // from the device; holds until the next point
	Reference []Point // the same of PyTorch's default allocator
}

// The size of the picture.
const (
	width       = 26 * vg.Centimeter
	panelHeight = 8.5 * vg.Centimeter
)

// Colours: what is used is green, what is reserved for it blue, and the
// allocator compared with stays in the background.
var (
	requestedLine = color.RGBA{0x1a, 0x7f, 0x37, 0xff}
	liveFill      = color.RGBA{0xb4, 0xdf, 0xc0, 0xff}
	reservedLine  = color.RGBA{0x09, 0x52, 0xb5, 0xff}
	reservedFill  = color.RGBA{0xdd, 0xeb, 0xfb, 0xff}
	referenceLine = color.RGBA{0x8b, 0x94, 0x9e, 0xff}
)

// CheckName returns an error for a file name that ends in no format.
func CheckName(name string) error {
	switch strings.ToLower(filepath.Ext(name)) {
	case ".svg", ".png":
		return nil
	}
	return fmt.Errorf("a plot ends in .svg or .png, not %q", filepath.Ext(name))
}

// Write draws the panels below one another into a file whose ending is the format.
func Write(name string, panels []Panel) error {
	if err := CheckName(name); err != nil {
		return err
	}
	return newfile.Write(name, func(w io.Writer) error { return write(w, strings.ToLower(filepath.Ext(name))[1:], panels) })
}

func write(w io.Writer, format string, panels []Panel) error {
	canvas, err := draw.NewFormattedCanvas(width, panelHeight*vg.Length(len(panels)), format)
	if err != nil {
		return err
	}
	var plots [][]*plot.Plot
	for i := range panels {
		plots = append(plots, []*plot.Plot{panels[i].plot()})
	}
	tiles := draw.Tiles{Rows: len(plots), Cols: 1, PadX: 4 * vg.Millimeter, PadY: 4 * vg.Millimeter, PadRight: 8 * vg.Millimeter}
	for i, row := range plot.Align(plots, tiles, draw.New(canvas)) {
		plots[i][0].Draw(row[0])
	}
	_, err = canvas.WriteTo(w)
	return err
}

// plot makes a panel's plot.
func (panel *Panel) plot() *plot.Plot {
	unit, scale := "GiB", float64(1<<30)
	if highest(panel.Reserved) < 1<<29 {
		unit, scale = "MiB", 1<<20
	}
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = panel.Title, "events", unit
	p.X.Min, p.X.Max = 0, float64(max(panel.Events, 1))
	p.Y.Min, p.Y.Max = 0, 1.3*float64(max(highest(panel.Reserved), highest(panel.Reference), 1))/scale
	p.Legend.Top, p.Legend.Left = true, true

	reserved := line(steps(panel.Reserved, panel.Events), scale, 1.6, reservedLine)
	reserved.FillColor = reservedFill
	live := line(panel.Live, scale, 0, nil)
	live.FillColor = liveFill
	requested := line(panel.Requested, scale, 0.9, requestedLine)
	reference := line(steps(panel.Reference, panel.Events), scale, 1.2, referenceLine)
	reference.Dashes = []vg.Length{vg.Points(5), vg.Points(3)}
	p.Add(reserved, live, reference, requested)
	p.Legend.Add("requested by the program", requested)
	p.Legend.Add("live blocks", live)
	p.Legend.Add("reserved from the device", reserved)
	p.Legend.Add("reserved by PyTorch's default allocator (model)", reference)
	return p
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
	last := Point{}
	for _, p := range points {
		out = append(out, Point{p.Event, last.Bytes}, p)
		last = p
	}
	return append(out, Point{end, last.Bytes})
}

func highest(points []Point) (bytes int64) {
	for _, p := range points {
		bytes = max(bytes, p.Bytes)
	}
	return bytes
}
