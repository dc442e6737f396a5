// install.cpp: the functions that Python calls by ctypes.
#include "allocator.h"

#include <cstdio>
#include <cstring>

namespace {

using namespace cupool_torch;

int answer(char* text, size_t size, int result, const std::string& what) {
  if (text != nullptr && size > 0) {
    std::snprintf(text, size, "%s", what.c_str());
  }
  return result;
}

} // namespace

extern "C" {

// The minor version of PyTorch that the class was built for, as 211 for 2.11. It fits no other.
__attribute__((visibility("default"))) int cupool_torch_built_for() {
  return 100 * TORCH_VERSION_MAJOR + TORCH_VERSION_MINOR;
}

// Puts cupool into the place of PyTorch's allocator. library is the path of libcupool.so, which is opened when PyTorch
// initializes CUDA; settings are cupool's, or null. 0: done, or it was there already. Else the text says why not:
// 1, CUDA was used already; 2, another allocator was asked for; 3, something failed.
__attribute__((visibility("default"))) int cupool_torch_install(const char* library, const char* settings, char* text,
                                                                size_t size) {
  try {
    auto& ours = Allocator::get();
    auto* present = native::allocator.load();
    if (present != &ours) {
      if (present != nullptr && present->initialized()) {
        return answer(text, size, 1, "CUDA was used in this process already, with the allocator " + present->name());
      }
      if (present != nullptr && present->name() != "native") {
        return answer(text, size, 2, "the allocator " + present->name() + " was chosen before");
      }
    } else if (ours.initialized()) {
      return answer(text, size, 0, "");
    }
    ours.configure(library != nullptr ? library : "libcupool.so", settings != nullptr ? settings : "");
    // torch.cuda goes by the first, torch.accelerator and c10::GetAllocator by the second.
    native::allocator.store(&ours);
    c10::SetAllocator(c10::DeviceType::CUDA, &ours, 1);
    return answer(text, size, 0, "");
  } catch (const std::exception& e) {
    return answer(text, size, 3, e.what());
  }
}

// Opens the pool of a device with PyTorch's settings, before others open it without. 0: it is open. Else the text says
// why not.
__attribute__((visibility("default"))) int cupool_torch_open(int device, char* text, size_t size) {
  try {
    Allocator::get().open(static_cast<c10::DeviceIndex>(device));
    return answer(text, size, 0, "");
  } catch (const std::exception& e) {
    return answer(text, size, 1, e.what());
  }
}

// Whether cupool is PyTorch's allocator now.
__attribute__((visibility("default"))) int cupool_torch_installed() {
  return native::allocator.load() == &Allocator::get() ? 1 : 0;
}

} // extern "C"
