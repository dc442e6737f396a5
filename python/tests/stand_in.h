// stand_in.h: what the stand-in of PyTorch's libraries has seen.
#pragma once

#include <c10/core/Allocator.h>

#include <cuda_runtime_api.h>

#include <map>
#include <vector>

namespace stand_in {

struct Report {
  void* p;
  int64_t size;
  size_t allocated, reserved;
};

extern std::vector<Report> reports; // to the profiler
extern bool profiling;
extern int freeCallbacks; // how often memory was asked back
extern std::map<void*, size_t> plain; // blocks of cudaMalloc

c10::Allocator* registeredAllocator();
void setStream(cudaStream_t stream); // of the calling thread

} // namespace stand_in
