package nn_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"gorgonia.org/tensor"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/layers"
	"github.com/cupool/cupool/nn"
)

// pooling is a window and an image's shape.
type pooling struct {
	shape []int
	w     nn.Window
}

var poolings = []pooling{
	{[]int{2, 3, 4, 6}, nn.Window{Size: [2]int{2, 2}, Stride: [2]int{2, 2}}},
	{[]int{1, 2, 7, 5}, nn.Window{Size: [2]int{3, 3}, Stride: [2]int{2, 2}, Pad: [2]int{1, 1}}},
	{[]int{2, 1, 5, 6}, nn.Window{Size: [2]int{3, 2}}},
	{[]int{1, 1, 3, 3}, nn.Window{Size: [2]int{3, 3}}},
	{[]int{2, 2, 1, 9}, nn.Window{Size: [2]int{1, 4}, Stride: [2]int{1, 3}, Pad: [2]int{0, 2}}},
	{[]int{1, 2, 6, 6}, nn.Window{Size: [2]int{2, 2}, Stride: [2]int{3, 4}, Extra: [2]int{1, -1}}},
	{[]int{1, 1, 3, 4}, nn.Window{Size: [2]int{1, 2}, Stride: [2]int{2, 1}, Pad: [2]int{2, 3}}}, // whole windows of padding
	{[]int{0, 2, 4, 4}, nn.Window{Size: [2]int{2, 2}}},
}

// result returns the shape of the windows' results.
func (p pooling) result() []int {
	s := []int{p.shape[0], p.shape[1], 0, 0}
	for d := range 2 {
		s[2+d] = (p.shape[2+d]+2*p.w.Pad[d]+p.w.Extra[d]-p.w.Size[d])/max(p.w.Stride[d], 1) + 1
	}
	return s
}

// on returns the pooling as package layers has it.
func (p pooling) on(divisor float64) *layers.Pooling {
	r := p.result()
	stride := [2]int{max(p.w.Stride[0], 1), max(p.w.Stride[1], 1)}
	return &layers.Pooling{Planes: r[0] * r[1], H: p.shape[2], W: p.shape[3], OH: r[2], OW: r[3], Size: p.w.Size, Pad: p.w.Pad, Stride: stride, Divisor: divisor}
}

func TestPooling(t *testing.T) {
	both(t, func(t *testing.T, e *bench) {
		for _, dt := range floats {
			for _, p := range poolings {
				e.checkMaxPool(dt, p)
				for _, divisor := range []float64{0, 3} {
					e.checkAvgPool(dt, p, divisor)
				}
			}
		}
	})
}

// coarse returns numbers among which there are equal ones, NaN and infinities.
func (e *bench) coarse(dt tensor.Dtype, shape ...int) *tensor.Dense {
	x := random(e.Rand, dt, shape...)
	for i := range x.Shape().TotalSize() {
		v := float64(e.Rand.IntN(4))
		switch e.Rand.IntN(12) {
		case 0:
			v = math.NaN()
		case 1:
			v = math.Inf(2*e.Rand.IntN(2) - 1)
		}
		x.Set(i, value(dt, v))
	}
	return x
}

func (e *bench) checkMaxPool(dt tensor.Dtype, p pooling) {
	what := fmt.Sprint("max ", dt, p)
	x, y := e.From(e.coarse(dt, p.shape...)), must(e.Empty(dt, p.result()...))
	dy, dx := e.From(random(e.Rand, dt, p.result()...)), must(e.Empty(dt, p.shape...))
	wantY, wantDX := e.As64(y), e.As64(dx)
	layers.MaxPool(p.on(0), e.As64(x), wantY)
	layers.MaxPoolBack(p.on(0), e.As64(x), e.As64(dy), wantDX)
	if dt == tensor.Float32 {
		for i, v := range wantY {
			wantY[i] = max(v, -math.MaxFloat32)
		}
	}
	require.NoError(e.T, nn.MaxPool2d(e.Engine, x, y, p.w), what)
	require.Equal(e.T, wantY, e.As64(y), what)
	for _, act := range []nn.Activation{nn.NoActivation, nn.Rectify} {
		layers.ActivateBack(wantDX, e.As64(x), wantDX, layers.Activation(act))
		require.NoError(e.T, nn.MaxPool2dBack(e.Engine, x, y, dy, dx, p.w, act), what)
		e.RequireNear(wantDX, dx, fmt.Sprint(what, act))
	}
	e.FreeAll(x, y, dy, dx)
}

func (e *bench) checkAvgPool(dt tensor.Dtype, p pooling, divisor float64) {
	what := fmt.Sprint("average ", dt, p, divisor)
	x, y := e.From(random(e.Rand, dt, p.shape...)), must(e.Empty(dt, p.result()...))
	dy, dx := e.From(random(e.Rand, dt, p.result()...)), must(e.Empty(dt, p.shape...))
	wantY, wantDX := e.As64(y), e.As64(dx)
	layers.AvgPool(p.on(divisor), e.As64(x), wantY)
	require.NoError(e.T, nn.AvgPool2d(e.Engine, x, y, p.w, divisor), what)
	e.RequireNear(wantY, y, what)

	layers.AvgPoolBack(p.on(divisor), e.As64(dy), wantDX)
	require.NoError(e.T, nn.AvgPool2dBack(e.Engine, dy, dx, p.w, divisor), what)
	e.RequireNear(wantDX, dx, what)

	layers.AvgPoolSmear(p.on(float64(p.shape[3])), e.As64(dy), wantDX)
	require.NoError(e.T, nn.GorgoniaAvgPool2dBack(e.Engine, dy, dx, p.w), what)
	e.RequireNear(wantDX, dx, what)
	e.FreeAll(x, y, dy, dx)
}

func TestUpsample(t *testing.T) {
	both(t, func(t *testing.T, e *bench) {
		for _, dt := range floats {
			x := e.From(tensor.New(tensor.WithShape(1, 1, 1, 2), tensor.WithBacking(tensor.Range(dt, 1, 3))))
			y, dx := must(e.Empty(dt, 1, 1, 2, 4)), must(e.Empty(dt, 1, 1, 1, 2))
			require.NoError(t, nn.Upsample2d(e.Engine, x, y, 2))
			require.Equal(t, []float64{1, 1, 2, 2, 1, 1, 2, 2}, e.As64(y))
			require.NoError(t, nn.Upsample2dBack(e.Engine, y, dx, 2))
			require.Equal(t, []float64{4, 8}, e.As64(dx))
			e.FreeAll(x, y, dx)
		}
	})
}

// TestPoolingErrors: windows that do not fit, and tensors that are none of it.
func TestPoolingErrors(t *testing.T) {
	both(t, func(t *testing.T, e *bench) {
		x, y, m := must(e.Empty(tensor.Float32, 1, 1, 4, 4)), must(e.Empty(tensor.Float32, 1, 1, 2, 2)), must(e.Empty(tensor.Float32, 4, 4))
		d, odd := must(e.Empty(tensor.Float64, 1, 1, 2, 2)), must(e.Empty(tensor.Float32, 1, 1, 5, 4))
		two := nn.Window{Size: [2]int{2, 2}, Stride: [2]int{2, 2}}
		one := nn.Window{Size: [2]int{1, 1}}
		failures{
			"window too large": {nn.MaxPool2d(e.Engine, x, y, nn.Window{Size: [2]int{5, 2}}), cupool.ErrSizeMismatch},
			"another number":   {nn.MaxPool2d(e.Engine, x, y, nn.Window{Size: [2]int{2, 2}}), cupool.ErrSizeMismatch},
			"no size":          {nn.AvgPool2d(e.Engine, x, y, nn.Window{}, 0), cupool.ErrNotSupported},
			"negative stride":  {nn.AvgPool2d(e.Engine, x, y, nn.Window{Size: [2]int{2, 2}, Stride: [2]int{-1, 1}}, 0), cupool.ErrNotSupported},
			"negative padding": {nn.AvgPool2d(e.Engine, x, y, nn.Window{Size: [2]int{2, 2}, Pad: [2]int{-1, 1}}, 0), cupool.ErrNotSupported},
			"a matrix":         {nn.MaxPool2d(e.Engine, m, y, two), cupool.ErrNotSupported},
			"no tensor":        {nn.MaxPool2d(e.Engine, x, nil, two), cupool.ErrNotSupported},
			"no gradient":      {nn.MaxPool2dBack(e.Engine, x, y, nil, x, two, nn.NoActivation), cupool.ErrNotSupported},
			"another type":     {nn.MaxPool2d(e.Engine, x, d, two), cupool.ErrNotSupported},
			"in place":         {nn.MaxPool2d(e.Engine, x, x, one), cupool.ErrNotSupported},
			"gradient in y":    {nn.MaxPool2dBack(e.Engine, x, x, y, y, one, nn.NoActivation), cupool.ErrSizeMismatch},
			"scale 0":          {nn.Upsample2d(e.Engine, y, x, 0), cupool.ErrNotSupported},
			"a row too many":   {nn.Upsample2d(e.Engine, y, odd, 2), cupool.ErrSizeMismatch},
			"and back":         {nn.Upsample2dBack(e.Engine, odd, y, 2), cupool.ErrSizeMismatch},
		}.require(t)
		e.FreeAll(x, y, m, d, odd)
	})
}
