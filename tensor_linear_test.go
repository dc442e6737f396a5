package cupool_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"gorgonia.org/tensor"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/layers"
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

var activations = []cupool.Activation{cupool.NoActivation, cupool.ReLU, cupool.Sigmoid, cupool.Tanh, cupool.Rectify}

func TestLinear(t *testing.T) {
	both(t, func(t *testing.T, e *bench) {
		for _, dt := range floats {
			for _, act := range activations {
				for _, s := range layerSizes {
					e.checkLinear(dt, act, s, 5)
				}
			}
			for _, s := range largeLayers[dt] {
				if e.gpu {
					e.checkLinear(dt, cupool.ReLU, s, 1)
				}
			}
		}
		if e.gpu {
			require.Zero(t, e.Stats().Fallbacks)
		}
	})
}

// checkLinear goes forth, and back for so many choices of gradients, and compares
// with products in float64.
func (e *bench) checkLinear(dt tensor.Dtype, act cupool.Activation, size [3]int, choices int) {
	rows, in, out := size[0], size[1], size[2]
	what := fmt.Sprint(dt, act, rows, in, out)
	x, w, b := e.from(random(e.r, dt, rows, in)), e.from(random(e.r, dt, in, out)), e.from(random(e.r, dt, out))
	y, dz := must(e.Empty(dt, rows, out)), e.from(random(e.r, dt, rows, out))
	dx, dw, db := must(e.Empty(dt, rows, in)), must(e.Empty(dt, in, out)), must(e.Empty(dt, 1, out))
	xs, ws, dzs := e.as64(x), e.as64(w), e.as64(dz)

	want := productsOf(xs, ws, 1, rows, in, out)
	layers.BiasActivate(want, e.as64(b), act)
	require.NoError(e.t, e.Linear(x, w, b, y, act), what)
	e.requireNear(want, y, what)

	wantDX := productsOf(dzs, turnedOver(ws, in, out), 1, rows, out, in)
	if len(wantDX) > 0 {
		layers.BiasActivateBack(xs, wantDX, nil, in, act)
	}
	wantDW := productsOf(turnedOver(xs, rows, in), dzs, 1, in, rows, out)
	wantDB := productsOf(slices.Repeat([]float64{1}, rows), dzs, 1, 1, rows, out)
	all := [5][3]*tensor.Dense{{dx, dw, db}, {nil, dw, db}, {dx, nil, nil}, {nil, dw, nil}, {nil, nil, nil}}
	for _, some := range all[:choices] {
		for _, g := range []*tensor.Dense{dx, dw, db} {
			require.NoError(e.t, e.Memset(g, value(dt, 77)), what)
		}
		require.NoError(e.t, e.LinearBack(x, w, dz, some[0], some[1], some[2], act), what)
		for i, want := range [][]float64{wantDX, wantDW, wantDB} {
			if some[i] != nil {
				e.requireNear(slices.Clone(want), some[i], fmt.Sprint(what, " gradient ", i))
			}
		}
	}
	require.Equal(e.t, dzs, e.as64(dz), what)
	e.free(x, w, b, y, dz, dx, dw, db)
}

// turnedOver returns the transpose of a matrix.
func turnedOver(m []float64, rows, cols int) []float64 {
	t := make([]float64, len(m))
	for i := range m {
		t[i%cols*rows+i/cols] = m[i]
	}
	return t
}

// TestLinearGradients compares the gradients of a network of two layers with
// differences of its loss.
func TestLinearGradients(t *testing.T) {
	both(t, func(t *testing.T, e *bench) {
		const rows, in, mid, classes, h = 4, 5, 6, 3, 1e-5
		for _, act := range activations {
			dt := tensor.Float64
			x, target := e.from(random(e.r, dt, rows, in)), e.from(random(e.r, dt, rows, classes))
			// Sums of products of eighths are 64ths: with a bias between them, ReLU
			// is never at its corner, where differences say nothing.
			offCorner := must(random(e.r, dt, mid).AddScalar(1.0/128, true))
			params := []*tensor.Dense{e.from(random(e.r, dt, in, mid)), e.from(offCorner), e.from(random(e.r, dt, mid, classes)), e.from(random(e.r, dt, classes)), x}
			y, logits, loss := must(e.Empty(dt, rows, mid)), must(e.Empty(dt, rows, classes)), must(e.Empty(dt, rows))
			dz := must(e.Empty(dt, rows, classes))
			forward := func() (sum float64) {
				require.NoError(t, e.Linear(x, params[0], params[1], y, act))
				require.NoError(t, e.Linear(y, params[2], params[3], logits, cupool.NoActivation))
				require.NoError(t, e.Zero(loss))
				require.NoError(t, e.CrossEntropy(logits, target, loss, dz))
				for _, l := range e.as64(loss) {
					sum += l / rows
				}
				return sum
			}
			var grads []*tensor.Dense
			for _, p := range params {
				grads = append(grads, must(e.Empty(dt, p.Shape()...)))
			}
			forward()
			dmid := must(e.Empty(dt, rows, mid))
			require.NoError(t, e.LinearBack(y, params[2], dz, dmid, grads[2], grads[3], act))
			require.NoError(t, e.LinearBack(x, params[0], dmid, grads[4], grads[0], grads[1], cupool.NoActivation))
			for i, p := range params {
				e.checkGradient(fmt.Sprint(act, " parameter ", i), p, grads[i], forward, h)
			}
			e.free(params[0], params[1], params[2], params[3], x, target, y, logits, loss, dz, dmid)
			e.free(grads[0], grads[1], grads[2], grads[3], grads[4])
		}
	})
}

// checkGradient compares a gradient by p with (f(p+h)-f(p-h))/2h.
func (e *bench) checkGradient(what string, p, grad *tensor.Dense, f func() float64, h float64) {
	host := e.host(p)
	set := func(i int, v float64) float64 {
		host.Set(i, v)
		require.NoError(e.t, e.Copy(p, host))
		return f()
	}
	for i, got := range e.as64(grad) {
		v := host.Get(i).(float64)
		want := (set(i, v+h) - set(i, v-h)) / (2 * h)
		set(i, v)
		require.InDelta(e.t, want, got, 1e-6*(1+max(want, -want)), "%s[%d]", what, i)
	}
}

func TestLinearErrors(t *testing.T) {
	both(t, func(t *testing.T, e *bench) {
		m := func(rows, cols int) *tensor.Dense { return e.from(random(e.r, tensor.Float64, rows, cols)) }
		x, w, b, y, f := m(3, 4), m(4, 5), m(1, 5), m(3, 5), e.from(random(e.r, tensor.Float32, 3, 5))
		dx, xT, before := m(3, 4), transposed(m(4, 3)), e.as64(y)
		for what, c := range map[string]struct {
			err  error
			want error
		}{
			"no matrix":        {e.Linear(x, nil, b, y, cupool.ReLU), cupool.ErrNotSupported},
			"inner sizes":      {e.Linear(x, x, b, y, cupool.ReLU), cupool.ErrSizeMismatch},
			"outer sizes":      {e.Linear(x, w, b, dx, cupool.ReLU), cupool.ErrSizeMismatch},
			"bias":             {e.Linear(x, w, x, y, cupool.ReLU), cupool.ErrSizeMismatch},
			"no bias":          {e.Linear(x, w, nil, y, cupool.ReLU), cupool.ErrNotSupported},
			"another type":     {e.Linear(x, w, b, f, cupool.ReLU), cupool.ErrNotSupported},
			"dx":               {e.LinearBack(x, w, y, y, nil, nil, cupool.ReLU), cupool.ErrSizeMismatch},
			"dw":               {e.LinearBack(x, w, y, nil, x, nil, cupool.ReLU), cupool.ErrSizeMismatch},
			"db alone":         {e.LinearBack(x, w, y, nil, nil, b, cupool.ReLU), cupool.ErrNotSupported},
			"dx is x":          {e.LinearBack(x, w, y, x, nil, nil, cupool.ReLU), cupool.ErrNotSupported},
			"dw is w":          {e.LinearBack(x, w, y, nil, w, b, cupool.ReLU), cupool.ErrNotSupported},
			"transposed input": {e.Linear(xT, w, b, y, cupool.ReLU), cupool.ErrNotSupported},
		} {
			require.ErrorIs(t, c.err, c.want, what)
			var ours *cupool.EngineError
			require.ErrorAs(t, c.err, &ours, what)
		}
		require.Equal(t, before, e.as64(y))
		e.free(x, w, b, y, f, dx, xT)
	})
}
