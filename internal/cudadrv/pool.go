//go:build gpu

package cudadrv

/*
#include "calls.h"
*/
import "C"

import "unsafe"

// PointerExport is CUmemPoolPtrExportData: plain bytes to send elsewhere.
type PointerExport [64]byte

// AllocAsync is cuMemAllocAsync, or cuMemAllocFromPoolAsync when pool is
// not 0.
func AllocAsync(ctx, pool uintptr, size int64, stream uintptr) (uintptr, Result) {
	return value(C.cp_pool_alloc(C.uintptr_t(ctx), C.uintptr_t(pool), C.size_t(size), C.uintptr_t(stream)))
}

// FreeAsync is cuMemFreeAsync.
func FreeAsync(ctx, p, stream uintptr) Result {
	return Result(C.cp_pool_free(C.uintptr_t(ctx), C.uintptr_t(p), C.uintptr_t(stream)))
}

// DefaultPool is cuDeviceGetDefaultMemPool.
func DefaultPool(ctx uintptr, device int) (uintptr, Result) {
	return value(C.cp_pool_default(C.uintptr_t(ctx), C.int(device)))
}

// CurrentPool is cuDeviceGetMemPool.
func CurrentPool(ctx uintptr, device int) (uintptr, Result) {
	return value(C.cp_pool_current(C.uintptr_t(ctx), C.int(device)))
}

// SetCurrentPool is cuDeviceSetMemPool.
func SetCurrentPool(ctx uintptr, device int, pool uintptr) Result {
	return Result(C.cp_pool_make_current(C.uintptr_t(ctx), C.int(device), C.uintptr_t(pool)))
}

// The types of a pool's memory, CUmemAllocationType, of which headers before CUDA 13
// have the first alone.
const (
	allocationPinned  = 1
	allocationManaged = 2
)

// PoolCreate is cuMemPoolCreate at a location of CUDA's kind. maxSize, in bytes, is 0 for the driver's own
// limit; drivers before CUDA 12.2 do not know it.
func PoolCreate(ctx uintptr, managed bool, kind, id, handleTypes int, maxSize int64) (uintptr, Result) {
	allocation := allocationPinned
	if managed {
		allocation = allocationManaged
	}
	return value(C.cp_pool_create(C.uintptr_t(ctx), C.int(allocation), C.int(kind), C.int(id), C.int(handleTypes), C.size_t(maxSize)))
}

// PoolDestroy is cuMemPoolDestroy.
func PoolDestroy(ctx, pool uintptr) Result {
	return Result(C.cp_pool_destroy(C.uintptr_t(ctx), C.uintptr_t(pool)))
}

// PoolTrim is cuMemPoolTrimTo.
func PoolTrim(ctx, pool uintptr, keep int64) Result {
	return Result(C.cp_pool_trim(C.uintptr_t(ctx), C.uintptr_t(pool), C.size_t(keep)))
}

// PoolSetAttr is cuMemPoolSetAttribute, for attributes of either width.
func PoolSetAttr(ctx, pool uintptr, attr int, v uint64) Result {
	return Result(C.cp_pool_set_attr(C.uintptr_t(ctx), C.uintptr_t(pool), C.int(attr), C.uint64_t(v)))
}

// PoolAttr is cuMemPoolGetAttribute, for attributes of either width.
func PoolAttr(ctx, pool uintptr, attr int) (uint64, Result) {
	v := C.cp_pool_get_attr(C.uintptr_t(ctx), C.uintptr_t(pool), C.int(attr))
	return uint64(v.value), Result(v.err)
}

// PoolSetAccess is cuMemPoolSetAccess: 0 none, 1 read, 3 read and write.
func PoolSetAccess(ctx, pool uintptr, device, access int) Result {
	return Result(C.cp_pool_set_access(C.uintptr_t(ctx), C.uintptr_t(pool), C.int(device), C.int(access)))
}

// PoolAccess is cuMemPoolGetAccess.
func PoolAccess(ctx, pool uintptr, device int) (int, Result) {
	v := C.cp_pool_get_access(C.uintptr_t(ctx), C.uintptr_t(pool), C.int(device))
	return int(v.value), Result(v.err)
}

// PoolExportFD is cuMemPoolExportToShareableHandle as a file descriptor,
// which the caller closes.
func PoolExportFD(ctx, pool uintptr) (int, Result) {
	v := C.cp_pool_export_fd(C.uintptr_t(ctx), C.uintptr_t(pool))
	return int(v.value), Result(v.err)
}

// PoolImportFD is cuMemPoolImportFromShareableHandle. The descriptor stays
// the caller's.
func PoolImportFD(ctx uintptr, fd int) (uintptr, Result) {
	return value(C.cp_pool_import_fd(C.uintptr_t(ctx), C.int(fd)))
}

// PoolExportPointer is cuMemPoolExportPointer.
func PoolExportPointer(ctx, p uintptr) (PointerExport, Result) {
	var out PointerExport
	r := C.cp_pool_export_pointer(C.uintptr_t(ctx), C.uintptr_t(p), (*C.cp_pool_pointer)(unsafe.Pointer(&out)))
	return out, Result(r)
}

// PoolImportPointer is cuMemPoolImportPointer.
func PoolImportPointer(ctx, pool uintptr, data PointerExport) (uintptr, Result) {
	return value(C.cp_pool_import_pointer(C.uintptr_t(ctx), C.uintptr_t(pool), (*C.cp_pool_pointer)(unsafe.Pointer(&data))))
}
