#include "fake.h"

#include <stdlib.h>
#include <string.h>

// A graph is a list of work, in the order in which one stream was given it. It
// is its own executable form, and counts who has it.
struct fake_graph {
	op *head, **tail;
	atomic_int refs;
};

fake_graph *fake_graph_new(void) {
	fake_graph *g = calloc(1, sizeof *g);
	g->tail = &g->head;
	g->refs = 1;
	return g;
}

void fake_graph_add(fake_graph *g, op o) {
	op *q = malloc(sizeof *q);
	*q = o;
	q->next = NULL;
	*g->tail = q;
	g->tail = &q->next;
}

void fake_graph_drop(fake_graph *g) {
	if (--g->refs > 0)
		return;
	for (op *o = g->head, *next; o != NULL; o = next) {
		next = o->next;
		free(o->staged);
		free(o->params);
		free(o);
	}
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

CUresult cuGraphLaunch(CUgraphExec exec, CUstream h) {
	CUstream s;
	FAKE_CALL(true);
	CUresult r = fake_stream(h, &s);
	for (op *o = ((fake_graph *)exec)->head; r == CUDA_SUCCESS && o != NULL; o = o->next) {
		op copy = *o;
		if (o->params != NULL) {
			copy.params = malloc(o->emulated->size);
			memcpy(copy.params, o->params, o->emulated->size);
		}
		r = fake_submit(s, copy);
	}
	return r;
}
