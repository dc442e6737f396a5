// library.cpp: opens libcupool.so and looks its functions up.
#include "library.h"

#include <c10/util/Exception.h>

#include <dlfcn.h>

namespace cupool_torch {

Library lib;

void Library::load(const std::string& file) {
  if (loaded()) {
    return;
  }
  // One copy and one pool for a process: CuPy, Numba or a program in C may have opened the library before.
  void* handle = dlopen("libcupool.so", RTLD_NOW | RTLD_NOLOAD);
  if (handle == nullptr) {
    handle = dlopen(file.c_str(), RTLD_NOW | RTLD_GLOBAL);
  }
  TORCH_CHECK(handle != nullptr, "cupool: ", file, " cannot be loaded: ", dlerror());
  const auto find = [&](const char* name) {
    void* symbol = dlsym(handle, name);
    TORCH_CHECK(symbol != nullptr, "cupool: ", file, " is older than the class for PyTorch: it has no ", name);
    return symbol;
  };
  Library found;
#define CUPOOL_TORCH_FIND(name) found.name##_ = reinterpret_cast<decltype(found.name##_)>(find("cupool_" #name));
  CUPOOL_TORCH_FUNCTIONS(CUPOOL_TORCH_FIND)
#undef CUPOOL_TORCH_FIND
  TORCH_CHECK(
      found.version_() / 1000 == CUPOOL_VERSION_MAJOR,
      "cupool: ", file, " has version ", found.version_(), ", and the class for PyTorch needs ", CUPOOL_VERSION);
  lib = found;
}

} // namespace cupool_torch
