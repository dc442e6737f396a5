// Measures cudaMallocAsync with a pool that gives nothing back, and cudaMalloc
// with cudaFree, in the format of Go's benchmarks.
//
//	nvcc -O3 -std=c++17 -o cuda_alloc cuda_alloc.cu && ./cuda_alloc ROUNDS
#include "workload.h"

#include <cstdlib>
#include <cuda_runtime_api.h>

static void check(cudaError_t err) {
  if (err == cudaSuccess) return;
  std::fprintf(stderr, "cuda_alloc: %s\n", cudaGetErrorString(err));
  std::exit(1);
}

// on_stream returns what runs pairs of 1 MiB on a stream.
static std::function<void(long)> on_stream(cudaStream_t stream) {
  check(cudaSetDevice(0));
  return [stream](long n) {
    workload::pairs([stream](size_t size) { void *p; check(cudaMallocAsync(&p, size, stream)); return p; },
                    [stream](void *p) { check(cudaFreeAsync(p, stream)); }, workload::MiB, n);
  };
}

static cudaStream_t new_stream() {
  cudaStream_t stream;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  return stream;
}

int main(int argc, char **argv) {
  int rounds = argc > 1 ? std::atoi(argv[1]) : 3;
  check(cudaSetDevice(0));
  cudaMemPool_t pool;
  check(cudaDeviceGetDefaultMemPool(&pool, 0));
  uint64_t keep = UINT64_MAX;
  check(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep));

  int version;
  check(cudaDriverGetVersion(&version));
  std::printf("peer: cudaMallocAsync, CUDA %d.%d\n", version / 1000, version % 1000 / 10);
  cudaStream_t stream = new_stream();
  using Prepare = std::function<std::function<void(long)>()>;
  workload::measure([stream](size_t size) { void *p; check(cudaMallocAsync(&p, size, stream)); return p; },
                    [stream](void *p) { check(cudaFreeAsync(p, stream)); },
                    Prepare([stream] { return on_stream(stream); }),
                    Prepare([] { return on_stream(new_stream()); }), rounds);

  constexpr long n = 2000;
  for (int i = 0; i < rounds; i++)
    workload::print("DriverPair/size=1MiB", 1, n, workload::hits([](size_t size) { void *p; check(cudaMalloc(&p, size)); return p; },
                                                                 [](void *p) { check(cudaFree(p)); }, workload::MiB, n));
}
