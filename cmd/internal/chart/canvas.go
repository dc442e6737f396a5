package chart

import (
	"bytes"
	"fmt"
	"image/color"
	"io"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	xfont "golang.org/x/image/font"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
	"gonum.org/v1/plot/vg/vgsvg"
)

// Formats are the file endings that Write knows.
const Formats = ".svg or .png"

// CheckName returns an error for a file name of another format.
func CheckName(name string) error {
	switch strings.ToLower(filepath.Ext(name)) {
	case ".svg", ".png":
		return nil
	}
	return fmt.Errorf("a plot ends in %s, not %q", Formats, filepath.Ext(name))
}

// writeFile draws into a file whose ending is the format.
func writeFile(name string, drawTo func(w io.Writer, format string) error) error {
	if err := CheckName(name); err != nil {
		return err
	}
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	err = drawTo(f, strings.ToLower(filepath.Ext(name)))
	if closed := f.Close(); err == nil {
		err = closed
	}
	return err
}

// render writes a picture of the given size that fill draws.
func render(w io.Writer, format string, width, height vg.Length, fill func(draw.Canvas) error) error {
	var canvas interface {
		vg.CanvasSizer
		io.WriterTo
	}
	if format == ".svg" {
		canvas = vgsvg.New(width, height)
	} else {
		canvas = vgimg.PngCanvas{Canvas: vgimg.NewWith(vgimg.UseWH(width, height), vgimg.UseDPI(dpi))}
	}
	c := draw.New(canvas)
	c.FillPolygon(color.White, []vg.Point{c.Min, {X: c.Max.X, Y: c.Min.Y}, c.Max, {X: c.Min.X, Y: c.Max.Y}})
	if err := fill(c); err != nil {
		return err
	}
	var out bytes.Buffer
	if _, err := canvas.WriteTo(&out); err != nil {
		return err
	}
	// A viewer may not have the font; these are as wide.
	_, err := w.Write(bytes.ReplaceAll(out.Bytes(), []byte("font-family:Liberation Sans"), []byte("font-family:Liberation Sans,Arial,Helvetica,sans-serif")))
	return err
}

// newPlot makes a plot whose axes have the labels x and y.
func newPlot(x, y string) *plot.Plot {
	p := plot.New()
	p.Title.TextStyle.Font, p.Title.TextStyle.Color = face(11, true), ink
	p.Title.Padding = 2 * vg.Millimeter
	p.X.Label.Text, p.Y.Label.Text = x, y
	for _, a := range []*plot.Axis{&p.X, &p.Y} {
		a.Label.TextStyle.Font, a.Label.TextStyle.Color = face(9, false), ink
		a.Tick.Label.Font, a.Tick.Label.Color = face(9, false), ink
		a.Color, a.Tick.Color = ink, ink
		a.Padding = 0
	}
	return p
}

// newGrid makes horizontal lines behind the data.
func newGrid() *plotter.Grid {
	grid := plotter.NewGrid()
	grid.Vertical.Width = 0
	grid.Horizontal.Color = faint
	return grid
}

func face(size float64, bold bool) font.Font {
	f := font.Font{Typeface: "Liberation", Variant: "Sans", Size: font.Points(size)}
	if bold {
		f.Weight = xfont.WeightBold
	}
	return f
}

func text(size float64, bold bool, c color.Color) draw.TextStyle {
	return draw.TextStyle{Color: c, Font: face(size, bold), Handler: plot.DefaultTextHandler}
}

// label writes a text above a point or to the right below it, on a
// background of its own, moved so that it stays inside.
func label(c draw.Canvas, at vg.Point, s string, col color.Color, above bool) {
	style := text(9, true, col)
	style.XAlign, style.YAlign = draw.XLeft, draw.YBottom
	box := style.Rectangle(s)
	w, h := box.Max.X-box.Min.X, box.Max.Y-box.Min.Y
	gap := vg.Points(5)
	pos := vg.Point{X: at.X - w/2, Y: at.Y + gap}
	if !above { // and to the right, where less was held already
		pos = vg.Point{X: at.X + gap, Y: at.Y - gap - h}
	}
	pos.X = max(c.Min.X+gap, min(pos.X, c.Max.X-w-gap))
	pos.Y = max(c.Min.Y+gap, min(pos.Y, c.Max.Y-h))
	m := vg.Points(2)
	lo, hi := vg.Point{X: pos.X - m, Y: pos.Y - m}, vg.Point{X: pos.X + w + m, Y: pos.Y + h}
	c.FillPolygon(color.NRGBA{0xff, 0xff, 0xff, 0xd0}, []vg.Point{lo, {X: hi.X, Y: lo.Y}, hi, {X: lo.X, Y: hi.Y}})
	c.FillText(style, pos, s)
}

// drawTitle writes title and note above a plot's data.
func drawTitle(c draw.Canvas, p *plot.Plot, name, remark string) {
	data := p.DataCanvas(c)
	title := text(11, true, ink)
	title.XAlign, title.YAlign = draw.XLeft, draw.YTop
	c.FillText(title, vg.Point{X: data.Min.X, Y: c.Max.Y}, name)
	note := text(9, false, ink)
	note.XAlign, note.YAlign = draw.XLeft, draw.YTop
	// Room for a wider font: a viewer of SVG may not have this one.
	c.FillText(note, vg.Point{X: data.Min.X + 1.2*title.Width(name) + 4*vg.Millimeter, Y: c.Max.Y - vg.Points(1.5)}, remark)
}

// ticks places about n ticks at round numbers.
type ticks struct{ n int }

// Ticks implements plot.Ticker.
func (t ticks) Ticks(lo, hi float64) (out []plot.Tick) {
	step := niceStep((hi - lo) / float64(t.n))
	for v := math.Ceil(lo/step) * step; v <= hi+step/1e6; v += step {
		out = append(out, plot.Tick{Value: v, Label: thousands(v)})
	}
	return out
}

// niceStep returns the least of 1, 2 and 5 times a power of ten that is not
// below v.
func niceStep(v float64) float64 {
	base := math.Pow(10, math.Floor(math.Log10(v)))
	for _, m := range []float64{1, 2, 5} {
		if m*base >= v*(1-1e-9) {
			return m * base
		}
	}
	return 10 * base
}

// thousands prints a number with commas: 112,000.
func thousands(v float64) string {
	if math.Abs(v) < 1000 {
		return strconv.FormatFloat(v, 'g', 6, 64)
	}
	s := strconv.FormatInt(int64(math.Round(v)), 10)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// number prints three or four digits.
func number(v float64) string {
	switch {
	case v >= 1000:
		return thousands(v)
	case v >= 100:
		return strconv.FormatFloat(v, 'f', 1, 64)
	case v >= 10:
		return strconv.FormatFloat(v, 'f', 2, 64)
	}
	return strconv.FormatFloat(v, 'f', 3, 64)
}
