/* What the C files and the Go files of the library share. */
#ifndef CUPOOL_INTERNAL_H
#define CUPOOL_INTERNAL_H

#include <stdatomic.h>
#include <stdint.h>

#include "cupool.h"

#define MAX_DEVICES 64
#define MAX_LABELS 32

/* A block that this thread may find in its home: see hit.c. */
typedef struct hint {
  struct home *home;
  void *stream;
  size_t size;
  uint32_t owner;
  int device;
} hint;

#define SETS 64
#define WAYS 8

/* What a thread has of the library, from its first call that is not served at once. */
typedef struct thread {
  uint64_t serial;  /* of no other thread, before or after it */
  int inside;       /* calls of this thread that are in Go */
  int called;       /* functions of the program that it runs with locks of a pool held */
  int asking;       /* it is in before_grow or on_oom */
  int relaxed;      /* the thread's capture mode was exchanged meanwhile */
  int mode;         /* and is put back to this */
  int bare;         /* the thread had no CUDA context before, and gets none */
  int labels;
  char *label[MAX_LABELS];
  uintptr_t stream; /* that memory is allocated for at this moment */
  cupool_status status;
  char *text;       /* of the last failure */
  size_t room;
  unsigned version; /* of the hints */
  unsigned char victim[SETS];
  hint hints[SETS][WAYS];
} thread;

/* The thread's state; makes it, null where there is no memory. */
thread *cupool_thread(void);

/* Notes a failure. text may be null, length bytes long and without a 0 behind. */
cupool_status cupool_fail(thread *t, cupool_status status, const char *text, size_t length);

cupool_status cupool_say(thread *t, cupool_status status, const char *text);
cupool_status cupool_invalid(const char *text);

/* Begins and ends a call into Go. enter returns null in a child of fork, and in a function of the program that is called
 * with locks held; the failure is noted then. */
thread *cupool_enter(void);
cupool_status cupool_refused(void);
cupool_status cupool_leave(thread *t, cupool_status status);

/* hit.c */
void *cupool_take(thread *t, int device, size_t size, void *stream);
int cupool_put(void *p);
unsigned cupool_hints(void);
void cupool_learn(thread *t, unsigned hints, int device, size_t size, uintptr_t stream, uintptr_t p, void *home, uint32_t owner);
void cupool_forget_hints(void);

/* Not 0 while any pool has begun: allocations ask the filters then. */
extern atomic_int cupool_scopes;

/* The pool that the calling thread allocates from on a device, CUPOOL_MAIN where none has begun. */
cupool_pool_id cupool_scope_of(int device, void *stream);
int cupool_scope_begin(int device, cupool_pool_id pool, cupool_filter filter, void *user);
int cupool_scope_begun(int device, cupool_pool_id pool, cupool_filter filter);
int cupool_scope_end(int device, cupool_pool_id pool);

/* Capture mode, for the driver's calls (driver.go). relax returns 1 where the caller has to restore. */
void cupool_find_exchange(const char *library);
int cupool_relax(void);
void cupool_restore(void);

/* Calls of functions of the program, for Go. user is its pointer as a number, as Go's stacks hold no pointers of others. */
void cupool_call_before_grow(const cupool_callbacks *c, int device, size_t size);
int cupool_call_on_oom(const cupool_callbacks *c, int device, size_t size);
void cupool_call_segment(const cupool_callbacks *c, int device, int action, cupool_pool_id pool, uintptr_t address, size_t size,
                         uintptr_t stream);
uintptr_t cupool_call_alloc(const cupool_pool_config *c, size_t size, int device, uintptr_t stream);
void cupool_call_free(const cupool_pool_config *c, uintptr_t p, size_t size, int device, uintptr_t stream);
int cupool_call_visit_segment(const cupool_visitor *v, const cupool_segment *s);
int cupool_call_visit_block(const cupool_visitor *v, const cupool_block_entry *b);
int cupool_call_visit_event(const cupool_visitor *v, const cupool_event *e);
typedef struct label_visit {
  void (*each)(void *user, const cupool_label_stats *label);
  void *user;
} label_visit;
void cupool_call_label(const label_visit *v, const cupool_label_stats *s);
uintptr_t cupool_current_stream(void);

#endif
