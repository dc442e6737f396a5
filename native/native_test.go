package native_test

import (
	"errors"
	"math"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
	"gorgonia.org/tensor"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/adaptor"
	"github.com/cupool/cupool/cuda"
	"github.com/cupool/cupool/internal/conformance"
	"github.com/cupool/cupool/internal/fakecuda"
	"github.com/cupool/cupool/internal/simdev"
	"github.com/cupool/cupool/internal/testkit"
	"github.com/cupool/cupool/internal/testkit/gputest"
	"github.com/cupool/cupool/internal/testkit/handletest"
	"github.com/cupool/cupool/internal/testkit/pooltest"
	"github.com/cupool/cupool/native"
)

// newNative opens a Native over a device, and closes all at the end.
func newNative(t *testing.T, d cupool.Driver, cfg native.Config, change ...func(*cupool.Config)) (*native.Allocator, *cupool.Pool) {
	t.Helper()
	c := cupool.Config{Driver: d}
	for _, f := range change {
		f(&c)
	}
	base, err := cupool.New(c)
	require.NoError(t, err)
	n, err := native.New(base, cfg)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, pooltest.Ignore(n.Close(), cupool.ErrClosed))
		require.NoError(t, pooltest.Ignore(base.Close(), cupool.ErrClosed))
		require.NoError(t, d.Close())
	})
	return n, base
}

// natives are what the tests of the interface run with.
var natives = map[string]native.Config{
	"default":    {},
	"own":        {Pool: &cuda.NativePoolConfig{}},
	"keeps_none": {Pool: &cuda.NativePoolConfig{MaxSize: 4 << 30}, ReleaseThreshold: -1},
}

// devices are what has pools of its own.
var devices = map[string]func(*testing.T) cupool.Driver{"host": pooltest.OpenHost, "cuda": openFirstGPU}

// each runs a test with every device.
func each(t *testing.T, f func(t *testing.T, open func(*testing.T) cupool.Driver)) {
	for name, open := range devices {
		t.Run(name, func(t *testing.T) { f(t, open) })
	}
}

func openFirstGPU(t *testing.T) cupool.Driver {
	gputest.Need(t)
	d, err := cuda.Open(0)
	require.NoError(t, err)
	return d
}

// newHolder returns conformance.Options.Busy for the first GPU. Its kernels are
// loaded before anything is held.
func newHolder(t *testing.T) func(cupool.Driver, *cupool.Stream) (release func(), err error) {
	gputest.Need(t)
	d, err := cuda.Open(0)
	require.NoError(t, err)
	k, err := gputest.Load(d.Context())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, errors.Join(k.Close(), d.Close())) })
	return func(_ cupool.Driver, s *cupool.Stream) (release func(), err error) {
		return k.Busy(uintptr(s.Handle()))
	}
}

// TestConformance runs the battery for any allocator.
func TestConformance(t *testing.T) {
	for device, open := range devices {
		for name, cfg := range natives {
			t.Run(device+"/"+name, func(t *testing.T) {
				var opt conformance.Options
				if device == "cuda" {
					opt.Busy = newHolder(t)
				}
				conformance.RunAllocator(t, func(t *testing.T) cupool.Allocator {
					n, _ := newNative(t, open(t), cfg)
					return n
				}, opt)
			})
		}
	}
}

func TestConfigErrors(t *testing.T) {
	_, err := native.New(nil, native.Config{})
	require.ErrorIs(t, err, cupool.ErrInvalidConfig)
	_, c := newNative(t, pooltest.OpenHost(t), native.Config{})
	var e *cupool.ConfigError
	_, err = native.New(c, native.Config{Pool: &cuda.NativePoolConfig{MaxSize: -1}})
	require.ErrorAs(t, err, &e)
	require.Equal(t, "Pool.MaxSize", e.Field)
	_, err = native.New(c, native.Config{Pool: &cuda.NativePoolConfig{Location: cuda.Location{Kind: cuda.OnNUMA, ID: 77}}})
	require.ErrorIs(t, err, cupool.ErrNotSupported)
	_, err = native.New(c, native.Config{Pool: &cuda.NativePoolConfig{Win32: true}})
	require.ErrorIs(t, err, cupool.ErrNotSupported)

	sim := simdev.New(simdev.Config{})
	without, err := cupool.New(cupool.Config{Driver: sim})
	require.NoError(t, err)
	_, err = native.New(without, native.Config{})
	require.ErrorIs(t, err, cupool.ErrNotSupported)
	require.ErrorContains(t, err, "sim: the device has no stream-ordered pools")
	require.NoError(t, without.Close())
	_, err = native.New(without, native.Config{})
	require.ErrorIs(t, err, cupool.ErrClosed)
}

func attribute(t *testing.T, n *native.Allocator, a cuda.NativePoolAttribute) uint64 {
	t.Helper()
	v, err := n.Attribute(a)
	require.NoError(t, err)
	return v
}

// TestAttributes reads and sets every attribute of a new pool that keeps everything.
func TestAttributes(t *testing.T) {
	each(t, func(t *testing.T, open func(*testing.T) cupool.Driver) {
		n, _ := newNative(t, open(t), native.Config{Pool: &cuda.NativePoolConfig{}})
		testAttributes(t, n)
	})
}

func testAttributes(t *testing.T, n *native.Allocator) {
	for _, a := range []cuda.NativePoolAttribute{cuda.PoolReuseFollowEvents, cuda.PoolReuseOpportunistic, cuda.PoolReuseInternalDependency} {
		require.EqualValues(t, 1, attribute(t, n, a))
		require.NoError(t, n.SetAttribute(a, 0))
		require.Zero(t, attribute(t, n, a))
		require.NoError(t, n.SetAttribute(a, 1))
	}
	require.EqualValues(t, uint64(math.MaxUint64), attribute(t, n, cuda.PoolReleaseThreshold))

	const size = 64 << 20
	b, err := n.Alloc(size, nil)
	require.NoError(t, err)
	st, err := n.Stats()
	require.NoError(t, err)
	require.Equal(t, native.Stats{
		LiveBlocks: 1, LiveBytes: size, PeakBytes: size, Allocations: 1,
		Used: size, UsedHigh: size, Reserved: st.Reserved, ReservedHigh: st.Reserved,
	}, st)
	require.GreaterOrEqual(t, st.Reserved, int64(size))
	require.NoError(t, n.Free(b))
	require.NoError(t, n.DefaultStream().Sync())
	require.Zero(t, attribute(t, n, cuda.PoolUsedCurrent))
	require.EqualValues(t, st.Reserved, attribute(t, n, cuda.PoolReservedCurrent), "kept")

	require.NoError(t, n.TrimTo(0))
	require.Zero(t, attribute(t, n, cuda.PoolReservedCurrent))
	require.NoError(t, n.ResetPeak())
	require.Zero(t, attribute(t, n, cuda.PoolReservedHigh))
	require.Zero(t, attribute(t, n, cuda.PoolUsedHigh))
	st, err = n.Stats()
	require.NoError(t, err)
	require.Equal(t, native.Stats{Allocations: 1, Frees: 1}, st)

	require.NoError(t, n.SetAttribute(cuda.PoolReleaseThreshold, 0))
	b, err = n.Alloc(size, nil)
	require.NoError(t, err)
	require.NoError(t, n.Free(b))
	require.NoError(t, n.DefaultStream().Sync())
	require.Zero(t, attribute(t, n, cuda.PoolReservedCurrent), "gone with the synchronization")

	for _, a := range []cuda.NativePoolAttribute{cuda.PoolReservedCurrent, cuda.PoolUsedCurrent, 99} {
		require.Error(t, n.SetAttribute(a, 0))
	}
	require.Error(t, n.SetAttribute(cuda.PoolUsedHigh, 1))
	var e *cupool.BlockError
	require.ErrorAs(t, n.TrimTo(-1), &e)
	require.ErrorIs(t, e, cupool.ErrInvalidSize)
	require.EqualValues(t, -1, e.Size, "of no block")
	require.ErrorIs(t, n.FreePtr(0, 1), cupool.ErrForeignPointer)
	access, err := n.Access(0)
	require.NoError(t, err)
	require.Equal(t, cuda.ReadWriteAccess, access)
	require.NoError(t, n.SetAccess(0, cuda.ReadWriteAccess))
	require.Error(t, n.SetAccess(0, cuda.NoAccess), "its own device always has access")
	require.Error(t, n.SetAccess(77, cuda.ReadWriteAccess))
	require.NotZero(t, n.Pool())
}

// TestDefaultPool: the pool that others use too is left as it was.
func TestDefaultPool(t *testing.T) {
	d := pooltest.OpenHost(t)
	pools := d.(cuda.NativePools)
	n, _ := newNative(t, d, native.Config{ReleaseThreshold: 1 << 20})
	def, err := pools.DefaultNativePool()
	require.NoError(t, err)
	require.Equal(t, def, n.Pool())
	require.EqualValues(t, 1<<20, attribute(t, n, cuda.PoolReleaseThreshold))
	require.NoError(t, n.Close())
	after, err := pools.NativePoolAttribute(def, cuda.PoolReleaseThreshold)
	require.NoError(t, err)
	require.Zero(t, after)
}

// TestOOM: what others cache makes room, and the program is asked.
func TestOOM(t *testing.T) {
	d, err := cupool.OpenHost(cupool.HostConfig{Capacity: 256 << 20})
	require.NoError(t, err)
	asked := int64(0)
	var help func()
	n, c := newNative(t, d, native.Config{}, func(cfg *cupool.Config) {
		cfg.OnOutOfMemory = func(size int64) bool {
			asked = size
			if help == nil {
				return false
			}
			help()
			return true
		}
	})
	p := pooltest.NewPrivate(t, c, cupool.PoolConfig{})
	for _, a := range []*cupool.Pool{c, p} {
		require.NoError(t, a.Free(testkit.Must(a.Alloc(100<<20, nil))))
	}
	b, err := n.Alloc(200<<20, nil)
	require.NoError(t, err, "after the caches were emptied")
	st, err := n.Stats()
	require.NoError(t, err)
	require.EqualValues(t, 1, st.Retries)
	require.Zero(t, asked)

	_, err = n.Alloc(100<<20-1, nil)
	var oom *cupool.OOMError
	require.ErrorAs(t, err, &oom)
	require.EqualValues(t, 100<<20-1, asked, "as the program asked")
	require.EqualValues(t, 200<<20, oom.Live)
	require.Equal(t, "free at least 44 MiB of the 200 MiB that the program holds", oom.Hint)
	help = func() { require.NoError(t, n.Free(b)) }
	b, err = n.Alloc(100<<20, nil)
	require.NoError(t, err)
	require.NoError(t, n.Free(b))
	st, err = n.Stats()
	require.NoError(t, err)
	require.EqualValues(t, 1, st.OOMs)
	require.EqualValues(t, 2, st.Retries)
}

// TestMaxSize: the pool's own limit.
func TestMaxSize(t *testing.T) {
	n, c := newNative(t, pooltest.OpenHost(t), native.Config{Pool: &cuda.NativePoolConfig{MaxSize: 64 << 20}})
	held := testkit.Must(c.Alloc(20<<20, nil))
	b, err := n.Alloc(40<<20, nil)
	require.NoError(t, err)
	_, err = n.Alloc(40<<20, nil)
	var oom *cupool.OOMError
	require.ErrorAs(t, err, &oom)
	require.EqualValues(t, 64<<20, oom.Limit)
	require.Equal(t, "limit", oom.Reason)
	require.Equal(t, held.Size(), oom.OtherPools)
	require.NoError(t, c.Free(held))
	require.NoError(t, n.Free(b))
	b, err = n.Alloc(60<<20, nil)
	require.NoError(t, err)
	require.NoError(t, n.Free(b))
}

func TestClose(t *testing.T) {
	d := pooltest.OpenHost(t)
	n, c := newNative(t, d, native.Config{Pool: &cuda.NativePoolConfig{}}, func(cfg *cupool.Config) { cfg.History = &cupool.History{SampleBytes: 1} })
	s, err := n.NewStream()
	require.NoError(t, err)
	x, y := testkit.Must(n.Alloc(5000, nil)), testkit.Must(n.Alloc(7000, s))
	require.NoError(t, n.RecordStream(x, s))
	require.NoError(t, s.Close())
	var leak *cupool.LeakError
	require.ErrorAs(t, n.Close(), &leak)
	require.EqualValues(t, 12_000, leak.Bytes)
	require.Contains(t, leak.Leaks[0].Stack, "TestClose")
	for _, err := range []error{
		n.Close(), n.Free(x), n.FreePtr(y.Ptr(), -1), n.RecordStream(y, nil), n.TrimTo(0), n.SetAccess(0, 3), n.ResetPeak(),
		testkit.Second(n.Alloc(1, nil)), testkit.Second(n.Alloc(0, nil)), testkit.Second(n.Lookup(x.Ptr())), testkit.Second(n.NewStream()), testkit.Second(n.Stats()), testkit.Second(n.Access(0)), testkit.Second(n.Export()),
	} {
		require.ErrorIs(t, err, cupool.ErrClosed)
	}
	free, total, err := d.MemInfo()
	require.NoError(t, err)
	require.Equal(t, total, free, "all is given back")
	_, err = c.Alloc(1, nil)
	require.NoError(t, err)
	require.Error(t, c.Close(), "that leaks")
	_, err = native.New(c, native.Config{})
	require.ErrorIs(t, err, cupool.ErrClosed)
	c2, err := cupool.New(cupool.Config{Driver: d})
	require.NoError(t, err)
	late, err := native.New(c2, native.Config{})
	require.NoError(t, err)
	z := testkit.Must(late.Alloc(1, nil))
	require.NoError(t, c2.Close())
	require.ErrorIs(t, late.Free(z), cupool.ErrClosed)
	require.ErrorIs(t, late.TrimTo(0), cupool.ErrClosed)
	require.ErrorAs(t, late.Close(), &leak, "in the wrong order, but without harm")
}

// brokenPools is a device whose pools fail on demand.
type brokenPools struct {
	cupool.Driver
	cuda.NativePools
	alloc, free, record, wait, trim, set, export, stream, info error
	allocated, streaming                                       func()
	pools, streams                                             int // that were made and not destroyed
}

func (d *brokenPools) NewNativePool(cfg cuda.NativePoolConfig) (cuda.NativePool, error) {
	d.pools++
	return d.NativePools.NewNativePool(cfg)
}

func (d *brokenPools) DestroyNativePool(p cuda.NativePool) error {
	d.pools--
	return d.NativePools.DestroyNativePool(p)
}

func (d *brokenPools) SetNativePoolAttribute(p cuda.NativePool, a cuda.NativePoolAttribute, v uint64) error {
	if d.set != nil {
		return d.set
	}
	return d.NativePools.SetNativePoolAttribute(p, a, v)
}

func (d *brokenPools) ExportNativePool(p cuda.NativePool) (int, error) {
	if d.export != nil {
		return -1, d.export
	}
	return d.NativePools.ExportNativePool(p)
}

func (d *brokenPools) NewStream() (cupool.StreamHandle, error) {
	if d.stream != nil {
		return 0, d.stream
	}
	if d.streaming != nil {
		d.streaming()
	}
	d.streams++
	return d.Driver.NewStream()
}

func (d *brokenPools) DestroyStream(s cupool.StreamHandle) error {
	d.streams--
	return d.Driver.DestroyStream(s)
}

func (d *brokenPools) MemInfo() (free, total int64, err error) {
	if d.info != nil {
		return 0, 0, d.info
	}
	return d.Driver.MemInfo()
}

func (d *brokenPools) AllocAsync(size int64, p cuda.NativePool, s cupool.StreamHandle) (cupool.Ptr, error) {
	if d.allocated != nil {
		defer d.allocated()
	}
	if d.alloc != nil {
		return 0, d.alloc
	}
	return d.NativePools.AllocAsync(size, p, s)
}

func (d *brokenPools) TrimNativePool(p cuda.NativePool, keep int64) error {
	if d.trim != nil {
		return d.trim
	}
	return d.NativePools.TrimNativePool(p, keep)
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

// TestFailures: a call that fails leaves everything as it was.
func TestFailures(t *testing.T) {
	host := pooltest.OpenHost(t)
	d := &brokenPools{Driver: host, NativePools: host.(cuda.NativePools)}
	n, _ := newNative(t, d, native.Config{})
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
			b := testkit.Must(n.Alloc(5000, nil))
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

// TestLostMakingRoom: an allocation fails with what a device says that is lost meanwhile.
func TestLostMakingRoom(t *testing.T) {
	host := pooltest.OpenHost(t)
	d := &brokenPools{Driver: host, NativePools: host.(cuda.NativePools)}
	n, _ := newNative(t, d, native.Config{})
	d.alloc, d.trim = cupool.ErrOutOfMemory, cupool.ErrDeviceLost
	_, err := n.Alloc(5000, nil)
	require.ErrorIs(t, err, cupool.ErrDeviceLost)
	require.NotErrorIs(t, err, cupool.ErrOutOfMemory)
	d.trim = nil
	require.ErrorIs(t, n.TrimTo(0), cupool.ErrDeviceLost)
}

// TestNotMade: what New and Export have made before they fail goes back.
func TestNotMade(t *testing.T) {
	host := pooltest.OpenHost(t)
	d := &brokenPools{Driver: host, NativePools: host.(cuda.NativePools)}
	n, c := newNative(t, d, native.Config{Pool: &cuda.NativePoolConfig{Shareable: true}})
	d.set, d.export = errors.New("not set"), errors.New("not exported")
	for _, p := range []*cuda.NativePoolConfig{nil, {}} {
		require.EqualError(t, testkit.Second(native.New(c, native.Config{Pool: p})), "cupool: native allocator on "+d.Name()+": not set")
	}
	require.Equal(t, 1, d.pools)
	require.ErrorIs(t, testkit.Second(n.Export()), d.export)
	d.set = nil
}

// TestCloseEndsItsStream: the stream that frees what several use goes with the Allocator,
// and with the Pool where that is closed first.
func TestCloseEndsItsStream(t *testing.T) {
	for _, poolFirst := range []bool{false, true} {
		host := pooltest.OpenHost(t)
		d := &brokenPools{Driver: host, NativePools: host.(cuda.NativePools)}
		n, c := newNative(t, d, native.Config{})
		b := testkit.Must(n.Alloc(5000, nil))
		require.NoError(t, n.RecordStream(b, testkit.Must(n.NewStream())))
		d.stream = errors.New("no stream")
		require.ErrorIs(t, n.Free(b), d.stream)
		d.stream = nil
		require.NoError(t, n.Free(b))
		require.Equal(t, 2, d.streams)
		if poolFirst {
			require.NoError(t, c.Close())
		}
		require.NoError(t, n.Close())
		if !poolFirst {
			require.Equal(t, 1, d.streams)
			require.NoError(t, c.Close())
		}
		require.Zero(t, d.streams)
	}
}

// TestOOMWithoutInfo: an out of memory where the device does not say what it has.
func TestOOMWithoutInfo(t *testing.T) {
	host := pooltest.OpenHost(t)
	d := &brokenPools{Driver: host, NativePools: host.(cuda.NativePools)}
	n, _ := newNative(t, d, native.Config{})
	d.alloc, d.info = cupool.ErrOutOfMemory, errors.New("no luck")
	var oom *cupool.OOMError
	require.ErrorAs(t, testkit.Second(n.Alloc(5000, nil)), &oom)
	require.Equal(t, []int64{-1, -1}, []int64{oom.DeviceFree, oom.DeviceTotal})
}

// TestHandlesOfNothing: an Allocator that no function made fails.
func TestHandlesOfNothing(t *testing.T) {
	handletest.Receivers(t, (*native.Allocator)(nil), new(native.Allocator))
}

// TestCloseWhileAllocating: memory that comes as Close has run goes back, and then the pool.
func TestCloseWhileAllocating(t *testing.T) {
	for name, cfg := range natives {
		t.Run(name, func(t *testing.T) {
			host := pooltest.OpenHost(t)
			d := &brokenPools{Driver: host, NativePools: host.(cuda.NativePools)}
			n, c := newNative(t, d, cfg)
			freed := testkit.Must(n.Alloc(5000, nil))
			require.NoError(t, n.Free(freed))
			made := d.pools
			d.allocated = func() {
				require.NoError(t, n.Close())
				require.Equal(t, made, d.pools, "it is in use")
			}
			_, err := n.Alloc(5000, nil)
			require.ErrorIs(t, err, cupool.ErrClosed)
			require.Zero(t, d.pools)
			require.ErrorIs(t, testkit.Second(n.ExportBlock(freed)), cupool.ErrClosed)
			require.Zero(t, d.pools, "it is destroyed once")
			d.allocated = nil
			require.NoError(t, c.Sync())
			free, total, err := d.MemInfo()
			require.NoError(t, err)
			require.Equal(t, total, free)
		})
	}
}

// TestCloseWaits: Close returns when all work is done.
func TestCloseWaits(t *testing.T) {
	n, c := newNative(t, pooltest.OpenHost(t), native.Config{})
	s, err := c.NewStream()
	require.NoError(t, err)
	release, closed := make(chan struct{}), make(chan error)
	require.NoError(t, s.Launch(func() { <-release }))
	go func() { closed <- n.Close() }()
	select {
	case <-closed:
		t.Error("a stream is busy")
	case <-time.After(20 * time.Millisecond): // time to be wrong
	}
	close(release)
	require.NoError(t, <-closed)
}

// TestCloseWaitsForFrees: memory that a free is about to give back is no leak, and what the free
// has made goes.
func TestCloseWaitsForFrees(t *testing.T) {
	host := pooltest.OpenHost(t)
	d := &brokenPools{Driver: host, NativePools: host.(cuda.NativePools)}
	n, _ := newNative(t, d, native.Config{Pool: &cuda.NativePoolConfig{}})
	b := testkit.Must(n.Alloc(5000, nil))
	require.NoError(t, n.RecordStream(b, testkit.Must(n.NewStream())))
	entered, release := make(chan struct{}), make(chan struct{})
	d.streaming = func() { close(entered); <-release }
	freed, closed := make(chan error, 1), make(chan error, 1)
	go func() { freed <- n.Free(b) }()
	<-entered
	go func() { closed <- n.Close() }()
	select {
	case err := <-closed:
		closed <- err
		t.Error("a free is under way")
	case <-time.After(20 * time.Millisecond): // time to be wrong
	}
	close(release)
	require.NoError(t, <-freed)
	require.NoError(t, <-closed)
	require.Equal(t, 1, d.streams)
}

// TestSleep: the driver's pool serves while the Pool sleeps.
func TestSleep(t *testing.T) {
	n, c := newNative(t, pooltest.OpenHost(t), native.Config{})
	require.NoError(t, c.Sleep(nil))
	b, err := n.Alloc(5000, nil)
	require.NoError(t, err)
	require.NoError(t, n.Free(b))
	require.NoError(t, n.TrimTo(0))
	require.NoError(t, c.Wake())
}

// TestEngineScopeIn: the engine's allocator does not know the pool.
func TestEngineScopeIn(t *testing.T) {
	n, c := newNative(t, pooltest.OpenHost(t), native.Config{})
	p := pooltest.NewPrivate(t, c, cupool.PoolConfig{})
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

// TestLocation makes pools where memory of the host is, which drivers
// before CUDA 12.6 refuse.
func TestLocation(t *testing.T) {
	for name, cfg := range map[string]cuda.NativePoolConfig{
		"device": {Location: cuda.Location{Kind: cuda.OnDevice}}, "host": {Location: cuda.Location{Kind: cuda.OnHost}},
		"NUMA": {Location: cuda.Location{Kind: cuda.OnNUMA}}, "managed": {Managed: true},
	} {
		t.Run(name, func(t *testing.T) {
			d := openFirstGPU(t)
			c, err := cupool.New(cupool.Config{Driver: d})
			require.NoError(t, err)
			n, err := native.New(c, native.Config{Pool: &cfg})
			if err != nil && name != "device" && !fakecuda.Loaded() {
				t.Skip(err)
			}
			require.NoError(t, err)
			b, err := n.Alloc(1<<20, nil)
			require.NoError(t, err)
			require.NoError(t, n.DefaultStream().Memset(b.Ptr(), 9, b.Size()))
			requireBytes(t, n.DefaultStream(), b, 9)
			if name != "device" && !fakecuda.Loaded() { // the CPU may touch it, but for the stand-in
				require.NoError(t, n.DefaultStream().Sync())
				p := b.Ptr()
				require.EqualValues(t, 9, **(**byte)(unsafe.Pointer(&p)))
			}
			require.NoError(t, n.Free(b))
			require.NoError(t, n.Close())
			require.NoError(t, c.Close())
			require.NoError(t, d.Close())
		})
	}
}

// TestNoLocation: where there is no memory there is no pool, nor one with the
// handles of another system.
func TestNoLocation(t *testing.T) {
	d := openFirstGPU(t)
	defer d.Close()
	pools := d.(cuda.NativePools)
	require.Error(t, testkit.Second(pools.NewNativePool(cuda.NativePoolConfig{Location: cuda.Location{Kind: cuda.OnNUMA, ID: 1 << 20}})))
	require.ErrorIs(t, testkit.Second(pools.NewNativePool(cuda.NativePoolConfig{Win32: true})), cupool.ErrNotSupported)
}

// TestGraph captures with an engine whose memory is the driver's: that
// of the graph is the Pool's.
func TestGraph(t *testing.T) {
	for name, over := range map[string]func(cupool.Allocator) cupool.Allocator{
		"alone":       func(a cupool.Allocator) cupool.Allocator { return a },
		"in adaptors": func(a cupool.Allocator) cupool.Allocator { return adaptor.NewStatistics(adaptor.NewTracking(a)) },
	} {
		t.Run(name, func(t *testing.T) { testGraph(t, over) })
	}
}

func testGraph(t *testing.T, over func(cupool.Allocator) cupool.Allocator) {
	n, c := newNative(t, openFirstGPU(t), native.Config{})
	s, err := n.NewStream()
	require.NoError(t, err)
	e, err := cupool.NewEngine(over(n), cupool.WithStream(s))
	require.NoError(t, err)
	x, err := e.FromHost(tensor.New(tensor.WithBacking([]float32{1, 2, 3})))
	require.NoError(t, err)
	add := func() (y tensor.Tensor, err error) { return tensor.Add(x, x) }
	require.NoError(t, e.FreeTensor(testkit.Must(add())))
	var y tensor.Tensor
	g, err := e.Capture(func() (err error) {
		y, err = add()
		return err
	})
	require.NoError(t, err)
	require.EqualValues(t, 1, c.Stats().All.Allocation.Current)
	require.NoError(t, g.Launch())
	require.Equal(t, []float32{2, 4, 6}, testkit.Must(e.ToHost(y)).Data())
	require.NoError(t, g.Close())
	require.NoError(t, e.FreeTensor(x))
	require.Zero(t, c.Stats().All.Allocation.Current)
}

// TestFreeWhileCaptured: a block that a captured stream uses, too, is not freed, and the
// capture goes on.
func TestFreeWhileCaptured(t *testing.T) {
	n, c := newNative(t, openFirstGPU(t), native.Config{})
	s, err := n.NewStream()
	require.NoError(t, err)
	e, err := cupool.NewEngine(c, cupool.WithStream(s))
	require.NoError(t, err)
	of, by := testkit.Must(n.Alloc(1000, s)), testkit.Must(n.Alloc(1000, nil))
	require.NoError(t, n.RecordStream(of, n.DefaultStream()))
	require.NoError(t, n.RecordStream(by, s))
	g, err := e.Capture(func() error {
		for _, b := range []cupool.Block{of, by} {
			require.ErrorIs(t, n.Free(b), cupool.ErrNotSupported)
			require.Equal(t, b, testkit.Must(n.Lookup(b.Ptr())))
		}
		return nil
	})
	require.NoError(t, err)
	require.NoError(t, errors.Join(g.Close(), n.Free(of), n.Free(by)))
}

// TestNoPools: what a driver without pools says.
func TestNoPools(t *testing.T) {
	if !fakecuda.Loaded() {
		t.Skip("needs the stand-in driver")
	}
	const notSupported = 801
	n, c := newNative(t, openFirstGPU(t), native.Config{})
	defer fakecuda.Reset()
	for call, f := range map[string]func() error{
		"cuDeviceGetDefaultMemPool": func() error { return testkit.Second(native.New(c, native.Config{})) },
		"cuMemPoolCreate": func() error {
			return testkit.Second(native.New(c, native.Config{Pool: &cuda.NativePoolConfig{}}))
		},
		"cuMemAllocFromPoolAsync": func() error { return testkit.Second(n.Alloc(1, nil)) },
	} {
		fakecuda.Fail(call, 1, notSupported, 1)
		err := f()
		require.ErrorIs(t, err, cupool.ErrNotSupported)
		require.ErrorContains(t, err, call)
	}
	b, err := n.Alloc(5000, nil)
	require.NoError(t, err)
	fakecuda.Fail("cuMemFreeAsync", 1, 1, 1)
	require.ErrorContains(t, n.Free(b), "cuMemFreeAsync")
	require.NoError(t, n.Free(b))
	fakecuda.Fail("cuMemAllocFromPoolAsync", 1, 2, 1)
	b, err = n.Alloc(5000, nil)
	require.NoError(t, err, "out of memory once, and then not")
	require.NoError(t, n.Free(b))
}

func requireBytes(t *testing.T, s *cupool.Stream, b cupool.Block, want byte) {
	t.Helper()
	got := make([]byte, b.Size())
	require.NoError(t, s.CopyOut(got, b.Ptr()))
	for i, v := range got {
		if v != want {
			t.Fatalf("byte %d is %d, want %d", i, v, want)
		}
	}
}
