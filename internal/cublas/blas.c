//go:build gpu

#include "blas.h"

#include <dlfcn.h>
#include <stdlib.h>

#include "../cudadrv/scope.h"

// The calls, declared here so that cuBLAS' headers are not needed. They are
// the same in all versions from 11 on.
typedef void *handle;
static struct {
	int (*create)(handle *);
	int (*destroy)(handle);
	int (*version)(handle, int *);
	int (*set_stream)(handle, void *);
	int (*set_workspace)(handle, void *, size_t);
	int (*set_math)(handle, int);
	int (*sgemm)(handle, int, int, int, int, int, const float *, uint64_t, int, uint64_t, int, const float *, uint64_t, int);
	int (*dgemm)(handle, int, int, int, int, int, const double *, uint64_t, int, uint64_t, int, const double *, uint64_t, int);
	int (*sbatched)(handle, int, int, int, int, int, const float *, uint64_t, int, long long, uint64_t, int, long long, const float *, uint64_t, int, long long, int);
	int (*dbatched)(handle, int, int, int, int, int, const double *, uint64_t, int, long long, uint64_t, int, long long, const double *, uint64_t, int, long long, int);
} lib;

struct cp_blas {
	handle h;
	uintptr_t stream;
	uint64_t workspace, workspace_size;
	int64_t tf32;
};

static const struct {
	const char *name;
	void *fn;
} symbols[] = {
	{"cublasCreate_v2", &lib.create},
	{"cublasDestroy_v2", &lib.destroy},
	{"cublasGetVersion_v2", &lib.version},
	{"cublasSetStream_v2", &lib.set_stream},
	{"cublasSetWorkspace_v2", &lib.set_workspace},
	{"cublasSetMathMode", &lib.set_math},
	{"cublasSgemm_v2", &lib.sgemm},
	{"cublasDgemm_v2", &lib.dgemm},
	{"cublasSgemmStridedBatched", &lib.sbatched},
	{"cublasDgemmStridedBatched", &lib.dbatched},
};

const char *cp_blas_load(void) {
	static const char *const names[] = {"libcublas.so.13", "libcublas.so.12", "libcublas.so.11", "libcublas.so"};
	void *so = NULL;
	for (size_t i = 0; so == NULL && i < sizeof names / sizeof *names; i++)
		so = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
	if (so == NULL)
		return dlerror();
	for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++) {
		void *fn = dlsym(so, symbols[i].name);
		if (fn == NULL)
			return dlerror();
		*(void **)symbols[i].fn = fn;
	}
	return NULL;
}

// run makes calls in a context; inside, r is the status.
#define RUN(ctx, calls)                                   \
	do {                                              \
		CUcontext prev;                           \
		CUresult entered = cp_enter(ctx, &prev);  \
		int r = 0;                                \
		if (entered != CUDA_SUCCESS)              \
			return CP_BLAS_DRIVER - (int)entered; \
		calls                                     \
		cp_leave(prev);                           \
		return r;                                 \
	} while (0)

int cp_blas_create(uintptr_t ctx, cp_blas **out, int *version) {
	cp_blas *b = calloc(1, sizeof *b);
	*out = b;
	RUN(ctx, {
		r = lib.create(&b->h);
		if (r == 0)
			r = lib.version(b->h, version);
		if (r != 0)
			free(b);
	});
}

int cp_blas_destroy(uintptr_t ctx, cp_blas *b) {
	RUN(ctx, {
		r = lib.destroy(b->h);
		free(b);
	});
}

// prepare sets on the handle what is not set already. To set the stream takes
// the workspace back.
static int prepare(cp_blas *b, uintptr_t stream, const cp_gemm_args *g) {
	int r = 0;
	if (b->stream != stream) {
		r = lib.set_stream(b->h, (void *)stream);
		b->stream = stream;
		b->workspace = 0;
	}
	if (r == 0 && (b->workspace != g->workspace || b->workspace_size != g->workspace_size)) {
		r = lib.set_workspace(b->h, (void *)g->workspace, g->workspace_size);
		b->workspace = g->workspace;
		b->workspace_size = g->workspace_size;
	}
	if (r == 0 && b->tf32 != g->tf32) {
		r = lib.set_math(b->h, g->tf32 ? 3 : 0); // CUBLAS_TF32_TENSOR_OP_MATH, CUBLAS_DEFAULT_MATH
		b->tf32 = g->tf32;
	}
	return r;
}

static int gemm(handle h, const cp_gemm_args *g) {
	int ta = (int)g->ta, tb = (int)g->tb, m = (int)g->m, n = (int)g->n, k = (int)g->k;
	int lda = (int)g->lda, ldb = (int)g->ldb, ldc = (int)g->ldc;
	float alpha = (float)g->alpha, beta = (float)g->beta;
	if (g->batch == 1 && g->wide)
		return lib.dgemm(h, ta, tb, m, n, k, &g->alpha, g->a, lda, g->b, ldb, &g->beta, g->c, ldc);
	if (g->batch == 1)
		return lib.sgemm(h, ta, tb, m, n, k, &alpha, g->a, lda, g->b, ldb, &beta, g->c, ldc);
	if (g->wide)
		return lib.dbatched(h, ta, tb, m, n, k, &g->alpha, g->a, lda, g->sa, g->b, ldb, g->sb, &g->beta, g->c, ldc, g->sc, (int)g->batch);
	return lib.sbatched(h, ta, tb, m, n, k, &alpha, g->a, lda, g->sa, g->b, ldb, g->sb, &beta, g->c, ldc, g->sc, (int)g->batch);
}

int cp_blas_gemm(uintptr_t ctx, cp_blas *b, uintptr_t stream, const cp_gemm_args *g) {
	RUN(ctx, {
		r = prepare(b, stream, g);
		if (r == 0)
			r = gemm(b->h, g);
	});
}
