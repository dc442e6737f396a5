/* The functions of cupool.h that are Go's: arguments and structs are made whole, and the way into Go is taken. */
#include <string.h>

#include "_cgo_export.h"
#include "internal.h"

/* Calls a function of Go from a function that returns its status. */
#define ENTER(t)                \
  thread *t = cupool_enter();   \
  if (t == NULL) return cupool_refused()
#define IN_GO(call)             \
  do {                          \
    ENTER(t);                   \
    return cupool_leave(t, call); \
  } while (0)

/* Fails with CUPOOL_ERROR_INVALID where a pointer is null. */
#define NEED(p, what) \
  if ((p) == NULL) return cupool_invalid("cupool: " what " is a null pointer")

/* Makes a struct of the caller's version one of this version. */
static int whole(void *to, size_t size, const void *of) {
  size_t has = *(const size_t *)of;
  if (has < sizeof(size_t)) return 0;
  memset(to, 0, size);
  memcpy(to, of, has < size ? has : size);
  return 1;
}

#define WHOLE(type, name, of)                                                                         \
  type name;                                                                                          \
  if (!whole(&name, sizeof name, of)) return cupool_invalid("cupool: struct_size of " #type " is not set: use cupool_init")

/* Gives the caller as much of a struct as its version has, and its own struct_size. */
static cupool_status give(cupool_status status, void *to, void *of, size_t size) {
  size_t has = *(size_t *)to;
  if (status != CUPOOL_OK) return status;
  *(size_t *)of = has;
  memcpy(to, of, has < size ? has : size);
  return status;
}

cupool_status cupool_open(int device, const cupool_config *config) {
  cupool_config none = {sizeof none, NULL, 0, 0, 0, 0};
  if (config == NULL) config = &none;
  WHOLE(cupool_config, c, config);
  IN_GO(cupoolGoOpen(t, device, &c));
}

int cupool_is_open(int device) {
  thread *t = cupool_enter();
  if (t == NULL) return 0;
  int is = cupoolGoIsOpen(device);
  cupool_leave(t, CUPOOL_OK);
  return is;
}

cupool_status cupool_device_count(int *count) {
  NEED(count, "count");
  IN_GO(cupoolGoDeviceCount(t, count));
}

cupool_status cupool_settings(int device, char *text, size_t size, size_t *length) {
  IN_GO(cupoolGoSettings(t, device, text, size, length));
}

cupool_status cupool_configure(int device, const char *settings) {
  NEED(settings, "the settings");
  IN_GO(cupoolGoConfigure(t, device, (char *)settings));
}

cupool_status cupool_set_limit(int device, size_t bytes) { IN_GO(cupoolGoSetLimit(t, device, bytes)); }

cupool_status cupool_set_fraction(int device, double fraction) { IN_GO(cupoolGoSetFraction(t, device, fraction)); }

cupool_status cupool_fraction(int device, double *fraction) {
  NEED(fraction, "fraction");
  IN_GO(cupoolGoFraction(t, device, fraction));
}

cupool_status cupool_memory_info(int device, size_t *device_free, size_t *device_total, size_t *largest_free) {
  IN_GO(cupoolGoMemoryInfo(t, device, device_free, device_total, largest_free));
}

cupool_status cupool_enable_peer(int device, int peer) { IN_GO(cupoolGoEnablePeer(t, device, peer)); }

cupool_status cupool_alloc_at(int device, cupool_pool_id pool, void *p, size_t size, size_t requested, void *stream) {
  NEED(p, "the address");
  IN_GO(cupoolGoAllocAt(t, device, pool, (uintptr_t)p, size, requested, (uintptr_t)stream));
}

cupool_status cupool_record_stream(void *p, void *stream) {
  if (p == NULL) return CUPOOL_OK;
  IN_GO(cupoolGoRecordStream(t, (uintptr_t)p, (uintptr_t)stream));
}

cupool_status cupool_record_stream_on(void *p, int device, void *stream) {
  if (p == NULL) return CUPOOL_OK;
  IN_GO(cupoolGoRecordStreamOn(t, (uintptr_t)p, device, (uintptr_t)stream));
}

cupool_status cupool_forget_stream(int device, void *stream) { IN_GO(cupoolGoForgetStream(t, device, (uintptr_t)stream)); }

cupool_status cupool_wait(int device) { IN_GO(cupoolGoWait(t, device)); }

cupool_status cupool_collect(int device, size_t *blocks) { IN_GO(cupoolGoCollect(t, device, blocks)); }

cupool_status cupool_reserve(int device, size_t size, void *stream) {
  IN_GO(cupoolGoReserve(t, device, size, (uintptr_t)stream));
}

cupool_status cupool_block(const void *p, cupool_block_info *info) {
  NEED(info, "info");
  WHOLE(cupool_block_info, full, info);
  ENTER(t);
  return give(cupool_leave(t, cupoolGoBlock(t, (uintptr_t)p, &full)), info, &full, sizeof full);
}

cupool_status cupool_pool_create(int device, cupool_pool_id pool, const cupool_pool_config *config) {
  if (config == NULL) IN_GO(cupoolGoPoolCreate(t, device, pool, NULL));
  WHOLE(cupool_pool_config, c, config);
  IN_GO(cupoolGoPoolCreate(t, device, pool, &c));
}

cupool_status cupool_pool_named(int device, const char *name, const cupool_pool_config *config, cupool_pool_id *pool) {
  NEED(name, "the name");
  NEED(pool, "the place for the id");
  cupool_pool_config none = {sizeof none, NULL, 0, 0, NULL, NULL, NULL};
  if (config == NULL) config = &none;
  WHOLE(cupool_pool_config, c, config);
  IN_GO(cupoolGoPoolNamed(t, device, (char *)name, &c, pool));
}

cupool_status cupool_pool_set_flags(int device, cupool_pool_id pool, unsigned flags) {
  IN_GO(cupoolGoPoolSetFlags(t, device, pool, flags));
}

cupool_status cupool_begin(int device, cupool_pool_id pool, cupool_filter filter, void *user) {
  ENTER(t);
  if (cupool_scope_begun(device, pool, filter))
    return cupool_leave(t, cupool_say(t, CUPOOL_ERROR_EXISTS, "cupool: allocations go to the pool already: end that first"));
  cupool_status status = cupoolGoPoolCreate(t, device, pool, NULL);
  if (status == CUPOOL_OK && !cupool_scope_begin(device, pool, filter, user)) {
    cupoolGoPoolRelease(t, device, pool);
    status = cupool_say(t, CUPOOL_ERROR_EXISTS, "cupool: allocations go to the pool already, since this moment");
  }
  return cupool_leave(t, status);
}

cupool_status cupool_end(int device, cupool_pool_id pool) {
  ENTER(t);
  cupool_status status = CUPOOL_OK;
  if (!cupool_scope_end(device, pool)) status = cupool_say(t, CUPOOL_ERROR_NOT_FOUND, "cupool: nothing goes to the pool: it was not begun");
  return cupool_leave(t, status);
}

cupool_status cupool_pool_release(int device, cupool_pool_id pool) { IN_GO(cupoolGoPoolRelease(t, device, pool)); }

cupool_status cupool_pool_use_count(int device, cupool_pool_id pool, int *count) {
  NEED(count, "count");
  IN_GO(cupoolGoPoolUseCount(t, device, pool, count));
}

cupool_status cupool_trim(int device, cupool_pool_id pool, size_t keep, size_t *released) {
  IN_GO(cupoolGoTrim(t, device, pool, keep, released));
}

cupool_status cupool_sleep(int device, cupool_pool_id pool, int contents) { IN_GO(cupoolGoSleep(t, device, pool, contents)); }

cupool_status cupool_wake(int device, cupool_pool_id pool) { IN_GO(cupoolGoWake(t, device, pool)); }

cupool_status cupool_get_stats(int device, cupool_pool_id pool, cupool_stats *stats) {
  NEED(stats, "stats");
  WHOLE(cupool_stats, full, stats);
  ENTER(t);
  return give(cupool_leave(t, cupoolGoStats(t, device, pool, &full)), stats, &full, sizeof full);
}

cupool_status cupool_reset_peaks(int device) { IN_GO(cupoolGoResetPeaks(t, device)); }

cupool_status cupool_reset_accumulated(int device) { IN_GO(cupoolGoResetAccumulated(t, device)); }

cupool_status cupool_last_oom(int device, cupool_oom *oom) {
  NEED(oom, "oom");
  WHOLE(cupool_oom, full, oom);
  ENTER(t);
  return give(cupool_leave(t, cupoolGoLastOOM(t, device, &full)), oom, &full, sizeof full);
}

cupool_status cupool_labels(int device, void (*each)(void *user, const cupool_label_stats *label), void *user) {
  NEED(each, "the function");
  label_visit v = {each, user};
  IN_GO(cupoolGoLabels(t, device, &v));
}

cupool_status cupool_forget_labels(int device) { IN_GO(cupoolGoForgetLabels(t, device)); }

cupool_status cupool_history_start(int device, size_t events, size_t sample_bytes) {
  IN_GO(cupoolGoHistoryStart(t, device, events, sample_bytes));
}

cupool_status cupool_history_stop(int device) { IN_GO(cupoolGoHistoryStop(t, device)); }

int cupool_history_enabled(int device) {
  thread *t = cupool_enter();
  if (t == NULL) return 0;
  int on = cupoolGoHistoryEnabled(t, device);
  cupool_leave(t, CUPOOL_OK);
  return on;
}

cupool_status cupool_snapshot(int device, cupool_pool_id pool, const cupool_visitor *visitor) {
  NEED(visitor, "the visitor");
  WHOLE(cupool_visitor, v, visitor);
  IN_GO(cupoolGoSnapshot(t, device, pool, &v));
}

cupool_status cupool_write(int device, int format, const char *path) {
  NEED(path, "the path");
  IN_GO(cupoolGoWrite(t, device, format, (char *)path));
}

cupool_status cupool_serve(const char *address, char *url, size_t size) {
  NEED(address, "the address");
  IN_GO(cupoolGoServe(t, (char *)address, url, size));
}

cupool_status cupool_serve_stop(void) { IN_GO(cupoolGoServeStop(t)); }

cupool_status cupool_set_callbacks(int device, const cupool_callbacks *callbacks) {
  if (callbacks == NULL) IN_GO(cupoolGoSetCallbacks(t, device, NULL));
  WHOLE(cupool_callbacks, c, callbacks);
  IN_GO(cupoolGoSetCallbacks(t, device, &c));
}

cupool_status cupool_export(const void *p, size_t size, size_t *skip, cupool_piece *pieces, size_t *count) {
  NEED(skip, "the place for skip");
  NEED(count, "count");
  IN_GO(cupoolGoExport(t, (uintptr_t)p, size, skip, pieces, count));
}

cupool_status cupool_import(int device, size_t skip, size_t size, const cupool_piece *pieces, size_t count, void **p) {
  NEED(p, "the place for the address");
  NEED(pieces, "the pieces");
  *p = NULL;
  IN_GO(cupoolGoImport(t, device, skip, size, (cupool_piece *)pieces, count, (uintptr_t *)p));
}

cupool_status cupool_unimport(int device, void *p) { IN_GO(cupoolGoUnimport(t, device, (uintptr_t)p)); }

/* Calls of functions of the program. Those that may allocate are not called for that again. */

void cupool_call_before_grow(const cupool_callbacks *c, int device, size_t size) {
  thread *t = cupool_thread();
  if (t == NULL || t->asking) return;
  t->asking = 1;
  c->before_grow(c->user, device, size);
  t->asking = 0;
}

int cupool_call_on_oom(const cupool_callbacks *c, int device, size_t size) {
  thread *t = cupool_thread();
  if (t == NULL || t->asking) return 0;
  t->asking = 1;
  int more = c->on_oom(c->user, device, size);
  t->asking = 0;
  return more;
}

/* Those that are called with locks held. */

static void called(int more) {
  thread *t = cupool_thread();
  if (t != NULL) t->called += more;
}

void cupool_call_segment(const cupool_callbacks *c, int device, int action, cupool_pool_id pool, uintptr_t address, size_t size,
                         uintptr_t stream) {
  called(1);
  c->segment(c->user, device, (cupool_segment_action)action, pool, (void *)address, size, (void *)stream);
  called(-1);
}

uintptr_t cupool_call_alloc(const cupool_pool_config *c, size_t size, int device, uintptr_t stream) {
  called(1);
  uintptr_t p = (uintptr_t)c->alloc(c->user, size, device, (void *)stream);
  called(-1);
  return p;
}

void cupool_call_free(const cupool_pool_config *c, uintptr_t p, size_t size, int device, uintptr_t stream) {
  called(1);
  c->free(c->user, (void *)p, size, device, (void *)stream);
  called(-1);
}

/* Others. */

int cupool_call_visit_segment(const cupool_visitor *v, const cupool_segment *s) { return v->segment(v->user, s); }

int cupool_call_visit_block(const cupool_visitor *v, const cupool_block_entry *b) { return v->block(v->user, b); }

int cupool_call_visit_event(const cupool_visitor *v, const cupool_event *e) { return v->event(v->user, e); }

void cupool_call_label(const label_visit *v, const cupool_label_stats *s) { v->each(v->user, s); }

#ifdef CUPOOL_TEST
CUPOOL_API cupool_status cupool_test_panic(int how) { IN_GO(cupoolGoPanic(t, how)); }
#endif
