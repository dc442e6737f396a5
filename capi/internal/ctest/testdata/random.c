/*
 * A random program, of one thread and of several: its statistics agree with a snapshot to the byte, what
 * they count of blocks is what the program counted, and no memory is handed out twice.
 *
 * usage: random SEED THREADS STEPS
 */
#include "test.h"

#include <pthread.h>
#include <stdatomic.h>

enum { MOST = 64, STREAMS = 3, POOLS = 3 };

static void *streams[STREAMS];
static cupool_pool_id pools[POOLS];
static int steps, threads;
static pthread_barrier_t meet;
static _Atomic int64_t live, live_bytes;

/* Blocks that are live, by their first address: who is handed one that another thread holds finds it here. */
enum { CLAIMS = 1 << 16 };
static _Atomic uintptr_t claims[CLAIMS];

static void claim(void *p, int on) {
  uintptr_t want = on ? 0 : (uintptr_t)p, to = on ? (uintptr_t)p : 1; /* 1: one was here */
  for (size_t i = (uintptr_t)p / 512 * 0x9E3779B97F4A7C15u >> 48;; i = (i + 1) % CLAIMS) {
    uintptr_t now = claims[i % CLAIMS];
    if (on) CHECK(now != (uintptr_t)p);
    if (now == want || (on && now == 1)) {
      if (atomic_compare_exchange_strong(&claims[i % CLAIMS], &now, to)) return;
    } else if (!on) {
      CHECK(now != 0);
    }
  }
}

typedef struct held {
  void *p;
  size_t size;
} held;

static void *work(void *of) {
  uint64_t random = (uint64_t)(uintptr_t)of;
  int first = random % 64 == 0;
  held mine[MOST];
  int n = 0;
  for (int round = 0; round < 4; round++) {
    for (int i = 0; i < steps; i++) {
      uint64_t r = next_random(&random);
      if (n == MOST || (n > 0 && r % 5 < 2)) {
        int at = (int)(r >> 8) % n;
        if (at < 0) at = 0;
        if ((r >> 40) % 8 == 0) OK(cupool_record_stream(mine[at].p, streams[(r >> 44) % STREAMS]));
        claim(mine[at].p, 0);
        OK(cupool_free(mine[at].p));
        live--;
        live_bytes -= (int64_t)mine[at].size;
        mine[at] = mine[--n];
        continue;
      }
      static const size_t usual[] = {512, 4096, 70000, 3 << 20};
      size_t size = (r >> 8) % 4 != 0 ? usual[(r >> 12) % 4] : 1 + (r >> 16) % ((size_t)1 << (8 + (r >> 12) % 14));
      held *h = &mine[n++];
      h->size = size;
      OK(cupool_alloc_in(0, pools[(r >> 40) % 8 < POOLS ? (r >> 40) % 8 : 0], size, streams[(r >> 44) % STREAMS], &h->p));
      if ((r >> 50) % 2 == 0 && (r >> 40) % 8 >= POOLS) { /* also by the fast way */
        OK(cupool_free(h->p));
        OK(cupool_alloc(0, size, streams[(r >> 44) % STREAMS], &h->p));
      }
      claim(h->p, 1);
      live++;
      live_bytes += (int64_t)size;
      if ((r >> 54) % 300 == 0) OK(cupool_trim(0, CUPOOL_ALL, 0, NULL));
      if ((r >> 54) % 300 == 1) stats_of(CUPOOL_ALL);
    }
    pthread_barrier_wait(&meet);
    if (first) {
      cupool_stats s = stats_of(CUPOOL_ALL);
      CHECK(s.allocation.all.current == live);
      CHECK(s.requested_bytes.all.current - s.pending_bytes <= live_bytes && s.requested_bytes.all.current >= live_bytes);
      agree(0, CUPOOL_ALL);
      for (int i = 0; i < POOLS; i++) agree(0, pools[i]);
      OK(cupool_wait(0));
      agree(0, CUPOOL_ALL);
      CHECK(stats_of(CUPOOL_ALL).requested_bytes.all.current == live_bytes);
      if (round == 1) OK(cupool_reset_peaks(0));
      if (round == 2) OK(cupool_history_start(0, 0, 1));
    }
    pthread_barrier_wait(&meet);
  }
  while (n > 0) OK(cupool_free(mine[--n].p));
  return NULL;
}

int main(int argc, char **argv) {
  CHECK(argc == 4);
  uint64_t seed = strtoull(argv[1], NULL, 10);
  threads = atoi(argv[2]), steps = atoi(argv[3]);
  use_device();
  for (int i = 1; i < STREAMS; i++) streams[i] = new_stream();
  for (int i = 1; i < POOLS; i++) {
    cupool_pool_config c;
    cupool_init(&c, sizeof c);
    c.flags = i == 1 ? CUPOOL_POOL_SEGMENTS : 0;
    pools[i] = CUPOOL_POOL_ID(0, (uint64_t)i);
    OK(cupool_pool_create(0, pools[i], &c));
  }
  pthread_barrier_init(&meet, NULL, (unsigned)threads);
  pthread_t t[64];
  for (int i = 0; i < threads; i++) pthread_create(&t[i], NULL, work, (void *)(uintptr_t)(seed * 64 + (uint64_t)i));
  for (int i = 0; i < threads; i++) pthread_join(t[i], NULL);
  OK(cupool_wait(0));
  cupool_stats s = stats_of(CUPOOL_ALL);
  CHECK(s.active.all.current == 0 && s.allocation.all.current == 0 && s.allocation.all.allocated == s.allocation.all.freed);
  agree(0, CUPOOL_ALL);
  OK(cupool_history_stop(0));
  OK(cupool_trim(0, CUPOOL_ALL, 0, NULL));
  CHECK(stats_of(CUPOOL_ALL).reserved_bytes.all.current == 0);
  return 0;
}
