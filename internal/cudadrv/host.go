//go:build gpu

package cudadrv

/*
#include "calls.h"
*/
import "C"

import "unsafe"

// Kinds of places that managed memory can be at.
const (
	AtDevice = 1 // the id is a device ordinal
	AtHost   = 2 // the id is ignored
	AtNUMA   = 3 // the id is a NUMA node; CUDA 12.2, else the host as a whole
)

// IPCHandle is CUipcMemHandle or CUipcEventHandle: plain bytes to send to
// another process.
type IPCHandle [64]byte

// HostAlloc is cuMemHostAlloc of memory that every context and the device at
// the same address can use.
func HostAlloc(ctx uintptr, size int64) (uintptr, Result) {
	return value(C.cp_host_alloc(C.uintptr_t(ctx), C.size_t(size), C.CU_MEMHOSTALLOC_PORTABLE|C.CU_MEMHOSTALLOC_DEVICEMAP))
}

// HostFree is cuMemFreeHost.
func HostFree(ctx, p uintptr) Result {
	return Result(C.cp_host_free(C.uintptr_t(ctx), C.uintptr_t(p)))
}

// HostRegister is cuMemHostRegister and cuMemHostGetDevicePointer. b is not
// empty. The driver keeps the address: Go memory has to be pinned until
// HostUnregister.
func HostRegister(ctx uintptr, b []byte) (uintptr, Result) {
	return value(C.cp_host_register(C.uintptr_t(ctx), unsafe.Pointer(&b[0]), C.size_t(len(b)), C.CU_MEMHOSTREGISTER_PORTABLE|C.CU_MEMHOSTREGISTER_DEVICEMAP))
}

// HostUnregister is cuMemHostUnregister.
func HostUnregister(ctx uintptr, b []byte) Result {
	return Result(C.cp_host_unregister(C.uintptr_t(ctx), unsafe.Pointer(&b[0])))
}

// Prefetch is cuMemPrefetchAsync.
func Prefetch(ctx, p uintptr, n int64, at, id int, stream uintptr) Result {
	return Result(C.cp_prefetch(C.uintptr_t(ctx), C.uintptr_t(p), C.size_t(n), C.int(at), C.int(id), C.uintptr_t(stream)))
}

// Advise is cuMemAdvise.
func Advise(ctx, p uintptr, n int64, advice, at, id int) Result {
	return Result(C.cp_advise(C.uintptr_t(ctx), C.uintptr_t(p), C.size_t(n), C.int(advice), C.int(at), C.int(id)))
}

// RangeAttr is cuMemRangeGetAttribute for attributes of one number.
func RangeAttr(ctx, p uintptr, n int64, attr int) (int32, Result) {
	v := C.cp_range_attr(C.uintptr_t(ctx), C.uintptr_t(p), C.size_t(n), C.int(attr))
	return int32(v.value), Result(v.err)
}

// IPCGetMem is cuIpcGetMemHandle.
func IPCGetMem(ctx, p uintptr) (IPCHandle, Result) {
	var h IPCHandle
	r := C.cp_ipc_get_mem(C.uintptr_t(ctx), C.uintptr_t(p), (*C.cp_ipc_handle)(unsafe.Pointer(&h)))
	return h, Result(r)
}

// IPCOpenMem is cuIpcOpenMemHandle.
func IPCOpenMem(ctx uintptr, h IPCHandle) (uintptr, Result) {
	return value(C.cp_ipc_open_mem(C.uintptr_t(ctx), (*C.cp_ipc_handle)(unsafe.Pointer(&h))))
}

// IPCCloseMem is cuIpcCloseMemHandle.
func IPCCloseMem(ctx, p uintptr) Result {
	return Result(C.cp_ipc_close_mem(C.uintptr_t(ctx), C.uintptr_t(p)))
}

// IPCGetEvent is cuIpcGetEventHandle.
func IPCGetEvent(ctx, event uintptr) (IPCHandle, Result) {
	var h IPCHandle
	r := C.cp_ipc_get_event(C.uintptr_t(ctx), C.uintptr_t(event), (*C.cp_ipc_handle)(unsafe.Pointer(&h)))
	return h, Result(r)
}

// IPCOpenEvent is cuIpcOpenEventHandle.
func IPCOpenEvent(ctx uintptr, h IPCHandle) (uintptr, Result) {
	return value(C.cp_ipc_open_event(C.uintptr_t(ctx), (*C.cp_ipc_handle)(unsafe.Pointer(&h))))
}
