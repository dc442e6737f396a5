// versions.h: what differs between the versions of PyTorch that the class is built for. The class is bound to the
// minor version that it was built with, but its source asks the headers and not their version, since development
// builds are between versions. A method whose parameters changed is there in each form, and one of them overrides.
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
#include <optional>
#include <type_traits>
#include <utility>

namespace cupool_torch {

namespace native = c10::cuda::CUDACachingAllocator;

using c10::MempoolId_t;
using native::DeviceStats;
using native::RecordContext;
using native::SegmentInfo;
using native::TraceEntry;
using AnnotationEntry = decltype(native::SnapshotInfo::external_annotations)::value_type;
using Context = std::shared_ptr<c10::GatheredContext>;

// An allocator of a pool's own.
using PoolAllocator = std::shared_ptr<native::CUDAAllocator>;

// Whether the method of PyTorch's class takes these.
template <typename Method, typename... Args>
constexpr bool takes = std::is_same_v<Method, void (native::CUDAAllocator::*)(c10::DeviceIndex, MempoolId_t, Args...)>;

// A pure method that is not overridden is an error by itself. These two would be without effect.
static_assert(takes<decltype(&native::CUDAAllocator::createOrIncrefPool), PoolAllocator> ||
                  takes<decltype(&native::CUDAAllocator::createOrIncrefPool), native::CUDAAllocator*>,
              "cupool's class is too old for this PyTorch");
static_assert(takes<decltype(&native::CUDAAllocator::setUseOnOOM), bool> ||
                  takes<decltype(&native::CUDAAllocator::setUseOnOOM)>,
              "cupool's class is too old for this PyTorch");

// What not all versions have, each twice: with an int where it is there, else with a long.
template <typename Segment>
auto setCounter(Segment* to, int32_t counter, int) -> decltype(void(to->registration_counter)) {
  to->registration_counter = counter;
}
template <typename Segment>
void setCounter(Segment*, int32_t, long) {}

template <typename Info, typename Config>
auto setStreamReuse(Info* to, const Config*, int)
    -> decltype(void(to->graph_capture_record_stream_reuse = Config::graph_capture_record_stream_reuse())) {
  to->graph_capture_record_stream_reuse = Config::graph_capture_record_stream_reuse();
}
template <typename Info, typename Config>
void setStreamReuse(Info*, const Config*, long) {}

template <typename Info, typename Config>
auto setPinnedSizes(Info* to, const Config*, int)
    -> decltype(void(to->max_cached_size = Config::pinned_max_cached_size())) {
  to->max_cached_size = Config::pinned_max_cached_size();
  to->max_round_threshold = Config::pinned_max_round_threshold();
}
template <typename Info, typename Config>
void setPinnedSizes(Info*, const Config*, long) {}

template <typename Stats, typename Reserved>
auto setReserved(Stats* to, MempoolId_t pool, const Reserved& reserved, int)
    -> decltype(to->reserved_bytes_by_private_pools[pool] = reserved, std::true_type()) {
  to->reserved_bytes_by_private_pools[pool] = reserved;
  return {};
}
template <typename Stats, typename Reserved>
std::false_type setReserved(Stats*, MempoolId_t, const Reserved&, long) {
  return {};
}
// Whether statistics have what each private pool has reserved.
constexpr bool reportsPools =
    decltype(setReserved(static_cast<DeviceStats*>(nullptr), MempoolId_t(), c10::CachingAllocator::StatArray(), 0))::value;

template <typename Entry>
auto annotateAction(int) -> decltype(std::optional<typename Entry::Action>(Entry::ANNOTATE)) {
  return Entry::ANNOTATE;
}
template <typename Entry>
std::optional<typename Entry::Action> annotateAction(long) {
  return std::nullopt;
}

template <typename Config>
auto memoryFraction(const Config*, int) -> decltype(double(Config::per_process_memory_fraction())) {
  return Config::per_process_memory_fraction();
}
template <typename Config>
double memoryFraction(const Config*, long) {
  return 1;
}

// An entry of the trace, with what the thread says of itself where it takes that.
template <typename Entry, typename... Args>
Entry traceEntry(const std::string& metadata, Args&&... args) {
  if constexpr (std::is_constructible_v<Entry, Args..., std::string>) {
    return Entry(std::forward<Args>(args)..., metadata);
  } else {
    return Entry(std::forward<Args>(args)...);
  }
}

} // namespace cupool_torch
