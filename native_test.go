package cupool_test

import (
	"errors"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"gorgonia.org/tensor"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/conformance"
	"github.com/cupool/cupool/internal/simdev"
)

// newNative opens a Native over a device, and closes all at the end.
func newNative(t *testing.T, d cupool.Driver, cfg cupool.NativeConfig, change ...func(*cupool.Config)) (*cupool.Native, *cupool.Caching) {
	t.Helper()
	c := cupool.Config{Driver: d}
	for _, f := range change {
		f(&c)
	}
	base, err := cupool.New(c)
	require.NoError(t, err)
	n, err := cupool.NewNative(base, cfg)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, ignore(n.Close(), cupool.ErrClosed))
		require.NoError(t, ignore(base.Close(), cupool.ErrClosed))
		require.NoError(t, d.Close())
	})
	return n, base
}

// natives are what the tests of the interface run with.
var natives = map[string]cupool.NativeConfig{
	"default":    {},
	"own":        {Pool: &cupool.NativePoolConfig{}},
	"keeps_none": {Pool: &cupool.NativePoolConfig{MaxSize: 4 << 30}, ReleaseThreshold: -1},
}

func TestConformanceNative(t *testing.T) {
	for name, cfg := range natives {
		t.Run("host/"+name, func(t *testing.T) {
			conformance.RunAllocator(t, func(t *testing.T) cupool.Allocator {
				n, _ := newNative(t, openHost(t), cfg)
				return n
			})
		})
	}
}

// TestConformanceAllocator runs the battery for any allocator on those that the
// whole one is for.
func TestConformanceAllocator(t *testing.T) {
	for _, private := range []bool{false, true} {
		conformance.RunAllocator(t, func(t *testing.T) cupool.Allocator {
			d := openHost(t)
			c, err := cupool.New(cupool.Config{Driver: d})
			require.NoError(t, err)
			t.Cleanup(func() {
				require.NoError(t, c.Close())
				require.NoError(t, d.Close())
			})
			if private {
				return newPrivate(t, c, cupool.PoolConfig{})
			}
			return c
		})
	}
}

func TestNativeConfigErrors(t *testing.T) {
	_, err := cupool.NewNative(nil, cupool.NativeConfig{})
	require.ErrorIs(t, err, cupool.ErrInvalidConfig)
	_, c := newNative(t, openHost(t), cupool.NativeConfig{})
	var e *cupool.ConfigError
	_, err = cupool.NewNative(c, cupool.NativeConfig{Pool: &cupool.NativePoolConfig{MaxSize: -1}})
	require.ErrorAs(t, err, &e)
	require.Equal(t, "Pool.MaxSize", e.Field)
	_, err = cupool.NewNative(c, cupool.NativeConfig{Pool: &cupool.NativePoolConfig{Location: cupool.Location{Kind: cupool.OnNUMA, ID: 77}}})
	require.ErrorIs(t, err, cupool.ErrNotSupported)

	sim := simdev.New(simdev.Config{})
	without, err := cupool.New(cupool.Config{Driver: sim})
	require.NoError(t, err)
	_, err = cupool.NewNative(without, cupool.NativeConfig{})
	require.ErrorIs(t, err, cupool.ErrNotSupported)
	require.ErrorContains(t, err, "sim: the device has no stream-ordered pools")
	require.NoError(t, without.Close())
	_, err = cupool.NewNative(without, cupool.NativeConfig{})
	require.ErrorIs(t, err, cupool.ErrClosed)
}

func attribute(t *testing.T, n *cupool.Native, a cupool.NativePoolAttribute) uint64 {
	t.Helper()
	v, err := n.Attribute(a)
	require.NoError(t, err)
	return v
}

func TestNativeAttributes(t *testing.T) {
	n, _ := newNative(t, openHost(t), cupool.NativeConfig{Pool: &cupool.NativePoolConfig{}})
	testNativeAttributes(t, n)
}

// testNativeAttributes reads and sets every attribute of a new pool that keeps
// everything.
func testNativeAttributes(t *testing.T, n *cupool.Native) {
	for _, a := range []cupool.NativePoolAttribute{cupool.PoolReuseFollowEvents, cupool.PoolReuseOpportunistic, cupool.PoolReuseInternalDependency} {
		require.EqualValues(t, 1, attribute(t, n, a))
		require.NoError(t, n.SetAttribute(a, 0))
		require.Zero(t, attribute(t, n, a))
		require.NoError(t, n.SetAttribute(a, 1))
	}
	require.EqualValues(t, uint64(math.MaxUint64), attribute(t, n, cupool.PoolReleaseThreshold))

	const size = 64 << 20
	b, err := n.Alloc(size, nil)
	require.NoError(t, err)
	st, err := n.Stats()
	require.NoError(t, err)
	require.Equal(t, cupool.NativeStats{
		LiveBlocks: 1, LiveBytes: size, PeakBytes: size, Allocations: 1,
		Used: size, UsedHigh: size, Reserved: st.Reserved, ReservedHigh: st.Reserved,
	}, st)
	require.GreaterOrEqual(t, st.Reserved, int64(size))
	require.NoError(t, n.Free(b))
	require.NoError(t, n.DefaultStream().Sync())
	require.Zero(t, attribute(t, n, cupool.PoolUsedCurrent))
	require.EqualValues(t, st.Reserved, attribute(t, n, cupool.PoolReservedCurrent), "kept")

	require.NoError(t, n.TrimTo(0))
	require.Zero(t, attribute(t, n, cupool.PoolReservedCurrent))
	require.NoError(t, n.ResetPeak())
	require.Zero(t, attribute(t, n, cupool.PoolReservedHigh))
	require.Zero(t, attribute(t, n, cupool.PoolUsedHigh))
	st, err = n.Stats()
	require.NoError(t, err)
	require.Equal(t, cupool.NativeStats{Allocations: 1, Frees: 1}, st)

	require.NoError(t, n.SetAttribute(cupool.PoolReleaseThreshold, 0))
	b, err = n.Alloc(size, nil)
	require.NoError(t, err)
	require.NoError(t, n.Free(b))
	require.NoError(t, n.DefaultStream().Sync())
	require.Zero(t, attribute(t, n, cupool.PoolReservedCurrent), "gone with the synchronization")

	for _, a := range []cupool.NativePoolAttribute{cupool.PoolReservedCurrent, cupool.PoolUsedCurrent, 99} {
		require.Error(t, n.SetAttribute(a, 0))
	}
	require.Error(t, n.SetAttribute(cupool.PoolUsedHigh, 1))
	require.ErrorIs(t, n.TrimTo(-1), cupool.ErrInvalidSize)
	access, err := n.Access(0)
	require.NoError(t, err)
	require.Equal(t, cupool.ReadWriteAccess, access)
	require.NoError(t, n.SetAccess(0, cupool.ReadWriteAccess))
	require.Error(t, n.SetAccess(0, cupool.NoAccess), "its own device always has access")
	require.Error(t, n.SetAccess(77, cupool.ReadWriteAccess))
	require.NotZero(t, n.Pool())
}

// TestNativeDefaultPool: the pool that others use too is left as it was.
func TestNativeDefaultPool(t *testing.T) {
	d := openHost(t)
	pools := d.(cupool.NativePools)
	n, _ := newNative(t, d, cupool.NativeConfig{ReleaseThreshold: 1 << 20})
	def, err := pools.DefaultNativePool()
	require.NoError(t, err)
	require.Equal(t, def, n.Pool())
	require.EqualValues(t, 1<<20, attribute(t, n, cupool.PoolReleaseThreshold))
	require.NoError(t, n.Close())
	after, err := pools.NativePoolAttribute(def, cupool.PoolReleaseThreshold)
	require.NoError(t, err)
	require.Zero(t, after)
}

// TestNativeOOM: what others cache makes room, and the program is asked.
func TestNativeOOM(t *testing.T) {
	d, err := cupool.OpenHost(cupool.HostConfig{Capacity: 256 << 20})
	require.NoError(t, err)
	asked := int64(0)
	var help func()
	n, c := newNative(t, d, cupool.NativeConfig{}, func(cfg *cupool.Config) {
		cfg.OnOutOfMemory = func(size int64) bool {
			asked = size
			if help == nil {
				return false
			}
			help()
			return true
		}
	})
	p := newPrivate(t, c, cupool.PoolConfig{})
	for _, a := range []*cupool.Caching{c, p} {
		allocateAndFree(t, a, 100<<20)
	}
	b, err := n.Alloc(200<<20, nil)
	require.NoError(t, err, "after the caches were emptied")
	st, err := n.Stats()
	require.NoError(t, err)
	require.EqualValues(t, 1, st.Retries)
	require.Zero(t, asked)

	_, err = n.Alloc(100<<20, nil)
	var oom *cupool.OOMError
	require.ErrorAs(t, err, &oom)
	require.EqualValues(t, 100<<20, asked)
	require.EqualValues(t, 200<<20, oom.Live)
	require.Equal(t, "free at least 44 MiB of the 200 MiB that the program holds", oom.Hint)
	help = func() { require.NoError(t, n.Free(b)) }
	b, err = n.Alloc(100<<20, nil)
	require.NoError(t, err)
	require.NoError(t, n.Free(b))
	st, err = n.Stats()
	require.NoError(t, err)
	require.EqualValues(t, 1, st.OOMs)
}

// TestNativeMaxSize: the pool's own limit.
func TestNativeMaxSize(t *testing.T) {
	n, _ := newNative(t, openHost(t), cupool.NativeConfig{Pool: &cupool.NativePoolConfig{MaxSize: 64 << 20}})
	b, err := n.Alloc(40<<20, nil)
	require.NoError(t, err)
	_, err = n.Alloc(40<<20, nil)
	var oom *cupool.OOMError
	require.ErrorAs(t, err, &oom)
	require.EqualValues(t, 64<<20, oom.Limit)
	require.NoError(t, n.Free(b))
	b, err = n.Alloc(60<<20, nil)
	require.NoError(t, err)
	require.NoError(t, n.Free(b))
}

func TestNativeClose(t *testing.T) {
	d := openHost(t)
	n, c := newNative(t, d, cupool.NativeConfig{Pool: &cupool.NativePoolConfig{}}, func(cfg *cupool.Config) { cfg.RecordStacks = true })
	s, err := n.NewStream()
	require.NoError(t, err)
	x, y := must(n.Alloc(5000, nil)), must(n.Alloc(7000, s))
	require.NoError(t, n.RecordStream(x, s))
	require.NoError(t, s.Close())
	var leak *cupool.LeakError
	require.ErrorAs(t, n.Close(), &leak)
	require.EqualValues(t, 12_000, leak.Bytes)
	require.Contains(t, leak.Leaks[0].Stack, "TestNativeClose")
	for _, err := range []error{
		n.Close(), n.Free(x), n.FreePtr(y.Ptr(), -1), n.RecordStream(y, nil), n.TrimTo(0), n.SetAccess(0, 3), n.ResetPeak(),
		second(n.Alloc(1, nil)), second(n.Lookup(x.Ptr())), second(n.NewStream()), second(n.Stats()), second(n.Access(0)), second(n.Export()),
	} {
		require.ErrorIs(t, err, cupool.ErrClosed)
	}
	free, total, err := d.MemInfo()
	require.NoError(t, err)
	require.Equal(t, total, free, "all is given back")
	_, err = c.Alloc(1, nil)
	require.NoError(t, err)
	require.Error(t, c.Close(), "that leaks")
	_, err = cupool.NewNative(c, cupool.NativeConfig{})
	require.ErrorIs(t, err, cupool.ErrClosed)
	c2, err := cupool.New(cupool.Config{Driver: d})
	require.NoError(t, err)
	late, err := cupool.NewNative(c2, cupool.NativeConfig{})
	require.NoError(t, err)
	z := must(late.Alloc(1, nil))
	require.NoError(t, c2.Close())
	require.ErrorIs(t, late.Free(z), cupool.ErrClosed)
	require.ErrorAs(t, late.Close(), &leak, "in the wrong order, but without harm")
}

// brokenPools is a device whose pools fail on demand.
type brokenPools struct {
	cupool.Driver
	cupool.NativePools
	alloc, free, record, wait error
}

func (d *brokenPools) AllocAsync(size int64, p cupool.NativePool, s cupool.StreamHandle) (cupool.Ptr, error) {
	if d.alloc != nil {
		return 0, d.alloc
	}
	return d.NativePools.AllocAsync(size, p, s)
}

func (d *brokenPools) FreeAsync(p cupool.Ptr, s cupool.StreamHandle) error {
	if d.free != nil {
		return d.free
	}
	return d.NativePools.FreeAsync(p, s)
}

func (d *brokenPools) RecordEvent(e cupool.EventHandle, s cupool.StreamHandle) error {
	if d.record != nil {
		return d.record
	}
	return d.Driver.RecordEvent(e, s)
}

func (d *brokenPools) StreamWaitEvent(s cupool.StreamHandle, e cupool.EventHandle) error {
	if d.wait != nil {
		return d.wait
	}
	return d.Driver.StreamWaitEvent(s, e)
}

// TestNativeFailures: a call that fails leaves everything as it was.
func TestNativeFailures(t *testing.T) {
	host := openHost(t)
	d := &brokenPools{Driver: host, NativePools: host.(cupool.NativePools)}
	n, _ := newNative(t, d, cupool.NativeConfig{})
	s, err := n.NewStream()
	require.NoError(t, err)
	injected := errors.New("injected")
	for name, fault := range map[string]*error{"alloc": &d.alloc, "free": &d.free, "record": &d.record, "wait": &d.wait} {
		t.Run(name, func(t *testing.T) {
			if name == "alloc" {
				*fault = injected
				_, err := n.Alloc(5000, nil)
				require.ErrorIs(t, err, injected)
				require.NotErrorIs(t, err, cupool.ErrOutOfMemory)
				*fault = nil
			}
			b := must(n.Alloc(5000, nil))
			require.NoError(t, n.RecordStream(b, s))
			require.NoError(t, s.Memset(b.Ptr(), 1, 5000))
			if name != "alloc" {
				*fault = injected
				require.ErrorIs(t, n.Free(b), injected)
				require.ErrorIs(t, n.FreePtr(b.Ptr(), 5000), injected)
				got, err := n.Lookup(b.Ptr())
				require.NoError(t, err)
				require.Equal(t, b, got, "it is live")
			}
			*fault = nil
			require.NoError(t, n.Free(b))
			require.ErrorIs(t, n.Free(b), cupool.ErrDoubleFree)
		})
	}
	st, err := n.Stats()
	require.NoError(t, err)
	require.Zero(t, st.LiveBlocks)
	require.Equal(t, st.Allocations, st.Frees)
}

// TestNativeEngine has tensors in the driver's pool.
func TestNativeEngine(t *testing.T) {
	n, _ := newNative(t, openHost(t), cupool.NativeConfig{})
	e, err := cupool.NewEngine(n)
	require.NoError(t, err)
	sc := e.Scope()
	x := tensor.New(tensor.Of(tensor.Float32), tensor.WithShape(3, 4), tensor.WithEngine(e))
	require.NoError(t, x.Memset(float32(2)))
	y, err := tensor.Mul(x, x)
	require.NoError(t, err)
	require.True(t, e.Owns(y))
	h, err := e.ToHost(y)
	require.NoError(t, err)
	require.Equal(t, float32(4), h.Data().([]float32)[11])
	require.NoError(t, sc.Close())
	st, err := n.Stats()
	require.NoError(t, err)
	require.Zero(t, st.LiveBlocks)
}

// TestNativeEngineScopeIn: the engine's allocator does not know the pool.
func TestNativeEngineScopeIn(t *testing.T) {
	n, c := newNative(t, openHost(t), cupool.NativeConfig{})
	p := newPrivate(t, c, cupool.PoolConfig{})
	e, err := cupool.NewEngine(n)
	require.NoError(t, err)
	x := tensor.New(tensor.Of(tensor.Float32), tensor.WithShape(3, 4), tensor.WithEngine(e))
	sc, err := e.ScopeIn(p)
	require.NoError(t, err)
	y, err := tensor.Add(x, x)
	require.NoError(t, err)
	z, err := tensor.Add(y, y)
	require.NoError(t, err)
	require.True(t, e.Owns(y))
	require.EqualValues(t, 2, p.Stats().All.Allocation.Current)
	require.NoError(t, sc.Keep(z))
	require.NoError(t, sc.Close())
	require.EqualValues(t, 1, p.Stats().All.Allocation.Current)
	require.NoError(t, e.FreeTensor(x, z))
	require.Zero(t, p.Stats().All.Allocation.Current)
	require.ErrorIs(t, e.FreeTensor(tensor.New(tensor.WithBacking([]float32{1}))), cupool.ErrForeignPointer)
}
