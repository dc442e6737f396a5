package cuda

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool/device"
	"github.com/cupool/cupool/internal/cudadrv"
	"github.com/cupool/cupool/internal/fakecuda"
	"github.com/cupool/cupool/internal/testkit"
	"github.com/cupool/cupool/internal/testkit/gputest"
)

// These tests run on whatever CUDA driver there is: the real one, or the stand-in of
// internal/fakecuda, which CUPOOL_LIBCUDA names. Those that inject faults need the
// stand-in, those that need two GPUs say so.

func init() {
	if fakecuda.Loaded() {
		hostMemory = fakecuda.HostMemory
	}
}

// openTest opens cuda:0 for one test, which has to close everything it made.
func openTest(t testing.TB, opts ...Option) *driver {
	return openTestOn(t, 0, opts...)
}

func openTestOn(t testing.TB, ordinal int, opts ...Option) *driver {
	t.Helper()
	gputest.Need(t)
	n, r := cudadrv.DeviceCount()
	require.Equal(t, cudadrv.Success, r)
	if n <= ordinal {
		t.Skipf("needs %d GPUs", ordinal+1)
	}
	d, err := Open(ordinal, opts...)
	require.NoError(t, err)
	t.Cleanup(func() {
		if err := d.Close(); !errors.Is(err, device.ErrClosed) && !errors.Is(err, device.ErrDeviceLost) {
			assert.NoError(t, err)
		}
	})
	return d.(*driver)
}

func needFake(t testing.TB) {
	t.Helper()
	if !fakecuda.Loaded() {
		t.Skip("needs the stand-in driver")
	}
	t.Cleanup(fakecuda.Reset)
}

func newStream(t testing.TB, d *driver) StreamHandle {
	t.Helper()
	s, err := d.NewStream()
	require.NoError(t, err)
	return s
}

func newEvent(t testing.TB, d *driver) EventHandle {
	t.Helper()
	e, err := d.NewEvent()
	require.NoError(t, err)
	return e
}

func alloc(t testing.TB, d *driver, n int64) Ptr {
	t.Helper()
	p, err := d.MemAlloc(n)
	require.NoError(t, err)
	require.NotZero(t, p)
	require.Zero(t, p%512)
	return p
}

func testKernels(t testing.TB, d *driver) *gputest.Kernels {
	t.Helper()
	k, err := gputest.Load(d.Context())
	require.NoError(t, err)
	t.Cleanup(func() {
		if d.usable() == nil {
			assert.NoError(t, k.Close())
		}
	})
	return k
}

// hostBytes is host-accessible memory as a slice.
func hostBytes(p Ptr, n int64) []byte {
	return unsafe.Slice((*byte)(*(*unsafe.Pointer)(unsafe.Pointer(&p))), n)
}

// TestHostAccess: the host and the stream see each other's work.
func TestHostAccess(t *testing.T) {
	for _, k := range []MemoryKind{MemoryManaged, MemoryPinned} {
		d := openTest(t, Memory(k))
		require.True(t, d.HostAccessible())
		const n = 3<<20 + 1
		a, b, s := alloc(t, d, n), alloc(t, d, n), newStream(t, d)
		want, got := testkit.Pattern(n), make([]byte, n)
		require.NoError(t, d.Memset(a, 7, n, s))
		require.NoError(t, d.SyncStream(s))
		require.Equal(t, bytes.Repeat([]byte{7}, n), hostBytes(a, n))
		copy(hostBytes(a, n), want)
		require.NoError(t, d.Copy(b, a, n, s))
		require.NoError(t, d.CopyOut(got, b, s))
		require.Equal(t, want, got, k)
	}
}

// TestRanges is about what only CUDA's memory has: sizes are rounded to 512 bytes.
func TestRanges(t *testing.T) {
	d := openTest(t)
	p := alloc(t, d, 1000)
	b := make([]byte, 10)
	for name, f := range map[string]func() error{
		"past the end":      func() error { return d.Memset(p, 0, 1025, 0) },
		"in":                func() error { return d.CopyIn(p+1020, b, 0) },
		"Go's own memory":   func() error { return d.Memset(Ptr(uintptr(unsafe.Pointer(&b[0]))), 0, 1, 0) },
		"export from there": func() error { _, err := d.ExportMemory(p + 512); return err },
	} {
		assert.ErrorIs(t, f(), device.ErrInvalidRange, name)
	}
	require.NoError(t, d.MemFree(p))
}

// TestClose checks that everything is given back, also what was not
// destroyed, and that a closed Driver says so.
func TestClose(t *testing.T) {
	keep := openTest(t) // keeps the context
	before, _, err := keep.MemInfo()
	require.NoError(t, err)
	d, err := Open(0)
	require.NoError(t, err)
	c := d.(*driver)
	s, e := newStream(t, c), newEvent(t, c)
	p := alloc(t, c, 64<<20)
	_, err = c.HostAlloc(1 << 20)
	require.NoError(t, err)
	_, err = c.HostRegister(make([]byte, 1<<20))
	require.NoError(t, err)
	_, err = c.NewNativePool(NativePoolConfig{})
	require.NoError(t, err)
	g := c.VMMGranularity()
	va, err := c.AddressReserve(4 * g)
	require.NoError(t, err)
	h, err := c.MemCreate(2 * g)
	require.NoError(t, err)
	require.NoError(t, c.MemMap(va+Ptr(g), 2*g, h))
	require.NoError(t, c.Memset(p, 1, 64<<20, s))
	require.NoError(t, c.RecordEvent(e, s))
	require.NoError(t, d.Close())
	after, _, err := keep.MemInfo()
	require.NoError(t, err)
	assert.InDelta(t, before, after, 16<<20)

	require.ErrorIs(t, d.Close(), device.ErrClosed)
	_, err = d.MemAlloc(1)
	require.ErrorIs(t, err, device.ErrClosed)
	require.ErrorIs(t, d.RecordEvent(e, s), device.ErrClosed)
	require.ErrorIs(t, keep.RecordEvent(e, 0), device.ErrInvalidHandle, "events of a closed Driver are gone")
}

func TestDevices(t *testing.T) {
	gputest.Need(t)
	gpus, err := Devices()
	require.NoError(t, err)
	require.NotEmpty(t, gpus)
	for i, g := range gpus {
		assert.Equal(t, i, g.Ordinal)
		assert.NotEmpty(t, g.Name)
		assert.Positive(t, g.TotalBytes)
		assert.Positive(t, g.FreeBytes)
		assert.Positive(t, g.Major)
		assert.True(t, strings.HasPrefix(g.UUID, "GPU-"))
	}
	v, err := Version()
	require.NoError(t, err)
	assert.GreaterOrEqual(t, v.Driver, 11000)
	assert.NotEmpty(t, v.Library)
}
