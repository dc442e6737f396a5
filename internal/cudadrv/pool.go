package cudadrv

import "unsafe"

// The driver's own stream-ordered allocator.

// PointerExport is CUmemPoolPtrExportData: plain bytes to send elsewhere.
type PointerExport [64]byte

// AllocAsync is cuMemAllocAsync, or cuMemAllocFromPoolAsync when pool is
// not 0.
func AllocAsync(ctx, pool uintptr, size int64, stream uintptr) (uintptr, Result) {
	if pool == 0 {
		return value(ctx, fns.memAllocAsync, 0, 0, uintptr(size), stream)
	}
	return value(ctx, fns.memAllocFromPoolAsync, 0, 0, uintptr(size), pool, stream)
}

// FreeAsync is cuMemFreeAsync.
func FreeAsync(ctx, p, stream uintptr) Result { return call(ctx, fns.memFreeAsync, p, stream) }

// DefaultPool is cuDeviceGetDefaultMemPool.
func DefaultPool(ctx uintptr, device int) (uintptr, Result) {
	return value(ctx, fns.deviceGetDefaultMemPool, 0, 0, uintptr(device))
}

// CurrentPool is cuDeviceGetMemPool.
func CurrentPool(ctx uintptr, device int) (uintptr, Result) {
	return value(ctx, fns.deviceGetMemPool, 0, 0, uintptr(device))
}

// SetCurrentPool is cuDeviceSetMemPool.
func SetCurrentPool(ctx uintptr, device int, pool uintptr) Result {
	return call(ctx, fns.deviceSetMemPool, uintptr(device), pool)
}

// The types of a pool's memory, CUmemAllocationType.
const (
	allocationPinned  = 1
	allocationManaged = 2 // CUDA 13
)

// poolProps is CUmemPoolProps.
type poolProps struct {
	allocation  int32
	handleTypes int32
	location    location
	_           uintptr // win32SecurityAttributes
	maxSize     uintptr // CUDA 12.2
	_           [56]byte
}

// PoolCreate is cuMemPoolCreate at a location of CUDA's kind. maxSize, in bytes, is 0 for the driver's own
// limit; drivers before CUDA 12.2 do not know it.
func PoolCreate(ctx uintptr, managed bool, kind, id, handleTypes int, maxSize int64) (uintptr, Result) {
	props := poolProps{allocation: allocationPinned, handleTypes: int32(handleTypes), location: location{int32(kind), int32(id)}, maxSize: uintptr(maxSize)}
	if managed {
		props.allocation = allocationManaged
	}
	return valueGo(ctx, fns.memPoolCreate, 0, 0, uintptr(unsafe.Pointer(&props)))
}

// PoolDestroy is cuMemPoolDestroy.
func PoolDestroy(ctx, pool uintptr) Result { return call(ctx, fns.memPoolDestroy, pool) }

// PoolTrim is cuMemPoolTrimTo.
func PoolTrim(ctx, pool uintptr, keep int64) Result {
	return call(ctx, fns.memPoolTrimTo, pool, uintptr(keep))
}

// PoolSetAttr is cuMemPoolSetAttribute, for attributes of either width. Those up to
// CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES are an int.
func PoolSetAttr(ctx, pool uintptr, attr int, v uint64) Result {
	const lastInt = 3
	if attr <= lastInt && v != 0 {
		v = 1
	}
	return callGo(ctx, fns.memPoolSetAttribute, pool, uintptr(attr), uintptr(unsafe.Pointer(&v)))
}

// PoolAttr is cuMemPoolGetAttribute, for attributes of either width.
func PoolAttr(ctx, pool uintptr, attr int) (uint64, Result) {
	v, r := value(ctx, fns.memPoolGetAttribute, 2, pool, uintptr(attr), 0)
	return uint64(v), r
}

// PoolSetAccess is cuMemPoolSetAccess: 0 none, 1 read, 3 read and write.
func PoolSetAccess(ctx, pool uintptr, device, access int) Result {
	desc := accessDesc{location{AtDevice, int32(device)}, int32(access)}
	return callGo(ctx, fns.memPoolSetAccess, pool, uintptr(unsafe.Pointer(&desc)), 1)
}

// PoolAccess is cuMemPoolGetAccess.
func PoolAccess(ctx, pool uintptr, device int) (int, Result) {
	at := location{AtDevice, int32(device)}
	access, r := valueGo(ctx, fns.memPoolGetAccess, 0, 0, pool, uintptr(unsafe.Pointer(&at)))
	return int(access), r
}

// PoolExportFD is cuMemPoolExportToShareableHandle as a file descriptor,
// which the caller closes.
func PoolExportFD(ctx, pool uintptr) (int, Result) {
	fd, r := value(ctx, fns.memPoolExportToShareableHandle, 0, 0, pool, HandleFD, 0)
	return int(int32(fd)), r
}

// PoolImportFD is cuMemPoolImportFromShareableHandle. The descriptor stays
// the caller's.
func PoolImportFD(ctx uintptr, fd int) (uintptr, Result) {
	return value(ctx, fns.memPoolImportFromShareableHandle, 0, 0, uintptr(fd), HandleFD, 0)
}

// PoolExportPointer is cuMemPoolExportPointer.
func PoolExportPointer(ctx, p uintptr) (out PointerExport, r Result) {
	r = callGo(ctx, fns.memPoolExportPointer, uintptr(unsafe.Pointer(&out)), p)
	return out, r
}

// PoolImportPointer is cuMemPoolImportPointer.
func PoolImportPointer(ctx, pool uintptr, data PointerExport) (uintptr, Result) {
	return valueGo(ctx, fns.memPoolImportPointer, 0, 0, pool, uintptr(unsafe.Pointer(&data)))
}
