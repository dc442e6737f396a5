package gorgoniavm_test

import (
	"maps"
	"math"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/cuda"
	"github.com/cupool/cupool/gorgoniavm"
	"github.com/cupool/cupool/gorgoniavm/internal/program"
	"github.com/cupool/cupool/internal/fakecuda"
	"github.com/cupool/cupool/internal/testkit/gputest"
)

// bits returns numbers as bits, so that NaN equals NaN and -0 is not 0.
func bits(data any) any {
	switch x := data.(type) {
	case float32:
		return math.Float32bits(x)
	case float64:
		return math.Float64bits(x)
	case []float32:
		b := make([]uint32, len(x))
		for i := range x {
			b[i] = math.Float32bits(x[i])
		}
		return b
	case []float64:
		b := make([]uint64, len(x))
		for i := range x {
			b[i] = math.Float64bits(x[i])
		}
		return b
	}
	return data
}

// rate is the learning rate. With 0.1, six steps of some models end in NaN.
const rate = 0.01

// step is one step of plain gradient descent, on the CPU.
func step(t testing.TB, e *cupool.Engine, weights G.Nodes) {
	t.Helper()
	for _, w := range weights {
		g, err := w.Grad()
		require.NoError(t, err)
		v, ok := w.Value().(*tensor.Dense)
		if !ok {
			require.NoError(t, G.Let(w, *w.Value().(*G.F32)-rate**g.(*G.F32)))
			G.WithGrad(G.NewF32(0))(w)
			continue
		}
		gd := g.(*tensor.Dense)
		scaled, err := tensor.Mul(gd, float32(rate))
		require.NoError(t, err)
		_, err = tensor.Sub(v, scaled, tensor.UseUnsafe())
		require.NoError(t, err)
		if e != nil && e.Owns(scaled) {
			require.NoError(t, e.FreeTensor(scaled))
			require.NoError(t, e.Zero(gd))
		} else {
			gd.Zero()
		}
	}
}

// data returns a copy of a value's numbers.
func data(t testing.TB, e *cupool.Engine, v G.Value) any {
	t.Helper()
	d, ok := v.(*tensor.Dense)
	if !ok {
		return v.Data()
	}
	if e == nil {
		return d.Clone().(*tensor.Dense).Data()
	}
	h, err := e.ToHost(d)
	require.NoError(t, err)
	return h.Data()
}

// gradients returns a model's gradients.
func gradients(t testing.TB, e *cupool.Engine, m *model) map[string]any {
	t.Helper()
	all := make(map[string]any)
	for _, w := range m.weights {
		g, err := w.Grad()
		require.NoError(t, err)
		all[w.Name()] = bits(data(t, e, g))
	}
	return all
}

// trained is what some steps of training came to.
type trained struct {
	Costs     []any
	Gradients []map[string]any
}

// train runs steps of training from the model's present weights, and gives the
// weights their values back. e is nil for gorgonia's own machine. What is to be
// done before each step is given its number.
func (m *model) train(t testing.TB, e *cupool.Engine, vm G.VM, steps int, before ...func(i int)) trained {
	t.Helper()
	var r trained
	start := make([]any, len(m.weights))
	for i, w := range m.weights {
		start[i] = clone(t, e, w.Value())
	}
	for i := range steps {
		for _, f := range before {
			f(i)
		}
		require.NoError(t, vm.RunAll())
		r.Costs = append(r.Costs, bits(m.cost.Value().Data()))
		r.Gradients = append(r.Gradients, gradients(t, e, m))
		step(t, e, m.weights)
		vm.Reset()
	}
	for i, w := range m.weights {
		require.NoError(t, G.Let(w, start[i]))
	}
	return r
}

// clone returns a copy in Go's heap.
func clone(t testing.TB, e *cupool.Engine, v G.Value) any {
	t.Helper()
	d, ok := v.(*tensor.Dense)
	if !ok {
		return v.Data()
	}
	if e == nil || !e.Owns(d) {
		return d.Clone()
	}
	h, err := e.ToHost(d)
	require.NoError(t, err)
	return h
}

// tape trains a model on gorgonia's tape machine. The order in which gorgonia
// adds up gradients changes from graph to graph, so that machines are compared
// on one and the same.
func (m *model) tape(t testing.TB, steps int) trained {
	t.Helper()
	vm := G.NewTapeMachine(m.g, G.BindDualValues(m.weights...))
	defer vm.Close()
	return m.train(t, nil, vm, steps)
}

// near compares numbers that are given by their bits.
func near(t *testing.T, want, got any) {
	t.Helper()
	if w, ok := want.(uint32); ok {
		want, got = []uint32{w}, []uint32{got.(uint32)}
	}
	w, g := want.([]uint32), got.([]uint32)
	require.Len(t, g, len(w))
	largest := 1e-3
	for i := range w {
		largest = max(largest, math.Abs(float64(math.Float32frombits(w[i]))))
	}
	for i := range w {
		require.InDelta(t, math.Float32frombits(w[i]), math.Float32frombits(g[i]), 1e-4*largest)
	}
}

// nearAll compares what steps of training came to.
func nearAll(t *testing.T, want, got trained) {
	t.Helper()
	for i := range want.Costs {
		near(t, want.Costs[i], got.Costs[i])
		for w := range want.Gradients[i] {
			near(t, want.Gradients[i][w], got.Gradients[i][w])
		}
	}
}

// open returns a VM of the model that is closed at the test's end.
func open(t testing.TB, m *model, e *cupool.Engine, opts ...gorgoniavm.Option) *gorgoniavm.VM {
	t.Helper()
	vm, err := gorgoniavm.New(m.g, e, append([]gorgoniavm.Option{gorgoniavm.BindDualValues(m.weights...)}, opts...)...)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, vm.Close()) })
	return vm
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

// requireTrained compares steps of training with the tape machine's.
func (d device) requireTrained(t *testing.T, want, got trained) {
	t.Helper()
	if d.exact {
		require.Equal(t, want, got)
	}
	nearAll(t, want, got)
}

// unrecorded are models of which a run is not recorded once and for all: they learn
// scalars, whose recordings are given up, or a tensor depends on a number of the
// device.
var unrecorded = map[string]int64{"linear regression": 3, "logistic regression": 3, "slices and concat": 0, "squared": 0}

// recordingsOf returns how often the runs of a model are recorded.
func recordingsOf(name string) int64 {
	if n, ok := unrecorded[name]; ok {
		return n
	}
	return 1
}

// requireTrains compares training with that of the tape machine: to the bit, and
// with no more memory, where the device computes as Gorgonia does. A step holds on
// to nothing, and nothing is left to Gorgonia where the device computes by itself.
func requireTrains(t *testing.T, d device, m *model, recordings int64) *gorgoniavm.VM {
	t.Helper()
	steps := 3
	if d.records {
		steps = 6
	}
	want := m.tape(t, steps)
	e, a := d.open(t)
	var plain trained
	if d.records {
		plain = m.train(t, e, open(t, m, e), steps)
	}
	vm := d.bound(t, m, e)
	got := m.train(t, e, vm, steps)
	d.requireTrained(t, want, got)
	if d.records {
		requireSame(t, plain, got)
		stats := vm.Replays()
		require.Equal(t, recordings, stats.Recordings, stats.Err)
		switch recordings {
		case 0:
			require.ErrorIs(t, stats.Err, cupool.ErrNotSupported)
			var node *gorgoniavm.OpError
			require.ErrorAs(t, stats.Err, &node)
		case 1:
			require.NoError(t, stats.Err)
			require.EqualValues(t, steps-1, stats.Launches)
		}
	}
	if d.computes {
		require.Empty(t, vm.Fallbacks())
	}
	for range 2 { // moves the weights, and is recorded
		require.NoError(t, vm.RunAll())
	}
	live := a.live
	a.peak = live
	for range 3 {
		require.NoError(t, vm.RunAll())
		vm.Reset()
		require.Equal(t, live, a.live)
	}
	if d.exact {
		assert.Less(t, live, a.peak, "values of a run are freed in it")
		assert.LessOrEqual(t, a.peak-live, tapeBytes(t, m))
	}
	return vm
}

// Every model trains on every device to what it trains to on the tape machine.
func TestModels(t *testing.T) {
	everywhere(t, func(t *testing.T, d device) {
		for _, name := range slices.Sorted(maps.Keys(models)) {
			t.Run(name, func(t *testing.T) {
				requireTrains(t, d, models[name](), recordingsOf(name))
			})
		}
	})
}

// In managed memory the CPU computes everything, as on the host.
func TestModelsInManagedMemory(t *testing.T) {
	gputest.Need(t)
	for _, name := range []string{"mlp", "convnet"} {
		t.Run(name, func(t *testing.T) {
			m := models[name]()
			want := m.tape(t, 3)
			d, err := cuda.Open(0, cuda.Managed())
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, d.Close()) })
			e, _ := newMeterOn(t, d)
			require.Equal(t, want, m.train(t, e, open(t, m, e), 3))
		})
	}
}

// Fused steps are as many as they should be, and train as the tape machine does.
func TestFused(t *testing.T) {
	everywhere(t, func(t *testing.T, d device) {
		if d.computes && !d.records {
			t.Skip("recorded runs begin as these do")
		}
		for kind, all := range fusions {
			for name, c := range all.graphs {
				t.Run(kind+", "+name, func(t *testing.T) {
					vm := requireTrains(t, d, c.build(), recordingsOf(name))
					for i, s := range all.steps {
						want := c.n[i]
						if d.exact || d.computes && (s == program.Rectify || s == program.RectifyBack) {
							want = 0 // Gorgonia's own operations; a group
						}
						require.Equal(t, want, gorgoniavm.Steps(vm)[s], "step %d", s)
					}
				})
			}
		}
	})
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
	everywhere(t, func(t *testing.T, d device) {
		const steps = 20
		_, a := d.open(t)
		weights := newMLP(16, 20, 30, 10)
		want, got := make([]trained, 2), make([]trained, 2)
		var wg sync.WaitGroup
		var trains []func()
		for i := range got { // tape machines write to tensors that graphs share, so they come first
			e := newStreamEngine(t, a)
			m := newMLP(16, 20, 30, 10)
			shared := G.NewMatrix(m.g, tensor.Float32, G.WithShape(20, 30), G.WithName("shared"), G.WithValue(weights.weights[0].Value()))
			m.cost = G.Must(G.Add(m.cost, G.Must(G.Sum(G.Must(G.Mul(m.inputs[0], shared))))))
			want[i] = m.tape(t, steps)
			vm := d.bound(t, m, e)
			trains = append(trains, func() {
				got[i] = m.train(t, e, vm, steps)
				assert.Equal(t, d.records, vm.Replays().Launches == steps-1)
			})
		}
		for _, train := range trains {
			wg.Go(train)
		}
		wg.Wait()
		for i := range got {
			d.requireTrained(t, want[i], got[i])
		}
	})
}

// Whichever allocation fails, the run's error says so, nothing stays behind,
// no gradient has changed, and the next run is right.
func TestOutOfMemoryAnywhere(t *testing.T) {
	everywhere(t, func(t *testing.T, d device) {
		if d.records {
			t.Skip("the same runs as on the device that records none")
		}
		for _, name := range []string{"mlp", "convnet", "pool and norm", "lstm"} {
			t.Run(name, func(t *testing.T) {
				m := models[name]()
				want := m.tape(t, 1)
				e, a := d.open(t)
				vm := open(t, m, e)
				require.NoError(t, vm.RunAll())
				zeroGradients(t, e, m)
				live, failures := a.live, 0
				for n := range d.failures(t) {
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
					require.LessOrEqual(t, a.live, live, "allocation %d", n)
				}
				a.failIn = 0
				require.Greater(t, failures, 3)
				zeroGradients(t, e, m)
				d.requireTrained(t, want, m.train(t, e, vm, 1))
			})
		}
	})
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

// Values that a scope has freed are gone when the VM gives its values back.
func TestValuesOfAScope(t *testing.T) {
	everywhere(t, func(t *testing.T, d device) {
		e, _ := d.open(t)
		g := G.NewGraph()
		x := G.NewMatrix(g, tensor.Float32, G.WithShape(3, 4), G.WithName("x"), G.WithValue(values(1, 3, 4)))
		G.Must(G.Max(x, 0))
		G.Must(G.Sparsemax(x))
		vm := d.vm(t, g, e)
		for range 3 {
			require.NoError(t, scoped{vm, t, e}.RunAll())
		}
		require.NoError(t, vm.Close())
	})
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

// newPlainEngine returns an engine over a pool, without a meter.
func newPlainEngine(t testing.TB) *cupool.Engine {
	t.Helper()
	_, m := newMeter(t)
	e, err := cupool.NewEngine(m.Pool)
	require.NoError(t, err)
	return e
}

// BenchmarkRunAll runs the same graph on both machines.
func BenchmarkRunAll(b *testing.B) {
	for _, c := range []struct {
		name  string
		build func() *model
	}{
		{"mnist", newMNIST},
		{"convnet", func() *model { return newConvnetOf(20, 28, 8, 16) }},
		{"lstm", newLSTM},
	} {
		b.Run("graph="+c.name+"/vm=tape", func(b *testing.B) {
			m := c.build()
			vm := G.NewTapeMachine(m.g, G.BindDualValues(m.weights...))
			defer vm.Close()
			b.ReportAllocs()
			for b.Loop() {
				require.NoError(b, vm.RunAll())
				vm.Reset()
			}
		})
		b.Run("graph="+c.name+"/vm=pool", func(b *testing.B) {
			m := c.build()
			vm, err := gorgoniavm.New(m.g, newPlainEngine(b), gorgoniavm.BindDualValues(m.weights...))
			require.NoError(b, err)
			defer vm.Close()
			b.ReportAllocs()
			for b.Loop() {
				require.NoError(b, vm.RunAll())
				vm.Reset()
			}
		})
	}
}

// Operations that a device computes by package nn heed masks as Gorgonia does.
func TestMaskedInputs(t *testing.T) {
	everywhere(t, func(t *testing.T, d device) {
		for name, f := range map[string]func(x *G.Node) (*G.Node, error){
			"Sigmoid": G.Sigmoid, "Sin": G.Sin, "Softplus": G.Softplus,
			"MaxPool2D": func(x *G.Node) (*G.Node, error) {
				return G.MaxPool2D(x, tensor.Shape{2, 2}, []int{0, 0}, []int{1, 1})
			},
			"Upsample2D": func(x *G.Node) (*G.Node, error) { return G.Upsample2D(x, 2) },
		} {
			build := func() (*G.ExprGraph, *G.Node) {
				in := tensor.New(tensor.WithShape(1, 1, 2, 3), tensor.WithBacking([]float64{1, 2, 3, 4, 5, 6}))
				in.SetMask([]bool{false, true, false, false, true, false})
				g := G.NewGraph()
				return g, G.Must(f(G.NewTensor(g, tensor.Float64, 4, G.WithShape(1, 1, 2, 3), G.WithName("x"), G.WithValue(in))))
			}
			g, want := build()
			require.NoError(t, G.NewTapeMachine(g).RunAll(), name)
			e, _ := d.open(t)
			g, got := build()
			vm := d.vm(t, g, e)
			require.NoError(t, vm.RunAll(), name)
			h, err := e.ToHost(got.Value().(tensor.Tensor))
			require.NoError(t, err)
			require.InDeltaSlice(t, want.Value().Data(), h.Data(), 1e-12, name)
			require.NoError(t, vm.Close())
		}
	})
}

// A mask that an input gets between runs is heeded from then on, and no more when it is gone.
func TestMasksBetweenRuns(t *testing.T) {
	everywhere(t, func(t *testing.T, d device) {
		for _, pooled := range []bool{false, true} {
			e, _ := d.open(t)
			in := tensor.New(tensor.WithShape(2, 2), tensor.WithBacking([]float64{0, 2, 0, 4}))
			if pooled {
				up, err := e.FromHost(in)
				require.NoError(t, err)
				in = up
			}
			g := G.NewGraph()
			y := G.Must(G.Sigmoid(G.NewMatrix(g, tensor.Float64, G.WithShape(2, 2), G.WithName("x"), G.WithValue(in))))
			vm := d.vm(t, g, e)
			for _, mask := range [][]bool{nil, {true, true, true, true}, {true, false, true, true}, nil} {
				in.SetMask(mask)
				for range 2 {
					require.NoError(t, vm.RunAll())
					want := 0.5
					if mask != nil {
						want = 0 // what is masked stays what it is
					}
					require.Equal(t, want, data(t, e, y.Value()).([]float64)[0])
					require.Equal(t, mask != nil && mask[1], data(t, e, y.Value()).([]float64)[1] == 2)
				}
			}
			require.NoError(t, vm.Close())
			if pooled {
				require.NoError(t, e.FreeTensor(in))
			}
		}
	})
}
