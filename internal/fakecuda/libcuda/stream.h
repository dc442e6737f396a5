// What streams and events are: for stream.c, event.c and capture.c.

#ifndef FAKE_STREAM_H
#define FAKE_STREAM_H

#include "fake.h"

// Nodes of a graph, by number.
typedef struct {
	size_t n, *at;
} nodes;

// A stream is a queue with a worker thread, which starts with the first work.
struct CUstream_st {
	CUcontext ctx;
	unsigned flags;
	int priority;
	uint64_t id;

	pthread_mutex_t mu;
	pthread_cond_t moved; // completed has grown, or there is work
	op *head, **tail;
	uint64_t submitted;
	_Atomic uint64_t completed;
	bool alive, started;
	_Atomic(fake_capture *) capture; // that its work goes to; or NULL
	nodes last;                      // what comes next in the capture depends on these

	CUstream next; // of all streams ever made
};
extern _Atomic(CUstream) fake_streams;

// An event is a place in a stream's order; recording it is no work.
struct CUevent_st {
	CUcontext ctx;
	unsigned flags;
	pthread_mutex_t mu;
	bool alive;
	CUstream on; // NULL: never recorded
	uint64_t seq;
	fake_capture *capture; // recorded in this one, after these nodes; or NULL
	nodes last;
	CUevent next;
};

// event.c
void fake_events_end(CUcontext ctx);

// capture.c, with the stream locked
void fake_capture_record(CUstream s, CUevent e);
CUresult fake_capture_submit(CUstream s, op o);

// capture.c, with nothing locked: whether a wait is the business of captures,
// and what came of it.
bool fake_capture_wait(CUstream s, CUevent e, CUresult *r);

// graph.c
size_t fake_graph_add(fake_graph *g, op o, const nodes *after); // its number
bool fake_graph_reaches(fake_graph *g, const nodes *from, const nodes *all);
void fake_nodes_copy(nodes *to, const nodes *from);
void fake_nodes_add(nodes *to, const nodes *more);

#define FIND(h, s)                                       \
	do {                                             \
		CUresult find_r_ = fake_stream(h, &(s)); \
		if (find_r_ != CUDA_SUCCESS)             \
			return find_r_;                  \
	} while (0)

#endif
