package training

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool/internal/mnist"
)

// An image is moved to the right and down, what enters is white, and nothing
// is left of the image before it.
func TestAppendImage(t *testing.T) {
	set := &mnist.Set{Images: mnist.Images{Rows: 2, Cols: 3}}
	image := []byte{
		255, 51, 102,
		153, 204, 255}
	for name, c := range map[string]struct {
		dx, dy int
		want   []float32 // of black ink
	}{
		"not moved": {0, 0, []float32{1, .2, .4, .6, .8, 1}},
		"right":     {1, 0, []float32{0, 1, .2, 0, .6, .8}},
		"left":      {-2, 0, []float32{.4, 0, 0, 1, 0, 0}},
		"down":      {0, 1, []float32{0, 0, 0, 1, .2, .4}},
		"up, right": {1, -1, []float32{0, .6, .8, 0, 0, 0}},
		"far out":   {4, -3, make([]float32, 6)},
	} {
		t.Run(name, func(t *testing.T) {
			b := NewBatcher(set, 0, nil)
			b.x = slices.Repeat([]float32{9}, 14)[:2] // two pixels are there, the rest is of an earlier batch
			b.appendImage(image, c.dx, c.dy)
			want := []float32{9, 9}
			for _, v := range c.want {
				want = append(want, v*blackInk)
			}
			require.Equal(t, want, b.x)
		})
	}
}
