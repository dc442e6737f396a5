// history.cpp: the trace, the stacks of live blocks, and the trackers of a device.
#include "history.h"

#include <c10/util/ApproximateClock.h>

#include <stack>

namespace cupool_torch {

namespace {

thread_local std::stack<std::string> compileContext;
thread_local std::string ownMetadata;

bool actionOf(const std::string& name, TraceEntry::Action* action) {
  static const std::map<std::string, TraceEntry::Action> names = {
      {"alloc", TraceEntry::ALLOC},
      {"free_requested", TraceEntry::FREE_REQUESTED},
      {"free_completed", TraceEntry::FREE_COMPLETED},
      {"segment_alloc", TraceEntry::SEGMENT_ALLOC},
      {"segment_free", TraceEntry::SEGMENT_FREE},
      {"segment_map", TraceEntry::SEGMENT_MAP},
      {"segment_unmap", TraceEntry::SEGMENT_UNMAP},
      {"snapshot", TraceEntry::SNAPSHOT},
      {"oom", TraceEntry::OOM},
  };
  if (const auto annotate = annotateAction<TraceEntry>(0); annotate && name == "annotate") {
    *action = *annotate;
    return true;
  }
  const auto found = names.find(name);
  if (found == names.end()) {
    return false;
  }
  *action = found->second;
  return true;
}

size_t number(const void* address) { return reinterpret_cast<size_t>(address); }

} // namespace

void History::start(bool enabled, native::CreateContextFn gather, size_t entries, RecordContext when, bool clear,
                    const std::vector<std::string>& skip) {
  TORCH_CHECK(when == RecordContext::NEVER || gather != nullptr, "recordHistory needs a recorder of stacks");
  const std::lock_guard<std::mutex> lock(mutex_);
  skip_.clear();
  for (const auto& name : skip) {
    TraceEntry::Action action;
    if (actionOf(name, &action)) {
      skip_.insert(action);
    }
  }
  // The recorder is there before the level that asks for it, and goes after it.
  if (enabled) {
    gather_ = gather;
    when_ = when;
  } else {
    when_ = RecordContext::NEVER;
  }
  ring_.limit(entries);
  if (!enabled || clear) {
    ring_.clear();
  }
  if (!enabled) {
    waiting_.clear();
  }
  enabled_ = enabled;
  refresh();
}

void History::track(native::AllocatorTraceTracker tracker) {
  const std::lock_guard<std::mutex> lock(mutex_);
  auto more = std::make_shared<Trackers>(*trackers_);
  more->push_back(std::move(tracker));
  trackers_ = std::move(more);
  refresh();
}

void History::refresh() { watches_ = enabled_ || !trackers_->empty(); }

Context History::gather(RecordContext level) const {
  if (when_.load() < level) {
    return nullptr;
  }
  const auto gather = gather_.load();
  return gather != nullptr ? gather() : nullptr;
}

void History::record(TraceEntry::Action action, c10::DeviceIndex device, size_t address, size_t size, void* stream,
                     MempoolId_t pool, Context context, const std::string& metadata) {
  if (!watches()) {
    return;
  }
  const auto entry = traceEntry<TraceEntry>(
      metadata, action, device, address, size, static_cast<cudaStream_t>(stream), pool, c10::getApproximateTime(),
      when_.load() >= RecordContext::ALLOC ? std::move(context) : nullptr,
      compileContext.empty() ? std::string("N/A") : compileContext.top());
  std::shared_ptr<const Trackers> trackers;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    trackers = trackers_;
    if (enabled_ && skip_.count(action) == 0) {
      ring_.add(entry);
    }
  }
  // A tracker of allocations may ask for a snapshot, which takes the lock.
  for (const auto& tracker : *trackers) {
    tracker(entry);
  }
}

void History::allocated(c10::DeviceIndex device, Block block) {
  completeOverlap(device, block);
  record(TraceEntry::ALLOC, device, number(block.address), block.size, block.stream, block.pool, block.context);
  if (!enabled()) {
    return;
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  live_[block.address] = std::move(block);
  held_ = live_.size();
}

void History::recorded(void* address, bool ours, void* stream) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = live_.find(address);
  if (found != live_.end() && (!ours || found->second.stream != stream)) {
    found->second.recorded = true;
  }
}

bool History::forget(void* address, Block* block) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = live_.find(address);
  if (found == live_.end()) {
    return false;
  }
  *block = std::move(found->second);
  live_.erase(found);
  held_ = live_.size();
  return true;
}

void History::freed(c10::DeviceIndex device, const Block& block, Context context) {
  if (context == nullptr) {
    context = block.context;
  }
  record(TraceEntry::FREE_REQUESTED, device, number(block.address), block.size, block.stream, block.pool, context);
  if (block.recorded) {
    const std::lock_guard<std::mutex> lock(mutex_);
    auto& waiting = waiting_[block.address];
    waiting = block;
    waiting.context = std::move(context);
    return;
  }
  record(TraceEntry::FREE_COMPLETED, device, number(block.address), block.size, block.stream, block.pool,
         std::move(context));
}

void History::completeOverlap(c10::DeviceIndex device, const Block& block) {
  std::vector<Block> done;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (waiting_.empty()) {
      return;
    }
    const size_t from = number(block.address), to = from + block.size;
    auto it = waiting_.upper_bound(block.address);
    if (it != waiting_.begin()) {
      --it;
    }
    while (it != waiting_.end() && number(it->first) < to) {
      if (number(it->first) + it->second.size <= from) {
        ++it;
        continue;
      }
      done.push_back(std::move(it->second));
      it = waiting_.erase(it);
    }
  }
  for (auto& b : done) {
    record(TraceEntry::FREE_COMPLETED, device, number(b.address), b.size, b.stream, b.pool, std::move(b.context));
  }
}

void History::complete(c10::DeviceIndex device, const std::set<void*>& pending) {
  std::vector<Block> done;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (auto it = waiting_.begin(); it != waiting_.end();) {
      if (pending.count(it->first) != 0) {
        ++it;
        continue;
      }
      done.push_back(std::move(it->second));
      it = waiting_.erase(it);
    }
  }
  for (auto& b : done) {
    record(TraceEntry::FREE_COMPLETED, device, number(b.address), b.size, b.stream, b.pool, std::move(b.context));
  }
}

bool History::annotated(c10::DeviceIndex device, const void* address, const std::string& text) {
  Block block;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = live_.find(const_cast<void*>(address));
    if (found == live_.end()) {
      return false;
    }
    block = found->second;
  }
  if (const auto annotate = annotateAction<TraceEntry>(0)) {
    record(*annotate, device, number(address), block.size, block.stream, block.pool, gather(RecordContext::ALLOC), text);
  }
  return true;
}

void History::outOfMemory(c10::DeviceIndex device, size_t deviceFree, size_t size, void* stream, Context context) {
  record(TraceEntry::OOM, device, deviceFree, size, stream, {0, 0}, std::move(context));
}

void History::segment(c10::DeviceIndex device, cupool_segment_action action, MempoolId_t pool, void* address,
                      size_t size, void* stream, const Context& context) {
  static const TraceEntry::Action actions[] = {
      TraceEntry::SEGMENT_ALLOC, TraceEntry::SEGMENT_FREE, TraceEntry::SEGMENT_MAP, TraceEntry::SEGMENT_UNMAP};
  const bool comes = action == CUPOOL_SEGMENT_ALLOC || action == CUPOOL_SEGMENT_MAP;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (comes) {
      const bool counts = pool != MempoolId_t{0, 0};
      if (context != nullptr || counts) {
        segments_[address] = {context, counts ? segmentsOfPools_++ : -1};
      }
    } else {
      const auto first = segments_.lower_bound(address);
      segments_.erase(first, segments_.lower_bound(static_cast<char*>(address) + size));
    }
  }
  record(actions[action], device, number(address), size, stream, pool, context);
}

void History::snapshotTaken(c10::DeviceIndex device, MempoolId_t pool, size_t active) {
  record(TraceEntry::SNAPSHOT, device, 0, active, nullptr, pool, nullptr);
}

Context History::contextOf(void* address) {
  const std::lock_guard<std::mutex> lock(mutex_);
  auto found = live_.find(address);
  if (found != live_.end()) {
    return found->second.context;
  }
  const auto waits = waiting_.find(address);
  return waits != waiting_.end() ? waits->second.context : nullptr;
}

SegmentNote History::noteOf(void* address, size_t size) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = segments_.lower_bound(address);
  return found != segments_.end() && number(found->first) < number(address) + size ? found->second : SegmentNote{};
}

std::vector<TraceEntry> History::trace(const std::function<c10::time_t(c10::approx_time_t)>& micros) {
  std::vector<TraceEntry> entries;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    entries = ring_.all();
  }
  for (auto& entry : entries) {
    entry.time_.t_ = micros(entry.time_.approx_t_);
  }
  return entries;
}

void History::pushCompileContext(const std::string& text) { compileContext.push(text); }

void History::popCompileContext() {
  if (!compileContext.empty()) {
    compileContext.pop();
  }
}

std::string& History::userMetadata() { return ownMetadata; }

} // namespace cupool_torch
