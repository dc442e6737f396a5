// versions.h: what differs between the minor versions of PyTorch that the class is built for. The class is bound to
// the one that it was built with.
#pragma once

#if __has_include(<torch/headeronly/version.h>)
#include <torch/headeronly/version.h>
#else
#include <torch/version.h>
#endif

#include <c10/cuda/CUDACachingAllocator.h>

#if TORCH_VERSION_MAJOR != 2 || TORCH_VERSION_MINOR < 9
#error "cupool's class for PyTorch needs PyTorch 2.9 or later"
#endif

#include <memory>

namespace cupool_torch {

namespace native = c10::cuda::CUDACachingAllocator;

using c10::MempoolId_t;
using native::DeviceStats;
using native::RecordContext;
using native::SegmentInfo;
using native::TraceEntry;
using Context = std::shared_ptr<c10::GatheredContext>;

// How a pool is given an allocator of its own.
#if TORCH_VERSION_MINOR >= 11
using PoolAllocator = std::shared_ptr<native::CUDAAllocator>;
#else
using PoolAllocator = native::CUDAAllocator*;
#endif

} // namespace cupool_torch
