// A stand-in for the CUDA driver library, over host memory. What it is for,
// how it is built and what it cannot do is in ../README.md.
//
// Files: control.c faults, counters, settings; device.c devices and contexts;
// memory.c the address space and what is in it; peer.c which device may touch
// another one's memory; attrs.c questions about it;
// handles.c which streams and events exist; stream.c streams and their worker
// threads; event.c events; copy.c copies, memsets, kernels; vmm.c virtual memory;
// pool.c stream-ordered pools; capture.c captures of streams; graph.c what is
// made of them; emulate.cc the kernels of internal/kernels; share.c handles for other processes; lookup.c entry
// points by name; stubs.c everything else that programs link.
//
// Locks, in the order in which they are taken: fake_lock (contexts, handles,
// pools), a stream's, an event's, that of captures, then fake_mem (the address space, held by a
// worker while it touches memory). Streams, events and contexts are never
// given back to malloc, so that a stale handle is an error and no crash.

#ifndef FAKE_H
#define FAKE_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cuda.h"
#include "emulate.h"

enum { MAX_DEVICES = 8, PAGE = 4096, GRANULARITY = 2 << 20 };

typedef uint64_t addr;

struct CUctx_st {
	int device;
	bool primary;
	int refs; // of the primary context: how often retained; else 1; 0: dead
	_Atomic int lost; // a CUresult once the context is gone for good
	CUstream null_stream;
	unsigned flags;
	_Atomic unsigned peers; // a bit for each device whose cuMemAlloc memory its work may touch
};

// device.c
extern int fake_devices;
CUcontext fake_current(void);
CUresult fake_enter(const char *call, bool needs_context);
void fake_lose(CUcontext ctx, CUresult why);
extern pthread_mutex_t fake_lock;

// FAKE_CALL begins an entry point: it may be told to fail, and a call in a
// context that is lost fails with what lost it.
#define FAKE_CALL(needs_context)                                        \
	do {                                                            \
		CUresult fake_r_ = fake_enter(__func__, needs_context); \
		if (fake_r_ != CUDA_SUCCESS)                            \
			return fake_r_;                                 \
	} while (0)

// control.c
CUresult fake_fault(const char *call);
unsigned fake_delay_us(void);
long fake_setting(const char *name, long otherwise);
bool fake_rdma(void); // whether the devices have memory that network cards may reach
bool fake_fatal(CUresult r);

// memory.c: what an address range is.
typedef enum { DEVICE, MANAGED, PINNED, REGISTERED, MAPPED, POOLED, IMPORTED, POOL_IMPORTED } memory_kind;

typedef struct {
	addr start;
	size_t size;
	memory_kind kind;
	CUcontext ctx;
	int device;
	char *bytes;         // where the worker finds them
	int64_t offset;      // in the device's store; -1: not in it
	unsigned access;     // MAPPED: a bit for each device that cuMemSetAccess let in
	uint64_t owner;      // MAPPED: the handle; POOLED: the pool
	int pid, fd;         // IMPORTED: whose store it is of,
	int64_t source;      // where in that,
	unsigned more;       // and how often it was opened again
} range;

extern pthread_rwlock_t fake_mem; // guards all ranges
range *fake_range(addr p);        // the range that holds p, or NULL
bool fake_covered(addr p, size_t n);
char *fake_translate(addr p, size_t *room); // NULL: nothing there that the thread's actor may touch
void fake_range_add(range r);
bool fake_range_remove(addr start, memory_kind kind, range *out);
bool fake_range_again(int pid, int fd, int64_t source, addr *out);
bool fake_range_less(addr start);
void fake_ranges_drop(CUcontext ctx);
void fake_range_close(range *r);

// peer.c
extern _Thread_local CUcontext fake_actor; // for whom this thread touches memory; NULL: it only looks
bool fake_may_touch(const range *r);
bool fake_peers_possible(int device, int peer);

int fake_store(int device); // the memfd that device memory lies in
int64_t fake_store_take(int device, size_t size);
void fake_store_give(int device, int64_t offset, size_t size);
bool fake_charge(int device, size_t size);
void fake_uncharge(int device, size_t size);
char *fake_map_store(int fd, int64_t offset, size_t size);
addr fake_addresses(size_t size, size_t align); // PROT_NONE: the host must not touch it
CUresult fake_device_memory(int device, size_t size, memory_kind kind, uint64_t owner, addr *out);

static inline size_t fake_round(size_t n, size_t to) { return (n + to - 1) / to * to; }

// handles.c
void fake_handle_add(void *h);
bool fake_handle_known(void *h);

// stream.c
typedef enum { OP_COPY, OP_SET, OP_WAIT, OP_KERNEL, OP_POOL_FREE, OP_CALL, OP_NOTHING } op_kind;

typedef struct op {
	op_kind kind;
	uint64_t seq;
	addr dst, src;
	size_t n;
	char *host_dst, *host_src; // instead of dst or src
	char *staged;              // freed after the copy
	CUcontext dst_ctx, src_ctx; // cuMemcpyPeer: whose memory dst and src are; or NULL
	uint32_t value;
	int width; // OP_SET: bytes of value
	CUstream on; // OP_WAIT: until on has done number until
	uint64_t until;
	int kernel;
	uint64_t args[8];
	const emulated *emulated; // instead of kernel; of OP_CALL, run once, without fake_mem
	uint64_t *params;         // its argument; freed after the launch
	unsigned grid_x, grid_y, block;
	struct op *next;
} op;

CUresult fake_stream(CUstream h, CUstream *out);
CUresult fake_submit(CUstream s, op o);
CUresult fake_wait(CUstream s); // for all that was submitted
void fake_sync_device(int device);
void fake_streams_end(CUcontext ctx);
CUstream fake_null_stream(CUcontext ctx);
CUcontext fake_stream_context(CUstream s);

// lookup.c
void *fake_symbol(const char *name);

// emulate.cc: missing where there was no C++ compiler
void fake_emulate(const emulated *k, const void *args, unsigned gx, unsigned gy, unsigned bx) __attribute__((weak));

// graph.c
typedef struct fake_graph fake_graph;
fake_graph *fake_graph_new(void);
void fake_graph_drop(fake_graph *g);

// capture.c
typedef struct fake_capture fake_capture;
bool fake_capture_forbids(CUstream s); // and breaks the capture of s, if there is one

// copy.c
void fake_run(CUcontext ctx, op *o);

// pool.c
void fake_pool_free_now(addr p);
void fake_pools_trim(int device);

#endif
