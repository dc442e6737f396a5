package cudadrv

import "unsafe"

// Virtual memory: addresses and physical memory apart.

// Handle types of memory that other processes may open, as bits.
const (
	HandleNone   = 0
	HandleFD     = 1 // CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
	HandleFabric = 8 // CU_MEM_HANDLE_TYPE_FABRIC
)

// location is CUmemLocation.
type location struct{ kind, id int32 }

// word is the location as C passes it by value.
func (l location) word() uintptr { return uintptr(uint32(l.kind)) | uintptr(uint32(l.id))<<32 }

// allocationProp is CUmemAllocationProp.
type allocationProp struct {
	allocation  int32
	handleTypes int32
	location    location
	_           uintptr // win32HandleMetaData
	_           byte    // allocFlags.compressionType
	rdma        bool    // allocFlags.gpuDirectRDMACapable
	_           [6]byte
}

func deviceMemory(device, handleTypes int, rdma bool) allocationProp {
	return allocationProp{allocation: allocationPinned, handleTypes: int32(handleTypes), location: location{AtDevice, int32(device)}, rdma: rdma}
}

// accessDesc is CUmemAccessDesc.
type accessDesc struct {
	location location
	flags    int32
}

// What a device may do with memory: CUmemAccess_flags.
const (
	accessNone      = 0
	accessReadWrite = 3
)

// Granularity is cuMemGetAllocationGranularity for memory of the device.
func Granularity(ctx uintptr, device int) (int64, Result) {
	const minimum = 0 // CU_MEM_ALLOC_GRANULARITY_MINIMUM
	prop := deviceMemory(device, HandleNone, false)
	g, r := valueGo(ctx, fns.memGetAllocationGranularity, 0, 0, uintptr(unsafe.Pointer(&prop)), minimum)
	return int64(g), r
}

// AddressReserve is cuMemAddressReserve.
func AddressReserve(ctx uintptr, size int64) (uintptr, Result) {
	return value(ctx, fns.memAddressReserve, 0, 0, uintptr(size), 0, 0, 0)
}

// AddressFree is cuMemAddressFree.
func AddressFree(ctx, p uintptr, size int64) Result {
	return call(ctx, fns.memAddressFree, p, uintptr(size))
}

// MemCreate is cuMemCreate. handleTypes says how it may be exported, and rdma
// that network cards reach it.
func MemCreate(ctx uintptr, size int64, device, handleTypes int, rdma bool) (uintptr, Result) {
	prop := deviceMemory(device, handleTypes, rdma)
	return valueGo(ctx, fns.memCreate, 0, 0, uintptr(size), uintptr(unsafe.Pointer(&prop)), 0)
}

// MemRelease is cuMemRelease.
func MemRelease(ctx, handle uintptr) Result { return call(ctx, fns.memRelease, handle) }

// MemMap is cuMemMap of a whole handle.
func MemMap(ctx, p uintptr, size int64, handle uintptr) Result {
	return call(ctx, fns.memMap, p, uintptr(size), 0, handle, 0)
}

// MemUnmap is cuMemUnmap.
func MemUnmap(ctx, p uintptr, size int64) Result {
	return call(ctx, fns.memUnmap, p, uintptr(size))
}

// MemSetAccess is cuMemSetAccess: the devices, of which there is at least one,
// may read and write, or may not.
func MemSetAccess(ctx, p uintptr, size int64, devices []int32, may bool) Result {
	flags := int32(accessNone)
	if may {
		flags = accessReadWrite
	}
	descs := make([]accessDesc, len(devices))
	for i, d := range devices {
		descs[i] = accessDesc{location{AtDevice, d}, flags}
	}
	return callGo(ctx, fns.memSetAccess, p, uintptr(size), uintptr(unsafe.Pointer(&descs[0])), uintptr(len(descs)))
}

// MemGetAccess is cuMemGetAccess: 0 none, 1 read, 3 read and write.
func MemGetAccess(ctx, p uintptr, device int) (int, Result) {
	at := location{AtDevice, int32(device)}
	access, r := valueGo(ctx, fns.memGetAccess, 0, 0, uintptr(unsafe.Pointer(&at)), p)
	return int(access), r
}

// MemRetain is cuMemRetainAllocationHandle: the handle of what is mapped at p, which
// takes a MemRelease of its own.
func MemRetain(ctx, p uintptr) (uintptr, Result) {
	return value(ctx, fns.memRetainAllocationHandle, 0, 0, p)
}

// MemExportFD is cuMemExportToShareableHandle as a file descriptor, which the
// caller closes.
func MemExportFD(ctx, handle uintptr) (int, Result) {
	fd, r := value(ctx, fns.memExportToShareableHandle, 0, 0, handle, HandleFD, 0)
	return int(int32(fd)), r
}

// MemImportFD is cuMemImportFromShareableHandle. The descriptor stays the
// caller's.
func MemImportFD(ctx uintptr, fd int) (uintptr, Result) {
	return value(ctx, fns.memImportFromShareableHandle, 0, 0, uintptr(fd), HandleFD)
}

// MemExportFabric is cuMemExportToShareableHandle as a fabric handle.
func MemExportFabric(ctx, handle uintptr) (fabric [64]byte, r Result) {
	r = callGo(ctx, fns.memExportToShareableHandle, uintptr(unsafe.Pointer(&fabric)), handle, HandleFabric, 0)
	return fabric, r
}

// MemImportFabric is cuMemImportFromShareableHandle of a fabric handle.
func MemImportFabric(ctx uintptr, fabric [64]byte) (uintptr, Result) {
	return valueGo(ctx, fns.memImportFromShareableHandle, 0, 0, uintptr(unsafe.Pointer(&fabric)), HandleFabric)
}
