package cupool_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"gorgonia.org/tensor"

	"github.com/cupool/cupool"
)

func TestEngineFreeTensor(t *testing.T) {
	both(t, func(t *testing.T, e *bench) {
		d := e.From(random(e.Rand, tensor.Float32, 4, 4))
		clone := d.ShallowClone()
		rows, columns := view(d, tensor.S(1, 3)), view(d, nil, tensor.S(1, 3))
		first := view(d, tensor.S(0, 2))
		heap := random(e.Rand, tensor.Float32, 3)

		require.ErrorIs(t, e.FreeTensor(rows), cupool.ErrInteriorPointer)
		require.ErrorIs(t, e.FreeTensor(columns), cupool.ErrInteriorPointer)
		require.ErrorIs(t, e.FreeTensor(first), cupool.ErrSizeMismatch)
		require.ErrorIs(t, e.FreeTensor(heap), cupool.ErrForeignPointer)
		require.NoError(t, e.FreeTensor(nil, (*tensor.Dense)(nil), tensor.New(tensor.Of(tensor.Int), tensor.WithShape(0), tensor.WithEngine(e))))
		require.Equal(t, int64(1), e.Live())

		require.ErrorIs(t, e.FreeTensor(heap, d), cupool.ErrForeignPointer, "frees what it can")
		require.Zero(t, e.Live())
		require.ErrorIs(t, e.FreeTensor(d), cupool.ErrDoubleFree)
		require.ErrorIs(t, e.FreeTensor(clone), cupool.ErrDoubleFree)
		require.False(t, e.Owns(d))
		require.False(t, e.Owns(clone))
	})
}

func TestEngineOwns(t *testing.T) {
	both(t, func(t *testing.T, e *bench) {
		d := e.From(random(e.Rand, tensor.Float32, 4, 4))
		for name, tc := range map[string]struct {
			t    tensor.Tensor
			want bool
		}{
			"result":       {d, true},
			"view":         {view(d, tensor.S(1, 3)), true},
			"shallow":      {d.ShallowClone(), true},
			"heap":         {random(e.Rand, tensor.Int, 2), false},
			"with backing": {tensor.New(tensor.WithBacking([]int{1}), tensor.WithEngine(e)), false},
			"empty":        {tensor.New(tensor.Of(tensor.Int), tensor.WithShape(0), tensor.WithEngine(e)), false},
			"nil":          {nil, false},
			"nil pointer":  {(*tensor.Dense)(nil), false},
		} {
			require.Equal(t, tc.want, e.Owns(tc.t), name)
		}
		e.FreeAll(d)
	})
}

// TestEngineUseAfterFree: a tensor that was freed is refused by every kind of
// operation.
func TestEngineUseAfterFree(t *testing.T) {
	both(t, func(t *testing.T, e *bench) {
		x := e.From(random(e.Rand, tensor.Float64, 3, 3))
		d := e.From(x)
		e.FreeAll(d)
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
		e.FreeAll(x)
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
				require.NotZero(t, e.Host(d).Get(0), "not zeroed: the memory is poisoned")
			}
			e.FreeAll(d)
		}
		_, err := e.Empty(tensor.String, 3)
		require.ErrorIs(t, err, cupool.ErrNotSupported)
		for _, shape := range [][]int{{-1}, {1 << 62, 4}, {1 << 40, 1 << 40}} {
			_, err = e.Empty(tensor.Float32, shape...)
			require.ErrorIs(t, err, cupool.ErrInvalidSize)
		}
	})
}

// TestEngineForeignTensors mixes tensors of two pools and of Go's heap.
// TestEngineCompute tests Compute and what is made of it.
// TestEngineSoftMaxInPlace: WithReuse and UseUnsafe are heeded.
// TestEngineBetweenUnsafe: StdEng panics.
func TestEngineStats(t *testing.T) {
	both(t, func(t *testing.T, e *bench) {
		a := e.From(random(e.Rand, tensor.Float64, 4))
		b := must(tensor.Add(a, a))
		c := must(tensor.Exp(a))
		st := e.Stats()
		if e.GPU {
			require.Equal(t, cupool.EngineStats{Bytes: 32}, st, "FromHost; the rest was computed there")
		} else if e.Far {
			require.Equal(t, int64(2), st.Fallbacks)
			require.Equal(t, map[string]int64{"Add": 1, "Exp": 1}, st.ByOp)
			require.Equal(t, int64(32+64+64), st.Bytes, "FromHost; an operand, used twice, and a result; the same")
		} else {
			require.Zero(t, st)
		}
		e.FreeAll(a, b, c)
	})
}

// TestEngineTransposeLosesNoError: tensor drops Transpose's error.
