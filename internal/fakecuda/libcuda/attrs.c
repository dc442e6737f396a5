#include "fake.h"

#include <string.h>

static bool attribute(void *out, CUpointer_attribute attr, const range *r) {
	switch (attr) {
	case CU_POINTER_ATTRIBUTE_CONTEXT:
		*(CUcontext *)out = r ? r->ctx : NULL;
		return true;
	case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
		*(unsigned *)out = !r ? 0 : r->kind == PINNED || r->kind == REGISTERED ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
		return true;
	case CU_POINTER_ATTRIBUTE_IS_MANAGED:
		*(unsigned *)out = r && r->kind == MANAGED;
		return true;
	case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
		*(int *)out = r ? r->device : -2;
		return true;
	case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
		*(addr *)out = r ? r->start : 0;
		return true;
	case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
		*(size_t *)out = r ? r->size : 0;
		return true;
	default:
		return false;
	}
}

CUresult cuPointerGetAttributes(unsigned n, CUpointer_attribute *attrs, void **data, CUdeviceptr p) {
	FAKE_CALL(true);
	CUresult res = CUDA_SUCCESS;
	pthread_rwlock_rdlock(&fake_mem);
	range *r = fake_range(p);
	for (unsigned i = 0; i < n; i++)
		if (!attribute(data[i], attrs[i], r))
			res = CUDA_ERROR_NOT_SUPPORTED;
	pthread_rwlock_unlock(&fake_mem);
	return res;
}

CUresult cuPointerGetAttribute(void *data, CUpointer_attribute attr, CUdeviceptr p) {
	FAKE_CALL(true);
	pthread_rwlock_rdlock(&fake_mem);
	range *r = fake_range(p);
	bool ok = r != NULL && attribute(data, attr, r);
	pthread_rwlock_unlock(&fake_mem);
	return ok ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

// Managed memory is everywhere at once here; hints are checked, not followed.

static CUresult hint(addr p, size_t n) {
	pthread_rwlock_rdlock(&fake_mem);
	range *r = fake_range(p);
	bool ok = r != NULL && r->kind == MANAGED && n <= r->size - (p - r->start);
	pthread_rwlock_unlock(&fake_mem);
	return ok ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemPrefetchAsync(CUdeviceptr p, size_t n, CUdevice to, CUstream s) {
	FAKE_CALL(true);
	(void)s;
	return to >= -1 && to < fake_devices ? hint(p, n) : CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuMemPrefetchAsync_v2(CUdeviceptr p, size_t n, CUmemLocation to, unsigned flags, CUstream s) {
	FAKE_CALL(true);
	(void)s;
	if (flags != 0 || (to.type == CU_MEM_LOCATION_TYPE_DEVICE && (to.id < 0 || to.id >= fake_devices)))
		return CUDA_ERROR_INVALID_VALUE;
	return hint(p, n);
}

CUresult cuMemAdvise(CUdeviceptr p, size_t n, CUmem_advise advice, CUdevice d) {
	FAKE_CALL(true);
	(void)d;
	return advice >= 1 && advice <= 6 ? hint(p, n) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemAdvise_v2(CUdeviceptr p, size_t n, CUmem_advise advice, CUmemLocation at) {
	FAKE_CALL(true);
	(void)at;
	return advice >= 1 && advice <= 6 ? hint(p, n) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemRangeGetAttribute(void *data, size_t size, CUmem_range_attribute attr, CUdeviceptr p, size_t n) {
	FAKE_CALL(true);
	(void)attr;
	memset(data, 0, size);
	return hint(p, n);
}
