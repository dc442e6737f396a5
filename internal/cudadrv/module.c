//go:build gpu

// Kernels: those of the engine (internal/kernels) and of the tests on a GPU.

#include "calls.h"

#define MAX_ARGS 8

// load loads a module also while this thread captures a stream: what it does is
// done at once, and no part of the graph.
static CUresult load(CUmodule *m, const char *image) {
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	int exchanged = cp_threadExchangeStreamCaptureMode != NULL && cp_threadExchangeStreamCaptureMode(&mode) == CUDA_SUCCESS;
	CUresult r = cuModuleLoadData(m, image);
	if (exchanged)
		cp_threadExchangeStreamCaptureMode(&mode);
	return r;
}

cp_value cp_module_load(uintptr_t ctx, const char *image) {
	cp_value v = {0, 0};
	CP_RUN_VALUE(ctx, v, load((CUmodule *)&v.value, image));
}

int cp_module_unload(uintptr_t ctx, uintptr_t module) {
	CP_RUN(ctx, cuModuleUnload((CUmodule)module));
}

cp_value cp_module_function(uintptr_t ctx, uintptr_t module, const char *name) {
	cp_value v = {0, 0};
	CP_RUN_VALUE(ctx, v, cuModuleGetFunction((CUfunction *)&v.value, (CUmodule)module, name));
}

// cp_launch passes every argument by the address of its 8 bytes; a kernel
// with a shorter parameter reads the first of them.
int cp_launch(uintptr_t ctx, uintptr_t function, unsigned grid, unsigned block, uintptr_t stream, uint64_t *args, size_t n) {
	void *params[MAX_ARGS];
	if (n > MAX_ARGS)
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < n; i++)
		params[i] = &args[i];
	CP_RUN(ctx, cuLaunchKernel((CUfunction)function, grid, 1, 1, block, 1, 1, 0, (CUstream)stream, params, NULL));
}

// cp_launch_struct passes one argument, which the driver copies.
int cp_launch_struct(uintptr_t ctx, uintptr_t function, unsigned grid_x, unsigned grid_y, unsigned block, uintptr_t stream, void *args) {
	void *params[] = {args};
	CP_RUN(ctx, cuLaunchKernel((CUfunction)function, grid_x, grid_y, 1, block, 1, 1, 0, (CUstream)stream, params, NULL));
}
