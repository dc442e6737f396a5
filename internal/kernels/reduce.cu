// Sums, maxima, minima and where those are.

#include "kernel.h"

// Result o is over elements a[at(outer, o) + at(inner, r)], r in [0, n). With
// chunks > 1 there are so many partial results of o side by side, each over
// chunk elements, to be reduced again.
struct ReduceArgs {
	u64 dst, a;
	i64 op, results, n, chunk, chunks;
	Walk outer, inner;
};

enum { SUM, MAXIMUM, MINIMUM };

template <typename T> static __device__ __forceinline__ T neutral(i64 op) {
	return op == SUM ? (T)0 : op == MAXIMUM ? -infinity((T)0) : infinity((T)0);
}

// combine lets a NaN win.
template <typename T> static __device__ __forceinline__ T combine(i64 op, T x, T y) {
	if (op == SUM)
		return x + y;
	if (x != x)
		return x;
	return y != y || (op == MAXIMUM ? y > x : y < x) ? y : x;
}

// warp_combine returns the result of the warp's lanes to all of them.
template <typename T> static __device__ __forceinline__ T warp_combine(i64 op, T v) {
	for (int d = 16; d > 0; d /= 2)
		v = combine<T>(op, v, __shfl_xor_sync(ALL_LANES, v, d));
	return v;
}

// reduce_rows has a block for every result and chunk, for rows that lie
// together. The block is of whole warps.
template <typename T> static __device__ void reduce_rows(const ReduceArgs &a) {
	__shared__ T warps[32];
	const T *x = (const T *)a.a;
	T *dst = (T *)a.dst;
	u64 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
	for (u64 b = blockIdx.x; b < (u64)(a.results * a.chunks); b += gridDim.x) {
		u64 o = b, c = split(o, (u64)a.chunks);
		i64 base = at(a.outer, o);
		u64 end = (u64)min(a.n, (i64)(c + 1) * a.chunk);
		T v = neutral<T>(a.op);
		for (u64 r = c * a.chunk + threadIdx.x; r < end; r += blockDim.x)
			v = combine<T>(a.op, v, x[base + at(a.inner, r)]);
		v = warp_combine<T>(a.op, v);
		if (lane == 0)
			warps[warp] = v;
		__syncthreads();
		if (warp == 0) {
			v = warp_combine<T>(a.op, lane < blockDim.x / 32 ? warps[lane] : neutral<T>(a.op));
			if (lane == 0)
				dst[b] = v;
		}
		__syncthreads();
	}
}

// reduce_columns has 32 neighbouring results in a block of 32 times 16
// threads, for columns, whose neighbours lie together.
template <typename T> static __device__ void reduce_columns(const ReduceArgs &a) {
	__shared__ T part[16][33];
	const T *x = (const T *)a.a;
	T *dst = (T *)a.dst;
	u64 col = threadIdx.x % 32, lane = threadIdx.x / 32;
	u64 tiles = (u64)(a.results + 31) / 32;
	for (u64 b = blockIdx.x; b < tiles * (u64)a.chunks; b += gridDim.x) {
		u64 tile = b, c = split(tile, (u64)a.chunks), o = tile * 32 + col;
		T v = neutral<T>(a.op);
		if (o < (u64)a.results) {
			i64 base = at(a.outer, o);
			u64 end = (u64)min(a.n, (i64)(c + 1) * a.chunk);
			for (u64 r = c * a.chunk + lane; r < end; r += 16)
				v = combine<T>(a.op, v, x[base + at(a.inner, r)]);
		}
		part[lane][col] = v;
		__syncthreads();
		if (lane == 0 && o < (u64)a.results) {
			for (int i = 1; i < 16; i++)
				v = combine<T>(a.op, v, part[i][col]);
			dst[o * a.chunks + c] = v;
		}
		__syncthreads();
	}
}

// arg finds where the largest or smallest element is, one warp a result. Of
// equal ones it is the first. NaN and the infinity that nothing can beat win,
// but at index 0 only over what is no NaN: so does tensor.
struct ArgArgs {
	u64 dst, a; // dst: i64
	i64 op, results, n;
	Walk outer, inner;
};

template <typename T> struct Best {
	T v;
	i64 i, rank; // rank -1: none yet
};

template <typename T> static __device__ __forceinline__ Best<T> better(i64 op, Best<T> x, Best<T> y) {
	if (x.rank != y.rank)
		return x.rank > y.rank ? x : y;
	bool tie = x.rank > 0 || x.v == y.v;
	if (tie)
		return y.i < x.i ? y : x;
	return (op == MAXIMUM ? y.v > x.v : y.v < x.v) ? y : x;
}

template <typename T> static __device__ __forceinline__ Best<T> candidate(i64 op, T v, i64 i) {
	Best<T> b;
	T top = op == MAXIMUM ? infinity((T)0) : -infinity((T)0);
	b.v = v;
	b.i = i;
	b.rank = i > 0 && (v != v || v == top) ? 2 : v != v ? 1 : 0;
	return b;
}

template <typename T> static __device__ void arg(const ArgArgs &a) {
	const T *x = (const T *)a.a;
	i64 *dst = (i64 *)a.dst;
	u64 lane = threadIdx.x % 32, warps = (u64)gridDim.x * (blockDim.x / 32);
	for (u64 o = ((u64)blockIdx.x * blockDim.x + threadIdx.x) / 32; o < (u64)a.results; o += warps) {
		i64 base = at(a.outer, o);
		Best<T> b = {(T)0, 0, -1};
		for (u64 r = lane; r < (u64)a.n; r += 32)
			b = better<T>(a.op, b, candidate<T>(a.op, x[base + at(a.inner, r)], (i64)r));
		for (int d = 16; d > 0; d /= 2) {
			Best<T> other = {__shfl_xor_sync(ALL_LANES, b.v, d), __shfl_xor_sync(ALL_LANES, b.i, d), __shfl_xor_sync(ALL_LANES, b.rank, d)};
			b = better<T>(a.op, b, other);
		}
		if (lane == 0)
			dst[o] = b.i;
	}
}

INSTANTIATE(BARRIER_KERNEL, reduce_rows, ReduceArgs)
INSTANTIATE(BARRIER_KERNEL, reduce_columns, ReduceArgs)
INSTANTIATE(BARRIER_KERNEL, arg, ArgArgs)
