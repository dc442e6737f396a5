//go:build gpu

// The calls on the allocator's own paths. All of them are entry points that
// gorgonia.org/cu links as well.

#include "calls.h"

int cp_event_record(uintptr_t ctx, uintptr_t event, uintptr_t stream) {
	CP_RUN(ctx, cuEventRecord((CUevent)event, (CUstream)stream));
}

int cp_event_query(uintptr_t ctx, uintptr_t event) {
	CP_RUN(ctx, cuEventQuery((CUevent)event));
}

// cp_event_query_all counts the done events up to the first that is not.
cp_value cp_event_query_all(uintptr_t ctx, const uintptr_t *events, size_t n) {
	CUcontext prev;
	cp_value v = {(int)cp_enter(ctx, &prev), 0};
	if (v.err != CUDA_SUCCESS)
		return v;
	while (v.value < n) {
		v.err = (int)cuEventQuery((CUevent)events[v.value]);
		if (v.err != CUDA_SUCCESS)
			break;
		v.value++;
	}
	cp_leave(prev);
	if (v.err == CUDA_ERROR_NOT_READY)
		v.err = CUDA_SUCCESS;
	return v;
}

int cp_event_sync(uintptr_t ctx, uintptr_t event) {
	CP_RUN(ctx, cuEventSynchronize((CUevent)event));
}

int cp_stream_wait_event(uintptr_t ctx, uintptr_t stream, uintptr_t event) {
	CP_RUN(ctx, cuStreamWaitEvent((CUstream)stream, (CUevent)event, 0));
}

int cp_stream_sync(uintptr_t ctx, uintptr_t stream) {
	CP_RUN(ctx, cuStreamSynchronize((CUstream)stream));
}

// cuMemcpyAsync finds out from the addresses where each of them lies.
int cp_copy(uintptr_t ctx, uintptr_t dst, uintptr_t src, size_t n, uintptr_t stream) {
	CP_RUN(ctx, cuMemcpyAsync((CUdeviceptr)dst, (CUdeviceptr)src, n, (CUstream)stream));
}

// page_locked reports whether the driver copies straight from p, that is,
// possibly after cuMemcpyHtoDAsync has returned. Other host memory it copies
// into a buffer of its own before it returns.
static int page_locked(const void *p) {
	unsigned type = 0;
	CUpointer_attribute attr = CU_POINTER_ATTRIBUTE_MEMORY_TYPE;
	void *data = &type;
	if (cp_pointerGetAttributes == NULL)
		return 1;
	return cp_pointerGetAttributes(1, &attr, &data, (CUdeviceptr)p) != CUDA_SUCCESS || type != 0;
}

static CUresult copy_in(uintptr_t dst, const void *src, size_t n, CUstream stream, int wait) {
	CUresult r = cuMemcpyHtoDAsync((CUdeviceptr)dst, src, n, stream);
	if (r == CUDA_ERROR_INVALID_VALUE) // a pool in host memory is no device
		r = cuMemcpyAsync((CUdeviceptr)dst, (CUdeviceptr)src, n, stream);
	if (r == CUDA_SUCCESS && (wait || page_locked(src)))
		r = cuStreamSynchronize(stream);
	return r;
}

int cp_copy_in(uintptr_t ctx, uintptr_t dst, const void *src, size_t n, uintptr_t stream, int wait) {
	CP_RUN(ctx, copy_in(dst, src, n, (CUstream)stream, wait));
}

static CUresult copy_out(void *dst, uintptr_t src, size_t n, CUstream stream) {
	CUresult r = cuMemcpyDtoHAsync(dst, (CUdeviceptr)src, n, stream);
	if (r == CUDA_ERROR_INVALID_VALUE) // likewise
		r = cuMemcpyAsync((CUdeviceptr)dst, (CUdeviceptr)src, n, stream);
	return r != CUDA_SUCCESS ? r : cuStreamSynchronize(stream);
}

int cp_copy_out(uintptr_t ctx, void *dst, uintptr_t src, size_t n, uintptr_t stream) {
	CP_RUN(ctx, copy_out(dst, src, n, (CUstream)stream));
}

int cp_memset(uintptr_t ctx, uintptr_t dst, unsigned char value, size_t n, uintptr_t stream) {
	CP_RUN(ctx, cuMemsetD8Async((CUdeviceptr)dst, value, n, (CUstream)stream));
}
