// The SoftMax family, one warp a row. A row's n elements are inner apart, in
// tensors in row-major order.

#include "functions.h"

struct SoftMaxArgs {
	u64 dst, a, g; // forward: a is the input; backward: the output, and g the gradient by it
	i64 log, rows, n, inner;
};

#define ROWS(row, rows) \
	for (u64 row = ((u64)blockIdx.x * blockDim.x + threadIdx.x) / 32, step_ = (u64)gridDim.x * (blockDim.x / 32); row < (u64)(rows); row += step_)

// first is where row starts.
static __device__ __forceinline__ u64 first(const SoftMaxArgs &a, u64 row) {
	u64 in = split(row, (u64)a.inner);
	return row * (u64)(a.n * a.inner) + in;
}

template <typename T> static __device__ __forceinline__ T warp_sum(T v) { return warp_combine<T>(SUM, v); }

// The largest element is taken off first, so that no exponent overflows.
template <typename T> static __device__ void softmax(const SoftMaxArgs &a) {
	u64 lane = threadIdx.x % 32;
	ROWS(row, a.rows) {
		const T *x = (const T *)a.a + first(a, row);
		T *y = (T *)a.dst + first(a, row);
		T top = -infinity((T)0), sum = 0;
		for (u64 i = lane; i < (u64)a.n; i += 32)
			top = combine<T>(MAXIMUM, top, x[i * a.inner]);
		top = warp_combine<T>(MAXIMUM, top);
		for (u64 i = lane; i < (u64)a.n; i += 32)
			sum += m_exp(x[i * a.inner] - top);
		sum = warp_sum(sum);
		T shift = top + m_log(sum);
		for (u64 i = lane; i < (u64)a.n; i += 32)
			y[i * a.inner] = a.log ? x[i * a.inner] - shift : m_exp(x[i * a.inner] - top) / sum;
	}
}

// SoftMax: y(g - Σ gy). LogSoftMax: g - exp(y) Σ g.
template <typename T> static __device__ void softmax_back(const SoftMaxArgs &a) {
	u64 lane = threadIdx.x % 32;
	ROWS(row, a.rows) {
		u64 at0 = first(a, row);
		const T *y = (const T *)a.a + at0, *g = (const T *)a.g + at0;
		T *dx = (T *)a.dst + at0;
		T sum = 0;
		for (u64 i = lane; i < (u64)a.n; i += 32)
			sum += a.log ? g[i * a.inner] : g[i * a.inner] * y[i * a.inner];
		sum = warp_sum(sum);
		for (u64 i = lane; i < (u64)a.n; i += 32) {
			T yi = y[i * a.inner], gi = g[i * a.inner];
			dx[i * a.inner] = a.log ? gi - m_exp(yi) * sum : yi * (gi - sum);
		}
	}
}

// cross_entropy is the loss of a classifier, -Σ t log SoftMax(x), with its
// gradient by x times scale. targets are either the index of the one class
// (i64) or a weight for each class.
struct CrossEntropyArgs {
	u64 grad, loss, x, target; // loss: one a row; 0: not wanted
	double scale;
	i64 weights, incr, rows, n; // weights: targets are weights; incr: add to loss
};

template <typename T> static __device__ void cross_entropy(const CrossEntropyArgs &a) {
	u64 lane = threadIdx.x % 32;
	ROWS(row, a.rows) {
		const T *x = (const T *)a.x + row * a.n;
		const T *w = a.weights ? (const T *)a.target + row * a.n : 0;
		i64 label = a.weights ? -1 : ((const i64 *)a.target)[row];
		T *grad = (T *)a.grad + row * a.n;
		T top = -infinity((T)0), sum = 0, weight = 0, dot = 0;
		for (u64 i = lane; i < (u64)a.n; i += 32)
			top = combine<T>(MAXIMUM, top, x[i]);
		top = warp_combine<T>(MAXIMUM, top);
		for (u64 i = lane; i < (u64)a.n; i += 32) {
			T t = w ? w[i] : (i64)i == label ? (T)1 : (T)0;
			sum += m_exp(x[i] - top);
			weight += t;
			if (t != 0)
				dot += t * (x[i] - top);
		}
		sum = warp_sum(sum);
		weight = warp_sum(weight);
		dot = warp_sum(dot);
		for (u64 i = lane; i < (u64)a.n; i += 32) {
			T t = w ? w[i] : (i64)i == label ? (T)1 : (T)0;
			grad[i] = (T)a.scale * (m_exp(x[i] - top) / sum * weight - t);
		}
		if (lane == 0 && a.loss) {
			T *loss = (T *)a.loss + row;
			T l = weight * m_log(sum) - dot;
			*loss = a.incr ? *loss + l : l;
		}
	}
}

// sparsemax (Martins and Astudillo, ICML 2016) is max(x - tau, 0), with the tau that
// makes the sum of a row 1. It is found by Michelot's algorithm (1986): from
// the elements above the last tau, which become fewer until they stay. The largest
// element is taken off first, so tau is at least -1. A row with NaN or +Inf is all NaN.
struct SparsemaxArgs {
	u64 dst, a, g; // forward: a is the input; backward: the output, and g the gradient by it
	i64 rows, n;
};

template <typename T> static __device__ void sparsemax(const SparsemaxArgs &a) {
	u64 lane = threadIdx.x % 32;
	ROWS(row, a.rows) {
		const T *x = (const T *)a.a + row * a.n;
		T *y = (T *)a.dst + row * a.n;
		T top = -infinity((T)0), tau = -1, count = (T)(a.n + 1);
		for (u64 i = lane; i < (u64)a.n; i += 32)
			top = combine<T>(MAXIMUM, top, x[i]);
		top = warp_combine<T>(MAXIMUM, top);
		if (top == -infinity((T)0))
			top = 0;
		for (;;) {
			T sum = 0, now = 0;
			for (u64 i = lane; i < (u64)a.n; i += 32) {
				T v = x[i] - top;
				if (!(v <= tau)) {
					sum += v;
					now++;
				}
			}
			sum = warp_sum(sum);
			now = warp_sum(now);
			if (now >= count || now == 0)
				break;
			count = now;
			tau = (sum - 1) / count;
		}
		for (u64 i = lane; i < (u64)a.n; i += 32) {
			T v = x[i] - top - tau;
			y[i] = v <= 0 ? (T)0 : v;
		}
	}
}

// Where y is not 0: g less the mean of g over those elements.
template <typename T> static __device__ void sparsemax_back(const SparsemaxArgs &a) {
	u64 lane = threadIdx.x % 32;
	ROWS(row, a.rows) {
		const T *y = (const T *)a.a + row * a.n, *g = (const T *)a.g + row * a.n;
		T *dx = (T *)a.dst + row * a.n;
		T sum = 0, count = 0;
		for (u64 i = lane; i < (u64)a.n; i += 32) {
			if (y[i] != 0) {
				sum += g[i];
				count++;
			}
		}
		T mean = warp_sum(sum) / warp_sum(count);
		for (u64 i = lane; i < (u64)a.n; i += 32)
			dx[i] = y[i] != 0 ? g[i] - mean : (T)0;
	}
}

INSTANTIATE(BARRIER_KERNEL, sparsemax, SparsemaxArgs)
INSTANTIATE(BARRIER_KERNEL, sparsemax_back, SparsemaxArgs)
INSTANTIATE(BARRIER_KERNEL, softmax, SoftMaxArgs)
INSTANTIATE(BARRIER_KERNEL, softmax_back, SoftMaxArgs)
INSTANTIATE(BARRIER_KERNEL, cross_entropy, CrossEntropyArgs)
