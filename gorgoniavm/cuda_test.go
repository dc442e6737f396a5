package gorgoniavm_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/cuda"
	"github.com/cupool/cupool/gorgoniavm"
	"github.com/cupool/cupool/internal/fakecuda"
	"github.com/cupool/cupool/internal/tensorop"
	"github.com/cupool/cupool/internal/testkit/gputest"
	"github.com/cupool/cupool/internal/testkit/nvtxtest"
)

func init() {
	devices["cuda"] = device{open: newGPUMeter, computes: true}
	devices["cuda, recorded"] = device{open: newRecordingMeter, options: []gorgoniavm.Option{gorgoniavm.Replay()}, computes: true, records: true}
}

// newGPUMeter is newMeter on a GPU with kernels.
func newGPUMeter(t testing.TB, opts ...cupool.EngineOption) (*cupool.Engine, *meter) {
	t.Helper()
	d, err := cupool.Open("cuda:0")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	e, m := newMeterOn(t, d, opts...)
	if tensorop.Of(e).GPU() == nil && fakecuda.Loaded() {
		t.Skip("there are no kernels: the stand-in driver was built without a C++ compiler")
	}
	return e, m
}

// newRecordingMeter is newGPUMeter on a stream that can be recorded. It does not
// fill memory, which waits for the device.
func newRecordingMeter(t testing.TB, opts ...cupool.EngineOption) (*cupool.Engine, *meter) {
	t.Helper()
	_, m := newGPUMeter(t)
	m.plain = true
	return newStreamEngine(t, m, opts...), m
}

// In managed memory the CPU computes everything, as on the host.
func TestModelsInManagedMemory(t *testing.T) {
	for _, name := range []string{"mlp", "convnet"} {
		t.Run(name, func(t *testing.T) {
			m := models[name]()
			want := m.tape(t, 3)
			gputest.Need(t)
			d, err := cuda.Open(0, cuda.Managed())
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, d.Close()) })
			e, _ := newMeterOn(t, d)
			require.Equal(t, want, m.train(t, e, open(t, m, e), 3))
		})
	}
}

// A tool sees the operations of a run by name, each with its node.
func TestToolSeesOperations(t *testing.T) {
	got, ok := nvtxtest.Record(t, func(t *testing.T) {
		eng, _ := newGPUMeter(t)
		g := G.NewGraph()
		x := G.NewTensor(g, tensor.Float32, 2, G.WithShape(2, 3), G.WithInit(G.Ones()))
		G.Must(G.Mul(x, G.Must(G.Transpose(x))))
		vm, err := gorgoniavm.New(g, eng)
		require.NoError(t, err)
		require.NoError(t, vm.RunAll())
		require.NoError(t, vm.Close())
	})
	if !ok {
		return
	}
	require.Contains(t, got, nvtxtest.Event{Domain: "cupool", Name: "gorgonia.linAlgBinOp", Bytes: 2})
	require.Contains(t, got, nvtxtest.Event{End: true, Domain: "cupool", Name: "gorgonia.linAlgBinOp"})
}
