// A stand-in for cuBLAS: products of matrices in column-major order, one
// after the other, in the order of the stream, which the stand-in driver runs
// as kernels: where the workspace has room, one that leaves the sums there and
// one that fetches them, so that a workspace that something else uses meanwhile
// shows.

#include <stdbool.h>
#include <stdlib.h>

#include "cuda.h"
#include "emulate.h"

enum { OK = 0, INVALID_VALUE = 7, EXECUTION_FAILED = 13 };

typedef struct {
	void *stream;
	uint64_t workspace;
	size_t size;
} handle;

typedef struct {
	uint64_t wide, ta, tb; // wide: double
	int64_t m, n, k;
	double alpha, beta;
	uint64_t a, b, c;
	int64_t lda, ldb, ldc, sa, sb, sc, batch;
	uint64_t sums; // in the workspace; or 0
} gemm_args;

static double get(uint64_t wide, uint64_t p, int64_t i) { return wide ? ((const double *)p)[i] : (double)((const float *)p)[i]; }

static double product(const gemm_args *g, int64_t i, int64_t j, int64_t b) {
	double sum = 0;
	for (int64_t l = 0; l < g->k; l++)
		sum += get(g->wide, g->a, b * g->sa + (g->ta ? l + i * g->lda : i + l * g->lda)) *
		       get(g->wide, g->b, b * g->sb + (g->tb ? j + l * g->ldb : l + j * g->ldb));
	return sum;
}

static void finish(const gemm_args *g, int64_t i, int64_t j, int64_t b, double sum) {
	int64_t at = b * g->sc + i + j * g->ldc;
	sum *= g->alpha;
	if (g->beta != 0)
		sum += g->beta * get(g->wide, g->c, at);
	if (g->wide)
		((double *)g->c)[at] = sum;
	else
		((float *)g->c)[at] = (float)sum;
}

#define EACH(g, i, j, b)                                \
	for (int64_t b = 0; b < (g)->batch; b++)        \
		for (int64_t j = 0; j < (g)->n; j++)    \
			for (int64_t i = 0; i < (g)->m; i++)

static void whole_thread(const void *args) {
	const gemm_args *g = args;
	EACH(g, i, j, b)
		finish(g, i, j, b, product(g, i, j, b));
}

static void sums_thread(const void *args) {
	const gemm_args *g = args;
	double *sums = (double *)g->sums;
	EACH(g, i, j, b)
		*sums++ = product(g, i, j, b);
}

static void fetch_thread(const void *args) {
	const gemm_args *g = args;
	const double *sums = (const double *)g->sums;
	EACH(g, i, j, b)
		finish(g, i, j, b, *sums++);
}

static const emulated whole = {whole_thread, sizeof(gemm_args), 0}, sums = {sums_thread, sizeof(gemm_args), 0}, fetch = {fetch_thread, sizeof(gemm_args), 0};

static CUresult run(handle *h, const emulated *kernel, gemm_args *g) {
	void *params[] = {g};
	return cuLaunchKernel((CUfunction)kernel, 1, 1, 1, 1, 1, 1, 0, (CUstream)h->stream, params, NULL);
}

static int gemm(handle *h, gemm_args g) {
	if (g.m < 0 || g.n < 0 || g.k < 0 || g.lda < 1 || g.ldb < 1 || g.ldc < (g.m > 1 ? g.m : 1))
		return INVALID_VALUE;
	if (g.lda < (g.ta ? g.k : g.m) || g.ldb < (g.tb ? g.n : g.k))
		return INVALID_VALUE;
	if (g.m == 0 || g.n == 0 || g.batch == 0)
		return OK;
	bool room = (size_t)(g.m * g.n * g.batch) * sizeof(double) <= h->size;
	g.sums = room ? h->workspace : 0;
	CUresult r = run(h, room ? &sums : &whole, &g);
	if (r == CUDA_SUCCESS && room)
		r = run(h, &fetch, &g);
	return r == CUDA_SUCCESS ? OK : EXECUTION_FAILED;
}

int cublasCreate_v2(handle **h) { return (*h = calloc(1, sizeof **h)) != NULL ? OK : EXECUTION_FAILED; }

int cublasDestroy_v2(handle *h) {
	free(h);
	return OK;
}

int cublasSetStream_v2(handle *h, void *stream) {
	*h = (handle){.stream = stream}; // takes the workspace back
	return OK;
}

int cublasSetWorkspace_v2(handle *h, void *p, size_t n) {
	if (p == NULL && n > 0)
		return INVALID_VALUE;
	h->workspace = (uint64_t)p;
	h->size = n;
	return OK;
}

int cublasSetMathMode(handle *h, int mode) {
	(void)h;
	return mode == 0 || mode == 3 ? OK : INVALID_VALUE;
}

int cublasGetVersion_v2(handle *h, int *version) {
	(void)h;
	*version = 120000;
	return OK;
}

#define GEMM(name, T, is_wide)                                                                             \
	int cublas##name##gemm_v2(handle *h, int ta, int tb, int m, int n, int k, const T *alpha, T *a, int lda, \
	                          T *b, int ldb, const T *beta, T *c, int ldc) {                             \
		return gemm(h, (gemm_args){is_wide, (uint64_t)ta, (uint64_t)tb, m, n, k, *alpha, *beta, (uint64_t)a, (uint64_t)b, (uint64_t)c, lda, ldb, ldc, 0, 0, 0, 1, 0}); \
	}                                                                                                  \
	int cublas##name##gemmStridedBatched(handle *h, int ta, int tb, int m, int n, int k, const T *alpha, T *a, int lda, long long sa, \
	                                     T *b, int ldb, long long sb, const T *beta, T *c, int ldc, long long sc, int batch) { \
		return gemm(h, (gemm_args){is_wide, (uint64_t)ta, (uint64_t)tb, m, n, k, *alpha, *beta, (uint64_t)a, (uint64_t)b, (uint64_t)c, lda, ldb, ldc, sa, sb, sc, batch, 0}); \
	}

GEMM(S, float, 0)
GEMM(D, double, 1)
