package chart

import (
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
		Title: "a trace", Events: 1000,
		Requested: []Point{{0, 0}, {300, 900 * mib * scale}, {1000, 100 * mib * scale}},
		Live:      []Point{{0, 0}, {300, 901 * mib * scale}, {1000, 101 * mib * scale}},
		Reserved:  []Point{{1, 20 * mib * scale}, {250, 1000 * mib * scale}},
		Reference: []Point{{1, 20 * mib * scale}, {250, 1500 * mib * scale}},
	}
}

func TestSVG(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a.SVG")
	require.NoError(t, Write(file, []Panel{panel(10), panel(1)}))
	svg, err := os.ReadFile(file)
	require.NoError(t, err)
	for _, text := range []string{"a trace", "events", "GiB", "requested by the program", "live blocks", "reserved from the device", "allocator (model)"} {
		require.Contains(t, string(svg), text)
	}
}

func TestPNG(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a.png")
	require.NoError(t, Write(file, []Panel{panel(1)}))
	f, err := os.Open(file)
	require.NoError(t, err)
	defer f.Close()
	img, format, err := image.Decode(f)
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
		{Events: 1, Requested: []Point{{1, 1}}, Live: []Point{{1, 512}}, Reserved: []Point{{1, 2 * mib}}},
	} {
		require.NoError(t, Write(filepath.Join(t.TempDir(), "a.svg"), []Panel{p, panel(1)}))
	}
}

func TestErrors(t *testing.T) {
	require.EqualError(t, CheckName("a.gif"), `a plot ends in .svg or .png, not ".gif"`)
	require.Error(t, Write("plot", nil))
	require.ErrorIs(t, Write(filepath.Join(t.TempDir(), "none", "a.svg"), nil), os.ErrNotExist)
}
