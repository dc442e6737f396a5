package cudadrv_test

import (
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"

	"github.com/cupool/cupool/internal/cudadrv"
)

// TestPointer asks about memory of each kind, and about what CUDA does not know.
func TestPointer(t *testing.T) {
	ctx, _ := open(t)
	const size = 1 << 20
	device := alloc(t, ctx, size)
	host, _ := pinned(t, ctx, size)
	managed, r := cudadrv.MemAllocManaged(ctx, size)
	ok(t, r)
	t.Cleanup(func() { ok(t, cudadrv.MemFree(ctx, managed)) })
	own := new([16]byte)
	for name, c := range map[string]struct {
		p, start uintptr
		want     cudadrv.PointerInfo
	}{
		"device":  {device + 100, device, cudadrv.PointerInfo{Known: true, Size: size}},
		"host":    {host, host, cudadrv.PointerInfo{Known: true, Host: true, Size: size}},
		"managed": {managed + size - 1, managed, cudadrv.PointerInfo{Known: true, Managed: true, Size: size}},
		"own":     {uintptr(unsafe.Pointer(own)), 0, cudadrv.PointerInfo{}},
	} {
		t.Run(name, func(t *testing.T) {
			got, r := cudadrv.Pointer(ctx, c.p)
			ok(t, r)
			if !c.want.Known {
				assert.False(t, got.Known)
				return
			}
			c.want.Start = c.start
			assert.Equal(t, c.want, got)
		})
	}
}

// TestCapture follows a stream from before its capture to the end, by both ends.
func TestCapture(t *testing.T) {
	ctx, stream := open(t)
	p := alloc(t, ctx, 4)
	state := func() cudadrv.Capture {
		c, id, r := cudadrv.StreamCapture(ctx, stream)
		ok(t, r)
		assert.Equal(t, c == cudadrv.Capturing, id != 0)
		return c
	}
	capture := func() {
		assert.Equal(t, cudadrv.NotCapturing, state())
		ok(t, cudadrv.StreamBeginCapture(ctx, stream))
		assert.Equal(t, cudadrv.Capturing, state())
		ok(t, cudadrv.Memset(ctx, p, 7, 4, stream))
	}
	capture()
	ok(t, cudadrv.StreamDropCapture(ctx, stream))
	capture()
	exec, r := cudadrv.StreamInstantiate(ctx, stream)
	ok(t, r)
	assert.Equal(t, cudadrv.NotCapturing, state())
	got := make([]byte, 4)
	ok(t, cudadrv.Memset(ctx, p, 0, 4, stream))
	ok(t, cudadrv.GraphLaunch(ctx, exec, stream))
	ok(t, cudadrv.CopyOut(ctx, got, p, stream))
	assert.Equal(t, []byte{7, 7, 7, 7}, got)
	ok(t, cudadrv.GraphDestroy(ctx, exec))
	assert.NotEqual(t, cudadrv.Success, cudadrv.StreamDropCapture(ctx, stream))
}
