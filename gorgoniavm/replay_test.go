package gorgoniavm_test

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/gorgoniavm"
	"github.com/cupool/cupool/gorgoniavm/internal/program"
	"github.com/cupool/cupool/internal/fakecuda"
	"github.com/cupool/cupool/internal/testkit"
)

// standIn skips where the driver neither counts calls nor fails when it is told to.
func standIn(t *testing.T) {
	t.Helper()
	if !fakecuda.Loaded() {
		t.Skip("only the stand-in driver does")
	}
}

// quiet has a VM compute operations one by one.
func quiet() gorgoniavm.Option { return gorgoniavm.WithLogger(slog.New(slog.DiscardHandler)) }

// Runs that look at values are not recorded, nor are any where there are no graphs.
func TestNotRecorded(t *testing.T) {
	everywhere(t, func(t *testing.T, d device) {
		options := map[string][]gorgoniavm.Option{"log": {quiet()}, "NaN": {gorgoniavm.WatchNaN()}, "Inf": {gorgoniavm.WatchInf()}}
		if !d.records {
			options["no graphs"] = nil
		}
		for name, opts := range options {
			t.Run(name, func(t *testing.T) {
				e, _ := d.open(t)
				m := newMLP(4, 6, 5, 3)
				want := m.tape(t, 3)
				vm := open(t, m, e, append(opts, gorgoniavm.Replay())...)
				d.requireTrained(t, want, m.train(t, e, vm, 3))
				stats := vm.Replays()
				require.ErrorIs(t, stats.Err, cupool.ErrNotSupported)
				require.Zero(t, stats.Recordings+stats.Launches)
			})
		}
	})
}

// What changes in every run is not recorded for ever.
func TestReplayGivesUp(t *testing.T) {
	e, _ := newRecordingMeter(t)
	s := newScaled(t)
	vm, err := gorgoniavm.New(s.g, e, gorgoniavm.Replay())
	require.NoError(t, err)
	for i := range 10 {
		require.NoError(t, G.Let(s.by, float32(i)))
		require.NoError(t, vm.RunAll())
		require.Equal(t, 30*float32(i), s.sum.Value().Data())
	}
	assert.Equal(t, gorgoniavm.ReplayStats{Recordings: 3, Launches: 3}, vm.Replays())
	require.NoError(t, vm.Close())
}

// What a program was made with may change between runs. Then it is recorded anew.
func TestChanges(t *testing.T) {
	everywhere(t, func(t *testing.T, d device) {
		for name, c := range map[string]struct {
			change func(t *testing.T, s *scaled)
			sum    float32   // after it
			grad   []float32 // by the first and last row
		}{
			"nothing":  {func(*testing.T, *scaled) {}, 30, []float32{2, 0}},
			"a scalar": {func(t *testing.T, s *scaled) { require.NoError(t, G.Let(s.by, float32(3))) }, 90, []float32{6, 0}},
			"a slice":  {func(t *testing.T, s *scaled) { require.NoError(t, G.UnsafeLet(s.cut, G.S(1, 3))) }, 66, []float32{0, 0}},
			"a weight": {func(t *testing.T, s *scaled) {
				require.NoError(t, G.Let(s.x, tensor.New(tensor.WithBacking(tensor.Range(tensor.Float32, 1, 13)), tensor.WithShape(4, 3))))
			}, 42, []float32{2, 0}},
			"a gradient": {func(_ *testing.T, s *scaled) {
				G.WithGrad(tensor.New(tensor.WithBacking(make([]float32, 12)), tensor.WithShape(4, 3)))(s.x)
			}, 30, []float32{2, 0}},
		} {
			t.Run(name, func(t *testing.T) {
				e, _ := d.open(t)
				s := newScaled(t)
				vm := d.vm(t, s.g, e, gorgoniavm.BindDualValues(s.x))
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
				c.change(t, s)
				for range 3 {
					run(c.sum, c.grad)
				}
				if d.records {
					want := gorgoniavm.ReplayStats{Recordings: 2, Launches: 5}
					if name == "nothing" {
						want.Recordings = 1
					}
					assert.Equal(t, want, vm.Replays())
				}
				require.NoError(t, vm.Close())
			})
		}
	})
}

// A program that changes a slice between runs has the values of that slice, also
// where it was part of a group.
func TestChangedSlices(t *testing.T) {
	everywhere(t, func(t *testing.T, d device) {
		e, _ := d.open(t)
		g := G.NewGraph()
		x := G.NewMatrix(g, tensor.Float32, G.WithShape(4, 2), G.WithName("x"),
			G.WithValue(tensor.New(tensor.WithShape(4, 2), tensor.WithBacking([]float32{0, 1, 2, 3, 4, 5, 6, 7}))))
		cut := G.Must(G.Slice(x, G.S(0, 2)))
		y := G.Must(G.Square(G.Must(G.Neg(cut))))
		_, err := G.Grad(G.Must(G.Sum(y)), x)
		require.NoError(t, err)
		vm := d.vm(t, g, e, gorgoniavm.Gradients(x), gorgoniavm.Keep(y))
		run := func(want, gradient []float32) {
			t.Helper()
			for range 3 {
				require.NoError(t, vm.RunAll())
				require.Equal(t, want, data(t, e, y.Value()))
				d, err := x.Grad()
				require.NoError(t, err)
				require.Equal(t, gradient, data(t, e, d))
			}
		}
		require.Equal(t, d.computes, gorgoniavm.Steps(vm)[program.Elementwise] > 0)
		run([]float32{0, 1, 4, 9}, []float32{0, 2, 4, 6, 0, 0, 0, 0})
		require.NoError(t, G.UnsafeLet(cut, G.S(1, 3)))
		run([]float32{4, 9, 16, 25}, []float32{0, 0, 4, 6, 8, 10, 0, 0})
		require.Zero(t, gorgoniavm.Steps(vm)[program.Elementwise])
		require.NoError(t, vm.Close())
	})
}

// Random graphs of elementwise operations have the values and gradients of
// operations one by one, in groups and recorded, traced or not, in every run, and
// where an input moves.
func TestRandomGraphs(t *testing.T) {
	const runs = 3
	first, graphs := testkit.Seed(t), testkit.Rounds(80)
	everywhere(t, func(t *testing.T, d device) {
		e, _ := d.open(t)
		groups := 0
		for i := range graphs {
			seed := first + uint64(i)
			m := newRandomGraph(seed, []tensor.Dtype{tensor.Float32, tensor.Float64}[seed%2], 1+int(seed%30))
			for _, opts := range [][]gorgoniavm.Option{{gorgoniavm.Gradients(m.weights...)}, {gorgoniavm.TraceValues()}} {
				one, vm := d.vm(t, m.g, e, append(opts, quiet())...), d.vm(t, m.g, e, opts...)
				d.requireRan(t, ran(t, e, m, one, runs), ran(t, e, m, vm, runs), seed)
				groups += gorgoniavm.Steps(vm)[program.Elementwise]
				require.Equal(t, d.records, vm.Replays().Launches == runs-1, vm.Replays().Err)
				require.NoError(t, one.Close())
				require.NoError(t, vm.Close())
			}
		}
		require.Equal(t, d.computes, groups > graphs)
	})
}

// ran returns the values that nodes have after each of some runs, and the gradients.
func ran(t *testing.T, e *cupool.Engine, m *model, vm *gorgoniavm.VM, runs int) (all []map[string]any) {
	t.Helper()
	moves := m.inputs[0]
	dt, shape := moves.Dtype(), moves.Shape()
	flat, err := e.FromHost(floatsOf(dt, floatsIn(values(5, append(tensor.Shape{2}, shape...)...).Data()), append(tensor.Shape{2}, shape...)...))
	require.NoError(t, err)
	defer func() { require.NoError(t, e.FreeTensor(flat)) }()
	for i := range runs {
		require.NoError(t, G.Let(moves, rows(t, flat, i%2, 1)))
		require.NoError(t, vm.RunAll())
		got := make(map[string]any)
		for _, n := range m.g.AllNodes() {
			if n.Value() != nil && n.Op() != nil {
				got[fmt.Sprint("node ", n.ID())] = data(t, e, n.Value())
			}
		}
		for _, w := range m.weights {
			g, err := w.Grad()
			require.NoError(t, err)
			got[w.Name()] = data(t, e, g)
		}
		all = append(all, got)
	}
	return all
}

// requireRan compares what runs came to: to the bit, but on a GPU, which adds up in
// any order. The stand-in driver's kernels add up in one.
func (d device) requireRan(t *testing.T, want, got []map[string]any, seed uint64) {
	t.Helper()
	exact := !d.computes || fakecuda.Loaded()
	for i := range want {
		require.Len(t, got[i], len(want[i]))
		for name := range want[i] {
			if exact {
				require.Equal(t, want[i][name], got[i][name], "seed %d, run %d, %s", seed, i, name)
				continue
			}
			switch want[i][name].(type) {
			case []float32, []float64:
				require.InDeltaSlice(t, want[i][name], got[i][name], 1e-3, "seed %d, run %d, %s", seed, i, name)
			}
		}
	}
}

// Values and gradients are there after each launch, memory is what it was after
// the first, and Close gives all back and leaves copies.
func TestReplayLives(t *testing.T) {
	e, a := newRecordingMeter(t)
	m := newMLP(2, 3, 4, 2)
	vm, err := gorgoniavm.New(m.g, e, gorgoniavm.Gradients(m.weights...), gorgoniavm.Keep(m.g.Roots()...), gorgoniavm.Replay())
	require.NoError(t, err)
	require.NoError(t, vm.RunAll())
	want := bits(m.cost.Value().Data())
	require.NoError(t, vm.RunAll())
	live := a.live
	var grads []G.Value
	for i := range 100 {
		require.NoError(t, vm.RunAll())
		vm.Reset()
		require.Equal(t, live, a.live, "step %d", i)
		near(t, want, bits(m.cost.Value().Data()))
		now := make([]G.Value, len(m.weights))
		for w := range m.weights {
			now[w], err = m.weights[w].Grad()
			require.NoError(t, err)
			require.True(t, grads == nil || grads[w] == now[w], "the same tensors")
		}
		grads = now
	}
	require.EqualValues(t, 101, vm.Replays().Launches)
	before := gradients(t, e, m)
	require.NoError(t, vm.Close())
	require.Zero(t, a.live)
	require.Equal(t, before, gradients(t, nil, m))
}

// What else the pool hands out between launches is none of a recording's
// memory, nor is what it reads.
func TestReplayMemoryIsItsOwn(t *testing.T) {
	e, a := newRecordingMeter(t)
	m := newMLP(4, 6, 5, 3)
	want := m.train(t, e, open(t, m, e), 6)
	vm := open(t, m, e, gorgoniavm.Replay())
	requireSame(t, want, m.train(t, e, vm, 6, func(i int) {
		if i < 2 {
			return // memory cannot be filled while a run is recorded
		}
		a.plain = false
		var blocks []cupool.Block
		for size := int64(4); size < 4<<20; size += size/2 + 4 {
			b, err := a.Alloc(size, e.Stream())
			require.NoError(t, err)
			blocks = append(blocks, b)
		}
		for _, b := range blocks {
			require.NoError(t, a.Free(b))
		}
	}))
	require.EqualValues(t, 5, vm.Replays().Launches)
}

// A recording that runs out of memory is a run as ever, and leaves nothing.
func TestReplayOutOfMemory(t *testing.T) {
	e, a := newRecordingMeter(t)
	m := newMLP(4, 6, 5, 3)
	failed := 0
	for n := 1; ; n++ {
		vm, err := gorgoniavm.New(m.g, e, gorgoniavm.Gradients(m.weights...), gorgoniavm.Replay())
		require.NoError(t, err)
		require.NoError(t, vm.RunAll())
		want, live := bits(m.cost.Value().Data()), a.live
		a.failIn = n
		require.NoError(t, vm.RunAll())
		a.failIn = 0
		near(t, want, bits(m.cost.Value().Data()))
		stats := vm.Replays()
		if stats.Err != nil {
			failed++
			require.ErrorIs(t, stats.Err, cupool.ErrOutOfMemory)
			require.Equal(t, live, a.live)
		}
		require.NoError(t, vm.RunAll())
		require.EqualValues(t, 1, vm.Replays().Recordings, "when there is memory again")
		require.NoError(t, vm.Close())
		require.Zero(t, a.live)
		if stats.Err == nil {
			break
		}
	}
	require.Greater(t, failed, 5)
}

// A run that fails gives the recording back, and the next one is right.
func TestReplayFailures(t *testing.T) {
	for name, c := range map[string]struct {
		standIn     bool // only the stand-in driver fails when it is told to
		spoil, mend func(t *testing.T, m *model, e *cupool.Engine)
	}{
		"no value": {
			false,
			func(t *testing.T, m *model, e *cupool.Engine) {
				freed, err := e.Empty(tensor.Float32, 4, 6)
				require.NoError(t, err)
				require.NoError(t, G.Let(m.inputs[0], freed))
				require.NoError(t, e.FreeTensor(freed))
			},
			func(t *testing.T, m *model, _ *cupool.Engine) {
				require.NoError(t, G.Let(m.inputs[0], values(1, 4, 6)))
			},
		},
		"a device that fails": {
			true,
			func(*testing.T, *model, *cupool.Engine) { fakecuda.Fail("cuGraphLaunch", 1, 999, 1) },
			func(*testing.T, *model, *cupool.Engine) { fakecuda.Reset() },
		},
	} {
		t.Run(name, func(t *testing.T) {
			if c.standIn {
				standIn(t)
			}
			e, a := newRecordingMeter(t)
			m := newMLP(4, 6, 5, 3)
			vm, err := gorgoniavm.New(m.g, e, gorgoniavm.Gradients(m.weights...), gorgoniavm.Replay())
			require.NoError(t, err)
			require.NoError(t, vm.RunAll())
			want := bits(m.cost.Value().Data())
			for range 11 {
				require.NoError(t, vm.RunAll())
			}
			c.spoil(t, m, e)
			require.Error(t, vm.RunAll())
			require.Less(t, a.live, int64(4096), "weights and constants")
			c.mend(t, m, e)
			require.NoError(t, vm.RunAll())
			near(t, want, bits(m.cost.Value().Data()))
			require.EqualValues(t, 2, vm.Replays().Recordings)
			require.NoError(t, vm.Close())
			require.Zero(t, a.live)
		})
	}
}

// A wait or a copy that fails is an error of the run, and the next run is right.
// Without page-locked memory the cost is read when it is needed.
func TestFetchFailures(t *testing.T) {
	standIn(t)
	for _, opts := range [][]gorgoniavm.Option{nil, {gorgoniavm.Replay()}} {
		for call, fails := range map[string]bool{"cuEventSynchronize": true, "cuEventRecord": true, "cuMemcpyAsync": true, "cuMemHostAlloc": false} {
			t.Run(fmt.Sprint(call, ", replay ", opts != nil), func(t *testing.T) {
				e, a := newRecordingMeter(t)
				m := newMLP(4, 6, 5, 3)
				require.NoError(t, gorgoniavm.ToPool(e, append(slices.Clone(m.inputs), m.weights...)...)) // no other copies
				vm, err := gorgoniavm.New(m.g, e, append(opts, gorgoniavm.Gradients(m.weights...))...)
				require.NoError(t, err)
				if !fails {
					fakecuda.Fail(call, 1, 2, 1)
				}
				require.NoError(t, vm.RunAll())
				want := bits(m.cost.Value().Data())
				require.NoError(t, vm.RunAll())
				if fails {
					fakecuda.Fail(call, 1, 999, 1)
					require.Error(t, vm.RunAll())
				}
				fakecuda.Reset()
				require.NoError(t, vm.RunAll())
				near(t, want, bits(m.cost.Value().Data()))
				require.NoError(t, vm.Close())
				freeInputs(t, e, m)
				require.Zero(t, a.live)
			})
		}
	}
}

// submissions are all that gives a device something to do, or waits for it.
var submissions = []string{"cuLaunchKernel", "cublasGemmEx", "cuMemsetD8Async", "cuMemcpyHtoDAsync_v2", "cuMemcpyDtoHAsync_v2", "cuMemcpyAsync",
	"cuGraphLaunch", "cuEventSynchronize", "cuStreamSynchronize"}

// submitted returns how many kernels a step of a model launches, and of a solver if
// there is one, and its other submissions, where all of its tensors are in the pool.
func submitted(t *testing.T, m *model, method gorgoniavm.Method, opts ...gorgoniavm.Option) (kernels int, others map[string]int) {
	t.Helper()
	standIn(t)
	e, _ := newRecordingMeter(t)
	require.NoError(t, gorgoniavm.ToPool(e, append(slices.Clone(m.inputs), m.weights...)...))
	vm, err := gorgoniavm.New(m.g, e, append(opts, gorgoniavm.Gradients(m.weights...))...)
	require.NoError(t, err)
	step := vm.RunAll
	if method != nil {
		solver, err := gorgoniavm.NewSolver(e, method, gorgoniavm.KeepGradients())
		require.NoError(t, err)
		defer func() { require.NoError(t, solver.Close()) }()
		step = func() error {
			return errors.Join(vm.RunAll(), solver.Step(G.NodesToValueGrads(m.weights)))
		}
	}
	require.NoError(t, step()) // makes constants
	require.NoError(t, step()) // is recorded
	fakecuda.Count(true)
	require.NoError(t, step())
	others = make(map[string]int)
	for _, name := range submissions {
		if n := fakecuda.Calls(name); n > 0 {
			others[name] = n
		}
	}
	fakecuda.Count(false)
	require.Empty(t, vm.Fallbacks())
	require.NoError(t, vm.Close())
	freeInputs(t, e, m)
	kernels = others["cuLaunchKernel"] + others["cublasGemmEx"]
	delete(others, "cuLaunchKernel")
	delete(others, "cublasGemmEx")
	return kernels, others
}

// A step of training launches few kernels, copies nothing but the losses, and waits
// for the cost alone, not for the gradients, which come after it. A recorded one is
// two launches, up to the cost and for what comes after.
func TestLaunches(t *testing.T) {
	const steps = 10
	losses := map[string]int{"cuMemcpyAsync": 1, "cuEventSynchronize": 1}
	for name, c := range map[string]struct {
		build  func() *model
		method gorgoniavm.Method
		opts   []gorgoniavm.Option
		most   int            // launches; the stand-in driver counts a product of cuBLAS as two
		part   int            // of the launches of operations one by one
		others map[string]int // nil: some
	}{
		"layers": {func() *model { return newMLP(16, 20, 30, 20, 10) }, nil, nil, 30, 2, losses},
		"layers, recorded": {func() *model { return newMLP(16, 20, 30, 20, 10) }, nil, []gorgoniavm.Option{gorgoniavm.Replay()}, 0, 2,
			map[string]int{"cuGraphLaunch": 2, "cuMemcpyAsync": 1, "cuEventSynchronize": 1}},
		"lstm":  {func() *model { return newLSTMLayer(4, 8, 8, steps, 5) }, nil, nil, 5 * steps, 5, nil},
		"gru":   {func() *model { return newGRULayer(4, 8, 8, steps, 5) }, nil, nil, 6 * steps, 5, nil},
		"words": {func() *model { return newCharacterModel(4, 8, steps, 6) }, nil, nil, 60 * steps, 1, nil},
		// How many a convolution divides its sums among depends on its size.
		"convnet": {newGorgoniaConvnet, gorgoniavm.RMSProp{}, nil, 36, 1, losses},
	} {
		t.Run(name, func(t *testing.T) {
			few, others := submitted(t, c.build(), c.method, c.opts...)
			all, _ := submitted(t, c.build(), c.method, quiet())
			t.Logf("%d, %d one by one, and %v", few, all, others)
			require.LessOrEqual(t, few, c.most)
			require.Less(t, c.part*few, all)
			if c.others != nil {
				require.Equal(t, c.others, others)
			}
		})
	}
}

// A recording does not know masks: elements that a mask excludes stay what they are, as
// on the tape machine, in every run.
func TestReplayOfMasks(t *testing.T) {
	everywhere(t, func(t *testing.T, d device) {
		e, _ := d.open(t)
		g := G.NewGraph()
		x := G.NewVector(g, tensor.Float32, G.WithShape(3), G.WithName("x"))
		y := G.Must(G.Neg(x))
		vm := d.vm(t, g, e, gorgoniavm.Replay())
		for run, masked := range []bool{false, false, false, true, true, false, true} {
			in := tensor.New(tensor.WithBacking([]float32{1, 2, 3}))
			want := []float32{-1, -2, -3}
			if masked {
				in.SetMask([]bool{false, true, false})
				want[1] = 2
			}
			require.NoError(t, G.Let(x, in))
			require.NoError(t, vm.RunAll())
			got, err := e.ToHost(y.Value().(tensor.Tensor))
			require.NoError(t, err)
			require.Equal(t, want, got.Data(), "run %d", run)
		}
		require.NoError(t, vm.Close())
	})
}
