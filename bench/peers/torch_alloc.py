"""Measures PyTorch's caching allocator by its C++ interface, in the format of Go's benchmarks.

usage: torch_alloc.py [ROUNDS]
"""
import pathlib
import sys

import torch
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <torch/extension.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>
#include "workload.h"

using workload::MiB;

static auto torch_allocator() { return c10::cuda::CUDACachingAllocator::get(); }

static void check(cudaError_t err) { TORCH_CHECK(err == cudaSuccess, cudaGetErrorString(err)); }

static std::function<void(long)> pairs_here() {
  auto *a = torch_allocator();
  return [a](long n) {
    workload::pairs([a](size_t size) { return a->raw_alloc(size); },
                    [a](void *p) { a->raw_deallocate(p); }, MiB, n);
  };
}

// A block of the current stream that another one uses: allocated, recorded and freed.
static void cross(int rounds) {
  auto *a = torch_allocator();
  auto other = c10::cuda::getStreamFromPool();
  auto once = [&] { c10::DataPtr p = a->allocate(MiB); a->recordStream(p, other); };
  c10::DataPtr work = a->allocate(workload::busy_bytes);
  auto settle = [&] {
    other.synchronize();
    check(cudaMemsetAsync(work.get(), 0, workload::busy_bytes, other.stream()));
  };
  for (int r = 0; r < rounds; r++) {
    const long n = 50000, batches = 500;
    for (int i = 0; i < 1000; i++) once();
    auto start = std::chrono::steady_clock::now();
    for (long i = 0; i < n; i++) once();
    workload::print("CrossStream/device=idle", 1, n, workload::since(start, n));
    workload::cross_busy(once, settle, 8);
    workload::print("CrossStream/device=busy", 1, batches * workload::cross_batch, workload::cross_busy(once, settle, batches));
    other.synchronize();
  }
}

void measure(int rounds) {
  auto *a = torch_allocator();
  using Prepare = std::function<std::function<void(long)>()>;
  Prepare shared = [] { c10::cuda::set_device(0); return pairs_here(); };
  Prepare own = [] {
    c10::cuda::set_device(0);
    c10::cuda::setCurrentCUDAStream(c10::cuda::getStreamFromPool()); // of this thread
    return pairs_here();
  };
  workload::measure([a](size_t size) { return a->raw_alloc(size); }, [a](void *p) { a->raw_deallocate(p); }, shared, own, rounds);
  cross(rounds);
}
"""

peer = load_inline(
    "cupool_peer",
    cpp_sources=[SOURCE],
    functions=["measure"],
    with_cuda=True,
    extra_cflags=["-O3"],
    extra_include_paths=[str(pathlib.Path(__file__).resolve().parent)],
)
torch.zeros(1, device="cuda")
print("peer: PyTorch", torch.__version__, flush=True)
peer.measure(int(sys.argv[1]) if len(sys.argv) > 1 else 3)
