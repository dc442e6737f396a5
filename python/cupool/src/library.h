// library.h: libcupool.so, found and opened when PyTorch initializes CUDA in a process, and never before: a process
// that opens it and forks has no Go runtime in the child.
#pragma once

#include <cupool.h>

#include <string>

namespace cupool_torch {

#define CUPOOL_TORCH_FUNCTIONS(X)                                                                                      \
  X(last_error) X(last_status) X(status_name) X(version) X(open) X(is_open) X(set_fraction) X(fraction)                \
  X(memory_info) X(enable_peer) X(alloc) X(alloc_at) X(free) X(record_stream) X(record_stream_on) X(collect)           \
  X(block) X(pool_create) X(pool_set_flags) X(begin) X(end) X(pool_release) X(pool_use_count) X(trim) X(get_stats)     \
  X(reset_peaks) X(reset_accumulated) X(last_oom) X(snapshot) X(set_callbacks) X(export) X(import) X(unimport)         \
  X(configure)

// The functions of cupool.h that the class calls, by their names without the prefix. A member is null until load.
struct Library {
#define CUPOOL_TORCH_MEMBER(name) decltype(&::cupool_##name) name##_ = nullptr;
  CUPOOL_TORCH_FUNCTIONS(CUPOOL_TORCH_MEMBER)
#undef CUPOOL_TORCH_MEMBER

  // Takes the copy that the process has already, or else opens the file. Raises where neither is possible.
  void load(const std::string& file);
  bool loaded() const { return alloc_ != nullptr; }
};

extern Library lib;

} // namespace cupool_torch
