//go:build gpu

package cupool_test

import (
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"gorgonia.org/tensor"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/fakecuda"
	"github.com/cupool/cupool/internal/testkit/pooltest"
)

// forkProgram is work on matrices, some of it in Forks, by Fork's rules.
type forkProgram struct {
	e  *bench
	ts []tensor.Tensor // n×n
	// Of those: what Forks read and wrote since the last Join.
	read, written []bool
}

const forkSize = 4

// newForkProgram makes the tensors from the values.
func newForkProgram(e *bench, values []*tensor.Dense) *forkProgram {
	p := &forkProgram{e: e, read: make([]bool, len(values)), written: make([]bool, len(values))}
	for _, v := range values {
		p.ts = append(p.ts, e.From(v))
	}
	return p
}

// run does a number of steps that the seed chooses; the same for any program of
// as many tensors.
func (p *forkProgram) run(steps int, seed uint64) error {
	r := rand.New(rand.NewPCG(seed, 0))
	clear(p.read)
	clear(p.written)
	for range steps {
		a, b, dst := r.IntN(len(p.ts)), r.IntN(len(p.ts)), r.IntN(len(p.ts))
		var err error
		switch kind := r.IntN(8); {
		case kind == 0:
			clear(p.read)
			clear(p.written)
			err = p.e.Join()
		case a == dst || b == dst:
		case kind <= 3:
			p.read[a], p.read[b], p.written[dst] = true, true, true
			err = p.e.Fork(func() error { return p.op(kind, a, b, dst) })
		case p.written[a] || p.written[b]:
		case kind == 4:
			p.read[a], p.read[b], p.written[dst] = true, true, true
			err = p.opAcross(a, b, dst, r.IntN(2) == 0)
		case !p.written[dst] && !p.read[dst]:
			err = p.op(kind, a, b, dst)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// op sets dst to something of a, b and itself, by way of a temporary.
func (p *forkProgram) op(kind, a, b, dst int) error {
	var t tensor.Tensor
	var err error
	if kind%2 == 0 {
		t, err = tensor.MatMul(p.ts[a], p.ts[b]) // with a workspace
	} else {
		t, err = tensor.Add(p.ts[a], p.ts[b])
	}
	if err != nil {
		return err
	}
	if _, err = tensor.Add(p.ts[dst], t, tensor.UseUnsafe()); err == nil {
		_, err = tensor.Tanh(p.ts[dst], tensor.UseUnsafe())
	}
	return errors.Join(err, p.e.FreeTensor(t))
}

// opAcross has a temporary that a Fork uses, and makes too if inside, and that
// is freed outside.
func (p *forkProgram) opAcross(a, b, dst int, inside bool) error {
	var t tensor.Tensor
	sum := func() (err error) {
		t, err = tensor.Add(p.ts[a], p.ts[b])
		return err
	}
	use := func() error { return pooltest.Second(tensor.Sub(p.ts[dst], t, tensor.UseUnsafe())) }
	var err error
	if inside {
		err = p.e.Fork(func() error { return errors.Join(sum(), use()) })
	} else {
		err = errors.Join(sum(), p.e.Fork(use))
	}
	return errors.Join(err, p.e.FreeTensor(t))
}

// values are those of all tensors.
func (p *forkProgram) values() (all [][]float64) {
	for _, t := range p.ts {
		all = append(all, p.e.As64(t))
	}
	return all
}

// TestGraphFork captures random programs with Forks, and launches them. They
// compute what they do without graphs; the stand-in runs a graph's nodes in
// orders that only its dependencies hold.
func TestGraphFork(t *testing.T) {
	e := newGraphBench(t)
	for _, dt := range floats {
		for range 20 {
			var start []*tensor.Dense
			for range 5 {
				start = append(start, random(e.Rand, dt, forkSize, forkSize))
			}
			eager, captured := newForkProgram(e, start), newForkProgram(e, start)
			seed := e.Rand.Uint64()
			require.NoError(t, eager.run(60, seed))
			g, err := e.Capture(func() error { return captured.run(60, seed) })
			require.NoError(t, err)
			for i := range 4 {
				if i > 0 {
					require.NoError(t, eager.run(60, seed))
				}
				require.NoError(t, g.Launch())
				require.Equal(t, eager.values(), captured.values(), "launch %d", i)
			}
			require.NoError(t, g.Close())
			e.FreeAll(eager.ts...)
			e.FreeAll(captured.ts...)
		}
	}
	require.Zero(t, e.Live())
}

// TestGraphForkFailures: whatever goes wrong in a Fork or a Join, Capture fails,
// gives the memory back, and the engine is as before.
func TestGraphForkFailures(t *testing.T) {
	e := newGraphBench(t)
	x := e.From(random(e.Rand, tensor.Float64, 4, 4))
	e.FreeAll(must(tensor.Exp(x)))
	mine := errors.New("mine")
	exp := func() error { return pooltest.Second(tensor.Exp(x)) }
	forked := func() error { return errors.Join(e.Fork(exp), exp(), e.Join(), e.Fork(exp)) }
	sc := e.Scope()
	require.NoError(t, forked(), "without a capture")
	require.NoError(t, sc.Close())
	for what, f := range map[string]func() error{
		"own error":      func() error { return e.Fork(func() error { return errors.Join(exp(), mine) }) },
		"tensor's panic": func() error { return e.Fork(func() error { return pooltest.Second(e.Empty(tensor.Float64, 1<<40)) }) },
		"later":          func() error { return errors.Join(forked(), mine) },
		"copy in": func() error {
			return e.Fork(func() error { return pooltest.Second(e.FromHost(random(e.Rand, tensor.Float64, 3))) })
		},
	} {
		e.requireCaptureFails(f, what)
	}
	require.Panics(t, func() { _, _ = e.Capture(func() error { return e.Fork(func() error { panic("mine") }) }) })
	if fakecuda.Loaded() {
		defer fakecuda.Reset()
		for call, times := range map[string]int{"cuStreamCreate": 1, "cuEventCreate": 1, "cuEventRecord": 4, "cuStreamWaitEvent": 4} {
			for nth := 1; nth <= times; nth++ {
				fakecuda.Fail(call, nth, 1, 1)
				e.requireCaptureFails(forked, call)
				fakecuda.Reset()
			}
		}
	}
	g, err := e.Capture(forked)
	require.NoError(t, err)
	require.NoError(t, g.Launch())
	require.NoError(t, g.Close())
	e.FreeAll(x)
}

// requireCaptureFails: and nothing is left of it.
func (e *bench) requireCaptureFails(f func() error, what string) {
	e.T.Helper()
	live := e.Live()
	_, err := e.Capture(f)
	var ours *cupool.EngineError
	require.ErrorAs(e.T, err, &ours, what)
	require.Equal(e.T, live, e.Live(), what)
	g, err := e.Capture(func() error { return e.Fork(func() error { return nil }) })
	require.NoError(e.T, err, what)
	require.NoError(e.T, g.Close(), what)
}
