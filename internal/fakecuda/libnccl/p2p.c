#include "nccl.h"

#include <string.h>

// Messages go through a ring of bytes for each pair of ranks: a head, and what
// it tells of.

typedef struct {
	uint64_t type, bytes;
} head;

static ring *ring_of(comm *c, const task *t) {
	int peer = (int)t->t.root;
	return t->t.kind == SEND ? &c->all->rings[c->rank][peer] : &c->all->rings[peer][c->rank];
}

static void put(ring *r, const char *from, size_t n) {
	for (size_t i = 0; i < n; i++)
		r->bytes[(r->in + i) % RING] = from[i];
	r->in += n;
}

static void get(ring *r, char *to, size_t n) {
	for (size_t i = 0; i < n; i++)
		to[i] = r->bytes[(r->out + i) % RING];
	r->out += n;
}

static size_t smaller(size_t a, size_t b) { return a < b ? a : b; }

// send and receive do what can be done now, and return whether that was anything.
static bool send_some(comm *c, task *t, size_t bytes) {
	ring *r = ring_of(c, t);
	size_t room = RING - (size_t)(r->in - r->out), n;
	if (!t->told) {
		if (room < sizeof(head))
			return false;
		put(r, (char *)&(head){t->t.type, bytes}, sizeof(head));
		t->told = true;
		room -= sizeof(head);
	}
	n = smaller(room, bytes - t->done);
	if (!fetch(c, c->piece, t->src + t->done, n)) {
		t->over = true;
		return true;
	}
	put(r, c->piece, n);
	t->done += n;
	t->over = t->done == bytes;
	return n > 0 || t->over;
}

static bool receive_some(comm *c, task *t, size_t bytes) {
	ring *r = ring_of(c, t);
	size_t there = (size_t)(r->in - r->out), n;
	if (!t->told) {
		head h;
		if (there < sizeof h)
			return false;
		get(r, (char *)&h, sizeof h);
		if (h.type != t->t.type || h.bytes != bytes)
			fail(c, INVALID_ARGUMENT, "rank %d sends %zu bytes of type %d, rank %d receives %zu of type %d", (int)t->t.root, (size_t)h.bytes, (int)h.type, c->rank, bytes, (int)t->t.type);
		t->told = true;
		there -= sizeof h;
	}
	n = smaller(there, bytes - t->done);
	get(r, c->piece, n);
	t->over = !store(c, t->dst + t->done, c->piece, n);
	t->done += n;
	t->over = t->over || t->done == bytes;
	return n > 0 || t->over;
}

typedef struct {
	task *tasks;
	size_t n;
} batch;

static bool is_p2p(const task *t) { return t->t.kind == SEND || t->t.kind == RECV; }

// next reports whether a task is the first that is not over of those that use its
// ring.
static bool next(const batch *b, size_t i) {
	for (size_t k = 0; k < i; k++)
		if (!b->tasks[k].over && b->tasks[k].t.kind == b->tasks[i].t.kind && b->tasks[k].t.root == b->tasks[i].t.root)
			return false;
	return !b->tasks[i].over;
}

static bool progress(comm *c, void *arg) {
	batch *b = arg;
	bool any = false, over = true;
	for (size_t i = 0; i < b->n; i++) {
		task *t = &b->tasks[i];
		size_t bytes = t->t.count * type_size(t->t.type);
		if (is_p2p(t) && next(b, i))
			any = (t->t.kind == SEND ? send_some(c, t, bytes) : receive_some(c, t, bytes)) || any;
	}
	if (any)
		group_ring(c);
	for (size_t i = 0; i < b->n; i++)
		over = over && (!is_p2p(&b->tasks[i]) || b->tasks[i].over);
	return over;
}

static bool needed(comm *c, int rank, void *arg) {
	batch *b = arg;
	(void)c;
	for (size_t i = 0; i < b->n; i++)
		if (is_p2p(&b->tasks[i]) && !b->tasks[i].over && b->tasks[i].t.root == (uint64_t)rank)
			return true;
	return false;
}

void exchange_all(comm *c, task *tasks, size_t n) {
	batch b = {tasks, n};
	for (size_t i = 0; i < n; i++) {
		tasks[i].done = 0;
		tasks[i].told = tasks[i].over = false;
	}
	group_wait(c, progress, needed, &b);
}
