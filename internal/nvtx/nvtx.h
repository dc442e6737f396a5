#include <stddef.h>
#include <stdint.h>

// cp_nvtx_load loads a tool's library and returns 1, or 0 when that fails or the
// tool does not want ranges.
int cp_nvtx_load(const char *path);

// cp_nvtx_start begins a range and returns its number. What is beyond 255 bytes of
// the name is left out.
uint64_t cp_nvtx_start(const char *name, size_t len, int64_t payload);

void cp_nvtx_end(uint64_t range);
