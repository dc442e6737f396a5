// history.h: what PyTorch wants to know of the past: the trace of allocations and frees with Python's stacks, the
// stack of each live block, and trackers, which are told each event. It is kept here and not in the library: an event
// then costs no call of it, and PyTorch gets back the very objects that it made.
//
// Nothing here calls the library with a lock held, because the library calls segment with locks of its own.
#pragma once

#include "versions.h"

#include <cupool.h>

#include <atomic>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace cupool_torch {

// The newest entries, at most so many.
template <typename T>
class Ring {
 public:
  void limit(size_t most) {
    most_ = most > 0 ? most : 1;
    shrink();
  }
  void add(T entry) {
    entries_.push_back(std::move(entry));
    shrink();
  }
  void clear() { entries_.clear(); }
  std::vector<T> all() const { return {entries_.begin(), entries_.end()}; }

 private:
  void shrink() {
    while (entries_.size() > most_) {
      entries_.pop_front();
    }
  }
  std::deque<T> entries_;
  size_t most_ = 1;
};

// A block as the trace names it.
struct Block {
  void* address = nullptr;
  size_t size = 0; // as requested
  void* stream = nullptr;
  MempoolId_t pool = {0, 0};
  Context context; // where it was allocated
  bool recorded = false; // on another stream, so that its free may complete later
};

// What is known of a segment beside what the library says.
struct SegmentNote {
  Context context; // where it was allocated
  int32_t counter = -1; // the place in the order of the segments of private pools
};

// The history of a device.
class History {
 public:
  void start(bool enabled, native::CreateContextFn gather, size_t entries, RecordContext when, bool clear,
             const std::vector<std::string>& skip);
  void track(native::AllocatorTraceTracker tracker);

  bool enabled() const { return enabled_.load(std::memory_order_relaxed); }
  // Whether allocations and frees are to be told.
  bool watches() const { return watches_.load(std::memory_order_relaxed); }
  // Whether stacks are kept for memory in use alone, and not for events.
  bool ofState() const { return when_.load() == RecordContext::STATE; }
  // Whether it holds notes of blocks, which their frees take away.
  bool holds() const { return watches() || held_.load(std::memory_order_relaxed) > 0; }

  // The stack of here where the level wants it. It takes Python's lock: hold no other.
  Context gather(RecordContext level) const;

  void allocated(c10::DeviceIndex device, Block block);
  // ours: the stream is of this device. The default streams of all have one handle.
  void recorded(void* address, bool ours, void* stream);
  // Takes the note of a block away before the block is freed. False: there is none.
  bool forget(void* address, Block* block);
  void freed(c10::DeviceIndex device, const Block& block, Context context);
  // A note of the program on a live block. False: the block is not known.
  bool annotated(c10::DeviceIndex device, const void* address, const std::string& text);
  void outOfMemory(c10::DeviceIndex device, size_t deviceFree, size_t size, void* stream, Context context);
  // A segment came or goes. The library calls it with its locks held.
  void segment(c10::DeviceIndex device, cupool_segment_action action, MempoolId_t pool, void* address, size_t size,
               void* stream, const Context& context);
  void snapshotTaken(c10::DeviceIndex device, MempoolId_t pool, size_t active);

  // The frees that are complete by now: all that wait but for blocks that the device still uses.
  void complete(c10::DeviceIndex device, const std::set<void*>& pending);
  Context contextOf(void* address);
  SegmentNote noteOf(void* address, size_t size);
  std::vector<TraceEntry> trace(const std::function<c10::time_t(c10::approx_time_t)>& micros);

  // What the calling thread compiles, and what it says of itself.
  static void pushCompileContext(const std::string& text);
  static void popCompileContext();
  static std::string& userMetadata();

 private:
  using Trackers = std::vector<native::AllocatorTraceTracker>;
  void record(TraceEntry::Action action, c10::DeviceIndex device, size_t address, size_t size, void* stream,
              MempoolId_t pool, Context context, const std::string& metadata = userMetadata());
  void completeOverlap(c10::DeviceIndex device, const Block& block);
  void refresh();

  std::atomic<bool> enabled_{false};
  std::atomic<bool> watches_{false};
  std::atomic<size_t> held_{0};
  std::atomic<RecordContext> when_{RecordContext::NEVER};
  std::atomic<native::CreateContextFn> gather_{nullptr};

  std::mutex mutex_;
  std::set<TraceEntry::Action> skip_;
  Ring<TraceEntry> ring_;
  std::shared_ptr<const Trackers> trackers_ = std::make_shared<Trackers>();
  std::unordered_map<void*, Block> live_;
  std::map<void*, Block> waiting_; // freed, and perhaps still used by other streams
  std::map<void*, SegmentNote> segments_;
  int32_t segmentsOfPools_ = 0;
};

} // namespace cupool_torch
