// stats.cpp: statistics and snapshots by PyTorch's names. A snapshot agrees with the statistics to the byte.
#include "allocator.h"

#include <c10/core/AllocatorConfig.h>

#include <algorithm>

namespace cupool_torch {

namespace {

c10::CachingAllocator::Stat stat(const cupool_stat& from) {
  c10::CachingAllocator::Stat to;
  to.current = from.current;
  to.peak = from.peak;
  to.allocated = from.allocated;
  to.freed = from.freed;
  return to;
}

c10::CachingAllocator::StatArray stats3(const cupool_stats3& from) {
  return {stat(from.all), stat(from.small), stat(from.large)};
}

cupool_stat minus(const cupool_stat& a, const cupool_stat& b) {
  return {a.current - b.current, std::max(a.peak - b.peak, a.current - b.current), a.allocated - b.allocated,
          a.freed - b.freed};
}

cupool_stats3 minus(const cupool_stats3& a, const cupool_stats3& b) {
  return {minus(a.all, b.all), minus(a.small, b.small), minus(a.large, b.large)};
}

// Programs that set expandable_segments look for such segments in snapshots. Without it, virtual memory is reported
// as PyTorch's ordinary segments are.
bool reportsExpandable() { return c10::CachingAllocator::AcceleratorAllocatorConfig::use_expandable_segments(); }

} // namespace

void lookAgain(c10::DeviceIndex device, MempoolId_t id, cupool_stats3* reserved) {
  cupool_stats stats{};
  stats.struct_size = sizeof stats;
  if (lib.get_stats_(device, poolId(id), &stats) == CUPOOL_OK) {
    *reserved = stats.reserved_bytes;
    return;
  }
  for (cupool_stat* s : {&reserved->all, &reserved->small, &reserved->large}) {
    s->freed += s->current;
    s->current = 0;
  }
}

// Calls f for each statistic of what the private pools of a device have reserved.
void Allocator::eachReserved(c10::DeviceIndex device, const std::function<void(cupool_stat*)>& f) {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (auto& [key, reserved] : reserved_) {
    if (key.first == device) {
      f(&reserved.all);
      f(&reserved.small);
      f(&reserved.large);
    }
  }
}

DeviceStats Allocator::getDeviceStats(c10::DeviceIndex device) {
  known(device);
  DeviceStats to;
  if (!hasPool(device)) {
    return to;
  }
  cupool_stats from{};
  from.struct_size = sizeof from;
  check(lib.get_stats_(device, CUPOOL_ALL, &from));
  if (reportsExpandable()) {
    // PyTorch counts neither expandable segments nor free blocks in them.
    cupool_stats own{};
    own.struct_size = sizeof own;
    check(lib.get_stats_(device, CUPOOL_MAIN, &own));
    from.segment = minus(from.segment, own.segment);
    from.inactive_split = minus(from.inactive_split, own.inactive_split);
    from.inactive_split_bytes = minus(from.inactive_split_bytes, own.inactive_split_bytes);
  }
  to.allocation = stats3(from.allocation);
  to.segment = stats3(from.segment);
  to.active = stats3(from.active);
  to.inactive_split = stats3(from.inactive_split);
  to.allocated_bytes = stats3(from.allocated_bytes);
  to.reserved_bytes = stats3(from.reserved_bytes);
  to.active_bytes = stats3(from.active_bytes);
  to.inactive_split_bytes = stats3(from.inactive_split_bytes);
  to.requested_bytes = stats3(from.requested_bytes);
  to.oversize_allocations = stat(from.oversize_allocations);
  to.oversize_segments = stat(from.oversize_segments);
  to.num_alloc_retries = from.num_alloc_retries;
  to.num_ooms = from.num_ooms;
  to.num_sync_all_streams = from.num_sync_all_streams;
  to.num_device_alloc = from.num_device_alloc;
  to.num_device_free = from.num_device_free;
  to.max_split_size = from.max_split_size;
  const std::lock_guard<std::mutex> lock(mutex_);
  for (auto& [key, reserved] : reserved_) {
    if (key.first == device) {
      lookAgain(device, key.second, &reserved);
      setReserved(&to, key.second, stats3(reserved), 0);
    }
  }
  return to;
}

void Allocator::resetAccumulatedStats(c10::DeviceIndex device) {
  known(device);
  if (hasPool(device)) {
    check(lib.reset_accumulated_(device));
    eachReserved(device, [](cupool_stat* s) { s->allocated = s->freed = 0; });
  }
}

void Allocator::resetPeakStats(c10::DeviceIndex device) {
  known(device);
  if (hasPool(device)) {
    check(lib.reset_peaks_(device));
    eachReserved(device, [](cupool_stat* s) { s->peak = s->current; });
  }
}

Allocator::Layout Allocator::layout(c10::DeviceIndex device, cupool_pool_id id, cupool_status* status) {
  Layout layout;
  cupool_visitor visitor{};
  visitor.struct_size = sizeof visitor;
  visitor.user = &layout;
  visitor.segment = [](void* user, const cupool_segment* segment) {
    static_cast<Layout*>(user)->segments.push_back({*segment, {}});
    return 0;
  };
  visitor.block = [](void* user, const cupool_block_entry* block) {
    auto& segment = static_cast<Layout*>(user)->segments.back();
    auto& blocks = segment.blocks;
    // A free block in a cache of the library is one with its free neighbours: layouts of a private pool are compared.
    if (poolId(segment.info.pool) != MempoolId_t{0, 0} && !blocks.empty() && block->state == CUPOOL_BLOCK_FREE &&
        blocks.back().state == CUPOOL_BLOCK_FREE) {
      blocks.back().size += block->size;
      return 0;
    }
    blocks.push_back(*block);
    blocks.back().label = "";
    return 0;
  };
  *status = lib.snapshot_(device, id, &visitor);
  return layout;
}

void Allocator::addSegments(c10::DeviceIndex device, MempoolId_t id, std::vector<SegmentInfo>* segments) {
  auto& history = devices_[device].history;
  cupool_status status = CUPOOL_OK;
  const bool all = id == MempoolId_t{0, 0};
  const Layout found = layout(device, all ? CUPOOL_ALL : poolId(id), &status);
  if (status == CUPOOL_ERROR_NOT_FOUND) {
    return;
  }
  check(status);
  std::set<void*> pending;
  size_t active = 0;
  const size_t first = segments->size();
  for (const auto& from : found.segments) {
    segments->emplace_back();
    SegmentInfo& to = segments->back();
    to.device = device;
    to.address = reinterpret_cast<size_t>(from.info.address);
    to.total_size = from.info.size;
    to.requested_size = from.info.requested;
    to.allocated_size = from.info.allocated;
    to.active_size = from.info.active;
    to.stream = static_cast<cudaStream_t>(from.info.stream);
    to.is_large = from.info.is_large != 0;
    to.is_expandable = from.info.is_virtual != 0 && reportsExpandable();
    to.owner_private_pool_id = poolId(from.info.pool);
    const SegmentNote note = history.noteOf(from.info.address, from.info.size);
    to.context_when_allocated = from.info.active == 0 && history.ofState() ? nullptr : note.context;
    setCounter(&to, note.counter, 0);
    active += from.info.active;
    for (const auto& block : from.blocks) {
      to.blocks.emplace_back();
      auto& info = to.blocks.back();
      info.size = block.size;
      info.requested_size = block.requested;
      info.allocated = block.state == CUPOOL_BLOCK_LIVE;
      info.active = block.state != CUPOOL_BLOCK_FREE;
      if (info.active) {
        info.context_when_allocated = history.contextOf(block.address);
      }
      if (block.state == CUPOOL_BLOCK_PENDING) {
        pending.insert(block.address);
      }
    }
  }
  std::sort(segments->begin() + static_cast<std::ptrdiff_t>(first), segments->end(),
            [](const SegmentInfo& a, const SegmentInfo& b) { return a.address < b.address; });
  if (all) {
    history.complete(device, pending);
  }
  history.snapshotTaken(device, id, active);
}

native::SnapshotInfo Allocator::snapshot(MempoolId_t id, bool traces) {
  const auto nanoseconds = clock_.makeConverter();
  const auto micros = [&](c10::approx_time_t t) { return nanoseconds(t) / 1000; };
  native::SnapshotInfo result{}; // newer versions have more
  if (traces) {
    const std::lock_guard<std::mutex> lock(mutex_);
    result.external_annotations = annotations_.all();
  }
  for (auto& entry : result.external_annotations) {
    entry.time_.t_ = micros(entry.time_.approx_t_);
  }
  for (int i = 0; i < count_; i++) {
    const auto device = static_cast<c10::DeviceIndex>(i);
    std::vector<SegmentInfo> segments;
    std::vector<TraceEntry> trace;
    if (traces) {
      trace = devices_[i].history.trace(micros);
    }
    if (hasPool(i)) {
      addSegments(device, id, &segments);
    }
    std::move(segments.begin(), segments.end(), std::back_inserter(result.segments));
    if (traces) {
      result.device_traces.push_back(std::move(trace));
    }
  }
  using Config = c10::CachingAllocator::AcceleratorAllocatorConfig;
  using CudaConfig = native::CUDAAllocatorConfig;
  auto& config = result.config_metadata;
  config.garbage_collection_threshold = Config::garbage_collection_threshold();
  config.max_split_size = Config::max_split_size();
  config.pinned_num_register_threads = CudaConfig::pinned_num_register_threads();
  config.expandable_segments = CudaConfig::expandable_segments();
  config.release_lock_on_malloc = CudaConfig::release_lock_on_cudamalloc();
  config.pinned_use_host_register = CudaConfig::pinned_use_cuda_host_register();
  setStreamReuse(&config, static_cast<const CudaConfig*>(nullptr), 0);
  setPinnedSizes(&config, static_cast<const CudaConfig*>(nullptr), 0);
  config.last_allocator_settings = Config::last_allocator_settings();
  config.roundup_power2_divisions = Config::roundup_power2_divisions();
  return result;
}

} // namespace cupool_torch
