// class_test.cpp: the class for PyTorch over libcupool.so on the stand-in driver, without PyTorch. CUPOOL_LIBRARY names
// the library. Each test prints its name; the first that fails ends the program.
#include "stand_in.h"

#include <c10/cuda/CUDACachingAllocator.h>

#include <torch/headeronly/version.h>

#include <cupool.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <thread>
#include <utility>

extern "C" int cupool_torch_install(const char*, const char*, char*, size_t);
extern "C" int cupool_torch_installed();

namespace {

namespace alloc = c10::cuda::CUDACachingAllocator;
using alloc::TraceEntry;
using Pool = c10::MempoolId_t;

#define REQUIRE(condition)                                                                 \
  do {                                                                                     \
    if (!(condition)) {                                                                    \
      std::fprintf(stderr, "%s:%d: %s does not hold\n", __FILE__, __LINE__, #condition);  \
      std::exit(1);                                                                        \
    }                                                                                      \
  } while (0)

template <typename Error = c10::Error, typename F>
std::string raises(F f) {
  try {
    f();
  } catch (const Error& e) {
    return e.what();
  }
  std::fprintf(stderr, "nothing was raised\n");
  std::exit(1);
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

const char* library() {
  const char* name = std::getenv("CUPOOL_LIBRARY");
  return name != nullptr ? name : "libcupool.so";
}

// A function of the stand-in driver.
template <typename F>
F driver(const char* name) {
  return reinterpret_cast<F>(dlsym(dlopen(std::getenv("CUPOOL_LIBCUDA"), RTLD_NOW), name));
}

// A stream of the stand-in driver.
cudaStream_t newStream() {
  static void* driver = dlopen(std::getenv("CUPOOL_LIBCUDA"), RTLD_NOW);
  REQUIRE(driver != nullptr);
  const auto init = reinterpret_cast<int (*)(unsigned)>(dlsym(driver, "cuInit"));
  const auto retain = reinterpret_cast<int (*)(void**, int)>(dlsym(driver, "cuDevicePrimaryCtxRetain"));
  const auto use = reinterpret_cast<int (*)(void*)>(dlsym(driver, "cuCtxSetCurrent"));
  const auto create = reinterpret_cast<int (*)(cudaStream_t*, unsigned)>(dlsym(driver, "cuStreamCreate"));
  void* context = nullptr;
  cudaStream_t stream = nullptr;
  REQUIRE(init(0) == 0 && retain(&context, 0) == 0 && use(context) == 0 && create(&stream, 1) == 0);
  return stream;
}

// The stream as PyTorch has it.
c10::cuda::CUDAStream streamOf(cudaStream_t stream, c10::DeviceIndex of = 0) {
  const c10::Device device(c10::DeviceType::CUDA, of);
  return c10::cuda::CUDAStream(c10::cuda::CUDAStream::UNCHECKED,
                               c10::Stream(c10::Stream::UNSAFE, device, reinterpret_cast<intptr_t>(stream)));
}

c10::CachingDeviceAllocator::DeviceStats stats() { return alloc::getDeviceStats(0); }

std::vector<TraceEntry::Action> actions() {
  std::vector<TraceEntry::Action> result;
  const auto snapshot = alloc::snapshot();
  for (const auto& entry : snapshot.device_traces.at(0)) {
    result.push_back(entry.action_);
  }
  return result;
}

struct Stack : c10::GatheredContext {
  int number;
  explicit Stack(int n) : number(n) {}
};

int gathered = 0;
std::shared_ptr<c10::GatheredContext> gather() { return std::make_shared<Stack>(++gathered); }

// ---------------------------------------------------------------- tests

// Runs a test in a child of fork.
template <typename F>
void inChild(F f) {
  std::fflush(nullptr);
  const pid_t pid = fork();
  if (pid == 0) {
    try {
      f();
    } catch (const std::exception& e) {
      std::fprintf(stderr, "in a child: %s\n", e.what());
      _exit(1);
    }
    _exit(0);
  }
  int status = 0;
  waitpid(pid, &status, 0);
  REQUIRE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

// CuPy, Numba or a program in C opened the pool before PyTorch allocated.
void openedByOthers() {
  inChild([] {
    char text[512];
    REQUIRE(cupool_torch_install(library(), "", text, sizeof text) == 0);
    alloc::init(1);
    const auto theirs = reinterpret_cast<int (*)(int, size_t, void*, void**)>(
        dlsym(dlopen("libcupool.so", RTLD_NOW | RTLD_NOLOAD), "cupool_alloc"));
    void* p = nullptr;
    REQUIRE(theirs(0, 5 << 20, nullptr, &p) == 0);
    REQUIRE(stats().allocated_bytes[0].current >= 5 << 20);
    REQUIRE(!alloc::snapshot().segments.empty());
    alloc::raw_delete(alloc::raw_alloc(1 << 20));
    alloc::raw_delete(p);
    alloc::emptyCache();
    REQUIRE(stats().reserved_bytes[0].current == 0);
  });
}

void install() {
  char text[512];
  REQUIRE(cupool_torch_install(library(), "", text, sizeof text) == 0);
  REQUIRE(cupool_torch_installed() == 1);
  REQUIRE(stand_in::registeredAllocator() == alloc::get());
  REQUIRE(!alloc::get()->initialized());
  REQUIRE(has(raises([] { alloc::raw_alloc(512); }), "did you call init"));
  // Nothing is loaded before a device is asked for.
  REQUIRE(dlopen("libcupool.so", RTLD_NOW | RTLD_NOLOAD) == nullptr);
  alloc::init(1);
  REQUIRE(alloc::get()->initialized());
  REQUIRE(alloc::name() == "cupool");
  REQUIRE(stats().allocation[0].current == 0); // and no pool is opened for it
}

void contract() {
  auto p = alloc::get()->allocate(1000);
  REQUIRE(p.get() != nullptr && p.get() == p.get_context() && p.get_deleter() == alloc::get()->raw_deleter());
  REQUIRE(p.device() == c10::Device(c10::DeviceType::CUDA, 0));
  auto none = alloc::get()->allocate(0);
  REQUIRE(none.get() == nullptr && none.get_deleter() == alloc::get()->raw_deleter());
  REQUIRE(alloc::raw_alloc(0) == nullptr);
  alloc::raw_delete(nullptr);
  REQUIRE(has(raises<c10::OutOfMemoryError>([] { alloc::get()->allocate(size_t{1} << 60); }), "more than 1EB memory."));
  REQUIRE(stats().allocated_bytes[0].current == 1024);
  p.clear();
  REQUIRE(stats().allocated_bytes[0].current == 0);
  int here = 0;
  REQUIRE(has(raises([&] { alloc::raw_delete(&here); }), "invalid device pointer"));
  size_t size = 0;
  void* q = alloc::raw_alloc(4096);
  REQUIRE(alloc::getBaseAllocation(q, &size) != nullptr && size >= 4096);
  size_t largest = 0;
  alloc::cacheInfo(0, &largest);
  REQUIRE(largest > 1 << 20);
  alloc::raw_delete(q);
  REQUIRE(has(raises([&] { alloc::getBaseAllocation(q, &size); }), "invalid device pointer"));
  REQUIRE(has(raises([&] { alloc::shareIpcHandle(q); }), "invalid device pointer"));
}

void statistics() {
  std::vector<c10::DataPtr> live;
  for (size_t i = 1; i < 60; i++) {
    live.push_back(alloc::get()->allocate(i * 30011));
  }
  for (size_t i = 0; i < live.size(); i += 3) {
    live[i].clear();
  }
  const auto s = stats();
  const auto snapshot = alloc::snapshot();
  int64_t allocated = 0, reserved = 0, active = 0, requested = 0, blocks = 0;
  std::set<size_t> addresses;
  for (const auto& segment : snapshot.segments) {
    size_t at = 0;
    for (const auto& block : segment.blocks) {
      at += block.size;
      blocks += block.allocated ? 1 : 0;
    }
    REQUIRE(at == segment.total_size);
    REQUIRE(addresses.insert(segment.address).second);
    allocated += segment.allocated_size;
    reserved += segment.total_size;
    active += segment.active_size;
    requested += segment.requested_size;
  }
  REQUIRE(allocated == s.allocated_bytes[0].current && reserved == s.reserved_bytes[0].current);
  REQUIRE(active == s.active_bytes[0].current && requested == s.requested_bytes[0].current);
  REQUIRE(blocks == s.allocation[0].current && blocks == 39);
  REQUIRE(static_cast<int64_t>(snapshot.segments.size()) == s.segment[0].current);
  live.clear();
  alloc::resetPeakStats(0);
  REQUIRE(stats().allocated_bytes[0].peak == stats().allocated_bytes[0].current);
  alloc::resetAccumulatedStats(0);
  REQUIRE(stats().allocation[0].allocated == 0);
  alloc::emptyCache();
  REQUIRE(stats().num_sync_all_streams == 1);
  REQUIRE(stats().reserved_bytes[0].current == 0);
}

void history() {
  alloc::recordHistory(true, gather, 1000, alloc::RecordContext::ALL, true, {});
  REQUIRE(alloc::isHistoryEnabled());
  void* p = alloc::raw_alloc(5 << 20);
  const int stack = gathered;
  auto segments = alloc::snapshot().segments;
  bool found = false;
  for (const auto& segment : segments) {
    size_t at = segment.address;
    for (const auto& block : segment.blocks) {
      if (at == reinterpret_cast<size_t>(p)) {
        found = true;
        const auto* context = dynamic_cast<Stack*>(block.context_when_allocated.get());
        REQUIRE(context != nullptr && context->number == stack); // the very object that was made
      }
      at += block.size;
    }
  }
  REQUIRE(found);
  alloc::raw_delete(p);
  const auto seen = actions();
  for (const auto wanted : {TraceEntry::ALLOC, TraceEntry::FREE_REQUESTED, TraceEntry::FREE_COMPLETED}) {
    REQUIRE(std::count(seen.begin(), seen.end(), wanted) == 1);
  }
  REQUIRE(std::count(seen.begin(), seen.end(), TraceEntry::SEGMENT_ALLOC) +
              std::count(seen.begin(), seen.end(), TraceEntry::SEGMENT_MAP) >= 1);

  alloc::recordHistory(true, gather, 2, alloc::RecordContext::STATE, true, {"free_completed"});
  for (int i = 0; i < 5; i++) {
    alloc::raw_delete(alloc::raw_alloc(512));
  }
  const auto last = alloc::snapshot().device_traces.at(0);
  REQUIRE(last.size() == 2 && last[0].action_ == TraceEntry::ALLOC && last[1].action_ == TraceEntry::FREE_REQUESTED);
  // What is free has no stack at this level, and a segment with nothing in it neither.
  alloc::emptyCache({0, 0});
  alloc::raw_delete(alloc::raw_alloc(5 << 20));
  for (const auto& segment : alloc::snapshot().segments) {
    REQUIRE(segment.active_size > 0 || segment.context_when_allocated == nullptr);
  }
  REQUIRE(last[0].context_ == nullptr); // STATE keeps stacks with blocks alone
  std::string compiles = "a graph";
  alloc::pushCompileContext(compiles);
  alloc::setUserMetadata("mine");
  alloc::raw_delete(alloc::raw_alloc(512));
  REQUIRE(alloc::snapshot().device_traces.at(0).at(0).compile_context_ == "a graph");
  REQUIRE(alloc::snapshot().device_traces.at(0).at(0).user_metadata_ == "mine");
  alloc::popCompileContext();
#if TORCH_VERSION_MINOR >= 14
  void* noted = alloc::raw_alloc(1000);
  alloc::annotateMemory(noted, "the weights");
  alloc::annotateMemory(static_cast<char*>(noted) + 512, "no block begins here");
  const auto note = alloc::snapshot().device_traces.at(0).back();
  REQUIRE(note.action_ == TraceEntry::ANNOTATE && note.addr_ == reinterpret_cast<size_t>(noted) && note.size_ == 1000);
  REQUIRE(note.user_metadata_ == "the weights" && alloc::getUserMetadata() == "mine");
  alloc::raw_delete(noted);
#endif
  alloc::recordAnnotation({{"name", "step"}, {"stage", "START"}});
  REQUIRE(alloc::snapshot().external_annotations.at(0).metadata_.at("name") == "step");
  alloc::recordHistory(false, nullptr, 1, alloc::RecordContext::NEVER, true, {});
  REQUIRE(alloc::snapshot().device_traces.at(0).empty());
}

// The default stream of another device is not the block's own: the free of a block that it uses is not complete at once.
void historyOfTwo() {
  inChild([] {
    char text[512];
    REQUIRE(cupool_torch_install(library(), "", text, sizeof text) == 0);
    alloc::init(2);
    alloc::recordHistory(true, gather, 1000, alloc::RecordContext::ALL, true, {});
    for (const c10::DeviceIndex of : {0, 1}) {
      auto p = alloc::get()->allocate(5 << 20);
      alloc::recordStream(p, streamOf(nullptr, of));
      p.clear();
      const auto seen = actions();
      REQUIRE(seen.back() == (of == 0 ? TraceEntry::FREE_COMPLETED : TraceEntry::FREE_REQUESTED));
    }
  });
}

// A callback that frees memory on a miss, by the class itself.
bool freeing = false;
struct Freeing : c10::FreeMemoryCallback {
  bool Execute() override {
    if (!freeing) {
      return false;
    }
    freeing = false;
    alloc::raw_delete(alloc::raw_alloc(512));
    alloc::emptyCache();
    return true;
  }
};

// What is allocated for an allocation has its stack, whatever was allocated and freed meanwhile.
void nested() {
  c10::FreeCudaMemoryCallbacksRegistry()->Register(
      "of the test", [] { return std::unique_ptr<c10::FreeMemoryCallback>(new Freeing); });
  alloc::emptyCache();
  alloc::recordHistory(true, gather, 1000, alloc::RecordContext::ALL, true, {});
  freeing = true;
  void* p = alloc::raw_alloc(40 << 20);
  REQUIRE(!freeing);
  int segments = 0;
  const auto snapshot = alloc::snapshot();
  for (const auto& entry : snapshot.device_traces.at(0)) {
    if (entry.action_ == TraceEntry::SEGMENT_ALLOC || entry.action_ == TraceEntry::SEGMENT_MAP) {
      REQUIRE(entry.context_ != nullptr);
      segments++;
    }
  }
  REQUIRE(segments > 0);
  alloc::raw_delete(p);
  alloc::recordHistory(false, nullptr, 1, alloc::RecordContext::NEVER, true, {});
}

// The trace has no free of what was not freed.
void refusedFrees() {
  alloc::recordHistory(true, gather, 1000, alloc::RecordContext::ALL, true, {});
  void* p = alloc::raw_alloc(4096);
  REQUIRE(has(raises([&] { alloc::raw_delete(static_cast<char*>(p) + 512); }), "invalid device pointer"));
  alloc::raw_delete(p);
  REQUIRE(has(raises([&] { alloc::raw_delete(p); }), "invalid device pointer"));
  const auto seen = actions();
  for (const auto wanted : {TraceEntry::ALLOC, TraceEntry::FREE_REQUESTED, TraceEntry::FREE_COMPLETED}) {
    REQUIRE(std::count(seen.begin(), seen.end(), wanted) == 1);
  }
  alloc::recordHistory(false, nullptr, 1, alloc::RecordContext::NEVER, true, {});
}

// No memory is lost where a tracker throws.
void throwingTracker() {
  static TraceEntry::Action refused;
  static bool throws = false;
  alloc::attachAllocatorTraceTracker([](const TraceEntry& entry) {
    if (throws && entry.action_ == refused) {
      throw std::runtime_error("a tracker says no");
    }
  });
  const auto before = stats().allocation[0].current;
  for (const auto action : {TraceEntry::ALLOC, TraceEntry::FREE_REQUESTED, TraceEntry::FREE_COMPLETED}) {
    refused = action;
    throws = true;
    if (action == TraceEntry::ALLOC) {
      REQUIRE(has(raises<std::runtime_error>([] { alloc::raw_alloc(4096); }), "says no"));
    } else {
      alloc::raw_delete(alloc::raw_alloc(4096));
      alloc::get()->allocate(4096).clear();
    }
    throws = false;
    REQUIRE(stats().allocation[0].current == before);
  }
}

void trackers() {
  static std::vector<TraceEntry::Action> seen;
  static std::mutex mutex; // it stays attached, and later tests have several threads
  alloc::attachAllocatorTraceTracker([](const TraceEntry& entry) {
    const std::lock_guard<std::mutex> lock(mutex);
    seen.push_back(entry.action_);
  });
  alloc::emptyCache();
  const int before = stand_in::freeCallbacks;
  void* p = alloc::raw_alloc(64 << 20);
  REQUIRE(stand_in::freeCallbacks > before); // asked before the device was
  alloc::raw_delete(p);
  alloc::emptyCache();
  for (const auto wanted : {TraceEntry::ALLOC, TraceEntry::FREE_REQUESTED}) {
    REQUIRE(std::count(seen.begin(), seen.end(), wanted) >= 1);
  }
  const auto count = [](TraceEntry::Action a) { return std::count(seen.begin(), seen.end(), a); };
  REQUIRE(count(TraceEntry::SEGMENT_ALLOC) + count(TraceEntry::SEGMENT_MAP) >= 1);
  REQUIRE(count(TraceEntry::SEGMENT_FREE) + count(TraceEntry::SEGMENT_UNMAP) >= 1);
}

void profiler() {
  stand_in::profiling = true;
  alloc::raw_delete(alloc::raw_alloc(1000));
  stand_in::profiling = false;
  REQUIRE(stand_in::reports.size() == 2);
  REQUIRE(stand_in::reports[0].size == 1024 && stand_in::reports[1].size == -1024);
  REQUIRE(stand_in::reports[0].allocated == stand_in::reports[1].allocated + 1024);
}

void streams() {
  const cudaStream_t side = newStream();
  auto p = alloc::get()->allocate(1 << 20);
  alloc::recordStream(p, streamOf(side));
  // The side stream is at work, so the block serves nobody when it is freed.
  void* first = p.get();
  void* large = alloc::raw_alloc_with_stream(64 << 20, side);
  const auto fill = driver<int (*)(uintptr_t, unsigned char, size_t, void*)>("cuMemsetD8Async");
  for (int i = 0; i < 20; i++) {
    REQUIRE(fill(reinterpret_cast<uintptr_t>(large), 1, 64 << 20, side) == 0);
  }
  p.clear();
  auto other = alloc::get()->allocate(1 << 20);
  REQUIRE(other.get() != first || driver<int (*)(void*)>("cuStreamQuery")(side) == 0);
  other.clear();
  alloc::raw_delete(large);
  int here = 0;
  const c10::DataPtr foreign(&here, c10::Device(c10::DeviceType::CUDA, 0));
  alloc::recordStream(foreign, c10::cuda::getDefaultCUDAStream());
  alloc::recordStream(c10::DataPtr(), c10::cuda::getDefaultCUDAStream());
  void* q = alloc::raw_alloc_with_stream(1 << 20, side);
  REQUIRE(q != nullptr);
  alloc::raw_delete(q);
}

void pools() {
  const Pool id{0, 7};
  const auto mine = std::this_thread::get_id();
  alloc::createOrIncrefPool(0, id);
  REQUIRE(alloc::getPoolUseCount(0, id) == 1);
  alloc::beginAllocateToPool(0, id, [mine](cudaStream_t) { return std::this_thread::get_id() == mine; });
  REQUIRE(alloc::getPoolUseCount(0, id) == 2);
  REQUIRE(has(raises([&] { alloc::beginAllocateToPool(0, id, [](cudaStream_t) { return true; }); }), "already recording"));
  void* inside = alloc::raw_alloc(3 << 20);
  void* outside = nullptr;
  std::thread([&] { outside = alloc::raw_alloc(3 << 20); }).join();
  alloc::endAllocateToPool(0, id);
  REQUIRE(has(raises([&] { alloc::endAllocateToPool(0, id); }), "not currently recording"));
  alloc::releasePool(0, id);
  const auto in = [&](void* p) {
    const auto snapshot = alloc::snapshot(id);
    for (const auto& segment : snapshot.segments) {
      REQUIRE(segment.owner_private_pool_id == id);
      const auto at = reinterpret_cast<size_t>(p);
      if (segment.address <= at && at < segment.address + segment.total_size) {
        return true;
      }
    }
    return false;
  };
  REQUIRE(in(inside) && !in(outside));
#if TORCH_VERSION_MINOR >= 14
  const auto reserved = [&] { return alloc::getDeviceStats(0).reserved_bytes_by_private_pools.at(id).at(0); };
  const int64_t bytes = reserved().current;
  int64_t total = 0;
  for (const auto& segment : alloc::snapshot(id).segments) {
    total += static_cast<int64_t>(segment.total_size);
  }
  REQUIRE(bytes >= 3 << 20 && bytes == total);
#endif
  REQUIRE(alloc::checkPoolLiveAllocations(0, id, {inside}));
  REQUIRE(!alloc::checkPoolLiveAllocations(0, id, {}) && !alloc::checkPoolLiveAllocations(0, id, {inside, outside}));
  alloc::raw_delete(outside);
  // What is free there stays while the pool is used, since graphs may use it.
  alloc::raw_delete(inside);
  alloc::emptyCache(id);
  alloc::emptyCache();
  REQUIRE(in(inside));
  alloc::releasePool(0, id);
  alloc::emptyCache();
  REQUIRE(alloc::snapshot(id).segments.empty());
  raises([&] { alloc::releasePool(0, id); });
#if TORCH_VERSION_MINOR >= 14
  const auto gone = reserved();
  REQUIRE(gone.current == 0 && gone.peak == bytes && gone.allocated == bytes && gone.freed == bytes);
  alloc::resetPeakStats(0);
  REQUIRE(reserved().peak == 0 && reserved().allocated == bytes);
  alloc::resetAccumulatedStats(0);
  REQUIRE(reserved().allocated == 0 && reserved().freed == 0);
#endif

  // What was refused has not begun.
  raises([] { alloc::beginAllocateToPool(0, {0, 0}, [](cudaStream_t) { return true; }); });
  REQUIRE(has(raises([] { alloc::endAllocateToPool(0, {0, 0}); }), "not currently recording"));

  // A capture makes its pool by itself.
  const Pool capture{9, 0};
  alloc::beginAllocateToPool(0, capture, [](cudaStream_t) { return true; });
  REQUIRE(alloc::getPoolUseCount(0, capture) == 1);
  alloc::endAllocateToPool(0, capture);
  alloc::releasePool(0, capture);
}

void poolOptions() {
  const Pool id{0, 8};
  alloc::createOrIncrefPool(0, id);
  alloc::setNoSplit(0, id);
  alloc::setUseOnOOM(0, id, true);
  alloc::releasePool(0, id);
  alloc::emptyCache(id);
}

// An allocator of a pool's own.
struct Source : alloc::CUDAAllocator {
  int allocs = 0, frees = 0;
  void* raw_alloc(size_t n) override { return raw_alloc_with_stream(n, nullptr); }
  void* raw_alloc_with_stream(size_t n, cudaStream_t) override {
    allocs++;
    void* p = nullptr;
    cudaMalloc(&p, n);
    return p;
  }
  void raw_delete(void* p) override {
    frees++;
    cudaFree(p);
  }
  c10::DataPtr allocate(size_t) override { return {}; }
  void copy_data(void*, const void*, std::size_t) const override {}
  bool initialized() override { return true; }
  void emptyCache(Pool) override {}
  using alloc::CUDAAllocator::recordStream;
  void recordStream(const c10::DataPtr&, c10::cuda::CUDAStream) override {}
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex) override { return {}; }
  void resetAccumulatedStats(c10::DeviceIndex) override {}
  void resetPeakStats(c10::DeviceIndex) override {}
  void init(int) override {}
  double getMemoryFraction(c10::DeviceIndex) override { return 1; }
  void setMemoryFraction(double, c10::DeviceIndex) override {}
  std::vector<alloc::StreamSegmentSize> getExpandableSegmentSizes(c10::DeviceIndex) override { return {}; }
  void enable(bool) override {}
  bool isEnabled() const override { return true; }
  void cacheInfo(c10::DeviceIndex, size_t*) override {}
  void* getBaseAllocation(void* p, size_t*) override { return p; }
  alloc::SnapshotInfo snapshot(Pool, bool) override { return {}; }
  void beginAllocateToPool(c10::DeviceIndex, Pool, std::function<bool(cudaStream_t)>) override {}
  void endAllocateToPool(c10::DeviceIndex, Pool) override {}
  void releasePool(c10::DeviceIndex, Pool) override {}
  alloc::ShareableHandle shareIpcHandle(void*) override { return {}; }
  std::shared_ptr<void> getIpcDevPtr(std::string) override { return {}; }
  void recordHistory(bool, alloc::CreateContextFn, size_t, alloc::RecordContext, bool,
                     const std::vector<std::string>&) override {}
  void attachOutOfMemoryObserver(alloc::OutOfMemoryObserver) override {}
  void attachOomRejectionObserver(std::function<void(int64_t, size_t, size_t, size_t)>) {}
  void attachAllocatorTraceTracker(alloc::AllocatorTraceTracker) override {}
  void enablePeerAccess(c10::DeviceIndex, c10::DeviceIndex) override {}
  cudaError_t memcpyAsync(void*, int, const void*, int, size_t, cudaStream_t, bool) override { return cudaSuccess; }
  std::shared_ptr<alloc::AllocatorState> getCheckpointState(c10::DeviceIndex, Pool) override { return {}; }
  alloc::CheckpointDelta setCheckpointPoolState(c10::DeviceIndex, std::shared_ptr<alloc::AllocatorState>) override {
    return {};
  }
  std::string name() override { return "source"; }
};

void poolAllocator() {
  const Pool id{0, 11};
  auto source = std::make_shared<Source>();
  alloc::createOrIncrefPool(0, id, source);
  alloc::beginAllocateToPool(0, id, [](cudaStream_t) { return true; });
  void* p = alloc::raw_alloc(1 << 20);
  alloc::endAllocateToPool(0, id);
  alloc::releasePool(0, id);
  REQUIRE(source->allocs == 1 && stand_in::plain.size() == 1);
  alloc::raw_delete(p);
  alloc::releasePool(0, id);
  alloc::emptyCache(id);
  REQUIRE(source->frees == 1 && stand_in::plain.empty());
  for (uint64_t i = 0; i < 10; i++) {
    alloc::createOrIncrefPool(0, {i + 1, 11}, source);
    alloc::releasePool(0, {i + 1, 11});
  }
  REQUIRE(source.use_count() == 2); // once for all its pools
}

// The allocator of a pool may free, as Python's garbage collector does in it, and fail.
void poolAllocatorThatCallsBack() {
  struct CallsBack : Source {
    std::function<void()> within;
    void* raw_alloc_with_stream(size_t n, cudaStream_t s) override {
      if (within) {
        within();
      }
      return Source::raw_alloc_with_stream(n, s);
    }
  };
  const Pool id{0, 12};
  const auto source = std::make_shared<CallsBack>();
  alloc::createOrIncrefPool(0, id, source);
  alloc::beginAllocateToPool(0, id, [](cudaStream_t) { return true; });
  void* a = alloc::raw_alloc(3 << 20);
  source->within = [&a] { alloc::raw_delete(std::exchange(a, nullptr)); };
  void* b = alloc::raw_alloc(30 << 20);
  for (int i = 0; stats().allocated_bytes[0].current > 30 << 20; i++) {
    REQUIRE(i < 10'000); // another thread frees
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  source->within = [] { stats(); };
  REQUIRE(has(raises([] { alloc::raw_alloc(60 << 20); }), "with its locks held"));
  source->within = [] { TORCH_CHECK(false, "no such network"); };
  REQUIRE(has(raises([] { alloc::raw_alloc(60 << 20); }), "no such network"));
  alloc::raw_delete(b);
  alloc::endAllocateToPool(0, id);

  // A failure of a request that was served all the same, as another stream was done with a block.
  const cudaStream_t mine = newStream(), side = newStream();
  source->within = nullptr;
  alloc::beginAllocateToPool(0, id, [mine](cudaStream_t s) { return s == mine; });
  void* used = alloc::raw_alloc_with_stream(40 << 20, mine);
  c10::DataPtr owner(used, used, alloc::get()->raw_deleter(), c10::Device(c10::DeviceType::CUDA, 0));
  alloc::recordStream(owner, streamOf(side));
  const auto begin = driver<int (*)(void*, int)>("cuStreamBeginCapture_v2");
  const auto end = driver<int (*)(void*, void**)>("cuStreamEndCapture");
  REQUIRE(begin(side, 2) == 0);
  owner.clear(); // it waits for the end of the capture
  void* graph = nullptr;
  source->within = [&] {
    REQUIRE(end(side, &graph) == 0);
    TORCH_CHECK(false, "no such network");
  };
  void* again = alloc::raw_alloc_with_stream(40 << 20, mine);
  REQUIRE(graph != nullptr && again == used);
  REQUIRE(driver<int (*)(void*)>("cuGraphDestroy")(graph) == 0);
  REQUIRE(has(raises([] { alloc::raw_alloc(size_t{1} << 50); }), "CUDA out of memory"));
  alloc::endAllocateToPool(0, id);
  alloc::raw_delete(again);
  for (int i = 0; i < 3; i++) {
    alloc::releasePool(0, id);
  }
  alloc::emptyCache();
  REQUIRE(stand_in::plain.empty());
}

// Destructors of graphs and MemPools release pools whatever the device does meanwhile, and in a child.
void poolsInDestructors() {
  const auto begin = driver<int (*)(void*, int)>("cuStreamBeginCapture_v2");
  const auto end = driver<int (*)(void*, void**)>("cuStreamEndCapture");
  alloc::emptyCache();
  const auto before = stats().reserved_bytes[0].current;
  const cudaStream_t stream = newStream();
  const auto destroy = [](Pool id) {
    alloc::releasePool(0, id);
    alloc::emptyCache(id);
  };
  const Pool id{0, 13};
  alloc::createOrIncrefPool(0, id);
  alloc::beginAllocateToPool(0, id, [](cudaStream_t) { return true; });
  void* p = alloc::raw_alloc_with_stream(3 << 20, stream);
  alloc::endAllocateToPool(0, id);
  alloc::releasePool(0, id);
  alloc::raw_delete(p);
  inChild([&] {
    alloc::setUseOnOOM(0, id, true);
    destroy(id);
  });
  REQUIRE(begin(stream, 0) == 0);
  destroy(id);
  alloc::emptyCache(); // it is the captured stream's memory
  void* graph = nullptr;
  REQUIRE(end(stream, &graph) == 0 && graph != nullptr);
  REQUIRE(driver<int (*)(void*)>("cuGraphDestroy")(graph) == 0);
  alloc::emptyCache();
  REQUIRE(stats().reserved_bytes[0].current == before);
}

void checkpoints() {
  const Pool id{12, 0};
  alloc::beginAllocateToPool(0, id, [](cudaStream_t) { return true; });
  void* a = alloc::raw_alloc(1 << 20);
  void* b = alloc::raw_alloc(2 << 20);
  alloc::raw_delete(a);
  const auto layout = [&] {
    std::vector<std::array<size_t, 4>> result;
    const auto snapshot = alloc::snapshot(id);
    for (const auto& segment : snapshot.segments) {
      size_t at = segment.address;
      for (const auto& block : segment.blocks) {
        result.push_back({at, block.size, block.requested_size, block.allocated});
        at += block.size;
      }
    }
    return result;
  };
  const auto before = layout();
  const auto state = alloc::getCheckpointState(0, id);
  void* c = alloc::raw_alloc(1 << 20);
  void* d = alloc::raw_alloc(512 << 10);
  alloc::raw_delete(b);
  auto delta = alloc::setCheckpointPoolState(0, state);
  alloc::endAllocateToPool(0, id);
  if (layout() != before) {
    for (const auto& l : {before, layout()}) {
      for (const auto& b : l) {
        std::fprintf(stderr, "  %zx: %zu bytes, %zu requested, %s\n", b[0], b[1], b[2], b[3] ? "live" : "free");
      }
      std::fprintf(stderr, "  --\n");
    }
  }
  REQUIRE(layout() == before);
  const std::set<void*> freed(delta.ptrs_freed.begin(), delta.ptrs_freed.end());
  REQUIRE((freed == std::set<void*>{c, d}));
  REQUIRE(delta.dataptrs_allocd.size() == 1 && delta.dataptrs_allocd[0].get() == b);
  REQUIRE(delta.dataptrs_allocd[0].get_deleter() == alloc::get()->raw_deleter());
  delta.dataptrs_allocd.clear(); // frees b
  REQUIRE(alloc::checkPoolLiveAllocations(0, id, {}));
  REQUIRE(has(raises([] { alloc::getCheckpointState(0, {77, 0}); }), "Could not find pool"));
  alloc::releasePool(0, id);
  raises([&] { alloc::setCheckpointPoolState(0, state); });
}

void outOfMemory() {
  static int observed = 0;
  alloc::attachOutOfMemoryObserver([](int64_t, size_t size, size_t, size_t) { observed += size == size_t{1} << 50; });
  const auto text = raises<c10::OutOfMemoryError>([] { alloc::get()->allocate(size_t{1} << 50); });
  REQUIRE(text.rfind("CUDA out of memory. Tried to allocate 1048576.00 GiB. GPU 0 has a total capacity of", 0) == 0);
  REQUIRE(observed == 1 && stats().num_ooms >= 1);
  // What would help has the names that Python has for it.
  void* live = alloc::raw_alloc(1000);
  alloc::setMemoryFraction(1e-6, 0);
  REQUIRE(std::abs(alloc::getMemoryFraction(0) - 1e-6) < 1e-9);
  const auto refused = [] { return raises<c10::OutOfMemoryError>([] { alloc::get()->allocate(64 << 20); }); };
  REQUIRE(has(refused(), "call torch.cuda.memory._record_memory_history()\n"));
  REQUIRE(has(refused(), "would have helped: fraction:0.02 in CUPOOL_ALLOC_CONF, or by torch.cuda.set_per_process_memory_fraction\n"));
  alloc::recordHistory(true, gather, 1000, alloc::RecordContext::ALL, true, {});
  REQUIRE(has(refused(), "torch.cuda.memory._dump_snapshot() has"));
  alloc::recordHistory(false, nullptr, 1, alloc::RecordContext::NEVER, true, {});
  alloc::raw_delete(live);
  alloc::setMemoryFraction(1, 0);
  alloc::raw_delete(alloc::raw_alloc(64 << 20));
  REQUIRE(has(raises([] { alloc::setMemoryFraction(1.5, 0); }), "invalid fraction"));
}

void switchedOff() {
  alloc::enable(false);
  auto p = alloc::get()->allocate(1000);
  void* q = alloc::raw_alloc(1000);
  REQUIRE(stand_in::plain.size() == 2 && p.get_deleter() != alloc::get()->raw_deleter());
  alloc::enable(true);
  p.clear();
  alloc::raw_delete(q); // a block knows how it was made
  REQUIRE(stand_in::plain.empty());
}

void settings() {
  const auto active = [](size_t n) {
    const auto before = stats().active_bytes[0].current;
    auto p = alloc::get()->allocate(n);
    return stats().active_bytes[0].current - before;
  };
  REQUIRE(active(84 << 20) == 84 << 20);
  c10::CachingAllocator::setAllocatorSettings("roundup_power2_divisions:4");
  REQUIRE(active(84 << 20) == 96 << 20);
  c10::CachingAllocator::setAllocatorSettings("");
  // What failed once is asked for again. The threshold takes the size of the device.
  setenv("CUPOOL_ALLOC_CONF", "garbage_collection_threshold:0.5", 1);
  const auto ask = [] { c10::CachingAllocator::setAllocatorSettings("roundup_power2_divisions:4"); };
  driver<void (*)(const char*, int, int, int)>("fakecuda_fail")("cuMemGetInfo_v2", 1, 999, 1);
  REQUIRE(has(raises(ask), "cuMemGetInfo"));
  REQUIRE(active(84 << 20) == 84 << 20);
  ask();
  REQUIRE(active(84 << 20) == 96 << 20);
  unsetenv("CUPOOL_ALLOC_CONF");
  c10::CachingAllocator::setAllocatorSettings("");
  REQUIRE(active(84 << 20) == 84 << 20);
}

// What a pool has for settings of PyTorch and of cupool.
std::string settingsOf(const char* torch, const char* ours, const char* install = "") {
  setenv("CUPOOL_ALLOC_CONF", ours, 1);
  c10::CachingAllocator::setAllocatorSettings(torch);
  char text[4096];
  REQUIRE(cupool_torch_install(library(), install, text, sizeof text) == 0);
  alloc::init(1);
  alloc::raw_delete(alloc::raw_alloc(1 << 20));
  size_t length = 0;
  void* loaded = dlopen("libcupool.so", RTLD_NOW | RTLD_NOLOAD);
  REQUIRE(reinterpret_cast<decltype(&cupool_settings)>(dlsym(loaded, "cupool_settings"))(0, text, sizeof text, &length) == 0);
  return text;
}

// Virtual memory is always split, whatever PyTorch says of segments.
void virtualMemory() {
  const std::pair<const char*, const char*> asked[] = {{"max_split_size_mb:128,expandable_segments:True", ""},
                                                       {"max_split_size_mb:128", "expandable_segments:True"},
                                                       {"max_split_size_mb:128", "backing:vmm"},
                                                       {"max_split_size_mb:128", "max_split:0"}};
  for (const auto& [torch, ours] : asked) {
    inChild([&, torch = torch, ours = ours] {
      REQUIRE(has(settingsOf(torch, ours), "backing:vmm"));
      c10::CachingAllocator::setAllocatorSettings("max_split_size_mb:64");
    });
  }
  inChild([] { REQUIRE(has(settingsOf("max_split_size_mb:128", ""), "max_split:128M (program)")); });
}

// What install was given wins over the environment, whichever of a setting's names each has.
void namesOfOne() {
  inChild([] {
    const auto text = "\n" + settingsOf("", "expandable_segments:True,per_process_memory_fraction:0.8,large_segment_size_mb:40",
                                        "backing:segments,fraction:0.5,large_segment:30M");
    for (const char* wanted : {"\nbacking:segments ", "\nfraction:0.5 ", "\nlarge_segment:30M "}) {
      REQUIRE(has(text, wanted));
    }
  });
}

// A variable of one setting counts as CUPOOL_ALLOC_CONF does.
void variables() {
  inChild([] {
    for (const auto& [name, value] : std::map<const char*, const char*>{
             {"CUPOOL_LIMIT", "1G"}, {"CUPOOL_DIVISIONS", "4"}, {"CUPOOL_GROW_WAIT", "2s"}, {"CUPOOL_BACKING", "vmm"}}) {
      setenv(name, value, 1);
    }
    const auto text = settingsOf("roundup_power2_divisions:2,max_split_size_mb:128", "");
    for (const char* wanted : {"\nbacking:vmm", "divisions:4 ", "grow_wait:2s ", "limit:1G (CUPOOL_LIMIT)"}) {
      REQUIRE(has("\n" + text, wanted));
    }
    c10::CachingAllocator::setAllocatorSettings("roundup_power2_divisions:8");
    alloc::raw_alloc(84 << 20);
    REQUIRE(stats().active_bytes[0].current == 96 << 20);
  });
  inChild([] {
    setenv("CUPOOL_LIMIT", "1G", 1);
    REQUIRE(has(raises([] { settingsOf("", "limit:2G"); }), "contradicts"));
  });
}

void sharing() {
  auto p = alloc::get()->allocate(3 << 20);
  alloc::ShareableHandle handle;
  try {
    handle = alloc::shareIpcHandle(p.get());
  } catch (const c10::Error& e) {
    std::printf("  not here: %s\n", e.what());
    return;
  }
  REQUIRE(handle.handle.size() > 2 && handle.handle[0] == 2);
  REQUIRE(std::strchr("cep", handle.handle[1]) != nullptr);
  REQUIRE(alloc::shareIpcHandle(p.get()).handle == handle.handle); // receivers look it up
  if (handle.handle[1] != 'c') {
    auto mapped = alloc::getIpcDevPtr(handle.handle);
    REQUIRE(mapped != nullptr && alloc::getIpcDevPtr(handle.handle) == mapped);
  }
  raises([] { alloc::getIpcDevPtr("\2e"); });
  p.clear();
}

// Whether a receiver of a block's handle finds there what is written to the block.
bool receives(void* p, unsigned char value) {
  const cudaStream_t stream = newStream();
  REQUIRE(driver<int (*)(uintptr_t, unsigned char, size_t, void*)>("cuMemsetD8Async")(
              reinterpret_cast<uintptr_t>(p), value, 4096, stream) == 0);
  REQUIRE(driver<int (*)(void*)>("cuStreamSynchronize")(stream) == 0);
  const auto handle = alloc::shareIpcHandle(p);
  const auto mapped = alloc::getIpcDevPtr(handle.handle);
  unsigned char host = 0;
  REQUIRE(driver<int (*)(void*, uintptr_t, size_t)>("cuMemcpyDtoH_v2")(
              &host, reinterpret_cast<uintptr_t>(mapped.get()) + handle.offset, 1) == 0);
  return host == value;
}

size_t descriptors() {
  size_t count = 0;
  for (int fd = 0; fd < 4096; fd++) {
    count += fcntl(fd, F_GETFD) != -1 ? 1 : 0;
  }
  return count;
}

// Memory that was given back and came again is other memory, and what is shared keeps none.
void sharedMemoryThatWent() {
  auto p = alloc::get()->allocate(3 << 20);
  if (alloc::shareIpcHandle(p.get()).handle.at(1) == 'c') {
    std::printf("  not here\n");
    return;
  }
  REQUIRE(receives(p.get(), 1));
  void* library = dlopen("libcupool.so", RTLD_NOW | RTLD_NOLOAD);
  const cupool_pool_id main = CUPOOL_MAIN;
  const auto before = descriptors();
  REQUIRE(reinterpret_cast<decltype(&cupool_sleep)>(dlsym(library, "cupool_sleep"))(0, main, CUPOOL_DROP) == 0);
  REQUIRE(descriptors() < before);
  REQUIRE(reinterpret_cast<decltype(&cupool_wake)>(dlsym(library, "cupool_wake"))(0, main) == 0);
  REQUIRE(receives(p.get(), 2));
  p.clear();

  // A checkpoint frees, too.
  const Pool id{13, 0};
  alloc::beginAllocateToPool(0, id, [](cudaStream_t) { return true; });
  const auto state = alloc::getCheckpointState(0, id);
  const auto unshared = descriptors();
  alloc::shareIpcHandle(alloc::raw_alloc(2 << 20));
  REQUIRE(descriptors() > unshared);
  alloc::setCheckpointPoolState(0, state);
  REQUIRE(descriptors() == unshared);
  alloc::endAllocateToPool(0, id);
  alloc::releasePool(0, id);
}

// The kind of the handle of a block in a pool so large that pieces of several sizes are mapped for one block. Of one
// size, pieces have so many bytes of handle each.
char kindInLargePool(size_t each = sizeof(int)) {
  char text[512];
  REQUIRE(cupool_torch_install(library(), "", text, sizeof text) == 0);
  alloc::init(1);
  auto fill = alloc::get()->allocate(700 << 20), p = alloc::get()->allocate(102 << 20);
  const auto handle = alloc::shareIpcHandle(p.get()).handle;
  REQUIRE(alloc::getIpcDevPtr(handle) != nullptr);
  if (handle.at(1) == 'e') { // PyTorch's header: pid, size, count
    size_t size = 0;
    std::memcpy(&size, handle.data() + 2 + 8, sizeof size);
    REQUIRE(size == 2 << 20);
    REQUIRE(handle.size() == 2 + 24 + 51 * each);
  }
  REQUIRE(alloc::shareIpcHandle(p.get()).handle == handle);
  return handle.at(1);
}

// PyTorch's allocator can map a block of pieces of one size alone, which the program can ask for.
void sharingWithPyTorch() {
  inChild([] { REQUIRE(kindInLargePool() == 'p'); });
  inChild([] {
    setenv("TORCH_CUDA_EXPANDABLE_SEGMENTS_IPC", "1", 1);
    REQUIRE(kindInLargePool() == 'e');
  });
  inChild([] {
    setenv("CUPOOL_ALLOC_CONF", "max_chunk:2MiB", 1);
    REQUIRE(kindInLargePool() == 'e');
  });
  inChild([] {
    setenv("CUPOOL_ALLOC_CONF", "max_chunk:2MiB", 1);
    setenv("FAKECUDA_FABRIC", "1", 1);
    REQUIRE(kindInLargePool(64) == 'e');
  });
  inChild([] {
    setenv("FAKECUDA_FABRIC", "1", 1);
    REQUIRE(kindInLargePool() == 'p');
  });
}

void manyThreads() {
  std::vector<std::thread> threads;
  for (int k = 0; k < 4; k++) {
    threads.emplace_back([k] {
      stand_in::setStream(newStream());
      std::vector<c10::DataPtr> live;
      for (size_t i = 0; i < 2000; i++) {
        live.push_back(alloc::get()->allocate(1 + (i * 104729 + k * 7919) % (1 << 20)));
        if (live.size() > 20) {
          live.erase(live.begin() + i % 20);
        }
        if (i % 500 == 0) {
          alloc::snapshot();
          alloc::recordHistory(k % 2 == 0, gather, 100, alloc::RecordContext::ALL, false, {});
        }
      }
    });
  }
  for (auto& t : threads) {
    t.join();
  }
  alloc::recordHistory(false, nullptr, 1, alloc::RecordContext::NEVER, true, {});
  REQUIRE(stats().allocation[0].current == 0);
}

void children() {
  auto p = alloc::get()->allocate(1000);
  inChild([&] {
    p.clear(); // nothing
    raises([] { alloc::get()->allocate(1000); });
  });
}

} // namespace

int main(int argc, char** argv) {
  const std::pair<const char*, void (*)()> tests[] = {
      {"openedByOthers", openedByOthers}, {"sharingWithPyTorch", sharingWithPyTorch}, {"virtualMemory", virtualMemory}, {"variables", variables}, {"namesOfOne", namesOfOne}, {"historyOfTwo", historyOfTwo},
      {"install", install}, {"contract", contract}, {"statistics", statistics}, {"history", history},
      {"nested", nested}, {"refusedFrees", refusedFrees},
      {"trackers", trackers}, {"throwingTracker", throwingTracker}, {"profiler", profiler}, {"streams", streams}, {"pools", pools},
      {"poolOptions", poolOptions}, {"poolAllocator", poolAllocator}, {"poolAllocatorThatCallsBack", poolAllocatorThatCallsBack},
      {"poolsInDestructors", poolsInDestructors}, {"checkpoints", checkpoints},
      {"outOfMemory", outOfMemory}, {"switchedOff", switchedOff}, {"settings", settings}, {"sharing", sharing},
      {"sharedMemoryThatWent", sharedMemoryThatWent},
      {"manyThreads", manyThreads}, {"children", children},
  };
  for (const auto& [name, test] : tests) {
    bool wanted = argc < 2 || std::strcmp(name, "install") == 0;
    for (int i = 1; i < argc; i++) {
      wanted = wanted || std::strcmp(name, argv[i]) == 0;
    }
    if (!wanted) {
      continue;
    }
    std::printf("%s\n", name);
    std::fflush(stdout);
    try {
      test();
    } catch (const std::exception& e) {
      std::fprintf(stderr, "%s: %s\n", name, e.what());
      return 1;
    }
  }
  std::printf("passed\n");
}
