#include "nccl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/mman.h>
#include <unistd.h>

typedef struct {
	char bytes[ID_BYTES];
} unique_id;

// ncclConfig_t as far as programs of NCCL 2.14 and later have to have it.
typedef struct {
	size_t size;
	unsigned magic, version;
	int blocking;
} config;

#define FAULT()                                              \
	do {                                                 \
		result fault_ = (result)fake_fault(__func__); \
		if (fault_ != OK)                            \
			return fault_;                       \
	} while (0)

// The thread's group: the lists that its end submits.
static _Thread_local int depth;
static _Thread_local list *grouped;

result ncclGetVersion(int *version) {
	FAULT();
	*version = (int)fake_setting("FAKECUDA_NCCL_VERSION", 22703);
	return OK;
}

result ncclGetUniqueId(unique_id *id) {
	uint64_t bits[2];
	FAULT();
	memset(id, 0, sizeof *id);
	if (getrandom(bits, sizeof bits, 0) != sizeof bits)
		return SYSTEM_ERROR;
	snprintf(id->bytes, sizeof id->bytes, "/fakenccl-%016lx%08lx", (unsigned long)bits[0], (unsigned long)(bits[1] & 0xffffffff));
	return OK;
}

const char *ncclGetErrorString(result r) {
	static const char *const texts[] = {"no error", "unhandled cuda error", "unhandled system error", "internal error", "invalid argument", "invalid usage", "remote process exited or there was a network error", "operation in progress"};
	return r <= IN_PROGRESS ? texts[r] : "unknown result code";
}

static result cuda_failed(comm *c, const char *call, CUresult r) {
	const char *text = "unknown";
	(void)cuGetErrorString(r, &text);
	fail(c, UNHANDLED_CUDA_ERROR, "%s: Cuda failure %d '%s'", call, (int)r, text);
	return UNHANDLED_CUDA_ERROR;
}

static result start(comm *c, const unique_id *id) {
	CUresult r = cuMemAlloc_v2(&c->buffer, DEVICE_BUFFER);
	if (r != CUDA_SUCCESS)
		return cuda_failed(c, "cuMemAlloc", r);
	if ((r = cuEventCreate(&c->last, CU_EVENT_DISABLE_TIMING)) != CUDA_SUCCESS)
		return cuda_failed(c, "cuEventCreate", r);
	return group_join(c, id->bytes, c->ctx->device);
}

// step advances the communicator by what real calls do meanwhile: the others
// come, and what the last call was given reaches its stream at the second look.
static void submit(comm *c);
static result state(comm *c) {
	if (c->failed != OK)
		return (result)c->failed;
	if (c->ctx->lost)
		return cuda_failed(c, "kernel", (CUresult)c->ctx->lost);
	for (int r = 0; r < c->ranks; r++)
		if (group_presence(c, r, true) == ABORTED && r != c->rank) {
			fail(c, REMOTE_ERROR, "rank %d is gone", r);
			return REMOTE_ERROR;
		}
	if (!c->ready && !(c->ready = group_complete(c)))
		return IN_PROGRESS;
	pthread_mutex_lock(&c->mu);
	bool busy = c->polls > 0 && --c->polls > 0;
	pthread_mutex_unlock(&c->mu);
	if (!busy)
		submit(c);
	if (c->finalized && c->done < c->given)
		return IN_PROGRESS;
	return busy ? IN_PROGRESS : (result)c->failed;
}

// settle is the end of calls that may wait.
static result settle(comm *c) {
	if (!c->blocking)
		return IN_PROGRESS;
	result r;
	while ((r = state(c)) == IN_PROGRESS)
		usleep(100);
	return r;
}

result ncclCommInitRankConfig(comm **out, int ranks, unique_id id, int rank, config *cfg) {
	FAULT();
	*out = NULL;
	if (ranks < 1 || ranks > MAX_RANKS || rank < 0 || rank >= ranks || (cfg != NULL && cfg->magic != 0xcafebeef))
		return INVALID_ARGUMENT;
	if (fake_current() == NULL)
		return UNHANDLED_CUDA_ERROR;
	comm *c = calloc(1, sizeof *c);
	*c = (comm){.rank = rank, .ranks = ranks, .blocking = cfg == NULL || cfg->blocking != 0, .ctx = fake_current(), .fd = -1};
	pthread_mutex_init(&c->running, NULL);
	pthread_mutex_init(&c->mu, NULL);
	c->piece = malloc(PIECE);
	c->sum = malloc(PIECE);
	*out = c;
	result r = start(c, &id);
	if (r != OK)
		return c->blocking ? r : IN_PROGRESS; // the state tells
	return settle(c);
}

static bool ended(comm *c) { return c == NULL || c->all == NULL; }

result ncclCommGetAsyncError(comm *c, result *r) {
	result fault = (result)fake_fault(__func__);
	if (c == NULL)
		return INVALID_ARGUMENT;
	if (fault != OK)
		fail(c, fault, "a fault was injected");
	*r = ended(c) ? c->failed != OK ? (result)c->failed : INVALID_USAGE : state(c);
	return OK;
}

const char *ncclGetLastError(comm *c) { return c != NULL ? c->text : ""; }

// end takes the rank out, after a task that runs has seen that it is to stop.
static result end(comm *c, presence how) {
	if (c == NULL)
		return OK;
	if (how == ABORTED)
		c->stop = true;
	if (c->all != NULL)
		group_ring(c);
	pthread_mutex_lock(&c->running);
	c->stop = true;
	group_leave(c, how);
	pthread_mutex_unlock(&c->running);
	free(c->piece);
	free(c->sum);
	c->piece = c->sum = NULL;
	for (registration *r = c->registered; r != NULL; r = c->registered) {
		c->registered = r->next;
		free(r);
	}
	if (c->last != NULL)
		(void)cuEventDestroy_v2(c->last);
	if (c->buffer != 0)
		(void)cuMemFree_v2(c->buffer);
	return OK;
}

result ncclCommFinalize(comm *c) {
	FAULT();
	if (ended(c) || c->finalized)
		return INVALID_ARGUMENT;
	c->finalized = true;
	return settle(c);
}

result ncclCommDestroy(comm *c) {
	FAULT();
	while (!ended(c) && c->failed == OK && !c->ctx->lost && c->done < c->given)
		usleep(100);
	return end(c, LEFT);
}

result ncclCommAbort(comm *c) {
	FAULT();
	return end(c, ABORTED);
}

result ncclCommRegister(comm *c, void *p, size_t size, void **handle) {
	FAULT();
	pthread_rwlock_rdlock(&fake_mem);
	bool there = fake_covered((addr)p, size);
	pthread_rwlock_unlock(&fake_mem);
	if (ended(c) || !there)
		return INVALID_ARGUMENT;
	registration *r = malloc(sizeof *r);
	*r = (registration){(addr)p, c->registered};
	*handle = c->registered = r;
	return OK;
}

result ncclCommDeregister(comm *c, void *handle) {
	FAULT();
	for (registration **r = &c->registered; *r != NULL; r = &(*r)->next)
		if (*r == handle) {
			*r = (*r)->next;
			free(handle);
			return OK;
		}
	return INVALID_ARGUMENT;
}

// Work. A list runs on the stream of its first task.

static void run(const void *params) {
	list *l = *(list *const *)params;
	comm *c = l->c;
	pthread_mutex_lock(&c->running);
	for (size_t i = 0; i < l->n && !c->stop && c->failed == OK; i++)
		if (l->tasks[i].t.kind < SEND)
			collective(c, &l->tasks[i]);
	if (!c->stop && c->failed == OK)
		exchange_all(c, l->tasks, l->n);
	if (!l->keep)
		c->done++;
	pthread_mutex_unlock(&c->running);
	if (!l->keep) {
		free(l->tasks);
		free(l);
	}
}

static const emulated run_list = {run, sizeof(list *), 0};

// enqueue orders a list after the last of the same communicator, also where
// that is on another stream, and submits it.
static CUresult enqueue(list *l) {
	comm *c = l->c;
	CUstream h = l->tasks[0].stream, s;
	CUstreamCaptureStatus status;
	cuuint64_t id = 0;
	CUresult r = cuStreamGetCaptureInfo(h, &status, &id);
	if (r == CUDA_SUCCESS && c->recorded && c->capture == id)
		r = cuStreamWaitEvent(h, c->last, 0);
	if (r == CUDA_SUCCESS)
		r = fake_stream(h, &s);
	if (r != CUDA_SUCCESS)
		return r;
	l->keep = id != 0;
	if (!l->keep)
		c->given++;
	c->capture = id;
	c->recorded = true;
	op o = {.kind = OP_CALL, .emulated = &run_list, .params = malloc(sizeof l)};
	memcpy(o.params, &l, sizeof l);
	r = fake_submit(s, o);
	return r == CUDA_SUCCESS ? cuEventRecord(c->last, h) : r;
}

static void submit(comm *c) {
	pthread_mutex_lock(&c->mu);
	list *l = c->held;
	c->held = NULL;
	pthread_mutex_unlock(&c->mu);
	if (l == NULL)
		return;
	CUcontext was;
	(void)cuCtxPushCurrent_v2(c->ctx);
	CUresult r = enqueue(l);
	(void)cuCtxPopCurrent_v2(&was);
	if (r != CUDA_SUCCESS)
		cuda_failed(c, "cuLaunchKernel", r);
}

static result take(list *l) {
	comm *c = l->c;
	c->held = l;
	if (c->ranks > 1 && !c->blocking) {
		c->polls = 2;
		return IN_PROGRESS;
	}
	submit(c);
	return (result)c->failed;
}

result ncclGroupStart(void) {
	FAULT();
	depth++;
	return OK;
}

result ncclGroupEnd(void) {
	result r = (result)fake_fault(__func__);
	if (depth == 0)
		return INVALID_USAGE;
	if (--depth > 0)
		return r;
	list *l = grouped, *next;
	grouped = NULL;
	for (; l != NULL; l = next) {
		next = l->next;
		result taken = r == OK || r == IN_PROGRESS ? take(l) : OK;
		r = taken != OK ? taken : r;
	}
	return r;
}

static bool on_device(comm *c, addr p, size_t n) {
	pthread_rwlock_rdlock(&fake_mem);
	range *r = fake_range(p);
	bool ok = n == 0 || (r != NULL && fake_covered(p, n) && r->device == c->ctx->device);
	pthread_rwlock_unlock(&fake_mem);
	return ok;
}

static result check(comm *c, const task *t, size_t sent, size_t received) {
	if (ended(c))
		return INVALID_ARGUMENT;
	if (c->failed != OK)
		return (result)c->failed;
	if (!c->ready || c->held != NULL || c->finalized) {
		fail(c, INVALID_ARGUMENT, "Attempt to use communicator before the previous operation returned ncclSuccess");
		return INVALID_ARGUMENT;
	}
	size_t size = type_size(t->t.type);
	if (size == 0 || t->t.op > 4 || t->t.root >= (uint64_t)c->ranks || !on_device(c, t->src, sent * size) || !on_device(c, t->dst, received * size))
		return INVALID_ARGUMENT;
	return OK;
}

static result call(comm *c, task t, size_t sent, size_t received) {
	result r = check(c, &t, sent, received);
	if (r != OK)
		return r;
	list *l = grouped;
	while (l != NULL && l->c != c)
		l = l->next;
	if (l == NULL) {
		l = calloc(1, sizeof *l);
		*l = (list){.c = c, .next = grouped};
		grouped = l;
	}
	l->tasks = realloc(l->tasks, (l->n + 1) * sizeof t);
	l->tasks[l->n++] = t;
	if (depth > 0)
		return OK;
	grouped = NULL;
	return take(l);
}

#define TASK(k, ty, o, who, n, d, s) ((task){.t = {k, (uint64_t)(ty), (uint64_t)(o), (uint64_t)(who), n}, .dst = (addr)(d), .src = (addr)(s), .stream = stream})

result ncclAllReduce(const void *src, void *dst, size_t n, int type, int o, comm *c, CUstream stream) {
	FAULT();
	return call(c, TASK(ALL_REDUCE, type, o, 0, n, dst, src), n, n);
}

result ncclBroadcast(const void *src, void *dst, size_t n, int type, int root, comm *c, CUstream stream) {
	FAULT();
	return call(c, TASK(BROADCAST, type, 0, root, n, dst, src), c != NULL && root == c->rank ? n : 0, n);
}

result ncclAllGather(const void *src, void *dst, size_t n, int type, comm *c, CUstream stream) {
	FAULT();
	return call(c, TASK(ALL_GATHER, type, 0, 0, n, dst, src), n, c != NULL ? n * (size_t)c->ranks : 0);
}

result ncclReduceScatter(const void *src, void *dst, size_t n, int type, int o, comm *c, CUstream stream) {
	FAULT();
	return call(c, TASK(REDUCE_SCATTER, type, o, 0, n, dst, src), c != NULL ? n * (size_t)c->ranks : 0, n);
}

result ncclSend(const void *src, size_t n, int type, int peer, comm *c, CUstream stream) {
	FAULT();
	return call(c, TASK(SEND, type, 0, peer, n, NULL, src), n, 0);
}

result ncclRecv(void *dst, size_t n, int type, int peer, comm *c, CUstream stream) {
	FAULT();
	return call(c, TASK(RECV, type, 0, peer, n, dst, NULL), 0, n);
}
