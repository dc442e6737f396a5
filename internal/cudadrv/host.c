//go:build gpu

// Pinned host memory, managed memory, and handles for other processes.

#include "calls.h"

enum { LOCATION_DEVICE = 1 }; // CU_MEM_LOCATION_TYPE_DEVICE; HOST (2) and on came with CUDA 12.2

cp_value cp_host_alloc(uintptr_t ctx, size_t size, unsigned flags) {
	cp_value v = {CP_MISSING, 0};
	if (cp_memHostAlloc == NULL)
		return v;
	CP_RUN_VALUE(ctx, v, cp_memHostAlloc((void **)&v.value, size, flags));
}

int cp_host_free(uintptr_t ctx, uintptr_t p) {
	CP_RUN(ctx, cuMemFreeHost((void *)p));
}

static CUresult register_host(cp_value *v, void *p, size_t size, unsigned flags) {
	CUresult r = cp_memHostRegister(p, size, flags);
	if (r != CUDA_SUCCESS)
		return r;
	r = cp_memHostGetDevicePointer((CUdeviceptr *)&v->value, p, 0);
	if (r != CUDA_SUCCESS)
		(void)cp_memHostUnregister(p);
	return r;
}

// cp_host_register returns the address that the device has the memory at.
cp_value cp_host_register(uintptr_t ctx, void *p, size_t size, unsigned flags) {
	cp_value v = {CP_MISSING, 0};
	if (cp_memHostRegister == NULL || cp_memHostUnregister == NULL || cp_memHostGetDevicePointer == NULL)
		return v;
	CP_RUN_VALUE(ctx, v, register_host(&v, p, size, flags));
}

int cp_host_unregister(uintptr_t ctx, void *p) {
	if (cp_memHostUnregister == NULL)
		return CP_MISSING;
	CP_RUN(ctx, cp_memHostUnregister(p));
}

// Before CUDA 12.2 a location is a device ordinal, or -1 for the host as a
// whole.
static int ordinal(int location_type, int location_id) {
	return location_type == LOCATION_DEVICE ? location_id : CU_DEVICE_CPU;
}

int cp_prefetch(uintptr_t ctx, uintptr_t p, size_t n, int location_type, int location_id, uintptr_t stream) {
	CUmemLocation to = {(CUmemLocationType)location_type, location_id};
	if (cp_memPrefetchAsync != NULL)
		CP_RUN(ctx, cp_memPrefetchAsync((CUdeviceptr)p, n, to, 0, (CUstream)stream));
	if (cp_memPrefetchAsyncV1 == NULL)
		return CP_MISSING;
	CP_RUN(ctx, cp_memPrefetchAsyncV1((CUdeviceptr)p, n, ordinal(location_type, location_id), (CUstream)stream));
}

int cp_advise(uintptr_t ctx, uintptr_t p, size_t n, int advice, int location_type, int location_id) {
	CUmemLocation at = {(CUmemLocationType)location_type, location_id};
	if (cp_memAdvise != NULL)
		CP_RUN(ctx, cp_memAdvise((CUdeviceptr)p, n, (CUmem_advise)advice, at));
	if (cp_memAdviseV1 == NULL)
		return CP_MISSING;
	CP_RUN(ctx, cp_memAdviseV1((CUdeviceptr)p, n, (CUmem_advise)advice, ordinal(location_type, location_id)));
}

// cp_range_attr returns attributes that are one 32-bit number.
cp_value cp_range_attr(uintptr_t ctx, uintptr_t p, size_t n, int attr) {
	cp_value v = {CP_MISSING, 0};
	if (cp_memRangeGetAttribute == NULL)
		return v;
	CP_RUN_VALUE(ctx, v, cp_memRangeGetAttribute(&v.value, sizeof(int), (CUmem_range_attribute)attr, (CUdeviceptr)p, n));
}

int cp_ipc_get_mem(uintptr_t ctx, uintptr_t p, cp_ipc_handle *out) {
	if (cp_ipcGetMemHandle == NULL)
		return CP_MISSING;
	CP_RUN(ctx, cp_ipcGetMemHandle(out, (CUdeviceptr)p));
}

cp_value cp_ipc_open_mem(uintptr_t ctx, const cp_ipc_handle *h) {
	cp_value v = {CP_MISSING, 0};
	if (cp_ipcOpenMemHandle == NULL)
		return v;
	CP_RUN_VALUE(ctx, v, cp_ipcOpenMemHandle((CUdeviceptr *)&v.value, *h, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
}

int cp_ipc_close_mem(uintptr_t ctx, uintptr_t p) {
	if (cp_ipcCloseMemHandle == NULL)
		return CP_MISSING;
	CP_RUN(ctx, cp_ipcCloseMemHandle((CUdeviceptr)p));
}

int cp_ipc_get_event(uintptr_t ctx, uintptr_t event, cp_ipc_handle *out) {
	if (cp_ipcGetEventHandle == NULL)
		return CP_MISSING;
	CP_RUN(ctx, cp_ipcGetEventHandle(out, (CUevent)event));
}

cp_value cp_ipc_open_event(uintptr_t ctx, const cp_ipc_handle *h) {
	cp_value v = {CP_MISSING, 0};
	if (cp_ipcOpenEventHandle == NULL)
		return v;
	CP_RUN_VALUE(ctx, v, cp_ipcOpenEventHandle((CUevent *)&v.value, *h));
}
