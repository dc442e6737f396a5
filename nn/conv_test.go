package nn_test

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"gorgonia.org/tensor"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/layers"
	"github.com/cupool/cupool/internal/testkit"
	"github.com/cupool/cupool/internal/testkit/enginetest"
	"github.com/cupool/cupool/nn"
)

// A convCase is images, their channels, height and width, the channels of the
// result, and the convolution.
type convCase struct {
	n, c, h, w, o int
	nn.Conv
}

func (s convCase) String() string {
	return fmt.Sprintf("%d×%d×%d×%d to %d, %+v", s.n, s.c, s.h, s.w, s.o, s.Conv)
}

// convCases are windows of one element, strides and dilations that divide each
// other and that do not, more padding than window, one dimension, a window larger
// than the image by less than a stride, many channels, and nothing at all.
var convCases = []convCase{
	{1, 1, 1, 1, 1, nn.Conv{Kernel: [2]int{1, 1}}},
	{2, 3, 5, 4, 2, nn.Conv{Kernel: [2]int{3, 3}, Pad: [2]int{1, 1}}},
	{3, 5, 8, 8, 17, nn.Conv{Kernel: [2]int{3, 3}, Pad: [2]int{1, 1}, Stride: [2]int{2, 2}}},
	{2, 4, 7, 9, 5, nn.Conv{Kernel: [2]int{1, 1}, Stride: [2]int{2, 3}}},
	{2, 2, 11, 12, 3, nn.Conv{Kernel: [2]int{3, 2}, Pad: [2]int{2, 4}, Stride: [2]int{4, 6}, Dilation: [2]int{6, 4}}},
	{2, 3, 1, 20, 4, nn.Conv{Kernel: [2]int{1, 5}, Pad: [2]int{0, 2}, Stride: [2]int{1, 2}}},
	{1, 2, 2, 3, 3, nn.Conv{Kernel: [2]int{3, 2}, Stride: [2]int{2, 1}}},
	{2, 1, 2, 2, 2, nn.Conv{Kernel: [2]int{1, 1}, Pad: [2]int{3, 3}, Stride: [2]int{2, 2}}},
	{2, 7, 4, 4, 70, nn.Conv{Kernel: [2]int{3, 3}, Pad: [2]int{1, 1}}},
	{1, 70, 3, 3, 1, nn.Conv{Kernel: [2]int{2, 2}}},
	{0, 2, 4, 4, 3, nn.Conv{Kernel: [2]int{3, 3}}},
	{2, 0, 4, 4, 3, nn.Conv{Kernel: [2]int{3, 3}}},
	{2, 2, 4, 4, 0, nn.Conv{Kernel: [2]int{3, 3}}},
}

// randomConv returns a convolution that fits its image.
func randomConv(r *rand.Rand) convCase {
	for {
		two := func(n int) [2]int { return [2]int{r.IntN(n), r.IntN(n)} }
		s := convCase{1 + r.IntN(4), 1 + r.IntN(9), 1 + r.IntN(14), 1 + r.IntN(14), 1 + r.IntN(40), nn.Conv{Pad: two(4), Stride: two(5), Dilation: two(4)}}
		s.Kernel = [2]int{1 + r.IntN(5), 1 + r.IntN(5)}
		if oh, ow := s.Out(s.h, s.w); min(oh, ow) > 0 {
			return s
		}
	}
}

// tapsOf calls f with the places in x, in w and in y of all factors and results that
// lie within the images.
func (s convCase) tapsOf(f func(x, w, y int)) {
	oh, ow := s.Out(s.h, s.w)
	at := func(i, tap, axis int) int {
		return i*max(1, s.Stride[axis]) - s.Pad[axis] + tap*max(1, s.Dilation[axis])
	}
	window := s.Kernel[0] * s.Kernel[1]
	for y := range s.n * s.o * oh * ow {
		n, o, i, j := y/(s.o*oh*ow), y/(oh*ow)%s.o, y/ow%oh, y%ow
		for k := range s.c * window {
			row, col := at(i, k/s.Kernel[1]%s.Kernel[0], 0), at(j, k%s.Kernel[1], 1)
			if row >= 0 && row < s.h && col >= 0 && col < s.w {
				f(((n*s.c+k/window)*s.h+row)*s.w+col, o*s.c*window+k, y)
			}
		}
	}
}

// convTensors are a convolution's tensors, and gradients.
type convTensors struct{ x, w, bias, y, dz, dx, dw, db *tensor.Dense }

func (e *bench) convTensors(dt tensor.Dtype, s convCase) convTensors {
	oh, ow := s.Out(s.h, s.w)
	image, weights, result := []int{s.n, s.c, s.h, s.w}, []int{s.o, s.c, s.Kernel[0], s.Kernel[1]}, []int{s.n, s.o, oh, ow}
	of := func(shape ...int) *tensor.Dense { return e.From(random(e.Rand, dt, shape...)) }
	return convTensors{of(image...), of(weights...), of(s.o), of(result...), of(result...), of(image...), of(weights...), of(1, s.o)}
}

func (e *bench) freeConv(c convTensors) {
	e.FreeAll(c.x, c.w, c.bias, c.y, c.dz, c.dx, c.dw, c.db)
}

func TestConv2d(t *testing.T) {
	both(t, func(t *testing.T, e *bench) {
		for _, dt := range floats {
			for i, s := range convCases {
				before := e.Stats().Fallbacks
				e.checkConv(dt, s, activations[i%len(activations)])
				e.checkConvBack(dt, s, activations[i%len(activations)])
				require.True(t, !e.GPU || s.n*s.c*s.o == 0 || e.Stats().Fallbacks == before, s)
			}
			for range testkit.Rounds(30) {
				s, act := randomConv(e.Rand), activations[e.Rand.IntN(len(activations))]
				e.checkConv(dt, s, act)
				e.checkConvBack(dt, s, act)
			}
		}
		require.Zero(t, e.Live())
	})
}

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

// TestTiledConvs computes them on a GPU alone.
func TestTiledConvs(t *testing.T) {
	e := newGPU(t)
	if quick() {
		t.Skip("TestConvTiles has the same tiles")
	}
	for _, dt := range floats {
		for _, s := range tiledConvs {
			e.checkConv(dt, s, nn.ReLU)
			e.checkConvBack(dt, s, nn.ReLU)
			e.checkColumns(dt, s)
		}
	}
	require.Zero(t, e.Stats().Fallbacks)
	require.Zero(t, e.Live())
}

// pooledConv has sums that are split, in memory of the pool.
var pooledConv = convCase{2, 40, 4, 4, 9, nn.Conv{Kernel: [2]int{3, 3}, Pad: [2]int{1, 1}}}

// TestConv2dInGraph launches a step of a convolution as a graph, with other images
// each time, and requires the same bits as without one.
func TestConv2dInGraph(t *testing.T) {
	e := newGPU(t)
	s, types, rounds := pooledConv, floats, 3
	if quick() {
		types, rounds = types[:1], 2
	}
	for _, dt := range types {
		c := e.convTensors(dt, s)
		step := func() error {
			return errors.Join(nn.Conv2d(e.Engine, c.x, c.w, c.bias, c.y, s.Conv, nn.Tanh),
				nn.Conv2dBack(e.Engine, c.x, c.w, c.y, c.dx, c.dw, c.db, s.Conv, nn.ReLU))
		}
		require.NoError(t, step())
		g, err := e.Capture(step)
		require.NoError(t, err)
		for range rounds {
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
	e := newGPU(t)
	left := -1
	e.Engine = must(cupool.NewEngine(failing{enginetest.Poisoned{Pool: e.Pool}, &left}))
	s := tiledConvs[2]
	if quick() {
		s = pooledConv
	}
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

func (e *bench) checkConv(dt tensor.Dtype, s convCase, act nn.Activation) {
	c, what := e.convTensors(dt, s), fmt.Sprint(dt, act, s)
	xs, ws, bias := e.As64(c.x), e.As64(c.w), e.As64(c.bias)
	sums := make([]float64, c.y.Shape().TotalSize())
	s.tapsOf(func(x, w, y int) { sums[y] += xs[x] * ws[w] })
	want := slices.Clone(sums)
	layers.Activate(want, layers.Activation(act))
	require.NoError(e.T, nn.Conv2d(e.Engine, c.x, c.w, nil, c.y, s.Conv, act), what)
	e.RequireNear(want, c.y, what)
	for i := range sums {
		oh, ow := s.Out(s.h, s.w)
		sums[i] += bias[i/(oh*ow)%s.o]
	}
	layers.Activate(sums, layers.Activation(act))
	require.NoError(e.T, nn.Conv2d(e.Engine, c.x, c.w, c.bias, c.y, s.Conv, act), what)
	e.RequireNear(sums, c.y, what)
	e.freeConv(c)
}

func (e *bench) checkConvBack(dt tensor.Dtype, s convCase, act nn.Activation) {
	c, what := e.convTensors(dt, s), fmt.Sprint(dt, act, s)
	xs, ws, dzs := e.As64(c.x), e.As64(c.w), e.As64(c.dz)
	wants := [3][]float64{make([]float64, len(xs)), make([]float64, len(ws)), make([]float64, s.o)}
	s.tapsOf(func(x, w, y int) {
		wants[0][x] += ws[w] * dzs[y]
		wants[1][w] += xs[x] * dzs[y]
	})
	layers.BiasActivateBack(xs, wants[0], nil, 0, layers.Activation(act))
	oh, ow := s.Out(s.h, s.w)
	for i, d := range dzs {
		wants[2][i/(oh*ow)%s.o] += d
	}
	all := [3]*tensor.Dense{c.dx, c.dw, c.db}
	for _, chosen := range []int{0b111, 0b110, 0b001, 0b010, 0b100, 0} {
		var some [3]*tensor.Dense
		for i, g := range all {
			require.NoError(e.T, e.Memset(g, value(dt, 77)), what)
			if chosen>>i&1 == 1 {
				some[i] = g
			}
		}
		require.NoError(e.T, nn.Conv2dBack(e.Engine, c.x, c.w, c.dz, some[0], some[1], some[2], s.Conv, act), what)
		for i, want := range wants {
			if some[i] == nil {
				want = slices.Repeat([]float64{77}, len(want))
			}
			e.RequireNear(slices.Clone(want), all[i], fmt.Sprint(what, " gradient ", i))
		}
	}
	require.Equal(e.T, dzs, e.As64(c.dz), what)
	e.freeConv(c)
}

func TestIm2Col(t *testing.T) {
	both(t, func(t *testing.T, e *bench) {
		for _, dt := range floats {
			for _, s := range convCases {
				e.checkColumns(dt, s)
			}
			for range testkit.Rounds(20) {
				e.checkColumns(dt, randomConv(e.Rand))
			}
		}
		require.Zero(t, e.Live())
	})
}

// checkColumns goes forth and back.
func (e *bench) checkColumns(dt tensor.Dtype, s convCase) {
	oh, ow := s.Out(s.h, s.w)
	products := s.c * s.Kernel[0] * s.Kernel[1]
	x, col := e.From(random(e.Rand, dt, s.n, s.c, s.h, s.w)), e.From(random(e.Rand, dt, s.n, oh, ow, products))
	xs, back := e.As64(x), make([]float64, s.n*s.c*s.h*s.w)
	s.o = 1 // a result is a pixel
	want, cols := make([]float64, s.n*oh*ow*products), e.As64(col)
	s.tapsOf(func(x, w, y int) {
		want[y*products+w] = xs[x]
		back[x] += cols[y*products+w]
	})
	dx := e.From(random(e.Rand, dt, s.n, s.c, s.h, s.w))
	require.NoError(e.T, nn.Col2Im(e.Engine, col, dx, s.Conv), s)
	e.RequireNear(back, dx, s.String())
	require.NoError(e.T, nn.Im2Col(e.Engine, x, col, s.Conv), s)
	e.RequireNear(want, col, s.String())
	e.FreeAll(x, col, dx)
}

// TestConv2dSpecial has a weight and an element that are not finite: padding is
// multiplied too.
func TestConv2dSpecial(t *testing.T) {
	s := convCase{1, 1, 3, 3, 2, nn.Conv{Kernel: [2]int{3, 3}, Pad: [2]int{1, 1}}}
	both(t, func(t *testing.T, e *bench) {
		for _, dt := range floats {
			c := e.convTensors(dt, s)
			ones := slices.Repeat([]float64{1}, 18)
			set := func(d *tensor.Dense, vs []float64) {
				h := e.Host(d)
				for i, v := range vs {
					h.Set(i, value(dt, v))
				}
				require.NoError(t, e.Copy(d, h))
			}
			set(c.x, ones[:9])
			set(c.w, append([]float64{math.Inf(1)}, ones[1:]...))
			require.NoError(t, nn.Conv2d(e.Engine, c.x, c.w, nil, c.y, s.Conv, nn.NoActivation))
			inf, nan := math.Inf(1), math.NaN()
			requireSpecial(t, []float64{nan, nan, nan, nan, inf, inf, nan, inf, inf, 4, 6, 4, 6, 9, 6, 4, 6, 4}, e.As64(c.y))
			set(c.w, ones)
			set(c.x, append([]float64{nan}, ones[1:9]...))
			require.NoError(t, nn.Conv2d(e.Engine, c.x, c.w, nil, c.y, s.Conv, nn.ReLU))
			requireSpecial(t, []float64{nan, nan, 4, nan, nan, 6, 4, 6, 4}, e.As64(c.y)[:9])
			set(c.dz, append([]float64{nan}, ones[1:]...))
			require.NoError(t, nn.Conv2dBack(e.Engine, c.dx, c.w, c.dz, nil, c.dw, c.db, s.Conv, nn.NoActivation))
			requireSpecial(t, slices.Repeat([]float64{nan}, 9), e.As64(c.dw)[:9])
			requireSpecial(t, []float64{nan, 9}, e.As64(c.db))
			e.freeConv(c)
		}
	})
}

// requireSpecial requires numbers to be equal, NaN to be equal to NaN.
func requireSpecial(t *testing.T, want, got []float64) {
	t.Helper()
	require.Equal(t, fmt.Sprint(want), fmt.Sprint(got))
}

func TestConvOut(t *testing.T) {
	for _, c := range []struct {
		conv nn.Conv
		want [2]int
	}{
		{nn.Conv{Kernel: [2]int{3, 3}, Pad: [2]int{1, 1}}, [2]int{8, 9}},
		{nn.Conv{Kernel: [2]int{3, 2}, Stride: [2]int{2, 3}}, [2]int{3, 3}},
		{nn.Conv{Kernel: [2]int{3, 3}, Dilation: [2]int{2, 3}}, [2]int{4, 3}},
		{nn.Conv{Kernel: [2]int{9, 12}, Stride: [2]int{2, 1}}, [2]int{1, -2}},
		{nn.Conv{Kernel: [2]int{10, 10}, Stride: [2]int{2, 2}}, [2]int{0, 1}},
	} {
		h, w := c.conv.Out(8, 9)
		require.Equal(t, c.want, [2]int{h, w}, c.conv)
	}
}

func TestConvErrors(t *testing.T) {
	s := convCase{2, 3, 6, 6, 4, nn.Conv{Kernel: [2]int{3, 3}}}
	both(t, func(t *testing.T, e *bench) {
		c, f := e.convTensors(tensor.Float64, s), e.convTensors(tensor.Float32, s)
		col := e.From(random(e.Rand, tensor.Float64, 2, 4, 4, 27))
		before := e.As64(c.y)
		conv := func(x, w, bias, y tensor.Tensor, of nn.Conv) error {
			return nn.Conv2d(e.Engine, x, w, bias, y, of, nn.ReLU)
		}
		back := func(dz, dx, dw, db tensor.Tensor) error {
			return nn.Conv2dBack(e.Engine, c.x, c.w, dz, dx, dw, db, s.Conv, nn.ReLU)
		}
		big, odd := s.Conv, s.Conv
		big.Kernel, odd.Stride = [2]int{3, 7}, [2]int{1, -1}
		wide := e.From(random(e.Rand, tensor.Float64, 4, 3, 3, 7))
		none, far := must(e.Empty(tensor.Float64, 0)), must(e.Empty(tensor.Float64, 2, 6, 6, 75))
		failures{
			"no images":       {conv(nil, c.w, nil, c.y, s.Conv), cupool.ErrNotSupported},
			"images":          {conv(c.bias, c.w, nil, c.y, s.Conv), cupool.ErrNotSupported},
			"no weights":      {conv(c.x, nil, nil, c.y, s.Conv), cupool.ErrNotSupported},
			"weights":         {conv(c.x, c.x, nil, c.y, s.Conv), cupool.ErrSizeMismatch},
			"bias":            {conv(c.x, c.w, c.w, c.y, s.Conv), cupool.ErrSizeMismatch},
			"result":          {conv(c.x, c.w, nil, c.x, s.Conv), cupool.ErrSizeMismatch},
			"no result":       {conv(c.x, c.w, nil, nil, s.Conv), cupool.ErrNotSupported},
			"type":            {conv(c.x, f.w, nil, c.y, s.Conv), cupool.ErrNotSupported},
			"window":          {conv(c.x, wide, nil, c.y, big), cupool.ErrSizeMismatch},
			"stride":          {conv(c.x, c.w, nil, c.y, odd), cupool.ErrNotSupported},
			"dz":              {back(c.x, c.dx, nil, nil), cupool.ErrSizeMismatch},
			"dx":              {back(c.dz, c.y, nil, nil), cupool.ErrSizeMismatch},
			"dw":              {back(c.dz, nil, c.y, nil), cupool.ErrSizeMismatch},
			"db":              {back(c.dz, nil, nil, c.y), cupool.ErrSizeMismatch},
			"dx is x":         {back(c.dz, c.x, nil, nil), cupool.ErrNotSupported},
			"dw is w":         {back(c.dz, nil, c.w, nil), cupool.ErrNotSupported},
			"columns":         {nn.Im2Col(e.Engine, c.x, c.y, s.Conv), cupool.ErrSizeMismatch},
			"no columns":      {nn.Col2Im(e.Engine, nil, c.x, s.Conv), cupool.ErrNotSupported},
			"columns of none": {nn.Im2Col(e.Engine, nil, col, s.Conv), cupool.ErrNotSupported},
			"window for col":  {nn.Im2Col(e.Engine, c.x, col, big), cupool.ErrSizeMismatch},
			"huge window":     {nn.Im2Col(e.Engine, c.x, none, nn.Conv{Kernel: [2]int{1 << 32, 1 << 32}, Pad: [2]int{1 << 31, 1 << 31}}), cupool.ErrNotSupported},
			"huge dilation":   {nn.Im2Col(e.Engine, c.x, far, nn.Conv{Kernel: [2]int{5, 5}, Dilation: [2]int{1 << 62, 1 << 62}}), cupool.ErrNotSupported},
		}.require(t)
		require.Equal(t, before, e.As64(c.y))
		e.FreeAll(none, far)
		one := nn.Conv{Kernel: [2]int{1, 1}}
		same, w := c.x, e.From(random(e.Rand, tensor.Float64, 3, 3, 1, 1))
		require.ErrorIs(t, conv(same, w, nil, same, one), cupool.ErrNotSupported, "the result is the images")
		require.ErrorIs(t, nn.Im2Col(e.Engine, same, same, one), cupool.ErrNotSupported, "the columns are the images")
		e.FreeAll(w, wide, col)
		e.freeConv(c)
		e.freeConv(f)
	})
}
