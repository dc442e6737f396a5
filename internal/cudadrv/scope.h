//go:build gpu

#ifndef CUPOOL_SCOPE_H
#define CUPOOL_SCOPE_H

#include <cuda.h>
#include <stddef.h>
#include <stdint.h>

// What a call returns when the driver lacks its entry point. CUresult has no
// negative values.
#define CP_MISSING (-1)

// A result with a value, returned whole so that Go need not allocate room for
// an out parameter.
typedef struct {
	int err;
	uint64_t value;
} cp_value;

// cp_enter makes ctx the thread's context and sets *prev to the context that
// cp_leave has to restore, if any. Asking costs a few nanoseconds, setting
// many times that, so it sets only a change.
static inline CUresult cp_enter(uintptr_t ctx, CUcontext *prev) {
	CUcontext now = NULL;
	CUresult r = cuCtxGetCurrent(&now);
	*prev = NULL;
	if (r != CUDA_SUCCESS || now == (CUcontext)ctx)
		return r;
	r = cuCtxSetCurrent((CUcontext)ctx);
	if (r == CUDA_SUCCESS)
		*prev = now;
	return r;
}

static inline void cp_leave(CUcontext prev) {
	if (prev != NULL)
		(void)cuCtxSetCurrent(prev);
}

// CP_RUN is the body of a function that returns the CUresult of one call.
#define CP_RUN(ctx, call)                          \
	do {                                       \
		CUcontext prev_;                   \
		CUresult r_ = cp_enter(ctx, &prev_); \
		if (r_ != CUDA_SUCCESS)            \
			return (int)r_;            \
		r_ = (call);                       \
		cp_leave(prev_);                   \
		return (int)r_;                    \
	} while (0)

// CP_RUN_VALUE is CP_RUN for a call that also sets v.value.
#define CP_RUN_VALUE(ctx, v, call)                 \
	do {                                       \
		CUcontext prev_;                   \
		CUresult r_ = cp_enter(ctx, &prev_); \
		if (r_ == CUDA_SUCCESS) {          \
			r_ = (call);               \
			cp_leave(prev_);           \
		}                                  \
		(v).err = (int)r_;                 \
		return (v);                        \
	} while (0)

#endif
