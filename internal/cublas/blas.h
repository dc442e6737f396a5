//go:build gpu

#ifndef CUPOOL_BLAS_H
#define CUPOOL_BLAS_H

#include <stddef.h>
#include <stdint.h>

// What a call returns when the library, or a symbol in it, is missing; the
// driver's results come back as CP_BLAS_DRIVER - result. cublasStatus_t has no
// negative values.
#define CP_BLAS_MISSING (-1)
#define CP_BLAS_DRIVER (-1000)

typedef struct cp_blas cp_blas; // a handle and what is set on it

// A product c = alpha op(a) op(b) + beta c of matrices in column-major order,
// batch times, each sa, sb and sc elements after the last.
typedef struct {
	uint64_t a, b, c;
	int64_t m, n, k, lda, ldb, ldc;
	int64_t batch, sa, sb, sc;
	double alpha, beta;
	uint64_t workspace, workspace_size; // bytes
	int64_t wide, ta, tb, tf32;         // wide: double
} cp_gemm_args;

const char *cp_blas_load(void); // NULL, or why the library cannot be used
int cp_blas_create(uintptr_t ctx, cp_blas **out, int *version);
int cp_blas_destroy(uintptr_t ctx, cp_blas *b);
int cp_blas_gemm(uintptr_t ctx, cp_blas *b, uintptr_t stream, const cp_gemm_args *g);

#endif
