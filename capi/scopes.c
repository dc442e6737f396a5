/* Which pool a thread allocates from: filters that were begun and not ended. */
#include <pthread.h>
#include <stdlib.h>

#include "internal.h"

typedef struct scope {
  struct scope *older;
  int device;
  cupool_pool_id pool;
  cupool_filter filter; /* null: the allocations of the owner */
  void *user;
  uint64_t owner; /* the serial of the thread: a pthread_t is another thread's when this one has ended */
} scope;

static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER; /* guards the list */
static scope *newest;

atomic_int cupool_scopes;

/* The serial of the calling thread; 0, which no scope has, where there is no memory of the computer. */
static uint64_t me(void) {
  thread *t = cupool_thread();
  return t == NULL ? 0 : t->serial;
}

static int same(const scope *s, int device, cupool_pool_id pool) {
  return s->device == device && s->pool.first == pool.first && s->pool.second == pool.second;
}

/* Whether the pool has begun, so that a filter cannot begin it again: threads without one are each for themselves. */
static int begun(int device, cupool_pool_id pool, cupool_filter filter) {
  for (scope *s = newest; s != NULL; s = s->older)
    if (same(s, device, pool) && (filter != NULL || s->filter != NULL || s->owner == me())) return 1;
  return 0;
}

cupool_pool_id cupool_scope_of(int device, void *stream) {
  cupool_pool_id found = CUPOOL_MAIN;
  if (atomic_load_explicit(&cupool_scopes, memory_order_acquire) == 0) return found;
  pthread_rwlock_rdlock(&lock);
  for (scope *s = newest; s != NULL; s = s->older) {
    if (s->device != device) continue;
    if (s->filter == NULL ? s->owner == me() : s->filter(s->user, stream)) {
      found = s->pool;
      break;
    }
  }
  pthread_rwlock_unlock(&lock);
  return found;
}

int cupool_scope_begun(int device, cupool_pool_id pool, cupool_filter filter) {
  pthread_rwlock_rdlock(&lock);
  int found = begun(device, pool, filter);
  pthread_rwlock_unlock(&lock);
  return found;
}

/* Begins, and returns 0 where the pool has begun already or there is no memory of the computer. */
int cupool_scope_begin(int device, cupool_pool_id pool, cupool_filter filter, void *user) {
  scope *add = malloc(sizeof *add);
  if (add == NULL) return 0;
  pthread_rwlock_wrlock(&lock);
  if (begun(device, pool, filter)) {
    pthread_rwlock_unlock(&lock);
    free(add);
    return 0;
  }
  *add = (scope){newest, device, pool, filter, user, me()};
  newest = add;
  atomic_fetch_add(&cupool_scopes, 1);
  pthread_rwlock_unlock(&lock);
  return 1;
}

/* Ends what the thread has begun, or else another one, and returns 0 where nothing has begun. */
int cupool_scope_end(int device, cupool_pool_id pool) {
  scope **end = NULL, *found = NULL;
  pthread_rwlock_wrlock(&lock);
  for (scope **at = &newest; *at != NULL; at = &(*at)->older) {
    if (!same(*at, device, pool)) continue;
    int mine = (*at)->owner == me();
    if (end == NULL || mine) end = at;
    if (mine) break;
  }
  if (end != NULL) {
    found = *end;
    *end = found->older;
    atomic_fetch_sub(&cupool_scopes, 1);
  }
  pthread_rwlock_unlock(&lock);
  free(found);
  return found != NULL;
}
