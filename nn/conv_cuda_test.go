//go:build gpu

package nn_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"gorgonia.org/tensor"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/testkit/enginetest"
	"github.com/cupool/cupool/nn"
)

// tiledConvs are so large that each multiprocessor has several tiles, or so small
// that sums are split; of few and many channels.
var tiledConvs = []convCase{
	{3, 1, 28, 28, 32, nn.Conv{Kernel: [2]int{3, 3}, Pad: [2]int{1, 1}}},
	{2, 32, 14, 14, 64, nn.Conv{Kernel: [2]int{3, 3}, Pad: [2]int{1, 1}}},
	{3, 64, 7, 7, 128, nn.Conv{Kernel: [2]int{3, 3}, Pad: [2]int{1, 1}}},
	{2, 16, 28, 28, 16, nn.Conv{Kernel: [2]int{3, 3}, Pad: [2]int{1, 1}}},
	{3, 32, 14, 14, 64, nn.Conv{Kernel: [2]int{3, 3}, Pad: [2]int{1, 1}, Stride: [2]int{2, 2}}},
	{200, 3, 8, 8, 40, nn.Conv{Kernel: [2]int{2, 2}, Stride: [2]int{2, 2}}},
}

func TestConv2dTiles(t *testing.T) {
	e := &bench{enginetest.NewGPU(t)}
	for _, s := range tiledConvs {
		e.checkConv(tensor.Float32, s, nn.ReLU)
		e.checkConvBack(tensor.Float32, s, nn.ReLU)
	}
	e.checkConv(tensor.Float64, tiledConvs[1], nn.ReLU)
	e.checkConvBack(tensor.Float64, tiledConvs[1], nn.ReLU)
	require.Zero(t, e.Stats().Fallbacks)
	require.Zero(t, e.Live())
}

// TestConv2dInGraph launches a step of a convolution as a graph, with other images
// each time, and requires the same bits as without one.
func TestConv2dInGraph(t *testing.T) {
	e := &bench{enginetest.NewGPU(t)}
	e.Engine = must(cupool.NewEngine(e.Pool, cupool.WithStream(must(e.Pool.NewStream()))))
	for _, dt := range floats {
		s := convCase{3, 40, 5, 5, 17, nn.Conv{Kernel: [2]int{3, 3}, Pad: [2]int{1, 1}}}
		c := e.convTensors(dt, s)
		step := func() error {
			return errors.Join(nn.Conv2d(e.Engine, c.x, c.w, c.bias, c.y, s.Conv, nn.Tanh),
				nn.Conv2dBack(e.Engine, c.x, c.w, c.y, c.dx, c.dw, c.db, s.Conv, nn.ReLU))
		}
		require.NoError(t, step())
		g, err := e.Capture(step)
		require.NoError(t, err)
		for range 3 {
			require.NoError(t, e.Copy(c.x, random(e.Rand, dt, s.n, s.c, s.h, s.w)))
			var results [2][]float64
			for i, run := range []func() error{step, g.Launch} {
				for _, r := range []*tensor.Dense{c.y, c.dx, c.dw, c.db} {
					require.NoError(t, e.Memset(r, value(dt, 77)))
				}
				require.NoError(t, run())
				results[i] = slices.Concat(e.As64(c.y), e.As64(c.dx), e.As64(c.dw), e.As64(c.db))
			}
			require.Equal(t, results[0], results[1])
		}
		require.NoError(t, g.Close())
		e.freeConv(c)
	}
	require.Zero(t, e.Live())
}

// failing is an allocator that fails after so many allocations.
type failing struct {
	enginetest.Poisoned
	left *int
}

func (a failing) Alloc(n int64, s *cupool.Stream) (cupool.Block, error) {
	if *a.left--; *a.left == -1 {
		return cupool.Block{}, fmt.Errorf("a test: %w", cupool.ErrOutOfMemory)
	}
	return a.Poisoned.Alloc(n, s)
}

// TestConv2dOutOfMemory has no memory for sums.
func TestConv2dOutOfMemory(t *testing.T) {
	e := &bench{enginetest.NewGPU(t)}
	left := -1
	e.Engine = must(cupool.NewEngine(failing{enginetest.Poisoned{Pool: e.Pool}, &left}))
	s := tiledConvs[2]
	c := e.convTensors(tensor.Float32, s)
	live := e.Live()
	failures := 0
	for n := 0; ; n++ {
		left = n
		err := errors.Join(nn.Conv2d(e.Engine, c.x, c.w, c.bias, c.y, s.Conv, nn.ReLU), nn.Conv2dBack(e.Engine, c.x, c.w, c.dz, c.dx, c.dw, c.db, s.Conv, nn.ReLU))
		require.Equal(t, live, e.Live())
		if err == nil {
			break
		}
		failures++
		require.ErrorIs(t, err, cupool.ErrOutOfMemory)
	}
	require.Positive(t, failures)
	left = -1
	e.freeConv(c)
	require.Zero(t, e.Live())
}
