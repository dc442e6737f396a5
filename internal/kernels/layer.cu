// A layer's bias and activation in one step, and back.

#include "activation.h"

struct BiasArgs {
	u64 dst, a, b; // dst may be a
	i64 activation, rows, cols;
};

template <typename T> static __device__ void bias(const BiasArgs &a) {
	T *dst = (T *)a.dst;
	const T *x = (const T *)a.a, *b = (const T *)a.b;
	EACH(i, a.rows * a.cols) {
		u64 q = i, c = split(q, (u64)a.cols);
		dst[i] = activate<T>(a.activation, x[i] + b[c]);
	}
}

// bias_back turns the gradient by a layer's result into that by what went
// into the activation, and its sum over the rows, which is the gradient by
// the bias. Blocks are of 32 columns times 32 threads.
struct BiasBackArgs {
	u64 dx, db, y, dy; // dx may be dy; db 0: not wanted
	i64 activation, rows, cols;
};

template <typename T> static __device__ void bias_back(const BiasBackArgs &a) {
	__shared__ T part[32][33];
	u64 col = threadIdx.x % 32, lane = threadIdx.x / 32;
	for (u64 tile = blockIdx.x; tile < (u64)(a.cols + 31) / 32; tile += gridDim.x) {
		u64 c = tile * 32 + col;
		T sum = 0;
		if (c < (u64)a.cols)
			for (u64 r = lane; r < (u64)a.rows; r += 32) {
				u64 i = r * a.cols + c;
				T d = ((const T *)a.dy)[i] * slope<T>(a.activation, ((const T *)a.y)[i]);
				((T *)a.dx)[i] = d;
				sum += d;
			}
		part[lane][col] = sum;
		__syncthreads();
		if (lane == 0 && c < (u64)a.cols && a.db) {
			for (int i = 1; i < 32; i++)
				sum += part[i][col];
			((T *)a.db)[c] = sum;
		}
		__syncthreads();
	}
}

INSTANTIATE(KERNEL, bias, BiasArgs)
INSTANTIATE(BARRIER_KERNEL, bias_back, BiasBackArgs)
