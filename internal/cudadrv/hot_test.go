package cudadrv_test

import (
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool/internal/cudadrv"
	"github.com/cupool/cupool/internal/fakecuda"
	"github.com/cupool/cupool/internal/testkit"
	"github.com/cupool/cupool/internal/testkit/gputest"
)

func ok(t testing.TB, r cudadrv.Result) {
	t.Helper()
	require.Equal(t, cudadrv.Success, r)
}

// open returns the context of the first GPU and a stream of it.
func open(t testing.TB) (ctx, stream uintptr) {
	t.Helper()
	gputest.Need(t)
	device, r := cudadrv.Device(0)
	ok(t, r)
	ctx, r = cudadrv.RetainPrimary(device)
	ok(t, r)
	stream, r = cudadrv.NewStream(ctx)
	ok(t, r)
	t.Cleanup(func() {
		ok(t, cudadrv.DestroyStream(ctx, stream))
		ok(t, cudadrv.ReleasePrimary(device))
	})
	return ctx, stream
}

func alloc(t testing.TB, ctx uintptr, size int64) uintptr {
	t.Helper()
	p, r := cudadrv.MemAlloc(ctx, size)
	ok(t, r)
	t.Cleanup(func() { ok(t, cudadrv.MemFree(ctx, p)) })
	return p
}

func pinned(t testing.TB, ctx uintptr, size int64) (uintptr, []byte) {
	t.Helper()
	p, r := cudadrv.HostAlloc(ctx, size)
	ok(t, r)
	t.Cleanup(func() { ok(t, cudadrv.HostFree(ctx, p)) })
	b := unsafe.Slice(*(**byte)(unsafe.Pointer(&p)), size)
	clear(b)
	return p, b
}

func kernels(t testing.TB, ctx uintptr) *gputest.Kernels {
	t.Helper()
	k, err := gputest.Load(ctx)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, k.Close()) })
	return k
}

func events(t testing.TB, ctx uintptr, n int) []uintptr {
	t.Helper()
	es := make([]uintptr, n)
	for i := range es {
		e, r := cudadrv.NewEvent(ctx)
		ok(t, r)
		t.Cleanup(func() { ok(t, cudadrv.DestroyEvent(ctx, e)) })
		es[i] = e
	}
	return es
}

// TestEventQueryAll has an event for each place that is not done, and one that fails.
func TestEventQueryAll(t *testing.T) {
	ctx, stream := open(t)
	k := kernels(t, ctx)
	es := events(t, ctx, 5)
	release, err := k.Busy(stream)
	require.NoError(t, err)
	ok(t, cudadrv.EventRecord(ctx, es[3], stream))
	assert.Equal(t, cudadrv.NotReady, cudadrv.EventQuery(ctx, es[3]))
	for _, c := range []struct{ from, to, done int }{{0, 0, 0}, {0, 3, 3}, {0, 4, 3}, {0, 5, 3}, {3, 5, 0}, {4, 5, 1}} {
		done, r := cudadrv.EventQueryAll(ctx, es[c.from:c.to])
		ok(t, r)
		assert.Equal(t, c.done, done, "%d to %d", c.from, c.to)
	}
	release()
	ok(t, cudadrv.EventSync(ctx, es[3]))
	done, r := cudadrv.EventQueryAll(ctx, es)
	ok(t, r)
	assert.Equal(t, len(es), done)
	if fakecuda.Loaded() {
		t.Cleanup(fakecuda.Reset)
		fakecuda.Fail("cuEventQuery", 3, int(cudadrv.InvalidHandle), 1)
		done, r = cudadrv.EventQueryAll(ctx, es)
		assert.Equal(t, cudadrv.InvalidHandle, r)
		assert.Equal(t, 2, done)
		fakecuda.Fail("cuCtxGetCurrent", 1, int(cudadrv.NotFound), 1)
		done, r = cudadrv.EventQueryAll(ctx, es)
		assert.Equal(t, cudadrv.NotFound, r)
		assert.Zero(t, done)
	}
}

// TestCopies counts how often CopyIn waits for the stream: where the driver may read
// the source after the call.
func TestCopies(t *testing.T) {
	ctx, stream := open(t)
	const n = 4096
	p, want := alloc(t, ctx, n), testkit.Pattern(n)
	_, page := pinned(t, ctx, n)
	registered := make([]byte, n)
	_, r := cudadrv.HostRegister(ctx, registered)
	ok(t, r)
	t.Cleanup(func() { ok(t, cudadrv.HostUnregister(ctx, registered)) })
	for name, c := range map[string]struct {
		src   []byte
		wait  bool
		entry string // it does not take the memory
		waits int
	}{
		"pageable":          {make([]byte, n), false, "", 0},
		"pageable, waiting": {make([]byte, n), true, "", 1},
		"pinned":            {page, false, "", 1},
		"pinned, waiting":   {page, true, "", 1},
		"registered":        {registered, false, "", 1},
		"no device's":       {page, false, "cuMemcpyHtoDAsync_v2", 1},
		"unknown":           {make([]byte, n), false, "cuPointerGetAttributes", 1},
	} {
		t.Run(name, func(t *testing.T) {
			if c.entry != "" && !fakecuda.Loaded() {
				t.Skip("needs the stand-in")
			}
			t.Cleanup(fakecuda.Reset)
			ok(t, cudadrv.Memset(ctx, p, 0, n, stream))
			copy(c.src, want)
			fakecuda.Count(true)
			if c.entry != "" {
				fakecuda.Fail(c.entry, 1, int(cudadrv.InvalidValue), 1)
			}
			ok(t, cudadrv.CopyIn(ctx, p, c.src, stream, c.wait))
			if fakecuda.Loaded() {
				assert.Equal(t, c.waits, fakecuda.Calls("cuStreamSynchronize"))
			}
			clear(c.src)
			got := make([]byte, n)
			ok(t, cudadrv.CopyOut(ctx, got, p, stream))
			assert.Equal(t, want, got)
		})
	}
	if fakecuda.Loaded() {
		fakecuda.Fail("cuMemcpyDtoHAsync_v2", 1, int(cudadrv.InvalidValue), 1)
		ok(t, cudadrv.CopyOut(ctx, page, p, stream))
		fakecuda.Reset()
		assert.Equal(t, want, page)
	}
}

// TestNoAllocation is about the calls that are made for every operation.
func TestNoAllocation(t *testing.T) {
	ctx, stream := open(t)
	p, es, b := alloc(t, ctx, 4096), events(t, ctx, 64), make([]byte, 4096)
	spin, arg := function(t, ctx, module(t, ctx), "cupool_spin"), new(uint64)
	var r [2]cudadrv.Result
	for name, f := range map[string]func(){
		"EventRecord":     func() { r[0] = cudadrv.EventRecord(ctx, es[0], stream) },
		"EventQuery":      func() { _ = cudadrv.EventQuery(ctx, es[0]) },
		"EventQueryAll":   func() { _, r[0] = cudadrv.EventQueryAll(ctx, es) },
		"EventSync":       func() { r[0] = cudadrv.EventSync(ctx, es[0]) },
		"StreamWaitEvent": func() { r[0] = cudadrv.StreamWaitEvent(ctx, stream, es[0]) },
		"StreamSync":      func() { r[0] = cudadrv.StreamSync(ctx, stream) },
		"Launch":          func() { r[0] = cudadrv.Launch(ctx, spin, 1, 1, stream, 0) },
		"LaunchStruct":    func() { r[0] = cudadrv.LaunchStruct(ctx, spin, 1, 1, 1, stream, uintptr(unsafe.Pointer(arg))) },
		"Copy":            func() { r[0] = cudadrv.Copy(ctx, p, p+2048, 16, stream) },
		"CopyIn":          func() { r[0] = cudadrv.CopyIn(ctx, p, b, stream, false) },
		"CopyOut":         func() { r[0] = cudadrv.CopyOut(ctx, b, p, stream) },
		"Memset":          func() { r[0] = cudadrv.Memset(ctx, p, 1, 16, stream) },
		"AllocAsync and FreeAsync": func() {
			var q uintptr
			q, r[0] = cudadrv.AllocAsync(ctx, 0, 512, stream)
			r[1] = cudadrv.FreeAsync(ctx, q, stream)
		},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Zero(t, testing.AllocsPerRun(100, f))
			assert.Equal(t, [2]cudadrv.Result{}, r)
		})
	}
}
