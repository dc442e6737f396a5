/* A stream is captured, in the mode in which any other call of the driver would end that. */
#include "test.h"

static int capturing(void *user, void *stream) {
  (void)user;
  int status = 0;
  uint64_t id;
  CHECK(CU(cuStreamGetCaptureInfo, (void *, int *, uint64_t *), stream, &status, &id) == 0);
  return status == 1;
}

static void begin(void *stream) { CHECK(CU(cuStreamBeginCapture_v2, (void *, int), stream, 0 /* global */) == 0); }

static void *end(void *stream) {
  void *graph = NULL;
  CHECK(CU(cuStreamEndCapture, (void *, void **), stream, &graph) == 0);
  CHECK(graph != NULL);
  return graph;
}

int main(void) {
  use_device();
  void *stream = new_stream(), *other = new_stream(), *p[20], *q;
  cupool_pool_id id = {1, 0};
  cupool_pool_config c;
  cupool_init(&c, sizeof c);
  c.flags = CUPOOL_POOL_ISOLATED;
  OK(cupool_pool_create(0, id, &c));
  OK(cupool_alloc(0, 1000, other, &q));
  OK(cupool_alloc(0, 30 * MIB, stream, &p[0]));
  OK(cupool_record_stream(q, stream));
  OK(cupool_begin(0, id, capturing, NULL));
  begin(stream);
  for (int i = 1; i < 20; i++) {
    OK(cupool_alloc(0, (size_t)i * MIB, stream, &p[i]));
    cupool_block_info info;
    cupool_init(&info, sizeof info);
    OK(cupool_block(p[i], &info));
    CHECK(info.pool.first == 1);
    CHECK(CU(cuMemsetD8Async, (uintptr_t, unsigned char, size_t, void *), (uintptr_t)p[i], 1, 100, stream) == 0);
    if (i % 3 == 0) OK(cupool_record_stream(p[i], other));
    if (i % 2 == 0) OK(cupool_free(p[i]));
  }
  OK(cupool_free(q));    /* the captured stream was recorded on it */
  OK(cupool_free(p[0])); /* it is of the captured stream */
  OK(cupool_alloc(0, 64 * MIB, other, &q)); /* what that freed stays */
  CHECK(q != p[0]);
  OK(cupool_free(q));
  OK(cupool_collect(0, NULL));
  stats_of(CUPOOL_ALL);
  OK(cupool_set_limit(0, (size_t)stats_of(CUPOOL_ALL).reserved_bytes.all.current));
  FAILS(CUPOOL_ERROR_OUT_OF_MEMORY, cupool_alloc(0, 512 * MIB, stream, &q));
  FAILS(CUPOOL_ERROR_OUT_OF_MEMORY, cupool_alloc(0, 512 * MIB, other, &q));
  OK(cupool_set_limit(0, 0));
  cupool_wait(0); /* it may fail, and does not end the capture */
  cupool_trim(0, CUPOOL_ALL, 0, NULL);
  end(stream);
  OK(cupool_end(0, id));
  OK(cupool_wait(0));
  agree(0, CUPOOL_ALL);
  for (int i = 1; i < 20; i += 2) OK(cupool_free(p[i]));
  OK(cupool_pool_release(0, id));
  OK(cupool_pool_release(0, id)); /* which cupool_begin used, too */
  OK(cupool_wait(0));
  OK(cupool_trim(0, CUPOOL_ALL, 0, NULL));
  CHECK(stats_of(CUPOOL_ALL).reserved_bytes.all.current == 0);
  return 0;
}
