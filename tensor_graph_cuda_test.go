//go:build gpu

package cupool_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"gorgonia.org/tensor"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/layers"
)

// newGraphBench is newGPUBench on a stream that can be captured, without poison,
// which goes to the default stream.
func newGraphBench(t *testing.T) *bench {
	e := newGPUBench(t)
	s := must(e.c.NewStream())
	e.Engine = must(cupool.NewEngine(e.c, cupool.WithStream(s)))
	return e
}

// TestGraph launches a captured computation on changing data and compares it
// with the same done eagerly.
func TestGraph(t *testing.T) {
	e := newGraphBench(t)
	for _, dt := range floats {
		x, w, b := e.from(random(e.r, dt, 9, 7)), e.from(random(e.r, dt, 7, 5)), e.from(random(e.r, dt, 5))
		sum := e.from(random(e.r, dt, 9, 5))
		compute := func() (tensor.Tensor, error) {
			sc := e.Scope()
			defer sc.Close()
			y, err := tensor.MatMul(x, w)
			if err != nil {
				return nil, err
			}
			if err := e.BiasActivate(y, b, cupool.ReLU); err != nil {
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
		e.free(must(compute())) // what a capture cannot hold is made
		before, live := e.as64(sum), e.live()
		var result tensor.Tensor
		g, err := e.Capture(func() (err error) {
			result, err = compute()
			return err
		})
		require.NoError(t, err)
		require.Equal(t, before, e.as64(sum), "nothing runs during Capture")
		require.Greater(t, e.live(), live, "the graph has memory")
		for range 3 {
			next := e.from(random(e.r, dt, 9, 7))
			require.NoError(t, e.Copy(x, next))
			wantSum := e.as64(sum)
			require.NoError(t, g.Launch())
			gotSum := e.as64(sum)
			want := must(compute())
			for i, v := range e.as64(want) {
				wantSum[i] += v
			}
			e.requireClose(e.as64(want), e.as64(result), bounds[dt], "the result")
			e.requireClose(wantSum, gotSum, 10*bounds[dt], "the sum")
			e.free(next, want)
		}
		require.NoError(t, g.Close())
		require.NoError(t, g.Close(), "again")
		require.ErrorIs(t, g.Launch(), cupool.ErrClosed)
		e.free(x, w, b, sum)
	}
	require.Zero(t, e.live())
}

// TestGraphBesideOthers has other goroutines' work come to the captured stream
// meanwhile: blocks that wait for it, and memory that is looked for on it. No
// event of a capture can be asked, and waiting for the stream would break it.
func TestGraphBesideOthers(t *testing.T) {
	e := newGraphBench(t)
	x := e.from(random(e.r, tensor.Float32, 64))
	e.free(must(tensor.Exp(x)))
	require.NoError(t, e.Sync())
	other := must(e.c.NewStream())
	const size = 64 << 20
	used := must(e.c.Alloc(size, other))
	require.NoError(t, e.c.RecordStream(used, e.Stream()))
	require.NoError(t, e.c.Free(must(e.c.Alloc(size, e.Stream())))) // idle memory
	before := e.c.Stats()
	g, err := e.Capture(func() error {
		y, err := tensor.Exp(x)
		if err != nil {
			return err
		}
		failed := make(chan error)
		go func() {
			err := e.c.Free(used)
			_, waited := e.c.ProcessDeferred()
			_, full := e.c.Alloc(1<<50, other) // tries everything
			_, trimmed := e.c.Trim(0)
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
	st := e.c.Stats()
	require.Equal(t, before.EventFailures, st.EventFailures)
	require.Positive(t, st.PendingBytes, "the block waits for what is captured")
	require.NoError(t, g.Launch())
	require.NoError(t, e.Sync())
	must(e.c.ProcessDeferred())
	require.Zero(t, e.c.Stats().PendingBytes, "it waits no more")
	require.NoError(t, g.Close())
	e.free(x)
}

func TestGraphFailures(t *testing.T) {
	e := newGraphBench(t)
	x := e.from(random(e.r, tensor.Float64, 4, 4))
	mine := errors.New("mine")
	for what, f := range map[string]func() error{
		"own error":  func() error { _ = must(tensor.Exp(x)); return mine },
		"copy out":   func() error { _, err := e.ToHost(must(tensor.Exp(x))); return err },
		"copy in":    func() error { _, err := e.FromHost(random(e.r, tensor.Float64, 3)); return err },
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
		live := e.live()
		_, err := e.Capture(f)
		require.Error(t, err, what)
		var ours *cupool.EngineError
		require.ErrorAs(t, err, &ours, what)
		require.Equal(t, live, e.live(), what)
		y := must(tensor.Exp(x)) // the engine is as before
		require.Len(t, e.as64(y), 16, what)
		e.free(y)
	}
	require.Panics(t, func() { _, _ = e.Capture(func() error { _ = must(tensor.Exp(x)); panic("mine") }) })
	e.free(x)
	require.Zero(t, e.live())

	byDefault := must(cupool.NewEngine(e.c))
	_, err := byDefault.Capture(func() error { return nil })
	require.ErrorIs(t, err, cupool.ErrNotSupported)
}

// TestGraphInPool captures in a scope of a private pool, which the graph then
// has its memory from.
func TestGraphInPool(t *testing.T) {
	e := newGraphBench(t)
	p, err := e.c.NewPool(cupool.PoolConfig{Name: "graphs", Isolated: true})
	require.NoError(t, err)
	x := e.from(random(e.r, tensor.Float32, 9, 7))
	e.free(must(tensor.Add(x, x)))
	live := e.live()
	var y tensor.Tensor
	sc, err := e.ScopeIn(p)
	require.NoError(t, err)
	g, err := e.Capture(func() (err error) {
		y, err = tensor.Add(x, x)
		return err
	})
	require.NoError(t, err)
	require.NoError(t, sc.Close())
	require.Equal(t, live, e.live())
	require.EqualValues(t, 1, p.Stats().All.Allocation.Current)
	require.True(t, e.Owns(y))
	require.NoError(t, g.Launch())
	want := must(tensor.Add(x, x))
	e.requireClose(e.as64(want), e.as64(y), 0, "the result")
	e.free(x, want)
	require.NoError(t, g.Close())
	require.Zero(t, p.Stats().All.Allocation.Current)
}

// TestGraphGoesOn launches one graph as several steps of an optimizer, with a
// learning rate and a number that change from step to step.
func TestGraphGoesOn(t *testing.T) {
	e := newGraphBench(t)
	for _, dt := range floats {
		param := func() cupool.Param {
			return cupool.Param{Value: e.from(random(e.r, dt, 41)), Grad: e.from(random(e.r, dt, 41)), Momentum: e.from(tensor.New(tensor.Of(dt), tensor.WithShape(41))),
				Second: e.from(tensor.New(tensor.Of(dt), tensor.WithShape(41)))}
		}
		sgd, adam, rate, step := param(), param(), e.from(single(dt, 0)), e.from(single(dt, 0))
		one := value(dt, 1)
		update := func() error {
			if _, err := tensor.Add(step, one, tensor.UseUnsafe()); err != nil {
				return err
			}
			a := cupool.Adam{Rate: rate, Step: step, Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-8}
			return errors.Join(e.SGDStep(cupool.SGD{Rate: rate, Momentum: 0.9}, sgd), e.AdamStep(a, 0, adam))
		}
		require.NoError(t, update()) // by a rate of 0, which changes no value
		for _, p := range []cupool.Param{sgd, adam} {
			require.NoError(t, errors.Join(e.Zero(p.Momentum), e.Zero(p.Second)))
		}
		require.NoError(t, e.Zero(step))
		g, err := e.Capture(update)
		require.NoError(t, err)
		wantSGD, wantAdam := e.as64(sgd.Value), e.as64(adam.Value)
		m, am, av := make([]float64, 41), make([]float64, 41), make([]float64, 41)
		for i := 1; i <= 5; i++ {
			lr := 0.5 / float64(i)
			require.NoError(t, e.Copy(rate, single(dt, lr)))
			require.NoError(t, g.Launch())
			layers.SGD(wantSGD, e.as64(sgd.Grad), m, lr, 0.9, 0)
			layers.Adam(wantAdam, e.as64(adam.Grad), am, av, i, layers.AdamOptions{LR: lr, Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-8})
			e.requireClose(wantSGD, e.as64(sgd.Value), 10*bounds[dt], "SGD")
			e.requireClose(wantAdam, e.as64(adam.Value), 10*bounds[dt], "Adam")
		}
		require.NoError(t, g.Close())
		e.free(sgd.Value, sgd.Grad, sgd.Momentum, sgd.Second, adam.Value, adam.Grad, adam.Momentum, adam.Second, rate, step)
	}
	require.Zero(t, e.live())
}
