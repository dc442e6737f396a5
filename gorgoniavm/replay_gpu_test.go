//go:build gpu

package gorgoniavm_test

import (
	"log/slog"
	"maps"
	"runtime"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/gorgoniavm"
	"github.com/cupool/cupool/internal/fakecuda"
)

// newReplayMeter is newGPUMeter on a stream that can be recorded, and skips
// where there are no kernels. It does not fill memory, which waits for the
// device.
func newReplayMeter(t *testing.T, opts ...cupool.EngineOption) (*cupool.Engine, *meter) {
	t.Helper()
	gpuRig(t) // or skips
	_, a := newGPUMeter(t)
	a.plain = true
	return newStreamEngine(t, a, opts...), a
}

// newStreamEngine returns an engine on a stream of its own.
func newStreamEngine(t testing.TB, a cupool.Allocator, opts ...cupool.EngineOption) *cupool.Engine {
	t.Helper()
	s, err := a.NewStream()
	require.NoError(t, err)
	e, err := cupool.NewEngine(a, append(opts, cupool.WithStream(s))...)
	require.NoError(t, err)
	return e
}

// requireSame compares what two ways to train on a GPU came to: to the bit on the
// stand-in driver, whose kernels add up in one order.
func requireSame(t *testing.T, want, got trained) {
	t.Helper()
	if fakecuda.Loaded() {
		require.Equal(t, want, got)
	}
	nearAll(t, want, got)
}

// Every model trains to what it trains to without recordings, and what a graph
// can hold is one, from the second run on.
func TestReplayTrains(t *testing.T) {
	const steps = 6
	recordings := map[string]int64{"comparisons": 1, "convnet": 1, "cross entropy": 1, "log softmax": 1, "lstm": 1, "mlp": 1, "reductions": 1, "rnn": 1,
		"average pool": 1, "batch norm": 1, "group norm": 1, "pool and norm": 1, "upsample": 1,
		"lstm layer": 1, "gru layer": 1, "character model": 1,
		"activations": 1, "by indices": 1, "products": 1, "sparsemax": 1,
		"linear regression": 3, "logistic regression": 3} // which learn scalars: given up
	for _, name := range slices.Sorted(maps.Keys(models)) {
		t.Run(name, func(t *testing.T) {
			e, _ := newReplayMeter(t)
			m := models[name]()
			want := m.train(t, e, open(t, m, e), steps)
			vm := open(t, m, e, gorgoniavm.Replay())
			requireSame(t, want, m.train(t, e, vm, steps))
			stats := vm.Replays()
			assert.Equal(t, recordings[name], stats.Recordings)
			switch stats.Recordings {
			case 0:
				require.ErrorIs(t, stats.Err, cupool.ErrNotSupported)
				var node *gorgoniavm.OpError
				require.ErrorAs(t, stats.Err, &node)
			case 1:
				require.NoError(t, stats.Err)
				require.EqualValues(t, steps-1, stats.Launches)
			}
		})
	}
}

// What changes in every run is not recorded for ever.
func TestReplayGivesUp(t *testing.T) {
	e, _ := newReplayMeter(t)
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

// Runs that look at values are not recorded.
func TestReplayOfWatchedRuns(t *testing.T) {
	for name, opt := range map[string]gorgoniavm.Option{
		"log": gorgoniavm.WithLogger(slog.New(slog.DiscardHandler)), "NaN": gorgoniavm.WatchNaN(), "Inf": gorgoniavm.WatchInf(),
	} {
		t.Run(name, func(t *testing.T) {
			e, _ := newReplayMeter(t)
			m := newMLP(4, 6, 5, 3)
			vm := open(t, m, e, gorgoniavm.Replay(), opt)
			want := m.tape(t, 3)
			nearAll(t, want, m.train(t, e, vm, 3))
			require.ErrorIs(t, vm.Replays().Err, cupool.ErrNotSupported)
			require.Zero(t, vm.Replays().Recordings)
		})
	}
}

// Values and gradients are there after each launch, memory is what it was after
// the first, and Close gives all back and leaves copies.
func TestReplayLives(t *testing.T) {
	e, a := newReplayMeter(t)
	m := newMLP(2, 3, 4, 2)
	hidden := m.g.Roots()
	vm, err := gorgoniavm.New(m.g, e, gorgoniavm.Gradients(m.weights...), gorgoniavm.Keep(hidden...), gorgoniavm.Replay())
	require.NoError(t, err)
	require.NoError(t, vm.RunAll())
	want := bits(m.cost.Value().Data())
	require.NoError(t, vm.RunAll())
	live := a.live
	var grads []G.Value
	for i := range 1000 {
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
	require.EqualValues(t, 1001, vm.Replays().Launches)
	before := gradients(t, e, m)
	require.NoError(t, vm.Close())
	require.Zero(t, a.live)
	require.Equal(t, before, gradients(t, nil, m))
}

// Every value is what it is without recordings, also of nodes that share memory
// with an input that moves.
func TestReplayTraced(t *testing.T) {
	for _, name := range []string{"comparisons", "cross entropy", "log softmax", "lstm", "mlp", "reductions", "rnn"} {
		t.Run(name, func(t *testing.T) {
			e, _ := newReplayMeter(t)
			m := models[name]()
			moves := append(slices.Clone(m.inputs), m.weights...)[0]
			x := clone(t, e, moves.Value()).(*tensor.Dense)
			shape := append(tensor.Shape{2}, x.Shape()...)
			flat, err := e.FromHost(values(5, shape...))
			require.NoError(t, err)
			defer func() { require.NoError(t, e.FreeTensor(flat)) }()
			flattened := G.Must(G.Reshape(moves, tensor.Shape{x.Shape().TotalSize()}))
			traced := func(opts ...gorgoniavm.Option) (all []map[int64]any, vm *gorgoniavm.VM) {
				vm, err := gorgoniavm.New(m.g, e, append(opts, gorgoniavm.TraceValues())...)
				require.NoError(t, err)
				for i := range 4 {
					require.NoError(t, G.Let(moves, rows(t, flat, i%2, 1)))
					require.NoError(t, vm.RunAll())
					got := make(map[int64]any)
					for _, n := range m.g.AllNodes() {
						if n.Value() != nil && n != moves {
							got[n.ID()] = bits(data(t, e, n.Value()))
						}
					}
					require.NotEmpty(t, got[flattened.ID()])
					all = append(all, got)
				}
				require.NoError(t, vm.Close())
				return all, vm
			}
			want, _ := traced()
			got, vm := traced(gorgoniavm.Replay())
			require.EqualValues(t, 3, vm.Replays().Launches, vm.Replays().Err)
			if fakecuda.Loaded() {
				require.Equal(t, want, got)
			}
		})
	}
}

// Set assigns after each launch, and Read reads scalars.
func TestReplayOfStatements(t *testing.T) {
	e, _ := newReplayMeter(t)
	c := newChain()
	var sum G.Value
	G.Read(c.sum, &sum)
	G.Set(c.x, G.Must(G.Add(c.x, c.x)))
	x, err := e.FromHost(tensor.New(tensor.WithBacking([]float32{1, 2, 3, 4})))
	require.NoError(t, err)
	require.NoError(t, G.Let(c.x, x))
	vm, err := gorgoniavm.New(c.g, e, gorgoniavm.Replay())
	require.NoError(t, err)
	for i := range 5 {
		require.NoError(t, vm.RunAll())
		f := float32(int(1) << i)
		require.Equal(t, 100*f*f*f, sum.Data())
		require.Equal(t, []float32{2 * f, 4 * f, 6 * f, 8 * f}, data(t, e, c.x.Value()))
	}
	require.Equal(t, gorgoniavm.ReplayStats{Recordings: 1, Launches: 4}, vm.Replays())
	require.NoError(t, vm.Close())
	require.NoError(t, e.FreeTensor(x))
}

// What else the pool hands out between launches is none of a recording's
// memory, nor is what it reads.
func TestReplayMemoryIsItsOwn(t *testing.T) {
	e, a := newReplayMeter(t)
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
	e, a := newReplayMeter(t)
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
			if c.standIn && !fakecuda.Loaded() { // before there is a VM, which would leave its blocks
				t.Skip("only the stand-in driver fails when it is told to")
			}
			e, a := newReplayMeter(t)
			m := newMLP(4, 6, 5, 3)
			vm, err := gorgoniavm.New(m.g, e, gorgoniavm.Gradients(m.weights...), gorgoniavm.Replay())
			require.NoError(t, err)
			require.NoError(t, vm.RunAll())
			want := bits(m.cost.Value().Data())
			for range fewRuns + 1 {
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

const fewRuns = 10

// Two VMs over one pool record and launch side by side.
func TestTwoReplays(t *testing.T) {
	_, a := newReplayMeter(t)
	want, got := make([]trained, 2), make([]trained, 2)
	var wg sync.WaitGroup
	for i := range got {
		e := newStreamEngine(t, a)
		m := models["mlp"]()
		want[i] = m.train(t, e, open(t, m, e), 10)
		vm := open(t, m, e, gorgoniavm.Replay())
		wg.Go(func() {
			got[i] = m.train(t, e, vm, 10)
			assert.EqualValues(t, 9, vm.Replays().Launches)
		})
	}
	wg.Wait()
	for i := range got {
		requireSame(t, want[i], got[i])
	}
}

// The garbage collector leaves a recording its memory.
func TestReplayWithLifetimes(t *testing.T) {
	e, a := newReplayMeter(t, cupool.WithLifetimes())
	m := models["reductions"]()
	want := m.train(t, e, open(t, m, e), 5)
	vm := open(t, m, e, gorgoniavm.Replay())
	requireSame(t, want, m.train(t, e, vm, 5, func(int) {
		runtime.GC()
		a.ProcessDeferred()
	}))
	require.Positive(t, vm.Replays().Launches)
}

// A launch is two calls in place of all that start operations: one up to the
// cost, which is waited for alone, and one for what comes after.
func TestLaunchesOfAReplay(t *testing.T) {
	if !fakecuda.Loaded() {
		t.Skip("only the stand-in driver counts")
	}
	e, _ := newReplayMeter(t)
	m := newMLP(16, 20, 30, 20, 10)
	vm, err := gorgoniavm.New(m.g, e, gorgoniavm.Gradients(m.weights...), gorgoniavm.Replay())
	require.NoError(t, err)
	defer vm.Close()
	require.NoError(t, vm.RunAll())
	require.NoError(t, vm.RunAll())
	fakecuda.Count(true)
	defer fakecuda.Count(false)
	require.NoError(t, vm.RunAll())
	assert.Zero(t, fakecuda.Calls("cuLaunchKernel")+fakecuda.Calls("cublasGemmEx"))
	assert.Equal(t, 2, fakecuda.Calls("cuGraphLaunch"))
	requireOneWait(t)
}
