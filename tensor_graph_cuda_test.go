//go:build gpu

package cupool_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"gorgonia.org/tensor"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/testkit/enginetest"
	"github.com/cupool/cupool/nn"
)

// newGraphBench is enginetest.NewGPU on a stream that can be captured, without poison,
// which goes to the default stream.
func newGraphBench(t *testing.T) *bench {
	e := &bench{enginetest.NewGPU(t)}
	s := must(e.Pool.NewStream())
	e.Engine = must(cupool.NewEngine(e.Pool, cupool.WithStream(s)))
	return e
}

var floats = enginetest.Floats

// TestGraph launches a captured computation on changing data and compares it
// with the same done eagerly.
func TestGraph(t *testing.T) {
	e := newGraphBench(t)
	for _, dt := range floats {
		x, w, b := e.From(random(e.Rand, dt, 9, 7)), e.From(random(e.Rand, dt, 7, 5)), e.From(random(e.Rand, dt, 5))
		sum := e.From(random(e.Rand, dt, 9, 5))
		compute := func() (tensor.Tensor, error) {
			sc := e.Scope()
			defer sc.Close()
			y, err := tensor.MatMul(x, w)
			if err != nil {
				return nil, err
			}
			if err := nn.BiasActivate(e.Engine, y, b, nn.ReLU); err != nil {
				return nil, err
			}
			z, err := tensor.Mul(y, y)
			if err != nil {
				return nil, err
			}
			if _, err := tensor.Add(sum, z, tensor.UseUnsafe()); err != nil {
				return nil, err
			}
			return z, sc.Keep(z)
		}
		e.FreeAll(must(compute())) // what a capture cannot hold is made
		before, live := e.As64(sum), e.Live()
		var result tensor.Tensor
		g, err := e.Capture(func() (err error) {
			result, err = compute()
			return err
		})
		require.NoError(t, err)
		require.Equal(t, before, e.As64(sum), "nothing runs during Capture")
		require.Greater(t, e.Live(), live, "the graph has memory")
		for range 3 {
			next := e.From(random(e.Rand, dt, 9, 7))
			require.NoError(t, e.Copy(x, next))
			wantSum := e.As64(sum)
			require.NoError(t, g.Launch())
			gotSum := e.As64(sum)
			want := must(compute())
			for i, v := range e.As64(want) {
				wantSum[i] += v
			}
			e.RequireClose(e.As64(want), e.As64(result), enginetest.Bounds[dt], "the result")
			e.RequireClose(wantSum, gotSum, 10*enginetest.Bounds[dt], "the sum")
			e.FreeAll(next, want)
		}
		require.NoError(t, g.Close())
		require.NoError(t, g.Close(), "again")
		require.ErrorIs(t, g.Launch(), cupool.ErrClosed)
		e.FreeAll(x, w, b, sum)
	}
	require.Zero(t, e.Live())
}

// TestGraphBesideOthers has other goroutines' work come to the captured stream
// meanwhile: blocks that wait for it, and memory that is looked for on it. No
// event of a capture can be asked, and waiting for the stream would break it.
func TestGraphBesideOthers(t *testing.T) {
	e := newGraphBench(t)
	x := e.From(random(e.Rand, tensor.Float32, 64))
	e.FreeAll(must(tensor.Exp(x)))
	require.NoError(t, e.Sync())
	other := must(e.Pool.NewStream())
	const size = 64 << 20
	used := must(e.Pool.Alloc(size, other))
	require.NoError(t, e.Pool.RecordStream(used, e.Stream()))
	require.NoError(t, e.Pool.Free(must(e.Pool.Alloc(size, e.Stream())))) // idle memory
	before := e.Pool.Stats()
	g, err := e.Capture(func() error {
		y, err := tensor.Exp(x)
		if err != nil {
			return err
		}
		failed := make(chan error)
		go func() {
			err := e.Pool.Free(used)
			_, waited := e.Pool.ProcessDeferred()
			_, full := e.Pool.Alloc(1<<50, other) // tries everything
			_, trimmed := e.Pool.Trim(0)
			if !errors.Is(full, cupool.ErrOutOfMemory) {
				err = errors.Join(err, full, errors.New("memory without end"))
			}
			failed <- errors.Join(err, waited, trimmed)
		}()
		if err := <-failed; err != nil {
			return err
		}
		_, err = tensor.Add(y, x, tensor.UseUnsafe())
		return err
	})
	require.NoError(t, err)
	st := e.Pool.Stats()
	require.Equal(t, before.EventFailures, st.EventFailures)
	require.Positive(t, st.PendingBytes, "the block waits for what is captured")
	require.NoError(t, g.Launch())
	require.NoError(t, e.Sync())
	must(e.Pool.ProcessDeferred())
	require.Zero(t, e.Pool.Stats().PendingBytes, "it waits no more")
	require.NoError(t, g.Close())
	e.FreeAll(x)
}

func TestGraphFailures(t *testing.T) {
	e := newGraphBench(t)
	x := e.From(random(e.Rand, tensor.Float64, 4, 4))
	mine := errors.New("mine")
	for what, f := range map[string]func() error{
		"own error":  func() error { _ = must(tensor.Exp(x)); return mine },
		"copy out":   func() error { _, err := e.ToHost(must(tensor.Exp(x))); return err },
		"copy in":    func() error { _, err := e.FromHost(random(e.Rand, tensor.Float64, 3)); return err },
		"a fallback": func() error { _, err := x.Trace(); return err },
		"waiting":    e.Sync,
		"double free": func() error {
			y := must(tensor.Exp(x)).(*tensor.Dense)
			z := y.ShallowClone()
			return errors.Join(e.FreeTensor(y), e.FreeTensor(z))
		},
		"out of memory": func() error {
			return cupool.Try(func() error { _, err := e.Empty(tensor.Float64, 1<<40); return err })
		},
	} {
		live := e.Live()
		_, err := e.Capture(f)
		require.Error(t, err, what)
		var ours *cupool.EngineError
		require.ErrorAs(t, err, &ours, what)
		require.Equal(t, live, e.Live(), what)
		y := must(tensor.Exp(x)) // the engine is as before
		require.Len(t, e.As64(y), 16, what)
		e.FreeAll(y)
	}
	require.Panics(t, func() { _, _ = e.Capture(func() error { _ = must(tensor.Exp(x)); panic("mine") }) })
	e.FreeAll(x)
	require.Zero(t, e.Live())

	byDefault := must(cupool.NewEngine(e.Pool))
	_, err := byDefault.Capture(func() error { return nil })
	require.ErrorIs(t, err, cupool.ErrNotSupported)
}

// TestGraphInPool captures in a scope of a private pool, which the graph then
// has its memory from.
func TestGraphInPool(t *testing.T) {
	e := newGraphBench(t)
	p, err := e.Pool.NewPool(cupool.PoolConfig{Name: "graphs", Isolated: true})
	require.NoError(t, err)
	x := e.From(random(e.Rand, tensor.Float32, 9, 7))
	e.FreeAll(must(tensor.Add(x, x)))
	live := e.Live()
	var y tensor.Tensor
	sc, err := e.ScopeIn(p)
	require.NoError(t, err)
	g, err := e.Capture(func() (err error) {
		y, err = tensor.Add(x, x)
		return err
	})
	require.NoError(t, err)
	require.NoError(t, sc.Close())
	require.Equal(t, live, e.Live())
	require.EqualValues(t, 1, p.Stats().All.Allocation.Current)
	require.True(t, e.Owns(y))
	require.NoError(t, g.Launch())
	want := must(tensor.Add(x, x))
	e.RequireClose(e.As64(want), e.As64(y), 0, "the result")
	e.FreeAll(x, want)
	require.NoError(t, g.Close())
	require.Zero(t, p.Stats().All.Allocation.Current)
}

// Streams that are gone leave their cuBLAS handle to others, and what a capture
// forks uses the engine's, as none can be made then.
func TestGPUBlasHandles(t *testing.T) {
	e := &bench{enginetest.NewGPU(t)}
	a, b := random(e.Rand, tensor.Float32, 3, 4), random(e.Rand, tensor.Float32, 4, 5)
	want := must(tensor.MatMul(a, b)).Data().([]float32)
	for range 3 {
		s := must(e.Pool.NewStream())
		mine := must(cupool.NewEngine(e.Pool, cupool.WithStream(s)))
		x, y := must(mine.FromHost(a)), must(mine.FromHost(b))
		multiply := func() *tensor.Dense {
			z := must(mine.Empty(tensor.Float32, 3, 5))
			require.NoError(t, mine.MatMul(x, y, z))
			return z
		}
		z := multiply()
		var forked *tensor.Dense
		g, err := mine.Capture(func() error {
			return mine.Fork(func() error { forked = multiply(); return nil })
		})
		require.NoError(t, err)
		require.NoError(t, g.Launch())
		require.Equal(t, want, must(mine.ToHost(z)).Data(), "alone")
		require.Equal(t, want, must(mine.ToHost(forked)).Data(), "forked")
		all, _ := blasHandles(e.Pool)
		require.Equal(t, 1, all)
		require.NoError(t, errors.Join(g.Close(), mine.FreeTensor(x, y, z), s.Close()))
		_, idle := blasHandles(e.Pool)
		require.Equal(t, 1, idle)
	}
}

// blasHandles returns how many cuBLAS handles the device has, and how many of
// them serve no stream.
func blasHandles(c *cupool.Pool) (all, idle int) {
	return c.Driver().(interface{ BlasHandles() (all, idle int) }).BlasHandles()
}
