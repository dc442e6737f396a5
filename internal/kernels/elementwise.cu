// Arithmetic, comparisons and functions, element by element.

#include "functions.h"

struct BinaryArgs {
	u64 dst, a, b;   // a, b: 0 for the scalars
	double va, vb;   // the scalars
	i64 op, incr, n; // incr: add to dst
	Walk3 walk;      // dst, a, b
};

template <typename T> static __device__ void binary(const BinaryArgs &a) {
	T *dst = (T *)a.dst;
	const T *x = (const T *)a.a, *y = (const T *)a.b;
	EACH(i, a.n) {
		Places o = at(a.walk, i);
		T r = arithmetic<T>(a.op, x ? x[o.p[1]] : (T)a.va, y ? y[o.p[2]] : (T)a.vb);
		dst[o.p[0]] = a.incr ? dst[o.p[0]] + r : r;
	}
}

// compare writes ones and zeros of type R.
template <typename T, typename R> static __device__ void compare(const BinaryArgs &a) {
	R *dst = (R *)a.dst;
	const T *x = (const T *)a.a, *y = (const T *)a.b;
	EACH(i, a.n) {
		Places o = at(a.walk, i);
		dst[o.p[0]] = holds<T>(a.op, x ? x[o.p[1]] : (T)a.va, y ? y[o.p[2]] : (T)a.vb) ? (R)1 : (R)0;
	}
}

template <typename T> static __device__ void compare_same(const BinaryArgs &a) { compare<T, T>(a); }
template <typename T> static __device__ void compare_bool(const BinaryArgs &a) { compare<T, u8>(a); }

struct UnaryArgs {
	u64 dst, a;
	double p, q; // parameters: bounds of CLAMP
	i64 op, incr, n;
	Walk3 walk; // dst, a
};

template <typename T> static __device__ void unary(const UnaryArgs &a) {
	T *dst = (T *)a.dst;
	const T *x = (const T *)a.a;
	EACH(i, a.n) {
		Places o = at(a.walk, i);
		T r = function<T>(a.op, x[o.p[1]], (T)a.p, (T)a.q);
		dst[o.p[0]] = a.incr ? dst[o.p[0]] + r : r;
	}
}

// convert turns numbers into i64 and back. What an i64 cannot hold is the smallest
// one, as in Go on amd64.
struct ConvertArgs {
	u64 dst, a;
	i64 to_int, n;
};

template <typename T> static __device__ void convert(const ConvertArgs &a) {
	const T limit = (T)0x1p63;
	EACH(i, a.n) {
		if (!a.to_int) {
			((T *)a.dst)[i] = (T)((const i64 *)a.a)[i];
			continue;
		}
		T x = ((const T *)a.a)[i];
		((i64 *)a.dst)[i] = x >= -limit && x < limit ? (i64)x : (i64)((u64)1 << 63);
	}
}

INSTANTIATE(KERNEL, convert, ConvertArgs)
INSTANTIATE(KERNEL, binary, BinaryArgs)
INSTANTIATE(KERNEL, compare_same, BinaryArgs)
INSTANTIATE(KERNEL, compare_bool, BinaryArgs)
INSTANTIATE(KERNEL, unary, UnaryArgs)
