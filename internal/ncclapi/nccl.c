//go:build gpu

#include "nccl.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "../cudadrv/scope.h"

typedef void *handle;

typedef struct { // ncclUniqueId
	char bytes[128];
} unique_id;

// config is ncclConfig_t as of NCCL 2.17. Newer libraries go by its size and
// version, and older ones read its beginning.
typedef struct {
	size_t size;
	unsigned magic, version;
	int blocking, cga_cluster_size, min_ctas, max_ctas;
	const char *net_name;
} config;

#define CONFIG ((config){sizeof(config), 0xcafebeef, 21700, 0, INT_MIN, INT_MIN, INT_MIN, NULL})

// The calls, declared here so that NCCL's headers are not needed. They are the
// same from 2.14 on. The last two came with 2.19.
struct cp_nccl {
	int (*version)(int *);
	int (*id)(unique_id *);
	int (*init)(handle *, int, unique_id, int, config *);
	int (*state)(handle, int *);
	int (*finalize)(handle);
	int (*destroy)(handle);
	int (*abort)(handle);
	int (*group_start)(void);
	int (*group_end)(void);
	int (*all_reduce)(uintptr_t, uintptr_t, size_t, int, int, handle, uintptr_t);
	int (*broadcast)(uintptr_t, uintptr_t, size_t, int, int, handle, uintptr_t);
	int (*all_gather)(uintptr_t, uintptr_t, size_t, int, handle, uintptr_t);
	int (*reduce_scatter)(uintptr_t, uintptr_t, size_t, int, int, handle, uintptr_t);
	int (*send)(uintptr_t, size_t, int, int, handle, uintptr_t);
	int (*recv)(uintptr_t, size_t, int, int, handle, uintptr_t);
	const char *(*text)(int);
	const char *(*last_error)(handle);
	int (*reg)(handle, uintptr_t, size_t, handle *);
	int (*dereg)(handle, handle);
};

enum { IN_PROGRESS = 7, OPTIONAL = 2 };

static const char *const symbols[] = { // in the order of cp_nccl
	"ncclGetVersion", "ncclGetUniqueId", "ncclCommInitRankConfig", "ncclCommGetAsyncError", "ncclCommFinalize", "ncclCommDestroy",
	"ncclCommAbort", "ncclGroupStart", "ncclGroupEnd", "ncclAllReduce", "ncclBroadcast", "ncclAllGather", "ncclReduceScatter",
	"ncclSend", "ncclRecv", "ncclGetErrorString", "ncclGetLastError", "ncclCommRegister", "ncclCommDeregister",
};
enum { SYMBOLS = sizeof symbols / sizeof *symbols };
_Static_assert(sizeof(struct cp_nccl) == SYMBOLS * sizeof(void *), "a symbol for each call");

const char *cp_nccl_load(const char *path, cp_nccl **out) {
	void *so = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	void *found[SYMBOLS];
	if (so == NULL)
		return dlerror();
	for (size_t i = 0; i < SYMBOLS; i++) {
		found[i] = dlsym(so, symbols[i]);
		const char *why = found[i] == NULL ? dlerror() : NULL;
		if (found[i] == NULL && i < SYMBOLS - OPTIONAL)
			return why != NULL ? why : symbols[i];
	}
	*out = malloc(sizeof **out);
	memcpy(*out, found, sizeof **out);
	return NULL;
}

// IN_CONTEXT is the body of a function that returns the result of calls.
#define IN_CONTEXT(ctx, call)                              \
	do {                                               \
		CUcontext prev;                            \
		CUresult entered = cp_enter(ctx, &prev);   \
		if (entered != CUDA_SUCCESS)               \
			return CP_NCCL_DRIVER - (int)entered; \
		int result = (call);                       \
		cp_leave(prev);                            \
		return result;                             \
	} while (0)

int cp_nccl_version(const cp_nccl *l, int *version) { return l->version(version); }

int cp_nccl_id(const cp_nccl *l, void *id) { return l->id(id); }

int cp_nccl_init(const cp_nccl *l, uintptr_t ctx, void **comm, int ranks, const void *id, int rank) {
	config c = CONFIG;
	unique_id u;
	memcpy(&u, id, sizeof u);
	IN_CONTEXT(ctx, l->init(comm, ranks, u, rank, &c));
}

static int state(const cp_nccl *l, void *comm) {
	int now = 0, asked = l->state(comm, &now);
	return asked != 0 ? asked : now;
}

int cp_nccl_state(const cp_nccl *l, uintptr_t ctx, void *comm) { IN_CONTEXT(ctx, state(l, comm)); }

// one makes a call. kind is ncclapi.Kind.
static int one(const cp_nccl *l, void *comm, const cp_nccl_task *t) {
	size_t n = (size_t)t->count;
	int type = (int)t->type, op = (int)t->op, peer = (int)t->peer;
	switch (t->kind) {
	case 0:
		return l->all_reduce(t->src, t->dst, n, type, op, comm, t->stream);
	case 1:
		return l->broadcast(t->src, t->dst, n, type, peer, comm, t->stream);
	case 2:
		return l->all_gather(t->src, t->dst, n, type, comm, t->stream);
	case 3:
		return l->reduce_scatter(t->src, t->dst, n, type, op, comm, t->stream);
	case 4:
		return l->send(t->src, n, type, peer, comm, t->stream);
	}
	return l->recv(t->dst, n, type, peer, comm, t->stream);
}

static int run(const cp_nccl *l, void *comm, const cp_nccl_task *tasks, size_t n) {
	if (n == 1)
		return one(l, comm, tasks);
	int r = l->group_start();
	if (r != 0)
		return r;
	for (size_t i = 0; (r == 0 || r == IN_PROGRESS) && i < n; i++)
		r = one(l, comm, &tasks[i]);
	int ended = l->group_end();
	return r == 0 || r == IN_PROGRESS ? ended : r;
}

int cp_nccl_run(const cp_nccl *l, uintptr_t ctx, void *comm, const cp_nccl_task *tasks, size_t n) { IN_CONTEXT(ctx, run(l, comm, tasks, n)); }

int cp_nccl_finalize(const cp_nccl *l, uintptr_t ctx, void *comm) { IN_CONTEXT(ctx, l->finalize(comm)); }

int cp_nccl_destroy(const cp_nccl *l, uintptr_t ctx, void *comm) { IN_CONTEXT(ctx, l->destroy(comm)); }

int cp_nccl_abort(const cp_nccl *l, uintptr_t ctx, void *comm) { IN_CONTEXT(ctx, l->abort(comm)); }

int cp_nccl_register(const cp_nccl *l, uintptr_t ctx, void *comm, uintptr_t p, size_t size, void **h) {
	if (l->reg == NULL || l->dereg == NULL)
		return CP_NCCL_MISSING;
	IN_CONTEXT(ctx, l->reg(comm, p, size, h));
}

int cp_nccl_deregister(const cp_nccl *l, uintptr_t ctx, void *comm, void *h) { IN_CONTEXT(ctx, l->dereg(comm, h)); }

const char *cp_nccl_text(const cp_nccl *l, int result) { return l->text(result); }

const char *cp_nccl_last_error(const cp_nccl *l, void *comm) { return l->last_error(comm); }
