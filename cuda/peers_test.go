package cuda

import (
	"bytes"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool/device"
	"github.com/cupool/cupool/internal/cudadrv"
	"github.com/cupool/cupool/internal/fakecuda"
)

// mapped returns size bytes of virtual memory, in two mappings.
func mapped(t testing.TB, d *driver) (p Ptr, size int64) {
	t.Helper()
	g := d.VMMGranularity()
	if g == 0 {
		t.Skip("no virtual memory")
	}
	p, err := d.AddressReserve(2 * g)
	require.NoError(t, err)
	for _, at := range []Ptr{p, p + Ptr(g)} {
		h, err := d.MemCreate(g)
		require.NoError(t, err)
		require.NoError(t, d.MemMap(at, g, h))
		require.NoError(t, d.MemRelease(h))
	}
	require.NoError(t, d.MemSetAccess(p, 2*g))
	return p, 2 * g
}

// reads requires that the n bytes at p are all the same.
func reads(t testing.TB, d *driver, p Ptr, n int64, value byte) {
	t.Helper()
	got := make([]byte, n)
	require.NoError(t, d.CopyOut(got, p, 0))
	require.Equal(t, int(n), bytes.Count(got, []byte{value}))
}

// peers opens two GPUs that reach each other.
func peers(t testing.TB) (a, b *driver) {
	t.Helper()
	a, b = openTestOn(t, 0), openTestOn(t, 1)
	if err := a.CanAccessPeer(b); err != nil {
		t.Skip(err)
	}
	return a, b
}

// TestPeerCopy copies between two GPUs without peer access, segments and virtual
// memory, on a stream of either.
func TestPeerCopy(t *testing.T) {
	a, b := openTestOn(t, 0), openTestOn(t, 1)
	va, size := mapped(t, a)
	vb, _ := mapped(t, b)
	pa, pb := alloc(t, a, size), alloc(t, b, size)
	value := byte(0)
	for _, from := range []Ptr{va, pa} {
		for _, to := range []Ptr{vb, pb} {
			for _, on := range []*driver{a, b} {
				value++
				require.NoError(t, a.Memset(from, value, size, 0))
				require.NoError(t, b.Memset(to, 0, size, 0))
				require.NoError(t, a.SyncStream(0))
				require.NoError(t, b.SyncStream(0))
				require.NoError(t, on.Copy(to, from, size, 0))
				require.NoError(t, on.SyncStream(0))
				reads(t, b, to, size, value)
			}
		}
	}
	require.ErrorIs(t, a.Copy(pa, pb, size+1, 0), device.ErrInvalidRange)
	require.ErrorIs(t, a.Copy(vb+1, va, size, 0), device.ErrInvalidRange)
	require.NoError(t, b.MemFree(pb))
	require.Error(t, a.Copy(pa, pb, size, 0))
	host, err := a.HostAlloc(512)
	require.NoError(t, err)
	require.ErrorIs(t, a.Copy(vb, host, 512, 0), device.ErrForeignPointer, "from the host's memory only a device that reaches the target copies")
}

// TestPeerAccess: with peer access work of one GPU, kernels too, touches what the
// other has and what it gets later, segments and virtual memory.
func TestPeerAccess(t *testing.T) {
	a, b := peers(t)
	k := testKernels(t, a)
	before, size := mapped(t, b)
	segment := alloc(t, b, size)
	for range 2 {
		require.NoError(t, a.EnablePeer(b))
	}
	require.NoError(t, a.EnablePeer(a))
	later, _ := mapped(t, b)
	for i, p := range []Ptr{before, segment, later, alloc(t, b, size)} {
		require.NoError(t, a.Memset(p, byte(i+1), size, 0))
		require.NoError(t, a.SyncStream(0))
		reads(t, b, p, size, byte(i+1))
		reads(t, a, p, size, byte(i+1))
		require.NoError(t, k.Fill(0, uintptr(p), size, 1))
		require.NoError(t, k.Check(0, uintptr(p), size, 1, uintptr(alloc(t, a, 512))))
		require.NoError(t, a.SyncStream(0))
	}
	require.ErrorIs(t, b.Memset(alloc(t, a, 512), 0, 512, 0), device.ErrForeignPointer, "it is for one direction")
	require.NoError(t, b.Close())
	require.Error(t, a.Memset(segment, 0, 1, 0))
	require.NoError(t, a.usable())
}

// TestPeerReopened: when a GPU was closed, peer access is switched on anew.
func TestPeerReopened(t *testing.T) {
	a, b := peers(t)
	require.NoError(t, a.EnablePeer(b))
	require.NoError(t, b.Close())
	b = openTestOn(t, 1)
	p := alloc(t, b, 512)
	require.ErrorIs(t, a.Memset(p, 0, 512, 0), device.ErrForeignPointer)
	require.NoError(t, a.EnablePeer(b))
	require.NoError(t, a.Memset(p, 3, 512, 0))
	require.NoError(t, a.SyncStream(0))
	reads(t, b, p, 512, 3)
}

// TestPeerIllegal: without peer access a kernel that touches the other GPU's
// memory loses its context, in another process.
func TestPeerIllegal(t *testing.T) {
	kind := os.Getenv("CUPOOL_TEST_PEER")
	if kind == "" {
		openTestOn(t, 1)
		child(t, "CUPOOL_TEST_PEER=segment")
		child(t, "CUPOOL_TEST_PEER=virtual")
		return
	}
	a, b := openTestOn(t, 0), openTestOn(t, 1)
	k := testKernels(t, a)
	p, size := mapped(t, b)
	if kind == "segment" {
		p = alloc(t, b, size)
	}
	require.NoError(t, k.Fill(0, uintptr(p), size, 1))
	require.ErrorIs(t, a.SyncStream(0), device.ErrDeviceLost)
	require.NoError(t, b.SyncStream(0))
}

// TestPeerForAll: managed and pinned memory is for all GPUs, without peer access.
func TestPeerForAll(t *testing.T) {
	b := openTestOn(t, 1)
	k := testKernels(t, b)
	for i, kind := range []MemoryKind{MemoryManaged, MemoryPinned} {
		a := openTestOn(t, 0, Memory(kind))
		require.NoError(t, b.CanAccessPeer(a))
		require.NoError(t, b.EnablePeer(a))
		p, value := alloc(t, a, 4096), byte(i+1)
		require.NoError(t, b.Memset(p, value, 4096, 0))
		require.NoError(t, b.Copy(p, p+2048, 2048, 0))
		require.NoError(t, b.SyncStream(0))
		reads(t, a, p, 4096, value)
		require.NoError(t, k.Fill(0, uintptr(p), 4096, 1))
		require.NoError(t, b.SyncStream(0))
		require.NoError(t, a.MemFree(p))
	}
}

func TestPeerEvents(t *testing.T) {
	a, b := openTestOn(t, 0), openTestOn(t, 1)
	k := testKernels(t, a)
	sa, sb, ea, done := newStream(t, a), newStream(t, b), newEvent(t, a), newEvent(t, b)
	require.NoError(t, b.StreamWaitPeerEvent(sb, ea, a), "it was never recorded")
	release, err := k.Busy(uintptr(sa))
	require.NoError(t, err)
	require.NoError(t, a.RecordEvent(ea, sa))
	require.NoError(t, b.StreamWaitPeerEvent(sb, ea, a))
	require.NoError(t, b.RecordEvent(done, sb))
	over, err := b.QueryEvent(done)
	require.NoError(t, err)
	require.False(t, over)
	release()
	require.NoError(t, b.SyncStream(sb))
	over, err = a.QueryEvent(ea)
	require.NoError(t, err)
	require.True(t, over)

	require.ErrorIs(t, b.StreamWaitPeerEvent(sb, done, a), device.ErrInvalidHandle)
	require.ErrorIs(t, b.StreamWaitPeerEvent(sa, ea, a), device.ErrForeignStream)
	require.ErrorIs(t, b.StreamWaitPeerEvent(sb, ea, stranger{}), device.ErrNotSupported)
	require.ErrorIs(t, b.EnablePeer(nil), device.ErrNotSupported)
	require.ErrorContains(t, b.EnablePeer(stranger{}), "a stranger")
	require.NoError(t, a.Close())
	require.ErrorIs(t, b.StreamWaitPeerEvent(sb, ea, a), device.ErrClosed)
	require.ErrorIs(t, b.EnablePeer(a), device.ErrClosed)
	require.ErrorIs(t, a.EnablePeer(b), device.ErrClosed)
}

type stranger struct{}

func (stranger) Name() string { return "a stranger" }

func TestPeerUnreachable(t *testing.T) {
	needFake(t)
	a, b := openTestOn(t, 0), openTestOn(t, 1)
	t.Setenv("FAKECUDA_NO_PEER", "2-3,0-1")
	for _, f := range []func(device.Peer) error{a.CanAccessPeer, a.EnablePeer} {
		err := f(b)
		require.ErrorIs(t, err, device.ErrNotSupported)
		require.ErrorContains(t, err, "work of cuda:0 on memory of cuda:1")
	}
	require.ErrorIs(t, b.EnablePeer(a), device.ErrNotSupported)
	pa, pb := alloc(t, a, 512), alloc(t, b, 512)
	require.NoError(t, a.Memset(pa, 4, 512, 0))
	require.NoError(t, a.Copy(pb, pa, 512, 0))
	require.NoError(t, a.SyncStream(0))
	reads(t, b, pb, 512, 4)
}

// TestPeerFailures makes each call of EnablePeer fail: afterwards nobody has
// access, and the next time it works.
func TestPeerFailures(t *testing.T) {
	needFake(t)
	for call, nth := range map[string]int{"cuDeviceCanAccessPeer": 1, "cuCtxEnablePeerAccess": 1, "cuMemSetAccess": 3} {
		for code, want := range map[int]error{711: device.ErrNotSupported, 999: nil} {
			a, b := openTestOn(t, 0), openTestOn(t, 1)
			first, size := mapped(t, b)
			second, _ := mapped(t, b)
			fakecuda.Reset()
			fakecuda.Count(true)
			fakecuda.Fail(call, nth, code, 1)
			err := a.EnablePeer(b)
			var e *Error
			require.ErrorAs(t, err, &e, call)
			require.Equal(t, call, e.Call)
			if want != nil {
				require.ErrorIs(t, err, want)
			}
			made := fakecuda.Calls("cuCtxEnablePeerAccess")
			require.Equal(t, call == "cuMemSetAccess", fakecuda.Calls("cuCtxDisablePeerAccess") == 1 && made == 1)
			require.ErrorIs(t, a.Memset(first, 1, size, 0), device.ErrForeignPointer)
			require.Equal(t, []int32{1}, b.ctx.admitted)
			for _, p := range []Ptr{first, second} {
				access, r := cudadrv.MemGetAccess(b.ctx.handle, uintptr(p), 0)
				require.Equal(t, cudadrv.Success, r)
				require.Zero(t, access, "what was given is taken back")
			}
			require.NoError(t, a.EnablePeer(b))
			require.NoError(t, a.Memset(first, 1, size, 0))
			require.NoError(t, a.SyncStream(0))
			require.NoError(t, a.Close())
			require.NoError(t, b.Close())
		}
	}
}

// TestPeerCopyFailure: a copy that the driver refuses says between which devices.
func TestPeerCopyFailure(t *testing.T) {
	needFake(t)
	a, b := openTestOn(t, 0), openTestOn(t, 1)
	pa, pb := alloc(t, a, 512), alloc(t, b, 512)
	fakecuda.Fail("cuMemcpyPeerAsync", 1, 999, 1)
	err := b.Copy(pb, pa, 512, 0)
	require.ErrorContains(t, err, "of cuda:0 to")
	require.ErrorContains(t, err, "of cuda:1")
	require.NoError(t, b.Copy(pb, pa, 512, 0))
	require.NoError(t, b.SyncStream(0))
}
