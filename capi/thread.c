/* What a thread has of the library, its way into Go and back, and the child of a fork. */
#define _GNU_SOURCE
#include "internal.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef MADV_WIPEONFORK
#define MADV_WIPEONFORK 18
#endif

/* Eight bytes of static TLS, beside those of Go's runtime. */
static __thread thread *self __attribute__((tls_model("initial-exec")));
static pthread_key_t key;

/* Not 0 in the process that loaded the library. The page is empty in a child, however that
 * was made; where the kernel cannot do that, the handler of fork empties it. */
static int without_page;
static volatile int *ours = &without_page;

static void in_child(void) { *ours = 0; }

static void drop(void *of) {
  thread *t = of;
  self = NULL;
  for (int i = 0; i < t->labels; i++) free(t->label[i]);
  free(t->text);
  free(t);
}

__attribute__((constructor)) static void load(void) {
  void *page = mmap(NULL, (size_t)sysconf(_SC_PAGESIZE), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page != MAP_FAILED) {
    ours = page;
    madvise(page, (size_t)sysconf(_SC_PAGESIZE), MADV_WIPEONFORK);
  }
  *ours = 1;
  pthread_atfork(NULL, NULL, in_child);
  pthread_key_create(&key, drop);
}

thread *cupool_thread(void) {
  static _Atomic uint64_t threads;
  if (self == NULL && (self = calloc(1, sizeof *self)) != NULL) {
    self->serial = atomic_fetch_add(&threads, 1) + 1;
    pthread_setspecific(key, self);
  }
  return self;
}

cupool_status cupool_fail(thread *t, cupool_status status, const char *text, size_t length) {
  if (t == NULL) return status;
  t->status = status;
  if (text == NULL) text = "", length = 0;
  if (length + 1 > t->room) {
    char *more = realloc(t->text, length + 1);
    if (more == NULL) {
      if (t->room > 0) t->text[0] = 0;
      return status;
    }
    t->text = more, t->room = length + 1;
  }
  memcpy(t->text, text, length);
  t->text[length] = 0;
  return status;
}

cupool_status cupool_say(thread *t, cupool_status status, const char *text) { return cupool_fail(t, status, text, strlen(text)); }

static cupool_status forked(void) {
  return cupool_say(cupool_thread(), CUPOOL_ERROR_FORKED,
             "cupool: this process was forked from the one that loaded the library, and has no pool: load it after the fork, "
             "as by multiprocessing's start method \"spawn\"");
}

cupool_status cupool_invalid(const char *text) { return cupool_say(cupool_thread(), CUPOOL_ERROR_INVALID, text); }

thread *cupool_enter(void) {
  if (!*ours) {
    forked();
    return NULL;
  }
  thread *t = cupool_thread();
  if (t == NULL) return NULL;
  if (t->called > 0) {
    cupool_say(t, CUPOOL_ERROR_BUSY, "cupool: called from a function of the program that a pool calls with its locks held, which may free only");
    return NULL;
  }
  t->inside++;
  return t;
}

/* Why enter returned null. */
cupool_status cupool_refused(void) {
  if (!*ours) return CUPOOL_ERROR_FORKED;
  return self != NULL && self->called > 0 ? CUPOOL_ERROR_BUSY : CUPOOL_ERROR_INTERNAL;
}

/* The mode of captures of a thread, and its context, of the driver. */
typedef int (*exchange_mode)(int *mode);
typedef int (*get_context)(void **context);
typedef int (*set_context)(void *context);
static _Atomic(exchange_mode) exchange;
static _Atomic(get_context) context_of;
static _Atomic(set_context) set_context_of;

enum { CAPTURE_MODE_RELAXED = 2 };

void cupool_find_exchange(const char *library) {
  void *driver = dlopen(library, RTLD_NOW | RTLD_LOCAL);
  if (driver == NULL) return;
  exchange = (exchange_mode)dlsym(driver, "cuThreadExchangeStreamCaptureMode");
  set_context_of = (set_context)dlsym(driver, "cuCtxSetCurrent");
  context_of = (get_context)dlsym(driver, "cuCtxGetCurrent");
}

static void swap_mode(int *mode) {
  exchange_mode f = exchange;
  if (f != NULL) f(mode);
}

/* Whether the thread has no context. Go leaves a device's to one that had none, and the CUDA runtime would take that
 * device for the thread's. */
static int is_bare(void) {
  get_context f = context_of;
  void *context = NULL;
  return f != NULL && (f(&context) != 0 || context == NULL); /* it fails before the driver is begun */
}

/* Has the thread's next calls of the driver leave captures alone, until its call of the library
 * ends. A thread of Go's own that is in none gets 1, and restores by itself. */
int cupool_relax(void) {
  thread *t = cupool_thread();
  if (t == NULL || t->relaxed) return 0;
  t->relaxed = 1, t->mode = CAPTURE_MODE_RELAXED, t->bare = is_bare();
  swap_mode(&t->mode);
  return t->inside == 0;
}

void cupool_restore(void) {
  thread *t = self;
  if (t == NULL || !t->relaxed) return;
  t->relaxed = 0;
  swap_mode(&t->mode);
  set_context f = set_context_of;
  if (t->bare && f != NULL) f(NULL);
}

cupool_status cupool_leave(thread *t, cupool_status status) {
  if (--t->inside == 0) cupool_restore();
  return status;
}

uintptr_t cupool_current_stream(void) { return self == NULL ? 0 : self->stream; }

/* The functions that have to do with no pool. */

const char *cupool_last_error(void) { return self == NULL || self->text == NULL ? "" : self->text; }

cupool_status cupool_last_status(void) { return self == NULL ? CUPOOL_OK : self->status; }

int cupool_version(void) { return CUPOOL_VERSION; }

void cupool_init(void *of, size_t struct_size) {
  memset(of, 0, struct_size);
  *(size_t *)of = struct_size;
}

const char *cupool_status_name(cupool_status status) {
  static const char *const names[] = {
      [CUPOOL_OK] = "ok",
      [CUPOOL_ERROR_OUT_OF_MEMORY] = "out of memory",
      [CUPOOL_ERROR_INVALID] = "invalid argument",
      [CUPOOL_ERROR_CONFIG] = "invalid setting",
      [CUPOOL_ERROR_FOREIGN_POINTER] = "foreign pointer",
      [CUPOOL_ERROR_INTERIOR_POINTER] = "interior pointer",
      [CUPOOL_ERROR_DOUBLE_FREE] = "double free",
      [CUPOOL_ERROR_FOREIGN_STREAM] = "foreign stream",
      [CUPOOL_ERROR_NOT_FOUND] = "not found",
      [CUPOOL_ERROR_EXISTS] = "exists already",
      [CUPOOL_ERROR_BUSY] = "busy",
      [CUPOOL_ERROR_OCCUPIED] = "occupied",
      [CUPOOL_ERROR_ASLEEP] = "asleep",
      [CUPOOL_ERROR_CLOSED] = "closed",
      [CUPOOL_ERROR_TIMEOUT] = "timeout",
      [CUPOOL_ERROR_NOT_SUPPORTED] = "not supported",
      [CUPOOL_ERROR_NO_DEVICE] = "no device",
      [CUPOOL_ERROR_DEVICE_LOST] = "device lost",
      [CUPOOL_ERROR_DRIVER] = "driver error",
      [CUPOOL_ERROR_IO] = "input or output failed",
      [CUPOOL_ERROR_FORKED] = "forked",
      [CUPOOL_ERROR_INTERNAL] = "internal error",
  };
  if (status < 0 || (size_t)status >= sizeof names / sizeof *names) return "unknown";
  return names[status];
}

cupool_status cupool_label_push(const char *label) {
  if (!*ours) return forked();
  thread *t = cupool_thread();
  if (label == NULL || *label == 0) return cupool_invalid("cupool: a label is empty");
  if (t == NULL || t->labels == MAX_LABELS) return cupool_say(t, CUPOOL_ERROR_BUSY, "cupool: 32 labels are pushed on this thread");
  if ((t->label[t->labels] = strdup(label)) == NULL) return cupool_say(t, CUPOOL_ERROR_INTERNAL, "cupool: no memory of the computer");
  t->labels++;
  return CUPOOL_OK;
}

cupool_status cupool_label_pop(void) {
  if (!*ours) return forked();
  thread *t = cupool_thread();
  if (t == NULL || t->labels == 0) return cupool_invalid("cupool: no label is pushed on this thread");
  free(t->label[--t->labels]);
  return CUPOOL_OK;
}

/* Memory: the fast way here, and else Go's. */

#include "_cgo_export.h"

cupool_status cupool_alloc(int device, size_t size, void *stream, void **p) {
  thread *t = self;
  if (__builtin_expect(t != NULL && p != NULL && *ours && t->labels == 0 &&
                           atomic_load_explicit(&cupool_scopes, memory_order_relaxed) == 0, 1) &&
      (*p = cupool_take(t, device, size, stream)) != NULL)
    return CUPOOL_OK;
  if (p == NULL) return cupool_invalid("cupool: allocation: the place for the address is null");
  *p = NULL;
  if (!*ours) return forked();
  cupool_pool_id pool = cupool_scope_of(device, stream); /* calls functions of the program */
  if ((t = cupool_enter()) == NULL) return cupool_refused();
  return cupool_leave(t, cupoolGoAlloc(t, cupool_hints(), device, pool, size, (uintptr_t)stream, (uintptr_t *)p));
}

cupool_status cupool_alloc_in(int device, cupool_pool_id pool, size_t size, void *stream, void **p) {
  if (p == NULL) return cupool_invalid("cupool: allocation: the place for the address is null");
  *p = NULL;
  thread *t = cupool_enter();
  if (t == NULL) return cupool_refused();
  return cupool_leave(t, cupoolGoAlloc(t, cupool_hints(), device, pool, size, (uintptr_t)stream, (uintptr_t *)p));
}

cupool_status cupool_free(void *p) {
  if (__builtin_expect(!*ours, 0)) return forked();
  if (cupool_put(p) || p == NULL) return CUPOOL_OK;
  if (self != NULL && self->called > 0) {
    cupoolGoFreeLater((uintptr_t)p);
    return CUPOOL_OK;
  }
  thread *t = cupool_enter();
  if (t == NULL) return cupool_refused();
  return cupool_leave(t, cupoolGoFree(t, (uintptr_t)p));
}

/* Those of PyTorch's plain interface. */

static void complain(cupool_status status) {
  if (status != CUPOOL_OK) fprintf(stderr, "%s\n", cupool_last_error());
}

void *cupool_torch_alloc(ptrdiff_t size, int device, void *stream) {
  void *p = NULL;
  complain(cupool_alloc(device, (size_t)size, stream, &p));
  return p;
}

void cupool_torch_free(void *p, ptrdiff_t size, int device, void *stream) {
  (void)size, (void)device, (void)stream;
  complain(cupool_free(p));
}

void cupool_torch_record_stream(void *p, void *stream) { complain(cupool_record_stream(p, stream)); }
