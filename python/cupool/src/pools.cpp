// pools.cpp: private pools. A capture of a graph, or torch.cuda.use_mem_pool, has the allocations that its filter says
// yes to come from one. A pool may have an allocator of its own that its segments come from.
#include "allocator.h"

#include <algorithm>
#include <exception>
#include <utility>

namespace cupool_torch {

namespace {

// What the allocator of a pool failed with last on the thread, and the how manieth failure that was.
thread_local std::exception_ptr poolFailure;
thread_local uint64_t poolFailureNumber = 0;

// Where a pool's segments come from: called by the library with its locks held.
void* allocFrom(void* user, size_t size, int device, void* stream) {
  poolFailure = nullptr;
  try {
    const c10::cuda::CUDAGuard guard(static_cast<c10::DeviceIndex>(device));
    return (*static_cast<PoolAllocator*>(user))->raw_alloc_with_stream(size, static_cast<cudaStream_t>(stream));
  } catch (...) {
    poolFailure = std::current_exception();
    poolFailureNumber = ++poolFailures;
    return nullptr;
  }
}

void freeTo(void* user, void* p, size_t /*size*/, int device, void* /*stream*/) {
  try {
    const c10::cuda::CUDAGuard guard(static_cast<c10::DeviceIndex>(device));
    (*static_cast<PoolAllocator*>(user))->raw_delete(p);
  } catch (const std::exception& e) {
    TORCH_WARN("cupool: the allocator of a pool did not take ", p, " back: ", e.what());
  }
}

// A filter asks for the thread or the stream's capture, so it runs on the allocating thread.
int askFilter(void* user, void* stream) {
  try {
    return (*static_cast<std::function<bool(cudaStream_t)>*>(user))(static_cast<cudaStream_t>(stream)) ? 1 : 0;
  } catch (const std::exception&) {
    return 0; // the capture was invalidated, and its end says so
  }
}

// Graphs replay into free memory of their pool: it stays where it is, and nobody else gets it.
cupool_pool_config poolConfig() {
  cupool_pool_config config{};
  config.struct_size = sizeof config;
  config.flags = CUPOOL_POOL_ISOLATED;
  return config;
}

} // namespace

std::atomic<uint64_t> poolFailures{0};

void rethrowPoolFailure(uint64_t before) {
  const std::exception_ptr failure = std::exchange(poolFailure, nullptr);
  if (failure != nullptr && poolFailureNumber > before) {
    std::rethrow_exception(failure);
  }
}

void Allocator::createPool(c10::DeviceIndex device, MempoolId_t id, const cupool_pool_config& config) {
  check(lib.pool_create_(device, poolId(id), &config));
  if (reportsPools) {
    reserved_.emplace(PoolKey(device, id), cupool_stats3{});
  }
}

void Allocator::createOrIncrefPool(c10::DeviceIndex device, MempoolId_t id, PoolAllocator allocator) {
  opened(device);
  const std::lock_guard<std::mutex> lock(mutex_);
  cupool_pool_config config = poolConfig();
  config.flags |= CUPOOL_POOL_SEGMENTS; // a MemPool's are registered with libraries, and may get flags later
  if (allocator) {
    // It stays for ever, once for all its pools: these may outlive everyone who knows them.
    auto source = std::find_if(sources_.begin(), sources_.end(), [&](const auto& s) { return *s == allocator; });
    if (source == sources_.end()) {
      source = sources_.insert(sources_.end(), std::make_unique<PoolAllocator>(std::move(allocator)));
    }
    config.alloc = allocFrom;
    config.free = freeTo;
    config.user = source->get();
  }
  createPool(device, id, config);
}

// Older versions of PyTorch keep the allocator themselves.
void Allocator::createOrIncrefPool(c10::DeviceIndex device, MempoolId_t id, native::CUDAAllocator* allocator) {
  createOrIncrefPool(device, id, PoolAllocator(allocator, [](native::CUDAAllocator*) {}));
}

void Allocator::beginAllocateToPool(c10::DeviceIndex device, MempoolId_t id,
                                    std::function<bool(cudaStream_t)> filter) {
  opened(device);
  const std::lock_guard<std::mutex> lock(mutex_);
  TORCH_CHECK(filters_.count({device, id}) == 0, "beginAllocateToPool: already recording to mempool_id");
  int count = 0;
  check(lib.pool_use_count_(device, poolId(id), &count));
  if (count == 0) {
    createPool(device, id, poolConfig());
  }
  auto& kept = filters_[{device, id}];
  kept = std::make_unique<std::function<bool(cudaStream_t)>>(std::move(filter));
  const cupool_status status = lib.begin_(device, poolId(id), askFilter, kept.get());
  if (status != CUPOOL_OK) {
    const std::string text = lib.last_error_();
    filters_.erase({device, id});
    if (count == 0) {
      (void)lib.pool_release_(device, poolId(id));
    }
    TORCH_CHECK(status != CUPOOL_ERROR_EXISTS, "beginAllocateToPool: already recording to mempool_id");
    TORCH_CHECK(false, text);
  }
  if (count == 0) {
    check(lib.pool_release_(device, poolId(id))); // begin counts for itself
  }
}

void Allocator::endAllocateToPool(c10::DeviceIndex device, MempoolId_t id) {
  known(device);
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto kept = filters_.find({device, id});
  TORCH_CHECK(kept != filters_.end(), "endAllocatePool: not currently recording to mempool_id");
  const cupool_status status = lib.end_(device, poolId(id));
  filters_.erase(kept);
  poolFailure = nullptr;
  check(status);
}

void Allocator::releasePool(c10::DeviceIndex device, MempoolId_t id) {
  known(device);
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (const auto last = reserved_.find({device, id}); last != reserved_.end()) {
      lookAgain(device, id, &last->second); // it may go now
    }
  }
  // Destructors of graphs and MemPools come here, also in a child of fork, which has no pools.
  const cupool_status status = lib.pool_release_(device, poolId(id));
  TORCH_INTERNAL_ASSERT(status == CUPOOL_OK || status == CUPOOL_ERROR_FORKED, "no such pool: ", lib.last_error_());
}

int Allocator::getPoolUseCount(c10::DeviceIndex device, MempoolId_t id) {
  opened(device);
  int count = 0;
  check(lib.pool_use_count_(device, poolId(id), &count));
  TORCH_INTERNAL_ASSERT(count > 0, "no such pool");
  return count;
}

void Allocator::setUseOnOOM(c10::DeviceIndex device, MempoolId_t id, bool value) {
  known(device);
  const cupool_status status =
      lib.pool_set_flags_(device, poolId(id), value ? CUPOOL_POOL_USE_ON_OOM : CUPOOL_POOL_ISOLATED);
  if (status != CUPOOL_ERROR_FORKED) { // a destructor of a MemPool, as above
    check(status);
  }
}

void Allocator::setNoSplit(c10::DeviceIndex device, MempoolId_t id) {
  known(device);
  check(lib.pool_set_flags_(device, poolId(id), CUPOOL_POOL_NO_SPLIT));
}

bool Allocator::checkPoolLiveAllocations(c10::DeviceIndex device, MempoolId_t id,
                                         const std::unordered_set<void*>& expected) {
  opened(device);
  cupool_status status = CUPOOL_OK;
  const Layout found = layout(device, poolId(id), &status);
  TORCH_CHECK(status != CUPOOL_ERROR_NOT_FOUND, "Could not find pool of id");
  check(status);
  size_t live = 0;
  for (const auto& segment : found.segments) {
    for (const auto& block : segment.blocks) {
      if (block.state != CUPOOL_BLOCK_LIVE) {
        continue;
      }
      if (expected.count(block.address) == 0) {
        return false;
      }
      live++;
    }
  }
  return live == expected.size();
}

} // namespace cupool_torch
