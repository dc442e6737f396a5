//go:build gpu

#ifndef CUPOOL_NCCL_H
#define CUPOOL_NCCL_H

#include <stddef.h>
#include <stdint.h>

// What a call returns when the library lacks it; the driver's results come back
// as CP_NCCL_DRIVER - result. ncclResult_t has no negative values.
#define CP_NCCL_MISSING (-1)
#define CP_NCCL_DRIVER (-1000)

typedef struct cp_nccl cp_nccl; // a library that is loaded

// One call, with the values of enum kind in nccl.c.
typedef struct {
	int64_t kind;
	uintptr_t dst, src;
	int64_t count, type, op, peer;
	uintptr_t stream;
} cp_nccl_task;

const char *cp_nccl_load(const char *path, cp_nccl **out); // NULL, or why it cannot be used
int cp_nccl_version(const cp_nccl *l, int *version);
int cp_nccl_id(const cp_nccl *l, void *id);
int cp_nccl_init(const cp_nccl *l, uintptr_t ctx, void **comm, int ranks, const void *id, int rank);
int cp_nccl_state(const cp_nccl *l, uintptr_t ctx, void *comm);
int cp_nccl_run(const cp_nccl *l, uintptr_t ctx, void *comm, const cp_nccl_task *tasks, size_t n);
int cp_nccl_finalize(const cp_nccl *l, uintptr_t ctx, void *comm);
int cp_nccl_destroy(const cp_nccl *l, uintptr_t ctx, void *comm);
int cp_nccl_abort(const cp_nccl *l, uintptr_t ctx, void *comm);
int cp_nccl_register(const cp_nccl *l, uintptr_t ctx, void *comm, uintptr_t p, size_t size, void **handle);
int cp_nccl_deregister(const cp_nccl *l, uintptr_t ctx, void *comm, void *handle);
const char *cp_nccl_text(const cp_nccl *l, int result);
const char *cp_nccl_last_error(const cp_nccl *l, void *comm);

#endif
