/*
 * cupool.h: a caching GPU memory allocator as a C library, libcupool.so.
 *
 * Link with -lcupool, or open the library with dlopen. C99 and C++ alike.
 *
 *     void *p;
 *     if (cupool_alloc(0, 1 << 20, stream, &p) != CUPOOL_OK)
 *         fprintf(stderr, "%s\n", cupool_last_error());
 *     kernel<<<..., stream>>>(p);
 *     cupool_free(p);
 *
 * POOLS. A device has one pool in a process, whoever asks: there is one copy of
 * the library. The first call that names a device opens its pool, with the settings
 * of the environment; cupool_open gives others. A program in Go that is linked with
 * package cupool has a runtime, and pools, of its own. Private pools of a device have
 * a cupool_pool_id that the caller chooses; CUPOOL_MAIN names the device's own pool.
 *
 * STREAMS. A stream is a CUstream or cudaStream_t of the device's primary context; a
 * null pointer is the default stream; cudaStreamPerThread is refused. Memory that was
 * allocated on a stream and freed serves the same stream at once, in the order of its
 * work. Streams that use it beside that are recorded (cupool_record_stream).
 *
 * THREADS. All functions are safe from any threads at once, unless they say otherwise.
 * They never raise signals or throw, and end the process only where its own memory is
 * out, or as ENVIRONMENT says. They leave a thread's current context as it is. A thread
 * must not be cancelled in one, and functions of the program that they call must not throw.
 *
 * ENVIRONMENT. The call that opens a pool reads the process's environment, unless
 * cupool_config.no_environment is 1; so does NVIDIA's driver when it starts. The C library has
 * no lock that a reader could take: another thread that changes the environment meanwhile
 * (setenv, putenv, unsetenv, clearenv) may crash the process. A program changes it before it
 * has threads that open pools, or after it has opened them.
 *
 * UNITS. Sizes are in bytes, times in nanoseconds since 1970 (UTC).
 *
 * ERRORS. A function returns CUPOOL_OK or a cupool_status. One that fails has changed
 * nothing, unless it says otherwise, and has left a text for the calling thread
 * (cupool_last_error). Each may fail with CUPOOL_ERROR_FORKED, CUPOOL_ERROR_INTERNAL
 * and CUPOOL_ERROR_INVALID. One that takes a device opens its pool, and may also fail as
 * cupool_open does and with CUPOOL_ERROR_DEVICE_LOST. The comments name what else.
 *
 * FORK. A child of fork has no pool. There each function fails with
 * CUPOOL_ERROR_FORKED at once; cupool_free does, too. Children that use no pool, or that call
 * exec, are not affected. What needs a pool in both is loaded after the fork.
 *
 * EXIT. The library stays loaded until the process ends; dlclose does nothing. Pools are
 * not closed at exit. Calls in static destructors and handlers of atexit are legal:
 * once the driver has shut down, cupool_free does nothing and returns CUPOOL_OK.
 *
 * STRUCTS. A struct with a member struct_size is filled in by the caller with
 * cupool_init or sizeof; later versions add members at the end and treat those
 * that are missing as 0. Arguments may point to memory that goes when the call returns.
 */
#ifndef CUPOOL_H
#define CUPOOL_H

#include <stddef.h>
#include <stdint.h>

/* The version of this header: 1000 * major + minor. Functions and members that a minor version adds change nothing
 * for programs that were compiled before. */
#define CUPOOL_VERSION_MAJOR 0
#define CUPOOL_VERSION_MINOR 1
#define CUPOOL_VERSION (1000 * CUPOOL_VERSION_MAJOR + CUPOOL_VERSION_MINOR)

#if defined(__GNUC__)
#define CUPOOL_API __attribute__((visibility("default")))
#else
#define CUPOOL_API
#endif

#ifdef __cplusplus
#define CUPOOL_NOEXCEPT noexcept
extern "C" {
#else
#define CUPOOL_NOEXCEPT
#endif

/* ------------------------------------------------------------------ errors */

typedef int cupool_status;

enum {
  CUPOOL_OK = 0,
  CUPOOL_ERROR_OUT_OF_MEMORY = 1,  /* neither the pool nor the device has it; see cupool_last_oom */
  CUPOOL_ERROR_INVALID = 2,        /* an argument that cannot be: a null pointer, a size, a device, a struct_size */
  CUPOOL_ERROR_CONFIG = 3,         /* a setting that cannot be */
  CUPOOL_ERROR_FOREIGN_POINTER = 4, /* the address is of no pool */
  CUPOOL_ERROR_INTERIOR_POINTER = 5, /* the address is inside of a block, not at its start */
  CUPOOL_ERROR_DOUBLE_FREE = 6,    /* no block is live there: it was freed before */
  CUPOOL_ERROR_FOREIGN_STREAM = 7, /* the stream is of another device */
  CUPOOL_ERROR_NOT_FOUND = 8,      /* no such private pool, or it was released; or nothing of what was asked for */
  CUPOOL_ERROR_EXISTS = 9,         /* it is there already */
  CUPOOL_ERROR_BUSY = 10,          /* somebody uses it now, or has used it */
  CUPOOL_ERROR_OCCUPIED = 11,      /* cupool_alloc_at: not all of the range is free memory of the pool */
  CUPOOL_ERROR_ASLEEP = 12,        /* the pool sleeps (cupool_sleep) */
  CUPOOL_ERROR_CLOSED = 13,        /* the device's pool was closed */
  CUPOOL_ERROR_TIMEOUT = 14,       /* work of the device was late (setting wait_timeout) */
  CUPOOL_ERROR_NOT_SUPPORTED = 15, /* the device, driver or pool cannot do it */
  CUPOOL_ERROR_NO_DEVICE = 16,     /* no driver, or no such device */
  CUPOOL_ERROR_DEVICE_LOST = 17,   /* the device failed for good: nothing will work again */
  CUPOOL_ERROR_DRIVER = 18,        /* another failure of the driver; the text has its name */
  CUPOOL_ERROR_IO = 19,            /* a file, a descriptor or an address of the network */
  CUPOOL_ERROR_FORKED = 20,        /* this process is a child of the one that loaded the library */
  CUPOOL_ERROR_INTERNAL = 21       /* a defect of the library; the text has the place */
};

/* The text of the calling thread's last failure, "" where there was none. It says what happened to which address,
 * size and stream, and what to do. The thread's next failure overwrites it. Never null. */
CUPOOL_API const char *cupool_last_error(void) CUPOOL_NOEXCEPT;

/* The code of the calling thread's last failure, CUPOOL_OK where there was none. */
CUPOOL_API cupool_status cupool_last_status(void) CUPOOL_NOEXCEPT;

/* The name of a code, such as "out of memory". Never null. */
CUPOOL_API const char *cupool_status_name(cupool_status status) CUPOOL_NOEXCEPT;

/* CUPOOL_VERSION of the library. */
CUPOOL_API int cupool_version(void) CUPOOL_NOEXCEPT;

/* Sets a struct that begins with struct_size to zero, and that to its size: cupool_init(&config, sizeof config). */
CUPOOL_API void cupool_init(void *of, size_t struct_size) CUPOOL_NOEXCEPT;

/* ------------------------------------------------------------------ devices */

/* A private pool of a device: two words of the caller's choice, of which not both are 0. PyTorch's MempoolId_t has
 * the same layout. */
typedef struct cupool_pool_id {
  uint64_t first, second;
} cupool_pool_id;

/* CUPOOL_MAIN is the device's own pool, and CUPOOL_ALL, for functions that say so, all pools of the device. */
#ifdef __cplusplus
#define CUPOOL_POOL_ID(first, second) (cupool_pool_id{(first), (second)})
#else
#define CUPOOL_POOL_ID(first, second) ((cupool_pool_id){(first), (second)})
#endif
#define CUPOOL_MAIN CUPOOL_POOL_ID(0, 0)
#define CUPOOL_ALL CUPOOL_POOL_ID(UINT64_MAX, UINT64_MAX)

/* How a device's pool is set up. What is 0 is as the environment says (CUPOOL_ALLOC_CONF), or else as settings of
 * the library. */
typedef struct cupool_config {
  size_t struct_size;
  /* Settings as "KEY:VALUE,KEY:VALUE" or null. Keys are PyTorch's (expandable_segments, max_split_size_mb,
   * max_non_split_rounding_mb, roundup_power2_divisions, garbage_collection_threshold,
   * per_process_memory_fraction) and cupool's own (limit, backing, idle_order, wait_timeout, decay, ... :
   * docs/c.md). Those of PyTorch that mean nothing here (pinned_*, release_lock_on_cudamalloc,
   * graph_capture_record_stream_reuse, backend:native) are taken and mean nothing. */
  const char *settings;
  size_t limit;      /* the most that may be reserved; 0: as settings say */
  double fraction;   /* the same as a part of the device's memory, in (0, 1]; 0: as settings say */
  int not_shareable; /* 1: other processes cannot map the memory. 0: they can where the device allows it */
  int no_environment; /* 1: the environment says nothing, and is not read */
} cupool_config;

/* Opens the pool of a device. Programs need not call it. Where the pool is open it fails with CUPOOL_ERROR_EXISTS,
 * and the pool stays as it is. config may be null. Fails with CUPOOL_ERROR_CONFIG, CUPOOL_ERROR_NO_DEVICE,
 * CUPOOL_ERROR_DRIVER. */
CUPOOL_API cupool_status cupool_open(int device, const cupool_config *config) CUPOOL_NOEXCEPT;

/* 1 where the device's pool is open in this process, else 0. */
CUPOOL_API int cupool_is_open(int device) CUPOOL_NOEXCEPT;

/* The number of devices of the driver. Opens no pool. Fails with CUPOOL_ERROR_NO_DEVICE. */
CUPOOL_API cupool_status cupool_device_count(int *count) CUPOOL_NOEXCEPT;

/* Writes the settings in effect to text, one "KEY:VALUE" a line with where it is from, as "limit:8G
 * (CUPOOL_ALLOC_CONF)". It writes at most size bytes with the 0 behind and returns, like snprintf, in *length
 * what it takes without that. text may be null where size is 0. */
CUPOOL_API cupool_status cupool_settings(int device, char *text, size_t size, size_t *length) CUPOOL_NOEXCEPT;

/* Changes settings of a device's pools while they are open; what is not named stays. settings is as that of
 * cupool_config. These can change: limit, fraction, per_process_memory_fraction, divisions,
 * roundup_power2_divisions, max_split, max_split_size_mb, max_non_split_rounding, max_non_split_rounding_mb,
 * garbage_collection_threshold; the others can be named as they are. max_split and max_non_split_rounding mean
 * nothing to virtual memory. Opens the pool where it is not open. Fails with CUPOOL_ERROR_CONFIG. */
CUPOOL_API cupool_status cupool_configure(int device, const char *settings) CUPOOL_NOEXCEPT;

/* Bounds what all pools of the device reserve, to the byte, beside the limit of the settings, which only settings
 * change; 0 ends the bound that this function and cupool_set_fraction set. Where more is reserved already, nothing
 * more is reserved until it is less; cupool_trim gives back what is free. Each of the two functions replaces what the
 * other one set. */
CUPOOL_API cupool_status cupool_set_limit(int device, size_t bytes) CUPOOL_NOEXCEPT;

/* The same as a part of the device's total memory, in [0, 1]; 1 ends the bound. */
CUPOOL_API cupool_status cupool_set_fraction(int device, double fraction) CUPOOL_NOEXCEPT;
CUPOOL_API cupool_status cupool_fraction(int device, double *fraction) CUPOOL_NOEXCEPT;

/* What the device has, as the driver says, and the largest block that is free in the device's own pool. Each
 * pointer may be null. */
CUPOOL_API cupool_status cupool_memory_info(int device, size_t *device_free, size_t *device_total,
                                            size_t *largest_free) CUPOOL_NOEXCEPT;

/* Lets work of the device touch the memory of peer, what its pools have now and get later. Twice is no error. Fails
 * with CUPOOL_ERROR_NOT_SUPPORTED where the two have no way. */
CUPOOL_API cupool_status cupool_enable_peer(int device, int peer) CUPOOL_NOEXCEPT;

/* ------------------------------------------------------------------ memory */

/* Allocates size bytes, aligned to 512, for work on a stream, from the pool that the calling thread allocates from
 * (cupool_begin), or else from the device's own. The contents are undefined. For 0 bytes *p is null, and nothing
 * is allocated. The fast case takes no lock, and does not call the driver. Fails with
 * CUPOOL_ERROR_OUT_OF_MEMORY, CUPOOL_ERROR_FOREIGN_STREAM, CUPOOL_ERROR_ASLEEP, CUPOOL_ERROR_TIMEOUT,
 * CUPOOL_ERROR_DEVICE_LOST, and as cupool_open does; *p is null then. */
CUPOOL_API cupool_status cupool_alloc(int device, size_t size, void *stream, void **p) CUPOOL_NOEXCEPT;

/* cupool_alloc from a pool that the caller names, whoever has begun one. Fails with CUPOOL_ERROR_NOT_FOUND, too. */
CUPOOL_API cupool_status cupool_alloc_in(int device, cupool_pool_id pool, size_t size, void *stream,
                                         void **p) CUPOOL_NOEXCEPT;

/* Allocates exactly the bytes [p, p + size) of a pool, for checkpoints of a pool's layout: a block of size bytes, a
 * multiple of 512 (of the setting min_block), that counts as requested with so many bytes (1 to size). All of the range
 * must be free memory of the pool that belongs to the stream; its contents stay. Take a pool with
 * CUPOOL_POOL_ISOLATED, whose addresses stay good: in others free memory may have moved or gone meanwhile. Fails
 * with CUPOOL_ERROR_OCCUPIED, CUPOOL_ERROR_NOT_FOUND, CUPOOL_ERROR_FOREIGN_POINTER, CUPOOL_ERROR_ASLEEP and, also for
 * memory of another stream, CUPOOL_ERROR_FOREIGN_STREAM. */
CUPOOL_API cupool_status cupool_alloc_at(int device, cupool_pool_id pool, void *p, size_t size,
                                         size_t requested, void *stream) CUPOOL_NOEXCEPT;

/* Frees what any of the functions above returned, of any device. Work that the block's stream and the recorded ones
 * have been given by now may still use it. Null is nothing. Fails with CUPOOL_ERROR_DOUBLE_FREE,
 * CUPOOL_ERROR_FOREIGN_POINTER and CUPOOL_ERROR_INTERIOR_POINTER. */
CUPOOL_API cupool_status cupool_free(void *p) CUPOOL_NOEXCEPT;

/* Says that work on the stream uses the block that holds the address: when it is freed, its memory waits until what
 * the stream has been given by then is done. The block's own stream, null addresses, and a stream twice are
 * nothing. Fails with CUPOOL_ERROR_FOREIGN_POINTER, CUPOOL_ERROR_DOUBLE_FREE, CUPOOL_ERROR_FOREIGN_STREAM. */
CUPOOL_API cupool_status cupool_record_stream(void *p, void *stream) CUPOOL_NOEXCEPT;

/* cupool_record_stream for a stream of a device, which may be another one than the block's: work there uses the block
 * over the connection of both. Where the stream is captured when the block is freed, the block counts as allocated until
 * the capture is over and something else is allocated, freed or collected. */
CUPOOL_API cupool_status cupool_record_stream_on(void *p, int device, void *stream) CUPOOL_NOEXCEPT;

/* Says that a stream is about to be destroyed: waits for its work, and its free memory goes to the others. A handle
 * that comes again is another stream. Call it before cudaStreamDestroy, for every stream that the pool was given: the
 * pool goes on to use the handles of others, which the driver does not survive. Fails with CUPOOL_ERROR_TIMEOUT. */
CUPOOL_API cupool_status cupool_forget_stream(int device, void *stream) CUPOOL_NOEXCEPT;

/* Waits for all work of the streams that the pools of the device know, and takes back what waited for it. Fails
 * with CUPOOL_ERROR_TIMEOUT. */
CUPOOL_API cupool_status cupool_wait(int device) CUPOOL_NOEXCEPT;

/* Takes back freed blocks whose streams are done, without waiting. *blocks, which may be null, is their number. The
 * pool does so by itself when it lacks memory. */
CUPOOL_API cupool_status cupool_collect(int device, size_t *blocks) CUPOOL_NOEXCEPT;

/* Sees to it that a request of size bytes on a stream is served without the device. The memory goes back by
 * cupool_trim, or before an out of memory, only. Fails as cupool_alloc does. */
CUPOOL_API cupool_status cupool_reserve(int device, size_t size, void *stream) CUPOOL_NOEXCEPT;

/* What there is at an address. */
typedef struct cupool_block_info {
  size_t struct_size;
  int device;
  int live;            /* 1: a program holds the block; 0: it is free or pending */
  cupool_pool_id pool;
  void *address;       /* of the block */
  size_t size;         /* of the block, as rounded */
  size_t requested;
  void *stream;        /* whose order its memory is reused in */
  void *base;          /* of the allocation of the driver, or of the mapped range, that holds it */
  size_t base_size;
  int is_virtual;      /* 1: the range is virtual memory of pieces; 0: one allocation of the driver */
} cupool_block_info;

/* Finds the block that holds an address, and its base allocation. Fails with CUPOOL_ERROR_FOREIGN_POINTER. */
CUPOOL_API cupool_status cupool_block(const void *p, cupool_block_info *info) CUPOOL_NOEXCEPT;

/* The functions that PyTorch's CUDAPluggableAllocator and its set_record_stream_fn take. They print failures to
 * stderr. cupool_torch_alloc returns null for them. */
CUPOOL_API void *cupool_torch_alloc(ptrdiff_t size, int device, void *stream) CUPOOL_NOEXCEPT;
CUPOOL_API void cupool_torch_free(void *p, ptrdiff_t size, int device, void *stream) CUPOOL_NOEXCEPT;
CUPOOL_API void cupool_torch_record_stream(void *p, void *stream) CUPOOL_NOEXCEPT;

/* ------------------------------------------------------------------ private pools */

enum {
  CUPOOL_POOL_NO_SPLIT = 1,   /* each block has a segment of its own, which stays whole */
  CUPOOL_POOL_USE_ON_OOM = 2, /* free blocks serve others before an out of memory */
  CUPOOL_POOL_ISOLATED = 4,   /* what it caches stays where it is mapped, and is given back when it is
                                 asked for by the pool's id only (cupool_trim). Pools of captured work,
                                 and of cupool_alloc_at. Not with CUPOOL_POOL_USE_ON_OOM */
  CUPOOL_POOL_SEGMENTS = 8    /* segments of the driver in place of virtual memory: no range is of
                                 several pieces. An isolated one gives free segments back before it
                                 is out of memory */
};

/* How a private pool is set up. */
typedef struct cupool_pool_config {
  size_t struct_size;
  const char *name; /* for people, or null. Pools that are found by a name are those of cupool_pool_named */
  unsigned flags;   /* CUPOOL_POOL_... */
  size_t limit;     /* the most that the pool may reserve; 0: no limit of its own */
  /* Where the pool's segments come from, both or neither. alloc returns a multiple of 512, or null for out of memory.
   * device and stream are those of the request that needs the segment. They are called with locks held, by any
   * thread. Of cupool they may call cupool_free, which then frees soon after they return; else it fails with
   * CUPOOL_ERROR_BUSY. Implies CUPOOL_POOL_SEGMENTS. */
  void *(*alloc)(void *user, size_t size, int device, void *stream);
  void (*free)(void *user, void *p, size_t size, int device, void *stream);
  void *user;
} cupool_pool_config;

/* Makes a private pool with a use count of 1, or adds 1 to the count of one that is there, whatever config says.
 * config may be null. A pool shares no segment with others. Fails with CUPOOL_ERROR_CONFIG. */
CUPOOL_API cupool_status cupool_pool_create(int device, cupool_pool_id pool,
                                            const cupool_pool_config *config) CUPOOL_NOEXCEPT;

/* An id for a name that is found again: the same name is the same id. Makes the pool with a use count of 1 where
 * there is none of the name, and leaves the count of one that is there as it is. config may be null; its own name
 * is not used. Such pools are what sleeps by tag. Fails with CUPOOL_ERROR_CONFIG. */
CUPOOL_API cupool_status cupool_pool_named(int device, const char *name, const cupool_pool_config *config,
                                           cupool_pool_id *pool) CUPOOL_NOEXCEPT;

/* Adds flags to those of a pool, for what is allocated from then on. CUPOOL_POOL_USE_ON_OOM takes
 * CUPOOL_POOL_ISOLATED away, and the other way round. CUPOOL_POOL_SEGMENTS and CUPOOL_POOL_NO_SPLIT can be added until
 * something was allocated from the pool in virtual memory; then it fails with CUPOOL_ERROR_BUSY. Fails with
 * CUPOOL_ERROR_NOT_FOUND, CUPOOL_ERROR_CONFIG. */
CUPOOL_API cupool_status cupool_pool_set_flags(int device, cupool_pool_id pool, unsigned flags) CUPOOL_NOEXCEPT;

/* A filter says whether an allocation of a device, on the calling thread and for a stream, is to come from a pool:
 * not 0 for yes. It is called on the allocating thread, before anything else, without locks of cupool but one
 * that cupool_begin and cupool_end wait for: it must not call these two. They wait for every filter that is being
 * called, of any pool and device, and there is no bound while calls of several threads overlap. So a filter compares
 * what it is given and what it has, and waits for nothing. */
typedef int (*cupool_filter)(void *user, void *stream);

/* From now until cupool_end, allocations that the filter says yes to come from the pool, and are refused by no
 * other filter: the newest that says yes is taken. A null filter is all allocations of the calling thread. It
 * makes the pool where there is none, and adds 1 to the use count. Several may be under way, from several
 * threads, and with null filters one pool of several threads. Fails with CUPOOL_ERROR_EXISTS where the pool has
 * begun already: for this thread, or where one of the two has a filter. */
CUPOOL_API cupool_status cupool_begin(int device, cupool_pool_id pool, cupool_filter filter, void *user) CUPOOL_NOEXCEPT;

/* Ends what cupool_begin began, from any thread. The use count stays. When it returns, the filter is called no
 * more. What the calling thread began ends first. Fails with CUPOOL_ERROR_NOT_FOUND where nothing has begun. */
CUPOOL_API cupool_status cupool_end(int device, cupool_pool_id pool) CUPOOL_NOEXCEPT;

/* Takes 1 from the use count. At 0 nothing can be allocated from the pool any more, and the id may be used anew.
 * Live blocks stay good and are freed as ever. What is free goes back to the device: now where no work is under way,
 * or else with cupool_trim or before an out of memory; so long the functions of cupool_pool_config are needed. It
 * waits for no work, so that destructors may call it. Fails with CUPOOL_ERROR_NOT_FOUND. */
CUPOOL_API cupool_status cupool_pool_release(int device, cupool_pool_id pool) CUPOOL_NOEXCEPT;

/* The use count, 0 for a pool that was released and for one that is not there. */
CUPOOL_API cupool_status cupool_pool_use_count(int device, cupool_pool_id pool, int *count) CUPOOL_NOEXCEPT;

/* ------------------------------------------------------------------ giving back */

/* Gives free segments and free virtual memory back to the device, until at most keep bytes are reserved in the
 * pool, those in use counted, and with keep 0 waits for blocks that are pending first. pool may be CUPOOL_ALL,
 * which is what PyTorch's empty_cache does. What waits for a stream that is captured stays. *released, which may be
 * null, is what went. Fails with CUPOOL_ERROR_NOT_FOUND, CUPOOL_ERROR_ASLEEP, CUPOOL_ERROR_TIMEOUT; what could go
 * went. */
CUPOOL_API cupool_status cupool_trim(int device, cupool_pool_id pool, size_t keep, size_t *released) CUPOOL_NOEXCEPT;

/* Sleep with contents: held in the computer's memory until cupool_wake. Without, they are lost. */
enum { CUPOOL_DROP = 0, CUPOOL_KEEP = 1 };

/* Gives all memory of a pool back to the device until cupool_wake; addresses stay, so that captured graphs stay
 * good. It waits for the streams' work, also that of streams of other devices that are recorded; nothing may use the
 * memory until cupool_wake returns. Blocks can be freed meanwhile, and not allocated (CUPOOL_ERROR_ASLEEP). pool may
 * be CUPOOL_ALL: each that can, is awake, and has not CUPOOL_POOL_ISOLATED.
 * Needs virtual memory: fails with CUPOOL_ERROR_NOT_SUPPORTED for pools with CUPOOL_POOL_SEGMENTS and callbacks.
 * Fails with CUPOOL_ERROR_ASLEEP, CUPOOL_ERROR_TIMEOUT. */
CUPOOL_API cupool_status cupool_sleep(int device, cupool_pool_id pool, int contents) CUPOOL_NOEXCEPT;

/* Gets new memory for what sleeps, at the same addresses, and puts back what was kept. Where memory lacks, other pools
 * without CUPOOL_POOL_ISOLATED give back what they cache. A pool that is awake is left alone. Fails with
 * CUPOOL_ERROR_OUT_OF_MEMORY and CUPOOL_ERROR_TIMEOUT; it sleeps on then and can be woken later. */
CUPOOL_API cupool_status cupool_wake(int device, cupool_pool_id pool) CUPOOL_NOEXCEPT;

/* ------------------------------------------------------------------ statistics */

/* One quantity, a count or bytes. current = allocated - freed, but for what was reset. */
typedef struct cupool_stat {
  int64_t current, peak, allocated, freed;
} cupool_stat;

/* The same for all blocks, for small ones (up to 1 MiB, or as small_limit says), and for large ones. */
typedef struct cupool_stats3 {
  cupool_stat all, small, large;
} cupool_stats3;

/* Statistics by PyTorch's names and meaning (DeviceStats). Current values agree with a snapshot to the byte while
 * nothing else runs. A peak may be too high by blocks that were in the lock-free caches, and is exact with the
 * setting magazine_bytes:none; those of pools that are there at once are added up, and so are an upper bound. Those
 * of segment and inactive_split are estimates in virtual memory, from its pieces. A snapshot's segments of a pool that
 * sleeps come to reserved_bytes and asleep_bytes together. */
typedef struct cupool_stats {
  size_t struct_size;
  cupool_stats3 allocation;     /* blocks that programs hold */
  cupool_stats3 segment;        /* cupool_segments of a snapshot */
  cupool_stats3 active;         /* blocks that programs hold or other streams still use */
  cupool_stats3 inactive_split; /* free blocks that share a segment with others */
  cupool_stats3 allocated_bytes;
  cupool_stats3 reserved_bytes;
  cupool_stats3 active_bytes;
  cupool_stats3 inactive_split_bytes;
  cupool_stats3 requested_bytes; /* of active blocks, as programs asked */
  cupool_stat oversize_allocations; /* not counted: 0 */
  cupool_stat oversize_segments;
  int64_t num_alloc_retries;    /* allocations that succeeded after memory was reclaimed */
  int64_t num_ooms;             /* that failed for lack of memory */
  int64_t num_sync_all_streams; /* calls of cupool_trim with keep 0 */
  int64_t num_device_alloc;     /* segments, or pieces of virtual memory, that came from the device */
  int64_t num_device_free;
  int64_t max_split_size;       /* -1: none */
  /* Beyond PyTorch's. */
  int64_t pending_bytes;        /* freed, and still used by other streams */
  int64_t cached_bytes;         /* free, ready for reuse */
  int64_t asleep_bytes;         /* given back until cupool_wake, in use or not */
  int64_t largest_free;         /* the largest free block */
  int64_t limit;                /* what may be reserved; 0: no limit */
  int64_t hits;                 /* allocations without a call to the driver */
  int64_t metadata_bytes;       /* of the computer's memory that the books take */
  int64_t streams;              /* in use */
} cupool_stats;

/* Statistics of a pool, or with CUPOOL_ALL of the device: all its pools, those that are gone counted. It takes some
 * 10 ns for each block. Fails with CUPOOL_ERROR_NOT_FOUND. */
CUPOOL_API cupool_status cupool_get_stats(int device, cupool_pool_id pool, cupool_stats *stats) CUPOOL_NOEXCEPT;

/* Sets all peaks of the device's pools to the current values, without blocks that streams are done with. */
CUPOOL_API cupool_status cupool_reset_peaks(int device) CUPOOL_NOEXCEPT;

/* Has allocated, freed and the num_ counters of the device's pools begin at 0 anew. */
CUPOOL_API cupool_status cupool_reset_accumulated(int device) CUPOOL_NOEXCEPT;

/* What the last refused allocation of a device said of itself. Sizes are in bytes, -1 where the device did not say. */
typedef struct cupool_oom {
  size_t struct_size;
  int64_t requested, rounded;
  int64_t live, pending, cached, largest_free, reserved; /* of the pool that was asked */
  int64_t other_pools;                                   /* that the device's other pools hold */
  int64_t device_free, device_total;
  int64_t limit; /* 0: none */
  int64_t time;
} cupool_oom;

/* Fails with CUPOOL_ERROR_NOT_FOUND where nothing was refused. cupool_last_error of the thread that was refused has
 * the text: what happened, why, who holds the memory, and what would help. */
CUPOOL_API cupool_status cupool_last_oom(int device, cupool_oom *oom) CUPOOL_NOEXCEPT;

/* ------------------------------------------------------------------ labels and history */

/* From now until cupool_label_pop what the calling thread allocates stands under a label, in statistics of labels,
 * snapshots, histories and reports of an out of memory. Labels nest; the innermost counts. Such allocations take
 * a lock. At most 32 at once: CUPOOL_ERROR_BUSY. cupool_label_pop without one is CUPOOL_ERROR_INVALID. A label stays
 * in statistics, which take longer for each, until cupool_forget_labels; what it counts in a private pool goes with
 * that. */
CUPOOL_API cupool_status cupool_label_push(const char *label) CUPOOL_NOEXCEPT;
CUPOOL_API cupool_status cupool_label_pop(void) CUPOOL_NOEXCEPT;

/* Calls each for every label of a device's pools, by name. Strings live as long as the call of each. */
typedef struct cupool_label_stats {
  const char *label;
  cupool_stat blocks, bytes; /* as requested */
} cupool_label_stats;
CUPOOL_API cupool_status cupool_labels(int device, void (*each)(void *user, const cupool_label_stats *label),
                                       void *user) CUPOOL_NOEXCEPT;

/* Has each of the device's pools drop the statistics of the labels under which no block of it stands. One that is used
 * again begins anew. */
CUPOOL_API cupool_status cupool_forget_labels(int device) CUPOOL_NOEXCEPT;

/* Begins to record what the device's pools do, anew where they do so already. events is how many are kept, 0 for
 * 65,536. A sample of the allocations is taken every sample_bytes of them, 0 for 512 KiB; with 1 each allocation
 * and free is recorded, which has each take a lock. Segments, trims and refusals are always. Fails with
 * CUPOOL_ERROR_CONFIG. */
CUPOOL_API cupool_status cupool_history_start(int device, size_t events, size_t sample_bytes) CUPOOL_NOEXCEPT;

/* Ends it. What was recorded is kept. */
CUPOOL_API cupool_status cupool_history_stop(int device) CUPOOL_NOEXCEPT;

/* 1 where a history is recorded, else 0. */
CUPOOL_API int cupool_history_enabled(int device) CUPOOL_NOEXCEPT;

/* ------------------------------------------------------------------ snapshots */

typedef enum cupool_block_state {
  CUPOOL_BLOCK_FREE = 0,   /* ready for reuse, those of the lock-free caches too */
  CUPOOL_BLOCK_LIVE = 1,   /* a program holds it */
  CUPOOL_BLOCK_PENDING = 2 /* freed, and other streams may still use it */
} cupool_block_state;

/* A segment: memory without gaps that blocks are cut from. Of virtual memory it is a stretch that has memory, or
 * one that is mapped of free pieces elsewhere; no memory is in two segments. Of a pool that sleeps it is what has
 * memory again when it wakes. */
typedef struct cupool_segment {
  cupool_pool_id pool;
  void *address;
  size_t size;
  size_t allocated, active, requested; /* in its live blocks, in live and pending ones, and of these as requested */
  void *stream;
  int is_large;
  int is_virtual;
  size_t blocks; /* how many follow */
} cupool_segment;

/* A block of the segment before. The blocks of a segment come by address and fill it. */
typedef struct cupool_block_entry {
  void *address;
  size_t size;
  size_t requested; /* 0 where it is free */
  cupool_block_state state;
  const char *label; /* "": none */
} cupool_block_entry;

/* An event of the history. action is "alloc", "free_requested", "free_completed", "segment_alloc", "segment_free",
 * "segment_map", "segment_unmap", "stitch", "trim", "snapshot" or "oom" (the address is what the device had
 * free). */
typedef struct cupool_event {
  const char *action;
  cupool_pool_id pool;
  void *address;
  size_t size;
  void *stream;
  int64_t time;
  const char *label;
  double weight; /* how many it stands for, where only samples are recorded */
} cupool_event;

/* Where a snapshot goes. Members that are null are passed over. They are called on the calling thread, without
 * locks, and may call cupool. Structs and strings live as long as the call. A result other than 0 ends the
 * snapshot. */
typedef struct cupool_visitor {
  size_t struct_size;
  int (*segment)(void *user, const cupool_segment *segment); /* by pool and address, each with its blocks behind */
  int (*block)(void *user, const cupool_block_entry *block);
  int (*event)(void *user, const cupool_event *event); /* behind all segments, the oldest first */
  void *user;
} cupool_visitor;

/* Shows what a pool, or with CUPOOL_ALL each of the device, holds. A pool of more than 2,048 blocks is seen in
 * portions, beside which others go on; it agrees with the statistics while nothing else runs. Fails with
 * CUPOOL_ERROR_NOT_FOUND. */
CUPOOL_API cupool_status cupool_snapshot(int device, cupool_pool_id pool, const cupool_visitor *visitor) CUPOOL_NOEXCEPT;

/* Writes a file of what all pools of a device, or with -1 of all devices that are open, hold: for PyTorch's viewer
 * (pytorch.org/memory_viz), for go tool pprof, or as JSON of cupool's own tools. An existing file is replaced
 * once the new one is whole. Fails with CUPOOL_ERROR_IO. */
enum { CUPOOL_FILE_TORCH = 0, CUPOOL_FILE_PPROF = 1, CUPOOL_FILE_JSON = 2 };
CUPOOL_API cupool_status cupool_write(int device, int format, const char *path) CUPOOL_NOEXCEPT;

/* Serves the live page of all open pools at an address, as "localhost:6060" or "localhost:0" for a free port, below
 * /debug/cupool/. url gets the page's address, cut to size bytes; it may be null. Whoever reaches it sees names
 * and may trim: a private address only. Once in a process: CUPOOL_ERROR_EXISTS. Fails with CUPOOL_ERROR_IO. */
CUPOOL_API cupool_status cupool_serve(const char *address, char *url, size_t size) CUPOOL_NOEXCEPT;

/* Ends the page. */
CUPOOL_API cupool_status cupool_serve_stop(void) CUPOOL_NOEXCEPT;

/* ------------------------------------------------------------------ callbacks */

typedef enum cupool_segment_action {
  CUPOOL_SEGMENT_ALLOC = 0, /* a segment came from the device, or from the pool's callback */
  CUPOOL_SEGMENT_FREE = 1,  /* it is about to go back */
  CUPOOL_SEGMENT_MAP = 2,   /* memory was mapped */
  CUPOOL_SEGMENT_UNMAP = 3  /* and is about to be unmapped */
} cupool_segment_action;

/* What a program wants to be told of a device. Null members are nothing. */
typedef struct cupool_callbacks {
  size_t struct_size;
  /* The pool lacks size bytes, and is about to ask the device for them: the program may free blocks. Called without
   * locks, on the allocating thread; may call cupool. Allocations that it or on_oom makes call neither. */
  void (*before_grow)(void *user, int device, size_t size);
  /* Everything failed. Not 0: memory was freed, look once more. Called as before_grow. */
  int (*on_oom)(void *user, int device, size_t size);
  /* A segment came, or is about to go: once for each. One that the driver refuses to take back comes again. pool is
   * CUPOOL_MAIN for virtual memory of private pools, too. It is called with locks held, by any thread: it only takes
   * a note, calls of cupool at most cupool_free, as the functions of a pool do, and waits for no lock that an
   * allocating thread holds (Python's GIL). */
  void (*segment)(void *user, int device, cupool_segment_action action, cupool_pool_id pool, void *address, size_t size,
                  void *stream);
  void *user;
} cupool_callbacks;

/* Replaces the device's callbacks; null ends them. Calls of the former ones that are under way go on. */
CUPOOL_API cupool_status cupool_set_callbacks(int device, const cupool_callbacks *callbacks) CUPOOL_NOEXCEPT;

/* ------------------------------------------------------------------ other processes */

/* A piece of memory that another process can map as a whole. */
typedef struct cupool_piece {
  size_t size;
  int fd;         /* -1: by its name, CUPOOL_BY_FABRIC: by its fabric handle */
  char name[64];  /* with -1 a CUipcMemHandle, of memory of one allocation of the driver. Else a CUmemFabricHandle, which
                   * memory has beside its descriptor where the device and the system do, or zeros */
} cupool_piece;

#define CUPOOL_BY_FABRIC (-2)

/* Describes the memory behind [p, p + size), of one block or whole segments, for another process: its pieces, of
 * which the range begins skip bytes behind the first one's start. It fills in at most *count pieces and sets
 * *count to how many there are; where they do not fit, it fails with CUPOOL_ERROR_INVALID and gives none. The
 * caller closes the descriptors. The memory has to stay as long as others map it. Fails with
 * CUPOOL_ERROR_NOT_SUPPORTED where the memory was not made shareable, and with CUPOOL_ERROR_IO where the process has
 * too many descriptors. */
CUPOOL_API cupool_status cupool_export(const void *p, size_t size, size_t *skip, cupool_piece *pieces,
                                       size_t *count) CUPOOL_NOEXCEPT;

/* Maps what another process exported, and gives the address of the range. The caller closes the descriptors. Fails
 * with CUPOOL_ERROR_IO for a descriptor that is not open. */
CUPOOL_API cupool_status cupool_import(int device, size_t skip, size_t size, const cupool_piece *pieces, size_t count,
                                       void **p) CUPOOL_NOEXCEPT;

/* Unmaps it. No work may use it any more. */
CUPOOL_API cupool_status cupool_unimport(int device, void *p) CUPOOL_NOEXCEPT;

#ifdef __cplusplus
}
#endif
#endif /* CUPOOL_H */
