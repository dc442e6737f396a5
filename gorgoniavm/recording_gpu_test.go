//go:build gpu

package gorgoniavm_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/gorgoniavm"
)

// Inputs may be bound to other tensors before each run, whatever has the shape.
func TestReplayInputs(t *testing.T) {
	const steps, batch, in = 6, 4, 6
	for name, next := range map[string]func(t *testing.T, e *cupool.Engine, all *tensor.Dense, i int) *tensor.Dense{
		"rows": func(t *testing.T, _ *cupool.Engine, all *tensor.Dense, i int) *tensor.Dense {
			return rows(t, all, i*batch, batch)
		},
		"columns": func(t *testing.T, _ *cupool.Engine, all *tensor.Dense, i int) *tensor.Dense {
			v, err := all.Slice(tensor.S(i, i+batch), tensor.S(1, 1+in))
			require.NoError(t, err)
			return v.(*tensor.Dense)
		},
		"of Go's heap": func(_ *testing.T, _ *cupool.Engine, _ *tensor.Dense, i int) *tensor.Dense {
			return values(int64(i), batch, in)
		},
		"first in the pool": func(t *testing.T, _ *cupool.Engine, all *tensor.Dense, i int) *tensor.Dense {
			if i > 2 {
				return values(int64(i), batch, in)
			}
			return rows(t, all, 0, batch)
		},
	} {
		t.Run(name, func(t *testing.T) {
			e, _ := newReplayMeter(t)
			width := in
			if name == "columns" {
				width += 3
			}
			all, err := e.FromHost(values(9, steps*batch, width))
			require.NoError(t, err)
			defer func() { require.NoError(t, e.FreeTensor(all)) }()
			m := newMLP(batch, in, 5, 3)
			let := func(i int) { require.NoError(t, G.Let(m.inputs[0], next(t, e, all, i))) }
			want := m.train(t, e, open(t, m, e), steps, let)
			require.NotEqual(t, want.Costs[0], want.Costs[1])
			vm := open(t, m, e, gorgoniavm.Replay())
			requireSame(t, want, m.train(t, e, vm, steps, let))
			assert.EqualValues(t, 1, vm.Replays().Recordings)
			assert.EqualValues(t, steps-1, vm.Replays().Launches)
		})
	}
}

// An input is copied before the launch, and is not lost in memory that the
// launch works in before it reads that input.
func TestReplayInputOfLaterUse(t *testing.T) {
	e, _ := newReplayMeter(t)
	g := G.NewGraph()
	var xs G.Nodes
	sums := func(i int, f func(*G.Node) (*G.Node, error)) *G.Node {
		xs = append(xs, G.NewMatrix(g, tensor.Float32, G.WithShape(4, 6), G.WithName(name("x", i))))
		return G.Must(G.Sum(G.Must(G.Mul(G.Must(f(xs[i])), G.NewConstant(values(int64(i), 6, 2)))), 1))
	}
	sum := G.Must(G.Sum(G.Must(G.HadamardProd(sums(0, G.Exp), sums(1, G.Tanh)))))
	run := func(opts ...gorgoniavm.Option) (all []any, stats gorgoniavm.ReplayStats) {
		vm, err := gorgoniavm.New(g, e, opts...)
		require.NoError(t, err)
		for i := range 4 {
			for k, x := range xs {
				require.NoError(t, G.Let(x, values(int64(10*i+k), 4, 6)))
			}
			require.NoError(t, vm.RunAll())
			all = append(all, sum.Value().Data())
		}
		require.NoError(t, vm.Close())
		return all, vm.Replays()
	}
	want, _ := run()
	got, stats := run(gorgoniavm.Replay())
	require.EqualValues(t, 3, stats.Launches, stats.Err)
	for i := range want {
		near(t, bits(want[i]), bits(got[i]))
	}
}

// rows returns rows of a matrix, in place.
func rows(t testing.TB, all *tensor.Dense, from, n int) *tensor.Dense {
	t.Helper()
	v, err := all.Slice(tensor.S(from, from+n))
	require.NoError(t, err)
	return v.(*tensor.Dense)
}

// A tensor in the pool that is the same in every run is read in place.
func TestReplayReadsInPlace(t *testing.T) {
	e, _ := newReplayMeter(t)
	m := newMLP(4, 6, 5, 3)
	require.NoError(t, gorgoniavm.ToPool(e, m.inputs...))
	x := m.inputs[0].Value().(*tensor.Dense)
	let := func(i int) { require.NoError(t, e.Copy(x, values(int64(i), 4, 6))) }
	want := m.train(t, e, open(t, m, e), 5, let)
	vm := open(t, m, e, gorgoniavm.Replay())
	requireSame(t, want, m.train(t, e, vm, 5, let))
	require.NoError(t, vm.Close())
	for _, n := range m.inputs {
		require.NoError(t, e.FreeTensor(n.Value().(tensor.Tensor)))
	}
}

// What a graph was made with may change: then another one is made.
func TestReplayRecordsAnew(t *testing.T) {
	for name, c := range map[string]struct {
		change func(t *testing.T, e *cupool.Engine, s *scaled)
		sum    float32   // after it
		grad   []float32 // by the first and last row
	}{
		"nothing":  {func(*testing.T, *cupool.Engine, *scaled) {}, 30, []float32{2, 0}},
		"a scalar": {func(t *testing.T, _ *cupool.Engine, s *scaled) { require.NoError(t, G.Let(s.by, float32(3))) }, 90, []float32{6, 0}},
		"a slice":  {func(t *testing.T, _ *cupool.Engine, s *scaled) { require.NoError(t, G.UnsafeLet(s.cut, G.S(1, 3))) }, 66, []float32{0, 0}},
		"a weight": {func(t *testing.T, _ *cupool.Engine, s *scaled) {
			require.NoError(t, G.Let(s.x, tensor.New(tensor.WithBacking(tensor.Range(tensor.Float32, 1, 13)), tensor.WithShape(4, 3))))
		}, 42, []float32{2, 0}},
		"a gradient": {func(t *testing.T, _ *cupool.Engine, s *scaled) {
			G.WithGrad(tensor.New(tensor.WithBacking(make([]float32, 12)), tensor.WithShape(4, 3)))(s.x)
		}, 30, []float32{2, 0}},
	} {
		t.Run(name, func(t *testing.T) {
			e, _ := newReplayMeter(t)
			s := newScaled(t)
			vm, err := gorgoniavm.New(s.g, e, gorgoniavm.BindDualValues(s.x), gorgoniavm.Replay())
			require.NoError(t, err)
			run := func(sum float32, grad []float32) {
				t.Helper()
				g, err := s.x.Grad()
				if d, ok := g.(*tensor.Dense); err == nil && ok && e.Owns(d) {
					require.NoError(t, e.Zero(d))
				}
				require.NoError(t, vm.RunAll())
				require.Equal(t, sum, s.sum.Value().Data())
				g, err = s.x.Grad()
				require.NoError(t, err)
				all := data(t, e, g).([]float32)
				require.Equal(t, grad, []float32{all[0], all[11]})
			}
			for range 3 {
				run(30, []float32{2, 0})
			}
			c.change(t, e, s)
			for range 3 {
				run(c.sum, c.grad)
			}
			want := gorgoniavm.ReplayStats{Recordings: 2, Launches: 5}
			if name == "nothing" {
				want.Recordings = 1
			}
			assert.Equal(t, want, vm.Replays())
			require.NoError(t, vm.Close())
		})
	}
}

// An input may be given a value that a recording made, which is there no longer
// when the recording is given back.
func TestReplayInputsOfValues(t *testing.T) {
	for name, pooled := range map[string]bool{"from Go's heap": false, "in place": true} {
		t.Run(name, func(t *testing.T) {
			e, _ := newReplayMeter(t)
			var first []*tensor.Dense
			m := newGrowing(func(values ...float64) *tensor.Dense {
				d := tensor.New(tensor.WithBacking(values))
				if pooled {
					up, err := e.FromHost(d)
					require.NoError(t, err)
					first = append(first, up)
					return up
				}
				return d
			})
			vm, err := gorgoniavm.New(m.g, e, gorgoniavm.Replay())
			require.NoError(t, err)
			if pooled { // recorded with the inputs where they are
				for range 3 {
					require.NoError(t, vm.RunAll())
				}
			}
			for i, want := 0, 1.0; i < 6; i, want = i+1, 2*want+1 {
				m.step(t, e, vm, want)
			}
			require.NotZero(t, vm.Replays().Launches)
			require.NoError(t, vm.Close())
			for _, n := range []*G.Node{m.w, m.u, m.update} {
				require.Equal(t, []float64{63, 630, 6300}, n.Value().Data())
			}
			for _, d := range first {
				require.NoError(t, e.FreeTensor(d))
			}
		})
	}
}
