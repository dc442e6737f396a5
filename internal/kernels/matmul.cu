// Products of matrices of any strides, for computers without cuBLAS. A block makes
// a square of the result, by way of squares of the operands in shared memory.

#include "kernel.h"

// c = alpha a·b + beta c, m×n, from k products each, batch times. Strides are in
// elements. Where beta is 0, c is not read.
struct MatMulArgs {
	u64 c, a, b;
	double alpha, beta;
	i64 m, n, k, batch;
	i64 a_row, a_column, b_row, b_column, c_row;
	i64 a_next, b_next, c_next; // from one matrix of the batch to the next
};

enum { MATMUL_SIDE = 16 };

template <typename T> static __device__ void matmul(const MatMulArgs &g) {
	__shared__ T room[2][MATMUL_SIDE][MATMUL_SIDE + 1];
	u64 block = blockIdx.x;
	i64 column = (i64)split(block, (u64)(g.n + MATMUL_SIDE - 1) / MATMUL_SIDE);
	int x = threadIdx.x % MATMUL_SIDE, y = threadIdx.x / MATMUL_SIDE;
	i64 i = (i64)block * MATMUL_SIDE + y, j = column * MATMUL_SIDE + x;
	for (i64 one = blockIdx.y; one < g.batch; one += gridDim.y) {
		const T *a = (const T *)g.a + one * g.a_next + i * g.a_row, *b = (const T *)g.b + one * g.b_next + j * g.b_column;
		T sum = 0;
		for (i64 k = 0; k < g.k; k += MATMUL_SIDE) {
			room[0][y][x] = i < g.m && k + x < g.k ? a[(k + x) * g.a_column] : (T)0;
			room[1][y][x] = j < g.n && k + y < g.k ? b[(k + y) * g.b_row] : (T)0;
			__syncthreads();
			UNROLL
			for (int t = 0; t < MATMUL_SIDE; t++)
				sum += room[0][y][t] * room[1][t][x];
			__syncthreads();
		}
		if (i >= g.m || j >= g.n)
			continue;
		T *c = (T *)g.c + one * g.c_next + i * g.c_row + j;
		*c = (T)g.alpha * sum + (g.beta != 0 ? (T)g.beta * *c : (T)0);
	}
}

INSTANTIATE(BARRIER_KERNEL, matmul, MatMulArgs)
