package chart

import (
	"bytes"
	"image"
	_ "image/png"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

const mib = 1 << 20

func panel(scale int64) Panel {
	return Panel{
		Title: "a trace", Note: "and a note", Events: 1000,
		Requested: []Point{{0, 0}, {300, 900 * mib * scale}, {1000, 100 * mib * scale}},
		Live:      []Point{{0, 0}, {300, 901 * mib * scale}, {1000, 101 * mib * scale}},
		Reserved:  []Point{{1, 20 * mib * scale}, {250, 1000 * mib * scale}},
		Reference: []Point{{1, 20 * mib * scale}, {250, 1500 * mib * scale}},

		PeakRequested: 900 * mib * scale, PeakReserved: 1000 * mib * scale,
	}
}

func TestSVG(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a.SVG")
	require.NoError(t, Write(file, []Panel{panel(10), panel(1)}))
	svg, err := os.ReadFile(file)
	require.NoError(t, err)
	for _, text := range []string{"a trace", "and a note", "events", "GiB", "peak reserved 9.766 GiB", "peak requested 8.789 GiB", "peak reserved 0.977 GiB",
		"requested by the program", "live blocks", "reserved from the device", "allocator (model)", "sans-serif"} {
		require.Contains(t, string(svg), text)
	}
}

func TestPNG(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, Draw(&out, ".png", []Panel{panel(1)}))
	img, format, err := image.Decode(&out)
	require.NoError(t, err)
	require.Equal(t, "png", format)
	colours := map[any]bool{}
	for x := range img.Bounds().Dx() {
		colours[img.At(x, img.Bounds().Dy()/2)] = true
	}
	require.Contains(t, colours, any(reservedFill))
	require.Contains(t, colours, any(liveFill))
}

// Traces with next to nothing in them are drawn too.
func TestSmallPanels(t *testing.T) {
	for _, p := range []Panel{
		{},
		{Events: 1, Requested: []Point{{1, 0}}, Live: []Point{{1, 0}}},
		{Events: 1, Requested: []Point{{1, 1}}, Live: []Point{{1, 512}}, Reserved: []Point{{1, 2 * mib}}, PeakRequested: 1, PeakReserved: 2 * mib},
	} {
		require.NoError(t, Draw(&bytes.Buffer{}, ".svg", []Panel{p, panel(1)}))
	}
}

func TestErrors(t *testing.T) {
	require.EqualError(t, CheckName("a.gif"), `a plot ends in .svg or .png, not ".gif"`)
	require.Error(t, Write("plot", nil))
	require.ErrorIs(t, Write(filepath.Join(t.TempDir(), "none", "a.svg"), nil), os.ErrNotExist)
}

func TestTicks(t *testing.T) {
	for _, c := range []struct {
		hi   float64
		n    int
		want []string
	}{
		{20.1, 6, []string{"0", "5", "10", "15", "20"}},
		{3.4, 6, []string{"0", "1", "2", "3"}},
		{0.9, 6, []string{"0", "0.2", "0.4", "0.6", "0.8"}},
		{112627, 8, []string{"0", "20,000", "40,000", "60,000", "80,000", "100,000"}},
		{2500000, 5, []string{"0", "500,000", "1,000,000", "1,500,000", "2,000,000", "2,500,000"}},
	} {
		var got []string
		for _, tick := range (ticks{c.n}).Ticks(0, c.hi) {
			got = append(got, tick.Label)
		}
		require.Equal(t, c.want, got)
	}
}

func TestNumber(t *testing.T) {
	for v, want := range map[float64]string{0.5: "0.500", 12.346: "12.35", 123.46: "123.5", 2048: "2,048"} {
		require.Equal(t, want, number(v))
	}
}
