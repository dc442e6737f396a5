package tensorop_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"gorgonia.org/tensor"
)

// shapeOp is an operation on a tensor and perhaps one of its axes.
type shapeOp struct {
	f       func(a *tensor.Dense, axis int) (tensor.Tensor, error)
	dims    [2]int // the least and the most that it takes, and StdEng gets right
	special bool   // StdEng has one mind about NaN and infinities
	whole   bool   // StdEng, to which views go, does not see that they are, and may panic where there are no elements
}

var shapeOps = map[string]shapeOp{
	"Add":        {func(a *tensor.Dense, _ int) (tensor.Tensor, error) { return tensor.Add(a, a) }, [2]int{0, 4}, true, false},
	"Mul scalar": {func(a *tensor.Dense, _ int) (tensor.Tensor, error) { return tensor.Mul(a, value(a.Dtype(), 3)) }, [2]int{1, 4}, true, false},
	"Neg":        {func(a *tensor.Dense, _ int) (tensor.Tensor, error) { return tensor.Neg(a) }, [2]int{0, 4}, true, false},
	"Tanh":       {func(a *tensor.Dense, _ int) (tensor.Tensor, error) { return tensor.Tanh(a) }, [2]int{0, 4}, true, false},
	"Gt": {func(a *tensor.Dense, _ int) (tensor.Tensor, error) {
		return tensor.Gt(a, value(a.Dtype(), 1), tensor.AsSameType())
	}, [2]int{1, 4}, true, false},
	"Sum":        {func(a *tensor.Dense, axis int) (tensor.Tensor, error) { return tensor.Sum(a, axis) }, [2]int{1, 3}, true, false},
	"Sum all":    {func(a *tensor.Dense, _ int) (tensor.Tensor, error) { return tensor.Sum(a) }, [2]int{1, 4}, true, false},
	"Max":        {func(a *tensor.Dense, axis int) (tensor.Tensor, error) { return dense(a.Max(axis)) }, [2]int{1, 3}, false, false},
	"Min":        {func(a *tensor.Dense, axis int) (tensor.Tensor, error) { return dense(a.Min(axis)) }, [2]int{1, 3}, false, false},
	"Argmax":     {func(a *tensor.Dense, axis int) (tensor.Tensor, error) { return tensor.Argmax(a, axis) }, [2]int{1, 3}, false, false},
	"SoftMax":    {func(a *tensor.Dense, axis int) (tensor.Tensor, error) { return tensor.SoftMax(a, axis) }, [2]int{1, 4}, false, true},
	"LogSoftMax": {func(a *tensor.Dense, axis int) (tensor.Tensor, error) { return tensor.LogSoftMax(a, axis) }, [2]int{1, 4}, false, true},
	"Transpose":  {func(a *tensor.Dense, _ int) (tensor.Tensor, error) { return tensor.Transpose(a) }, [2]int{2, 4}, true, false},
	"Repeat":     {func(a *tensor.Dense, axis int) (tensor.Tensor, error) { return tensor.Repeat(a, axis, 3) }, [2]int{2, 4}, true, true},
	"Concat":     {func(a *tensor.Dense, axis int) (tensor.Tensor, error) { return tensor.Concat(axis, a, a) }, [2]int{1, 4}, true, false},
	"Stack":      {func(a *tensor.Dense, axis int) (tensor.Tensor, error) { return tensor.Stack(axis, a, a) }, [2]int{1, 4}, true, false},
	"Dot":        {func(a *tensor.Dense, _ int) (tensor.Tensor, error) { return tensor.Dot(a, a) }, [2]int{1, 1}, false, false},
	"MatMul": {func(a *tensor.Dense, _ int) (tensor.Tensor, error) {
		return tensor.MatMul(a, transposed(a.ShallowClone()))
	}, [2]int{2, 2}, false, false},
}

// TestGPURandomShapes compares operations on tensors of random shapes, one row,
// one element and none among them, and on views of them, with StdEng's in
// float64 on copies without gaps.
func TestGPURandomShapes(t *testing.T) {
	e := newGPU(t)
	names := slices.Sorted(maps.Keys(shapeOps))
	compared := make(map[string]int)
	for i := range 600 {
		name := names[i%len(names)]
		if e.checkShape(name, shapeOps[name], floats[e.Rand.IntN(len(floats))]) {
			compared[name]++
		}
	}
	for _, name := range names {
		require.Greater(t, compared[name], 5, name)
	}
}

// checkShape compares an operation on one tensor; false: StdEng has nothing to
// compare with.
func (e *bench) checkShape(name string, op shapeOp, dt tensor.Dtype) bool {
	var others []float64
	if op.special {
		others = special
	}
	host := randomOf(e.Rand, tensor.Float64, others, randomShape(e.Rand, op.dims))
	pool := e.From(as(dt, host))
	if op.whole && host.MemSize() == 0 {
		e.FreeAll(pool)
		return false
	}
	defer func(whole *tensor.Dense) { e.FreeAll(whole) }(pool.ShallowClone())
	if !op.whole {
		cut := randomView(e.Rand, host.Shape())
		host, pool = cut(host), cut(pool)
	}
	if host.Dims() < op.dims[0] {
		return false
	}
	if host.IsMaterializable() {
		host = host.Materialize().(*tensor.Dense)
	}
	axis := e.Rand.IntN(max(1, host.Dims()))
	what := fmt.Sprint(name, " of ", dt, " ", pool.Shape(), " strides ", pool.Strides(), " axis ", axis)

	before := e.Stats().Fallbacks
	sc := e.Scope()
	defer func() { require.NoError(e.T, sc.Close()) }()
	call := func(in []*tensor.Dense) (tensor.Tensor, error) { return op.f(in[0], axis) }
	w, g := attempt(call, []*tensor.Dense{host}), attempt(call, []*tensor.Dense{pool})
	if w.panic != nil || w.err != nil || w.result == nil {
		return false
	}
	require.Nil(e.T, g.panic, what)
	require.NoError(e.T, g.err, what)
	got := e.Host(g.result)
	require.True(e.T, slices.Equal(w.result.Shape(), got.Shape()), "%s: %v, want %v", what, got.Shape(), w.result.Shape())
	if want, ok := w.result.(*tensor.Dense); ok && isFloat(want.Dtype()) {
		e.RequireClose(append(floatsOf(want), 1), append(floatsOf(got), 1), 10*bounds[dt], what) // 1: results near 0 are of numbers around 1
	} else {
		require.Equal(e.T, elements(want), elements(got), what)
	}
	if host.MemSize() > 0 {
		require.Equal(e.T, before, e.Stats().Fallbacks, what)
	}
	return true
}

// randomShape returns a shape with so many dimensions.
func randomShape(r *rand.Rand, dims [2]int) []int {
	shape := make([]int, dims[0]+r.IntN(dims[1]-dims[0]+1))
	for d := range shape {
		shape[d] = []int{0, 1, 1, 2, 3, 5, 8, 17, 33, 64}[r.IntN(10)]
		if len(shape) > 2 {
			shape[d] = min(shape[d], 9)
		}
	}
	return shape
}

// randomView returns what makes a view of a tensor of a shape.
func randomView(r *rand.Rand, shape tensor.Shape) func(*tensor.Dense) *tensor.Dense {
	slices := make([]tensor.Slice, len(shape))
	cuts := false
	for d, n := range shape {
		if n >= 4 && r.IntN(3) == 0 {
			slices[d], cuts = tensor.S(r.IntN(2), n-r.IntN(2)), true
		}
	}
	turn := len(shape) > 1 && shape.TotalSize() > 0 && r.IntN(3) == 0
	return func(t *tensor.Dense) *tensor.Dense {
		if cuts && shape.TotalSize() > 0 {
			t = view(t, slices...)
		}
		if turn {
			t = transposed(t)
		}
		return t
	}
}

// as returns a tensor of float64 in another type.
func as(dt tensor.Dtype, d *tensor.Dense) *tensor.Dense {
	if dt == tensor.Float64 || d.MemSize() == 0 {
		return d
	}
	if d.Dims() == 0 {
		return tensor.New(tensor.FromScalar(float32(d.ScalarValue().(float64))))
	}
	var narrow []float32
	for _, v := range d.Data().([]float64) {
		narrow = append(narrow, float32(v))
	}
	return tensor.New(tensor.WithShape(d.Shape()...), tensor.WithBacking(narrow))
}

// TestGPUSelectByIndicesB adds gradients of slices that were selected several times,
// and leaves those out that were selected by an index out of range, where StdEng
// panics.
func TestGPUSelectByIndicesB(t *testing.T) {
	e := newGPU(t)
	for _, dt := range floats {
		for _, shape := range [][]int{{7}, {5, 3}, {3, 5}, {2, 3, 4}, {40, 70}} {
			for axis := range shape {
				e.checkSelectB(dt, shape, axis, 1) // package tensor makes a scalar of one index
				e.checkSelectB(dt, shape, axis, 1+e.Rand.IntN(100))
			}
		}
	}
	require.Zero(t, e.Stats().Fallbacks)
}

func (e *bench) checkSelectB(dt tensor.Dtype, shape []int, axis, picks int) {
	outer, inner := 1, 1
	for i, size := range shape {
		switch {
		case i < axis:
			outer *= size
		case i > axis:
			inner *= size
		}
	}
	at := make([]int, picks)
	for i := range at {
		at[i] = e.Rand.IntN(shape[axis]+2) - 1
	}
	picked := append([]int{}, shape...)
	picked[axis] = picks
	x, g, index := e.From(random(e.Rand, dt, shape...)), e.From(random(e.Rand, dt, picked...)), e.From(tensor.New(tensor.WithBacking(at)))
	want, gs := make([]float64, outer*shape[axis]*inner), e.As64(g)
	for o := range outer {
		for j, to := range at {
			for i := 0; i < inner && to >= 0 && to < shape[axis]; i++ {
				want[(o*shape[axis]+to)*inner+i] += gs[(o*picks+j)*inner+i]
			}
		}
	}
	dx := must(e.SelectByIndicesB(x, g, index, axis))
	e.RequireNear(want, dx, "gradient")
	e.FreeAll(x, g, index, dx)
}

// TestContract compares with a model, along any axes: TensorMul errs where three axes of four are left.
func TestContract(t *testing.T) {
	both(t, func(t *testing.T, e *bench) {
		for _, c := range []struct {
			a, b         []int
			aAxes, bAxes []int
		}{
			{[]int{2, 3}, []int{3, 4}, []int{1}, []int{0}}, {[]int{2, 3}, []int{4, 2}, []int{0}, []int{1}}, {[]int{5}, []int{5}, []int{0}, []int{0}},
			{[]int{2, 3, 4}, []int{4, 3, 5}, []int{1, 2}, []int{1, 0}}, {[]int{2, 3, 4}, []int{3, 2, 4}, []int{0, 1, 2}, []int{1, 0, 2}},
			{[]int{3, 4}, []int{4}, []int{1}, []int{0}}, {[]int{4}, []int{3, 4}, []int{0}, []int{1}}, {[]int{1, 1}, []int{1, 1}, []int{1}, []int{0}},
			{[]int{2, 4, 3, 4}, []int{4, 2, 3}, []int{1}, []int{0}}, {[]int{2, 3, 2, 3, 2}, []int{3, 2, 2}, []int{1, 2}, []int{0, 2}},
		} {
			for _, dt := range floats {
				ha, hb := random(e.Rand, dt, c.a...), random(e.Rand, dt, c.b...)
				a, b := e.From(ha), e.From(hb)
				got := must(e.Contract(a, b, c.aAxes, c.bAxes))
				want := contracted(c.a, c.b, c.aAxes, c.bAxes, must(elementsAt(ha)), must(elementsAt(hb)))
				if want.shape == nil {
					want.shape = []int{1}
				}
				require.Equal(t, want.shape, []int(got.Shape()))
				e.RequireNear(want.values, got, "contraction")
				e.FreeAll(a, b, got)
			}
		}
		require.True(t, !e.GPU || e.Stats().Fallbacks == 0)
	})
}

// A GPU selects by one index that is a scalar as by one that is a vector.
func TestGPUSelectByScalar(t *testing.T) {
	e := newGPU(t)
	x := e.From(tensor.New(tensor.WithShape(2, 3), tensor.WithBacking([]float64{1, 2, 3, 4, 5, 6})))
	at := e.From(tensor.New(tensor.WithBacking([]int{1})))
	require.Empty(t, at.Shape())
	r := must(tensor.ByIndices(x, at, 1))
	require.Equal(t, tensor.Shape{2, 1}, r.Shape())
	require.Equal(t, []float64{2, 5}, e.As64(r))
	require.Zero(t, e.Stats().Fallbacks)
	e.FreeAll(x, at, r)
}
