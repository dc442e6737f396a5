package cuda

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool/device"
	"github.com/cupool/cupool/internal/fakecuda"
	"github.com/cupool/cupool/internal/testkit/gputest"
)

func TestOpenErrors(t *testing.T) {
	gputest.Need(t)
	_, err := Open(99)
	var e *Error
	require.ErrorAs(t, err, &e)
	assert.Equal(t, "CUDA_ERROR_INVALID_DEVICE", e.Name)
	assert.ErrorContains(t, err, "devices")
	_, err = Open(0, Memory(MemoryKind(9)))
	require.ErrorIs(t, err, device.ErrInvalidConfig)
}

// TestOutOfMemory asks for more than there is; the Driver goes on.
func TestOutOfMemory(t *testing.T) {
	d := openTest(t)
	_, total, err := d.MemInfo()
	require.NoError(t, err)
	_, err = d.MemAlloc(total + 1<<30)
	require.ErrorIs(t, err, device.ErrOutOfMemory)
	var e *Error
	require.ErrorAs(t, err, &e)
	assert.Equal(t, "cuMemAlloc", e.Call)
	assert.Equal(t, 2, e.Code)
	assert.Equal(t, "cuda:0", e.Device)
	assert.Contains(t, err.Error(), "CUDA_ERROR_OUT_OF_MEMORY")
	assert.Contains(t, err.Error(), fmt.Sprint(total+1<<30))
	p := alloc(t, d, 1<<20)
	require.NoError(t, d.Memset(p, 0, 1<<20, 0))
	require.NoError(t, d.SyncStream(0))
	require.NoError(t, d.MemFree(p))
}

// child runs one test of this binary in a process of its own, which has to
// pass. It gets the files as its descriptors 3 and on.
func child(t *testing.T, env string, files ...*os.File) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), env)
	cmd.ExtraFiles = files
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
	require.Contains(t, string(out), "--- PASS: "+t.Name())
}

// TestLost breaks the context for good, in another process: a kernel
// writes to where nothing is.
func TestLost(t *testing.T) {
	gputest.Need(t)
	if os.Getenv("CUPOOL_TEST_LOST") == "" {
		child(t, "CUPOOL_TEST_LOST=1")
		return
	}
	d, sharing := openTest(t), openTest(t, Pinned())
	k := testKernels(t, d)
	s, e := newStream(t, d), newEvent(t, d)
	p := alloc(t, d, 4096)
	require.NoError(t, k.Fill(uintptr(s), 0x1000, 4096, 1))
	first := d.SyncStream(s)
	require.ErrorIs(t, first, device.ErrDeviceLost)
	var ce *Error
	require.ErrorAs(t, first, &ce)
	assert.Equal(t, "CUDA_ERROR_ILLEGAL_ADDRESS", ce.Name)
	assert.Equal(t, "cuStreamSynchronize", ce.Call)
	for name, f := range map[string]func() error{
		"alloc":   func() error { _, err := d.MemAlloc(1); return err },
		"free":    func() error { return d.MemFree(p) },
		"query":   func() error { _, err := d.QueryEvent(e); return err },
		"stream":  func() error { _, err := d.NewStream(); return err },
		"sharing": func() error { _, err := sharing.MemAlloc(1); return err },
		"vmm":     func() error { _, err := d.AddressReserve(d.VMMGranularity()); return err },
	} {
		assert.Same(t, first, f(), name)
	}
	assert.Same(t, first, d.Close())
}

// TestFailures makes each call fail once: the error tells what failed,
// and nothing has changed.
func TestFailures(t *testing.T) {
	needFake(t)
	d := openTest(t)
	s, e := newStream(t, d), newEvent(t, d)
	p := alloc(t, d, 4096)
	g := d.VMMGranularity()
	va, err := d.AddressReserve(g)
	require.NoError(t, err)
	h, err := d.MemCreate(g)
	require.NoError(t, err)
	b := make([]byte, 16)
	reg := make([]byte, 4096)
	for _, c := range []struct {
		call, says string
		f          func() error
	}{
		{"cuMemAlloc_v2", "cuMemAlloc", func() error { q, err := d.MemAlloc(512); free(d, q); return err }},
		{"cuMemFree_v2", "cuMemFree", func() error { return d.MemFree(p) }},
		{"cuMemGetInfo_v2", "cuMemGetInfo", func() error { _, _, err := d.MemInfo(); return err }},
		{"cuStreamCreate", "", func() error { _, err := d.NewStream(); return err }},
		{"cuStreamSynchronize", "", func() error { return d.SyncStream(s) }},
		{"cuEventCreate", "", func() error { _, err := d.NewEvent(); return err }},
		{"cuEventRecord", "", func() error { return d.RecordEvent(e, s) }},
		{"cuEventQuery", "", func() error { _, err := d.QueryEvent(e); return err }},
		{"cuEventQuery", "", func() error { _, err := d.QueryEvents([]EventHandle{e}); return err }},
		{"cuEventSynchronize", "", func() error { return d.SyncEvent(e) }},
		{"cuStreamWaitEvent", "", func() error { return d.StreamWaitEvent(s, e) }},
		{"cuMemcpyAsync", "", func() error { return d.Copy(p, p+64, 64, s) }},
		{"cuMemcpyHtoDAsync_v2", "cuMemcpyHtoDAsync", func() error { return d.CopyIn(p, b, s) }},
		{"cuMemcpyDtoHAsync_v2", "cuMemcpyDtoHAsync", func() error { return d.CopyOut(b, p, s) }},
		{"cuStreamSynchronize", "cuMemcpyDtoHAsync", func() error { return d.CopyOut(b, p, s) }},
		{"cuMemsetD8Async", "", func() error { return d.Memset(p, 1, 1, s) }},
		{"cuCtxGetCurrent", "cuEventRecord", func() error { return d.RecordEvent(e, s) }},
		{"cuMemAddressReserve", "", func() error { _, err := d.AddressReserve(g); return err }},
		{"cuMemCreate", "", func() error { _, err := d.MemCreate(g); return err }},
		{"cuMemMap", "", func() error { return d.MemMap(va, g, h) }},
		{"", "", func() error { return d.MemMap(va, g, h) }},
		{"cuMemSetAccess", "", func() error { return d.MemSetAccess(va, g) }},
		{"cuMemUnmap", "", func() error { return d.MemUnmap(va, g) }},
		{"", "", func() error { return d.MemUnmap(va, g) }},
		{"cuMemRelease", "", func() error { return d.MemRelease(h) }},
		{"", "", func() error { return d.MemRelease(h) }},
		{"cuMemAddressFree", "", func() error { return d.AddressFree(va, g) }},
		{"", "", func() error { return d.AddressFree(va, g) }},
		{"cuMemHostAlloc", "", func() error { _, err := d.HostAlloc(1); return err }},
		{"cuMemHostRegister_v2", "cuMemHostRegister", func() error { _, err := d.HostRegister(reg); return err }},
		{"", "", func() error { _, err := d.HostRegister(reg); return err }},
		{"cuMemHostUnregister", "", func() error { return d.HostUnregister(reg) }},
		{"", "", func() error { return d.HostUnregister(reg) }},
		{"cuEventDestroy_v2", "cuEventDestroy", func() error { return d.DestroyEvent(e) }},
		{"", "", func() error { return d.DestroyEvent(e) }},
		{"cuStreamDestroy_v2", "cuStreamDestroy", func() error { return d.DestroyStream(s) }},
		{"", "", func() error { return d.DestroyStream(s) }},
		{"", "", func() error { return d.MemFree(p) }},
	} {
		if c.call == "" {
			require.NoError(t, c.f(), "after it failed before")
			continue
		}
		if c.says == "" {
			c.says = c.call
		}
		fakecuda.Fail(c.call, 1, 999, 1)
		err := c.f()
		var ce *Error
		require.ErrorAs(t, err, &ce, c.call)
		assert.Equal(t, c.says, ce.Call)
		assert.Equal(t, 999, ce.Code)
		assert.Contains(t, err.Error(), "CUDA_ERROR_UNKNOWN")
		assert.NotErrorIs(t, err, device.ErrDeviceLost)
		fakecuda.Reset()
	}
}

func free(d *driver, p Ptr) {
	if p != 0 {
		_ = d.MemFree(p)
	}
}

// TestFailuresMean checks what codes mean.
func TestFailuresMean(t *testing.T) {
	needFake(t)
	for code, want := range map[int]error{
		2: device.ErrOutOfMemory, 36: device.ErrNotSupported, 801: device.ErrNotSupported, 400: device.ErrInvalidHandle,
		214: device.ErrDeviceLost, 700: device.ErrDeviceLost, 710: device.ErrDeviceLost, 716: device.ErrDeviceLost, 719: device.ErrDeviceLost,
	} {
		d := openTest(t)
		fakecuda.Fail("cuMemAlloc_v2", 1, code, 1)
		_, err := d.MemAlloc(512)
		require.ErrorIs(t, err, want, code)
		fakecuda.Reset()
		_, again := d.MemAlloc(512)
		if want == device.ErrDeviceLost {
			require.Same(t, err, again, "the first error stays")
			require.Same(t, err, d.Close())
		} else {
			require.NoError(t, again)
			require.NoError(t, d.Close())
		}
	}
	d := openTest(t)
	_, err := d.MemAlloc(512)
	require.NoError(t, err, "a context that is opened anew is not lost")
}

// TestOldDriver runs on a driver of CUDA 11.0, in another process.
func TestOldDriver(t *testing.T) {
	needFake(t)
	if os.Getenv("FAKECUDA_VERSION") == "" {
		child(t, "FAKECUDA_VERSION=11000")
		return
	}
	d := openTest(t)
	_, err := d.AllocAsync(512, 0, 0)
	require.ErrorIs(t, err, device.ErrNotSupported)
	assert.ErrorContains(t, err, "11.2")
	assert.ErrorContains(t, err, "11.0")
	_, err = d.StreamID(0)
	require.ErrorIs(t, err, device.ErrNotSupported)
	assert.ErrorContains(t, err, "12.0")
	v, err := Version()
	require.NoError(t, err)
	assert.Equal(t, 11000, v.Driver)
	assert.Contains(t, strings.Join(v.Missing, "\n"), "cuMemPoolCreate (CUDA 11.2)")
	assert.NotContains(t, strings.Join(v.Missing, "\n"), "cuMemCreate (")
	assert.NotContains(t, strings.Join(v.Missing, "\n"), "cuMemAdvise", "its older form is there")

	// Older entry points stand in for the newer ones.
	m := openTest(t, Managed())
	p := alloc(t, m, 1<<20)
	require.NoError(t, m.Prefetch(p, 1<<20, Location{Kind: OnDevice, ID: 0}, 0))
	require.NoError(t, m.Advise(p, 1<<20, AdvisePreferredLocation, Location{Kind: OnHost}))
	_, err = d.AddressReserve(d.VMMGranularity())
	require.NoError(t, err)
}
