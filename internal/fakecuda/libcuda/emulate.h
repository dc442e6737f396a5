// The part of CUDA C++ that the kernels of ../../kernels use, on a CPU, so
// that the stand-in driver runs those kernels themselves. A launch runs its
// blocks in turn and the threads of a block in turn; the threads of a
// BARRIER_KERNEL are fibers, which give way where a thread waits for others.

#ifndef EMULATE_H
#define EMULATE_H

#include <stddef.h>
#include <stdint.h>

// A kernel as the driver sees it.
typedef struct {
	void (*thread)(const void *args);
	size_t size; // of its argument, a structure
	int barriers;
} emulated;

#ifdef __cplusplus
#include <cmath>
#include <cstring>

typedef int64_t i64;
typedef uint64_t u64;

struct emulated_dim {
	unsigned x, y, z;
};
extern __thread emulated_dim threadIdx, blockIdx, blockDim, gridDim; // thread_local may call a function each time

#define __device__
#define __forceinline__ inline
#define __noinline__
#define __shared__ static thread_local // blocks of a launch run on one thread

#define EMULATED(name, Args, barriers)                                     \
	static void name##_thread(const Args &a);                          \
	extern "C" {                                                       \
	extern const emulated emulated_##name;                             \
	const emulated emulated_##name = {                                 \
		[](const void *p) { name##_thread(*(const Args *)p); },    \
		sizeof(Args), barriers};                                   \
	}                                                                  \
	static void name##_thread(const Args &a)
#define KERNEL(name, Args) EMULATED(name, Args, 0)
#define BARRIER_KERNEL(name, Args) EMULATED(name, Args, 1)
#define BOUNDED_KERNEL(name, Args, threads, blocks) BARRIER_KERNEL(name, Args)

void __syncthreads();

// emulated_exchange leaves 8 bytes for the warp and takes those of a lane.
u64 emulated_exchange(u64 bits, unsigned lane);

template <typename T> static T __shfl_xor_sync(unsigned, T v, int mask) {
	u64 bits = 0;
	memcpy(&bits, &v, sizeof v);
	bits = emulated_exchange(bits, (threadIdx.x ^ (unsigned)mask) % 32);
	memcpy(&v, &bits, sizeof v);
	return v;
}

static inline i64 min(i64 a, i64 b) { return a < b ? a : b; }
static inline float __int_as_float(int i) { float f; memcpy(&f, &i, sizeof f); return f; }
static inline double __longlong_as_double(long long i) { double d; memcpy(&d, &i, sizeof d); return d; }
#endif

#endif
