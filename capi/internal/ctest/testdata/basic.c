/* Each function of the interface once, what it does and how it fails. */
#include "test.h"

#include <math.h>
#include <pthread.h>

static int grown, asked, mapped, unmapped, labels;
static void *spare, *told;

static void before_grow(void *user, int device, size_t size) {
  CHECK(user == &grown && device == 0 && size > 0);
  cupool_stats s = stats_of(CUPOOL_MAIN); /* it may call cupool */
  CHECK(s.reserved_bytes.all.current >= 0);
  grown++;
}

static int on_oom(void *user, int device, size_t size) {
  CHECK(user == &grown && device == 0 && size > 0);
  asked++;
  if (spare == NULL) return 0;
  OK(cupool_free(spare));
  spare = NULL;
  return 1;
}

static void segment(void *user, int device, cupool_segment_action action, cupool_pool_id pool, void *address, size_t size,
                    void *stream) {
  (void)device, (void)pool;
  CHECK(user == &grown && address != NULL && size > 0);
  if (action == CUPOOL_SEGMENT_ALLOC || action == CUPOOL_SEGMENT_MAP) mapped++, told = stream;
  else unmapped++;
}

static void each_label(void *user, const cupool_label_stats *l) {
  CHECK(user == &labels);
  if (strcmp(l->label, "weights") == 0) {
    CHECK(l->blocks.current == 1 && l->bytes.current == 1000 && l->bytes.peak == 1000);
    labels++;
  }
}

static int events;
static int each_event(void *user, const cupool_event *e) {
  (void)user;
  events++;
  CHECK(strlen(e->action) > 2 && e->time > 1700000000000000000);
  return 0;
}

static int stop_at_once(void *user, const cupool_segment *s) {
  (void)s;
  return ++*(int *)user;
}

static int has(const char *path, const char *text) {
  static char content[1 << 20];
  FILE *f = fopen(path, "r");
  CHECK(f != NULL);
  size_t n = fread(content, 1, sizeof content, f);
  fclose(f);
  return memmem(content, n, text, strlen(text)) != NULL;
}

/* A thread without a context has none after calls that used the driver. */
static void *without_context(void *recorded) {
  void *p, *context;
  CHECK(CU(cuCtxGetCurrent, (void **), &context) == 0 && context == NULL);
  OK(cupool_alloc(1, 30 * MIB, NULL, &p));
  CHECK(CU(cuCtxGetCurrent, (void **), &context) == 0 && context == NULL);
  FAILS(CUPOOL_ERROR_FOREIGN_STREAM, cupool_record_stream(p, recorded)); /* of device 0 */
  CHECK(CU(cuCtxGetCurrent, (void **), &context) == 0 && context == NULL);
  OK(cupool_free(p));
  OK(cupool_trim(1, CUPOOL_ALL, 0, NULL));
  CHECK(CU(cuCtxGetCurrent, (void **), &context) == 0 && context == NULL);
  return NULL;
}

/* A block waits for a stream of the other device, also for what that was given after it was recorded. */
static void recorded_on_peer(void) {
  void *here, *there, *p, *large, *own = new_stream();
  CHECK(CU(cuCtxGetCurrent, (void **), &here) == 0);
  CHECK(CU(cuDevicePrimaryCtxRetain, (void **, int), &there, 1) == 0 && CU(cuCtxSetCurrent, (void *), there) == 0);
  void *streams[] = {new_stream(), NULL};
  for (int i = 0; i < 2; i++) {
    void *far = streams[i];
    OK(cupool_alloc(1, 64 * MIB, far, &large));
    OK(cupool_alloc(0, 8 * MIB, NULL, &p));
    uintptr_t was = (uintptr_t)p;
    OK(cupool_record_stream_on(p, 1, far));
    OK(cupool_record_stream_on(p, 1, far));
    for (int n = 0; n < 20; n++) {
      CHECK(CU(cuMemsetD8Async, (uintptr_t, unsigned char, size_t, void *), (uintptr_t)large, 1, 64 * MIB, far) == 0);
    }
    OK(cupool_free(p));
    OK(cupool_collect(0, NULL));
    OK(cupool_alloc(0, 8 * MIB, NULL, &p));
    CHECK((uintptr_t)p != was || CU(cuStreamQuery, (void *), far) == 0);
    OK(cupool_free(p));
    OK(cupool_free(large));
    OK(cupool_wait(0)); /* for the other device's stream, too */
    CHECK(CU(cuStreamQuery, (void *), far) == 0);
  }
  OK(cupool_alloc(0, 1000, NULL, &p));
  FAILS(CUPOOL_ERROR_INVALID, cupool_record_stream_on(p, 99, NULL));
  FAILS(CUPOOL_ERROR_FOREIGN_STREAM, cupool_record_stream_on(p, 1, own));
  FAILS(CUPOOL_ERROR_FOREIGN_STREAM, cupool_record_stream_on(p, 1, (void *)2)); /* CU_STREAM_PER_THREAD */
  OK(cupool_record_stream_on(p, 0, own));
  OK(cupool_record_stream_on(NULL, 1, NULL));
  OK(cupool_record_stream_on(p, 1, streams[0]));
  OK(cupool_free(p));
  FAILS(CUPOOL_ERROR_DOUBLE_FREE, cupool_record_stream_on(p, 1, streams[0]));

  /* What the stream is given later is not waited for: not what is captured, either. */
  void *graph, *far = streams[0];
  OK(cupool_wait(0));
  OK(cupool_alloc(0, 3 * MIB, NULL, &p));
  OK(cupool_record_stream_on(p, 1, far));
  int64_t live = stats_of(CUPOOL_MAIN).allocation.all.current;
  CHECK(CU(cuStreamBeginCapture_v2, (void *, int), far, 0) == 0);
  OK(cupool_wait(0));
  OK(cupool_trim(0, CUPOOL_ALL, 0, NULL));
  OK(cupool_free(p)); /* when the capture is over */
  CHECK(stats_of(CUPOOL_MAIN).allocation.all.current == live);
  FAILS(CUPOOL_ERROR_DOUBLE_FREE, cupool_free(p));
  FAILS(CUPOOL_ERROR_DOUBLE_FREE, cupool_record_stream_on(p, 1, NULL));
  CHECK(CU(cuStreamEndCapture, (void *, void **), far, &graph) == 0 && CU(cuGraphDestroy, (void *), graph) == 0);
  OK(cupool_collect(0, NULL));
  CHECK(stats_of(CUPOOL_MAIN).allocation.all.current == live - 1);

  /* A pool sleeps when that is done with its blocks. */
  OK(cupool_alloc(1, 64 * MIB, far, &large));
  OK(cupool_alloc(0, 8 * MIB, NULL, &p));
  OK(cupool_record_stream_on(p, 1, far));
  CHECK(CU(cuStreamBeginCapture_v2, (void *, int), far, 0) == 0);
  FAILS(CUPOOL_ERROR_NOT_SUPPORTED, cupool_sleep(0, CUPOOL_MAIN, CUPOOL_DROP));
  CHECK(CU(cuStreamEndCapture, (void *, void **), far, &graph) == 0 && CU(cuGraphDestroy, (void *), graph) == 0);
  for (int n = 0; n < 20; n++) {
    CHECK(CU(cuMemsetD8Async, (uintptr_t, unsigned char, size_t, void *), (uintptr_t)large, 1, 64 * MIB, far) == 0);
  }
  OK(cupool_sleep(0, CUPOOL_MAIN, CUPOOL_DROP));
  CHECK(CU(cuStreamQuery, (void *), far) == 0);
  OK(cupool_wake(0, CUPOOL_MAIN));
  OK(cupool_free(p));
  OK(cupool_free(large));

  OK(cupool_alloc(0, 1000, NULL, &p));
  OK(cupool_record_stream_on(p, 1, far));
  OK(cupool_forget_stream(1, far));
  OK(cupool_forget_stream(1, far));
  CHECK(CU(cuStreamDestroy_v2, (void *), streams[0]) == 0 && CU(cuCtxSetCurrent, (void *), here) == 0);
  OK(cupool_free(p));
  OK(cupool_forget_stream(0, own));
  OK(cupool_wait(0));
  OK(cupool_collect(0, NULL));
}

/* The other device is lost: it runs nothing, and this one goes on. */
static void peer_is_lost(void) {
  void *p;
  OK(cupool_alloc(0, 8 * MIB, NULL, &p));
  OK(cupool_record_stream_on(p, 1, NULL));
  ((void (*)(const char *, int, int, int))driver("fakecuda_fail"))("cuStreamSynchronize", 1, 719, 1);
  FAILS(CUPOOL_ERROR_DEVICE_LOST, cupool_wait(1));
  OK(cupool_free(p));
  OK(cupool_alloc(0, 3 * MIB, NULL, &p));
  OK(cupool_free(p));
  OK(cupool_wait(0));
}

int main(int argc, char **argv) {
  CHECK(argc == 2); /* a folder */
  CHECK(cupool_version() == CUPOOL_VERSION);
  CHECK(cupool_last_status() == CUPOOL_OK && *cupool_last_error() == 0);
  CHECK(strcmp(cupool_status_name(CUPOOL_ERROR_FORKED), "forked") == 0 && strcmp(cupool_status_name(99), "unknown") == 0);
  int count;
  OK(cupool_device_count(&count));
  CHECK(count == 2 && !cupool_is_open(0));
  use_device();
  char path[4096];
  for (int format = 0; format < 3; format++) { /* of no pool */
    snprintf(path, sizeof path, "%s/empty%d", argv[1], format);
    OK(cupool_write(-1, format, path));
  }
  CHECK(has(path, "[]"));
  FAILS(CUPOOL_ERROR_INVALID, cupool_write(-2, 0, path));

  /* Opening. */
  cupool_config c;
  memset(&c, 0, sizeof c);
  FAILS(CUPOOL_ERROR_INVALID, cupool_open(0, &c));
  cupool_init(&c, sizeof c);
  c.settings = "no_such_key:1";
  FAILS(CUPOOL_ERROR_CONFIG, cupool_open(0, &c));
  CHECK(strstr(cupool_last_error(), "no_such_key") != NULL);
  c.settings = NULL, c.no_environment = 1, c.limit = SIZE_MAX;
  FAILS(CUPOOL_ERROR_CONFIG, cupool_open(0, &c));
  c.limit = 0;
  const double impossible[] = {2, -1, NAN};
  for (int i = 0; i < 3; i++) {
    c.fraction = impossible[i];
    FAILS(CUPOOL_ERROR_CONFIG, cupool_open(0, &c));
  }
  c.settings = "initial_size:1GiB", c.fraction = 0.1; /* of 4 GiB */
  FAILS(CUPOOL_ERROR_CONFIG, cupool_open(0, &c));
  c.limit = 100 * MIB, c.fraction = 0;
  FAILS(CUPOOL_ERROR_CONFIG, cupool_open(0, &c));
  CHECK(strstr(cupool_last_error(), "initial_size = 1G") != NULL && !cupool_is_open(0));
  cupool_init(&c, sizeof c);
  FAILS(CUPOOL_ERROR_NO_DEVICE, cupool_open(7, NULL));
  FAILS(CUPOOL_ERROR_INVALID, cupool_open(-1, NULL));
  FAILS(CUPOOL_ERROR_INVALID, cupool_open(64, NULL));
  c.settings = "expandable_segments:True,pinned_use_cuda_host_register:True,backend:native,roundup_power2_divisions:[256:1,>:2], idle_ order : device";
  c.no_environment = 1;
  OK(cupool_open(1, &c));
  cupool_init(&c, sizeof c);
  OK(cupool_open(0, &c));
  FAILS(CUPOOL_ERROR_EXISTS, cupool_open(0, NULL));
  CHECK(cupool_is_open(0) && cupool_is_open(1) && !cupool_is_open(2));
  char text[8192];
  size_t length;
  OK(cupool_settings(0, text, sizeof text, &length));
  CHECK(length == strlen(text) && strstr(text, "idle_order:device (default)") != NULL);
  OK(cupool_settings(1, text, sizeof text, NULL));
  CHECK(strstr(text, "idle_order:device (program)") != NULL);
  OK(cupool_settings(0, text, 5, &length));
  CHECK(strlen(text) == 4 && length > 100);
  OK(cupool_settings(0, text, SIZE_MAX, NULL));
  CHECK(strlen(text) == length);

  /* Memory. */
  void *p, *q, *stream = new_stream();
  OK(cupool_alloc(0, 0, NULL, &p));
  CHECK(p == NULL);
  OK(cupool_free(NULL));
  OK(cupool_alloc(0, 1000, stream, &p));
  CHECK(p != NULL && (uintptr_t)p % 512 == 0);
  FAILS(CUPOOL_ERROR_INVALID, cupool_alloc(0, 1000, stream, NULL));
  const size_t huge[] = {(size_t)1 << 63, SIZE_MAX};
  for (int i = 0; i < 2; i++) {
    FAILS(CUPOOL_ERROR_INVALID, cupool_alloc(0, huge[i], NULL, &q));
    CHECK(strchr(cupool_last_error(), '-') == NULL);
    FAILS(CUPOOL_ERROR_INVALID, cupool_reserve(0, huge[i], NULL));
    CHECK(strchr(cupool_last_error(), '-') == NULL);
  }
  CHECK(q == NULL);
  FAILS(CUPOOL_ERROR_FOREIGN_STREAM, cupool_alloc(0, 1000, (void *)2, &q));
  FAILS(CUPOOL_ERROR_INTERIOR_POINTER, cupool_free((char *)p + 512));
  FAILS(CUPOOL_ERROR_FOREIGN_POINTER, cupool_free(&p));
  cupool_block_info info;
  cupool_init(&info, sizeof info);
  OK(cupool_block((char *)p + 999, &info));
  CHECK(info.live && info.address == p && info.size == 1024 && info.requested == 1000 && info.stream == stream && info.device == 0);
  CHECK(info.base <= p && (char *)info.base + info.base_size >= (char *)p + 1024);
  OK(cupool_record_stream(p, NULL));
  OK(cupool_record_stream((char *)p + 999, stream));
  OK(cupool_record_stream(NULL, stream));
  OK(cupool_free(p));
  OK(cupool_wait(0));
  FAILS(CUPOOL_ERROR_DOUBLE_FREE, cupool_free(p));
  FAILS(CUPOOL_ERROR_DOUBLE_FREE, cupool_record_stream(p, NULL));
  OK(cupool_collect(0, NULL));
  OK(cupool_alloc(1, 1000, NULL, &q));
  OK(cupool_free(q)); /* of the other device */
  for (int i = 0; i < 100; i++) { /* the fast way */
    OK(cupool_alloc(0, 4096, stream, &p));
    OK(cupool_free(p));
    FAILS(CUPOOL_ERROR_DOUBLE_FREE, cupool_free(p));
  }
  OK(cupool_alloc(0, 0, NULL, &p)); /* beside hints that were never filled in */
  CHECK(p == NULL);
  agree(0, CUPOOL_MAIN);
  cupool_stats s = stats_of(CUPOOL_MAIN);
  CHECK(s.allocation.all.allocated == 101 && s.allocation.all.freed == 101 && s.allocated_bytes.all.allocated == 1024 + 100 * 4096);
  OK(cupool_reset_accumulated(0));
  sums_were_reset = 1;
  OK(cupool_reset_peaks(0));
  s = stats_of(CUPOOL_ALL);
  CHECK(s.allocation.all.allocated == 0 && s.allocated_bytes.all.freed == 0 && s.allocated_bytes.all.peak == s.allocated_bytes.all.current);
  cupool_stats old;
  memset(&old, 0x55, sizeof old);
  old.struct_size = offsetof(cupool_stats, segment); /* a program of an earlier version */
  OK(cupool_get_stats(0, CUPOOL_MAIN, &old));
  CHECK(old.allocation.all.current == 0 && old.segment.all.current == 0x5555555555555555 && old.struct_size == offsetof(cupool_stats, segment));

  /* What is pending is active still, also as requested. */
  void (*fail)(const char *, int, int, int) = (void (*)(const char *, int, int, int))driver("fakecuda_fail");
  OK(cupool_alloc(0, 3 * MIB + 1, stream, &p));
  OK(cupool_record_stream(p, NULL));
  fail("cuEventQuery", 1, 600, 1000);
  OK(cupool_free(p));
  OK(cupool_alloc(0, 5 * MIB, stream, &q));
  s = stats_of(CUPOOL_MAIN);
  CHECK(s.requested_bytes.all.current == (int64_t)(8 * MIB + 1) && s.requested_bytes.large.peak == (int64_t)(8 * MIB + 1));
  ((void (*)(void))driver("fakecuda_reset"))();
  OK(cupool_free(q));
  OK(cupool_wait(0));
  s = stats_of(CUPOOL_MAIN);
  CHECK(s.requested_bytes.all.current == 0 && s.requested_bytes.all.peak == (int64_t)(8 * MIB + 1));

  /* Labels. */
  OK(cupool_label_push("outer"));
  OK(cupool_label_push("weights"));
  OK(cupool_alloc(0, 1000, NULL, &p));
  OK(cupool_label_pop());
  OK(cupool_label_pop());
  FAILS(CUPOOL_ERROR_INVALID, cupool_label_pop());
  OK(cupool_labels(0, each_label, &labels));
  CHECK(labels == 1);
  OK(cupool_forget_labels(0));
  OK(cupool_labels(0, each_label, &labels));
  CHECK(labels == 2); /* a block stands under it */
  OK(cupool_free(p));
  OK(cupool_forget_labels(0));
  OK(cupool_labels(0, each_label, &labels));
  CHECK(labels == 2);
  OK(cupool_label_push("weights"));
  OK(cupool_alloc(0, 1000, NULL, &p));
  OK(cupool_label_pop());

  pthread_t other;
  CHECK(pthread_create(&other, NULL, without_context, stream) == 0 && pthread_join(other, NULL) == 0);

  /* Histories and files. */
  CHECK(!cupool_history_enabled(0));
  CHECK(cupool_history_start(0, 5000000000, 0) == CUPOOL_ERROR_CONFIG && strstr(cupool_last_error(), " 5000000000:"));
  CHECK(!cupool_history_enabled(0));
  OK(cupool_history_start(0, 1000, 1));
  CHECK(cupool_history_enabled(0));
  OK(cupool_alloc(0, 5 * MIB, NULL, &q));
  OK(cupool_free(q));
  OK(cupool_history_stop(0));
  cupool_visitor v;
  cupool_init(&v, sizeof v);
  v.event = each_event;
  OK(cupool_snapshot(0, CUPOOL_ALL, &v));
  CHECK(events >= 3);
  int visits = 0;
  v.event = NULL, v.segment = stop_at_once, v.user = &visits;
  OK(cupool_snapshot(0, CUPOOL_ALL, &v));
  CHECK(visits == 1);
  const char *const what[] = {"segment_pool_id", "\x1f\x8b", "\"segments\""};
  for (int format = 0; format < 3; format++) {
    snprintf(path, sizeof path, "%s/file%d", argv[1], format);
    OK(cupool_write(-1, format, path));
    CHECK(has(path, what[format]));
  }
  FAILS(CUPOOL_ERROR_INVALID, cupool_write(0, 9, path));
  FAILS(CUPOOL_ERROR_IO, cupool_write(0, 0, "/no/such/folder/file"));
  char url[200];
  OK(cupool_serve("127.0.0.1:0", url, sizeof url));
  CHECK(strncmp(url, "http://127.0.0.1:", 17) == 0 && strstr(url, "/debug/cupool/") != NULL);
  FAILS(CUPOOL_ERROR_EXISTS, cupool_serve("127.0.0.1:0", NULL, 0));
  OK(cupool_serve_stop());
  FAILS(CUPOOL_ERROR_NOT_FOUND, cupool_serve_stop());
  FAILS(CUPOOL_ERROR_IO, cupool_serve("no such address", NULL, 0));
  FAILS(CUPOOL_ERROR_INVALID, cupool_serve("", NULL, 0));

  /* Limits, callbacks, and running out of memory. */
  cupool_callbacks callbacks;
  cupool_init(&callbacks, sizeof callbacks);
  callbacks.before_grow = before_grow, callbacks.on_oom = on_oom, callbacks.segment = segment, callbacks.user = &grown;
  OK(cupool_set_callbacks(0, &callbacks));
  OK(cupool_free(p));
  OK(cupool_trim(0, CUPOOL_ALL, 0, NULL));
  s = stats_of(CUPOOL_ALL);
  CHECK(s.reserved_bytes.all.current == 0 && s.num_sync_all_streams == 1);
  CHECK(unmapped > 0);
  cupool_oom oom;
  cupool_init(&oom, sizeof oom);
  FAILS(CUPOOL_ERROR_NOT_FOUND, cupool_last_oom(0, &oom));
  OK(cupool_set_limit(0, 120 * MIB));
  void *big[3];
  OK(cupool_history_start(0, 0, 1));
  for (int i = 0; i < 3; i++) OK(cupool_alloc(0, 40 * MIB, NULL, &big[i]));
  s = stats_of(CUPOOL_MAIN);
  CHECK(s.reserved_bytes.all.current == (int64_t)(120 * MIB) && s.limit == (int64_t)(120 * MIB));
  CHECK(grown == 3 && mapped >= 3 && asked == 0);
  FAILS(CUPOOL_ERROR_OUT_OF_MEMORY, cupool_alloc(0, 40 * MIB, NULL, &p));
  CHECK(p == NULL && asked == 1 && strstr(cupool_last_error(), "out of memory") != NULL && strstr(cupool_last_error(), "limit") != NULL);
  CHECK(strstr(cupool_last_error(), "raise limit or fraction") != NULL && strstr(cupool_last_error(), "by cupool_set_limit") != NULL);
  CHECK(strstr(cupool_last_error(), "give it names by cupool_label_push") != NULL && strstr(cupool_last_error(), "main.") == NULL);
  OK(cupool_write(0, CUPOOL_FILE_JSON, path)); /* stacks of Go say nothing here */
  CHECK(has(path, "\"events\"") && !has(path, "cupoolGo"));
  OK(cupool_history_stop(0));
  OK(cupool_last_oom(0, &oom));
  CHECK(oom.requested == (int64_t)(40 * MIB) && oom.live == (int64_t)(120 * MIB) && oom.limit == (int64_t)(120 * MIB));
  CHECK(stats_of(CUPOOL_MAIN).num_ooms == 1);
  spare = big[2];
  OK(cupool_alloc(0, 40 * MIB, NULL, &big[2]));
  CHECK(asked == 2);
  double fraction;
  OK(cupool_set_fraction(0, 0.5));
  OK(cupool_fraction(0, &fraction));
  CHECK(fraction == 0.5);
  OK(cupool_set_fraction(0, 0));
  OK(cupool_fraction(0, &fraction));
  CHECK(fraction == 0);
  OK(cupool_set_fraction(0, 0.5));
  OK(cupool_alloc(0, 40 * MIB, NULL, &p));
  OK(cupool_set_fraction(0, 1));
  CHECK(stats_of(CUPOOL_MAIN).limit == 0);
  FAILS(CUPOOL_ERROR_INVALID, cupool_set_fraction(0, 1.5));
  for (int i = 0; i < 3; i++) OK(cupool_free(big[i]));
  OK(cupool_free(p));
  size_t free_bytes, total, largest, released;
  OK(cupool_memory_info(0, &free_bytes, &total, &largest));
  CHECK(free_bytes <= total && largest >= 40 * MIB);
  OK(cupool_trim(0, CUPOOL_MAIN, SIZE_MAX, &released));
  CHECK(released == 0);
  OK(cupool_trim(0, CUPOOL_MAIN, 64 * MIB, &released));
  CHECK(released > 0 && stats_of(CUPOOL_MAIN).reserved_bytes.all.current <= (int64_t)(64 * MIB));
  OK(cupool_trim(0, CUPOOL_MAIN, 0, NULL));
  OK(cupool_reserve(0, 30 * MIB, stream));
  CHECK(told == stream);
  OK(cupool_trim(0, CUPOOL_MAIN, 0, NULL));
  OK(cupool_set_callbacks(0, NULL));
  int before = mapped;
  OK(cupool_reserve(0, 30 * MIB, stream));
  CHECK(mapped == before);
  CHECK(stats_of(CUPOOL_MAIN).reserved_bytes.all.current >= (int64_t)(30 * MIB));
  OK(cupool_alloc(0, 30 * MIB, stream, &p));
  OK(cupool_free(p));
  OK(cupool_forget_stream(0, stream));
  OK(cupool_forget_stream(0, stream));
  OK(cupool_enable_peer(0, 1));
  OK(cupool_enable_peer(0, 1));
  recorded_on_peer();
  agree(0, CUPOOL_ALL);
  agree(1, CUPOOL_ALL);

  /* What can change. */
  FAILS(CUPOOL_ERROR_INVALID, cupool_configure(0, NULL));
  FAILS(CUPOOL_ERROR_CONFIG, cupool_configure(0, "divisions:4,decay:5s"));
  CHECK(strstr(cupool_last_error(), "decay") != NULL);
  OK(cupool_configure(0, "roundup_power2_divisions:4,garbage_collection_threshold:0.5,max_split_size_mb:64"));
  OK(cupool_settings(0, text, sizeof text, &length));
  CHECK(strstr(text, "divisions:4 (program)") != NULL && strstr(text, "garbage_collection_threshold:0.5 (program)") != NULL);
  OK(cupool_alloc(0, 84 * MIB, NULL, &p));
  CHECK(stats_of(CUPOOL_MAIN).active_bytes.all.current == (int64_t)(96 * MIB));
  OK(cupool_free(p));
  OK(cupool_configure(0, "divisions:1,garbage_collection_threshold:0,max_split:0,limit:100M"));
  FAILS(CUPOOL_ERROR_OUT_OF_MEMORY, cupool_alloc(0, 101 * MIB, NULL, &p));
  CHECK(stats_of(CUPOOL_ALL).limit == (int64_t)(100 * MIB));
  OK(cupool_settings(0, text, sizeof text, &length));
  CHECK(strstr(text, "limit:100M (program)") != NULL);
  OK(cupool_configure(0, "divisions:1, li mit : 200 M"));
  CHECK(stats_of(CUPOOL_ALL).limit == (int64_t)(200 * MIB));
  OK(cupool_configure(0, "limit:0"));
  CHECK(stats_of(CUPOOL_ALL).limit == 0);
  OK(cupool_set_fraction(0, 0.5));
  OK(cupool_settings(0, text, sizeof text, &length));
  CHECK(strstr(text, "limit:0 (default)\nfraction:0.5 (program)\n") == text);
  OK(cupool_set_limit(0, 0));

  /* PyTorch's plain interface. */
  p = cupool_torch_alloc(1000, 0, NULL);
  CHECK(p != NULL);
  cupool_torch_record_stream(p, NULL);
  cupool_torch_free(p, 1000, 0, NULL);

  peer_is_lost();
  return 0;
}
