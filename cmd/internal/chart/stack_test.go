package chart

import (
	"bytes"
	"image"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"gonum.org/v1/plot/vg/draw"
)

func stack(scale int64) Stack {
	return Stack{
		Title: "a trace", Note: "and a note", Events: 1000, At: []int{0, 300, 1000}, Peak: 300, PeakBytes: 1000 * mib * scale,
		Layers: []Layer{
			{"requested", []int64{0, 500 * mib * scale, 500 * mib * scale}, 500 * mib * scale},
			{"nothing", []int64{0, 0, 0}, 0},
			{"lost", []int64{0, 500 * mib * scale, 300 * mib * scale}, 500 * mib * scale},
		},
	}
}

func TestStacksSVG(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a.svg")
	require.NoError(t, WriteStacks(file, []Stack{stack(10), stack(1)}))
	svg, err := os.ReadFile(file)
	require.NoError(t, err)
	for _, text := range []string{">a trace<", ">and a note<", ">events<", ">GiB<", ">9.766 GiB reserved at event 300<", ">0.977 GiB reserved at event 300<",
		">requested<", ">lost<", ">500.0<", ">5,000<", ">at the peak, MiB<"} {
		require.Contains(t, string(svg), text)
	}
	require.NotContains(t, string(svg), "nothing")
}

// Each layer is as high as it should be, on top of those below.
func TestStacksAreStacked(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, render(&out, ".png", stackWidth, stackHeight, func(c draw.Canvas) error { return drawStacks(c, []Stack{stack(1)}) }))
	img, _, err := image.Decode(&out)
	require.NoError(t, err)
	rows := func(x int, c any) (n int) {
		for y := range img.Bounds().Dy() {
			if any(img.At(x, y)) == c {
				n++
			}
		}
		return n
	}
	x := img.Bounds().Dx() / 4 // behind the peak
	used, lost := rows(x, layerColor(0)), rows(x, layerColor(2))
	require.Greater(t, used, 50)
	require.Greater(t, lost, used/2)
	require.Less(t, lost, used)
	require.Zero(t, rows(x, layerColor(1)))
}

// Traces with next to nothing in them are drawn too.
func TestSmallStacks(t *testing.T) {
	for _, stacks := range [][]Stack{
		nil,
		{{}},
		{{Events: 1, At: []int{0}, Layers: []Layer{{"requested", []int64{0}, 0}}}, stack(1)},
	} {
		require.NoError(t, WriteStacks(filepath.Join(t.TempDir(), "a.svg"), stacks))
	}
	require.Error(t, WriteStacks("stacks", nil))
}
