#include "stream.h"

#include <stdlib.h>

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
	fake_capture_record(s, e);
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
	bool captured = e->capture != NULL;
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
	CUresult r = usable(e) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
	if (r != CUDA_SUCCESS || fake_capture_wait(s, e, &r))
		return r;
	r = point(e, &on, &seq);
	if (r != CUDA_SUCCESS || on == NULL || on == s)
		return r;
	return fake_submit(s, (op){.kind = OP_WAIT, .on = on, .until = seq});
}

void fake_events_end(CUcontext ctx) {
	for (CUevent e = events; e != NULL; e = e->next)
		if (e->ctx == ctx)
			e->alive = false;
}
