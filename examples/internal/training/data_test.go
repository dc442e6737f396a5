package training

import (
	"math/rand/v2"
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
		"all out":   {0, 2, make([]float32, 6)},
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
			if !slices.Equal(b.x, want) {
				t.Errorf("%v, want %v", b.x, want)
			}
		})
	}
}

// Batchers that make parts of the batches make together what one makes.
func TestSkip(t *testing.T) {
	const seed, size, steps = 5, 6, 3
	set := &mnist.Set{Images: mnist.Images{N: size * steps, Rows: 3, Cols: 3}, Labels: make([]byte, size*steps)}
	for i := range set.N * 9 {
		set.Images.Pixels = append(set.Images.Pixels, byte(i))
	}
	parts := func(n int) (x []float32) {
		var batchers []*Batcher
		for range n {
			b := NewBatcher(set, 1, rand.New(rand.NewPCG(seed, 0)))
			b.Shuffle(NaturalOrder(set.N))
			batchers = append(batchers, b)
		}
		for from := 0; from < set.N; from += size {
			for i, b := range batchers {
				b.Skip(i * size / n)
				part, _ := b.Batch(from+i*size/n, from+(i+1)*size/n)
				b.Skip(size - (i+1)*size/n)
				x = append(x, part...)
			}
		}
		return x
	}
	want := parts(1)
	for _, n := range []int{2, 3, 6} {
		require.Equal(t, want, parts(n), "seed %d, %d parts", seed, n)
	}
}
