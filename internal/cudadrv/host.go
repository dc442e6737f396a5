package cudadrv

import (
	"runtime"
	"unsafe"

	"github.com/cupool/cupool/internal/clib"
)

// Pinned host memory, managed memory, and handles for other processes.

// AtDevice is the CUmemLocationType of a place whose id is a device's ordinal.
const AtDevice = 1

// IPCHandle is CUipcMemHandle: plain bytes to send to another process.
type IPCHandle [64]byte

// Host memory is for every context, and at the same address for the device: PORTABLE and DEVICEMAP
// of CU_MEMHOSTALLOC and of CU_MEMHOSTREGISTER.
const everywhere = 1 | 2

// HostAlloc is cuMemHostAlloc of memory that every context and the device at
// the same address can use.
func HostAlloc(ctx uintptr, size int64) (uintptr, Result) {
	return value(ctx, fns.memHostAlloc, 0, 0, uintptr(size), everywhere)
}

// HostRegister is cuMemHostRegister and cuMemHostGetDevicePointer. b is not
// empty. The driver keeps the address: Go memory has to be pinned until
// HostUnregister.
func HostRegister(ctx uintptr, b []byte) (uintptr, Result) {
	return hostRegister(ctx, uintptr(unsafe.Pointer(&b[0])), len(b))
}

//go:uintptrescapes
func hostRegister(ctx, p uintptr, n int) (uintptr, Result) {
	if fns.memHostRegister == 0 || fns.memHostUnregister == 0 || fns.memHostGetDevicePointer == 0 {
		return 0, Missing
	}
	s := [2]clib.Step{clib.StepOf(fns.memHostRegister, p, uintptr(n), everywhere), clib.StepOf(fns.memHostGetDevicePointer, 0, p, 0)}
	s[1].Out(0, 0)
	r := run(ctx, s[:])
	if r != Success && s[1].Err() != 0 {
		_ = call(ctx, fns.memHostUnregister, p)
	}
	return s[1].Value(0), r
}

// HostUnregister is cuMemHostUnregister.
func HostUnregister(ctx uintptr, b []byte) Result {
	return callGo(ctx, fns.memHostUnregister, uintptr(unsafe.Pointer(&b[0])))
}

// ordinal is the location for drivers before CUDA 12.2: a device's ordinal, or -1 for
// the host as a whole.
func ordinal(at, id int) uintptr {
	if at == AtDevice {
		return uintptr(id)
	}
	return ^uintptr(0)
}

// Prefetch is cuMemPrefetchAsync.
func Prefetch(ctx, p uintptr, n int64, at, id int, stream uintptr) Result {
	if fns.memPrefetchAsync == 0 {
		return call(ctx, fns.memPrefetchAsyncV1, p, uintptr(n), ordinal(at, id), stream)
	}
	return call(ctx, fns.memPrefetchAsync, p, uintptr(n), location{int32(at), int32(id)}.word(), 0, stream)
}

// Advise is cuMemAdvise.
func Advise(ctx, p uintptr, n int64, advice, at, id int) Result {
	if fns.memAdvise == 0 {
		return call(ctx, fns.memAdviseV1, p, uintptr(n), uintptr(advice), ordinal(at, id))
	}
	return call(ctx, fns.memAdvise, p, uintptr(n), uintptr(advice), location{int32(at), int32(id)}.word())
}

// IPCGetMem is cuIpcGetMemHandle.
func IPCGetMem(ctx, p uintptr) (h IPCHandle, r Result) {
	r = callGo(ctx, fns.ipcGetMemHandle, uintptr(unsafe.Pointer(&h)), p)
	return h, r
}

// IPCOpenMem is cuIpcOpenMemHandle, whose second argument is a handle by value.
func IPCOpenMem(ctx uintptr, h IPCHandle) (uintptr, Result) {
	const lazyPeerAccess = 1 // CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS
	if fns.ipcOpenMemHandle == 0 {
		return 0, Missing
	}
	handle := clib.OnHeap(h)
	s := [1]clib.Step{{Fn: fns.ipcOpenMemHandle, N: 1}}
	s[0].Out(0, 0)
	next := s[0].Bytes(1, handle[:])
	s[0].Args[next] = lazyPeerAccess
	s[0].N = max(s[0].N, next+1)
	r := run(ctx, s[:])
	runtime.KeepAlive(handle)
	return s[0].Value(0), r
}

// IPCCloseMem is cuIpcCloseMemHandle.
func IPCCloseMem(ctx, p uintptr) Result { return call(ctx, fns.ipcCloseMemHandle, p) }
