//go:build gpu

// Virtual memory: addresses and physical memory apart. CUDA 10.2.

#include "calls.h"

static CUmemAllocationProp device_memory(int device, int handle_types) {
	CUmemAllocationProp prop = {0};
	prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
	prop.requestedHandleTypes = (CUmemAllocationHandleType)handle_types;
	prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
	prop.location.id = device;
	return prop;
}

cp_value cp_vmm_granularity(uintptr_t ctx, int device) {
	cp_value v = {CP_MISSING, 0};
	CUmemAllocationProp prop = device_memory(device, 0);
	if (cp_memGetAllocationGranularity == NULL)
		return v;
	CP_RUN_VALUE(ctx, v, cp_memGetAllocationGranularity((size_t *)&v.value, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
}

cp_value cp_vmm_reserve(uintptr_t ctx, size_t size) {
	cp_value v = {CP_MISSING, 0};
	if (cp_memAddressReserve == NULL)
		return v;
	CP_RUN_VALUE(ctx, v, cp_memAddressReserve((CUdeviceptr *)&v.value, size, 0, 0, 0));
}

int cp_vmm_free(uintptr_t ctx, uintptr_t p, size_t size) {
	if (cp_memAddressFree == NULL)
		return CP_MISSING;
	CP_RUN(ctx, cp_memAddressFree((CUdeviceptr)p, size));
}

cp_value cp_vmm_create(uintptr_t ctx, size_t size, int device, int handle_types) {
	cp_value v = {CP_MISSING, 0};
	CUmemAllocationProp prop = device_memory(device, handle_types);
	if (cp_memCreate == NULL)
		return v;
	CP_RUN_VALUE(ctx, v, cp_memCreate((CUmemGenericAllocationHandle *)&v.value, size, &prop, 0));
}

int cp_vmm_release(uintptr_t ctx, uint64_t handle) {
	if (cp_memRelease == NULL)
		return CP_MISSING;
	CP_RUN(ctx, cp_memRelease(handle));
}

int cp_vmm_map(uintptr_t ctx, uintptr_t p, size_t size, uint64_t handle) {
	if (cp_memMap == NULL)
		return CP_MISSING;
	CP_RUN(ctx, cp_memMap((CUdeviceptr)p, size, 0, handle, 0));
}

int cp_vmm_unmap(uintptr_t ctx, uintptr_t p, size_t size) {
	if (cp_memUnmap == NULL)
		return CP_MISSING;
	CP_RUN(ctx, cp_memUnmap((CUdeviceptr)p, size));
}

int cp_vmm_set_access(uintptr_t ctx, uintptr_t p, size_t size, const int *devices, size_t n, int may) {
	enum { MOST = 64 }; // devices of a computer
	CUmemAccessDesc desc[MOST] = {0};
	if (cp_memSetAccess == NULL)
		return CP_MISSING;
	if (n > MOST)
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < n; i++) {
		desc[i].location.type = CU_MEM_LOCATION_TYPE_DEVICE;
		desc[i].location.id = devices[i];
		desc[i].flags = may ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_NONE;
	}
	CP_RUN(ctx, cp_memSetAccess((CUdeviceptr)p, size, desc, n));
}

cp_value cp_vmm_get_access(uintptr_t ctx, uintptr_t p, int device) {
	cp_value v = {CP_MISSING, 0};
	CUmemLocation at = {CU_MEM_LOCATION_TYPE_DEVICE, device};
	if (cp_memGetAccess == NULL)
		return v;
	CP_RUN_VALUE(ctx, v, cp_memGetAccess((unsigned long long *)&v.value, &at, (CUdeviceptr)p));
}

cp_value cp_vmm_retain(uintptr_t ctx, uintptr_t p) {
	cp_value v = {CP_MISSING, 0};
	if (cp_memRetainAllocationHandle == NULL)
		return v;
	CP_RUN_VALUE(ctx, v, cp_memRetainAllocationHandle((CUmemGenericAllocationHandle *)&v.value, (void *)p));
}

cp_value cp_vmm_export_fd(uintptr_t ctx, uint64_t handle) {
	cp_value v = {CP_MISSING, 0};
	if (cp_memExportToShareableHandle == NULL)
		return v;
	// The driver writes an int; on the little-endian systems that have CUDA
	// it is the low half of the value.
	CP_RUN_VALUE(ctx, v, cp_memExportToShareableHandle(&v.value, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
}

cp_value cp_vmm_import_fd(uintptr_t ctx, int fd) {
	cp_value v = {CP_MISSING, 0};
	if (cp_memImportFromShareableHandle == NULL)
		return v;
	CP_RUN_VALUE(ctx, v, cp_memImportFromShareableHandle((CUmemGenericAllocationHandle *)&v.value, (void *)(uintptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
}
