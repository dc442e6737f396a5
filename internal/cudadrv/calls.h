//go:build gpu

// The calls that the Go side makes. Each takes the context first and returns
// a CUresult, or CP_MISSING where the driver lacks the entry point.

#ifndef CUPOOL_CALLS_H
#define CUPOOL_CALLS_H

#include "entries.h"

// hot.c
int cp_event_record(uintptr_t ctx, uintptr_t event, uintptr_t stream);
int cp_event_query(uintptr_t ctx, uintptr_t event);
cp_value cp_event_query_all(uintptr_t ctx, const uintptr_t *events, size_t n);
int cp_event_sync(uintptr_t ctx, uintptr_t event);
int cp_stream_wait_event(uintptr_t ctx, uintptr_t stream, uintptr_t event);
int cp_stream_sync(uintptr_t ctx, uintptr_t stream);
int cp_copy(uintptr_t ctx, uintptr_t dst, uintptr_t src, size_t n, uintptr_t stream);
int cp_copy_in(uintptr_t ctx, uintptr_t dst, const void *src, size_t n, uintptr_t stream, int wait);
int cp_copy_out(uintptr_t ctx, void *dst, uintptr_t src, size_t n, uintptr_t stream);
int cp_memset(uintptr_t ctx, uintptr_t dst, unsigned char value, size_t n, uintptr_t stream);

// vmm.c
cp_value cp_vmm_granularity(uintptr_t ctx, int device);
cp_value cp_vmm_reserve(uintptr_t ctx, size_t size);
int cp_vmm_free(uintptr_t ctx, uintptr_t p, size_t size);
cp_value cp_vmm_create(uintptr_t ctx, size_t size, int device, int handle_types);
int cp_vmm_release(uintptr_t ctx, uint64_t handle);
int cp_vmm_map(uintptr_t ctx, uintptr_t p, size_t size, uint64_t handle);
int cp_vmm_unmap(uintptr_t ctx, uintptr_t p, size_t size);
int cp_vmm_set_access(uintptr_t ctx, uintptr_t p, size_t size, const int *devices, size_t n, int may);
cp_value cp_vmm_get_access(uintptr_t ctx, uintptr_t p, int device);
cp_value cp_vmm_retain(uintptr_t ctx, uintptr_t p);
cp_value cp_vmm_export_fd(uintptr_t ctx, uint64_t handle);
cp_value cp_vmm_import_fd(uintptr_t ctx, int fd);

// pool.c
cp_value cp_pool_alloc(uintptr_t ctx, uintptr_t pool, size_t size, uintptr_t stream);
int cp_pool_free(uintptr_t ctx, uintptr_t p, uintptr_t stream);
cp_value cp_pool_default(uintptr_t ctx, int device);
cp_value cp_pool_current(uintptr_t ctx, int device);
int cp_pool_make_current(uintptr_t ctx, int device, uintptr_t pool);
cp_value cp_pool_create(uintptr_t ctx, int allocation, int location, int id, int handle_types, size_t max_size);
int cp_pool_destroy(uintptr_t ctx, uintptr_t pool);
int cp_pool_trim(uintptr_t ctx, uintptr_t pool, size_t keep);
int cp_pool_set_attr(uintptr_t ctx, uintptr_t pool, int attr, uint64_t value);
cp_value cp_pool_get_attr(uintptr_t ctx, uintptr_t pool, int attr);
int cp_pool_set_access(uintptr_t ctx, uintptr_t pool, int device, int flags);
cp_value cp_pool_get_access(uintptr_t ctx, uintptr_t pool, int device);
cp_value cp_pool_export_fd(uintptr_t ctx, uintptr_t pool);
cp_value cp_pool_import_fd(uintptr_t ctx, int fd);
int cp_pool_export_pointer(uintptr_t ctx, uintptr_t p, cp_pool_pointer *out);
cp_value cp_pool_import_pointer(uintptr_t ctx, uintptr_t pool, const cp_pool_pointer *data);

// host.c
cp_value cp_host_alloc(uintptr_t ctx, size_t size, unsigned flags);
int cp_host_free(uintptr_t ctx, uintptr_t p);
cp_value cp_host_register(uintptr_t ctx, void *p, size_t size, unsigned flags);
int cp_host_unregister(uintptr_t ctx, void *p);
int cp_prefetch(uintptr_t ctx, uintptr_t p, size_t n, int location_type, int location_id, uintptr_t stream);
int cp_advise(uintptr_t ctx, uintptr_t p, size_t n, int advice, int location_type, int location_id);
cp_value cp_range_attr(uintptr_t ctx, uintptr_t p, size_t n, int attr);
int cp_ipc_get_mem(uintptr_t ctx, uintptr_t p, cp_ipc_handle *out);
cp_value cp_ipc_open_mem(uintptr_t ctx, const cp_ipc_handle *h);
int cp_ipc_close_mem(uintptr_t ctx, uintptr_t p);
int cp_ipc_get_event(uintptr_t ctx, uintptr_t event, cp_ipc_handle *out);
cp_value cp_ipc_open_event(uintptr_t ctx, const cp_ipc_handle *h);

// peer.c
cp_value cp_can_access_peer(uintptr_t ctx, int device, int peer);
int cp_enable_peer(uintptr_t ctx, uintptr_t peer);
int cp_disable_peer(uintptr_t ctx, uintptr_t peer);
int cp_copy_peer(uintptr_t ctx, uintptr_t dst, uintptr_t to, uintptr_t src, uintptr_t from, size_t n, uintptr_t stream);

// stream.c
typedef struct {
	int err;
	int status; // CUstreamCaptureStatus
	uint64_t id;
} cp_capture;
typedef struct {
	int err;
	int type;    // CUmemorytype; 0: not CUDA's memory
	int managed;
	int device;  // ordinal
	uint64_t start, size;
} cp_pointer;
cp_value cp_stream_ctx(uintptr_t ctx, uintptr_t stream);
cp_value cp_stream_id(uintptr_t ctx, uintptr_t stream);
cp_value cp_stream_capturing(uintptr_t ctx, uintptr_t stream);
cp_capture cp_stream_capture(uintptr_t ctx, uintptr_t stream);
int cp_stream_begin_capture(uintptr_t ctx, uintptr_t stream);
int cp_stream_end_capture(uintptr_t ctx, uintptr_t stream);
cp_value cp_stream_instantiate(uintptr_t ctx, uintptr_t stream);
int cp_graph_launch(uintptr_t ctx, uintptr_t exec, uintptr_t stream);
int cp_graph_destroy(uintptr_t ctx, uintptr_t exec);
cp_pointer cp_pointer_info(uintptr_t ctx, uintptr_t p);
int cp_start(void);
const char *cp_error_name(int err);
const char *cp_error_text(int err);

// module.c
cp_value cp_module_load(uintptr_t ctx, const char *image);
int cp_module_unload(uintptr_t ctx, uintptr_t module);
cp_value cp_module_function(uintptr_t ctx, uintptr_t module, const char *name);
int cp_launch(uintptr_t ctx, uintptr_t function, unsigned grid, unsigned block, uintptr_t stream, uint64_t *args, size_t n);
int cp_launch_struct(uintptr_t ctx, uintptr_t function, unsigned grid_x, unsigned grid_y, unsigned block, uintptr_t stream, void *args);

#endif
