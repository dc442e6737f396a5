// Normalization of channels: batch norm, and group norm, whose groups are
// channels of a batch of one. A channel's elements are those of its plane in
// each sample. Blocks have a chunk of a channel each. The first of two kernels
// leaves a pair of numbers for each chunk, and every block of the second one puts
// the channel's together, in the same order each time.

#include "activation.h"

struct NormArgs {
	u64 x, y, dy, dx, scale, bias, dscale, dbias; // those that are not wanted: 0
	u64 mean, inverse, running_mean, running_variance;
	u64 parts; // chunks times 2 for each channel
	i64 batch, channels, plane, chunk, chunks; // at most 32 chunks
	double momentum, epsilon;
	i64 training, activation;
};

// Moments are the number of elements, their mean, and the sum of their squared
// distances from it.
template <typename T> struct Moments {
	T n, mean, m2;
};

// merge is from Chan, Golub and LeVeque, Updating formulae and a pairwise
// algorithm for computing sample variances, 1979.
template <typename T> static __device__ __forceinline__ Moments<T> merge(Moments<T> a, Moments<T> b) {
	if (a.n == 0 || b.n == 0)
		return a.n == 0 ? b : a;
	T n = a.n + b.n, part = b.n / n, d = b.mean - a.mean;
	Moments<T> m = {n, a.mean + d * part, a.m2 + b.m2 + d * d * a.n * part};
	return m;
}

template <typename T> static __device__ __forceinline__ Moments<T> warp_merge(Moments<T> m) {
	for (int d = 16; d > 0; d /= 2) {
		Moments<T> other = {__shfl_xor_sync(ALL_LANES, m.n, d), __shfl_xor_sync(ALL_LANES, m.mean, d), __shfl_xor_sync(ALL_LANES, m.m2, d)};
		m = merge<T>(m, other);
	}
	return m;
}

// A Part is a block's chunk [from, to) of the elements of channel c.
struct Part {
	u64 c, chunk, from, to;
};

static __device__ __forceinline__ Part part_of(const NormArgs &a, u64 b) {
	Part p;
	p.c = b;
	p.chunk = split(p.c, (u64)a.chunks);
	p.from = p.chunk * a.chunk;
	p.to = (u64)min((i64)p.from + a.chunk, a.batch * a.plane);
	return p;
}

// place returns where element i of channel c is.
static __device__ __forceinline__ u64 place(const NormArgs &a, u64 c, u64 i) {
	u64 in = split(i, (u64)a.plane);
	return (i * a.channels + c) * a.plane + in;
}

#define PARTS(b, a) for (u64 b = blockIdx.x; b < (u64)(a.channels * a.chunks); b += gridDim.x)

// thread_moments takes the thread's first element off all of them, so that squares
// of large numbers do not cancel.
template <typename T> static __device__ __forceinline__ Moments<T> thread_moments(const NormArgs &a, const Part &p) {
	const T *x = (const T *)a.x;
	Moments<T> m = {0, 0, 0};
	T shift = 0, sum = 0, squares = 0;
	for (u64 i = p.from + threadIdx.x; i < p.to; i += blockDim.x) {
		T v = x[place(a, p.c, i)];
		if (m.n == 0)
			shift = v;
		m.n += 1;
		sum += v - shift;
		squares += (v - shift) * (v - shift);
	}
	if (m.n == 0)
		return m;
	m.mean = shift + sum / m.n;
	m.m2 = squares - sum * (sum / m.n);
	m.m2 = m.m2 < 0 ? (T)0 : m.m2;
	return m;
}

template <typename T> static __device__ void norm_moments(const NormArgs &a) {
	__shared__ Moments<T> warps[32];
	T *parts = (T *)a.parts;
	u64 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
	PARTS(b, a) {
		Part p = part_of(a, b);
		Moments<T> m = warp_merge<T>(thread_moments<T>(a, p)), none = {0, 0, 0};
		if (lane == 0)
			warps[warp] = m;
		__syncthreads();
		if (warp == 0) {
			m = warp_merge<T>(lane < blockDim.x / 32 ? warps[lane] : none);
			if (lane == 0) {
				parts[2 * (p.c * a.chunks + p.chunk)] = m.mean;
				parts[2 * (p.c * a.chunks + p.chunk) + 1] = m.m2;
			}
		}
		__syncthreads();
	}
}

// channel_moments puts the chunks of a channel together, by one warp.
template <typename T> static __device__ __forceinline__ Moments<T> channel_moments(const NormArgs &a, u64 c) {
	const T *parts = (const T *)a.parts + 2 * c * a.chunks;
	i64 k = threadIdx.x % 32, n = a.batch * a.plane;
	Moments<T> m = {0, 0, 0};
	if (k < a.chunks) {
		m.n = (T)(min((k + 1) * a.chunk, n) - k * a.chunk);
		m.mean = parts[2 * k];
		m.m2 = parts[2 * k + 1];
	}
	return warp_merge<T>(m);
}

// learn leaves a batch's statistics, and moves the running ones towards them.
template <typename T> static __device__ __forceinline__ void learn(const NormArgs &a, u64 c, Moments<T> m, T inverse) {
	((T *)a.mean)[c] = m.mean;
	((T *)a.inverse)[c] = inverse;
	if (!a.running_mean)
		return;
	T *mean = (T *)a.running_mean + c, *variance = (T *)a.running_variance + c, keep = 1 - (T)a.momentum;
	*mean = (T)a.momentum * m.mean + keep * *mean;
	*variance = (T)a.momentum * (m.m2 / (m.n - 1)) + keep * *variance;
}

// used returns what a channel is normalized with: its mean and the inverse of its
// deviation. In training, they have been computed before.
template <typename T> static __device__ __forceinline__ void used(const NormArgs &a, u64 c, T *mean, T *inverse) {
	*mean = a.training ? ((const T *)a.mean)[c] : ((const T *)a.running_mean)[c];
	*inverse = a.training ? ((const T *)a.inverse)[c] : 1 / m_sqrt(((const T *)a.running_variance)[c] + (T)a.epsilon);
}

// norm_apply is y = act((x - mean)·inverse·scale + bias).
template <typename T> static __device__ void norm_apply(const NormArgs &a) {
	__shared__ T with[2];
	const T *x = (const T *)a.x;
	T *y = (T *)a.y;
	PARTS(b, a) {
		Part p = part_of(a, b);
		if (threadIdx.x < 32 && a.training) {
			Moments<T> m = channel_moments<T>(a, p.c);
			if (threadIdx.x == 0) {
				with[0] = m.mean;
				with[1] = 1 / m_sqrt(m.m2 / m.n + (T)a.epsilon);
				if (p.chunk == 0)
					learn<T>(a, p.c, m, with[1]);
			}
		} else if (threadIdx.x == 0)
			used<T>(a, p.c, &with[0], &with[1]);
		__syncthreads();
		T mean = with[0], by = with[1] * (a.scale ? ((const T *)a.scale)[p.c] : (T)1);
		T plus = a.bias ? ((const T *)a.bias)[p.c] : (T)0;
		for (u64 i = p.from + threadIdx.x; i < p.to; i += blockDim.x) {
			u64 at = place(a, p.c, i);
			y[at] = activate<T>(a.activation, (x[at] - mean) * by + plus);
		}
		__syncthreads();
	}
}

// before returns the gradient by what went into the activation.
template <typename T> static __device__ __forceinline__ T before(const NormArgs &a, u64 at) {
	T g = ((const T *)a.dy)[at];
	return a.activation == ACT_NONE ? g : g * slope<T>(a.activation, ((const T *)a.y)[at]);
}

// norm_sums leaves the sums of the gradient g and of g·(x - mean).
template <typename T> static __device__ void norm_sums(const NormArgs &a) {
	__shared__ T warps[2][32];
	const T *x = (const T *)a.x;
	T *parts = (T *)a.parts;
	u64 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
	PARTS(b, a) {
		Part p = part_of(a, b);
		T mean, inverse, sum = 0, dot = 0;
		used<T>(a, p.c, &mean, &inverse);
		for (u64 i = p.from + threadIdx.x; i < p.to; i += blockDim.x) {
			u64 at = place(a, p.c, i);
			T g = before<T>(a, at);
			sum += g;
			dot += g * (x[at] - mean);
		}
		sum = warp_combine<T>(SUM, sum);
		dot = warp_combine<T>(SUM, dot);
		if (lane == 0) {
			warps[0][warp] = sum;
			warps[1][warp] = dot;
		}
		__syncthreads();
		if (warp == 0) {
			bool has = lane < blockDim.x / 32;
			sum = warp_combine<T>(SUM, has ? warps[0][lane] : (T)0);
			dot = warp_combine<T>(SUM, has ? warps[1][lane] : (T)0);
			if (lane == 0) {
				parts[2 * (p.c * a.chunks + p.chunk)] = sum;
				parts[2 * (p.c * a.chunks + p.chunk) + 1] = dot;
			}
		}
		__syncthreads();
	}
}

// norm_back makes the gradients from the sums.
template <typename T> static __device__ void norm_back(const NormArgs &a) {
	__shared__ T with[2];
	const T *x = (const T *)a.x;
	T *dx = (T *)a.dx;
	PARTS(b, a) {
		Part p = part_of(a, b);
		T mean, inverse;
		used<T>(a, p.c, &mean, &inverse);
		if (threadIdx.x < 32) {
			const T *parts = (const T *)a.parts + 2 * p.c * a.chunks;
			bool has = (i64)threadIdx.x < a.chunks;
			T sum = warp_combine<T>(SUM, has ? parts[2 * threadIdx.x] : (T)0);
			T dot = warp_combine<T>(SUM, has ? parts[2 * threadIdx.x + 1] : (T)0) * inverse;
			if (threadIdx.x == 0) {
				with[0] = sum;
				with[1] = dot;
				if (p.chunk == 0 && a.dscale)
					((T *)a.dscale)[p.c] = dot;
				if (p.chunk == 0 && a.dbias)
					((T *)a.dbias)[p.c] = sum;
			}
		}
		__syncthreads();
		T n = (T)(a.batch * a.plane), by = inverse * (a.scale ? ((const T *)a.scale)[p.c] : (T)1);
		T flat = a.training ? with[0] / n : (T)0, tilt = a.training ? with[1] * inverse / n : (T)0;
		for (u64 i = p.from + threadIdx.x; i < p.to; i += blockDim.x) {
			u64 at = place(a, p.c, i);
			T g = before<T>(a, at);
			dx[at] = (a.training ? g - flat - (x[at] - mean) * tilt : g) * by;
		}
		__syncthreads();
	}
}

INSTANTIATE(BARRIER_KERNEL, norm_moments, NormArgs)
INSTANTIATE(BARRIER_KERNEL, norm_apply, NormArgs)
INSTANTIATE(BARRIER_KERNEL, norm_sums, NormArgs)
INSTANTIATE(BARRIER_KERNEL, norm_back, NormArgs)
