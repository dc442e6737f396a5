// allocator.h: cupool as PyTorch's allocator of CUDA memory, over cupool.h. The files:
//
//   allocator.cpp   the way in, allocation and free, streams, peers, what PyTorch is told of each
//   errors.cpp      failures of the library as PyTorch's exceptions, and the text of an out of memory
//   settings.cpp    PyTorch's settings as cupool's
//   stats.cpp       statistics and snapshots
//   history.cpp     the trace, Python's stacks, trackers
//   pools.cpp       private pools: MemPool, captures
//   checkpoint.cpp  layouts of pools that graph trees go back to
//   ipc.cpp         memory of other processes
//   library.cpp     libcupool.so itself
#pragma once

#include "history.h"
#include "library.h"
#include "versions.h"

#include <c10/cuda/CUDAGuard.h>
#include <c10/util/ApproximateClock.h>

#include <array>
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

namespace cupool_torch {

class Shares; // ipc.cpp

inline cupool_pool_id poolId(MempoolId_t id) { return CUPOOL_POOL_ID(id.first, id.second); }
inline MempoolId_t poolId(cupool_pool_id id) { return {id.first, id.second}; }

// A device that PyTorch has. Its pool is opened when it is first used: before that it has no context, either.
struct Device {
  std::atomic<bool> open{false};
  std::mutex opening;
  std::optional<double> fraction; // that the program set before it was open
  History history;
};

// Methods without override are not in all versions of PyTorch, or not with these parameters (versions.h).
class Allocator final : public native::CUDAAllocator {
 public:
  // The one of this process, which is never destroyed: tensors are freed while static destructors run.
  static Allocator& get();

  // What install found out: where the library is, and settings of the program.
  void configure(std::string library, std::string settings);

  // Opens the device's pool where it is not open.
  void open(c10::DeviceIndex device);

  // c10::Allocator
  c10::DataPtr allocate(size_t size) override;
  c10::DeleterFnPtr raw_deleter() const override;
  void copy_data(void* to, const void* from, std::size_t count) const override;

  // c10::DeviceAllocator
  bool initialized() override;
  void emptyCache(MempoolId_t id) override;
  using native::CUDAAllocator::recordStream;
  void recordStream(const c10::DataPtr& data, c10::cuda::CUDAStream stream) override;
  DeviceStats getDeviceStats(c10::DeviceIndex device) override;
  void resetAccumulatedStats(c10::DeviceIndex device) override;
  void resetPeakStats(c10::DeviceIndex device) override;

  // Allocation and devices
  void* raw_alloc(size_t size) override;
  void* raw_alloc_with_stream(size_t size, cudaStream_t stream) override;
  void raw_delete(void* p) override;
  void init(int devices) override;
  double getMemoryFraction(c10::DeviceIndex device) override;
  void setMemoryFraction(double fraction, c10::DeviceIndex device) override;
  std::vector<native::StreamSegmentSize> getExpandableSegmentSizes(c10::DeviceIndex device) override;
  void enable(bool value) override;
  bool isEnabled() const override;
  void cacheInfo(c10::DeviceIndex device, size_t* largest) override;
  void* getBaseAllocation(void* p, size_t* size) override;
  void enablePeerAccess(c10::DeviceIndex device, c10::DeviceIndex peer) override;
  cudaError_t memcpyAsync(void* to, int toDevice, const void* from, int fromDevice, size_t count, cudaStream_t stream,
                          bool peers) override;
  std::string name() override;

  // Pools
  void beginAllocateToPool(c10::DeviceIndex device, MempoolId_t id, std::function<bool(cudaStream_t)> filter) override;
  void endAllocateToPool(c10::DeviceIndex device, MempoolId_t id) override;
  void releasePool(c10::DeviceIndex device, MempoolId_t id) override;
  int getPoolUseCount(c10::DeviceIndex device, MempoolId_t id) override;
  void createOrIncrefPool(c10::DeviceIndex device, MempoolId_t id, PoolAllocator allocator);
  void createOrIncrefPool(c10::DeviceIndex device, MempoolId_t id, native::CUDAAllocator* allocator);
  void setUseOnOOM(c10::DeviceIndex device, MempoolId_t id, bool value);
  void setUseOnOOM(c10::DeviceIndex device, MempoolId_t id) { setUseOnOOM(device, id, true); }
  void setNoSplit(c10::DeviceIndex device, MempoolId_t id);
  bool checkPoolLiveAllocations(c10::DeviceIndex device, MempoolId_t id,
                                const std::unordered_set<void*>& expected) override;
  std::shared_ptr<native::AllocatorState> getCheckpointState(c10::DeviceIndex device, MempoolId_t id) override;
  native::CheckpointDelta setCheckpointPoolState(c10::DeviceIndex device,
                                                 std::shared_ptr<native::AllocatorState> state) override;

  // Other processes
  native::ShareableHandle shareIpcHandle(void* p) override;
  std::shared_ptr<void> getIpcDevPtr(std::string handle) override;

  // History
  native::SnapshotInfo snapshot(MempoolId_t id, bool traces);
  native::SnapshotInfo snapshot(MempoolId_t id) { return snapshot(id, true); }
  bool isHistoryEnabled() override;
  Context getContextForPointer(const void* p);
  void recordHistory(bool enabled, native::CreateContextFn gather, size_t entries, RecordContext when, bool clear,
                     const std::vector<std::string>& skip);
  void recordHistory(bool enabled, native::CreateContextFn gather, size_t entries, RecordContext when, bool clear) {
    recordHistory(enabled, gather, entries, when, clear, {});
  }
  void recordAnnotation(const std::vector<std::pair<std::string, std::string>>& texts) override;
  void pushCompileContext(std::string& text) override;
  void popCompileContext() override;
  bool supportsUserMetadata() { return true; }
  void setUserMetadata(const std::string& text);
  std::string getUserMetadata();
  void annotateMemory(const void* p, const std::string& text);
  void attachOutOfMemoryObserver(native::OutOfMemoryObserver observer) override;
  // throw_on_cudamalloc_oom has PyTorch's allocator fail before the driver does. The pool's limit always does, and tells
  // the other observers.
  void attachOomRejectionObserver(std::function<void(int64_t, size_t, size_t, size_t)> /*observer*/) {}
  void attachAllocatorTraceTracker(native::AllocatorTraceTracker tracker) override;

 private:
  using PoolKey = std::pair<int, MempoolId_t>;

  Allocator();
  ~Allocator() override;

  // allocator.cpp
  void* take(c10::DeviceIndex device, size_t size, cudaStream_t stream);
  void* takeWatched(c10::DeviceIndex device, size_t size, cudaStream_t stream);
  cupool_status give(void* p);
  cupool_status giveWatched(void* p);
  void* takeUncached(size_t size);
  bool giveUncached(void* p);
  Device& known(c10::DeviceIndex device);
  Device& opened(c10::DeviceIndex device);
  bool isOpen(int device) const { return devices_[device].open.load(std::memory_order_acquire); }
  bool hasPool(int device);
  void watch();
  void tellProfiler(void* p, const cupool_block_info& block, bool freed);
  bool uncached() const;
  static void deleteBlock(void* p);
  static void deleteUncached(void* p);
  static void beforeGrow(void* user, int device, size_t size);
  static void onSegment(void* user, int device, cupool_segment_action action, cupool_pool_id pool, void* address,
                        size_t size, void* stream);

  // pools.cpp
  void createPool(c10::DeviceIndex device, MempoolId_t id, const cupool_pool_config& config); // with mutex_ held

  // errors.cpp
  [[noreturn]] void failAllocation(cupool_status status, c10::DeviceIndex device, size_t size, cudaStream_t stream,
                                   uint64_t poolFailuresBefore);
  [[noreturn]] void raiseOutOfMemory(c10::DeviceIndex device, size_t size, cudaStream_t stream);

  // settings.cpp
  static double fraction(const Device& d);
  std::map<std::string, std::string> own() const;
  std::map<std::string, std::string> changeableSettings() const;
  std::string settings() const;
  void settingsChanged();
  void watchSettings();

  // ipc.cpp
  void dropShare(void* p);
  void dropShares(void* address, size_t size);

  // stats.cpp
  void eachReserved(c10::DeviceIndex device, const std::function<void(cupool_stat*)>& f);
  struct Layout;
  Layout layout(c10::DeviceIndex device, cupool_pool_id id, cupool_status* status);
  void addSegments(c10::DeviceIndex device, MempoolId_t id, std::vector<SegmentInfo>* segments);

  std::array<Device, C10_COMPILE_TIME_MAX_GPUS> devices_;
  std::atomic<int> count_{0};
  std::mutex mutex_; // of what follows, and of no call of the library but those of pools
  std::string file_;
  std::string extra_;
  std::string applied_; // changeableSettings that all devices have, or nothing
  std::map<PoolKey, std::unique_ptr<std::function<bool(cudaStream_t)>>> filters_;
  std::map<PoolKey, cupool_stats3> reserved_; // by each private pool ever made, when last looked at; see reportsPools
  std::vector<std::unique_ptr<PoolAllocator>> sources_;
  std::vector<native::OutOfMemoryObserver> observers_;
  Ring<AnnotationEntry> annotations_;
  std::atomic<bool> annotating_{false};

  std::atomic<bool> enabled_{true};
  // Whether an allocation, or a free, has more to do than to call the library.
  std::atomic<bool> watched_{false};
  std::atomic<bool> watchedFrees_{false};
  std::mutex watching_; // of the two

  std::mutex uncachedMutex_;
  std::unordered_set<void*> uncached_; // blocks of cudaMalloc, made while the allocator was off
  std::atomic<size_t> uncachedCount_{0};
  std::unique_ptr<Shares> shares_;
  std::atomic<size_t> shareCount_{0};
  c10::ApproximateClockToUnixTimeConverter clock_;
};

// What the pools of a device hold, of a snapshot.
struct Allocator::Layout {
  struct Segment {
    cupool_segment info;
    std::vector<cupool_block_entry> blocks; // without labels
  };
  std::vector<Segment> segments;
};

// Looks again at what a private pool has reserved. One that is gone keeps its past.
void lookAgain(c10::DeviceIndex device, MempoolId_t id, cupool_stats3* reserved);

// Settings as one text.
std::string join(const std::map<std::string, std::string>& settings);

// How often the allocators of pools failed.
extern std::atomic<uint64_t> poolFailures;

// Raises what the allocator of a pool raised on this thread since there were so many failures.
void rethrowPoolFailure(uint64_t before);

// Raises with the text of the calling thread's last failure, unless the status is CUPOOL_OK.
void check(cupool_status status);

} // namespace cupool_torch
