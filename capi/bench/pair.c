/*
 * Times an allocation and its free, from C.
 *
 *     gcc -O2 -Icapi capi/bench/pair.c -Ldist -lcupool -lpthread -o pair
 *     pair [THREADS]
 *
 * Prints nanoseconds for a pair of one thread, by size, those of 2, 4, ... THREADS (16) threads, and one
 * thread's in a private pool, which Go serves: wall clock divided by all pairs, the least and the middle
 * of seven runs.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "cupool.h"

enum { RUNS = 7, WARM = 1000, MOST = 256 };

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return 1e9 * (double)t.tv_sec + (double)t.tv_nsec;
}

static cupool_pool_id pool; /* the device's own, or a private one */

static void pairs(size_t size, long n) {
  int private = pool.first != 0;
  for (long i = 0; i < n; i++) {
    void *p;
    cupool_status status = private ? cupool_alloc_in(0, pool, size, NULL, &p) : cupool_alloc(0, size, NULL, &p);
    if (status != CUPOOL_OK || cupool_free(p) != CUPOOL_OK) {
      fprintf(stderr, "%s\n", cupool_last_error());
      exit(1);
    }
  }
}

typedef struct job {
  size_t size;
  long n;
  pthread_barrier_t *start;
  double from, to;
} job;

static void *work(void *of) {
  job *j = of;
  pairs(j->size, WARM);
  pthread_barrier_wait(j->start);
  j->from = now();
  pairs(j->size, j->n);
  j->to = now();
  return NULL;
}

static double run(int threads, size_t size, long n) {
  pthread_barrier_t start;
  pthread_t t[MOST];
  job jobs[MOST];
  pthread_barrier_init(&start, NULL, (unsigned)threads);
  for (int i = 0; i < threads; i++) {
    jobs[i] = (job){size, n, &start, 0, 0};
    pthread_create(&t[i], NULL, work, &jobs[i]);
  }
  double from = 0, to = 0;
  for (int i = 0; i < threads; i++) {
    pthread_join(t[i], NULL);
    if (i == 0 || jobs[i].from < from) from = jobs[i].from;
    if (i == 0 || jobs[i].to > to) to = jobs[i].to;
  }
  pthread_barrier_destroy(&start);
  return (to - from) / ((double)n * threads);
}

static int by_value(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static void table(int threads, size_t size) {
  double took[RUNS];
  for (int i = 0; i < RUNS; i++) took[i] = run(threads, size, 300000);
  qsort(took, RUNS, sizeof *took, by_value);
  printf("%2d threads, %9zu B: %6.1f ns a pair, middle %6.1f\n", threads, size, took[0], took[RUNS / 2]);
}

int main(int argc, char **argv) {
  int most = argc > 1 ? atoi(argv[1]) : 16;
  static const size_t sizes[] = {512, 1 << 20, 32 << 20};
  for (int i = 0; i < 3; i++) table(1, sizes[i]);
  for (int n = 2; n <= most && n <= MOST; n *= 2) table(n, 1 << 20);
  if (cupool_pool_named(0, "pair", NULL, &pool) != CUPOOL_OK) return 1;
  printf("through Go:\n");
  table(1, 1 << 20);
  return 0;
}
