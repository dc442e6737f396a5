/*
 * Two streams that share a pool, a pool of its own for what may sleep, and what the pool says of itself.
 *
 *     capi/build.sh
 *     gcc -std=c99 -Ibuild examples/c/main.c -Lbuild -lcupool -Wl,-rpath,$PWD/build -o build/example
 *     build/example build/snapshot.pickle
 *
 * A program with kernels makes its streams with CUDA and gives them to cupool as they are.
 */
#include <stdio.h>
#include <stdlib.h>

#include "cupool.h"

static void check(cupool_status status) {
  if (status == CUPOOL_OK) return;
  fprintf(stderr, "%s\n", cupool_last_error());
  exit(1);
}

int main(int argc, char **argv) {
  void *stream = NULL; /* the default stream; or a cudaStream_t */
  cupool_config config;
  cupool_init(&config, sizeof config);
  config.settings = "limit:1GiB,wait_timeout:30s";
  check(cupool_open(0, &config));

  for (int step = 0; step < 1000; step++) {
    void *activations, *gradients;
    check(cupool_alloc(0, 16 << 20, stream, &activations));
    check(cupool_alloc(0, 16 << 20, stream, &gradients));
    /* ... kernels on the stream ... */
    check(cupool_free(activations)); /* at once: the stream's order keeps it safe */
    check(cupool_free(gradients));
  }

  cupool_pool_id weights;
  void *w;
  check(cupool_pool_named(0, "weights", NULL, &weights));
  check(cupool_alloc_in(0, weights, 64 << 20, stream, &w));
  if (cupool_sleep(0, weights, CUPOOL_KEEP) == CUPOOL_OK) check(cupool_wake(0, weights)); /* w is where it was */
  else fprintf(stderr, "no sleep here: %s\n", cupool_last_error());

  cupool_stats stats;
  cupool_init(&stats, sizeof stats);
  check(cupool_get_stats(0, CUPOOL_ALL, &stats));
  printf("%lld allocations, %lld of them without the driver; reserved %lld MiB, at most %lld MiB\n",
         (long long)stats.allocation.all.allocated, (long long)stats.hits, (long long)stats.reserved_bytes.all.current >> 20,
         (long long)stats.reserved_bytes.all.peak >> 20);
  if (argc > 1) check(cupool_write(0, CUPOOL_FILE_TORCH, argv[1])); /* for pytorch.org/memory_viz */
  check(cupool_free(w));
  return 0;
}
