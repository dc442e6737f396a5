package gorgoniavm_test

import (
	"errors"
	"iter"
	"maps"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	G "gorgonia.org/gorgonia"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/cuda"
	"github.com/cupool/cupool/gorgoniavm"
	"github.com/cupool/cupool/internal/fakecuda"
	"github.com/cupool/cupool/internal/testkit"
	"github.com/cupool/cupool/internal/testkit/enginetest"
	"github.com/cupool/cupool/internal/testkit/gputest"
	"github.com/cupool/cupool/internal/testkit/pooltest"
)

// quick reports whether tests on a GPU are to be short: the kernels of the
// stand-in driver run on the CPU.
func quick() bool { return fakecuda.Loaded() && !testkit.Long() }

// A device is where tests run.
type device struct {
	open     func(t testing.TB, opts ...cupool.EngineOption) (*cupool.Engine, *meter)
	options  []gorgoniavm.Option // of its VMs
	exact    bool                // it computes as Gorgonia does, to the bit
	computes bool                // it has kernels, and leaves nothing to Gorgonia
	records  bool                // VMs record their runs
}

// devices are all that tests run on.
var devices = map[string]device{
	"near":           {open: newMeter, exact: true},
	"far":            {open: newFarMeter},
	"cuda":           {open: newGPUMeter, computes: true},
	"cuda, recorded": {open: newRecordingMeter, options: []gorgoniavm.Option{gorgoniavm.Replay()}, computes: true, records: true},
}

// everywhere runs a test on each device, and skips those that are not there.
func everywhere(t *testing.T, f func(t *testing.T, d device)) {
	t.Helper()
	for _, name := range slices.Sorted(maps.Keys(devices)) {
		t.Run(name, func(t *testing.T) {
			d := devices[name]
			if d.computes {
				gputest.Need(t)
			}
			f(t, d)
		})
	}
}

// failures are the allocations that fail in a test, one in each run: all of them, or
// where runs are slow some, at random, ever fewer of them.
func (d device) failures(t *testing.T) iter.Seq[int] {
	few, r := d.computes && quick(), testkit.Rand(t)
	return func(yield func(int) bool) {
		for n := 1; yield(n); n++ {
			if few {
				n += r.IntN(1 + n/2)
			}
		}
	}
}

// vm returns a machine of the device's.
func (d device) vm(t testing.TB, g *G.ExprGraph, e *cupool.Engine, opts ...gorgoniavm.Option) *gorgoniavm.VM {
	t.Helper()
	vm, err := gorgoniavm.New(g, e, slices.Concat(d.options, opts)...)
	require.NoError(t, err)
	return vm
}

// bound is vm for a model, whose gradients are bound. It is closed at the end of the test.
func (d device) bound(t testing.TB, m *model, e *cupool.Engine) *gorgoniavm.VM {
	t.Helper()
	return open(t, m, e, d.options...)
}

// meter is an allocator that counts bytes as requested, fails when it is told
// to, and fills memory with 0xFF, a NaN in every float type, when it is handed
// out and when it is taken back.
type meter struct {
	*cupool.Pool

	mu                sync.Mutex
	live, peak, total int64
	failIn            int  // allocations until one fails; 0: none does
	full              bool // all allocations fail, from the one on that failIn says
	plain             bool // without the filling, which waits for the device
}

func (m *meter) Alloc(n int64, s *cupool.Stream) (cupool.Block, error) {
	if m.fails() && n > 0 {
		return cupool.Block{}, &cupool.OOMError{Requested: n, Hint: "this is a test"}
	}
	b, err := m.Pool.Alloc(n, s)
	if err != nil || b.IsEmpty() {
		return b, err
	}
	m.mu.Lock()
	m.live += n
	m.total += n
	m.peak = max(m.peak, m.live)
	m.mu.Unlock()
	return b, m.poison(b)
}

func (m *meter) fails() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.failIn == 0 {
		return false
	}
	m.failIn--
	fails := m.failIn == 0
	if fails && m.full {
		m.failIn = 1
	}
	return fails
}

func (m *meter) Free(b cupool.Block) error {
	if now, err := m.Lookup(b.Ptr()); err == nil && now == b && !b.IsEmpty() {
		if err := m.poison(b); err != nil {
			return err
		}
		m.mu.Lock()
		m.live -= b.Size()
		m.mu.Unlock()
	}
	return m.Pool.Free(b)
}

func (m *meter) FreePtr(p cupool.Ptr, n int64) error {
	b, err := m.Lookup(p)
	if err != nil || b.Ptr() != p || b.Size() != n {
		return m.Pool.FreePtr(p, n)
	}
	return m.Free(b)
}

// poison fills a block in the order of its stream.
func (m *meter) poison(b cupool.Block) error {
	if m.plain {
		return nil
	}
	s := m.StreamOf(b)
	return errors.Join(s.Memset(b.Ptr(), 0xFF, b.Size()), s.Sync())
}

// newMeter returns an engine on the host device, whose memory is poisoned. At the
// end of the test nothing may be live.
func newMeter(t testing.TB, opts ...cupool.EngineOption) (*cupool.Engine, *meter) {
	t.Helper()
	return newMeterOn(t, nil, opts...)
}

// newMeterOn is newMeter for any device.
func newMeterOn(t testing.TB, d cupool.Driver, opts ...cupool.EngineOption) (*cupool.Engine, *meter) {
	t.Helper()
	a, err := cupool.New(cupool.Config{Driver: d})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, a.Close(), "leaks") })
	m := &meter{Pool: a}
	e, err := cupool.NewEngine(m, opts...)
	require.NoError(t, err)
	return e, m
}

// newFarMeter is newMeter on a device whose memory the CPU cannot touch.
func newFarMeter(t testing.TB, opts ...cupool.EngineOption) (*cupool.Engine, *meter) {
	t.Helper()
	d, err := cupool.OpenHost(cupool.HostConfig{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	return newMeterOn(t, pooltest.Far{Driver: d}, opts...)
}

// newGPUMeter is newMeter on a GPU with kernels.
func newGPUMeter(t testing.TB, opts ...cupool.EngineOption) (*cupool.Engine, *meter) {
	t.Helper()
	d, err := cuda.Open(0)
	gputest.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	e, m := newMeterOn(t, d, opts...)
	enginetest.NeedKernels(t, e)
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
