#include "stream.h"

#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

_Atomic(CUstream) fake_streams;
static _Atomic uint64_t last_id;

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
	} else if (s->capture != NULL) {
		r = fake_capture_submit(s, o);
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
	for (CUstream s = fake_streams; s != NULL; s = s->next)
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
	s->next = fake_streams;
	while (!atomic_compare_exchange_weak(&fake_streams, &s->next, s)) {
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
	if (fake_capture_forbids(s))
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

void fake_streams_end(CUcontext ctx) {
	for (CUstream s = fake_streams; s != NULL; s = s->next)
		if (s->ctx == ctx && s->alive) {
			fake_wait(s);
			destroy(s);
		}
	fake_events_end(ctx);
}
