// errors.cpp: failures of the library as PyTorch's exceptions. The text of an out of memory begins as PyTorch's,
// because programs look for that, and goes on with cupool's.
#include "allocator.h"

#include <c10/cuda/CUDAFunctions.h>

#include <cstring>

namespace cupool_torch {

using c10::CachingAllocator::format_size;

namespace {

// The text of an out of memory, which names functions of cupool.h, in what PyTorch's users call.
std::string inPython(std::string text, bool recording) {
  const std::pair<const char*, const char*> words[] = {
      {"to see what holds memory, give it names by cupool_label_push",
       recording ? "torch.cuda.memory._dump_snapshot() has the lines that hold memory"
                 : "to see which lines hold memory, call torch.cuda.memory._record_memory_history()"},
      {"cupool_set_limit", "cupool.set_limit"},
      {"cupool_set_fraction", "torch.cuda.set_per_process_memory_fraction"},
      {"cupool_wait", "torch.cuda.synchronize()"},
      {"cupool_begin", "a torch.cuda.MemPool"},
      {"cupool_trim of", "deleting the graphs or the MemPool of"},
      {"CUPOOL_POOL_USE_ON_OOM for", "use_on_oom=True for"},
      {"a limit in cupool_pool_config for", "deleting some of what is in"},
  };
  for (const auto& [c, python] : words) {
    for (size_t at = 0; (at = text.find(c, at)) != std::string::npos; at += std::strlen(python)) {
      text.replace(at, std::strlen(c), python);
    }
  }
  return text;
}

} // namespace

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

void Allocator::failAllocation(cupool_status status, c10::DeviceIndex device, size_t size, cudaStream_t stream,
                               uint64_t poolFailuresBefore) {
  rethrowPoolFailure(poolFailuresBefore);
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
  auto& history = devices_[device].history;
  const std::string ours = inPython(lib.last_error_(), history.enabled());
  size_t deviceFree = 0, total = 0;
  (void)lib.memory_info_(device, &deviceFree, &total, nullptr);
  cupool_stats stats{};
  stats.struct_size = sizeof stats;
  (void)lib.get_stats_(device, CUPOOL_ALL, &stats);
  const int64_t allocated = stats.allocated_bytes.all.current, reserved = stats.reserved_bytes.all.current;

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
