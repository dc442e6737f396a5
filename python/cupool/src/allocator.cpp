// allocator.cpp: how the class gets into PyTorch, allocation and free with what PyTorch is told of each, streams,
// devices and peers.
#include "allocator.h"

#include <c10/core/impl/GPUTrace.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/util/env.h>

#include <algorithm>
#include <cstdio>

namespace cupool_torch {

namespace {

// The stack of the allocation that the calling thread is in, for the segments that it needs.
thread_local const Context* inFlight = nullptr;

struct InFlight {
  explicit InFlight(const Context* context) : outer(inFlight) { inFlight = context; }
  ~InFlight() { inFlight = outer; }
  const Context* outer; // callbacks on a miss may allocate and empty caches
};

// PyTorch's sanitizer of streams is told by the allocator itself.
void traceAllocation(void* p) {
  const auto* trace = c10::impl::GPUTrace::get_trace();
  if (C10_UNLIKELY(trace != nullptr)) {
    (*trace)->trace_gpu_memory_allocation(c10::kCUDA, reinterpret_cast<uintptr_t>(p));
  }
}

void traceDeallocation(void* p) {
  const auto* trace = c10::impl::GPUTrace::get_trace();
  if (C10_UNLIKELY(trace != nullptr)) {
    (*trace)->trace_gpu_memory_deallocation(c10::kCUDA, reinterpret_cast<uintptr_t>(p));
  }
}

c10::DeviceIndex currentDevice() {
  c10::DeviceIndex device = 0;
  C10_CUDA_CHECK(c10::cuda::GetDevice(&device));
  return device;
}

} // namespace

Allocator& Allocator::get() {
  static auto* allocator = new Allocator();
  return *allocator;
}

// ---------------------------------------------------------------- the way in

void Allocator::configure(std::string library, std::string settings) {
  const std::lock_guard<std::mutex> lock(mutex_);
  file_ = std::move(library);
  extra_ = std::move(settings);
}

void Allocator::init(int devices) {
  std::string file;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (devices <= count_) {
      return;
    }
    file = file_;
  }
  TORCH_CHECK(devices <= static_cast<int>(devices_.size()), "cupool: ", devices, " devices are too many");
  lib.load(file);
  watchSettings();
  count_ = devices;
}

bool Allocator::initialized() { return count_ > 0; }

Device& Allocator::known(c10::DeviceIndex device) {
  TORCH_CHECK(0 <= device && device < count_, "Allocator not initialized for device ", static_cast<int>(device),
              ": did you call init?");
  return devices_[device];
}

Device& Allocator::opened(c10::DeviceIndex device) {
  Device& d = known(device);
  if (!isOpen(device)) {
    open(device);
  }
  return d;
}

// Whether the device has a pool, which CuPy or a library in C may have opened.
bool Allocator::hasPool(int device) {
  if (!isOpen(device) && lib.is_open_(device) != 0) {
    open(static_cast<c10::DeviceIndex>(device));
  }
  return isOpen(device);
}

void Allocator::open(c10::DeviceIndex device) {
  Device& d = known(device);
  const std::lock_guard<std::mutex> lock(d.opening);
  if (isOpen(device)) {
    return;
  }
  const std::string text = settings();
  cupool_config config{};
  config.struct_size = sizeof config;
  config.settings = text.c_str();
  const cupool_status status = lib.open_(device, &config);
  if (status == CUPOOL_ERROR_EXISTS) {
    // CuPy or a library in C opened the pool first. What can change later is as PyTorch says.
    check(lib.configure_(device, join(changeableSettings()).c_str()));
    if (!extra_.empty()) {
      TORCH_WARN("cupool: the pool of GPU ", static_cast<int>(device), " was opened before PyTorch used it, so what ",
                 "install was given has no effect: ", extra_);
    }
  } else {
    check(status);
  }
  if (const double part = fraction(d); part < 1) {
    check(lib.set_fraction_(device, part));
  }
  cupool_callbacks callbacks{};
  callbacks.struct_size = sizeof callbacks;
  callbacks.before_grow = beforeGrow;
  callbacks.segment = onSegment;
  callbacks.user = this;
  check(lib.set_callbacks_(device, &callbacks));
  d.open.store(true, std::memory_order_release);
}

// PyTorch's callbacks that free memory on a miss: one takes back what other processes are done with.
void Allocator::beforeGrow(void* /*user*/, int /*device*/, size_t /*size*/) {
  try {
    auto* registry = c10::FreeCudaMemoryCallbacksRegistry();
    for (const auto& name : registry->Keys()) {
      registry->Create(name)->Execute();
    }
  } catch (const std::exception& e) {
    TORCH_WARN("cupool: a callback that frees memory failed: ", e.what());
  }
}

void Allocator::onSegment(void* user, int device, cupool_segment_action action, cupool_pool_id pool, void* address,
                          size_t size, void* stream) {
  auto& self = *static_cast<Allocator*>(user);
  if (action == CUPOOL_SEGMENT_FREE || action == CUPOOL_SEGMENT_UNMAP) {
    self.dropShares(address, size);
  }
  try {
    self.devices_[device].history.segment(static_cast<c10::DeviceIndex>(device), action, poolId(pool), address, size,
                                          stream, inFlight != nullptr ? *inFlight : nullptr);
  } catch (const std::exception& e) {
    // The caller is C, and an exception must not reach it.
    std::fprintf(stderr, "cupool: a tracker of segments failed: %s\n", e.what());
  }
}

// ---------------------------------------------------------------- allocation

void* Allocator::take(c10::DeviceIndex device, size_t size, cudaStream_t stream) {
  if (C10_UNLIKELY(!isOpen(device))) {
    open(device);
  }
  if (C10_UNLIKELY(watched_.load(std::memory_order_relaxed) || c10::memoryProfilingEnabled())) {
    return takeWatched(device, size, stream);
  }
  const uint64_t before = poolFailures.load(std::memory_order_relaxed);
  void* p = nullptr;
  const cupool_status status = lib.alloc_(device, size, stream, &p);
  if (C10_UNLIKELY(status != CUPOOL_OK)) {
    failAllocation(status, device, size, stream, before);
  }
  traceAllocation(p);
  return p;
}

void* Allocator::takeWatched(c10::DeviceIndex device, size_t size, cudaStream_t stream) {
  auto& history = devices_[device].history;
  // Python's lock is taken here, before any other.
  const Context context = history.gather(RecordContext::STATE);
  void* p = nullptr;
  {
    const InFlight guard(&context);
    const uint64_t before = poolFailures.load(std::memory_order_relaxed);
    const cupool_status status = lib.alloc_(device, size, stream, &p);
    if (status != CUPOOL_OK) {
      failAllocation(status, device, size, stream, before);
    }
  }
  traceAllocation(p);
  try {
    cupool_block_info block{};
    block.struct_size = sizeof block;
    check(lib.block_(p, &block));
    history.allocated(device, {p, size, stream, poolId(block.pool), context, false});
    tellProfiler(p, block, false);
  } catch (...) { // of a tracker, so that nobody gets the block
    (void)giveWatched(p);
    throw;
  }
  return p;
}

void* Allocator::raw_alloc_with_stream(size_t size, cudaStream_t stream) {
  if (size == 0) {
    return nullptr;
  }
  return uncached() ? takeUncached(size) : take(currentDevice(), size, stream);
}

void* Allocator::raw_alloc(size_t size) {
  if (size == 0) {
    return nullptr;
  }
  if (uncached()) {
    return takeUncached(size);
  }
  const c10::DeviceIndex device = currentDevice();
  return take(device, size, c10::cuda::getCurrentCUDAStream(device));
}

c10::DataPtr Allocator::allocate(size_t size) {
  constexpr size_t exbibyte = size_t{1} << 60;
  TORCH_CHECK_WITH(OutOfMemoryError, size < exbibyte,
                   "CUDA out of memory. Tried to allocate more than 1EB memory.");
  const c10::DeviceIndex device = currentDevice();
  const c10::Device where(c10::DeviceType::CUDA, device);
  if (C10_UNLIKELY(uncached())) {
    void* p = size > 0 ? takeUncached(size) : nullptr;
    return {p, p, &deleteUncached, where};
  }
  void* p = size > 0 ? take(device, size, c10::cuda::getCurrentCUDAStream(device)) : nullptr;
  return {p, p, &deleteBlock, where};
}

c10::DeleterFnPtr Allocator::raw_deleter() const { return &deleteBlock; }

// ---------------------------------------------------------------- free

cupool_status Allocator::give(void* p) {
  if (C10_UNLIKELY(watchedFrees_.load(std::memory_order_relaxed) || c10::memoryProfilingEnabled())) {
    return giveWatched(p);
  }
  traceDeallocation(p);
  return lib.free_(p);
}

cupool_status Allocator::giveWatched(void* p) {
  if (giveUncached(p)) {
    return CUPOOL_OK;
  }
  cupool_block_info block{};
  block.struct_size = sizeof block;
  const cupool_status found = lib.block_(p, &block);
  if (found == CUPOOL_ERROR_BUSY) { // the allocator of a pool frees it: the library does so later
    traceDeallocation(p);
    for (int i = 0; i < count_; i++) {
      Block note;
      (void)devices_[i].history.forget(p, &note);
    }
    dropShare(p);
    return lib.free_(p);
  }
  if (found != CUPOOL_OK) {
    return found;
  }
  if (block.live == 0 || block.address != p) {
    return lib.free_(p); // which says why not
  }
  traceDeallocation(p);
  auto& history = devices_[block.device].history;
  const auto device = static_cast<c10::DeviceIndex>(block.device);
  try {
    Context context = history.gather(RecordContext::ALL);
    Block note;
    const bool noted = history.forget(p, &note);
    if (history.watches()) {
      if (!noted) {
        note = {p, block.requested, block.stream, poolId(block.pool), nullptr, false};
      }
      // It is told before it is done: another thread may get the block at once.
      history.freed(device, note, std::move(context));
    }
  } catch (const std::exception& e) {
    // The block is freed all the same.
    std::fprintf(stderr, "cupool: a tracker of the free of %p failed: %s\n", p, e.what());
  }
  dropShare(p);
  const cupool_status status = lib.free_(p);
  if (status == CUPOOL_OK) {
    tellProfiler(p, block, true);
  }
  if (!history.holds()) {
    watch();
  }
  return status;
}

void Allocator::raw_delete(void* p) {
  if (p == nullptr) {
    return;
  }
  const cupool_status status = lib.loaded() || uncachedCount_ > 0 ? give(p) : CUPOOL_ERROR_FOREIGN_POINTER;
  TORCH_CHECK(status == CUPOOL_OK || status == CUPOOL_ERROR_FORKED, "invalid device pointer: ", p, ". ",
              lib.loaded() ? lib.last_error_() : "");
}

// The deleter of all tensors. It runs in destructors, so it cannot raise; in a child of fork it does nothing.
void Allocator::deleteBlock(void* p) {
  if (p == nullptr) {
    return;
  }
  try {
    const cupool_status status = get().give(p);
    if (C10_UNLIKELY(status != CUPOOL_OK && status != CUPOOL_ERROR_FORKED)) {
      TORCH_WARN("cupool: a tensor's memory at ", p, " was not freed: ", lib.last_error_());
    }
  } catch (const std::exception& e) {
    std::fprintf(stderr, "cupool: a tensor's memory at %p was not freed: %s\n", p, e.what());
  }
}

// What watches frees: histories that hold notes, memory that is shared, and blocks of cudaMalloc.
void Allocator::watch() {
  // Whoever comes last sees all counts as they are.
  const std::lock_guard<std::mutex> lock(watching_);
  bool allocations = false, frees = uncachedCount_ > 0 || shareCount_ > 0;
  for (int i = 0; i < count_; i++) {
    allocations = allocations || devices_[i].history.watches();
    frees = frees || devices_[i].history.holds();
  }
  watched_ = allocations;
  watchedFrees_ = frees;
}

// ---------------------------------------------------------------- without the pool

// PYTORCH_NO_CUDA_MEMORY_CACHING=1 and caching_allocator_enable(False): each block is the driver's, for its tools.
bool Allocator::uncached() const {
  static const bool always = c10::utils::check_env("PYTORCH_NO_CUDA_MEMORY_CACHING") == true;
  return C10_UNLIKELY(always || !enabled_.load(std::memory_order_relaxed));
}

void Allocator::enable(bool value) { enabled_ = value; }

bool Allocator::isEnabled() const { return enabled_; }

void* Allocator::takeUncached(size_t size) {
  void* p = nullptr;
  C10_CUDA_CHECK(cudaMalloc(&p, size));
  {
    const std::lock_guard<std::mutex> lock(uncachedMutex_);
    uncached_.insert(p);
    uncachedCount_ = uncached_.size();
  }
  watch();
  traceAllocation(p);
  return p;
}

bool Allocator::giveUncached(void* p) {
  if (uncachedCount_ == 0) {
    return false;
  }
  {
    const std::lock_guard<std::mutex> lock(uncachedMutex_);
    if (uncached_.erase(p) == 0) {
      return false;
    }
    uncachedCount_ = uncached_.size();
  }
  watch();
  traceDeallocation(p);
  const cudaError_t err = cudaFree(p);
  if (err != cudaErrorCudartUnloading) {
    C10_CUDA_CHECK(err);
  }
  return true;
}

void Allocator::deleteUncached(void* p) {
  if (p == nullptr) {
    return;
  }
  try {
    get().giveUncached(p);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "cupool: memory of cudaMalloc at %p was not freed: %s\n", p, e.what());
  }
}

// ---------------------------------------------------------------- what PyTorch is told

void Allocator::tellProfiler(void* p, const cupool_block_info& block, bool freed) {
  if (!c10::memoryProfilingEnabled()) {
    return;
  }
  cupool_stats stats{};
  stats.struct_size = sizeof stats;
  check(lib.get_stats_(block.device, CUPOOL_ALL, &stats));
  const auto size = static_cast<int64_t>(block.size);
  c10::reportMemoryUsageToProfiler(
      p, freed ? -size : size, stats.allocated_bytes.all.current, stats.reserved_bytes.all.current,
      c10::Device(c10::DeviceType::CUDA, static_cast<c10::DeviceIndex>(block.device)));
}

bool Allocator::isHistoryEnabled() { return known(currentDevice()).history.enabled(); }

void Allocator::recordHistory(bool enabled, native::CreateContextFn gather, size_t entries, RecordContext when,
                              bool clear, const std::vector<std::string>& skip) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    annotations_.limit(entries);
    if (!enabled || clear) {
      annotations_.clear();
    }
    annotating_ = enabled;
  }
  for (int i = 0; i < count_; i++) {
    devices_[i].history.start(enabled, gather, entries, when, clear, skip);
  }
  watch();
}

Context Allocator::getContextForPointer(const void* p) {
  for (int i = 0; i < count_; i++) {
    if (auto context = devices_[i].history.contextOf(const_cast<void*>(p))) {
      return context;
    }
  }
  return nullptr;
}

void Allocator::recordAnnotation(const std::vector<std::pair<std::string, std::string>>& texts) {
  if (!annotating_) {
    return;
  }
  AnnotationEntry entry(currentDevice(), c10::getApproximateTime());
  for (const auto& [name, value] : texts) {
    entry.recordUserMetadata(name, value);
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  annotations_.add(std::move(entry));
}

void Allocator::pushCompileContext(std::string& text) {
  if (annotating_) {
    History::pushCompileContext(text);
  }
}

void Allocator::popCompileContext() {
  if (annotating_) {
    History::popCompileContext();
  }
}

void Allocator::setUserMetadata(const std::string& text) { History::userMetadata() = text; }

std::string Allocator::getUserMetadata() { return History::userMetadata(); }

void Allocator::annotateMemory(const void* p, const std::string& text) {
  for (int i = 0; i < count_; i++) {
    if (devices_[i].history.annotated(static_cast<c10::DeviceIndex>(i), p, text)) {
      return;
    }
  }
}

void Allocator::attachOutOfMemoryObserver(native::OutOfMemoryObserver observer) {
  const std::lock_guard<std::mutex> lock(mutex_);
  observers_.push_back(std::move(observer));
}

void Allocator::attachAllocatorTraceTracker(native::AllocatorTraceTracker tracker) {
  for (int i = 0; i < count_; i++) {
    devices_[i].history.track(tracker);
  }
  watch();
}

// ---------------------------------------------------------------- streams and devices

void Allocator::recordStream(const c10::DataPtr& data, c10::cuda::CUDAStream stream) {
  // Tensors without elements, and memory of others: of other processes, of from_blob, of cudaMalloc.
  void* p = data.get();
  if (p == nullptr || data.get_deleter() != &deleteBlock) {
    return;
  }
  cudaStream_t handle = stream.stream();
  opened(stream.device_index());
  check(lib.record_stream_on_(p, stream.device_index(), handle));
  if (C10_UNLIKELY(watchedFrees_.load(std::memory_order_relaxed))) {
    for (int i = 0; i < count_; i++) {
      devices_[i].history.recorded(p, i == stream.device_index(), handle);
    }
  }
}

void Allocator::enablePeerAccess(c10::DeviceIndex device, c10::DeviceIndex peer) {
  const c10::cuda::CUDAGuard guard(device);
  const cudaError_t err = cudaDeviceEnablePeerAccess(peer, 0);
  if (err == cudaErrorPeerAccessAlreadyEnabled) {
    (void)cudaGetLastError();
  } else {
    C10_CUDA_CHECK(err);
  }
  opened(device);
  opened(peer);
  check(lib.enable_peer_(device, peer));
}

cudaError_t Allocator::memcpyAsync(void* to, int toDevice, const void* from, int fromDevice, size_t count,
                                   cudaStream_t stream, bool peers) {
  if (peers || toDevice == fromDevice) {
    return cudaMemcpyAsync(to, from, count, cudaMemcpyDeviceToDevice, stream);
  }
  // Without access to the peer, virtual memory is copied by this call alone.
  return cudaMemcpyPeerAsync(to, toDevice, from, fromDevice, count, stream);
}

void Allocator::copy_data(void* to, const void* from, std::size_t count) const {
  C10_CUDA_CHECK(cudaMemcpy(to, from, count, cudaMemcpyDeviceToDevice));
}

void* Allocator::getBaseAllocation(void* p, size_t* size) {
  cupool_block_info block{};
  block.struct_size = sizeof block;
  TORCH_CHECK(lib.loaded() && lib.block_(p, &block) == CUPOOL_OK && block.live != 0, "invalid device pointer: ", p);
  if (size != nullptr) {
    *size = block.base_size;
  }
  return block.base;
}

// In: a first guess, 0 for the device's free memory. cuDNN takes the result as the bound of its workspace.
void Allocator::cacheInfo(c10::DeviceIndex device, size_t* largest) {
  opened(device);
  size_t deviceFree = 0, free = 0;
  check(lib.memory_info_(device, &deviceFree, nullptr, &free));
  if (*largest == 0) {
    *largest = deviceFree;
  }
  *largest = std::max(*largest, free);
}

void Allocator::emptyCache(MempoolId_t id) {
  const cupool_pool_id pool = id == MempoolId_t{0, 0} ? CUPOOL_ALL : poolId(id);
  std::string failed;
  for (int i = 0; i < count_; i++) {
    if (!hasPool(i)) {
      continue;
    }
    // A pool that is named gives back when nobody uses it: a graph may replay into its free memory.
    int count = 0;
    cupool_status status = id != MempoolId_t{0, 0} ? lib.pool_use_count_(i, pool, &count) : CUPOOL_OK;
    if (count > 0) {
      continue;
    }
    const Context context = devices_[i].history.gather(RecordContext::ALL);
    const InFlight guard(&context);
    if (status == CUPOOL_OK) {
      status = lib.trim_(i, pool, 0, nullptr);
    }
    // A pool that is gone has nothing, and one that sleeps has given all. A child of fork has no pools.
    if (status != CUPOOL_OK && status != CUPOOL_ERROR_NOT_FOUND && status != CUPOOL_ERROR_ASLEEP &&
        status != CUPOOL_ERROR_FORKED && failed.empty()) {
      failed = lib.last_error_();
    }
  }
  TORCH_CHECK(failed.empty(), failed); // once the other devices had their turn
}

double Allocator::getMemoryFraction(c10::DeviceIndex device) {
  Device& d = known(device);
  const std::lock_guard<std::mutex> lock(d.opening);
  if (!isOpen(device)) {
    return fraction(d);
  }
  double part = 1;
  check(lib.fraction_(device, &part));
  return part;
}

void Allocator::setMemoryFraction(double part, c10::DeviceIndex device) {
  Device& d = known(device);
  TORCH_CHECK(0 <= part && part <= 1, "invalid fraction:", part, ". Please set within [0, 1].");
  const std::lock_guard<std::mutex> lock(d.opening);
  d.fraction = part;
  if (isOpen(device)) {
    check(lib.set_fraction_(device, part));
  }
}

std::vector<native::StreamSegmentSize> Allocator::getExpandableSegmentSizes(c10::DeviceIndex /*device*/) {
  return {};
}

std::string Allocator::name() { return "cupool"; }

} // namespace cupool_torch
