#include "nccl.h"

#include <string.h>

// What is reduced, in the order of the ranks.

#define REDUCE(T)                                                  \
	static void reduce_##T(T *to, const T *with, size_t n, uint64_t op) { \
		for (size_t i = 0; i < n; i++)                     \
			switch (op) {                              \
			case 1:                                    \
				to[i] *= with[i];                  \
				break;                             \
			case 2:                                    \
				to[i] = with[i] > to[i] ? with[i] : to[i]; \
				break;                             \
			case 3:                                    \
				to[i] = with[i] < to[i] ? with[i] : to[i]; \
				break;                             \
			default: /* sum, average */                \
				to[i] += with[i];                  \
			}                                          \
	}                                                          \
	static void divide_##T(T *to, size_t n, int by) {          \
		for (size_t i = 0; i < n; i++)                     \
			to[i] /= (T)by;                            \
	}

typedef signed char i8;
typedef unsigned char u8;
typedef uint32_t u32;
typedef int32_t i32;
typedef uint64_t u64;
typedef int64_t i64;
REDUCE(i8)
REDUCE(u8)
REDUCE(i32)
REDUCE(u32)
REDUCE(i64)
REDUCE(u64)
REDUCE(float)
REDUCE(double)

#define BY_TYPE(type, f, p, ...)                           \
	switch (type) {                                    \
	case 0: f##_i8((i8 *)p, __VA_ARGS__); break;       \
	case 1: f##_u8((u8 *)p, __VA_ARGS__); break;       \
	case 2: f##_i32((i32 *)p, __VA_ARGS__); break;     \
	case 3: f##_u32((u32 *)p, __VA_ARGS__); break;     \
	case 4: f##_i64((i64 *)p, __VA_ARGS__); break;     \
	case 5: f##_u64((u64 *)p, __VA_ARGS__); break;     \
	case 7: f##_float((float *)p, __VA_ARGS__); break; \
	case 8: f##_double((double *)p, __VA_ARGS__); break; \
	}

static char *slot(comm *c, int rank) { return c->all->slots[rank][c->step % 2]; }

// reduce leaves the slots' bytes, reduced, in c->sum.
static void reduce(comm *c, const terms *t, size_t bytes) {
	size_t n = bytes / type_size(t->type);
	memcpy(c->sum, slot(c, 0), bytes);
	for (int r = 1; r < c->ranks; r++)
		BY_TYPE(t->type, reduce, c->sum, (const void *)slot(c, r), n, t->op)
	if (t->op == 4)
		BY_TYPE(t->type, divide, c->sum, n, c->ranks)
}

static bool all_there(comm *c, void *arg) {
	(void)arg;
	for (int r = 0; r < c->ranks; r++)
		if (c->all->members[r].step < c->step)
			return false;
	return true;
}

static bool behind(comm *c, int rank, void *arg) {
	(void)arg;
	return c->all->members[rank].step < c->step;
}

static bool same(comm *c, const terms *t) {
	for (int r = 0; r < c->ranks; r++) {
		const terms *o = &c->all->members[r].terms[c->step % 2];
		if (memcmp(o, t, sizeof *t) == 0)
			continue;
		fail(c, INVALID_ARGUMENT, "rank %d calls %s (type %d, operation %d, root %d, %zu elements), rank %d %s (type %d, operation %d, root %d, %zu elements)",
		     c->rank, kind_name(t->kind), (int)t->type, (int)t->op, (int)t->root, (size_t)t->count,
		     r, kind_name(o->kind), (int)o->type, (int)o->op, (int)o->root, (size_t)o->count);
		return false;
	}
	return true;
}

// meet publishes n bytes, or none, and waits for the others'.
static bool meet(comm *c, const terms *t, addr src, size_t n) {
	member *me = &c->all->members[c->rank];
	c->step++;
	me->terms[c->step % 2] = *t;
	if (n > 0 && !fetch(c, slot(c, c->rank), src, n))
		return false;
	me->step = c->step;
	group_ring(c);
	return group_wait(c, all_there, behind, NULL) && same(c, t);
}

// piece does n bytes, which lie at an offset of what a rank has.
static bool piece(comm *c, const task *t, size_t at, size_t n, int part) {
	size_t each = t->t.count * type_size(t->t.type); // bytes of a part
	bool mine = part == c->rank;
	switch (t->t.kind) {
	case ALL_REDUCE:
		if (!meet(c, &t->t, t->src + at, n))
			return false;
		reduce(c, &t->t, n);
		return store(c, t->dst + at, c->sum, n);
	case REDUCE_SCATTER:
		if (!meet(c, &t->t, t->src + (size_t)part * each + at, n))
			return false;
		if (mine)
			reduce(c, &t->t, n);
		return !mine || store(c, t->dst + at, c->sum, n);
	case BROADCAST:
		mine = (uint64_t)c->rank == t->t.root;
		if (!meet(c, &t->t, t->src + at, mine ? n : 0))
			return false;
		return store(c, t->dst + at, slot(c, (int)t->t.root), n);
	}
	bool ok = meet(c, &t->t, t->src + at, n);
	for (int r = 0; ok && r < c->ranks; r++)
		ok = store(c, t->dst + (size_t)r * each + at, slot(c, r), n);
	return ok;
}

void collective(comm *c, const task *t) {
	size_t each = t->t.count * type_size(t->t.type), at = 0;
	int parts = t->t.kind == REDUCE_SCATTER ? c->ranks : 1;
	for (int part = 0; part < parts; part++)
		for (at = 0; at < each || at == 0; at += PIECE) // once where there is nothing: the others have to know
			if (!piece(c, t, at, each - at < PIECE ? each - at : PIECE, part))
				return;
}
