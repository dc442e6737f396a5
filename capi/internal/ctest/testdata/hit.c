/*
 * The lock-free way alone, for sanitizers of threads, beside a pool that homes blocks, takes them away and
 * moves them as Go's does: a block is handed out once, and freed once.
 */
#include "test.h"

#include <pthread.h>
#include <stdatomic.h>

#include "../../../hit.c"

enum { BLOCKS = 8, THREADS = 4, ROUNDS = 20000 };

static struct home homes[BLOCKS];
static atomic_int out[BLOCKS]; /* who has the block */
static atomic_long got, given;
static pthread_mutex_t pool = PTHREAD_MUTEX_INITIALIZER;

static void *address(int i) { return (void *)(uintptr_t)((i + 1) * 4096); }

static int index_of(void *p) { return (int)((uintptr_t)p / 4096 - 1); }

/* What Go does with the lock of the pool's heap: takes cached blocks out of their homes and brings others there. */
static void *manager(void *of) {
  (void)of;
  uint64_t random = 7;
  for (int i = 0; i < ROUNDS; i++) {
    int n = (int)(next_random(&random) % BLOCKS);
    pthread_mutex_lock(&pool);
    uint64_t word = atomic_load(&homes[n].word);
    if ((word & STATE) == (CACHED | HOMED) && atomic_compare_exchange_strong(&homes[n].word, &word, word & ~(uint64_t)HOMED)) {
      atomic_store(&homes[n].requested, next_random(&random) % 2 ? 100 : 200); /* it lives elsewhere, and comes again */
      atomic_store(&homes[n].word, ((word >> 8) + 2) << 8 | CACHED | HOMED);
    }
    pthread_mutex_unlock(&pool);
  }
  return NULL;
}

static void *user(void *of) {
  thread *t = calloc(1, sizeof *t);
  uint64_t random = (uint64_t)(uintptr_t)of;
  for (int i = 0; i < ROUNDS; i++) {
    size_t size = next_random(&random) % 2 ? 100 : 200;
    unsigned hints = cupool_hints();
    if (i % 100 == 0) {
      for (int n = 0; n < BLOCKS; n++) cupool_learn(t, hints, 0, size, 0, (uintptr_t)address(n), &homes[n], 5);
    }
    void *p = cupool_take(t, 0, size, NULL);
    if (p == NULL) continue;
    got++;
    int n = index_of(p);
    CHECK(n >= 0 && n < BLOCKS && atomic_fetch_add(&out[n], 1) == 0);
    CHECK((size_t)homes[n].requested == size);
    CHECK(atomic_fetch_sub(&out[n], 1) == 1);
    CHECK(cupool_put(p));
    given++;
    if (i % 1000 == 999) cupool_forget_hints();
  }
  free(t);
  return NULL;
}

int main(void) {
  for (int i = 0; i < BLOCKS; i++) {
    homes[i].addr = (uint64_t)(uintptr_t)address(i);
    homes[i].owner = 5;
    homes[i].last = UINT32_MAX;
    homes[i].requested = 100;
    homes[i].word = (uint64_t)CACHED | HOMED;
  }
  pthread_t t[THREADS + 1];
  pthread_create(&t[THREADS], NULL, manager, NULL);
  for (int i = 0; i < THREADS; i++) pthread_create(&t[i], NULL, user, (void *)(uintptr_t)(i + 1));
  for (int i = 0; i <= THREADS; i++) pthread_join(t[i], NULL);
  CHECK(got > 0 && got == given);

  /* What is not to be taken. */
  thread *one = calloc(1, sizeof *one);
  struct home *h = &homes[0];
  *h = (struct home){1 << 8 | CACHED | HOMED, 4096, 100, 5, 9};
  cupool_learn(one, cupool_hints(), 0, 100, 0, 4096, h, 5);
  const struct {
    uint64_t word;
    int64_t requested;
    uint32_t owner, last;
    int device;
    size_t size;
    void *stream;
    int taken;
  } cases[] = {
      {1 << 8 | CACHED | HOMED, 100, 5, 9, 0, 100, NULL, 1},   {1 << 8 | LIVE | HOMED, 100, 5, 9, 0, 100, NULL, 0},
      {1 << 8 | CACHED, 100, 5, 9, 0, 100, NULL, 0},           {1 << 8 | CACHED | HOMED, 101, 5, 9, 0, 100, NULL, 0},
      {1 << 8 | CACHED | HOMED, 100, 6, 9, 0, 100, NULL, 0},   {9 << 8 | CACHED | HOMED, 100, 5, 9, 0, 100, NULL, 0},
      {1 << 8 | CACHED | HOMED, 100, 5, 9, 1, 100, NULL, 0},   {1 << 8 | CACHED | HOMED, 100, 5, 9, 0, 101, NULL, 0},
      {1 << 8 | CACHED | HOMED, 100, 5, 9, 0, 100, &got, 0},    {1 << 8 | CACHED | HOMED | 16, 100, 5, 9, 0, 100, NULL, 0},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    *h = (struct home){cases[i].word, 4096, cases[i].requested, cases[i].owner, cases[i].last};
    CHECK((cupool_take(one, cases[i].device, cases[i].size, cases[i].stream) == (void *)4096) == cases[i].taken);
    CHECK(h->word == (cases[i].taken ? (2 << 8 | LIVE | HOMED) : cases[i].word));
  }
  unsigned before = cupool_hints();
  for (int forgotten = 0; forgotten < 2; forgotten++) { /* between the allocation and its hint */
    *h = (struct home){1 << 8 | CACHED | HOMED, 4096, 100, 5, 9};
    if (forgotten) cupool_forget_hints();
    cupool_learn(one, before, 0, 100, 0, 4096, h, 5);
    CHECK((cupool_take(one, 0, 100, NULL) == (void *)4096) == !forgotten);
  }
  *h = (struct home){1 << 8 | LIVE | HOMED, 8192, 100, 5, 9};
  CHECK(!cupool_put((void *)4096)); /* the hint is of an earlier life */
  free(one);
  return 0;
}

const char *cupool_last_error(void) { return ""; }
