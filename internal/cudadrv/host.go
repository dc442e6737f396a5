package cudadrv

import (
	"runtime"
	"unsafe"

	"github.com/cupool/cupool/internal/clib"
)

// Pinned host memory, managed memory, and handles for other processes.

// Kinds of places that managed memory can be at: CUmemLocationType.
const (
	AtDevice = 1 // the id is a device ordinal
	AtHost   = 2 // the id is ignored
	AtNUMA   = 3 // the id is a NUMA node; CUDA 12.2, else the host as a whole
)

// IPCHandle is CUipcMemHandle or CUipcEventHandle: plain bytes to send to
// another process.
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

// IPCOpenMem is cuIpcOpenMemHandle.
func IPCOpenMem(ctx uintptr, h IPCHandle) (uintptr, Result) {
	const lazyPeerAccess = 1 // CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS
	return openIPC(ctx, fns.ipcOpenMemHandle, clib.OnHeap(h), lazyPeerAccess)
}

// IPCCloseMem is cuIpcCloseMemHandle.
func IPCCloseMem(ctx, p uintptr) Result { return call(ctx, fns.ipcCloseMemHandle, p) }

// IPCGetEvent is cuIpcGetEventHandle.
func IPCGetEvent(ctx, event uintptr) (h IPCHandle, r Result) {
	r = callGo(ctx, fns.ipcGetEventHandle, uintptr(unsafe.Pointer(&h)), event)
	return h, r
}

// IPCOpenEvent is cuIpcOpenEventHandle.
func IPCOpenEvent(ctx uintptr, h IPCHandle) (uintptr, Result) {
	return openIPC(ctx, fns.ipcOpenEventHandle, clib.OnHeap(h))
}

// openIPC makes a call whose second argument is a handle by value.
func openIPC(ctx, fn uintptr, h *IPCHandle, more ...uintptr) (uintptr, Result) {
	if fn == 0 {
		return 0, Missing
	}
	s := [1]clib.Step{{Fn: fn, N: 1}}
	s[0].Out(0, 0)
	next := s[0].Bytes(1, h[:])
	s[0].N = max(s[0].N, next+copy(s[0].Args[next:], more))
	r := run(ctx, s[:])
	runtime.KeepAlive(h)
	return s[0].Value(0), r
}
