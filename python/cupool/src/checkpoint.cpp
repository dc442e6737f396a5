// checkpoint.cpp: the layout of a private pool, taken and brought back. A tree of CUDA graphs captures a new branch
// with the memory as it was at the end of an earlier graph. Contents stay, because no mapping changes.
#include "allocator.h"

namespace cupool_torch {

namespace {

struct Live {
  void* address;
  size_t size, requested;
  void* stream;
};

struct PoolState : native::AllocatorState {
  MempoolId_t id;
  std::vector<Live> live;
};

} // namespace

std::shared_ptr<native::AllocatorState> Allocator::getCheckpointState(c10::DeviceIndex device, MempoolId_t id) {
  opened(device);
  int count = 0;
  check(lib.pool_use_count_(device, poolId(id), &count));
  cupool_status status = CUPOOL_OK;
  const Layout found = layout(device, poolId(id), &status);
  TORCH_CHECK(status != CUPOOL_ERROR_NOT_FOUND, "Could not find pool of id");
  check(status);
  TORCH_CHECK(count > 0, "Not expected to checkpoint freeable graph");
  auto state = std::make_shared<PoolState>();
  state->id = id;
  for (const auto& segment : found.segments) {
    for (const auto& block : segment.blocks) {
      if (block.state == CUPOOL_BLOCK_LIVE) {
        state->live.push_back({block.address, block.size, block.requested, segment.info.stream});
      }
    }
  }
  return state;
}

native::CheckpointDelta Allocator::setCheckpointPoolState(c10::DeviceIndex device,
                                                          std::shared_ptr<native::AllocatorState> state) {
  opened(device);
  const auto wanted = std::dynamic_pointer_cast<PoolState>(state);
  TORCH_CHECK(wanted != nullptr, "Expected the state of a pool, of this allocator");
  const cupool_pool_id pool = poolId(wanted->id);
  int count = 0;
  check(lib.pool_use_count_(device, pool, &count));
  cupool_status status = CUPOOL_OK;
  const Layout present = layout(device, pool, &status);
  TORCH_CHECK(status != CUPOOL_ERROR_NOT_FOUND, "Could not find private pool id");
  check(status);
  TORCH_CHECK(count > 0, "Not expected to checkpoint freeable graph");

  auto& history = devices_[device].history;
  const Context context = history.gather(RecordContext::STATE);
  native::CheckpointDelta delta;
  for (const auto& segment : present.segments) {
    for (const auto& block : segment.blocks) {
      if (block.state != CUPOOL_BLOCK_LIVE) {
        continue;
      }
      Block note{block.address, block.requested, segment.info.stream, wanted->id, nullptr, false};
      (void)history.forget(block.address, &note);
      history.freed(device, note, context);
      dropShare(block.address);
      check(lib.free_(block.address));
      delta.ptrs_freed.push_back(block.address);
    }
  }
  check(lib.collect_(device, nullptr)); // blocks that another stream has used are free when it is done
  for (const Live& block : wanted->live) {
    status = lib.alloc_at_(device, pool, block.address, block.size, block.requested, block.stream);
    TORCH_CHECK(status != CUPOOL_ERROR_OCCUPIED,
                "Events should have synchronized when setting checkpointed block. ", lib.last_error_());
    check(status);
    history.allocated(device, {block.address, block.requested, block.stream, wanted->id, context, false});
    delta.dataptrs_allocd.emplace_back(block.address, block.address, &deleteBlock,
                                       c10::Device(c10::DeviceType::CUDA, device));
  }
  return delta;
}

} // namespace cupool_torch
