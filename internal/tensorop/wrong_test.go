package tensorop_test

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"gorgonia.org/tensor"

	"github.com/cupool/cupool"
)

// TestWrongArguments: for what StdEng panics, the engine fails, and nothing is left in the pool.
func TestWrongArguments(t *testing.T) {
	both(t, func(t *testing.T, e *bench) {
		x := e.From(tensor.New(tensor.WithShape(2, 3), tensor.WithBacking([]float64{1, 2, 3, 4, 5, 6})))
		v := e.From(tensor.New(tensor.WithShape(3), tensor.WithBacking([]float64{1, 2, 3})))
		single := e.From(tensor.New(tensor.WithShape(2, 3), tensor.WithBacking([]float32{1, 2, 3, 4, 5, 6})))
		none := e.From(tensor.New(tensor.WithShape(0, 3), tensor.Of(tensor.Float64)))
		sparse := tensor.CSRFromCoord(tensor.Shape{2, 3}, []int{0, 1}, []int{1, 2}, []float64{1, 2})
		ints, at := e.From(tensor.New(tensor.WithBacking(make([]int, 6)))), e.From(tensor.New(tensor.WithBacking([]int{1, 0})))
		truths := e.From(tensor.New(tensor.WithShape(2, 3), tensor.WithBacking(make([]bool, 6))))
		add := func(a, b float64) float64 { return a + b }
		before := e.Live()
		for name, f := range map[string]func() (any, error){
			"a zero Dense":              func() (any, error) { return e.Add(new(tensor.Dense), x) },
			"a zero Dense to reuse":     func() (any, error) { return e.Abs(x, tensor.WithReuse(new(tensor.Dense))) },
			"a zero Dense of the host":  func() (any, error) { return e.FromHost(new(tensor.Dense)) },
			"Argmax of nothing":         func() (any, error) { return e.Argmax(none, 0) },
			"Sum along axis -1":         func() (any, error) { return e.Sum(x, -1) },
			"Sum of a vector along -1":  func() (any, error) { return e.Sum(v, -1) },
			"Sum along too many axes":   func() (any, error) { return e.Sum(x, 2, 3) },
			"Sum along an axis twice":   func() (any, error) { return e.Sum(x, 0, 0) },
			"Max along an axis twice":   func() (any, error) { return e.Max(x, 1, 1) },
			"Min along axis 2":          func() (any, error) { return e.Min(x, 2) },
			"Norm along an axis twice":  func() (any, error) { return e.Norm(x, tensor.Norm(1), 1, 1) },
			"Max of nothing":            func() (any, error) { return e.Max(none) },
			"Reduce along axis -1":      func() (any, error) { return e.Reduce(add, x, -1, 0.0) },
			"Concat of two types":       func() (any, error) { return e.Concat(x, 0, single) },
			"Concat along axis -1":      func() (any, error) { return e.Concat(v, -1, v) },
			"Contract by axes":          func() (any, error) { return e.Contract(x, x, []int{5}, []int{5}) },
			"MatMul of a vector":        func() (any, error) { return nil, e.MatMul(v, v, v) },
			"MatVecMul of vectors":      func() (any, error) { return nil, e.MatVecMul(v, v, v) },
			"Outer into a vector":       func() (any, error) { return nil, e.Outer(v, v, v) },
			"Repeat -1 times":           func() (any, error) { return e.Repeat(x, 0, -1) },
			"RepeatReuse of two types":  func() (any, error) { return e.RepeatReuse(v, ints, 0, 2) },
			"Gradient of truths":        func() (any, error) { return e.SelectByIndicesB(truths, truths, at, 0) },
			"SoftMax of a sparse one":   func() (any, error) { return e.SoftMax(sparse, 1) },
			"SoftMax of nothing into x": func() (any, error) { return e.SoftMax(none, 0, tensor.WithReuse(x)) },
			"Map with no option":        func() (any, error) { return e.Map(func(v float64) float64 { return v }, x, nil) },
			"Reduce with no option":     func() (any, error) { return e.Reduce(add, x, 0, 0.0, nil) },
			"OptimizedReduce, the same": func() (any, error) { return e.OptimizedReduce(x, 0, add, add, add, 0.0, nil) },
			"Memset of nil":             func() (any, error) { return nil, e.Memset((*tensor.Dense)(nil), "x") },
		} {
			all := e.Scope()
			var err error
			require.NotPanics(t, func() { _, err = f() }, name)
			var own *cupool.EngineError
			require.ErrorAs(t, err, &own, name)
			require.NotErrorIs(t, err, cupool.ErrOutOfMemory, name)
			require.NoError(t, all.Close(), name)
			require.Equal(t, before, e.Live(), name)
		}
		e.FreeAll(x, v, single, none, ints, at, truths)
	})
}

// TestWrongSizes: operands that do not fit are refused, also where StdEng takes a part of them.
func TestWrongSizes(t *testing.T) {
	both(t, func(t *testing.T, e *bench) {
		of := func(shape ...int) *tensor.Dense { return e.From(random(e.Rand, tensor.Float64, shape...)) }
		for name, f := range map[string]func() error{
			"MatMul, 4 rows for 3 columns":       func() error { return e.MatMul(of(2, 3), of(4, 2), of(2, 2)) },
			"MatMul to more rows":                func() error { return e.MatMul(of(2, 3), of(3, 2), of(3, 2)) },
			"MatMul to more columns":             func() error { return e.MatMul(of(2, 3), of(3, 2), of(2, 3)) },
			"MatVecMul, 4 elements for 3":        func() error { return e.MatVecMul(of(2, 3), of(4), of(2)) },
			"MatVecMul to more elements":         func() error { return e.MatVecMul(of(2, 3), of(3), of(3)) },
			"Outer to more rows":                 func() error { return e.Outer(of(2), of(3), of(3, 3)) },
			"Outer to more columns":              func() error { return e.Outer(of(2), of(2), of(2, 3)) },
			"Inner of 2 and 3 elements":          func() error { _, err := e.Inner(of(2), of(3)); return err },
			"Inner of scalars":                   func() error { _, err := e.Inner(of(), of()); return err },
			"Inner of slices of one element":     func() error { _, err := e.Inner(view(of(3), tensor.S(1)), view(of(3), tensor.S(2))); return err },
			"Stack of 2 columns on 3":            func() error { _, err := tensor.Stack(0, of(2, 3), of(2, 2)); return err },
			"Stack of a matrix on its transpose": func() error { _, err := tensor.Stack(1, of(2, 3), of(2, 3), of(3, 2)); return err },
		} {
			all := e.Scope()
			err := f()
			var own *cupool.EngineError
			require.ErrorAs(t, err, &own, name)
			require.ErrorIs(t, err, cupool.ErrSizeMismatch, name)
			require.NoError(t, all.Close())
		}
	})
}

// TestIndicesOutOfRange: StdEng takes the first slice for an index that is too large. A GPU has NaN for it.
func TestIndicesOutOfRange(t *testing.T) {
	both(t, func(t *testing.T, e *bench) {
		for _, shape := range [][]int{{3, 3}, {1, 1}} {
			x := e.From(random(e.Rand, tensor.Float64, shape...))
			for axis := range shape {
				for _, index := range []int{-1, shape[axis], math.MaxInt} {
					picks := slices.Clone(shape)
					picks[axis] = 2
					at, g := e.From(tensor.New(tensor.WithBacking([]int{0, index}))), e.From(random(e.Rand, tensor.Float64, picks...))
					for name, f := range map[string]func() (tensor.Tensor, error){
						"ByIndices":       func() (tensor.Tensor, error) { return tensor.ByIndices(x, at, axis) },
						"ByIndices reuse": func() (tensor.Tensor, error) { return tensor.ByIndices(x, at, axis, tensor.WithReuse(g)) },
						"ByIndicesB":      func() (tensor.Tensor, error) { return tensor.ByIndicesB(x, g, at, axis) },
					} {
						all := e.Scope()
						r, err := f()
						what := fmt.Sprintf("%s of %v along %d by %d", name, shape, axis, index)
						if e.GPU {
							require.NoError(t, err, what)
							require.Equal(t, name != "ByIndicesB", slices.ContainsFunc(e.As64(r), math.IsNaN), what)
						} else {
							var own *cupool.EngineError
							require.ErrorAs(t, err, &own, what)
							require.ErrorContains(t, err, fmt.Sprintf("index %d", index))
						}
						require.NoError(t, all.Close())
					}
					e.FreeAll(at, g)
				}
			}
			e.FreeAll(x)
		}
	})
}

// TestPanicsOfTheProgramsOwn: what a program's function panics with goes on, and nothing is left in the pool.
func TestPanicsOfTheProgramsOwn(t *testing.T) {
	both(t, func(t *testing.T, e *bench) {
		x := e.From(tensor.New(tensor.WithShape(3), tensor.WithBacking([]float64{1, 2, 3})))
		require.PanicsWithValue(t, "own", func() { _, _ = e.Map(func(float64) float64 { panic("own") }, x) })
		require.PanicsWithValue(t, "own", func() {
			_, _ = e.Compute(func([]*tensor.Dense) (*tensor.Dense, error) { panic("own") }, x)
		})
		require.Equal(t, int64(1), e.Live())
		e.FreeAll(x)
	})
}

// TestNoElements: an elementwise operation on no elements gives none.
func TestNoElements(t *testing.T) {
	both(t, func(t *testing.T, e *bench) {
		for _, shape := range [][]int{{0}, {0, 3}, {3, 0}} {
			x := e.From(tensor.New(tensor.WithShape(shape...), tensor.Of(tensor.Float32)))
			dst := e.From(tensor.New(tensor.WithShape(shape...), tensor.Of(tensor.Float32)))
			for name, f := range map[string]func(opts ...tensor.FuncOpt) (tensor.Tensor, error){
				"Neg": func(opts ...tensor.FuncOpt) (tensor.Tensor, error) { return e.Neg(x, opts...) },
				"Exp": func(opts ...tensor.FuncOpt) (tensor.Tensor, error) { return e.Exp(x, opts...) },
				"Clamp": func(opts ...tensor.FuncOpt) (tensor.Tensor, error) {
					return e.Clamp(x, float32(0), float32(1), opts...)
				},
				"Add":        func(opts ...tensor.FuncOpt) (tensor.Tensor, error) { return e.Add(x, x, opts...) },
				"MulScalar":  func(opts ...tensor.FuncOpt) (tensor.Tensor, error) { return e.MulScalar(x, float32(2), true, opts...) },
				"SoftMax":    func(opts ...tensor.FuncOpt) (tensor.Tensor, error) { return e.SoftMax(x, -1, opts...) },
				"LogSoftMax": func(opts ...tensor.FuncOpt) (tensor.Tensor, error) { return e.LogSoftMax(x, 0, opts...) },
				"SoftMaxB":   func(opts ...tensor.FuncOpt) (tensor.Tensor, error) { return e.SoftMaxB(x, x, 0, opts...) },
				"Map": func(opts ...tensor.FuncOpt) (tensor.Tensor, error) {
					return e.Map(func(x float32) float32 { return x }, x, opts...)
				},
			} {
				r, err := f()
				require.NoError(t, err, "%s %v", name, shape)
				require.Equal(t, tensor.Shape(shape), r.Shape(), name)
				require.Same(t, e.Engine, cupool.EngineOf(r), name)
				r, err = f(tensor.WithReuse(dst))
				require.NoError(t, err, "%s %v", name, shape)
				require.Same(t, dst, r, name)
				r, err = f(tensor.UseUnsafe())
				require.NoError(t, err, "%s %v", name, shape)
				require.Same(t, x, r, name)
			}
			r, err := e.GtScalar(x, float32(2), true)
			require.NoError(t, err)
			require.Equal(t, tensor.Bool, r.Dtype())
			require.Zero(t, e.Live())
		}
	})
}
