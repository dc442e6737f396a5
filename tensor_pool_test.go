package cupool_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"gorgonia.org/tensor"

	"github.com/cupool/cupool"
)

func TestEngineFreeTensor(t *testing.T) {
	both(t, func(t *testing.T, e *bench) {
		d := e.from(random(e.r, tensor.Float32, 4, 4))
		clone := d.ShallowClone()
		rows, columns := view(d, tensor.S(1, 3)), view(d, nil, tensor.S(1, 3))
		first := view(d, tensor.S(0, 2))
		heap := random(e.r, tensor.Float32, 3)

		require.ErrorIs(t, e.FreeTensor(rows), cupool.ErrInteriorPointer)
		require.ErrorIs(t, e.FreeTensor(columns), cupool.ErrInteriorPointer)
		require.ErrorIs(t, e.FreeTensor(first), cupool.ErrSizeMismatch)
		require.ErrorIs(t, e.FreeTensor(heap), cupool.ErrForeignPointer)
		require.NoError(t, e.FreeTensor(nil, (*tensor.Dense)(nil), tensor.New(tensor.Of(tensor.Int), tensor.WithShape(0), tensor.WithEngine(e))))
		require.Equal(t, int64(1), e.live())

		require.ErrorIs(t, e.FreeTensor(heap, d), cupool.ErrForeignPointer, "frees what it can")
		require.Zero(t, e.live())
		require.ErrorIs(t, e.FreeTensor(d), cupool.ErrDoubleFree)
		require.ErrorIs(t, e.FreeTensor(clone), cupool.ErrDoubleFree)
		require.False(t, e.Owns(d))
		require.False(t, e.Owns(clone))
	})
}

func TestEngineOwns(t *testing.T) {
	both(t, func(t *testing.T, e *bench) {
		d := e.from(random(e.r, tensor.Float32, 4, 4))
		for name, tc := range map[string]struct {
			t    tensor.Tensor
			want bool
		}{
			"result":       {d, true},
			"view":         {view(d, tensor.S(1, 3)), true},
			"shallow":      {d.ShallowClone(), true},
			"heap":         {random(e.r, tensor.Int, 2), false},
			"with backing": {tensor.New(tensor.WithBacking([]int{1}), tensor.WithEngine(e)), false},
			"empty":        {tensor.New(tensor.Of(tensor.Int), tensor.WithShape(0), tensor.WithEngine(e)), false},
			"nil":          {nil, false},
			"nil pointer":  {(*tensor.Dense)(nil), false},
		} {
			require.Equal(t, tc.want, e.Owns(tc.t), name)
		}
		e.free(d)
	})
}

// TestEngineUseAfterFree: a tensor that was freed is refused by every kind of
// operation.
func TestEngineUseAfterFree(t *testing.T) {
	both(t, func(t *testing.T, e *bench) {
		x := e.from(random(e.r, tensor.Float64, 3, 3))
		d := e.from(x)
		e.free(d)
		for name, f := range map[string]func() error{
			"Add":        func() error { _, err := tensor.Add(d, x); return err },
			"Add to":     func() error { _, err := tensor.Add(x, d); return err },
			"reuse":      func() error { _, err := tensor.Add(x, x, tensor.WithReuse(d)); return err },
			"incr":       func() error { _, err := tensor.Exp(x, tensor.WithIncr(d)); return err },
			"AddScalar":  func() error { _, err := tensor.Add(d, 1.0); return err },
			"Exp":        func() error { _, err := tensor.Exp(d); return err },
			"Sum":        func() error { _, err := tensor.Sum(d); return err },
			"MatMul":     func() error { _, err := tensor.MatMul(x, d); return err },
			"SoftMax":    func() error { _, err := tensor.SoftMax(d, 1); return err },
			"ToHost":     func() error { _, err := e.ToHost(d); return err },
			"FromHost":   func() error { _, err := e.FromHost(d); return err },
			"Copy":       func() error { return e.Copy(d, x) },
			"Copy from":  func() error { return e.Copy(x, d) },
			"Memset":     func() error { return e.Memset(d, 1.0) },
			"Memcpy":     func() error { return e.Memcpy(x, d) },
			"Accessible": func() error { _, err := e.Accessible(d); return err },
			"Zero":       func() error { return e.Zero(d) },
			"Norm":       func() error { _, err := e.Norm(d, tensor.UnorderedNorm()); return err },
			"Trace":      func() error { _, err := d.Trace(); return err },
		} {
			sc := e.Scope() // MatMul loses the tensor for its result
			require.ErrorIs(t, f(), cupool.ErrUseAfterFree, name)
			require.NoError(t, sc.Close())
		}
		e.free(x)
	})
}

func TestEngineEmpty(t *testing.T) {
	both(t, func(t *testing.T, e *bench) {
		for _, shape := range [][]int{{}, {1}, {3, 4}, {0, 3}} {
			d, err := e.Empty(tensor.Float32, shape...)
			require.NoError(t, err)
			require.Equal(t, tensor.Shape(shape).TotalSize()*4, int(d.MemSize()))
			require.Same(t, e.Engine, d.Engine())
			if d.MemSize() > 0 {
				require.NotZero(t, e.host(d).Get(0), "not zeroed: the memory is poisoned")
			}
			e.free(d)
		}
		_, err := e.Empty(tensor.String, 3)
		require.ErrorIs(t, err, cupool.ErrNotSupported)
		for _, shape := range [][]int{{-1}, {1 << 62, 4}, {1 << 40, 1 << 40}} {
			_, err = e.Empty(tensor.Float32, shape...)
			require.ErrorIs(t, err, cupool.ErrInvalidSize)
		}
	})
}

func TestEngineHostCopies(t *testing.T) {
	both(t, func(t *testing.T, e *bench) {
		for _, l := range layoutNames {
			layout := layouts[l]
			for _, dt := range []tensor.Dtype{tensor.Float32, tensor.Int, tensor.Bool, tensor.Complex128} {
				base := random(e.r, dt, layout.shape...)
				pool := e.from(base)
				want, p := layout.make(base), layout.make(pool.ShallowClone())

				h, err := e.ToHost(p)
				require.NoError(t, err, l)
				require.IsType(t, tensor.StdEng{}, h.Engine(), l)
				require.True(t, h.IsNativelyAccessible(), l)
				require.False(t, h.IsMaterializable(), l)
				e.requireSame(want, h, l)

				again, err := e.FromHost(want)
				require.NoError(t, err, l)
				require.True(t, e.Owns(again), l)
				e.requireSame(want, again, l)
				p2, err := e.FromHost(p)
				require.NoError(t, err, l)
				e.requireSame(want, p2, l)
				e.free(pool, again, p2)
			}
		}
		colMajor := tensor.New(tensor.WithShape(2, 3), tensor.AsFortran([]int{1, 2, 3, 4, 5, 6}))
		p := e.from(colMajor)
		require.True(t, p.DataOrder().IsColMajor())
		e.requireSame(colMajor, p, "column-major")
		h := e.host(p)
		require.Equal(t, 6, must(h.At(1, 2)))
		e.free(p)

		_, err := e.FromHost(tensor.New(tensor.WithBacking([]string{"a"})))
		require.ErrorIs(t, err, cupool.ErrNotSupported)
		_, err = e.FromHost(nil)
		require.ErrorIs(t, err, cupool.ErrNotSupported)
		_, err = e.ToHost(nil)
		require.ErrorIs(t, err, cupool.ErrNotSupported)
	})
}

// TestEngineForeignTensors mixes tensors of two pools and of Go's heap.
func TestEngineForeignTensors(t *testing.T) {
	for _, far := range []bool{false, true} {
		e, o := newBench(t, far), newBench(t, true)
		a, b := random(e.r, tensor.Float64, 3, 4), random(e.r, tensor.Float64, 3, 4)
		pa, ob := e.from(a), o.from(b)
		want := must(tensor.Add(a, b))

		got := must(tensor.Add(pa, ob))
		e.requireSame(want, got, "two pools")
		require.True(t, e.Owns(got))
		e.free(got)
		got = must(tensor.Add(pa, b))
		e.requireSame(want, got, "pool and heap")
		require.True(t, e.Owns(got))
		e.free(got)
		backed := tensor.New(tensor.WithBacking(append([]float64(nil), a.Data().([]float64)...)), tensor.WithShape(3, 4), tensor.WithEngine(e))
		got = must(tensor.Add(backed, ob))
		e.requireSame(want, got, "heap with the engine, and the other pool")
		require.True(t, e.Owns(got))
		e.free(got)
		must(tensor.Add(backed, b, tensor.UseUnsafe()))
		e.requireSame(want, backed, "heap with the engine, in place")
		must(e.Add(pa, b, tensor.WithReuse(ob)))
		e.requireSame(want, ob, "into the other pool")

		require.NoError(t, e.Copy(pa, b))
		e.requireSame(b, pa, "from the heap")
		require.NoError(t, e.Copy(ob, a))
		e.requireSame(a, ob, "to the other pool")
		require.NoError(t, e.Copy(pa, ob))
		e.requireSame(a, pa, "from the other pool")
		e.free(pa)
		o.free(ob)
	}
}

func TestEngineCopyZero(t *testing.T) {
	both(t, func(t *testing.T, e *bench) {
		for _, l := range layoutNames {
			layout := layouts[l]
			if l == "masked" {
				continue
			}
			base := random(e.r, tensor.Float32, layout.shape...)
			pool := e.from(base)
			v, p := layout.make(base.ShallowClone()), layout.make(pool.ShallowClone())

			src := random(e.r, tensor.Float32, 3, 4)
			require.NoError(t, tensor.Copy(v, src))
			require.NoError(t, e.Copy(p, src))
			e.requireSame(base, pool, l+": copy")

			require.NoError(t, e.Zero(p))
			require.NoError(t, v.Memset(float32(0))) // StdEng's Zero zeroes the gaps of a view too
			e.requireSame(base, pool, l+": zero")

			require.NoError(t, e.Memset(p, float32(3)))
			require.NoError(t, v.Memset(float32(3)))
			e.requireSame(base, pool, l+": memset")
			e.Memclr(p)
			require.NoError(t, v.Memset(float32(0)))
			e.requireSame(base, pool, l+": memclr")
			e.free(pool)
		}
		a := e.from(random(e.r, tensor.Float32, 3))
		require.ErrorIs(t, e.Copy(a, random(e.r, tensor.Float32, 4)), cupool.ErrSizeMismatch)
		require.ErrorIs(t, e.Copy(a, random(e.r, tensor.Float64, 3)), cupool.ErrSizeMismatch)
		require.ErrorIs(t, e.Copy(a, nil), cupool.ErrNotSupported)
		require.NoError(t, e.Zero(nil))
		e.free(a)
	})
}

// TestEngineCompute tests Compute and what is made of it.
func TestEngineCompute(t *testing.T) {
	both(t, func(t *testing.T, e *bench) {
		a, b := random(e.r, tensor.Float64, 2, 3, 4), random(e.r, tensor.Float64, 4, 3, 5)
		m := random(e.r, tensor.Float64, 3, 4)
		pa, pb, pm := e.from(a), e.from(b), e.from(m)
		live := e.live()
		check := func(want *tensor.Dense, err error) func(got tensor.Tensor, err error) {
			require.NoError(t, err)
			return func(got tensor.Tensor, err error) {
				require.NoError(t, err)
				e.requireSame(want, got, "")
				require.True(t, e.Owns(got))
				require.Same(t, e.Engine, got.Engine())
				e.free(got)
				require.Equal(t, live, e.live(), "temporaries are left")
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
		_, err = e.Compute(func([]*tensor.Dense) (*tensor.Dense, error) { return nil, cupool.ErrClosed }, pm)
		require.ErrorIs(t, err, cupool.ErrClosed)
		_, err = e.Compute(func([]*tensor.Dense) (*tensor.Dense, error) { return nil, nil }, pm)
		require.Error(t, err)
		whole := e.from(ints(m, 1))
		_, err = e.Norm(whole, tensor.UnorderedNorm())
		require.Error(t, err)
		e.free(pa, pb, pm, whole)
	})
}

// TestEngineSoftMaxInPlace: WithReuse and UseUnsafe are heeded.
func TestEngineSoftMaxInPlace(t *testing.T) {
	both(t, func(t *testing.T, e *bench) {
		x, g := random(e.r, tensor.Float32, 3, 4), random(e.r, tensor.Float32, 3, 4)
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
			px, pg, pr := e.from(x), e.from(g), e.from(g)
			live := e.live()
			r := must(f(px, pg, tensor.WithReuse(pr)))
			require.Same(t, pr, r, name)
			e.requireSame(want, pr, name)
			e.requireSame(x, px, name)
			r = must(f(px, pg, tensor.UseUnsafe()))
			require.Same(t, px, r, name)
			e.requireSame(want, px, name)
			require.Equal(t, live, e.live(), name)
			e.free(px, pg, pr)
		}
		s := e.from(random(e.r, tensor.Float32))
		_, err := tensor.SoftMax(s, 0)
		require.ErrorIs(t, err, cupool.ErrNotSupported)
		e.free(s)
	})
}

// TestEngineBetweenUnsafe: StdEng panics.
func TestEngineBetweenUnsafe(t *testing.T) {
	both(t, func(t *testing.T, e *bench) {
		a, b := random(e.r, tensor.Int, 3, 4), random(e.r, tensor.Int, 3, 4)
		pa, pb := e.from(a), e.from(b)
		r := must(tensor.MinBetween(pa, pb, tensor.UseUnsafe()))
		require.Same(t, pa, r)
		e.requireSame(must(tensor.MinBetween(a, b)), pa, "MinBetween")
		must(tensor.MaxBetween(pb, 1, tensor.UseUnsafe()))
		e.requireSame(must(tensor.MaxBetween(b, 1)), pb, "MaxBetween")
		e.free(pa, pb)
	})
}

func TestEngineStats(t *testing.T) {
	both(t, func(t *testing.T, e *bench) {
		a := e.from(random(e.r, tensor.Float64, 4))
		b := must(tensor.Add(a, a))
		c := must(tensor.Exp(a))
		st := e.Stats()
		if e.gpu {
			require.Equal(t, cupool.EngineStats{Bytes: 32}, st, "FromHost; the rest was computed there")
		} else if e.far {
			require.Equal(t, int64(2), st.Fallbacks)
			require.Equal(t, map[string]int64{"Add": 1, "Exp": 1}, st.ByOp)
			require.Equal(t, int64(32+64+64), st.Bytes, "FromHost; an operand, used twice, and a result; the same")
		} else {
			require.Zero(t, st)
		}
		e.free(a, b, c)
	})
}

// TestEngineTransposeLosesNoError: tensor drops Transpose's error.
func TestEngineTransposeLosesNoError(t *testing.T) {
	e := newBench(t, true)
	d := e.from(random(e.r, tensor.Float64, 3, 4))
	clone := d.ShallowClone()
	e.free(d)
	require.NoError(t, clone.T())
	require.NoError(t, clone.Reshape(2, 6), "tensor drops the error")
	x := random(e.r, tensor.Float64, 3)
	_, err := e.FromHost(x)
	require.ErrorIs(t, err, cupool.ErrUseAfterFree)
	_, err = e.Exp(x)
	require.ErrorIs(t, err, cupool.ErrUseAfterFree)
	require.ErrorIs(t, e.Sync(), cupool.ErrUseAfterFree)
	e.free(e.from(x))
}
