#include "fake.h"

#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

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
	bool capturing;
	fake_graph *graph; // being captured
	uint64_t capture_id;

	CUstream next; // of all streams ever made
};

// An event is a place in a stream's order; recording it is no work.
struct CUevent_st {
	CUcontext ctx;
	unsigned flags;
	pthread_mutex_t mu;
	bool alive, captured;
	CUstream on; // NULL: never recorded
	uint64_t seq;
	CUevent next;
};

static _Atomic(CUstream) streams;
static _Atomic uint64_t last_id, last_capture;

static void *work(void *arg) {
	CUstream s = arg;
	pthread_mutex_lock(&s->mu);
	while (s->alive || s->head != NULL) {
		op *o = s->head;
		if (o == NULL) {
			pthread_cond_wait(&s->moved, &s->mu);
			continue;
		}
		pthread_mutex_unlock(&s->mu);
		if (fake_delay_us() > 0)
			usleep(fake_delay_us());
		if (o->kind == OP_WAIT) {
			pthread_mutex_lock(&o->on->mu);
			while (o->on->completed < o->until)
				pthread_cond_wait(&o->on->moved, &o->on->mu);
			pthread_mutex_unlock(&o->on->mu);
		} else if (!s->ctx->lost || o->kind == OP_POOL_FREE)
			fake_run(s->ctx, o);
		free(o->staged);
		pthread_mutex_lock(&s->mu);
		s->head = o->next;
		if (s->head == NULL)
			s->tail = &s->head;
		s->completed = o->seq;
		free(o);
		pthread_cond_broadcast(&s->moved);
	}
	pthread_mutex_unlock(&s->mu);
	return NULL;
}

// start runs the worker without signals, which are the program's business.
static void start(CUstream s) {
	sigset_t all, before;
	pthread_attr_t attr;
	pthread_t t;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	pthread_attr_setstacksize(&attr, 256 << 10);
	if (pthread_create(&t, &attr, work, s) != 0)
		abort();
	pthread_attr_destroy(&attr);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	s->started = true;
}

CUresult fake_submit(CUstream s, op o) {
	CUresult r = CUDA_SUCCESS;
	pthread_mutex_lock(&s->mu);
	if (!s->alive) {
		free(o.staged);
		free(o.params);
		r = CUDA_ERROR_INVALID_HANDLE;
	} else if (s->capturing) {
		fake_graph_add(s->graph, o);
	} else {
		op *q = malloc(sizeof *q);
		*q = o;
		q->seq = ++s->submitted;
		q->next = NULL;
		*s->tail = q;
		s->tail = &q->next;
		if (!s->started)
			start(s);
		pthread_cond_broadcast(&s->moved);
	}
	pthread_mutex_unlock(&s->mu);
	return r;
}

CUresult fake_wait(CUstream s) {
	pthread_mutex_lock(&s->mu);
	uint64_t target = s->submitted;
	while (s->completed < target)
		pthread_cond_wait(&s->moved, &s->mu);
	pthread_mutex_unlock(&s->mu);
	return (CUresult)s->ctx->lost;
}

void fake_sync_device(int device) {
	for (CUstream s = streams; s != NULL; s = s->next)
		if (s->ctx->device == device)
			fake_wait(s);
}

static CUstream make(CUcontext ctx, unsigned flags, int priority) {
	CUstream s = calloc(1, sizeof *s);
	s->ctx = ctx;
	s->flags = flags;
	s->priority = priority;
	s->id = ++last_id;
	s->alive = true;
	s->tail = &s->head;
	pthread_mutex_init(&s->mu, NULL);
	pthread_cond_init(&s->moved, NULL);
	s->next = streams;
	while (!atomic_compare_exchange_weak(&streams, &s->next, s)) {
	}
	fake_handle_add(s);
	return s;
}

static void destroy(CUstream s) {
	pthread_mutex_lock(&s->mu);
	s->alive = false;
	pthread_cond_broadcast(&s->moved);
	pthread_mutex_unlock(&s->mu);
}

CUstream fake_null_stream(CUcontext ctx) {
	pthread_mutex_lock(&fake_lock);
	if (ctx->null_stream == NULL)
		ctx->null_stream = make(ctx, 0, 0);
	pthread_mutex_unlock(&fake_lock);
	return ctx->null_stream;
}

CUcontext fake_stream_context(CUstream s) { return s->ctx; }

// The default streams of a thread, one for each context it has used them in.
static CUstream thread_stream(CUcontext ctx) {
	static _Thread_local CUstream mine[16];
	int i = 0;
	while (i < 15 && mine[i] != NULL && (mine[i]->ctx != ctx || !mine[i]->alive))
		i++;
	if (mine[i] == NULL || mine[i]->ctx != ctx || !mine[i]->alive)
		mine[i] = make(ctx, CU_STREAM_NON_BLOCKING, 0);
	return mine[i];
}

CUresult fake_stream(CUstream h, CUstream *out) {
	switch ((uintptr_t)h) {
	case 0:
	case 1:
		*out = fake_null_stream(fake_current());
		return CUDA_SUCCESS;
	case 2:
		*out = thread_stream(fake_current());
		return CUDA_SUCCESS;
	}
	*out = h;
	return fake_handle_known(h) && h->alive ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

#define FIND(h, s)                                 \
	do {                                       \
		CUresult find_r_ = fake_stream(h, &(s)); \
		if (find_r_ != CUDA_SUCCESS)       \
			return find_r_;            \
	} while (0)

CUresult cuStreamCreate(CUstream *s, unsigned flags) {
	FAKE_CALL(true);
	*s = make(fake_current(), flags, 0);
	return CUDA_SUCCESS;
}

CUresult cuStreamCreateWithPriority(CUstream *s, unsigned flags, int priority) {
	FAKE_CALL(true);
	*s = make(fake_current(), flags, priority);
	return CUDA_SUCCESS;
}

CUresult cuStreamDestroy_v2(CUstream h) {
	FAKE_CALL(true);
	if ((uintptr_t)h <= 2 || !fake_handle_known(h) || !h->alive)
		return CUDA_ERROR_INVALID_HANDLE;
	destroy(h);
	return CUDA_SUCCESS;
}

CUresult cuStreamSynchronize(CUstream h) {
	CUstream s;
	FAKE_CALL(true);
	FIND(h, s);
	if (s->capturing)
		return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	return fake_wait(s);
}

CUresult cuStreamQuery(CUstream h) {
	CUstream s;
	FAKE_CALL(true);
	FIND(h, s);
	return s->completed == s->submitted ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUresult cuStreamGetFlags(CUstream h, unsigned *flags) {
	CUstream s;
	FAKE_CALL(true);
	FIND(h, s);
	*flags = s->flags;
	return CUDA_SUCCESS;
}

CUresult cuStreamGetPriority(CUstream h, int *priority) {
	CUstream s;
	FAKE_CALL(true);
	FIND(h, s);
	*priority = s->priority;
	return CUDA_SUCCESS;
}

CUresult cuStreamGetCtx(CUstream h, CUcontext *ctx) {
	CUstream s;
	FAKE_CALL(true);
	FIND(h, s);
	*ctx = s->ctx;
	return CUDA_SUCCESS;
}

CUresult cuStreamGetId(CUstream h, unsigned long long *id) {
	CUstream s;
	FAKE_CALL(true);
	FIND(h, s);
	*id = s->id;
	return CUDA_SUCCESS;
}

CUresult cuCtxGetStreamPriorityRange(int *least, int *greatest) {
	FAKE_CALL(true);
	*least = 0;
	*greatest = -5;
	return CUDA_SUCCESS;
}

CUresult cuStreamBeginCapture_v2(CUstream h, CUstreamCaptureMode mode) {
	FAKE_CALL(true);
	(void)mode;
	if ((uintptr_t)h <= 1 || !fake_handle_known(h) || !h->alive || h->capturing)
		return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	h->capture_id = ++last_capture;
	h->graph = fake_graph_new();
	h->capturing = true;
	return CUDA_SUCCESS;
}

CUresult cuStreamEndCapture(CUstream h, CUgraph *graph) {
	FAKE_CALL(true);
	if (!fake_handle_known(h) || !h->capturing)
		return CUDA_ERROR_ILLEGAL_STATE;
	h->capturing = false;
	*graph = (CUgraph)h->graph;
	return CUDA_SUCCESS;
}

bool fake_capturing(CUstream s) { return s->capturing; }

static CUresult capture(CUstream h, CUstreamCaptureStatus *status, cuuint64_t *id) {
	CUstream s;
	FIND(h, s);
	*status = s->capturing ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
	if (id != NULL)
		*id = s->capture_id;
	return CUDA_SUCCESS;
}

CUresult cuStreamIsCapturing(CUstream h, CUstreamCaptureStatus *status) {
	FAKE_CALL(true);
	return capture(h, status, NULL);
}

CUresult cuStreamGetCaptureInfo(CUstream h, CUstreamCaptureStatus *status, cuuint64_t *id) {
	FAKE_CALL(true);
	return capture(h, status, id);
}

// Events.

static _Atomic(CUevent) events;

CUresult cuEventCreate(CUevent *out, unsigned flags) {
	FAKE_CALL(true);
	CUevent e = calloc(1, sizeof *e);
	e->ctx = fake_current();
	e->flags = flags;
	e->alive = true;
	pthread_mutex_init(&e->mu, NULL);
	e->next = events;
	while (!atomic_compare_exchange_weak(&events, &e->next, e)) {
	}
	fake_handle_add(e);
	*out = e;
	return CUDA_SUCCESS;
}

static bool usable(CUevent e) { return e != NULL && fake_handle_known(e) && e->alive; }

CUresult cuEventDestroy_v2(CUevent e) {
	FAKE_CALL(true);
	if (!usable(e))
		return CUDA_ERROR_INVALID_HANDLE;
	e->alive = false;
	return CUDA_SUCCESS;
}

CUresult cuEventRecord(CUevent e, CUstream h) {
	CUstream s;
	FAKE_CALL(true);
	FIND(h, s);
	if (!usable(e) || e->ctx != s->ctx)
		return CUDA_ERROR_INVALID_HANDLE;
	pthread_mutex_lock(&s->mu);
	pthread_mutex_lock(&e->mu);
	e->on = s;
	e->seq = s->submitted;
	e->captured = s->capturing;
	pthread_mutex_unlock(&e->mu);
	pthread_mutex_unlock(&s->mu);
	return CUDA_SUCCESS;
}

static CUresult point(CUevent e, CUstream *on, uint64_t *seq) {
	if (!usable(e))
		return CUDA_ERROR_INVALID_HANDLE;
	pthread_mutex_lock(&e->mu);
	*on = e->on;
	*seq = e->seq;
	bool captured = e->captured;
	pthread_mutex_unlock(&e->mu);
	return captured ? CUDA_ERROR_CAPTURED_EVENT : CUDA_SUCCESS;
}

CUresult cuEventQuery(CUevent e) {
	CUstream on;
	uint64_t seq;
	FAKE_CALL(true);
	CUresult r = point(e, &on, &seq);
	if (r != CUDA_SUCCESS)
		return r;
	return on == NULL || on->completed >= seq ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUresult cuEventSynchronize(CUevent e) {
	CUstream on;
	uint64_t seq;
	FAKE_CALL(true);
	CUresult r = point(e, &on, &seq);
	if (r != CUDA_SUCCESS || on == NULL)
		return r;
	pthread_mutex_lock(&on->mu);
	while (on->completed < seq)
		pthread_cond_wait(&on->moved, &on->mu);
	pthread_mutex_unlock(&on->mu);
	return (CUresult)e->ctx->lost;
}

CUresult cuStreamWaitEvent(CUstream h, CUevent e, unsigned flags) {
	CUstream s, on;
	uint64_t seq;
	FAKE_CALL(true);
	(void)flags;
	FIND(h, s);
	CUresult r = point(e, &on, &seq);
	if (r != CUDA_SUCCESS || on == NULL || on == s)
		return r;
	return fake_submit(s, (op){.kind = OP_WAIT, .on = on, .until = seq});
}

void fake_streams_end(CUcontext ctx) {
	for (CUstream s = streams; s != NULL; s = s->next)
		if (s->ctx == ctx && s->alive) {
			fake_wait(s);
			destroy(s);
		}
	for (CUevent e = events; e != NULL; e = e->next)
		if (e->ctx == ctx)
			e->alive = false;
}
