//go:build gpu

// The driver's own stream-ordered allocator. CUDA 11.2.

#include <string.h>

#include "calls.h"

// Attributes up to this one are an int, the later ones a cuuint64_t.
#define LAST_INT_ATTR 3 // CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES

cp_value cp_pool_alloc(uintptr_t ctx, uintptr_t pool, size_t size, uintptr_t stream) {
	cp_value v = {CP_MISSING, 0};
	if (cp_memAllocAsync == NULL || cp_memAllocFromPoolAsync == NULL)
		return v;
	if (pool == 0)
		CP_RUN_VALUE(ctx, v, cp_memAllocAsync((CUdeviceptr *)&v.value, size, (CUstream)stream));
	CP_RUN_VALUE(ctx, v, cp_memAllocFromPoolAsync((CUdeviceptr *)&v.value, size, (cp_pool)pool, (CUstream)stream));
}

int cp_pool_free(uintptr_t ctx, uintptr_t p, uintptr_t stream) {
	if (cp_memFreeAsync == NULL)
		return CP_MISSING;
	CP_RUN(ctx, cp_memFreeAsync((CUdeviceptr)p, (CUstream)stream));
}

cp_value cp_pool_default(uintptr_t ctx, int device) {
	cp_value v = {CP_MISSING, 0};
	if (cp_deviceGetDefaultMemPool == NULL)
		return v;
	CP_RUN_VALUE(ctx, v, cp_deviceGetDefaultMemPool((cp_pool *)&v.value, device));
}

cp_value cp_pool_current(uintptr_t ctx, int device) {
	cp_value v = {CP_MISSING, 0};
	if (cp_deviceGetMemPool == NULL)
		return v;
	CP_RUN_VALUE(ctx, v, cp_deviceGetMemPool((cp_pool *)&v.value, device));
}

int cp_pool_make_current(uintptr_t ctx, int device, uintptr_t pool) {
	if (cp_deviceSetMemPool == NULL)
		return CP_MISSING;
	CP_RUN(ctx, cp_deviceSetMemPool(device, (cp_pool)pool));
}

cp_value cp_pool_create(uintptr_t ctx, int allocation, int location, int id, int handle_types, size_t max_size) {
	cp_value v = {CP_MISSING, 0};
	cp_pool_props props = {0};
	if (cp_memPoolCreate == NULL)
		return v;
	props.allocType = allocation;
	props.handleTypes = handle_types;
	props.location.type = location;
	props.location.id = id;
	props.maxSize = max_size;
	CP_RUN_VALUE(ctx, v, cp_memPoolCreate((cp_pool *)&v.value, &props));
}

int cp_pool_destroy(uintptr_t ctx, uintptr_t pool) {
	if (cp_memPoolDestroy == NULL)
		return CP_MISSING;
	CP_RUN(ctx, cp_memPoolDestroy((cp_pool)pool));
}

int cp_pool_trim(uintptr_t ctx, uintptr_t pool, size_t keep) {
	if (cp_memPoolTrimTo == NULL)
		return CP_MISSING;
	CP_RUN(ctx, cp_memPoolTrimTo((cp_pool)pool, keep));
}

int cp_pool_set_attr(uintptr_t ctx, uintptr_t pool, int attr, uint64_t value) {
	int flag = value != 0;
	void *data = attr <= LAST_INT_ATTR ? (void *)&flag : (void *)&value;
	if (cp_memPoolSetAttribute == NULL)
		return CP_MISSING;
	CP_RUN(ctx, cp_memPoolSetAttribute((cp_pool)pool, attr, data));
}

cp_value cp_pool_get_attr(uintptr_t ctx, uintptr_t pool, int attr) {
	cp_value v = {CP_MISSING, 0};
	if (cp_memPoolGetAttribute == NULL)
		return v;
	CP_RUN_VALUE(ctx, v, cp_memPoolGetAttribute((cp_pool)pool, attr, &v.value));
}

int cp_pool_set_access(uintptr_t ctx, uintptr_t pool, int device, int flags) {
	CUmemAccessDesc desc = {0};
	if (cp_memPoolSetAccess == NULL)
		return CP_MISSING;
	desc.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
	desc.location.id = device;
	desc.flags = (CUmemAccess_flags)flags;
	CP_RUN(ctx, cp_memPoolSetAccess((cp_pool)pool, &desc, 1));
}

cp_value cp_pool_get_access(uintptr_t ctx, uintptr_t pool, int device) {
	cp_value v = {CP_MISSING, 0};
	CUmemLocation at = {CU_MEM_LOCATION_TYPE_DEVICE, device};
	if (cp_memPoolGetAccess == NULL)
		return v;
	CP_RUN_VALUE(ctx, v, cp_memPoolGetAccess((CUmemAccess_flags *)&v.value, (cp_pool)pool, &at));
}

cp_value cp_pool_export_fd(uintptr_t ctx, uintptr_t pool) {
	cp_value v = {CP_MISSING, 0};
	if (cp_memPoolExportToShareableHandle == NULL)
		return v;
	CP_RUN_VALUE(ctx, v, cp_memPoolExportToShareableHandle(&v.value, (cp_pool)pool, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
}

cp_value cp_pool_import_fd(uintptr_t ctx, int fd) {
	cp_value v = {CP_MISSING, 0};
	if (cp_memPoolImportFromShareableHandle == NULL)
		return v;
	CP_RUN_VALUE(ctx, v, cp_memPoolImportFromShareableHandle((cp_pool *)&v.value, (void *)(uintptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
}

int cp_pool_export_pointer(uintptr_t ctx, uintptr_t p, cp_pool_pointer *out) {
	if (cp_memPoolExportPointer == NULL)
		return CP_MISSING;
	CP_RUN(ctx, cp_memPoolExportPointer(out, (CUdeviceptr)p));
}

cp_value cp_pool_import_pointer(uintptr_t ctx, uintptr_t pool, const cp_pool_pointer *data) {
	cp_value v = {CP_MISSING, 0};
	cp_pool_pointer copy;
	if (cp_memPoolImportPointer == NULL)
		return v;
	memcpy(&copy, data, sizeof copy);
	CP_RUN_VALUE(ctx, v, cp_memPoolImportPointer((CUdeviceptr *)&v.value, (cp_pool)pool, &copy));
}
