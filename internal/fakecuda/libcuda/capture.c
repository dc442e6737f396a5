#include "stream.h"

#include <stdlib.h>

// A capture is a graph that is being made of what several streams are given:
// the one that it began on, and those that waited for events of it.
struct fake_capture {
	CUstream origin;
	uint64_t id;
	fake_graph *graph;
	bool broken; // by what a graph cannot hold; it will only end
	fake_capture *before;
};

// One lock for all captures, taken after a stream's and an event's. Captures
// are never given back to malloc, as events may name them; the list tells a
// leak checker that this is meant.
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static fake_capture *last_capture;

bool fake_capture_forbids(CUstream s) {
	pthread_mutex_lock(&lock);
	fake_capture *c = s->capture;
	if (c != NULL)
		c->broken = true;
	pthread_mutex_unlock(&lock);
	return c != NULL;
}

CUresult fake_capture_submit(CUstream s, op o) {
	CUresult r = CUDA_SUCCESS;
	pthread_mutex_lock(&lock);
	fake_capture *c = s->capture;
	if (c == NULL || c->broken) { // NULL: it ended meanwhile
		free(o.staged);
		free(o.params);
		r = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	} else {
		size_t number = fake_graph_add(c->graph, o, &s->last);
		fake_nodes_copy(&s->last, &(nodes){1, &number});
	}
	pthread_mutex_unlock(&lock);
	return r;
}

void fake_capture_record(CUstream s, CUevent e) {
	pthread_mutex_lock(&lock);
	e->capture = s->capture;
	fake_nodes_copy(&e->last, &s->last);
	pthread_mutex_unlock(&lock);
}

// A stream that waits for an event of a capture is a part of that from then
// on. In a capture nothing waits for what is not in it.
bool fake_capture_wait(CUstream s, CUevent e, CUresult *r) {
	pthread_mutex_lock(&s->mu);
	pthread_mutex_lock(&e->mu);
	pthread_mutex_lock(&lock);
	fake_capture *own = s->capture, *its = e->capture;
	bool over = its != NULL && its->graph == NULL;
	*r = CUDA_SUCCESS;
	if (over)
		*r = CUDA_ERROR_CAPTURED_EVENT;
	else if ((own != NULL && own->broken) || (its != NULL && its->broken))
		*r = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	else if (own != NULL && its == NULL && e->on != NULL)
		*r = CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
	else if (own != NULL && its != NULL && own != its)
		*r = CUDA_ERROR_STREAM_CAPTURE_MERGE;
	else if (its != NULL) {
		s->capture = its;
		if (own == NULL)
			s->last.n = 0; // of an earlier capture
		fake_nodes_add(&s->last, &e->last);
	}
	if (own != NULL && *r != CUDA_SUCCESS)
		own->broken = true;
	pthread_mutex_unlock(&lock);
	pthread_mutex_unlock(&e->mu);
	pthread_mutex_unlock(&s->mu);
	return own != NULL || its != NULL;
}

CUresult cuStreamBeginCapture_v2(CUstream h, CUstreamCaptureMode mode) {
	FAKE_CALL(true);
	(void)mode;
	if ((uintptr_t)h <= 1 || !fake_handle_known(h) || !h->alive || h->capture != NULL)
		return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	fake_capture *c = calloc(1, sizeof *c);
	c->origin = h;
	c->graph = fake_graph_new();
	pthread_mutex_lock(&lock);
	c->before = last_capture;
	c->id = last_capture == NULL ? 1 : last_capture->id + 1;
	last_capture = c;
	pthread_mutex_unlock(&lock);
	h->last.n = 0;
	h->capture = c;
	return CUDA_SUCCESS;
}

// leave takes all streams out of a capture. It returns whether all their work
// comes before what the origin would be given next.
static bool leave(fake_capture *c) {
	bool joined = true;
	for (CUstream s = fake_streams; s != NULL; s = s->next)
		if (s->capture == c) {
			joined = joined && fake_graph_reaches(c->graph, &c->origin->last, &s->last);
			s->capture = NULL;
		}
	return joined;
}

CUresult cuStreamEndCapture(CUstream h, CUgraph *graph) {
	FAKE_CALL(true);
	*graph = NULL;
	if (!fake_handle_known(h) || h->capture == NULL)
		return CUDA_ERROR_ILLEGAL_STATE;
	pthread_mutex_lock(&lock);
	fake_capture *c = h->capture;
	CUresult r = CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
	if (c->origin == h) {
		bool joined = leave(c);
		r = c->broken ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : joined ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
		if (r == CUDA_SUCCESS)
			*graph = (CUgraph)c->graph;
		else
			fake_graph_drop(c->graph);
		c->graph = NULL;
	}
	pthread_mutex_unlock(&lock);
	return r;
}

static CUresult info(CUstream h, CUstreamCaptureStatus *status, cuuint64_t *id) {
	CUstream s;
	FIND(h, s);
	pthread_mutex_lock(&lock);
	fake_capture *c = s->capture;
	*status = c == NULL ? CU_STREAM_CAPTURE_STATUS_NONE : c->broken ? CU_STREAM_CAPTURE_STATUS_INVALIDATED : CU_STREAM_CAPTURE_STATUS_ACTIVE;
	if (id != NULL)
		*id = c == NULL ? 0 : c->id;
	pthread_mutex_unlock(&lock);
	return CUDA_SUCCESS;
}

CUresult cuStreamGetCaptureInfo(CUstream h, CUstreamCaptureStatus *status, cuuint64_t *id) {
	FAKE_CALL(true);
	return info(h, status, id);
}

// Nothing here depends on the mode.
CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode) {
	static _Thread_local CUstreamCaptureMode now = CU_STREAM_CAPTURE_MODE_GLOBAL;
	CUstreamCaptureMode before = now;
	now = *mode;
	*mode = before;
	return CUDA_SUCCESS;
}
