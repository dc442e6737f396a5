package tensorop_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"gorgonia.org/tensor"

	"github.com/cupool/cupool"
)

func TestEngineHostCopies(t *testing.T) {
	both(t, func(t *testing.T, e *bench) {
		for _, l := range layoutNames {
			layout := layouts[l]
			for _, dt := range []tensor.Dtype{tensor.Float32, tensor.Int, tensor.Bool, tensor.Complex128} {
				base := random(e.Rand, dt, layout.shape...)
				pool := e.From(base)
				want, p := layout.make(base), layout.make(pool.ShallowClone())

				h, err := e.ToHost(p)
				require.NoError(t, err, l)
				require.IsType(t, tensor.StdEng{}, h.Engine(), l)
				require.True(t, h.IsNativelyAccessible(), l)
				require.False(t, h.IsMaterializable(), l)
				e.RequireSame(want, h, l)

				again, err := e.FromHost(want)
				require.NoError(t, err, l)
				require.True(t, e.Owns(again), l)
				e.RequireSame(want, again, l)
				p2, err := e.FromHost(p)
				require.NoError(t, err, l)
				e.RequireSame(want, p2, l)
				e.FreeAll(pool, again, p2)
			}
		}
		colMajor := tensor.New(tensor.WithShape(2, 3), tensor.AsFortran([]int{1, 2, 3, 4, 5, 6}))
		p := e.From(colMajor)
		require.True(t, p.DataOrder().IsColMajor())
		e.RequireSame(colMajor, p, "column-major")
		h := e.Host(p)
		require.Equal(t, 6, must(h.At(1, 2)))
		e.FreeAll(p)

		_, err := e.FromHost(tensor.New(tensor.WithBacking([]string{"a"})))
		require.ErrorIs(t, err, cupool.ErrNotSupported)
		_, err = e.FromHost(nil)
		require.ErrorIs(t, err, cupool.ErrNotSupported)
		_, err = e.ToHost(nil)
		require.ErrorIs(t, err, cupool.ErrNotSupported)
	})
}

func TestEngineForeignTensors(t *testing.T) {
	for _, far := range []bool{false, true} {
		e, o := newBench(t, far), newBench(t, true)
		a, b := random(e.Rand, tensor.Float64, 3, 4), random(e.Rand, tensor.Float64, 3, 4)
		pa, ob := e.From(a), o.From(b)
		want := must(tensor.Add(a, b))

		got := must(tensor.Add(pa, ob))
		e.RequireSame(want, got, "two pools")
		require.True(t, e.Owns(got))
		e.FreeAll(got)
		got = must(tensor.Add(pa, b))
		e.RequireSame(want, got, "pool and heap")
		require.True(t, e.Owns(got))
		e.FreeAll(got)
		backed := tensor.New(tensor.WithBacking(append([]float64(nil), a.Data().([]float64)...)), tensor.WithShape(3, 4), tensor.WithEngine(e))
		got = must(tensor.Add(backed, ob))
		e.RequireSame(want, got, "heap with the engine, and the other pool")
		require.True(t, e.Owns(got))
		e.FreeAll(got)
		must(tensor.Add(backed, b, tensor.UseUnsafe()))
		e.RequireSame(want, backed, "heap with the engine, in place")
		must(e.Add(pa, b, tensor.WithReuse(ob)))
		e.RequireSame(want, ob, "into the other pool")

		require.NoError(t, e.Copy(pa, b))
		e.RequireSame(b, pa, "from the heap")
		require.NoError(t, e.Copy(ob, a))
		e.RequireSame(a, ob, "to the other pool")
		require.NoError(t, e.Copy(pa, ob))
		e.RequireSame(a, pa, "from the other pool")
		e.FreeAll(pa)
		o.FreeAll(ob)
	}
}

func TestEngineCopyZero(t *testing.T) {
	both(t, func(t *testing.T, e *bench) {
		for _, l := range layoutNames {
			layout := layouts[l]
			if l == "masked" {
				continue
			}
			base := random(e.Rand, tensor.Float32, layout.shape...)
			pool := e.From(base)
			v, p := layout.make(base.ShallowClone()), layout.make(pool.ShallowClone())

			src := random(e.Rand, tensor.Float32, 3, 4)
			require.NoError(t, tensor.Copy(v, src))
			require.NoError(t, e.Copy(p, src))
			e.RequireSame(base, pool, l+": copy")

			require.NoError(t, e.Zero(p))
			require.NoError(t, v.Memset(float32(0))) // StdEng's Zero zeroes the gaps of a view too
			e.RequireSame(base, pool, l+": zero")

			require.NoError(t, e.Memset(p, float32(3)))
			require.NoError(t, v.Memset(float32(3)))
			e.RequireSame(base, pool, l+": memset")
			e.Memclr(p)
			require.NoError(t, v.Memset(float32(0)))
			e.RequireSame(base, pool, l+": memclr")
			e.FreeAll(pool)
		}
		a := e.From(random(e.Rand, tensor.Float32, 3))
		require.ErrorIs(t, e.Copy(a, random(e.Rand, tensor.Float32, 4)), cupool.ErrSizeMismatch)
		require.ErrorIs(t, e.Copy(a, random(e.Rand, tensor.Float64, 3)), cupool.ErrSizeMismatch)
		require.ErrorIs(t, e.Copy(a, nil), cupool.ErrNotSupported)
		require.NoError(t, e.Zero(nil))
		e.FreeAll(a)
	})
}

func TestEngineCompute(t *testing.T) {
	both(t, func(t *testing.T, e *bench) {
		a, b := random(e.Rand, tensor.Float64, 2, 3, 4), random(e.Rand, tensor.Float64, 4, 3, 5)
		m := random(e.Rand, tensor.Float64, 3, 4)
		pa, pb, pm := e.From(a), e.From(b), e.From(m)
		live := e.Live()
		check := func(want *tensor.Dense, err error) func(got tensor.Tensor, err error) {
			require.NoError(t, err)
			return func(got tensor.Tensor, err error) {
				require.NoError(t, err)
				e.RequireSame(want, got, "")
				require.True(t, e.Owns(got))
				require.Same(t, e.Engine, got.Engine())
				e.FreeAll(got)
				require.Equal(t, live, e.Live(), "temporaries are left")
			}
		}
		check(a.TensorMul(b, []int{1, 2}, []int{1, 0}))(dense(e.Contract(pa, pb, []int{1, 2}, []int{1, 0})))
		check(m.Norm(tensor.UnorderedNorm()))(dense(e.Norm(pm, tensor.UnorderedNorm())))
		check(m.Norm(tensor.Norm(2), 0))(dense(e.Norm(pm, tensor.Norm(2), 0)))
		check(m.Norm(tensor.NuclearNorm(), 0, 1))(dense(e.Norm(pm, tensor.NuclearNorm(), 0, 1)))
		check(view(m, nil, tensor.S(1, 3)).Materialize().(*tensor.Dense), nil)(e.Materialize(view(pm, nil, tensor.S(1, 3))))
		same, err := e.Materialize(pm)
		require.NoError(t, err)
		require.Same(t, pm, same)
		check(m.Clone().(*tensor.Dense), nil)(dense(e.Compute(func(ts []*tensor.Dense) (*tensor.Dense, error) { return ts[0].ShallowClone(), nil }, pm)))
		check(view(m, nil, tensor.S(1, 3)).Materialize().(*tensor.Dense), nil)(dense(e.Compute(func(ts []*tensor.Dense) (*tensor.Dense, error) { return view(ts[0], nil, tensor.S(1, 3)), nil }, pm)))
		_, err = e.Compute(func([]*tensor.Dense) (*tensor.Dense, error) { return nil, cupool.ErrClosed }, pm)
		require.ErrorIs(t, err, cupool.ErrClosed)
		_, err = e.Compute(func([]*tensor.Dense) (*tensor.Dense, error) { return nil, nil }, pm)
		require.Error(t, err)
		whole := e.From(ints(m, 1))
		_, err = e.Norm(whole, tensor.UnorderedNorm())
		require.Error(t, err)
		e.FreeAll(pa, pb, pm, whole)
	})
}

// TestOperationsHaveTheirNames: what is computed by Compute goes by its own name.
func TestOperationsHaveTheirNames(t *testing.T) {
	both(t, func(t *testing.T, e *bench) {
		x := e.From(tensor.New(tensor.WithShape(2, 2), tensor.WithBacking([]int{1, 2, 3, 4}))) // no GPU takes it
		for name, f := range map[string]func() (*tensor.Dense, error){
			"Norm":     func() (*tensor.Dense, error) { return e.Norm(x, tensor.Norm(1)) },
			"Contract": func() (*tensor.Dense, error) { return e.Contract(x, x, []int{1}, []int{0}) },
		} {
			before := e.Stats().ByOp[name]
			_, err := f()
			require.Error(t, err, "it is for floats")
			require.Equal(t, e.Far, e.Stats().ByOp[name] > before, name)
		}
		e.FreeAll(x)
		_, err := e.Norm(x, tensor.Norm(1))
		require.ErrorContains(t, err, "tensor Norm: ")
		_, err = e.Contract(x, x, []int{1}, []int{0})
		require.ErrorContains(t, err, "tensor Contract: ")
	})
}

// TestSparseTensors: none can be in the pool, and errors name what was called.
func TestSparseTensors(t *testing.T) {
	both(t, func(t *testing.T, e *bench) {
		sparse := tensor.CSRFromCoord(tensor.Shape{2, 3}, []int{0, 1}, []int{1, 2}, []float64{1, 2})
		_, err := e.FromHost(sparse)
		require.ErrorIs(t, err, cupool.ErrNotSupported)
		require.ErrorContains(t, err, "copy to the pool")
		_, err = e.ToHost(sparse)
		require.ErrorIs(t, err, cupool.ErrNotSupported)
		require.ErrorContains(t, err, "copy to host")
	})
}

func TestEngineSoftMaxInPlace(t *testing.T) {
	both(t, func(t *testing.T, e *bench) {
		x, g := random(e.Rand, tensor.Float32, 3, 4), random(e.Rand, tensor.Float32, 3, 4)
		for name, f := range map[string]func(x, g *tensor.Dense, opts ...tensor.FuncOpt) (tensor.Tensor, error){
			"SoftMax": func(x, _ *tensor.Dense, opts ...tensor.FuncOpt) (tensor.Tensor, error) {
				return tensor.SoftMax(x, 1, opts...)
			},
			"LogSoftMax": func(x, _ *tensor.Dense, opts ...tensor.FuncOpt) (tensor.Tensor, error) {
				return tensor.LogSoftMax(x, 0, opts...)
			},
			"SoftMaxB": func(x, g *tensor.Dense, opts ...tensor.FuncOpt) (tensor.Tensor, error) {
				return tensor.SoftMaxB(x, g, 1, opts...)
			},
			"LogSoftMaxB": func(x, g *tensor.Dense, opts ...tensor.FuncOpt) (tensor.Tensor, error) {
				return tensor.LogSoftMaxB(x, g, 0, opts...)
			},
		} {
			want := must(f(x, g))
			px, pg, pr := e.From(x), e.From(g), e.From(g)
			live := e.Live()
			r := must(f(px, pg, tensor.WithReuse(pr)))
			require.Same(t, pr, r, name)
			e.RequireSame(want, pr, name)
			e.RequireSame(x, px, name)
			r = must(f(px, pg, tensor.UseUnsafe()))
			require.Same(t, px, r, name)
			e.RequireSame(want, px, name)
			require.Equal(t, live, e.Live(), name)
			e.FreeAll(px, pg, pr)
		}
		s := e.From(random(e.Rand, tensor.Float32))
		_, err := tensor.SoftMax(s, 0)
		require.ErrorIs(t, err, cupool.ErrNotSupported)
		e.FreeAll(s)
	})
}

func TestEngineBetweenUnsafe(t *testing.T) {
	both(t, func(t *testing.T, e *bench) {
		a, b := random(e.Rand, tensor.Int, 3, 4), random(e.Rand, tensor.Int, 3, 4)
		pa, pb := e.From(a), e.From(b)
		r := must(tensor.MinBetween(pa, pb, tensor.UseUnsafe()))
		require.Same(t, pa, r)
		e.RequireSame(must(tensor.MinBetween(a, b)), pa, "MinBetween")
		must(tensor.MaxBetween(pb, 1, tensor.UseUnsafe()))
		e.RequireSame(must(tensor.MaxBetween(b, 1)), pb, "MaxBetween")
		e.FreeAll(pa, pb)
	})
}

func TestEngineTransposeLosesNoError(t *testing.T) {
	e := newBench(t, true)
	d := e.From(random(e.Rand, tensor.Float64, 3, 4))
	clone := d.ShallowClone()
	e.FreeAll(d)
	require.NoError(t, clone.T())
	require.NoError(t, clone.Reshape(2, 6), "tensor drops the error")
	x := random(e.Rand, tensor.Float64, 3)
	_, err := e.FromHost(x)
	require.ErrorIs(t, err, cupool.ErrUseAfterFree)
	_, err = e.Exp(x)
	require.ErrorIs(t, err, cupool.ErrUseAfterFree)
	require.ErrorIs(t, e.Sync(), cupool.ErrUseAfterFree)
	e.FreeAll(e.From(x))
}
