// What all kernels share. Every kernel takes one structure, all of whose
// fields have eight bytes, so that its Go twin (args.go) has the same layout.
// Addresses are typed by the kernel that reads them.

#ifndef CUPOOL_KERNEL_H
#define CUPOOL_KERNEL_H

#ifdef __CUDACC__
typedef long long i64;
typedef unsigned long long u64;
// KERNEL begins a kernel's definition. BARRIER_KERNEL is one whose threads
// wait for each other, which internal/fakecuda has to know.
#define KERNEL(name, Args) extern "C" __global__ void name(const Args a)
#define BARRIER_KERNEL(name, Args) KERNEL(name, Args)
// BOUNDED_KERNEL is one for blocks of so many threads, of which registers are to
// leave room for so many on a multiprocessor.
#define BOUNDED_KERNEL(name, Args, threads, blocks) extern "C" __global__ void __launch_bounds__(threads, blocks) name(const Args a)
// UNROLL makes a loop over an array straight code, so that the array is in
// registers. ROLL keeps a loop short.
#define UNROLL _Pragma("unroll")
#define ROLL _Pragma("unroll 1")
#else
#define UNROLL
#define ROLL
#include "emulate.h" // of internal/fakecuda: the same kernels on a CPU
#endif

#define MAX_DIMS 8
#define MAX_PARAMS 16 // tensors that one optimizer step updates
#define MAX_BOXES 16  // of a cell of YOLO
#define ALL_LANES 0xffffffffu

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;

// Walk is a way through a tensor: element i, counted in row-major order of
// shape, is strides away.
struct Walk {
	i64 dims, shape[MAX_DIMS], stride[MAX_DIMS];
};

// Walk3 is the way through up to three tensors at once; a stride of 0 repeats
// elements.
struct Walk3 {
	i64 dims, shape[MAX_DIMS], stride[3][MAX_DIMS];
};

// split takes the last coordinate off i. Division of 32 bits is much faster.
static __device__ __forceinline__ u64 split(u64 &i, u64 n) {
	u64 q = i >> 32 == 0 && n >> 32 == 0 ? (u64)((u32)i / (u32)n) : i / n;
	u64 r = i - q * n;
	i = q;
	return r;
}

static __device__ __forceinline__ i64 at(const Walk &w, u64 i) {
	if (w.dims == 1)
		return (i64)i * w.stride[0];
	i64 off = 0;
	for (int d = (int)w.dims - 1; d >= 0; d--)
		off += (i64)split(i, (u64)w.shape[d]) * w.stride[d];
	return off;
}

// Places are offsets of one element in three tensors.
struct Places {
	i64 p[3];
};

static __device__ __forceinline__ Places at(const Walk3 &w, u64 i) {
	Places o;
	if (w.dims == 1) {
		for (int k = 0; k < 3; k++)
			o.p[k] = (i64)i * w.stride[k][0];
		return o;
	}
	o.p[0] = o.p[1] = o.p[2] = 0;
	for (int d = (int)w.dims - 1; d >= 0; d--) {
		i64 c = (i64)split(i, (u64)w.shape[d]);
		for (int k = 0; k < 3; k++)
			o.p[k] += c * w.stride[k][d];
	}
	return o;
}

// EACH runs over [0, n) with the whole grid.
#define EACH(i, n) \
	for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x, step_ = (u64)gridDim.x * blockDim.x; i < (u64)(n); i += step_)

// INSTANTIATE makes a template's two kernels, or the one of a module of one type.
#if defined(ONLY_FLOAT)
#define INSTANTIATE(K, name, Args) \
	K(name##_f32, Args) { name<float>(a); }
#elif defined(ONLY_DOUBLE)
#define INSTANTIATE(K, name, Args) \
	K(name##_f64, Args) { name<double>(a); }
#else
#define INSTANTIATE(K, name, Args) \
	K(name##_f32, Args) { name<float>(a); } \
	K(name##_f64, Args) { name<double>(a); }
#endif

// A Quad is four elements, which one access to memory moves.
template <typename T> struct alignas(4 * sizeof(T)) Quad {
	T x[4];
};

static __device__ __forceinline__ float infinity(float) { return __int_as_float(0x7f800000); }
static __device__ __forceinline__ double infinity(double) { return __longlong_as_double(0x7ff0000000000000LL); }

#endif
