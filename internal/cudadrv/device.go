//go:build !cu

package cudadrv

import (
	"bytes"
	"fmt"
	"runtime"
	"unsafe"

	"github.com/cupool/cupool/internal/clib"
)

// Devices, contexts, memory, modules, and the making of streams and events.

// DeviceCount is cuDeviceGetCount.
func DeviceCount() (int, Result) {
	n, r := bareValue(fns.deviceGetCount, 0, 0)
	return int(n), r
}

// Device is cuDeviceGet.
func Device(ordinal int) (device int, r Result) {
	d, r := bareValue(fns.deviceGet, 0, 0, uintptr(ordinal))
	return int(int32(d)), r
}

// DeviceName is cuDeviceGetName.
func DeviceName(device int) (string, Result) {
	var name [256]byte
	r := bareGo(fns.deviceGetName, uintptr(unsafe.Pointer(&name)), uintptr(len(name)), uintptr(device))
	text, _, _ := bytes.Cut(name[:], []byte{0})
	return string(text), r
}

// DeviceUUID is cuDeviceGetUuid, as text without a prefix.
func DeviceUUID(device int) (string, Result) {
	var u [16]byte
	r := bareGo(fns.deviceGetUuid, uintptr(unsafe.Pointer(&u)), uintptr(device))
	return fmt.Sprintf("%x-%x-%x-%x-%x", u[:4], u[4:6], u[6:8], u[8:10], u[10:]), r
}

// DeviceMemory is cuDeviceTotalMem, in bytes.
func DeviceMemory(device int) (int64, Result) {
	n, r := bareValue(fns.deviceTotalMem, 0, 0, uintptr(device))
	return int64(n), r
}

// DeviceAttribute is cuDeviceGetAttribute.
func DeviceAttribute(device, attribute int) (int, Result) {
	v, r := bareValue(fns.deviceGetAttribute, 0, 0, uintptr(attribute), uintptr(device))
	return int(int32(v)), r
}

// RetainPrimary is cuDevicePrimaryCtxRetain.
func RetainPrimary(device int) (ctx uintptr, r Result) {
	return bareValue(fns.primaryCtxRetain, 0, 0, uintptr(device))
}

// ReleasePrimary is cuDevicePrimaryCtxRelease.
func ReleasePrimary(device int) Result { return bare(fns.primaryCtxRelease, uintptr(device)) }

// CurrentContext is cuCtxGetCurrent: the calling thread's, or 0.
func CurrentContext() (ctx uintptr, r Result) { return bareValue(fns.ctxGetCurrent, 0, 0) }

// ContextDevice is cuCtxGetDevice.
func ContextDevice(ctx uintptr) (device int, r Result) {
	d, r := value(ctx, fns.ctxGetDevice, 0, 0)
	return int(int32(d)), r
}

// Synchronize is cuCtxSynchronize: it waits for all work in the context.
func Synchronize(ctx uintptr) Result { return call(ctx, fns.ctxSynchronize) }

// MemAlloc is cuMemAlloc.
func MemAlloc(ctx uintptr, size int64) (p uintptr, r Result) {
	return value(ctx, fns.memAlloc, 0, 0, uintptr(size))
}

// MemAllocManaged is cuMemAllocManaged for all streams.
func MemAllocManaged(ctx uintptr, size int64) (p uintptr, r Result) {
	const global = 1 // CU_MEM_ATTACH_GLOBAL
	return value(ctx, fns.memAllocManaged, 0, 0, uintptr(size), global)
}

// MemFree is cuMemFree of what MemAlloc and MemAllocManaged returned.
func MemFree(ctx, p uintptr) Result { return call(ctx, fns.memFree, p) }

// HostFree is cuMemFreeHost.
func HostFree(ctx, p uintptr) Result { return call(ctx, fns.memFreeHost, p) }

// MemInfo is cuMemGetInfo, in bytes.
func MemInfo(ctx uintptr) (free, total int64, r Result) {
	s := [1]clib.Step{clib.StepOf(fns.memGetInfo, 0, 0)}
	s[0].Out(0, 0)
	s[0].Out(1, 1)
	r = run(ctx, s[:])
	return int64(s[0].Value(0)), int64(s[0].Value(1)), r
}

// NewStream is cuStreamCreate of a stream that does not wait for the null
// stream, nor the null stream for it.
func NewStream(ctx uintptr) (stream uintptr, r Result) {
	const nonBlocking = 1 // CU_STREAM_NON_BLOCKING
	return value(ctx, fns.streamCreate, 0, 0, nonBlocking)
}

// DestroyStream is cuStreamDestroy.
func DestroyStream(ctx, stream uintptr) Result { return call(ctx, fns.streamDestroy, stream) }

// NewEvent is cuEventCreate without timing.
func NewEvent(ctx uintptr) (event uintptr, r Result) {
	const disableTiming = 2 // CU_EVENT_DISABLE_TIMING
	return value(ctx, fns.eventCreate, 0, 0, disableTiming)
}

// DestroyEvent is cuEventDestroy.
func DestroyEvent(ctx, event uintptr) Result { return call(ctx, fns.eventDestroy, event) }

// ModuleLoad is cuModuleLoadData. The image is SASS, or PTX with a 0 at its end, and lies on
// Go's heap. It loads also while the calling thread captures a stream: what it does is
// done at once, and no part of the graph.
func ModuleLoad(ctx uintptr, image []byte) (uintptr, Result) {
	const relaxed = 2 // CU_STREAM_CAPTURE_MODE_RELAXED
	mode := clib.OnHeap(uint32(relaxed))
	exchange := clib.StepOf(fns.threadExchangeStreamCaptureMode, uintptr(unsafe.Pointer(mode)))
	exchange.Ignore, exchange.Always = true, true
	load := clib.StepOf(fns.moduleLoadData, 0, uintptr(unsafe.Pointer(unsafe.SliceData(image))))
	load.Out(0, 0)
	s := [3]clib.Step{exchange, load, exchange}
	steps := s[:]
	if exchange.Fn == 0 {
		steps = s[1:2]
	}
	r := run(ctx, steps)
	runtime.KeepAlive(mode)
	runtime.KeepAlive(image)
	return s[1].Value(0), r
}

// ModuleUnload is cuModuleUnload.
func ModuleUnload(ctx, module uintptr) Result { return call(ctx, fns.moduleUnload, module) }

// ModuleFunction is cuModuleGetFunction.
func ModuleFunction(ctx, module uintptr, name string) (uintptr, Result) {
	return valueGo(ctx, fns.moduleGetFunction, 0, 0, module, uintptr(unsafe.Pointer(clib.String(name))))
}

// CanAccessPeer is cuDeviceCanAccessPeer of two devices by ordinal.
func CanAccessPeer(ctx uintptr, device, peer int) (bool, Result) {
	can, r := value(ctx, fns.deviceCanAccessPeer, 0, 0, uintptr(device), uintptr(peer))
	return can != 0, r
}

// EnablePeer is cuCtxEnablePeerAccess: work in ctx may touch what cuMemAlloc
// returns in peer.
func EnablePeer(ctx, peer uintptr) Result { return call(ctx, fns.ctxEnablePeerAccess, peer, 0) }

// DisablePeer is cuCtxDisablePeerAccess.
func DisablePeer(ctx, peer uintptr) Result { return call(ctx, fns.ctxDisablePeerAccess, peer) }
