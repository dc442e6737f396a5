package gorgoniavm_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/gorgoniavm"
)

// normed returns a batch norm of an input, and its operation.
func (l *layerTest) normed(shape ...int) (y *G.Node, op *G.BatchNormOp) {
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
	return [][]float64{doubles(t, nil, mean), doubles(t, nil, variance)}
}

func requireStats(t *testing.T, l *layerTest, want [][]float64, op *G.BatchNormOp) {
	t.Helper()
	got := stats(t, op)
	requireClose(t, l.dt, want[0], got[0], "running mean")
	requireClose(t, l.dt, want[1], got[1], "running variance")
}

func TestBatchNormIsGorgonias(t *testing.T) {
	for _, dims := range []int{2, 4} {
		eachFloat(t, func(t *testing.T, l *layerTest) {
			r := l.rand
			shape := []int{2 + r.IntN(4), 1 + r.IntN(4), 1 + r.IntN(5), 1 + r.IntN(5)}[:dims]
			t.Log(shape)
			y, _ := l.normed(shape...)
			l.compare(t, y, true)
		})
	}
}

func TestGroupNormIsGorgonias(t *testing.T) {
	eachFloat(t, func(t *testing.T, l *layerTest) {
		groups, each := 1+l.rand.IntN(3), 1+l.rand.IntN(3)
		c := groups * each
		x, scale, bias := l.input(1+l.rand.IntN(3), c, 3, 1+l.rand.IntN(3)), l.input(1, c, 1, 1), l.input(1, c, 1, 1)
		y, err := G.GroupNorm(x, scale, bias, groups, c, 0.1)
		require.NoError(t, err)
		l.compare(t, y, false) // a broadcast has other gradients in gorgonia than those that are bound
	})
	eachFloat(t, func(t *testing.T, l *layerTest) {
		shape := []int{2, 4, 3, 2}
		x, scale, bias := l.input(shape...), l.input(shape...), l.input(shape...)
		y, err := G.GroupNorm(x, scale, bias, 2, 4, 0.1)
		require.NoError(t, err)
		l.compare(t, y, true)
	})
}

// runs has a machine run.
func runs(t *testing.T, vm G.VM, n int) {
	t.Helper()
	for range n {
		require.NoError(t, vm.RunAll())
		vm.Reset()
	}
}

// onDevice opens a machine on a device.
func (l *layerTest) onDevice(t *testing.T, e *cupool.Engine, opts ...gorgoniavm.Option) *gorgoniavm.VM {
	vm, err := gorgoniavm.New(l.m.g, e, opts...)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, vm.Close()) })
	return vm
}

// Running statistics go on from run to run, and the operation has them when it is
// asked to, and after Close.
func TestRunningStats(t *testing.T) {
	eachFloat(t, func(t *testing.T, l *layerTest) {
		_, op := l.normed(3, 2, 2, 3)
		tape := G.NewTapeMachine(l.m.g)
		runs(t, tape, 3)
		want3 := stats(t, op)
		runs(t, tape, 2)
		want5 := stats(t, op)
		require.NoError(t, tape.Close())

		e, _ := newDeviceMeter(t)
		vm := l.onDevice(t, e)
		runs(t, vm, 3)
		require.True(t, math.IsNaN(stats(t, op)[0][0]), "they are on the device")
		require.NoError(t, vm.SyncStats())
		requireStats(t, l, want3, op)
		require.NoError(t, vm.SyncStats(), "again")
		requireStats(t, l, want3, op)
		runs(t, vm, 2)
		require.NoError(t, vm.Close())
		requireStats(t, l, want5, op)
	})
}

// What the program does to the statistics between runs counts: Reset, also where
// they were as it leaves them before the first run, and SetStats.
func TestRunningStatsAreSet(t *testing.T) {
	eachFloat(t, func(t *testing.T, l *layerTest) {
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
		e, _ := newDeviceMeter(t)
		vm := l.onDevice(t, e)
		for i, got := range follow(vm, vm.SyncStats) {
			requireClose(t, l.dt, want[i], got, "statistics")
		}
	})
}

// Evaluation normalizes with the running statistics, and leaves them.
func TestBatchNormEvaluates(t *testing.T) {
	eachFloat(t, func(t *testing.T, l *layerTest) {
		y, op := l.normed(3, 2, 2, 3)
		require.NoError(t, op.SetStats(floatsOf(l.dt, []float64{0.5, 1.5}, 2), floatsOf(l.dt, []float64{3, 0.25}, 2)))
		want := stats(t, op)
		tape := G.NewTapeMachine(l.m.g, G.EvalMode())
		require.NoError(t, tape.RunAll())
		wantY := doubles(t, nil, y.Value())
		require.NoError(t, tape.Close())
		e, _ := newDeviceMeter(t)
		vm := l.onDevice(t, e, gorgoniavm.EvalMode(), gorgoniavm.Keep(y))
		runs(t, vm, 2)
		requireClose(t, l.dt, wantY, doubles(t, e, y.Value()), "evaluated")
		require.NoError(t, vm.SyncStats())
		requireStats(t, l, want, op)
	})
}

// Two graphs share an operation: one trains, the other evaluates, on machines
// that hand the statistics over. They are in one mode at a time, as on the host.
func TestBatchNormIsShared(t *testing.T) {
	eachFloat(t, func(t *testing.T, l *layerTest) {
		_, op := l.normed(3, 2, 2, 3)
		other := &layerTest{dt: l.dt, rand: l.rand, m: startModel()}
		y := G.Must(G.ApplyOp(op, other.input(2, 2, 1, 3)))
		turns := func(train, evaluate G.VM, e *cupool.Engine) (all [][]float64) {
			require.NoError(t, op.SetTraining(true)) // forgets
			for i := range 3 {
				runs(t, train, 1+i)
				require.NoError(t, op.SetTraining(false))
				evaluate.Reset()
				require.NoError(t, evaluate.RunAll())
				all = append(all, doubles(t, e, y.Value()))
				trainAgain(t, op)
			}
			return all
		}
		train, evaluate := G.NewTapeMachine(l.m.g), G.NewTapeMachine(other.m.g, G.EvalMode())
		want := turns(train, evaluate, nil)
		require.NoError(t, train.Close())
		require.NoError(t, evaluate.Close())
		e, _ := newDeviceMeter(t)
		got := turns(l.onDevice(t, e), other.onDevice(t, e, gorgoniavm.EvalMode(), gorgoniavm.Keep(y)), e)
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
	l := newLayerTest(t, tensor.Float32)
	_, op := l.normed(3, 2, 2, 3)
	e, a := newDeviceMeter(t)
	vm := l.onDevice(t, e)
	for n := 1; ; n++ {
		a.failIn = n
		err := vm.RunAll()
		if err == nil {
			require.Greater(t, n, 5)
			break
		}
		require.ErrorIs(t, err, cupool.ErrOutOfMemory)
	}
	a.failIn = 0
	require.NoError(t, vm.Close())
	require.Zero(t, a.live)
	require.False(t, math.IsNaN(stats(t, op)[0][0]))
}
