// ipc.cpp: memory of other processes, in PyTorch's own format, so that one of two may run PyTorch's allocator: a byte 2,
// then 'c' and a cudaIpcMemHandle, or 'e', a header and a descriptor for each piece, which the receiver takes out of
// the sender by pidfd_getfd, or a fabric handle where there are such. PyTorch's pieces are of one size. Where ours are not, the format is 'p', with a size for
// each, which cupool alone reads. With max_chunk:2MiB all have that size.
#include "allocator.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <map>
#include <sstream>

#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif
#ifndef SYS_pidfd_getfd
#define SYS_pidfd_getfd 438
#endif

namespace cupool_torch {

using Fabric = std::array<char, 64>; // a fabric handle, or zeros

// A descriptor that is closed with its last owner, and the fabric handle of the same memory.
struct Descriptor {
  explicit Descriptor(int fd, const Fabric& fabric = {}) : fd(fd), fabric(fabric) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (fd >= 0) {
      close(fd);
    }
  }
  const int fd;
  const Fabric fabric;
};

namespace {

constexpr char version = 2, byName = 'c', uniform = 'e', pieces = 'p';

// PyTorch's struct, with its padding.
struct Header {
  pid_t pid;
  size_t size; // of a piece; 0 in format 'p'
  size_t count;
};

template <typename T>
void put(std::ostream& to, const T& value) {
  to.write(reinterpret_cast<const char*>(&value), sizeof value);
}

template <typename T>
T readNext(std::istream& from) {
  T value{};
  from.read(reinterpret_cast<char*>(&value), sizeof value);
  TORCH_CHECK(from.good(), "cupool: a handle of another process is cut off");
  return value;
}

// The sender's descriptor as one of this process.
std::unique_ptr<Descriptor> fetch(const Descriptor& sender, int fd, pid_t pid) {
  auto own = std::make_unique<Descriptor>(static_cast<int>(syscall(SYS_pidfd_getfd, sender.fd, fd, 0)));
  if (own->fd < 0) {
    const int err = errno;
    TORCH_CHECK(err != ENOSYS, "cupool: sharing GPU memory takes pidfd_getfd, of Linux 5.6");
    TORCH_CHECK(err != EPERM, "cupool: this process may not take descriptors of process ", pid,
                ", which shares GPU memory: it takes the permission to trace it (kernel.yama.ptrace_scope, prctl "
                "PR_SET_PTRACER in the sender, or the capability SYS_PTRACE of a container)");
    TORCH_CHECK(false, "cupool: pidfd_getfd from process ", pid, ": ", std::strerror(err));
  }
  return own;
}

} // namespace

// What this process shares, and what it maps of others.
class Shares {
 public:
  // The descriptors of a block and the range of their pieces, until it is freed or a piece goes, as when the pool
  // sleeps. Blocks of one piece have one descriptor.
  struct Sent {
    char *from, *to;
    std::vector<std::shared_ptr<Descriptor>> held;
  };

  // Forgets the blocks that are to go, under the lock of what is sent.
  template <typename Goes>
  void drop(Goes goes) {
    for (auto it = sent.begin(); it != sent.end();) {
      it = goes(*it) ? sent.erase(it) : std::next(it);
    }
    for (auto it = ofPiece.begin(); it != ofPiece.end();) {
      it = it->second.expired() ? ofPiece.erase(it) : std::next(it);
    }
  }

  std::mutex sending; // of what is sent; the library calls with its own locks held
  std::unordered_map<void*, Sent> sent;
  std::map<char*, std::weak_ptr<Descriptor>> ofPiece;
  std::mutex mapping; // of what is mapped
  std::unordered_map<std::string, std::weak_ptr<void>> mapped;
};

Allocator::Allocator() : shares_(std::make_unique<Shares>()) {}

Allocator::~Allocator() = default;

native::ShareableHandle Allocator::shareIpcHandle(void* p) {
  cupool_block_info block{};
  block.struct_size = sizeof block;
  TORCH_CHECK(lib.loaded() && lib.block_(p, &block) == CUPOOL_OK && block.live != 0, "invalid device pointer: ", p);
  size_t skip = 0, count = 16;
  std::vector<cupool_piece> found(count);
  cupool_status status = lib.export_(block.address, block.size, &skip, found.data(), &count);
  if (status == CUPOOL_ERROR_INVALID && count > found.size()) {
    found.resize(count);
    status = lib.export_(block.address, block.size, &skip, found.data(), &count);
  }
  check(status);
  found.resize(count);
  const auto fabricOf = [](const cupool_piece& piece) {
    Fabric fabric;
    std::memcpy(fabric.data(), piece.name, fabric.size());
    return fabric;
  };
  std::vector<std::shared_ptr<Descriptor>> held; // from here on, whatever fails
  for (const auto& piece : found) {
    held.push_back(std::make_shared<Descriptor>(piece.fd, fabricOf(piece)));
  }
  TORCH_CHECK(count > 0, "cupool: ", p, " has no memory that can be shared");

  std::ostringstream handle;
  handle.put(version);
  const auto offset = static_cast<ptrdiff_t>(skip) + (static_cast<char*>(p) - static_cast<char*>(block.address));
  if (count == 1 && found[0].fd < 0) {
    handle.put(byName);
    handle.write(found[0].name, sizeof found[0].name);
    return {offset, handle.str()};
  }
  bool same = true, fabric = true;
  for (size_t i = 0; i < count; i++) {
    TORCH_CHECK(found[i].fd >= 0, "cupool: ", p, " has pieces of several kinds and cannot be shared");
    same = same && found[i].size == found[0].size;
    fabric = fabric && held[i]->fabric != Fabric{};
  }
  handle.put(same ? uniform : pieces);
  Header header;
  std::memset(&header, 0, sizeof header); // the receiver looks handles up by their bytes
  header.pid = getpid();
  header.size = same ? found[0].size : 0;
  header.count = count;
  put(handle, header);

  std::unique_lock<std::mutex> lock(shares_->sending);
  char* const from = static_cast<char*>(block.address) - skip;
  char* at = from;
  for (size_t i = 0; i < count; i++) {
    auto& own = held[i];
    // While a block of the piece is shared, the piece stays where it is, and so does its descriptor.
    auto& known = shares_->ofPiece[at];
    if (auto earlier = known.lock()) {
      own = std::move(earlier);
    } else {
      known = own;
    }
    if (same && fabric) { // PyTorch has them where the system does
      put(handle, own->fabric);
    } else {
      put(handle, own->fd);
    }
    if (!same) {
      put(handle, found[i].size);
    }
    at += found[i].size;
  }
  shares_->sent[block.address] = {from, at, std::move(held)};
  shareCount_ = shares_->sent.size();
  lock.unlock();
  watch();
  return {offset, handle.str()};
}

void Allocator::dropShare(void* p) {
  if (shareCount_ == 0) {
    return;
  }
  {
    const std::lock_guard<std::mutex> lock(shares_->sending);
    if (shares_->sent.count(p) == 0) {
      return;
    }
    shares_->drop([p](const auto& sent) { return sent.first == p; });
    shareCount_ = shares_->sent.size();
  }
  watch();
}

// Memory is about to go, so that its descriptors are of nothing that has an address. Frees are watched until the next.
void Allocator::dropShares(void* address, size_t size) {
  if (shareCount_ == 0) {
    return;
  }
  char* const from = static_cast<char*>(address);
  char* const to = from + size;
  const std::lock_guard<std::mutex> lock(shares_->sending);
  shares_->drop([from, to](const auto& sent) { return sent.second.from < to && from < sent.second.to; });
  shareCount_ = shares_->sent.size();
}

std::shared_ptr<void> Allocator::getIpcDevPtr(std::string handle) {
  const c10::DeviceIndex device = [] {
    c10::DeviceIndex current = 0;
    C10_CUDA_CHECK(c10::cuda::GetDevice(&current));
    return current;
  }();
  opened(device);
  const std::lock_guard<std::mutex> lock(shares_->mapping);
  for (auto it = shares_->mapped.begin(); it != shares_->mapped.end();) {
    it = it->second.expired() ? shares_->mapped.erase(it) : std::next(it);
  }
  const std::string key = std::to_string(device) + ":" + handle;
  const auto present = shares_->mapped.find(key);
  if (present != shares_->mapped.end()) {
    if (auto mapped = present->second.lock()) {
      return mapped;
    }
  }
  std::istringstream from(handle);
  char kind = byName; // a handle alone is of a PyTorch before versions
  if (handle.size() != CUDA_IPC_HANDLE_SIZE) {
    const int received = from.get();
    TORCH_CHECK(received <= version, "cupool: a handle of another process has the version ", received,
                ", of a newer PyTorch");
    kind = static_cast<char>(from.get());
  }
  std::shared_ptr<void> result;
  if (kind == byName) {
    const auto name = readNext<cudaIpcMemHandle_t>(from);
    void* p = nullptr;
    C10_CUDA_CHECK(cudaIpcOpenMemHandle(&p, name, cudaIpcMemLazyEnablePeerAccess));
    result = std::shared_ptr<void>(p, [device](void* mapped) {
      const c10::cuda::CUDAGuard guard(device);
      C10_CUDA_CHECK_WARN(cudaIpcCloseMemHandle(mapped));
    });
  } else {
    TORCH_CHECK(kind == uniform || kind == pieces, "cupool: a handle of another process has an unknown kind");
    const auto header = readNext<Header>(from);
    const size_t head = 2 + sizeof header, left = handle.size() - head;
    const auto has = [&](size_t each) {
      return header.count > 0 && header.count <= left && left == header.count * each;
    };
    const bool fabric = kind == uniform && has(sizeof(Fabric));
    TORCH_CHECK(fabric || has(sizeof(int) + (kind == pieces ? sizeof(size_t) : 0)),
                "cupool: a handle of another process is damaged");
    const Descriptor sender(fabric ? -1 : static_cast<int>(syscall(SYS_pidfd_open, header.pid, 0)));
    TORCH_CHECK(fabric || sender.fd >= 0, "cupool: process ", header.pid,
                ", which shares GPU memory, cannot be reached: ", std::strerror(errno));
    std::vector<cupool_piece> list(header.count);
    std::vector<std::unique_ptr<Descriptor>> own;
    size_t size = 0;
    for (auto& piece : list) {
      if (fabric) {
        const auto handleOf = readNext<Fabric>(from);
        piece = {header.size, CUPOOL_BY_FABRIC, {}};
        std::memcpy(piece.name, handleOf.data(), handleOf.size());
        size += piece.size;
        continue;
      }
      const int fd = readNext<int>(from);
      piece.size = kind == uniform ? header.size : readNext<size_t>(from);
      own.push_back(fetch(sender, fd, header.pid));
      piece.fd = own.back()->fd;
      size += piece.size;
    }
    void* p = nullptr;
    check(lib.import_(device, 0, size, list.data(), list.size(), &p));
    result = std::shared_ptr<void>(p, [device](void* mapped) {
      // Work that uses it may be under way, on any stream.
      const c10::cuda::CUDAGuard guard(device);
      C10_CUDA_CHECK_WARN(cudaDeviceSynchronize());
      if (lib.unimport_(device, mapped) != CUPOOL_OK) {
        TORCH_WARN("cupool: memory of another process stays mapped: ", lib.last_error_());
      }
    });
  }
  shares_->mapped[key] = result;
  return result;
}

} // namespace cupool_torch
