package tensorop_test

import (
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"gorgonia.org/tensor"

	"github.com/cupool/cupool"
)

// TestByIndicesReuse: the engine heeds WithReuse, which StdEng does not, and
// takes nothing from the pool for it.
func TestByIndicesReuse(t *testing.T) {
	both(t, func(t *testing.T, e *bench) {
		x := e.From(tensor.New(tensor.WithShape(4, 2), tensor.WithBacking([]float32{0, 1, 10, 11, 20, 21, 30, 31})))
		at := e.From(tensor.New(tensor.WithBacking([]int{3, 0, 3})))
		dst := must(e.Empty(tensor.Float32, 3, 2))
		live := e.Live()
		r := must(tensor.ByIndices(x, at, 0, tensor.WithReuse(dst)))
		require.Same(t, dst, r)
		require.Equal(t, []float32{30, 31, 0, 1, 30, 31}, must(e.ToHost(dst)).Data())
		columns := must(e.Empty(tensor.Float32, 4, 1))
		one := e.From(tensor.New(tensor.WithBacking([]int{1})))
		require.Same(t, columns, must(tensor.ByIndices(x, one, 1, tensor.WithReuse(columns))))
		require.Equal(t, []float32{1, 11, 21, 31}, must(e.ToHost(columns)).Data())
		require.Equal(t, live+2, e.Live())
		e.FreeAll(x, at, dst, columns, one)
	})
}

// TestByIndicesUnsafe writes over what it selects from.
func TestByIndicesUnsafe(t *testing.T) {
	both(t, func(t *testing.T, e *bench) {
		for axis, want := range [][]float64{{4, 5, 6, 1, 2, 3}, {2, 1, 1, 5, 4, 4}} {
			x := e.From(tensor.New(tensor.WithShape(2, 3), tensor.WithBacking([]float64{1, 2, 3, 4, 5, 6})))
			at := e.From(tensor.New(tensor.WithBacking([]int{1, 0, 0}[:2+axis])))
			require.Same(t, x, must(tensor.ByIndices(x, at, axis, tensor.UseUnsafe())))
			require.Equal(t, want, e.As64(x))
			one := e.From(tensor.New(tensor.WithBacking([]int{1})))
			_, err := tensor.ByIndices(x, one, axis, tensor.UseUnsafe())
			require.Error(t, err, "the result is smaller")
			require.Equal(t, want, e.As64(x))
			e.FreeAll(x, at, one)
		}
	})
}

// TestGradientsOfByIndices: StdEng adds to other elements along any axis but the first. It adds to the
// tensor that it is told to reuse, too.
func TestGradientsOfByIndices(t *testing.T) {
	swapped := func(d *tensor.Dense) *tensor.Dense { return straight(must(d.SafeT(1, 0, 2))) }
	both(t, func(t *testing.T, e *bench) {
		for _, dt := range append(slices.Clone(numbers), tensor.Complex64, tensor.Int8, tensor.Uint16) {
			all := e.Scope()
			hx, hg := random(e.Rand, dt, 2, 3, 2), random(e.Rand, dt, 2, 4, 2)
			picks := tensor.New(tensor.WithBacking([]int{2, 0, 2, 2}))
			want := swapped(must(tensor.ByIndicesB(swapped(hx), swapped(hg), picks, 0)).(*tensor.Dense))
			x, g, at := e.From(hx), e.From(hg), e.From(picks)
			e.RequireSame(want, must(tensor.ByIndicesB(x, g, at, 1)), dt.String())
			for name, opt := range map[string]func(tensor.Tensor) tensor.FuncOpt{"reuse": tensor.WithReuse, "incr": tensor.WithIncr} {
				dst := e.From(hx)
				require.Same(t, dst, must(tensor.ByIndicesB(x, g, at, 1, opt(dst))), name)
				e.RequireSame(must(tensor.Add(hx, want)), dst, dt.String()+name)
			}
			for _, wrong := range []*tensor.Dense{view(g, nil, tensor.S(0, 3)), x, at} {
				_, err := tensor.ByIndicesB(x, wrong, at, 1)
				require.ErrorIs(t, err, cupool.ErrSizeMismatch, "a gradient of %v", wrong.Shape())
			}
			require.NoError(t, all.Close())
		}
	})
}

// TestRepeatReuse compares with StdEng, also where it makes nothing in Go's heap
// for it.
func TestRepeatReuse(t *testing.T) {
	both(t, func(t *testing.T, e *bench) {
		for axis, repeats := range [][]int{{2}, {3, 0, 1}, {2}} {
			h := random(e.Rand, tensor.Float64, 2, 3, 2)
			want := must(tensor.Repeat(h, axis, repeats...))
			x := e.From(h)
			dst := must(e.Empty(tensor.Float64, want.Shape().Clone()...))
			require.Same(t, dst, must(tensor.RepeatReuse(x, dst, axis, repeats...)))
			require.Equal(t, want.Data(), must(e.ToHost(dst)).Data())
			fresh := must(tensor.Repeat(x, axis, repeats...))
			require.Equal(t, want.Data(), must(e.ToHost(fresh)).Data())
			e.FreeAll(x, dst, fresh)
		}
	})
}

// TestRepeatReuseOverItself repeats what lies in the result's memory.
func TestRepeatReuseOverItself(t *testing.T) {
	both(t, func(t *testing.T, e *bench) {
		for axis, want := range map[int][]float64{0: {1, 2, 1, 2, 3, 4, 3, 4}, 1: {1, 1, 2, 2, 3, 3, 4, 4}, tensor.AllAxes: {1, 1, 2, 2, 3, 3, 4, 4}} {
			x := e.From(tensor.New(tensor.WithBacking([]float64{1, 2, 3, 4, 5, 6, 7, 8})))
			part := view(x, tensor.S(0, 4))
			require.NoError(t, part.Reshape(2, 2))
			dst := view(x, tensor.S(0, 8))
			switch axis {
			case 0:
				require.NoError(t, dst.Reshape(4, 2))
			case 1:
				require.NoError(t, dst.Reshape(2, 4))
			}
			require.Same(t, dst, must(tensor.RepeatReuse(part, dst, axis, 2)))
			require.Equal(t, want, e.As64(x), "axis %d", axis)
			e.FreeAll(x)
		}
	})
}

// TestRepeatsTooOften: what no memory can hold is refused, and not tried in Go's heap.
func TestRepeatsTooOften(t *testing.T) {
	both(t, func(t *testing.T, e *bench) {
		x := e.From(random(e.Rand, tensor.Float64, 4, 3))
		view := must(x.Slice(nil, tensor.S(0, 2))).(*tensor.Dense)
		one := e.From(tensor.New(tensor.WithBacking([]float64{7})))
		live := e.Live()
		for _, n := range []int{1 << 40, 1 << 60, 1 << 61, 1 << 62, math.MaxInt} {
			for _, axis := range []int{tensor.AllAxes, 0, 1} {
				for _, of := range []*tensor.Dense{x, view} {
					_, err := tensor.Repeat(of, axis, n)
					require.Error(t, err, "%v along %d, %d times", of.Shape(), axis, n)
				}
			}
			for _, of := range []*tensor.Dense{x, view} {
				_, err := tensor.Repeat(of, 0, 1, n, n, 1)
				require.Error(t, err, n)
			}
			_, err := tensor.Repeat(one, 0, n)
			require.Error(t, err, n)
		}
		require.Equal(t, live, e.Live())
		for axis, repeats := range [][]int{{2}, {3, 0}} {
			r := must(tensor.Repeat(view, axis, repeats...))
			require.Equal(t, must(tensor.Repeat(must(e.ToHost(view)), axis, repeats...)).Data(), must(e.ToHost(r)).Data())
			e.FreeAll(r)
		}
		e.FreeAll(x, one)
	})
}

// TestSoftMaxReuse: results go where they are wanted, but not over an input that
// is still read.
func TestSoftMaxReuse(t *testing.T) {
	both(t, func(t *testing.T, e *bench) {
		h := random(e.Rand, tensor.Float32, 3, 4)
		want := must(tensor.LogSoftMax(h.Clone().(*tensor.Dense), -1))
		x, dst := e.From(h), must(e.Empty(tensor.Float32, 3, 4))
		require.Same(t, dst, must(tensor.LogSoftMax(x, -1, tensor.WithReuse(dst), tensor.UseUnsafe())))
		require.InDeltaSlice(t, want.Data(), must(e.ToHost(dst)).Data(), 1e-5)
		require.Same(t, x, must(tensor.LogSoftMax(x, -1, tensor.WithReuse(x), tensor.UseUnsafe())))
		require.InDeltaSlice(t, want.Data(), must(e.ToHost(x)).Data(), 1e-5)
		e.FreeAll(x, dst)
	})
}

// TestReuseOfAnotherSize: a result is not cut to the tensor that is to have it, nor a part of that.
func TestReuseOfAnotherSize(t *testing.T) {
	both(t, func(t *testing.T, e *bench) {
		x, g := e.From(random(e.Rand, tensor.Float64, 2, 3)), e.From(random(e.Rand, tensor.Float64, 2, 3))
		at := e.From(tensor.New(tensor.WithBacking([]int{1, 0})))
		whole := e.From(random(e.Rand, tensor.Float64, 4, 4))
		for _, cut := range [][]tensor.Slice{{tensor.S(0)}, {tensor.S(0, 2), tensor.S(0, 2)}, {tensor.S(0, 2)}, nil} {
			dst := view(whole, cut...)
			before := e.As64(whole)
			for name, f := range map[string]func(tensor.FuncOpt) (tensor.Tensor, error){
				"SoftMax":     func(o tensor.FuncOpt) (tensor.Tensor, error) { return tensor.SoftMax(x, 1, o) },
				"LogSoftMax":  func(o tensor.FuncOpt) (tensor.Tensor, error) { return tensor.LogSoftMax(x, 0, o) },
				"SoftMaxB":    func(o tensor.FuncOpt) (tensor.Tensor, error) { return tensor.SoftMaxB(x, g, 1, o) },
				"LogSoftMaxB": func(o tensor.FuncOpt) (tensor.Tensor, error) { return tensor.LogSoftMaxB(x, g, 0, o) },
				"ByIndices":   func(o tensor.FuncOpt) (tensor.Tensor, error) { return tensor.ByIndices(x, at, 0, o) },
			} {
				_, err := f(tensor.WithReuse(dst))
				require.Error(t, err, "%s to %v", name, dst.Shape())
				require.Equal(t, before, e.As64(whole), "%s to %v", name, dst.Shape())
			}
		}
		e.FreeAll(x, g, at, whole)
	})
}

// TestByIndicesReuseOfAnotherShape: a tensor of as many elements gets the result's shape.
func TestByIndicesReuseOfAnotherShape(t *testing.T) {
	both(t, func(t *testing.T, e *bench) {
		x := e.From(tensor.New(tensor.WithShape(2, 3), tensor.WithBacking([]float64{1, 2, 3, 4, 5, 6})))
		at := e.From(tensor.New(tensor.WithBacking([]int{1, 0})))
		dst := must(e.Empty(tensor.Float64, 6))
		require.Same(t, dst, must(tensor.ByIndices(x, at, 0, tensor.WithReuse(dst))))
		require.Equal(t, tensor.Shape{2, 3}, dst.Shape())
		require.Equal(t, []float64{4, 5, 6, 1, 2, 3}, e.As64(dst))
		e.FreeAll(x, at, dst)
	})
}

// TestSumsThatAreNone: what adds nothing to the tensor of WithIncr fails, as Reduce does. StdEng forgets it.
func TestSumsThatAreNone(t *testing.T) {
	both(t, func(t *testing.T, e *bench) {
		x, sum := e.From(random(e.Rand, tensor.Float64, 2, 3)), e.From(random(e.Rand, tensor.Float64, 2, 3))
		at := e.From(tensor.New(tensor.WithBacking([]int{1, 0})))
		live := e.Live()
		for name, f := range map[string]func(tensor.FuncOpt) (tensor.Tensor, error){
			"SoftMax":     func(o tensor.FuncOpt) (tensor.Tensor, error) { return tensor.SoftMax(x, 1, o) },
			"LogSoftMax":  func(o tensor.FuncOpt) (tensor.Tensor, error) { return tensor.LogSoftMax(x, 0, o) },
			"SoftMaxB":    func(o tensor.FuncOpt) (tensor.Tensor, error) { return tensor.SoftMaxB(x, x, 1, o) },
			"LogSoftMaxB": func(o tensor.FuncOpt) (tensor.Tensor, error) { return tensor.LogSoftMaxB(x, x, 0, o) },
			"ByIndices":   func(o tensor.FuncOpt) (tensor.Tensor, error) { return tensor.ByIndices(x, at, 0, o) },
		} {
			_, err := f(tensor.WithIncr(sum))
			require.ErrorIs(t, err, cupool.ErrNotSupported, name)
		}
		require.Equal(t, live, e.Live())
		e.FreeAll(x, sum, at)
	})
}
