// The part of CUDA's runtime that conv_bench.cu uses, on a CPU, so that the
// benchmark's checks run without a GPU.

#include <cstdlib>
#include <cstring>

typedef int cudaStream_t;
typedef int cudaError_t;
enum { cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost };
struct dim3 {
	unsigned x, y, z;
	dim3(unsigned a, unsigned b, unsigned c) : x(a), y(b), z(c) {}
};

static inline int cudaStreamCreate(cudaStream_t *s) { return *s = 0; }
static inline int cudaMalloc(void **p, size_t n) { return (*p = aligned_alloc(64, (n + 63) / 64 * 64)) == nullptr; }
static inline int cudaFree(void *p) { free(p); return 0; }
static inline int cudaMemset(void *p, int v, size_t n) { memset(p, v, n); return 0; }
static inline int cudaMemcpy(void *to, const void *from, size_t n, int) { memcpy(to, from, n); return 0; }
static inline int cudaDeviceSynchronize() { return 0; }
static inline int cudaLaunchKernel(const void *kernel, dim3 grid, dim3 block, void **params, size_t, cudaStream_t) {
	fake_emulate((const emulated *)kernel, params[0], grid.x, grid.y, block.x);
	return 0;
}
