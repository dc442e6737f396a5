#include "fake.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

pthread_mutex_t fake_lock = PTHREAD_MUTEX_INITIALIZER;
int fake_devices;
static _Atomic bool initialized;
static struct CUctx_st primaries[MAX_DEVICES];
static _Thread_local CUcontext stack[16]; // the thread's contexts
static _Thread_local int depth;           // the current one is stack[depth-1]

CUcontext fake_current(void) { return depth > 0 ? stack[depth - 1] : NULL; }

void fake_lose(CUcontext ctx, CUresult why) {
	int alive = 0;
	if (ctx != NULL)
		atomic_compare_exchange_strong(&ctx->lost, &alive, (int)why);
}

CUresult fake_enter(const char *call, bool needs_context) {
	CUcontext ctx = fake_current();
	if (!initialized)
		return CUDA_ERROR_NOT_INITIALIZED;
	if (needs_context && ctx == NULL)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (needs_context && ctx->refs == 0)
		return CUDA_ERROR_CONTEXT_IS_DESTROYED;
	if (needs_context && ctx->lost)
		return (CUresult)ctx->lost;
	CUresult r = fake_fault(call);
	if (fake_fatal(r))
		fake_lose(ctx, r);
	return r;
}

CUresult cuInit(unsigned int flags) {
	CUresult r = fake_fault(__func__);
	if (r != CUDA_SUCCESS || flags != 0)
		return r != CUDA_SUCCESS ? r : CUDA_ERROR_INVALID_VALUE;
	fake_devices = (int)fake_setting("FAKECUDA_DEVICES", 2);
	if (fake_devices < 1 || fake_devices > MAX_DEVICES)
		return CUDA_ERROR_NO_DEVICE;
	initialized = true;
	return CUDA_SUCCESS;
}

CUresult cuDriverGetVersion(int *version) {
	*version = (int)fake_setting("FAKECUDA_VERSION", 13000);
	return CUDA_SUCCESS;
}

static bool known(CUdevice d) { return d >= 0 && d < fake_devices; }

CUresult cuDeviceGetCount(int *n) {
	FAKE_CALL(false);
	*n = fake_devices;
	return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice *d, int ordinal) {
	FAKE_CALL(false);
	*d = ordinal;
	return known(ordinal) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuDeviceGetName(char *name, int len, CUdevice d) {
	FAKE_CALL(false);
	snprintf(name, (size_t)len, "fakecuda %d", d);
	return known(d) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

static CUresult uuid(CUuuid *u, CUdevice d) {
	memset(u, 0, sizeof *u);
	memcpy(u->bytes, "fakecuda", 8);
	u->bytes[15] = (char)d;
	return known(d) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}
CUresult cuDeviceGetUuid(CUuuid *u, CUdevice d) { FAKE_CALL(false); return uuid(u, d); }
CUresult cuDeviceGetUuid_v2(CUuuid *u, CUdevice d) { FAKE_CALL(false); return uuid(u, d); }

bool fake_rdma(void) { return fake_setting("FAKECUDA_RDMA", 1) != 0; }

CUresult cuDeviceGetAttribute(int *v, CUdevice_attribute attr, CUdevice d) {
	static const struct { int attr, value; } values[] = {
		{1, 1024}, {10, 32}, {16, 4}, {19, 1}, {31, 1}, {41, 1}, {75, 8}, {76, 0}, {83, 1},
		{88, 0}, {89, 1}, {90, 1}, {91, 1}, {100, 0}, {101, 0}, {102, 1}, {103, 1}, {115, 1},
		{119, 1}, {125, 1}};
	FAKE_CALL(false);
	*v = 0;
	for (size_t i = 0; i < sizeof values / sizeof *values; i++)
		if (values[i].attr == (int)attr)
			*v = values[i].value;
	if (attr == 128) // HANDLE_TYPE_FABRIC_SUPPORTED
		*v = fake_setting("FAKECUDA_FABRIC", 0) != 0;
	if (attr == 110) // GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED
		*v = fake_rdma();
	return known(d) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

// A dead context keeps its memory, as stale handles of it are compared with.
static void end(CUcontext ctx) {
	fake_streams_end(ctx);
	fake_ranges_drop(ctx);
	ctx->peers = 0;
	for (int d = 0; d < MAX_DEVICES; d++)
		primaries[d].peers &= ~(1u << ctx->device); // who wants it again asks again
	ctx->null_stream = NULL;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *ctx, CUdevice d) {
	FAKE_CALL(false);
	if (!known(d))
		return CUDA_ERROR_INVALID_DEVICE;
	pthread_mutex_lock(&fake_lock);
	CUcontext c = &primaries[d];
	if (c->refs++ == 0) {
		c->device = d;
		c->primary = true;
		c->lost = 0;
	}
	pthread_mutex_unlock(&fake_lock);
	*ctx = c;
	return CUDA_SUCCESS;
}

static CUresult release(CUdevice d, bool all) {
	if (!known(d))
		return CUDA_ERROR_INVALID_DEVICE;
	pthread_mutex_lock(&fake_lock);
	CUcontext c = &primaries[d];
	bool last = c->refs > 0 && (all || c->refs == 1);
	bool idle = c->refs == 0;
	if (!last && !idle)
		c->refs--;
	pthread_mutex_unlock(&fake_lock);
	if (last) {
		end(c);
		c->lost = 0;
		c->refs = 0;
	}
	return idle && !all ? CUDA_ERROR_INVALID_CONTEXT : CUDA_SUCCESS;
}
CUresult cuDevicePrimaryCtxRelease(CUdevice d) { FAKE_CALL(false); return release(d, false); }
CUresult cuDevicePrimaryCtxRelease_v2(CUdevice d) { FAKE_CALL(false); return release(d, false); }
CUresult cuDevicePrimaryCtxReset(CUdevice d) { FAKE_CALL(false); return release(d, true); }
CUresult cuDevicePrimaryCtxReset_v2(CUdevice d) { FAKE_CALL(false); return release(d, true); }

CUresult cuDevicePrimaryCtxGetState(CUdevice d, unsigned *flags, int *active) {
	FAKE_CALL(false);
	if (!known(d))
		return CUDA_ERROR_INVALID_DEVICE;
	*flags = 0;
	*active = primaries[d].refs > 0;
	return CUDA_SUCCESS;
}

CUresult cuCtxCreate_v2(CUcontext *ctx, unsigned flags, CUdevice d) {
	FAKE_CALL(false);
	if (!known(d))
		return CUDA_ERROR_INVALID_DEVICE;
	CUcontext c = calloc(1, sizeof *c);
	c->device = d;
	c->refs = 1;
	c->flags = flags;
	*ctx = c;
	return cuCtxPushCurrent_v2(c);
}

CUresult cuCtxDestroy_v2(CUcontext ctx) {
	FAKE_CALL(false);
	if (ctx == NULL || ctx->primary || ctx->refs == 0)
		return CUDA_ERROR_INVALID_CONTEXT;
	end(ctx);
	ctx->refs = 0;
	if (fake_current() == ctx)
		depth--;
	return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext *ctx) {
	FAKE_CALL(false);
	*ctx = fake_current();
	return CUDA_SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext ctx) {
	FAKE_CALL(false);
	if (ctx != NULL && ctx->refs == 0)
		return CUDA_ERROR_CONTEXT_IS_DESTROYED;
	if (depth > 0)
		depth--;
	if (ctx != NULL)
		stack[depth++] = ctx;
	return CUDA_SUCCESS;
}

CUresult cuCtxPushCurrent_v2(CUcontext ctx) {
	FAKE_CALL(false);
	if (ctx == NULL || depth == 16)
		return CUDA_ERROR_INVALID_CONTEXT;
	stack[depth++] = ctx;
	return CUDA_SUCCESS;
}

CUresult cuCtxPopCurrent_v2(CUcontext *ctx) {
	FAKE_CALL(false);
	if (depth == 0)
		return CUDA_ERROR_INVALID_CONTEXT;
	*ctx = stack[--depth];
	return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice(CUdevice *d) {
	FAKE_CALL(true);
	*d = fake_current()->device;
	return CUDA_SUCCESS;
}

CUresult cuCtxGetFlags(unsigned *flags) {
	FAKE_CALL(true);
	*flags = fake_current()->flags;
	return CUDA_SUCCESS;
}

CUresult cuCtxGetApiVersion(CUcontext ctx, unsigned *version) {
	FAKE_CALL(false);
	*version = ctx != NULL ? 3020 : 0;
	return ctx != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult cuCtxSynchronize(void) {
	FAKE_CALL(true);
	CUcontext c = fake_current();
	fake_sync_device(c->device);
	return (CUresult)c->lost;
}
