/* What the tests in C share. */
#ifndef TEST_H
#define TEST_H
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cupool.h"

#define CHECK(condition)                                                                                  \
  do {                                                                                                    \
    if (!(condition)) {                                                                                   \
      fprintf(stderr, "%s:%d: %s; last error: %s\n", __FILE__, __LINE__, #condition, cupool_last_error()); \
      abort();                                                                                            \
    }                                                                                                     \
  } while (0)
#define OK(call) CHECK((call) == CUPOOL_OK)
#define FAILS(code, call)                                                       \
  do {                                                                          \
    CHECK((call) == (code));                                                    \
    CHECK(cupool_last_status() == (code) && strlen(cupool_last_error()) > 10); \
  } while (0)

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)

static inline uint64_t next_random(uint64_t *state) { /* splitmix64 */
  uint64_t z = *state += 0x9E3779B97F4A7C15u;
  z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
  z = (z ^ z >> 27) * 0x94D049BB133111EBu;
  return z ^ z >> 31;
}

/* A function of the stand-in driver. */
static inline void *driver(const char *name) {
  static void *library;
  if (library == NULL) library = dlopen(getenv("CUPOOL_LIBCUDA"), RTLD_NOW);
  void *f = library == NULL ? NULL : dlsym(library, name);
  if (f == NULL) {
    fprintf(stderr, "the driver has no %s\n", name);
    abort();
  }
  return f;
}

/* Calls a function of the driver's that returns a CUresult. */
#define CU(name, types, ...) (((int(*) types)driver(#name))(__VA_ARGS__))

/* Makes the primary context of device 0 current, as the CUDA runtime does. */
static inline void use_device(void) {
  void *context;
  CHECK(CU(cuInit, (unsigned), 0) == 0);
  CHECK(CU(cuDevicePrimaryCtxRetain, (void **, int), &context, 0) == 0);
  CHECK(CU(cuCtxSetCurrent, (void *), context) == 0);
}

static inline void *new_stream(void) {
  void *stream;
  CHECK(CU(cuStreamCreate, (void **, unsigned), &stream, 1) == 0);
  return stream;
}

/* The pool of a snapshot, added up as PyTorch's own tests do. */
typedef struct sums {
  cupool_stats stats;
  const cupool_segment *segment;
  cupool_segment now;
  size_t left, blocks;
  uintptr_t end;
} sums;

static inline void add(cupool_stats3 *q, int is_large, int64_t n) {
  q->all.current += n;
  (is_large ? &q->large : &q->small)->current += n;
}

static int add_segment(void *user, const cupool_segment *s) {
  sums *t = user;
  CHECK(t->left == 0 && t->end == (uintptr_t)t->now.address + t->now.size);
  t->now = *s, t->left = t->blocks = s->blocks, t->end = (uintptr_t)s->address;
  add(&t->stats.segment, s->is_large, 1);
  add(&t->stats.reserved_bytes, s->is_large, (int64_t)s->size);
  add(&t->stats.allocated_bytes, s->is_large, (int64_t)s->allocated);
  add(&t->stats.active_bytes, s->is_large, (int64_t)s->active);
  add(&t->stats.requested_bytes, s->is_large, (int64_t)s->requested);
  return 0;
}

static int add_block(void *user, const cupool_block_entry *b) {
  sums *t = user;
  CHECK(t->left-- > 0 && (uintptr_t)b->address == t->end && b->size > 0);
  t->end += b->size;
  if (b->state == CUPOOL_BLOCK_LIVE) add(&t->stats.allocation, t->now.is_large, 1);
  if (b->state != CUPOOL_BLOCK_FREE) add(&t->stats.active, t->now.is_large, 1);
  if (b->state == CUPOOL_BLOCK_FREE && t->blocks > 1) {
    add(&t->stats.inactive_split, t->now.is_large, 1);
    add(&t->stats.inactive_split_bytes, t->now.is_large, (int64_t)b->size);
  }
  return 0;
}

static int sums_were_reset;

/* Checks that the statistics of a pool and its snapshot agree, to the byte. */
static void agree(int device, cupool_pool_id pool) {
  sums t;
  memset(&t, 0, sizeof t);
  cupool_visitor v;
  cupool_init(&v, sizeof v);
  v.segment = add_segment, v.block = add_block, v.user = &t;
  OK(cupool_snapshot(device, pool, &v));
  CHECK(t.left == 0);
  cupool_stats s;
  cupool_init(&s, sizeof s);
  OK(cupool_get_stats(device, pool, &s));
#define AGREE(q)                                                                                                  \
  do {                                                                                                            \
    const cupool_stat *a = &s.q.all, *b = &t.stats.q.all;                                                         \
    for (int i = 0; i < 3; i++) {                                                                                 \
      if (a[i].current != b[i].current || (!sums_were_reset && a[i].current != a[i].allocated - a[i].freed) || a[i].peak < a[i].current) { \
        fprintf(stderr, "%s[%d]: statistics %lld (peak %lld, %lld - %lld), snapshot %lld\n", #q, i,               \
                (long long)a[i].current, (long long)a[i].peak, (long long)a[i].allocated, (long long)a[i].freed,  \
                (long long)b[i].current);                                                                         \
        abort();                                                                                                  \
      }                                                                                                           \
    }                                                                                                             \
  } while (0)
  AGREE(segment);
  AGREE(allocation);
  AGREE(active);
  AGREE(inactive_split);
  AGREE(allocated_bytes);
  AGREE(reserved_bytes);
  AGREE(active_bytes);
  AGREE(inactive_split_bytes);
  AGREE(requested_bytes);
}

static inline cupool_stats stats_of(cupool_pool_id pool) {
  cupool_stats s;
  cupool_init(&s, sizeof s);
  OK(cupool_get_stats(0, pool, &s));
  return s;
}

#endif
