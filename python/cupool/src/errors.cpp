// errors.cpp: failures of the library as PyTorch's exceptions. The text of an out of memory begins as PyTorch's,
// because programs look for that, and goes on with cupool's.
#include "allocator.h"

#include <c10/cuda/CUDAFunctions.h>

namespace cupool_torch {

using c10::CachingAllocator::format_size;

void check(cupool_status status) {
  if (C10_LIKELY(status == CUPOOL_OK)) {
    return;
  }
  const std::string text = lib.last_error_();
  if (status == CUPOOL_ERROR_DEVICE_LOST) {
    // As PyTorch raises it, where the runtime knows of it: after an illegal memory access, and after asserts of kernels.
    C10_CUDA_CHECK(cudaPeekAtLastError());
  }
  if (status == CUPOOL_ERROR_CONFIG) {
    TORCH_CHECK_VALUE(false, text);
  }
  TORCH_CHECK(false, text);
}

void Allocator::failAllocation(cupool_status status, c10::DeviceIndex device, size_t size, cudaStream_t stream) {
  rethrowPoolFailure();
  size_t total = 0;
  if (status == CUPOOL_ERROR_INVALID && lib.memory_info_(device, nullptr, &total, nullptr) == CUPOOL_OK &&
      size > total) {
    status = CUPOOL_ERROR_OUT_OF_MEMORY;
  }
  if (status == CUPOOL_ERROR_OUT_OF_MEMORY) {
    raiseOutOfMemory(device, size, stream);
  }
  check(status);
  TORCH_CHECK(false, "cupool: an allocation failed without a reason");
}

void Allocator::raiseOutOfMemory(c10::DeviceIndex device, size_t size, cudaStream_t stream) {
  const std::string ours = lib.last_error_();
  size_t deviceFree = 0, total = 0;
  (void)lib.memory_info_(device, &deviceFree, &total, nullptr);
  cupool_stats stats{};
  stats.struct_size = sizeof stats;
  (void)lib.get_stats_(device, CUPOOL_ALL, &stats);
  const int64_t allocated = stats.allocated_bytes.all.current, reserved = stats.reserved_bytes.all.current;

  auto& history = devices_[device].history;
  history.outOfMemory(device, deviceFree, size, stream, history.gather(RecordContext::STATE));
  c10::reportOutOfMemoryToProfiler(static_cast<int64_t>(size), allocated, reserved,
                                   c10::Device(c10::DeviceType::CUDA, device));
  std::vector<native::OutOfMemoryObserver> observers;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    observers = observers_;
  }
  // Observers take Python's lock, and no other is held here.
  for (const auto& observer : observers) {
    observer(device, size, stats.limit > 0 ? static_cast<size_t>(stats.limit) : total, deviceFree);
  }
  TORCH_CHECK_WITH(OutOfMemoryError, false, "CUDA out of memory. Tried to allocate ", format_size(size), ". GPU ",
                   static_cast<int>(device), " has a total capacity of ", format_size(total), " of which ",
                   format_size(deviceFree), " is free. ",
                   stats.limit > 0 ? format_size(stats.limit) + " allowed; " : std::string(),
                   "Of the allocated memory ", format_size(allocated), " is allocated by PyTorch, and ",
                   format_size(reserved - allocated), " is reserved by PyTorch but unallocated.\n", ours);
}

} // namespace cupool_torch
