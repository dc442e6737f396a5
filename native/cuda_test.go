package native_test

import (
	"errors"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
	"gorgonia.org/tensor"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/cuda"
	"github.com/cupool/cupool/internal/conformance"
	"github.com/cupool/cupool/internal/fakecuda"
	"github.com/cupool/cupool/internal/testkit"
	"github.com/cupool/cupool/internal/testkit/gputest"
	"github.com/cupool/cupool/native"
)

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

// TestCUDA runs the battery for any allocator on CUDA's own pools.
func TestCUDA(t *testing.T) {
	busy := newHolder(t)
	for name, cfg := range natives {
		t.Run(name, func(t *testing.T) {
			conformance.RunAllocator(t, func(t *testing.T) cupool.Allocator {
				n, _ := newNative(t, openFirstGPU(t), cfg)
				return n
			}, conformance.Options{Busy: busy})
		})
	}
}

func TestCUDAAttributes(t *testing.T) {
	n, _ := newNative(t, openFirstGPU(t), native.Config{Pool: &cuda.NativePoolConfig{}})
	testAttributes(t, n)
}

// TestCUDALocation makes pools where memory of the host is, which drivers
// before CUDA 12.6 refuse.
func TestCUDALocation(t *testing.T) {
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

// TestCUDANoLocation: where there is no memory there is no pool, nor one with the
// handles of another system.
func TestCUDANoLocation(t *testing.T) {
	d := openFirstGPU(t)
	defer d.Close()
	pools := d.(cuda.NativePools)
	require.Error(t, testkit.Second(pools.NewNativePool(cuda.NativePoolConfig{Location: cuda.Location{Kind: cuda.OnNUMA, ID: 1 << 20}})))
	require.ErrorIs(t, testkit.Second(pools.NewNativePool(cuda.NativePoolConfig{Win32: true})), cupool.ErrNotSupported)
}

// TestCUDAShare shares a pool and a block with another process.
func TestCUDAShare(t *testing.T) { share(t, openFirstGPU) }

// TestCUDAGraph captures with an engine whose memory is the driver's: that
// of the graph is the Pool's.
func TestCUDAGraph(t *testing.T) {
	n, c := newNative(t, openFirstGPU(t), native.Config{})
	s, err := n.NewStream()
	require.NoError(t, err)
	e, err := cupool.NewEngine(n, cupool.WithStream(s))
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

// TestCUDAMissing: what a driver without pools says.
func TestCUDAMissing(t *testing.T) {
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
