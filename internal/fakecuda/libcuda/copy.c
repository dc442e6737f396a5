#include "fake.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

// Copies and memsets. Callers of cp and set hold fake_mem; false: something
// that is not there was touched.

static char *place(addr p, char *host, CUcontext whose, size_t done, size_t *left) {
	if (host != NULL)
		return host + done;
	CUcontext actor = fake_actor;
	if (whose != NULL)
		fake_actor = whose;
	char *at = fake_translate(p + done, left);
	fake_actor = actor;
	return at;
}

static bool cp(const op *o) {
	for (size_t done = 0; done < o->n;) {
		size_t to = o->n - done, from = to;
		char *dst = place(o->dst, o->host_dst, o->dst_ctx, done, &to);
		char *src = place(o->src, o->host_src, o->src_ctx, done, &from);
		size_t n = to < from ? to : from;
		if (dst == NULL || src == NULL)
			return false;
		if (n > o->n - done)
			n = o->n - done;
		memmove(dst, src, n);
		done += n;
	}
	return true;
}

static bool set(const op *o) {
	size_t left;
	for (size_t done = 0; done < o->n; done += left) {
		char *dst = fake_translate(o->dst + done, &left);
		if (dst == NULL)
			return false;
		if (left > o->n - done)
			left = o->n - done;
		if (o->width == 1)
			memset(dst, (int)o->value, left);
		else
			for (size_t i = 0; i + (size_t)o->width <= left; i += (size_t)o->width)
				memcpy(dst + i, &o->value, (size_t)o->width);
	}
	return true;
}

// The kernels of ../../testkit/gputest, which see for what they do.

enum { SPIN, HOLD, FILL, CHECK, ADD };
static const struct {
	const char *name;
	int params;
} kernels[] = {[SPIN] = {"cupool_spin", 1}, [HOLD] = {"cupool_hold", 2}, [FILL] = {"cupool_fill", 3}, [CHECK] = {"cupool_check", 4}, [ADD] = {"add", 3}};

static uint32_t *word(addr p) {
	size_t left;
	return (uint32_t *)fake_translate(p, &left);
}

// emulate runs a kernel of ../../kernels, with its device addresses replaced by
// where the bytes are.
static bool emulate(const op *o) {
	size_t left;
	bool ok = true;
	for (size_t i = 0; i < o->emulated->size / sizeof *o->params; i++) {
		char *bytes = fake_translate(o->params[i], &left);
		if (bytes != NULL)
			o->params[i] = (uint64_t)bytes;
		else if (fake_range(o->params[i]) != NULL) // of a device that the kernel may not touch
			ok = false;
	}
	if (ok)
		fake_emulate(o->emulated, o->params, o->grid_x, o->grid_y, o->block);
	free(o->params);
	return ok;
}

static bool kernel(const op *o) {
	uint32_t wrong = 0, *w = NULL;
	size_t left = 0; // bytes from w on that are side by side
	for (uint64_t i = 0; i < o->args[1]; i++, w++, left -= 4) {
		if (left < 4)
			w = (uint32_t *)fake_translate(o->args[0] + 4 * i, &left);
		if (w == NULL || left < 4)
			return false;
		uint32_t want = (uint32_t)o->args[2] + (uint32_t)i * 0x9E3779B1u;
		if (o->kernel == FILL)
			*w = want;
		else if (o->kernel == ADD)
			*w += (uint32_t)o->args[2];
		else if (*w != want)
			wrong++;
	}
	if (o->kernel != CHECK)
		return true;
	if (o->args[1] == 0)
		return true;
	uint32_t *count = word(o->args[3]);
	if (count != NULL)
		__atomic_fetch_add(count, wrong, __ATOMIC_RELAXED);
	return count != NULL;
}

static void pause_for(uint64_t ns) {
	struct timespec t = {(time_t)(ns / 1000000000), (long)(ns % 1000000000)};
	nanosleep(&t, NULL);
}

static bool hold(const op *o) {
	const uint64_t nap = 20000;
	uint32_t set = 0;
	for (uint64_t ns = 0; o->args[0] != 0 && set == 0 && ns < o->args[1]; ns += nap) {
		pthread_rwlock_rdlock(&fake_mem);
		uint32_t *flag = word(o->args[0]);
		if (flag != NULL)
			set = __atomic_load_n(flag, __ATOMIC_ACQUIRE);
		pthread_rwlock_unlock(&fake_mem);
		if (flag == NULL)
			return false;
		pause_for(nap);
	}
	return true;
}

void fake_run(CUcontext ctx, op *o) {
	bool ok = true;
	fake_actor = ctx;
	if (o->kind == OP_POOL_FREE) {
		fake_pool_free_now(o->dst);
		return;
	}
	if (o->kind == OP_CALL) {
		o->emulated->thread(o->params);
		free(o->params);
		return;
	}
	if (o->kind == OP_KERNEL && o->emulated == NULL && o->kernel == SPIN) {
		pause_for(o->args[0]);
		return;
	}
	if (o->kind == OP_KERNEL && o->emulated == NULL && o->kernel == HOLD) {
		if (!hold(o))
			fake_lose(ctx, CUDA_ERROR_ILLEGAL_ADDRESS);
		return;
	}
	pthread_rwlock_rdlock(&fake_mem);
	switch (o->kind) {
	case OP_COPY:
		ok = cp(o);
		break;
	case OP_SET:
		ok = set(o);
		break;
	case OP_KERNEL:
		ok = o->emulated != NULL ? emulate(o) : kernel(o);
		break;
	default:
		break;
	}
	pthread_rwlock_unlock(&fake_mem);
	if (!ok)
		fake_lose(ctx, CUDA_ERROR_ILLEGAL_ADDRESS);
}

static bool covered(addr p, size_t n) {
	pthread_rwlock_rdlock(&fake_mem);
	bool ok = fake_covered(p, n);
	pthread_rwlock_unlock(&fake_mem);
	return ok;
}

// submit checks the device addresses of o, which its host addresses replace.
static CUresult submit(CUstream h, op o) {
	CUstream s;
	CUresult r = fake_stream(h, &s);
	if (r == CUDA_SUCCESS && o.n == 0)
		return r;
	if (r == CUDA_SUCCESS && o.host_dst == NULL && !covered(o.dst, o.n))
		r = CUDA_ERROR_INVALID_VALUE;
	if (r == CUDA_SUCCESS && o.kind == OP_COPY && o.host_src == NULL && !covered(o.src, o.n))
		r = CUDA_ERROR_INVALID_VALUE;
	if (r != CUDA_SUCCESS) {
		free(o.staged);
		return r;
	}
	return fake_submit(s, o);
}

static CUresult submit_and_wait(op o) {
	CUresult r = submit(NULL, o);
	return r != CUDA_SUCCESS ? r : fake_wait(fake_null_stream(fake_current()));
}

CUresult cuMemcpyAsync(CUdeviceptr dst, CUdeviceptr src, size_t n, CUstream s) {
	FAKE_CALL(true);
	return submit(s, (op){.kind = OP_COPY, .dst = dst, .src = src, .n = n});
}

CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr dst, CUdeviceptr src, size_t n, CUstream s) {
	FAKE_CALL(true);
	return submit(s, (op){.kind = OP_COPY, .dst = dst, .src = src, .n = n});
}

// Pageable memory is read before the call returns, other memory when its
// turn comes.
CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr dst, const void *src, size_t n, CUstream s) {
	FAKE_CALL(true);
	op o = {.kind = OP_COPY, .dst = dst, .src = (addr)src, .n = n};
	if (!covered((addr)src, n)) {
		CUstream on;
		if (fake_stream(s, &on) == CUDA_SUCCESS && fake_capture_forbids(on))
			return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
		o.staged = malloc(n);
		memcpy(o.staged, src, n);
		o.host_src = o.staged;
	}
	return submit(s, o);
}

CUresult cuMemcpyDtoHAsync_v2(void *dst, CUdeviceptr src, size_t n, CUstream h) {
	CUstream s;
	FAKE_CALL(true);
	CUresult r = fake_stream(h, &s);
	bool pageable = !covered((addr)dst, n);
	if (r == CUDA_SUCCESS && pageable && fake_capture_forbids(s))
		return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	if (r == CUDA_SUCCESS)
		r = submit(h, (op){.kind = OP_COPY, .dst = (addr)dst, .host_dst = pageable ? dst : NULL, .src = src, .n = n});
	return r == CUDA_SUCCESS && pageable ? fake_wait(s) : r;
}

CUresult cuMemcpy(CUdeviceptr dst, CUdeviceptr src, size_t n) {
	FAKE_CALL(true);
	return submit_and_wait((op){.kind = OP_COPY, .dst = dst, .src = src, .n = n});
}

CUresult cuMemcpyDtoD_v2(CUdeviceptr dst, CUdeviceptr src, size_t n) {
	FAKE_CALL(true);
	return submit_and_wait((op){.kind = OP_COPY, .dst = dst, .src = src, .n = n});
}

CUresult cuMemcpyHtoD_v2(CUdeviceptr dst, const void *src, size_t n) {
	FAKE_CALL(true);
	return submit_and_wait((op){.kind = OP_COPY, .dst = dst, .host_src = (char *)src, .n = n});
}

CUresult cuMemcpyDtoH_v2(void *dst, CUdeviceptr src, size_t n) {
	FAKE_CALL(true);
	return submit_and_wait((op){.kind = OP_COPY, .host_dst = dst, .src = src, .n = n});
}

// Each side of a copy between contexts is touched for its own context, so that
// it needs no peer access.
static op peer_copy(addr dst, CUcontext to, addr src, CUcontext from, size_t n) {
	return (op){.kind = OP_COPY, .dst = dst, .src = src, .n = n, .dst_ctx = to, .src_ctx = from};
}

CUresult cuMemcpyPeerAsync(CUdeviceptr dst, CUcontext to, CUdeviceptr src, CUcontext from, size_t n, CUstream s) {
	FAKE_CALL(true);
	if (to == NULL || from == NULL || to->refs == 0 || from->refs == 0)
		return CUDA_ERROR_INVALID_CONTEXT;
	return submit(s, peer_copy(dst, to, src, from, n));
}

CUresult cuMemcpyPeer(CUdeviceptr dst, CUcontext to, CUdeviceptr src, CUcontext from, size_t n) {
	FAKE_CALL(true);
	if (to == NULL || from == NULL || to->refs == 0 || from->refs == 0)
		return CUDA_ERROR_INVALID_CONTEXT;
	return submit_and_wait(peer_copy(dst, to, src, from, n));
}

#define SET(v, count, w) ((op){.kind = OP_SET, .dst = p, .value = (v), .n = (count) * (w), .width = (w)})

CUresult cuMemsetD8Async(CUdeviceptr p, unsigned char v, size_t n, CUstream s) { FAKE_CALL(true); return submit(s, SET(v, n, 1)); }
CUresult cuMemsetD16Async(CUdeviceptr p, unsigned short v, size_t n, CUstream s) { FAKE_CALL(true); return submit(s, SET(v, n, 2)); }
CUresult cuMemsetD32Async(CUdeviceptr p, unsigned v, size_t n, CUstream s) { FAKE_CALL(true); return submit(s, SET(v, n, 4)); }
CUresult cuMemsetD8_v2(CUdeviceptr p, unsigned char v, size_t n) { FAKE_CALL(true); return submit_and_wait(SET(v, n, 1)); }
CUresult cuMemsetD16_v2(CUdeviceptr p, unsigned short v, size_t n) { FAKE_CALL(true); return submit_and_wait(SET(v, n, 2)); }
CUresult cuMemsetD32_v2(CUdeviceptr p, unsigned v, size_t n) { FAKE_CALL(true); return submit_and_wait(SET(v, n, 4)); }

// A module is nothing; a function is the number of a kernel above and one, or
// an emulated kernel. An image is machine code in an ELF file, or PTX.

CUresult cuModuleLoadData(CUmodule *m, const void *image) {
	FAKE_CALL(true);
	if (image == NULL || (memcmp(image, "\177ELF", 4) != 0 && strstr(image, ".version") == NULL))
		return CUDA_ERROR_INVALID_IMAGE;
	*m = malloc(1);
	return CUDA_SUCCESS;
}

CUresult cuModuleUnload(CUmodule m) {
	FAKE_CALL(true);
	free(m);
	return CUDA_SUCCESS;
}

CUresult cuModuleGetFunction(CUfunction *f, CUmodule m, const char *name) {
	char symbol[128];
	FAKE_CALL(true);
	(void)m;
	for (size_t i = 0; i < sizeof kernels / sizeof *kernels; i++)
		if (strcmp(kernels[i].name, name) == 0) {
			*f = (CUfunction)(i + 1);
			return CUDA_SUCCESS;
		}
	snprintf(symbol, sizeof symbol, "emulated_%s", name);
	*f = (CUfunction)fake_symbol(symbol);
	return *f != NULL ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

static op kernel_op(CUfunction f, void **params) {
	op o = {.kind = OP_KERNEL, .kernel = (int)((size_t)f - 1)};
	if ((size_t)f > sizeof kernels / sizeof *kernels) {
		o.emulated = (const emulated *)f;
		o.params = malloc(o.emulated->size);
		memcpy(o.params, params[0], o.emulated->size);
		return o;
	}
	for (int i = 0; i < kernels[o.kernel].params; i++)
		o.args[i] = *(uint64_t *)params[i];
	return o;
}

CUresult cuLaunchKernel(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared, CUstream h, void **params, void **extra) {
	CUstream s;
	FAKE_CALL(true);
	(void)shared;
	(void)extra;
	CUresult r = fake_stream(h, &s);
	if (r != CUDA_SUCCESS)
		return r;
	if (f == NULL || gx * gy * gz == 0 || bx * by * bz == 0 || bx > 1024)
		return CUDA_ERROR_INVALID_VALUE;
	if (fake_stream_context(s) != fake_current())
		return CUDA_ERROR_INVALID_HANDLE;
	op o = kernel_op(f, params);
	o.grid_x = gx;
	o.grid_y = gy;
	o.block = bx;
	return fake_submit(s, o);
}
