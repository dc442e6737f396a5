/*
 * The fast way of an allocation and a free, which does not enter Go.
 *
 * The pool keeps blocks whose sizes recur in homes: a cache line each, with a word that says
 * whether the block is out or back. One compare-and-swap of the word takes a block or gives it
 * back, from any thread, and the pool counts from the words (package block, home.go, which also
 * has the proof that what is read between the look at a word and its change is of the block).
 * This file does the same to the same words. So nothing is kept here that the pool's books do
 * not know: statistics, limits, trims, histories and an out of memory see each block as it is.
 *
 * What is kept here are hints where homes are: of a thread by size, and of all by address. A
 * hint that is out of date is seen by the word, the owner, the size or the address, and then
 * the call goes to Go. Only blocks of devices' own pools get hints. Their homes lie in Go's
 * heap, where nothing moves, and stay as long as the process; those of a private pool go with it,
 * while a thread may still look at one.
 */
#include "internal.h"

#include <string.h>

struct home {
  _Atomic uint64_t word; /* the generation above 8 bits of state */
  _Atomic uint64_t addr;
  _Atomic int64_t requested;
  _Atomic uint32_t owner;
  _Atomic uint32_t last; /* the generation, in its low half, in which the block is not taken any more */
};

enum { LIVE = 1, CACHED = 2, HOMED = 8, GENERATION = 1 << 8, STATE = GENERATION - 1 };

#define RELAXED memory_order_relaxed
#define ACQUIRE memory_order_acquire

/* Hints of a version that is not the present one are void. */
static _Atomic unsigned version = 1;

void cupool_forget_hints(void) { atomic_fetch_add(&version, 1); }

unsigned cupool_hints(void) { return atomic_load(&version); }

static inline unsigned set_of(int device, size_t size, void *stream) {
  uint64_t h = (uint64_t)size ^ (uint64_t)(uintptr_t)stream << 20 ^ (uint64_t)(unsigned)device << 56;
  return (unsigned)(h * 0x9E3779B97F4A7C15u >> 58) % SETS;
}

/* Takes a block of size bytes that came back on the stream, or returns null. */
void *cupool_take(thread *t, int device, size_t size, void *stream) {
  if (t->version != atomic_load_explicit(&version, RELAXED)) return NULL;
  hint *set = t->hints[set_of(device, size, stream)];
  for (int i = 0; i < WAYS; i++) {
    hint *h = &set[i];
    if (h->size != size || h->stream != stream || h->device != device || h->home == NULL) continue;
    struct home *home = h->home;
    uint64_t word = atomic_load_explicit(&home->word, ACQUIRE);
    if ((word & STATE) != (CACHED | HOMED) || (uint64_t)atomic_load_explicit(&home->requested, RELAXED) != size ||
        atomic_load_explicit(&home->owner, RELAXED) != h->owner ||
        (uint32_t)(word >> 8) == atomic_load_explicit(&home->last, RELAXED))
      continue;
    uint64_t addr = atomic_load_explicit(&home->addr, RELAXED);
    if (atomic_compare_exchange_strong(&home->word, &word, word + GENERATION + LIVE - CACHED)) return (void *)(uintptr_t)addr;
  }
  return NULL;
}

/* Homes by address: sets of four in a cache line. */
typedef struct place {
  _Atomic uint64_t addr;
  _Atomic(struct home *) home;
} place;

enum { PLACE_BITS = 14, PLACE_WAYS = 4 };
static struct { _Alignas(64) place way[PLACE_WAYS]; } places[1 << PLACE_BITS];
static _Atomic unsigned place_victim;

static inline place *places_of(uint64_t addr) {
  return places[(addr >> 8) * 0x9E3779B97F4A7C15u >> (64 - PLACE_BITS)].way;
}

/* Gives the block that begins at p back, and returns 1, where it is live in a home. */
int cupool_put(void *p) {
  uint64_t addr = (uint64_t)(uintptr_t)p;
  place *way = places_of(addr);
  for (int i = 0; i < PLACE_WAYS; i++) {
    if (atomic_load_explicit(&way[i].addr, RELAXED) != addr) continue;
    struct home *home = atomic_load_explicit(&way[i].home, ACQUIRE);
    if (home == NULL) continue; /* it is being noted */
    uint64_t word = atomic_load_explicit(&home->word, ACQUIRE);
    if ((word & STATE) == (LIVE | HOMED) && atomic_load_explicit(&home->addr, RELAXED) == addr &&
        atomic_compare_exchange_strong(&home->word, &word, word + CACHED - LIVE))
      return 1;
  }
  return 0;
}

static void note_place(uint64_t addr, struct home *home) {
  place *way = places_of(addr), *to = NULL;
  for (int i = 0; i < PLACE_WAYS; i++) {
    uint64_t at = atomic_load_explicit(&way[i].addr, RELAXED);
    struct home *there = atomic_load_explicit(&way[i].home, ACQUIRE);
    if (at == addr && there == home) return;
    if (to == NULL && (at == addr || there == NULL || !(atomic_load_explicit(&there->word, RELAXED) & HOMED))) to = &way[i];
  }
  if (to == NULL) to = &way[atomic_fetch_add_explicit(&place_victim, 1, RELAXED) % PLACE_WAYS];
  atomic_store_explicit(&to->addr, addr, RELAXED); /* whoever sees the two of different times finds another address in the home */
  atomic_store_explicit(&to->home, home, memory_order_release);
}

/* Notes where the home of a live block is that Go handed out to the thread. hints is what cupool_hints returned before
 * that: where the stream was forgotten meanwhile, the owner may be another stream's by now. */
void cupool_learn(thread *t, unsigned hints, int device, size_t size, uintptr_t of, uintptr_t p, void *at, uint32_t owner) {
  struct home *home = at;
  void *stream = (void *)of;
  note_place(p, home);
  if (t->version != hints) {
    memset(t->hints, 0, sizeof t->hints);
    t->version = hints;
  }
  unsigned n = set_of(device, size, stream);
  hint *set = t->hints[n], *to = NULL;
  for (int i = 0; i < WAYS; i++) {
    hint *h = &set[i];
    if (h->home == home) {
      to = h;
      break;
    }
    if (to == NULL && (h->home == NULL || !(atomic_load_explicit(&h->home->word, RELAXED) & HOMED))) to = h;
  }
  if (to == NULL) to = &set[t->victim[n]++ % WAYS];
  *to = (hint){home, stream, size, owner, device};
}
