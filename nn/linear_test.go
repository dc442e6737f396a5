package nn_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"gorgonia.org/tensor"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/layers"
	"github.com/cupool/cupool/nn"
)

// layerSizes are rows, inputs and outputs: of one element, odd, of rows that
// quads do not divide, more than one tile and more than one panel of each of
// the kernel's sizes, and none.
var layerSizes = [][3]int{{1, 1, 1}, {1, 7, 3}, {5, 1, 2}, {3, 4, 1}, {17, 33, 10}, {33, 65, 31}, {16, 140, 36}, {70, 68, 12},
	{0, 3, 4}, {3, 0, 4}, {3, 4, 0}}

// largeLayers have as many tiles as make the kernel choose its larger ones, each
// of them for all three products: of float64, there is one larger than those of
// layerSizes. The last are too large for it.
var largeLayers = map[tensor.Dtype][][3]int{
	tensor.Float32: {{300, 70, 500}, {70, 300, 500}, {300, 500, 70}, {500, 33, 500}, {33, 500, 500}, {500, 500, 33},
		{700, 33, 760}, {33, 700, 760}, {700, 760, 33}, {1100, 2, 1000}},
	tensor.Float64: {{700, 17, 760}, {17, 700, 760}, {700, 760, 17}, {1100, 2, 1000}},
}

var activations = []nn.Activation{nn.NoActivation, nn.ReLU, nn.Sigmoid, nn.Tanh, nn.Rectify}

func TestLinear(t *testing.T) {
	both(t, func(t *testing.T, e *bench) {
		for _, dt := range floats {
			for _, act := range activations {
				choices := 1
				if act == nn.ReLU {
					choices = 5
				}
				for _, s := range layerSizes {
					e.checkLinear(dt, act, s, choices)
				}
			}
			for _, s := range largeLayers[dt] {
				if e.GPU && !quick() { // TestLinearTiles has every tile
					e.checkLinear(dt, nn.ReLU, s, 1)
				}
			}
		}
		if e.GPU {
			require.Zero(t, e.Stats().Fallbacks)
		}
	})
}

// checkLinear goes forth, and back for so many choices of gradients, and compares
// with products in float64.
func (e *bench) checkLinear(dt tensor.Dtype, act nn.Activation, size [3]int, choices int) {
	rows, in, out := size[0], size[1], size[2]
	what := fmt.Sprint(dt, act, rows, in, out)
	x, w, b := e.From(random(e.Rand, dt, rows, in)), e.From(random(e.Rand, dt, in, out)), e.From(random(e.Rand, dt, out))
	y, dz := must(e.Empty(dt, rows, out)), e.From(random(e.Rand, dt, rows, out))
	dx, dw, db := must(e.Empty(dt, rows, in)), must(e.Empty(dt, in, out)), must(e.Empty(dt, 1, out))
	xs, ws, dzs := e.As64(x), e.As64(w), e.As64(dz)

	want := productsOf(xs, ws, 1, rows, in, out)
	layers.BiasActivate(want, e.As64(b), layers.Activation(act))
	require.NoError(e.T, nn.Linear(e.Engine, x, w, b, y, act), what)
	e.RequireNear(want, y, what)

	want = productsOf(xs, ws, 1, rows, in, out)
	layers.Activate(want, layers.Activation(act))
	require.NoError(e.T, nn.Linear(e.Engine, x, w, nil, y, act), what)
	e.RequireNear(want, y, what+" without a bias")

	wantDX := productsOf(dzs, turnedOver(ws, in, out), 1, rows, out, in)
	if len(wantDX) > 0 {
		layers.BiasActivateBack(xs, wantDX, nil, in, layers.Activation(act))
	}
	wantDW := productsOf(turnedOver(xs, rows, in), dzs, 1, in, rows, out)
	wantDB := productsOf(slices.Repeat([]float64{1}, rows), dzs, 1, 1, rows, out)
	all := [5][3]*tensor.Dense{{dx, dw, db}, {nil, dw, db}, {dx, nil, nil}, {nil, dw, nil}, {nil, nil, nil}}
	for _, some := range all[:choices] {
		for _, g := range []*tensor.Dense{dx, dw, db} {
			require.NoError(e.T, e.Memset(g, value(dt, 77)), what)
		}
		require.NoError(e.T, nn.LinearBack(e.Engine, x, w, dz, some[0], some[1], some[2], act), what)
		for i, want := range [][]float64{wantDX, wantDW, wantDB} {
			if some[i] != nil {
				e.RequireNear(slices.Clone(want), some[i], fmt.Sprint(what, " gradient ", i))
			}
		}
	}
	require.Equal(e.T, dzs, e.As64(dz), what)
	e.FreeAll(x, w, b, y, dz, dx, dw, db)
}

// turnedOver returns the transpose of a matrix.
func turnedOver(m []float64, rows, cols int) []float64 {
	t := make([]float64, len(m))
	for i := range m {
		t[i%cols*rows+i/cols] = m[i]
	}
	return t
}

func TestLinearErrors(t *testing.T) {
	both(t, func(t *testing.T, e *bench) {
		m := func(rows, cols int) *tensor.Dense { return e.From(random(e.Rand, tensor.Float64, rows, cols)) }
		x, w, b, y, f := m(3, 4), m(4, 5), m(1, 5), m(3, 5), e.From(random(e.Rand, tensor.Float32, 3, 5))
		dx, xT, before := m(3, 4), transposed(m(4, 3)), e.As64(y)
		failures{
			"no matrix":        {nn.Linear(e.Engine, x, nil, b, y, nn.ReLU), cupool.ErrNotSupported},
			"inner sizes":      {nn.Linear(e.Engine, x, x, b, y, nn.ReLU), cupool.ErrSizeMismatch},
			"outer sizes":      {nn.Linear(e.Engine, x, w, b, dx, nn.ReLU), cupool.ErrSizeMismatch},
			"bias":             {nn.Linear(e.Engine, x, w, x, y, nn.ReLU), cupool.ErrSizeMismatch},
			"no result":        {nn.Linear(e.Engine, x, w, b, nil, nn.ReLU), cupool.ErrNotSupported},
			"another type":     {nn.Linear(e.Engine, x, w, b, f, nn.ReLU), cupool.ErrNotSupported},
			"dx":               {nn.LinearBack(e.Engine, x, w, y, y, nil, nil, nn.ReLU), cupool.ErrSizeMismatch},
			"dw":               {nn.LinearBack(e.Engine, x, w, y, nil, x, nil, nn.ReLU), cupool.ErrSizeMismatch},
			"db alone":         {nn.LinearBack(e.Engine, x, w, y, nil, nil, b, nn.ReLU), cupool.ErrNotSupported},
			"dx is x":          {nn.LinearBack(e.Engine, x, w, y, x, nil, nil, nn.ReLU), cupool.ErrNotSupported},
			"dw is w":          {nn.LinearBack(e.Engine, x, w, y, nil, w, b, nn.ReLU), cupool.ErrNotSupported},
			"transposed input": {nn.Linear(e.Engine, xT, w, b, y, nn.ReLU), cupool.ErrNotSupported},
		}.require(t)
		require.Equal(t, before, e.As64(y))
		e.FreeAll(x, w, b, y, f, dx, xT)
	})
}
