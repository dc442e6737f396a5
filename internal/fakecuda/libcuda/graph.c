#include "stream.h"

#include <stdlib.h>
#include <string.h>

// A graph is a list of work, each with what has to be done before. It is its
// own executable form, and counts who has it.
typedef struct {
	op o;
	nodes after, before; // it comes after these, of smaller numbers, and before those
} node;

struct fake_graph {
	node *at;
	size_t n, room;
	atomic_int refs;
};

fake_graph *fake_graph_new(void) {
	fake_graph *g = calloc(1, sizeof *g);
	g->refs = 1;
	return g;
}

void fake_nodes_copy(nodes *to, const nodes *from) {
	to->n = 0;
	fake_nodes_add(to, from);
}

void fake_nodes_add(nodes *to, const nodes *more) {
	if (more->n == 0)
		return;
	to->at = realloc(to->at, (to->n + more->n) * sizeof *to->at);
	memcpy(to->at + to->n, more->at, more->n * sizeof *more->at);
	to->n += more->n;
}

size_t fake_graph_add(fake_graph *g, op o, const nodes *after) {
	if (g->n == g->room) {
		g->room = g->room ? 2 * g->room : 64;
		g->at = realloc(g->at, g->room * sizeof *g->at);
	}
	node *added = &g->at[g->n];
	*added = (node){.o = o};
	fake_nodes_copy(&added->after, after);
	for (size_t k = 0; k < after->n; k++)
		fake_nodes_add(&g->at[after->at[k]].before, &(nodes){1, &g->n});
	return g->n++;
}

// fake_graph_reaches reports whether all are among some nodes and what comes
// before those.
bool fake_graph_reaches(fake_graph *g, const nodes *from, const nodes *all) {
	bool *before = calloc(g->n + 1, sizeof *before), yes = true;
	for (size_t i = 0; i < from->n; i++)
		before[from->at[i]] = true;
	for (size_t i = g->n; i-- > 0;)
		for (size_t k = 0; before[i] && k < g->at[i].after.n; k++)
			before[g->at[i].after.at[k]] = true;
	for (size_t i = 0; i < all->n; i++)
		yes = yes && before[all->at[i]];
	free(before);
	return yes;
}

void fake_graph_drop(fake_graph *g) {
	if (--g->refs > 0)
		return;
	for (size_t i = 0; i < g->n; i++) {
		free(g->at[i].o.staged);
		free(g->at[i].o.params);
		free(g->at[i].after.at);
		free(g->at[i].before.at);
	}
	free(g->at);
	free(g);
}

CUresult cuGraphDestroy(CUgraph graph) {
	FAKE_CALL(false);
	fake_graph_drop((fake_graph *)graph);
	return CUDA_SUCCESS;
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph, unsigned long long flags) {
	FAKE_CALL(true);
	(void)flags;
	((fake_graph *)graph)->refs++;
	*exec = (CUgraphExec)graph;
	return CUDA_SUCCESS;
}

CUresult cuGraphUpload(CUgraphExec exec, CUstream h) {
	CUstream s;
	FAKE_CALL(true);
	(void)exec;
	return fake_stream(h, &s);
}

CUresult cuGraphExecDestroy(CUgraphExec exec) {
	FAKE_CALL(false);
	fake_graph_drop((fake_graph *)exec);
	return CUDA_SUCCESS;
}

static CUresult submit(CUstream s, const op *o) {
	op copy = *o;
	if (o->params != NULL) {
		copy.params = malloc(o->emulated->size);
		memcpy(copy.params, o->params, o->emulated->size);
	}
	return fake_submit(s, copy);
}

// pick chooses one of n: the last, which is the newest, or any.
static size_t pick(size_t n, bool newest) {
	static _Atomic uint64_t state = 0x9E3779B97F4A7C15u;
	uint64_t x = state;
	x ^= x << 13, x ^= x >> 7, x ^= x << 17;
	state = x;
	return newest ? n - 1 : (size_t)(x % n);
}

// order puts the numbers of all nodes into at, in an order that the graph allows
// but that is not the one of the capture where it need not be: whatever is
// newest first, or at random.
static void order(const fake_graph *g, bool newest, size_t *at) {
	size_t *missing = calloc(g->n + 1, sizeof *missing), *ready = calloc(g->n + 1, sizeof *ready), n = 0;
	for (size_t i = 0; i < g->n; i++)
		if ((missing[i] = g->at[i].after.n) == 0)
			ready[n++] = i;
	for (size_t done = 0; done < g->n; done++) {
		size_t k = pick(n, newest), i = ready[k];
		memmove(ready + k, ready + k + 1, (--n - k) * sizeof *ready);
		at[done] = i;
		for (size_t b = 0; b < g->at[i].before.n; b++) {
			size_t j = g->at[i].before.at[b], to = n;
			if (--missing[j] > 0)
				continue;
			for (; to > 0 && ready[to - 1] > j; to--)
				ready[to] = ready[to - 1];
			ready[to] = j;
			n++;
		}
	}
	free(missing);
	free(ready);
}

// A launch gives its stream one node after the other, by turns in one and the
// other of those orders, so that a dependency that is missing shows.
CUresult cuGraphLaunch(CUgraphExec exec, CUstream h) {
	static atomic_uint launches;
	fake_graph *g = (fake_graph *)exec;
	CUstream s;
	FAKE_CALL(true);
	CUresult r = fake_stream(h, &s);
	size_t *at = calloc(g->n + 1, sizeof *at);
	order(g, launches++ % 2 == 0, at);
	for (size_t i = 0; r == CUDA_SUCCESS && i < g->n; i++)
		r = submit(s, &g->at[at[i]].o);
	free(at);
	return r;
}
