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

KERNEL(select_1, SelectArgs) { pick<u8>(a); }
KERNEL(select_2, SelectArgs) { pick<u16>(a); }
KERNEL(select_4, SelectArgs) { pick<u32>(a); }
KERNEL(select_8, SelectArgs) { pick<u64>(a); }
