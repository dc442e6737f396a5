package gorgoniavm_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/gorgoniavm"
	"github.com/cupool/cupool/internal/testkit"
	"github.com/cupool/cupool/internal/testkit/enginetest"
)

// normTest is a graph of one batch norm over inputs of either type, to be compared
// with the tape machine's results.
type normTest struct {
	dt   tensor.Dtype
	rand *rand.Rand
	m    *model
}

func newNormTest(t *testing.T, dt tensor.Dtype) *normTest {
	return &normTest{dt: dt, rand: testkit.Rand(t), m: startModel()}
}

// input returns a weight.
func (l *normTest) input(shape ...int) *G.Node {
	n := G.NewTensor(l.m.g, l.dt, len(shape), G.WithShape(shape...), G.WithName(name("x", len(l.m.weights))), G.WithValue(enginetest.Random(l.rand, l.dt, shape...)))
	l.m.weights = append(l.m.weights, n)
	return n
}

// floatsOf returns a tensor of numbers.
func floatsOf(dt tensor.Dtype, xs []float64, shape ...int) *tensor.Dense {
	if dt == tensor.Float64 {
		return tensor.New(tensor.WithShape(shape...), tensor.WithBacking(xs))
	}
	fs := make([]float32, len(xs))
	for i, x := range xs {
		fs[i] = float32(x)
	}
	return tensor.New(tensor.WithShape(shape...), tensor.WithBacking(fs))
}

// requireClose compares numbers.
func requireClose(t *testing.T, dt tensor.Dtype, want, got []float64, what string) {
	t.Helper()
	require.Len(t, got, len(want), what)
	bound, largest := 2e-5, 1.
	if dt == tensor.Float64 {
		bound = 1e-11
	}
	for _, x := range want {
		if !math.IsInf(x, 0) && !math.IsNaN(x) {
			largest = max(largest, math.Abs(x))
		}
	}
	for i := range want {
		if want[i] == got[i] || math.IsNaN(want[i]) && math.IsNaN(got[i]) {
			continue
		}
		require.InDelta(t, want[i], got[i], bound*largest, "%s %d", what, i)
	}
}

// normed returns a batch norm of an input, and its operation.
func (l *normTest) normed(shape ...int) (y *G.Node, op *G.BatchNormOp) {
	x, scale, bias := l.input(shape...), l.input(shape...), l.input(shape...)
	y, _, _, op, err := G.BatchNorm(x, scale, bias, 0.25, 0.1)
	if err != nil {
		panic(err)
	}
	return y, op
}

// stats returns the numbers of an operation's running statistics.
func stats(t *testing.T, op *G.BatchNormOp) [][]float64 {
	mean, variance := op.Stats()
	return [][]float64{floatsIn(data(t, nil, mean)), floatsIn(data(t, nil, variance))}
}

func requireStats(t *testing.T, l *normTest, want [][]float64, op *G.BatchNormOp) {
	t.Helper()
	got := stats(t, op)
	requireClose(t, l.dt, want[0], got[0], "running mean")
	requireClose(t, l.dt, want[1], got[1], "running variance")
}

// runs has a machine run.
func runs(t *testing.T, vm G.VM, n int) {
	t.Helper()
	for range n {
		require.NoError(t, vm.RunAll())
		vm.Reset()
	}
}

// eachNorm runs a test for float32 and float64 on each device.
func eachNorm(t *testing.T, f func(t *testing.T, d device, l *normTest)) {
	everywhere(t, func(t *testing.T, d device) {
		for _, dt := range []tensor.Dtype{tensor.Float32, tensor.Float64} {
			t.Run(dt.String(), func(t *testing.T) { f(t, d, newNormTest(t, dt)) })
		}
	})
}

// Running statistics go on from run to run, and the operation has them when it is
// asked to, and after Close. A recording learns them with every launch.
func TestRunningStats(t *testing.T) {
	eachNorm(t, func(t *testing.T, d device, l *normTest) {
		_, op := l.normed(3, 2, 2, 3)
		tape := G.NewTapeMachine(l.m.g)
		runs(t, tape, 4)
		want4 := stats(t, op)
		runs(t, tape, 2)
		want6 := stats(t, op)
		require.NoError(t, tape.Close())

		e, _ := d.open(t)
		vm := d.vm(t, l.m.g, e)
		runs(t, vm, 4)
		require.Equal(t, !d.exact, math.IsNaN(stats(t, op)[0][0]), "they are on the device")
		for range 2 {
			require.NoError(t, vm.SyncStats())
			requireStats(t, l, want4, op)
		}
		runs(t, vm, 2)
		require.Equal(t, d.records, vm.Replays().Launches == 5, "%+v", vm.Replays())
		require.NoError(t, vm.Close())
		requireStats(t, l, want6, op)
	})
}

// What the program does to the statistics between runs counts: Reset, also where
// they were as it leaves them before the first run, and SetStats.
func TestRunningStatsAreSet(t *testing.T) {
	eachNorm(t, func(t *testing.T, d device, l *normTest) {
		_, op := l.normed(3, 2, 2, 3)
		mean, variance := floatsOf(l.dt, []float64{7, -7}, 2), floatsOf(l.dt, []float64{3, 4}, 2)
		follow := func(vm G.VM, sync func() error) (all [][]float64) {
			runs(t, vm, 2)
			require.NoError(t, op.Reset())
			runs(t, vm, 1)
			require.NoError(t, sync())
			all = append(all, stats(t, op)...)
			require.NoError(t, op.SetStats(mean, variance))
			runs(t, vm, 1)
			require.NoError(t, sync())
			return append(all, stats(t, op)...)
		}
		tape := G.NewTapeMachine(l.m.g)
		want := follow(tape, func() error { return nil })
		require.NoError(t, tape.Close())
		e, _ := d.open(t)
		vm := d.vm(t, l.m.g, e)
		for i, got := range follow(vm, vm.SyncStats) {
			requireClose(t, l.dt, want[i], got, "statistics")
		}
		require.NoError(t, vm.Close())
	})
}

// Evaluation normalizes with the running statistics, and leaves them. A program is
// recorded anew when the operation goes over to it.
func TestBatchNormEvaluates(t *testing.T) {
	eachNorm(t, func(t *testing.T, d device, l *normTest) {
		y, op := l.normed(3, 2, 2, 3)
		evaluated := func(vm G.VM, sync func() error, e *cupool.Engine) []float64 {
			require.NoError(t, op.SetTraining(true)) // forgets
			runs(t, vm, 3)
			require.NoError(t, sync())
			require.NoError(t, op.SetTraining(false))
			runs(t, vm, 3)
			return floatsIn(data(t, e, y.Value()))
		}
		tape := G.NewTapeMachine(l.m.g)
		want := evaluated(tape, func() error { return nil }, nil)
		learned := stats(t, op)
		require.NoError(t, tape.Close())
		e, _ := d.open(t)
		vm := d.vm(t, l.m.g, e, gorgoniavm.Keep(y))
		requireClose(t, l.dt, want, evaluated(vm, vm.SyncStats, e), "evaluated")
		require.NoError(t, vm.SyncStats())
		requireStats(t, l, learned, op)
		require.Equal(t, d.records, vm.Replays().Recordings == 2, "%+v", vm.Replays())
		require.NoError(t, vm.Close())
		mode := d.vm(t, l.m.g, e, gorgoniavm.EvalMode(), gorgoniavm.Keep(y))
		runs(t, mode, 2)
		requireClose(t, l.dt, want, floatsIn(data(t, e, y.Value())), "with EvalMode")
		require.NoError(t, mode.Close())
	})
}

// Two graphs share an operation: one trains, the other evaluates, on machines
// that hand the statistics over. They are in one mode at a time, as on the host.
func TestBatchNormIsShared(t *testing.T) {
	eachNorm(t, func(t *testing.T, d device, l *normTest) {
		_, op := l.normed(3, 2, 2, 3)
		other := &normTest{dt: l.dt, rand: l.rand, m: startModel()}
		y := G.Must(G.ApplyOp(op, other.input(2, 2, 1, 3)))
		turns := func(train, evaluate G.VM, e *cupool.Engine) (all [][]float64) {
			require.NoError(t, op.SetTraining(true)) // forgets
			for i := range 3 {
				runs(t, train, 1+i)
				require.NoError(t, op.SetTraining(false))
				evaluate.Reset()
				require.NoError(t, evaluate.RunAll())
				all = append(all, floatsIn(data(t, e, y.Value())))
				trainAgain(t, op)
			}
			require.NoError(t, train.Close())
			require.NoError(t, evaluate.Close())
			return all
		}
		want := turns(G.NewTapeMachine(l.m.g), G.NewTapeMachine(other.m.g, G.EvalMode()), nil)
		e, _ := d.open(t)
		got := turns(d.vm(t, l.m.g, e), d.vm(t, other.m.g, e, gorgoniavm.EvalMode(), gorgoniavm.Keep(y)), e)
		for i := range want {
			requireClose(t, l.dt, want[i], got[i], "evaluated")
		}
	})
}

// trainAgain has op train and keep its statistics, which SetTraining forgets.
func trainAgain(t *testing.T, op *G.BatchNormOp) {
	mean, variance := op.Stats()
	mean, variance = mean.Clone().(tensor.Tensor), variance.Clone().(tensor.Tensor)
	require.NoError(t, op.SetTraining(true))
	require.NoError(t, op.SetStats(mean, variance))
}

// Memory that runs out while statistics are made leaves nothing behind.
func TestNormsOutOfMemory(t *testing.T) {
	everywhere(t, func(t *testing.T, d device) {
		if d.records {
			t.Skip("the same runs as on the device that records none")
		}
		l := newNormTest(t, tensor.Float32)
		_, op := l.normed(3, 2, 2, 3)
		e, a := d.open(t)
		vm, err := gorgoniavm.New(l.m.g, e)
		require.NoError(t, err)
		for n := 1; ; n++ {
			a.failIn = n
			err := vm.RunAll()
			if err == nil {
				require.Greater(t, n, 2)
				break
			}
			require.ErrorIs(t, err, cupool.ErrOutOfMemory)
		}
		a.failIn = 0
		require.NoError(t, vm.Close())
		require.Zero(t, a.live)
		require.False(t, math.IsNaN(stats(t, op)[0][0]))
	})
}
