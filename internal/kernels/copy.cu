// Moving elements of 1, 2, 4 or 8 bytes.

#include "kernel.h"

struct CopyArgs {
	u64 dst, a; // a 0: fill with value
	u64 value;
	i64 n;
	Walk3 walk; // dst, a
};

template <typename U> static __device__ __forceinline__ void strided_copy(const CopyArgs &a) {
	U *dst = (U *)a.dst;
	const U *src = (const U *)a.a;
	EACH(i, a.n) {
		Places o = at(a.walk, i);
		dst[o.p[0]] = src ? src[o.p[1]] : (U)a.value;
	}
}

KERNEL(copy_1, CopyArgs) { strided_copy<u8>(a); }
KERNEL(copy_2, CopyArgs) { strided_copy<u16>(a); }
KERNEL(copy_4, CopyArgs) { strided_copy<u32>(a); }
KERNEL(copy_8, CopyArgs) { strided_copy<u64>(a); }

// select copies dst[o, j, i] = a[o, index[j], i]. An index that is out of
// range selects bytes of 0xFF.
struct SelectArgs {
	u64 dst, a, index; // index: i64
	i64 outer, n, picks, inner;
};

template <typename U> static __device__ __forceinline__ void pick(const SelectArgs &a) {
	U *dst = (U *)a.dst;
	const U *src = (const U *)a.a;
	const i64 *index = (const i64 *)a.index;
	EACH(k, a.outer * a.picks * a.inner) {
		u64 o = k;
		u64 i = split(o, (u64)a.inner);
		u64 j = split(o, (u64)a.picks);
		i64 x = index[j];
		dst[k] = x >= 0 && x < a.n ? src[(o * a.n + x) * a.inner + i] : (U)~(U)0;
	}
}

// select_back is the gradient of select: dst[o, x, i] is the sum of g[o, j, i] over
// the j with index[j] = x, in their order. A warp has a row of all o. Its lanes
// look through 32 indices at a time, and add up neighbours.
struct SelectBackArgs {
	u64 dst, g, index; // index: i64
	i64 outer, n, picks, inner;
};

// matching returns which lanes have found something, as bits.
static __device__ __forceinline__ u32 matching(bool found) {
	u32 lanes = found ? 1u << threadIdx.x % 32 : 0;
	for (int d = 16; d > 0; d /= 2)
		lanes |= __shfl_xor_sync(ALL_LANES, lanes, d);
	return lanes;
}

template <typename T> static __device__ void select_back(const SelectBackArgs &a) {
	T *dst = (T *)a.dst;
	const T *g = (const T *)a.g;
	const i64 *index = (const i64 *)a.index;
	u64 lane = threadIdx.x % 32, warps = (u64)gridDim.x * (blockDim.x / 32);
	u64 row = (u64)(a.outer * a.inner); // elements of all o
	for (u64 x = ((u64)blockIdx.x * blockDim.x + threadIdx.x) / 32; x < (u64)a.n; x += warps) {
		for (u64 k = lane; k < row; k += 32)
			dst[(k / a.inner * a.n + x) * a.inner + k % a.inner] = 0;
		for (u64 from = 0; from < (u64)a.picks; from += 32) {
			u32 found = matching(from + lane < (u64)a.picks && index[from + lane] == (i64)x);
			for (u64 j = from; found; j++, found >>= 1) {
				if (!(found & 1))
					continue;
				for (u64 k = lane; k < row; k += 32)
					dst[(k / a.inner * a.n + x) * a.inner + k % a.inner] += g[(k / a.inner * a.picks + j) * a.inner + k % a.inner];
			}
		}
	}
}

INSTANTIATE(BARRIER_KERNEL, select_back, SelectBackArgs)
KERNEL(select_1, SelectArgs) { pick<u8>(a); }
KERNEL(select_2, SelectArgs) { pick<u16>(a); }
KERNEL(select_4, SelectArgs) { pick<u32>(a); }
KERNEL(select_8, SelectArgs) { pick<u64>(a); }
