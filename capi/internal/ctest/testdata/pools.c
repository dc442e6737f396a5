/* Private pools: scopes and their filters, counts, checkpoints, memory of the program, sleep. */
#include "test.h"

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

static cupool_pool_id in_pool_of(void *p) {
  cupool_block_info info;
  cupool_init(&info, sizeof info);
  OK(cupool_block(p, &info));
  return info.pool;
}

static int is(cupool_pool_id a, cupool_pool_id b) { return a.first == b.first && a.second == b.second; }

static void *alloc(size_t size, void *stream) {
  void *p;
  OK(cupool_alloc(0, size, stream, &p));
  return p;
}

static int only_stream(void *user, void *stream) { return user == stream; }

static void *from_another_thread(void *stream) {
  return alloc(1000, stream);
}

static void scopes(void) {
  cupool_pool_id mine = {0, 7}, theirs = {9, 0};
  void *stream = new_stream(), *p, *q;
  FAILS(CUPOOL_ERROR_NOT_FOUND, cupool_end(0, mine));
  FAILS(CUPOOL_ERROR_NOT_FOUND, cupool_alloc_in(0, mine, 100, NULL, &p));
  for (int i = 0; i < 10; i++) OK(cupool_free(alloc(1000, NULL))); /* the size comes by the fast way */
  OK(cupool_begin(0, mine, NULL, NULL));
  FAILS(CUPOOL_ERROR_EXISTS, cupool_begin(0, mine, NULL, NULL));
  p = alloc(1000, NULL);
  CHECK(is(in_pool_of(p), mine));
  pthread_t t;
  pthread_create(&t, NULL, from_another_thread, NULL);
  pthread_join(t, &q);
  CHECK(is(in_pool_of(q), CUPOOL_MAIN));
  OK(cupool_free(q));
  OK(cupool_begin(0, theirs, only_stream, stream));
  pthread_create(&t, NULL, from_another_thread, stream);
  pthread_join(t, &q);
  CHECK(is(in_pool_of(q), theirs));
  OK(cupool_free(q));
  q = alloc(1000, stream); /* the newest filter counts */
  CHECK(is(in_pool_of(q), theirs));
  OK(cupool_free(q));
  OK(cupool_end(0, theirs));
  q = alloc(1000, stream);
  CHECK(is(in_pool_of(q), mine));
  OK(cupool_end(0, mine));
  CHECK(is(in_pool_of(alloc(1000, NULL)), CUPOOL_MAIN));

  int count;
  OK(cupool_pool_use_count(0, mine, &count));
  CHECK(count == 1);
  OK(cupool_pool_create(0, mine, NULL));
  OK(cupool_pool_use_count(0, mine, &count));
  CHECK(count == 2);
  OK(cupool_pool_release(0, mine));
  OK(cupool_pool_release(0, mine));
  OK(cupool_pool_use_count(0, mine, &count));
  CHECK(count == 0);
  FAILS(CUPOOL_ERROR_NOT_FOUND, cupool_pool_release(0, mine));
  FAILS(CUPOOL_ERROR_NOT_FOUND, cupool_alloc_in(0, mine, 100, NULL, &p));
  CHECK(is(in_pool_of(p = q), mine)); /* what lives is good, and counts */
  agree(0, CUPOOL_ALL);
  int64_t before = stats_of(CUPOOL_ALL).allocation.all.allocated;
  OK(cupool_free(q));
  OK(cupool_wait(0));
  OK(cupool_trim(0, CUPOOL_ALL, 0, NULL));
  cupool_stats s = stats_of(CUPOOL_ALL);
  CHECK(s.allocation.all.allocated == before);
  agree(0, CUPOOL_ALL);
  OK(cupool_pool_create(0, mine, NULL)); /* the id anew */
  OK(cupool_alloc_in(0, mine, 100, NULL, &p));
  OK(cupool_free(p));
  OK(cupool_pool_release(0, mine));
  OK(cupool_pool_release(0, theirs));
}

static pthread_barrier_t together;

static void *within(void *of) {
  cupool_pool_id pool = *(cupool_pool_id *)of;
  OK(cupool_begin(0, pool, NULL, NULL));
  FAILS(CUPOOL_ERROR_EXISTS, cupool_begin(0, pool, NULL, NULL));
  FAILS(CUPOOL_ERROR_EXISTS, cupool_begin(0, pool, only_stream, NULL));
  pthread_barrier_wait(&together);
  void *p = alloc(1000, NULL);
  CHECK(is(in_pool_of(p), pool));
  OK(cupool_free(p));
  pthread_barrier_wait(&together);
  OK(cupool_end(0, pool));
  p = alloc(1000, NULL); /* whatever the other thread does */
  CHECK(is(in_pool_of(p), CUPOOL_MAIN));
  OK(cupool_free(p));
  OK(cupool_pool_release(0, pool));
  return NULL;
}

static void *without_end(void *of) {
  OK(cupool_begin(0, *(cupool_pool_id *)of, NULL, NULL));
  return NULL;
}

/* One pool for several threads, as a tag is. */
static void shared_scope(void) {
  enum { THREADS = 3 };
  cupool_pool_id pool;
  OK(cupool_pool_named(0, "of threads", NULL, &pool));
  pthread_t t[THREADS];
  pthread_barrier_init(&together, NULL, THREADS);
  for (int i = 0; i < THREADS; i++) pthread_create(&t[i], NULL, within, &pool);
  for (int i = 0; i < THREADS; i++) pthread_join(t[i], NULL);
  FAILS(CUPOOL_ERROR_NOT_FOUND, cupool_end(0, pool));
  void *p; /* a later thread has the stack, and the pthread_t, of one that ended within */
  pthread_create(&t[0], NULL, without_end, &pool);
  pthread_join(t[0], NULL);
  pthread_create(&t[0], NULL, from_another_thread, NULL);
  pthread_join(t[0], &p);
  CHECK(is(in_pool_of(p), CUPOOL_MAIN));
  OK(cupool_free(p));
  OK(cupool_end(0, pool));
  OK(cupool_pool_release(0, pool));
  OK(cupool_begin(0, pool, only_stream, new_stream()));
  FAILS(CUPOOL_ERROR_EXISTS, cupool_begin(0, pool, NULL, NULL));
  OK(cupool_end(0, pool));
  OK(cupool_pool_release(0, pool));
  OK(cupool_pool_release(0, pool));
}

static int come_and_gone;

static void *coming_and_going(void *of) {
  (void)of;
  for (int i = 0; i < 300; i++) {
    cupool_pool_id id = {5, (uint64_t)i + 1};
    void *p;
    OK(cupool_pool_create(0, id, NULL));
    OK(cupool_alloc_in(0, id, 3 * MIB, NULL, &p));
    OK(cupool_free(p));
    OK(cupool_pool_release(0, id));
  }
  __atomic_store_n(&come_and_gone, 1, __ATOMIC_RELEASE);
  return NULL;
}

/* Pools that come and go are counted once, and their peaks are not added up: they were not there at once. */
static void passing_pools(void) {
  OK(cupool_trim(0, CUPOOL_ALL, 0, NULL));
  OK(cupool_reset_peaks(0));
  cupool_stats first = stats_of(CUPOOL_ALL), last = first;
  pthread_t t;
  pthread_create(&t, NULL, coming_and_going, NULL);
  for (int end = 0; !end;) {
    end = __atomic_load_n(&come_and_gone, __ATOMIC_ACQUIRE);
    cupool_stats s = stats_of(CUPOOL_ALL);
    CHECK(s.allocation.all.allocated >= last.allocation.all.allocated && s.num_device_alloc >= last.num_device_alloc);
    last = s;
  }
  pthread_join(t, NULL);
  CHECK(last.allocation.all.allocated - first.allocation.all.allocated == 300);
  CHECK(last.reserved_bytes.all.peak >= (int64_t)(3 * MIB) + first.reserved_bytes.all.current);
  CHECK(last.reserved_bytes.all.peak < (int64_t)(100 * MIB) + first.reserved_bytes.all.current);
  OK(cupool_reset_peaks(0));
  last = stats_of(CUPOOL_ALL);
  CHECK(last.reserved_bytes.all.peak == last.reserved_bytes.all.current);
}

/* Statistics of one pool have all that those of the device's own have, also before its first block. */
static void stats_of_one(void) {
  cupool_pool_id id = {6, 1};
  cupool_pool_config c;
  cupool_init(&c, sizeof c);
  c.limit = 900 * MIB;
  OK(cupool_pool_create(0, id, &c));
  for (int used = 0; used < 2; used++) {
    cupool_stats s = stats_of(id);
    CHECK(s.limit == (int64_t)(900 * MIB) && s.max_split_size == -1 && s.streams == stats_of(CUPOOL_MAIN).streams && s.streams > 0);
    void *p;
    OK(cupool_alloc_in(0, id, 1000, NULL, &p));
    OK(cupool_free(p));
  }
  OK(cupool_pool_release(0, id));
}

/* Peaks begin anew with the current values: segments are counted as snapshots show them, with gaps in between. */
static void peaks(void) {
  enum { BLOCKS = 40, STATS = 9 * 3 };
  void *p[BLOCKS], *waited = new_stream();
  for (int i = 0; i < BLOCKS; i++) p[i] = alloc((size_t)(i + 1) * 300 * KIB, NULL);
  OK(cupool_record_stream(p[BLOCKS - 1], waited));
  for (int i = 1; i < BLOCKS; i += 2) OK(cupool_free(p[i]));
  for (int trimmed = 0; trimmed < 2; trimmed++) {
    OK(cupool_reset_peaks(0));
    cupool_stats s = stats_of(CUPOOL_MAIN);
    CHECK(s.pending_bytes == 0); /* the stream is idle */
    for (int i = 0; i < STATS; i++) CHECK((&s.allocation.all)[i].peak == (&s.allocation.all)[i].current);
    agree(0, CUPOOL_ALL);
    OK(cupool_trim(0, CUPOOL_MAIN, 0, NULL));
  }
  for (int i = 0; i < BLOCKS; i += 2) OK(cupool_free(p[i]));
  OK(cupool_forget_stream(0, waited));
  OK(cupool_trim(0, CUPOOL_ALL, 0, NULL));
}

static int resets_over;

static void *resetting(void *of) {
  (void)of;
  for (int i = 0; i < 2000; i++) {
    void *p;
    OK(cupool_alloc(0, 1000, NULL, &p));
    OK(cupool_free(p));
    OK(cupool_reset_accumulated(0));
  }
  __atomic_store_n(&resets_over, 1, __ATOMIC_RELEASE);
  return NULL;
}

/* What began anew is not below 0, whoever looks. */
static void resets(void) {
  sums_were_reset = 1;
  pthread_t t;
  pthread_create(&t, NULL, resetting, NULL);
  while (!__atomic_load_n(&resets_over, __ATOMIC_ACQUIRE)) {
    CHECK(stats_of(CUPOOL_MAIN).allocation.all.allocated >= 0);
    CHECK(stats_of(CUPOOL_ALL).allocation.all.allocated >= 0);
  }
  pthread_join(t, NULL);
}

/* A retired pool that went is none that fails, and hides no failure of another one. */
static void gone_pools(void) {
  cupool_pool_id id = {6, 0};
  void *p, *q;
  for (int main_sleeps = 0; main_sleeps < 2; main_sleeps++) {
    OK(cupool_pool_create(0, id, NULL));
    OK(cupool_alloc_in(0, id, 3 * MIB, NULL, &p));
    OK(cupool_pool_release(0, id));
    if (main_sleeps) OK(cupool_sleep(0, CUPOOL_MAIN, CUPOOL_DROP));
    OK(cupool_free(p));
    if (main_sleeps) {
      FAILS(CUPOOL_ERROR_ASLEEP, cupool_trim(0, CUPOOL_ALL, 0, NULL)); /* the pool goes within */
      OK(cupool_wake(0, CUPOOL_MAIN));
      continue;
    }
    OK(cupool_set_limit(0, 4 * MIB));
    FAILS(CUPOOL_ERROR_OUT_OF_MEMORY, cupool_alloc(0, 64 * MIB, NULL, &q)); /* the pool goes */
    OK(cupool_set_limit(0, 0));
    OK(cupool_sleep(0, CUPOOL_ALL, CUPOOL_DROP));
    OK(cupool_wake(0, CUPOOL_ALL));
  }
}

static void flags(void) {
  cupool_pool_id id = {0, 20};
  cupool_pool_config c;
  cupool_init(&c, sizeof c);
  c.flags = 64;
  FAILS(CUPOOL_ERROR_CONFIG, cupool_pool_create(0, id, &c));
  c.flags = CUPOOL_POOL_ISOLATED | CUPOOL_POOL_USE_ON_OOM;
  FAILS(CUPOOL_ERROR_CONFIG, cupool_pool_create(0, id, &c));
  FAILS(CUPOOL_ERROR_INVALID, cupool_pool_create(0, CUPOOL_MAIN, NULL));
  FAILS(CUPOOL_ERROR_INVALID, cupool_pool_create(0, CUPOOL_ALL, NULL));
  FAILS(CUPOOL_ERROR_NOT_FOUND, cupool_pool_set_flags(0, id, 0));
  OK(cupool_pool_create(0, id, NULL));
  OK(cupool_pool_set_flags(0, id, CUPOOL_POOL_NO_SPLIT | CUPOOL_POOL_USE_ON_OOM));
  void *p, *q, *r;
  OK(cupool_alloc_in(0, id, 3 * MIB, NULL, &p));
  OK(cupool_alloc_in(0, id, 3 * MIB, NULL, &q));
  CHECK(stats_of(id).segment.all.current == 2);
  OK(cupool_free(p));
  OK(cupool_set_limit(0, (size_t)stats_of(CUPOOL_ALL).reserved_bytes.all.current));
  OK(cupool_alloc(0, 3 * MIB, NULL, &r)); /* the pool lends */
  CHECK(r == p);
  FAILS(CUPOOL_ERROR_OUT_OF_MEMORY, cupool_alloc(0, 64 * MIB, NULL, &p));
  OK(cupool_set_limit(0, 0));
  OK(cupool_free(q));
  OK(cupool_free(r));
  cupool_pool_id late = {0, 21}; /* flags that come after memory */
  OK(cupool_trim(0, CUPOOL_ALL, 0, NULL));
  c.flags = CUPOOL_POOL_ISOLATED | CUPOOL_POOL_SEGMENTS;
  OK(cupool_pool_create(0, late, &c));
  OK(cupool_alloc_in(0, late, 24 * MIB, NULL, &p));
  OK(cupool_free(p));
  OK(cupool_set_limit(0, (size_t)stats_of(CUPOOL_ALL).reserved_bytes.all.current));
  FAILS(CUPOOL_ERROR_OUT_OF_MEMORY, cupool_alloc(0, 24 * MIB, NULL, &r));
  OK(cupool_pool_set_flags(0, late, CUPOOL_POOL_USE_ON_OOM));
  OK(cupool_alloc(0, 24 * MIB, NULL, &r));
  CHECK(r == p);
  OK(cupool_set_limit(0, 0));
  OK(cupool_free(r));
  OK(cupool_pool_set_flags(0, late, CUPOOL_POOL_ISOLATED | CUPOOL_POOL_NO_SPLIT));
  OK(cupool_alloc_in(0, late, 3 * MIB, NULL, &p));
  OK(cupool_alloc_in(0, late, 3 * MIB, NULL, &q));
  CHECK(stats_of(late).segment.all.current == 2);
  OK(cupool_free(p));
  OK(cupool_free(q));
  OK(cupool_pool_release(0, late));
  cupool_pool_id virtual_one = {0, 22};
  OK(cupool_pool_create(0, virtual_one, NULL));
  OK(cupool_alloc_in(0, virtual_one, MIB, NULL, &p));
  FAILS(CUPOOL_ERROR_BUSY, cupool_pool_set_flags(0, virtual_one, CUPOOL_POOL_NO_SPLIT));
  OK(cupool_pool_set_flags(0, virtual_one, CUPOOL_POOL_USE_ON_OOM));
  OK(cupool_free(p));
  OK(cupool_pool_release(0, virtual_one));
  OK(cupool_pool_release(0, id));
}

typedef struct program {
  int allocs, frees, dry;
  void *stream, *spare; /* a block that it gives back where it is asked for memory */
} program;

static void *program_alloc(void *user, size_t size, int device, void *stream) {
  program *m = user;
  CHECK(device == 0 && stream == m->stream);
  if (m->dry) return NULL;
  if (m->spare != NULL) {
    void *p;
    size_t n;
    FAILS(CUPOOL_ERROR_BUSY, cupool_alloc(0, 5 * MIB, stream, &p));
    FAILS(CUPOOL_ERROR_BUSY, cupool_trim(0, CUPOOL_ALL, 0, &n));
    OK(cupool_free(m->spare));
    m->spare = NULL;
  }
  m->allocs++;
  return mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

static void program_free(void *user, void *p, size_t size, int device, void *stream) {
  program *m = user;
  CHECK(device == 0 && stream == m->stream);
  m->frees++;
  munmap(p, size);
}

static int told;
static cupool_pool_id told_pool;
static void segment(void *user, int device, cupool_segment_action action, cupool_pool_id pool, void *address, size_t size,
                    void *stream) {
  (void)user, (void)device, (void)action, (void)address, (void)size, (void)stream;
  told++, told_pool = pool;
}

static void sized_segment(void *user, int device, cupool_segment_action action, cupool_pool_id pool, void *address, size_t size,
                          void *stream) {
  (void)user, (void)device, (void)action, (void)pool, (void)address, (void)stream;
  CHECK(size == 20 * MIB);
}

static void *growing_and_trimming(void *of) {
  cupool_pool_id id = {31, (uint64_t)(uintptr_t)of};
  cupool_pool_config c;
  cupool_init(&c, sizeof c);
  c.flags = CUPOOL_POOL_SEGMENTS;
  OK(cupool_pool_create(0, id, &c));
  for (int i = 0; i < 3000; i++) {
    void *p;
    OK(cupool_alloc_in(0, id, 2 * MIB, NULL, &p));
    OK(cupool_free(p));
    OK(cupool_trim(0, id, 0, NULL));
  }
  OK(cupool_pool_release(0, id));
  return NULL;
}

/* A segment that goes is told with its size, also where another one comes at its address at once. */
static void segments_at_once(void) {
  enum { THREADS = 4 };
  cupool_callbacks callbacks;
  cupool_init(&callbacks, sizeof callbacks);
  callbacks.segment = sized_segment;
  OK(cupool_set_callbacks(0, &callbacks));
  pthread_t t[THREADS];
  for (uintptr_t i = 0; i < THREADS; i++) pthread_create(&t[i], NULL, growing_and_trimming, (void *)i);
  for (int i = 0; i < THREADS; i++) pthread_join(t[i], NULL);
  OK(cupool_set_callbacks(0, NULL));
}

static void memory_of_the_program(void) {
  program m = {0, 0, 0, new_stream(), NULL};
  cupool_callbacks callbacks;
  cupool_init(&callbacks, sizeof callbacks);
  callbacks.segment = segment;
  OK(cupool_set_callbacks(0, &callbacks));
  cupool_pool_config c;
  cupool_init(&c, sizeof c);
  c.alloc = program_alloc, c.user = &m;
  cupool_pool_id id = {0, 30};
  FAILS(CUPOOL_ERROR_CONFIG, cupool_pool_create(0, id, &c));
  c.free = program_free;
  OK(cupool_pool_create(0, id, &c));
  memset(&c, 0, sizeof c); /* it was copied */
  void *p, *q;
  OK(cupool_alloc_in(0, id, 30 * MIB, m.stream, &p));
  CHECK(m.allocs == 1 && told == 1 && is(told_pool, id));
  agree(0, CUPOOL_ALL);
  FAILS(CUPOOL_ERROR_NOT_SUPPORTED, cupool_sleep(0, id, CUPOOL_DROP));
  m.dry = 1;
  FAILS(CUPOOL_ERROR_OUT_OF_MEMORY, cupool_alloc_in(0, id, 30 * MIB, m.stream, &q));
  OK(cupool_free(p));
  OK(cupool_alloc_in(0, id, 30 * MIB, m.stream, &q));
  CHECK(p == q && m.allocs == 1);
  OK(cupool_free(q));
  OK(cupool_trim(0, id, 0, NULL));
  CHECK(m.frees == 1 && told == 2 && stats_of(id).reserved_bytes.all.current == 0);
  m.dry = 0;
  OK(cupool_alloc_in(0, id, 1000, m.stream, &p));
  m.spare = p;
  OK(cupool_alloc_in(0, id, 40 * MIB, m.stream, &q));
  while (stats_of(id).allocated_bytes.all.current > (int64_t)(40 * MIB)) usleep(100); /* another thread frees it */
  OK(cupool_free(q));
  OK(cupool_pool_release(0, id));
  OK(cupool_trim(0, CUPOOL_ALL, 0, NULL));
  CHECK(m.allocs == m.frees);
  OK(cupool_set_callbacks(0, NULL));
}

/* A layout, as a checkpoint keeps it. */
enum { MOST = 300 };
typedef struct layout {
  int n, now_live;
  void *address[MOST];
  size_t size[MOST], requested[MOST];
  int live[MOST];
} layout;

static int keep_block(void *user, const cupool_block_entry *b) {
  layout *l = user;
  CHECK(l->n < MOST);
  l->address[l->n] = b->address, l->size[l->n] = b->size, l->requested[l->n] = b->requested;
  l->live[l->n++] = b->state == CUPOOL_BLOCK_LIVE;
  return 0;
}

static layout *look(cupool_pool_id id) {
  layout *l = calloc(1, sizeof *l);
  cupool_visitor v;
  cupool_init(&v, sizeof v);
  v.block = keep_block, v.user = l;
  OK(cupool_snapshot(0, id, &v));
  return l;
}

static void fill(cupool_pool_id id, void *stream, uint64_t *random) {
  for (int i = 0; i < 40; i++) {
    void *p;
    OK(cupool_alloc_in(0, id, 1 + next_random(random) % ((size_t)1 << (9 + next_random(random) % 15)), stream, &p));
    if (next_random(random) % 3 == 0) OK(cupool_free(p));
  }
}

static void free_all(layout *l) {
  for (int i = 0; i < l->n; i++)
    if (l->live[i]) OK(cupool_free(l->address[i]));
}

static void checkpoints(unsigned flags) {
  cupool_pool_id id = {40, 0};
  cupool_pool_config c;
  cupool_init(&c, sizeof c);
  c.flags = CUPOOL_POOL_ISOLATED | flags;
  OK(cupool_pool_create(0, id, &c));
  void *stream = new_stream();
  uint64_t random = 40;
  for (int round = 0; round < 10; round++) {
    fill(id, stream, &random);
    layout *was = look(id);
    free_all(was);
    fill(id, stream, &random);
    layout *between = look(id);
    free_all(between);
    for (int i = 0; i < was->n; i++) {
      if (!was->live[i]) continue;
      FAILS(CUPOOL_ERROR_INVALID, cupool_alloc_at(0, id, was->address[i], was->size[i], 0, stream));
      FAILS(CUPOOL_ERROR_INVALID, cupool_alloc_at(0, id, was->address[i], was->size[i] - 1, 1, stream));
      OK(cupool_alloc_at(0, id, was->address[i], was->size[i], was->requested[i], stream));
      FAILS(CUPOOL_ERROR_OCCUPIED, cupool_alloc_at(0, id, was->address[i], was->size[i], was->requested[i], stream));
    }
    layout *now = look(id);
    int n = 0;
    for (int i = 0; i < was->n; i++) {
      if (!was->live[i]) continue;
      while (n < now->n && now->address[n] != was->address[i]) CHECK(!now->live[n++]);
      CHECK(n < now->n && now->live[n] && now->size[n] == was->size[i] && now->requested[n] == was->requested[i]);
      n++;
    }
    agree(0, id);
    free_all(now);
    free(was), free(between), free(now);
  }
  FAILS(CUPOOL_ERROR_FOREIGN_POINTER, cupool_alloc_at(0, id, (void *)4096, 512, 512, stream));
  FAILS(CUPOOL_ERROR_NOT_FOUND, cupool_alloc_at(0, CUPOOL_POOL_ID(40, 1), (void *)4096, 512, 512, stream));
  OK(cupool_pool_release(0, id));
}

static void sleeping(void) {
  cupool_pool_id weights, again, caches;
  OK(cupool_pool_named(0, "weights", NULL, &weights));
  OK(cupool_pool_named(0, "weights", NULL, &again));
  OK(cupool_pool_named(0, "caches", NULL, &caches));
  CHECK(is(weights, again) && !is(weights, caches));
  FAILS(CUPOOL_ERROR_INVALID, cupool_pool_named(0, "", NULL, &again));
  void *w, *c, *p;
  OK(cupool_alloc_in(0, weights, 4 * MIB, NULL, &w));
  OK(cupool_alloc_in(0, caches, 4 * MIB, NULL, &c));
  use_device();
  CHECK(CU(cuMemsetD8_v2, (uintptr_t, unsigned char, size_t), (uintptr_t)w, 0x5a, 4 * MIB) == 0);
  FAILS(CUPOOL_ERROR_INVALID, cupool_sleep(0, weights, 3));
  OK(cupool_sleep(0, weights, CUPOOL_KEEP));
  OK(cupool_sleep(0, caches, CUPOOL_DROP));
  CHECK(stats_of(weights).reserved_bytes.all.current == 0 && stats_of(weights).asleep_bytes >= (int64_t)(4 * MIB));
  FAILS(CUPOOL_ERROR_ASLEEP, cupool_alloc_in(0, weights, 100, NULL, &p));
  FAILS(CUPOOL_ERROR_ASLEEP, cupool_sleep(0, weights, CUPOOL_DROP));
  OK(cupool_free(c));
  OK(cupool_alloc(0, 100, NULL, &p)); /* others are awake */
  OK(cupool_free(p));
  OK(cupool_wake(0, CUPOOL_ALL));
  OK(cupool_wake(0, weights));
  unsigned char *host = malloc(4 * MIB);
  CHECK(CU(cuMemcpyDtoH_v2, (void *, uintptr_t, size_t), host, (uintptr_t)w, 4 * MIB) == 0);
  for (size_t i = 0; i < 4 * MIB; i++) CHECK(host[i] == 0x5a);
  free(host);
  OK(cupool_free(w));
  OK(cupool_sleep(0, CUPOOL_ALL, CUPOOL_DROP));
  FAILS(CUPOOL_ERROR_ASLEEP, cupool_alloc(0, 100, NULL, &p));
  CHECK(strstr(cupool_last_error(), "Wake") == NULL); /* which is Go's */
  OK(cupool_wake(0, CUPOOL_ALL));
  OK(cupool_pool_release(0, weights));
  OK(cupool_pool_release(0, caches));
}

static void sharing(void) {
  void *p, *at;
  OK(cupool_alloc(0, 5 * MIB, NULL, &p));
  size_t skip, count = 0;
  FAILS(CUPOOL_ERROR_INVALID, cupool_export(p, 5 * MIB, &skip, NULL, &count));
  CHECK(count >= 1 && count < 100);
  FAILS(CUPOOL_ERROR_INVALID, cupool_export(p, 5 * MIB, &skip, NULL, &count));
  CHECK(strstr(cupool_last_error(), "room for 0") != NULL);
  FAILS(CUPOOL_ERROR_INVALID, cupool_export(p, SIZE_MAX, &skip, NULL, &count));
  CHECK(strchr(cupool_last_error(), '-') == NULL);
  cupool_piece pieces[100];
  count = SIZE_MAX; /* no bound, as far as the caller knows */
  OK(cupool_export(p, 5 * MIB, &skip, pieces, &count));
  use_device();
  CHECK(CU(cuMemsetD8_v2, (uintptr_t, unsigned char, size_t), (uintptr_t)p, 0x77, 5 * MIB) == 0);
  OK(cupool_import(0, skip, 5 * MIB, pieces, count, &at));
  CHECK(at != p);
  unsigned char host[100];
  CHECK(CU(cuMemcpyDtoH_v2, (void *, uintptr_t, size_t), host, (uintptr_t)at + 5 * MIB - 100, 100) == 0);
  CHECK(host[0] == 0x77 && host[99] == 0x77);
  OK(cupool_unimport(0, at));
  FAILS(CUPOOL_ERROR_INVALID, cupool_unimport(0, at));
  FAILS(CUPOOL_ERROR_FOREIGN_POINTER, cupool_export(&p, 8, &skip, pieces, &count));
  const size_t impossible[] = {0, SIZE_MAX, SIZE_MAX / 2};
  for (int i = 0; i < 3; i++) {
    FAILS(CUPOOL_ERROR_INVALID, cupool_import(0, skip, 5 * MIB, pieces, impossible[i], &at));
    FAILS(CUPOOL_ERROR_INVALID, cupool_import(0, skip, impossible[i], pieces, count, &at));
  }
  FAILS(CUPOOL_ERROR_INVALID, cupool_import(0, SIZE_MAX, 5 * MIB, pieces, count, &at));
  CHECK(strchr(cupool_last_error(), '-') == NULL);
  cupool_piece wrong[100];
  memcpy(wrong, pieces, sizeof wrong);
  wrong[count - 1].size = SIZE_MAX;
  FAILS(CUPOOL_ERROR_INVALID, cupool_import(0, skip, 5 * MIB, wrong, count, &at));
  CHECK(strchr(cupool_last_error(), '-') == NULL);
  wrong[count - 1].size = pieces[count - 1].size;
  wrong[count - 1].fd = -3;
  FAILS(CUPOOL_ERROR_INVALID, cupool_import(0, skip, 5 * MIB, wrong, count, &at));
  wrong[count - 1].fd = 255; /* which is not open */
  FAILS(CUPOOL_ERROR_IO, cupool_import(0, skip, 5 * MIB, wrong, count, &at));
  for (size_t i = 0; i < count; i++) CHECK(close(pieces[i].fd) == 0);
  CHECK(at == NULL);
  OK(cupool_free(p));
}

/* How often each address came and went. */
static struct tale {
  void *address;
  int there;
} tales[64];

static void tell(void *user, int device, cupool_segment_action action, cupool_pool_id pool, void *address, size_t size, void *stream) {
  (void)user, (void)device, (void)pool, (void)size, (void)stream;
  int came = action == CUPOOL_SEGMENT_ALLOC || action == CUPOOL_SEGMENT_MAP;
  for (int i = 0; i < 64; i++) {
    if (tales[i].address != NULL && tales[i].address != address) continue;
    tales[i].address = address;
    CHECK(tales[i].there == !came);
    tales[i].there = came;
    return;
  }
  CHECK(!"room for an address");
}

static int there(void) {
  int n = 0;
  for (int i = 0; i < 64; i++) n += tales[i].there;
  return n;
}

/* A segment that the driver does not take back is there, and told of when it goes. */
static void refused_segments(void) {
  void (*fail)(const char *, int, int, int) = (void (*)(const char *, int, int, int))driver("fakecuda_fail");
  OK(cupool_trim(0, CUPOOL_ALL, 0, NULL));
  cupool_callbacks c;
  cupool_init(&c, sizeof c);
  c.segment = tell;
  OK(cupool_set_callbacks(0, &c));
  for (unsigned flags = 0; flags <= CUPOOL_POOL_SEGMENTS; flags += CUPOOL_POOL_SEGMENTS) {
    cupool_pool_id id = {70, flags};
    cupool_pool_config pc;
    cupool_init(&pc, sizeof pc);
    pc.flags = flags;
    OK(cupool_pool_create(0, id, &pc));
    void *p;
    OK(cupool_alloc_in(0, id, 30 * MIB, NULL, &p));
    OK(cupool_free(p));
    int held = there();
    CHECK(held > 0);
    fail(flags ? "cuMemFree_v2" : "cuMemUnmap", 1, 999, 1);
    FAILS(CUPOOL_ERROR_DRIVER, cupool_trim(0, id, 0, NULL));
    ((void (*)(void))driver("fakecuda_reset"))();
    CHECK(there() > 0);
    OK(cupool_trim(0, id, 0, NULL));
    CHECK(there() == 0);
    OK(cupool_pool_release(0, id));
  }
  OK(cupool_set_callbacks(0, NULL));
}

static int open_files(void) {
  int n = 0;
  for (int fd = 0; fd < 256; fd++) n += fcntl(fd, F_GETFD) >= 0;
  return n;
}

/* Too few descriptors: an export and an import that fail leave none open, and tell of none. */
static void few_files(void) {
  enum { MOST = 64 };
  void *p, *at;
  OK(cupool_alloc(0, 100 * MIB, NULL, &p));
  size_t skip, count = MOST;
  cupool_piece pieces[MOST];
  OK(cupool_export(p, 100 * MIB, &skip, pieces, &count));
  CHECK(count > 1);
  for (size_t i = 0; i < count; i++) CHECK(fcntl(pieces[i].fd, F_GETFD) == FD_CLOEXEC && pieces[i].fd < 200);
  int before = open_files(), failed[2] = {0, 0};
  for (rlim_t room = 200; room > 3; room--) {
    struct rlimit usual, few;
    CHECK(getrlimit(RLIMIT_NOFILE, &usual) == 0);
    few = usual, few.rlim_cur = room;
    CHECK(setrlimit(RLIMIT_NOFILE, &few) == 0);
    cupool_piece again[MOST];
    memset(again, 0x55, sizeof again);
    size_t n = MOST;
    if (cupool_export(p, 100 * MIB, &skip, again, &n) == CUPOOL_OK) {
      for (size_t i = 0; i < n; i++) CHECK(close(again[i].fd) == 0);
    } else {
      failed[0]++;
      for (size_t i = 0; i < MOST; i++) CHECK(again[i].fd == 0x55555555);
    }
    if (cupool_import(0, skip, 100 * MIB, pieces, count, &at) == CUPOOL_OK) {
      OK(cupool_unimport(0, at));
    } else {
      failed[1]++;
    }
    CHECK(setrlimit(RLIMIT_NOFILE, &usual) == 0);
    CHECK(open_files() == before);
  }
  CHECK(failed[0] > 0 && failed[1] > 0);
  for (size_t i = 0; i < count; i++) close(pieces[i].fd);
  OK(cupool_free(p));
}

/* A released pool that is gone, since another one lacked its memory, has no id. */
static void gone_for_others(void) {
  cupool_pool_id id = {60, 0};
  OK(cupool_pool_create(0, id, NULL));
  void *p, *q;
  OK(cupool_alloc_in(0, id, 64 * MIB, NULL, &p));
  OK(cupool_pool_release(0, id));
  OK(cupool_sleep(0, id, CUPOOL_KEEP)); /* its block is live */
  OK(cupool_wake(0, id));
  OK(cupool_free(p));
  OK(cupool_set_limit(0, (size_t)stats_of(CUPOOL_ALL).reserved_bytes.all.current));
  q = alloc(64 * MIB, NULL);
  FAILS(CUPOOL_ERROR_NOT_FOUND, cupool_sleep(0, id, CUPOOL_KEEP));
  FAILS(CUPOOL_ERROR_NOT_FOUND, cupool_wake(0, id));
  FAILS(CUPOOL_ERROR_NOT_FOUND, cupool_trim(0, id, 0, NULL));
  OK(cupool_set_limit(0, 0));
  OK(cupool_free(q));
}

/* A large block may lie in memory of the small ranges, of which a snapshot shows the block alone. */
static void lent_to_large(void) {
  enum { BLOCKS = 800 }; /* a pool of less than 256 MiB grows instead */
  void *p[BLOCKS], *q, *stream = new_stream();
  OK(cupool_trim(0, CUPOOL_ALL, 0, NULL));
  for (int i = 0; i < BLOCKS; i++) p[i] = alloc(400 * KIB, stream);
  for (int i = 0; i < BLOCKS; i++) OK(cupool_free(p[i]));
  int64_t small = stats_of(CUPOOL_MAIN).reserved_bytes.small.current;
  q = alloc(45 * MIB + 3 * KIB, stream);
  agree(0, CUPOOL_MAIN);
  CHECK(stats_of(CUPOOL_MAIN).reserved_bytes.small.current < small);
  OK(cupool_free(q));
  agree(0, CUPOOL_MAIN);
}

static void *forgotten;

static void *forgetting(void *allocates) {
  for (int i = 0; i < 1000; i++) {
    if (allocates) OK(cupool_free(alloc(1000, forgotten)));
    pthread_barrier_wait(&together);
    OK(cupool_forget_stream(0, forgotten));
    pthread_barrier_wait(&together);
  }
  return NULL;
}

/* Several threads say that a stream was destroyed. */
static void forget_at_once(void) {
  pthread_t t[2];
  forgotten = new_stream();
  pthread_barrier_init(&together, NULL, 2);
  for (uintptr_t i = 0; i < 2; i++) pthread_create(&t[i], NULL, forgetting, (void *)i);
  for (int i = 0; i < 2; i++) pthread_join(t[i], NULL);
}

static void *passing_fast(void *of) {
  cupool_pool_id id = {40, (uint64_t)(uintptr_t)of};
  for (int i = 0; i < 2000; i++) {
    void *p;
    cupool_block_info b;
    cupool_init(&b, sizeof b);
    OK(cupool_pool_create(0, id, NULL));
    OK(cupool_alloc_in(0, id, 3 * MIB, NULL, &p));
    OK(cupool_block(p, &b));
    OK(cupool_free(p));
    OK(cupool_pool_release(0, id));
  }
  return NULL;
}

/* A block is found whatever pools go meanwhile, whose addresses its own pool may have. */
static void pools_at_once(void) {
  enum { THREADS = 4 };
  pthread_t t[THREADS];
  for (uintptr_t i = 0; i < THREADS; i++) pthread_create(&t[i], NULL, passing_fast, (void *)i);
  for (int i = 0; i < THREADS; i++) pthread_join(t[i], NULL);
  OK(cupool_trim(0, CUPOOL_ALL, 0, NULL));
}

/* A pool of which nothing was allocated yet sleeps, too; and one wakes whose stitched range lost its memory to another
 * stream before it was isolated. */
static void sleepers(void) {
  cupool_pool_id id = {0, 41};
  void *p[20], *q, *a = new_stream(), *b = new_stream();
  OK(cupool_pool_create(0, id, NULL));
  OK(cupool_sleep(0, id, CUPOOL_DROP));
  FAILS(CUPOOL_ERROR_ASLEEP, cupool_alloc_in(0, id, 1000, NULL, &q));
  OK(cupool_wake(0, id));
  for (int i = 0; i < 20; i++) OK(cupool_alloc_in(0, id, 4 * MIB, a, &p[i]));
  for (int i = 0; i < 20; i += 2) OK(cupool_free(p[i]));
  OK(cupool_alloc_in(0, id, 12 * MIB, a, &q));
  OK(cupool_free(q));
  for (int i = 1; i < 20; i += 2) OK(cupool_free(p[i]));
  OK(cupool_alloc_in(0, id, 70 * MIB, b, &q));
  OK(cupool_pool_set_flags(0, id, CUPOOL_POOL_ISOLATED));
  OK(cupool_sleep(0, id, CUPOOL_KEEP));
  OK(cupool_wake(0, id));
  OK(cupool_free(q));
  OK(cupool_pool_release(0, id));
  OK(cupool_trim(0, CUPOOL_ALL, 0, NULL));

  /* What other pools cache is in the way. */
  id.second++;
  size_t device_free;
  OK(cupool_pool_create(0, id, NULL));
  OK(cupool_alloc_in(0, id, 512 * MIB, NULL, &q));
  OK(cupool_sleep(0, id, CUPOOL_DROP));
  OK(cupool_memory_info(0, &device_free, NULL, NULL));
  OK(cupool_free(alloc(device_free - 100 * MIB, NULL)));
  OK(cupool_wake(0, id));
  OK(cupool_free(q));
  OK(cupool_pool_release(0, id));
  OK(cupool_trim(0, CUPOOL_ALL, 0, NULL));
}

static atomic_int going, used;

static void *forgets(void *stream) {
  while (going) {
    int before = used;
    for (int i = 0; i < 10; i++) OK(cupool_forget_stream(0, stream));
    while (going && used == before) sched_yield(); /* else those who use it might never have a turn */
  }
  return NULL;
}

static void *uses(void *stream) {
  uint64_t random = 50;
  for (int i = 0; i < 3000; i++) {
    void *p = alloc(1 + next_random(&random) % (4 * MIB), stream);
    OK(cupool_record_stream(p, stream));
    if (i % 64 == 0) OK(cupool_reserve(0, 1000, stream));
    OK(cupool_free(p));
    used++;
  }
  return NULL;
}

/* Allocations go on beside those who say that their stream was destroyed: it is another one then. */
static void forget_in_use(void) {
  enum { THREADS = 2 };
  void *stream = new_stream(), *mine;
  pthread_t forgetting[THREADS], using[THREADS];
  going = 1;
  for (int i = 0; i < THREADS; i++) {
    pthread_create(&forgetting[i], NULL, forgets, stream);
    pthread_create(&using[i], NULL, uses, stream);
  }
  for (int i = 0; i < THREADS; i++) pthread_join(using[i], NULL);
  going = 0;
  for (int i = 0; i < THREADS; i++) pthread_join(forgetting[i], NULL);
  mine = alloc(1000, stream);
  OK(cupool_record_stream(mine, NULL));
  OK(cupool_free(mine));
}

/* Functions that are to free memory allocate some: they are not called for that again. */
static int asks;
static void grow_needs_memory(void *user, int device, size_t size) {
  (void)user;
  void *p;
  asks++;
  OK(cupool_alloc(device, size + 50 * MIB, NULL, &p));
  OK(cupool_free(p));
}

static int oom_needs_memory(void *user, int device, size_t size) {
  (void)user;
  void *p;
  asks++;
  FAILS(CUPOOL_ERROR_OUT_OF_MEMORY, cupool_alloc(device, size, NULL, &p));
  return 1;
}

static void callbacks_that_allocate(void) {
  OK(cupool_trim(0, CUPOOL_ALL, 0, NULL));
  cupool_callbacks c;
  cupool_init(&c, sizeof c);
  c.before_grow = grow_needs_memory;
  OK(cupool_set_callbacks(0, &c));
  void *p;
  OK(cupool_alloc(0, 5 * MIB, NULL, &p));
  CHECK(asks == 1);
  OK(cupool_free(p));
  c.before_grow = NULL, c.on_oom = oom_needs_memory, asks = 0;
  OK(cupool_set_callbacks(0, &c));
  FAILS(CUPOOL_ERROR_OUT_OF_MEMORY, cupool_alloc(0, (size_t)1 << 40, NULL, &p));
  CHECK(asks == 1);
  OK(cupool_set_callbacks(0, NULL));
}

/* Events of a pool that was released are not those of a later one of its name. */
static int allocs_of_twins;
static int count_allocs(void *user, const cupool_event *e) {
  (void)user;
  allocs_of_twins += strcmp(e->action, "alloc") == 0 && e->pool.first == 77;
  return 0;
}

static void events_of_twins(void) {
  cupool_pool_config config;
  cupool_init(&config, sizeof config);
  config.name = "twin";
  cupool_visitor v;
  cupool_init(&v, sizeof v);
  v.event = count_allocs;
  OK(cupool_history_start(0, 0, 1));
  for (uint64_t i = 1; i < 3; i++) {
    cupool_pool_id id = {77, i};
    OK(cupool_pool_create(0, id, &config));
    for (uint64_t n = 0; n < i; n++) {
      void *p;
      OK(cupool_alloc_in(0, id, 5000, NULL, &p));
      OK(cupool_free(p));
    }
    allocs_of_twins = 0;
    OK(cupool_snapshot(0, CUPOOL_ALL, &v));
    CHECK(allocs_of_twins == (int)i);
    OK(cupool_pool_release(0, id));
    OK(cupool_trim(0, CUPOOL_ALL, 0, NULL));
  }
  OK(cupool_history_stop(0));
}

int main(void) {
  use_device();
  scopes();
  shared_scope();
  passing_pools();
  gone_pools();
  stats_of_one();
  peaks();
  flags();
  segments_at_once();
  pools_at_once();
  sleepers();
  memory_of_the_program();
  checkpoints(0);
  checkpoints(CUPOOL_POOL_SEGMENTS);
  sleeping();
  gone_for_others();
  refused_segments();
  sharing();
  few_files();
  lent_to_large();
  forget_at_once();
  forget_in_use();
  resets();
  callbacks_that_allocate();
  events_of_twins();
  agree(0, CUPOOL_ALL);
  return 0;
}
