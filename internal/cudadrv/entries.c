//go:build gpu

#ifndef _GNU_SOURCE
#define _GNU_SOURCE // RTLD_DEFAULT
#endif
#include <dlfcn.h>

#include "entries.h"

#if CUDA_VERSION >= 11020
_Static_assert(sizeof(cp_pool_props) == sizeof(CUmemPoolProps), "CUmemPoolProps");
_Static_assert(offsetof(cp_pool_props, location) == offsetof(CUmemPoolProps, location), "CUmemPoolProps.location");
_Static_assert(sizeof(cp_pool_pointer) == sizeof(CUmemPoolPtrExportData), "CUmemPoolPtrExportData");
#endif
#if CUDA_VERSION >= 12030
_Static_assert(offsetof(cp_pool_props, maxSize) == offsetof(CUmemPoolProps, maxSize), "CUmemPoolProps.maxSize");
#endif
#if CUDA_VERSION >= 13000
_Static_assert(offsetof(cp_pool_props, usage) == offsetof(CUmemPoolProps, usage), "CUmemPoolProps.usage");
#endif
_Static_assert(sizeof(cp_ipc_handle) == sizeof(CUipcMemHandle), "CUipcMemHandle");
_Static_assert(sizeof(cp_ipc_handle) == sizeof(CUipcEventHandle), "CUipcEventHandle");
_Static_assert(sizeof(CUdeviceptr) == sizeof(uintptr_t), "64-bit systems only");

#define CP_DEFINE(id, base, symbol, since, args) cp_##id##_fn cp_##id;
CP_ENTRIES(CP_DEFINE)
#undef CP_DEFINE

// cuGetProcAddress came with CUDA 11.3 and took its last parameter with 12.0;
// either may be missing, so it is itself looked up by name.
typedef CUresult(CUDAAPI *proc_address_v1)(const char *name, void **fn, int version, cuuint64_t flags);
typedef CUresult(CUDAAPI *proc_address_v2)(const char *name, void **fn, int version, cuuint64_t flags, int *status);

static void *find(int driver, const char *base, const char *symbol, int since) {
	static void *v1, *v2;
	static int looked;
	void *fn = NULL;
	if (driver < since)
		return NULL;
	if (!looked) {
		v1 = dlsym(RTLD_DEFAULT, "cuGetProcAddress");
		v2 = dlsym(RTLD_DEFAULT, "cuGetProcAddress_v2");
		looked = 1;
	}
	if (v2 != NULL && ((proc_address_v2)v2)(base, &fn, since, 0, NULL) == CUDA_SUCCESS && fn != NULL)
		return fn;
	if (v2 == NULL && v1 != NULL && ((proc_address_v1)v1)(base, &fn, since, 0) == CUDA_SUCCESS && fn != NULL)
		return fn;
	return dlsym(RTLD_DEFAULT, symbol);
}

void cp_load(void) {
	int driver = 0;
	if (cuDriverGetVersion(&driver) != CUDA_SUCCESS)
		return;
#define CP_FIND(id, base, symbol, since, args) cp_##id = (cp_##id##_fn)find(driver, base, symbol, since);
	CP_ENTRIES(CP_FIND)
#undef CP_FIND
}

cp_entry_info cp_entry(int i) {
#define CP_INFO(id, base, symbol, since, args) {base, since, cp_##id != NULL},
	cp_entry_info all[] = {CP_ENTRIES(CP_INFO){NULL, 0, 0}};
#undef CP_INFO
	return all[i];
}
