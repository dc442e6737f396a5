/*
 * Times cupool_get_stats of a device, from C.
 *
 *     gcc -O2 -Icapi capi/bench/stats.c -Ldist -lcupool -o stats
 *
 * Prints microseconds of a call with so many live blocks of a pool, and
 * with so many private pools: the least and the middle of 201 calls.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "cupool.h"

enum { CALLS = 201, BLOCKS = 100000, MANY = 64 };

static void ok(cupool_status status) {
  if (status == CUPOOL_OK) return;
  fprintf(stderr, "%s\n", cupool_last_error());
  exit(1);
}

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return 1e6 * (double)t.tv_sec + (double)t.tv_nsec / 1e3;
}

static int by_value(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static void row(const char *what, int n) {
  double took[CALLS];
  for (int i = 0; i < CALLS; i++) {
    cupool_stats stats;
    cupool_init(&stats, sizeof stats);
    double from = now();
    ok(cupool_get_stats(0, CUPOOL_ALL, &stats));
    took[i] = now() - from;
  }
  qsort(took, CALLS, sizeof *took, by_value);
  printf("%6d %-12s %8.1f us, middle %8.1f\n", n, what, took[0], took[CALLS / 2]);
}

int main(void) {
  static void *p[BLOCKS];
  int have = 0;
  for (int n = 100; n <= BLOCKS; n *= 10) {
    for (; have < n; have++) ok(cupool_alloc(0, (size_t)512 * (1 + have % 64), NULL, &p[have]));
    row("live blocks", n);
  }
  for (int i = 0; i < have; i += 2) ok(cupool_free(p[i]));
  row("and as many free", have / 2);
  for (int i = 1; i < have; i += 2) ok(cupool_free(p[i]));
  int pools = 0;
  for (int n = 1; n <= MANY; n *= 4) {
    for (; pools < n; pools++) {
      cupool_pool_id id = CUPOOL_POOL_ID(1, (uint64_t)pools);
      void *q;
      ok(cupool_pool_create(0, id, NULL));
      for (int i = 0; i < 100; i++) ok(cupool_alloc_in(0, id, (size_t)512 * (1 + i % 64), NULL, &q));
    }
    row("pools", n);
  }
  return 0;
}
