package gorgoniavm_test

import (
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/gorgoniavm"
)

// open returns a VM of the model that is closed at the test's end.
func open(t testing.TB, m *model, e *cupool.Engine, opts ...gorgoniavm.Option) *gorgoniavm.VM {
	t.Helper()
	vm, err := gorgoniavm.New(m.g, e, append([]gorgoniavm.Option{gorgoniavm.BindDualValues(m.weights...)}, opts...)...)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, vm.Close()) })
	return vm
}

// Steps hold on to nothing: what is live after one is what was live after the
// first.
func TestLiveBytesAreConstant(t *testing.T) {
	steps := map[string]int{"mlp": 1000}
	for name, build := range models {
		t.Run(name, func(t *testing.T) {
			e, a := newMeter(t)
			m := build()
			vm := open(t, m, e)
			require.NoError(t, vm.RunAll())
			first, peak := a.live, a.peak
			for i := range max(10, steps[name]) {
				require.NoError(t, vm.RunAll())
				vm.Reset()
				require.Equal(t, first, a.live, "step %d", i)
			}
			assert.Less(t, first, peak, "values of a run are freed in it")
		})
	}
}

// tapeBytes is what the tape machine's registers hold at the end of a run,
// without inputs and constants: a register is never freed, and is shared only
// by operations that overwrite their operand.
func tapeBytes(t *testing.T, m *model) int64 {
	t.Helper()
	_, locations, err := G.Compile(m.g)
	require.NoError(t, err)
	registers := make(map[string]int64)
	for n, r := range locations {
		if n.IsVar() || n.IsScalar() || n.Op() == nil || strings.Contains(n.Op().String(), "const") {
			continue
		}
		registers[r.String()] = max(registers[r.String()], int64(n.Shape().TotalSize())*int64(n.Dtype().Size()))
	}
	var sum int64
	for _, n := range registers {
		sum += n
	}
	return sum
}

// The most that is live in a run is no more than the tape machine's registers,
// on top of the gradients that both bind.
func TestPeakIsNoMoreThanTheTapeMachines(t *testing.T) {
	for name, build := range models {
		t.Run(name, func(t *testing.T) {
			e, a := newMeter(t)
			m := build()
			vm := open(t, m, e)
			require.NoError(t, vm.RunAll())
			a.peak = a.live
			require.NoError(t, vm.RunAll())
			var bound int64
			for _, w := range m.weights {
				if !w.IsScalar() {
					bound += int64(w.Value().MemSize())
				}
			}
			tape := tapeBytes(t, m)
			assert.LessOrEqual(t, a.peak-bound, tape)
			t.Logf("peak %d bytes beside the gradients, tape machine %d", a.peak-bound, tape)
		})
	}
}

// Of a step's tensor bytes, 99 % and more come from the pool.
func TestShareOfThePool(t *testing.T) {
	for name, build := range map[string]func() *model{"mlp": newMNIST, "convnet": func() *model { return newConvnetOf(20, 28, 8, 16) }, "dropout": newDropout} {
		t.Run(name, func(t *testing.T) {
			// With more processors, a new thread of the runtime's counts as an
			// object of 5 KiB.
			defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
			e, a := newMeter(t)
			m := build()
			vm := open(t, m, e)
			require.NoError(t, vm.RunAll())
			var before, after runtime.MemStats
			pool := a.total
			runtime.ReadMemStats(&before)
			require.NoError(t, vm.RunAll())
			runtime.ReadMemStats(&after)
			pool = a.total - pool
			heap := int64(after.TotalAlloc - before.TotalAlloc)
			big := bigHeapBytes(before, after)
			t.Logf("%d bytes of the pool, %d of Go's heap, of which %d in objects as large as tensors", pool, heap, big)
			assert.Greater(t, float64(pool)/float64(pool+big), 0.99, "%d bytes of tensors in Go's heap", big)
		})
	}
}

// newDropout is a layer with dropout.
func newDropout() *model {
	m := startModel()
	h := G.Must(G.Dropout(G.Must(G.Rectify(G.Must(G.Mul(m.param("x", 1, 128, 256), m.param("w", 2, 256, 256))))), 0.4))
	return m.learn(h)
}

// bigHeapBytes are the bytes of objects of 1 KiB and more: what else Go
// allocates in a step, headers and closures, are small.
func bigHeapBytes(before, after runtime.MemStats) int64 {
	small := int64(0)
	for i := range after.BySize {
		if after.BySize[i].Size < 1<<10 {
			small += int64(after.BySize[i].Mallocs-before.BySize[i].Mallocs) * int64(after.BySize[i].Size)
		}
	}
	return int64(after.TotalAlloc-before.TotalAlloc) - small
}

// VMs on streams of their own run at once, sharing the weights that they read.
func TestTwoVMsAtOnce(t *testing.T) {
	_, a := newMeter(t)
	weights := newMLP(16, 20, 30, 10)
	want := make([]trained, 2)
	var wg sync.WaitGroup
	got := make([]trained, 2)
	// Tape machines write to tensors that graphs share, so they come first.
	run := func(i int) func() {
		s, err := a.NewStream()
		require.NoError(t, err)
		e, err := cupool.NewEngine(a, cupool.WithStream(s))
		require.NoError(t, err)
		m := newMLP(16, 20, 30, 10)
		shared := G.NewMatrix(m.g, tensor.Float32, G.WithShape(20, 30), G.WithName("shared"), G.WithValue(weights.weights[0].Value()))
		m.cost = G.Must(G.Add(m.cost, G.Must(G.Sum(G.Must(G.Mul(m.inputs[0], shared))))))
		want[i] = m.tape(t, 20)
		vm := open(t, m, e)
		return func() { got[i] = m.train(t, e, vm, 20) }
	}
	for _, train := range []func(){run(0), run(1)} {
		wg.Go(train)
	}
	wg.Wait()
	assert.Equal(t, want, got)
}

// Whichever allocation fails, the run's error says so, nothing stays behind,
// no gradient has changed, and the next run is right.
func TestOutOfMemoryAnywhere(t *testing.T) {
	for _, name := range []string{"mlp", "convnet", "lstm", "slices and concat", "products", "reductions", "batch norm", "by indices"} {
		t.Run(name, func(t *testing.T) {
			m := models[name]()
			want := m.tape(t, 1)
			e, a := newMeter(t)
			vm := open(t, m, e)
			failures := 0
			for n := 1; ; n++ {
				a.failIn = n
				err := vm.RunAll()
				if err == nil {
					break
				}
				failures++
				var oom *cupool.OOMError
				require.ErrorAs(t, err, &oom, "allocation %d", n)
				require.ErrorIs(t, err, cupool.ErrOutOfMemory)
				for _, g := range gradients(t, e, m) {
					require.Zero(t, onlyZeros(g), "a gradient has changed")
				}
				live := a.live
				require.LessOrEqual(t, live, gradientBytes(m)+constantBytes(m), "allocation %d", n)
			}
			a.failIn = 0
			require.Greater(t, failures, 5)
			zeroGradients(t, e, m)
			require.Equal(t, want, m.train(t, e, vm, 1))
		})
	}
}

// onlyZeros counts numbers that are not 0.
func onlyZeros(bits any) (n int) {
	switch x := bits.(type) {
	case []uint32:
		for _, b := range x {
			if b != 0 {
				n++
			}
		}
	case uint32:
		if x != 0 {
			n++
		}
	}
	return n
}

func gradientBytes(m *model) (n int64) {
	for _, w := range m.weights {
		n += int64(w.Value().MemSize())
	}
	return n
}

func constantBytes(m *model) (n int64) {
	for _, x := range m.g.AllNodes() {
		if d, ok := x.Value().(*tensor.Dense); ok && x.Op() != nil && strings.HasPrefix(x.Op().String(), "const") {
			n += int64(d.MemSize())
		}
	}
	return n
}

func zeroGradients(t *testing.T, e *cupool.Engine, m *model) {
	t.Helper()
	for _, w := range m.weights {
		g, err := w.Grad()
		require.NoError(t, err)
		if d, ok := g.(*tensor.Dense); ok {
			require.NoError(t, e.Zero(d))
		} else {
			G.WithGrad(G.NewF32(0))(w)
		}
	}
}

// What outlives a run belongs to no scope of the engine.
func TestRunInAScope(t *testing.T) {
	e, a := newMeter(t)
	m := models["mlp"]()
	want := m.tape(t, 3)
	vm := open(t, m, e)
	got := m.train(t, e, scoped{vm, t, e}, 3)
	assert.Equal(t, want, got)
	assert.Equal(t, gradientBytes(m), a.live)
}

// scoped runs a VM in scopes.
type scoped struct {
	*gorgoniavm.VM
	t *testing.T
	e *cupool.Engine
}

func (s scoped) RunAll() error {
	scope := s.e.Scope()
	defer func() { require.NoError(s.t, scope.Close()) }()
	return s.VM.RunAll()
}
