//go:build gpu

package cudadrv

/*
#include "calls.h"
*/
import "C"

import "unsafe"

// Handle types of memory that other processes may open, as bits.
const (
	HandleNone = 0
	HandleFD   = C.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
)

// Granularity is cuMemGetAllocationGranularity for memory of the device.
func Granularity(ctx uintptr, device int) (int64, Result) {
	v := C.cp_vmm_granularity(C.uintptr_t(ctx), C.int(device))
	return int64(v.value), Result(v.err)
}

// AddressReserve is cuMemAddressReserve.
func AddressReserve(ctx uintptr, size int64) (uintptr, Result) {
	return value(C.cp_vmm_reserve(C.uintptr_t(ctx), C.size_t(size)))
}

// AddressFree is cuMemAddressFree.
func AddressFree(ctx, p uintptr, size int64) Result {
	return Result(C.cp_vmm_free(C.uintptr_t(ctx), C.uintptr_t(p), C.size_t(size)))
}

// MemCreate is cuMemCreate. handleTypes says how it may be exported.
func MemCreate(ctx uintptr, size int64, device, handleTypes int) (uintptr, Result) {
	return value(C.cp_vmm_create(C.uintptr_t(ctx), C.size_t(size), C.int(device), C.int(handleTypes)))
}

// MemRelease is cuMemRelease.
func MemRelease(ctx, handle uintptr) Result {
	return Result(C.cp_vmm_release(C.uintptr_t(ctx), C.uint64_t(handle)))
}

// MemMap is cuMemMap of a whole handle.
func MemMap(ctx, p uintptr, size int64, handle uintptr) Result {
	return Result(C.cp_vmm_map(C.uintptr_t(ctx), C.uintptr_t(p), C.size_t(size), C.uint64_t(handle)))
}

// MemUnmap is cuMemUnmap.
func MemUnmap(ctx, p uintptr, size int64) Result {
	return Result(C.cp_vmm_unmap(C.uintptr_t(ctx), C.uintptr_t(p), C.size_t(size)))
}

// MemSetAccess is cuMemSetAccess: the devices, of which there is at least one,
// may read and write, or may not.
func MemSetAccess(ctx, p uintptr, size int64, devices []int32, may bool) Result {
	m := C.int(0)
	if may {
		m = 1
	}
	return Result(C.cp_vmm_set_access(C.uintptr_t(ctx), C.uintptr_t(p), C.size_t(size), (*C.int)(unsafe.Pointer(&devices[0])), C.size_t(len(devices)), m))
}

// MemGetAccess is cuMemGetAccess: 0 none, 1 read, 3 read and write.
func MemGetAccess(ctx, p uintptr, device int) (int, Result) {
	v := C.cp_vmm_get_access(C.uintptr_t(ctx), C.uintptr_t(p), C.int(device))
	return int(v.value), Result(v.err)
}

// MemRetain is cuMemRetainAllocationHandle: the handle of what is mapped at p, which
// takes a MemRelease of its own.
func MemRetain(ctx, p uintptr) (uintptr, Result) {
	return value(C.cp_vmm_retain(C.uintptr_t(ctx), C.uintptr_t(p)))
}

// MemExportFD is cuMemExportToShareableHandle as a file descriptor, which the
// caller closes.
func MemExportFD(ctx, handle uintptr) (int, Result) {
	v := C.cp_vmm_export_fd(C.uintptr_t(ctx), C.uint64_t(handle))
	return int(v.value), Result(v.err)
}

// MemImportFD is cuMemImportFromShareableHandle. The descriptor stays the
// caller's.
func MemImportFD(ctx uintptr, fd int) (uintptr, Result) {
	return value(C.cp_vmm_import_fd(C.uintptr_t(ctx), C.int(fd)))
}
