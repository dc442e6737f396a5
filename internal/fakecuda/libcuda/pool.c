#include "share.h"

#include <stdlib.h>
#include <unistd.h>

// A pool counts what it holds; the memory of a freed allocation goes back at
// once, whatever the counts say. Attributes are indexed by CUDA's numbers.
enum { FOLLOW = 1, OPPORTUNISTIC, INTERNAL, THRESHOLD, RESERVED, RESERVED_HIGH, USED, USED_HIGH, ATTRS };
#define STEP (32ul << 20) // what a pool takes from the device at a time

struct CUmemPoolHandle_st {
	int device;
	uint32_t id;
	bool alive, shareable, exported, imported;
	size_t max;
	uint64_t attrs[ATTRS];
	unsigned long long access[MAX_DEVICES];
	CUmemoryPool next;
};

static CUmemoryPool pools, defaults[MAX_DEVICES], current[MAX_DEVICES]; // guarded by fake_lock
static uint32_t last_pool;

static CUmemoryPool make(int device) {
	CUmemoryPool p = calloc(1, sizeof *p);
	p->device = device;
	p->id = ++last_pool;
	p->alive = true;
	p->attrs[FOLLOW] = p->attrs[OPPORTUNISTIC] = p->attrs[INTERNAL] = 1;
	p->access[device] = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
	p->next = pools;
	pools = p;
	return p;
}

static CUmemoryPool default_pool(int device) {
	if (defaults[device] == NULL)
		defaults[device] = make(device);
	return defaults[device];
}

static bool alive(CUmemoryPool pool) {
	CUmemoryPool p = pools;
	while (p != NULL && p != pool)
		p = p->next;
	return p != NULL && p->alive;
}

static CUmemoryPool pool_by_id(uint64_t id) {
	CUmemoryPool p = pools;
	while (p != NULL && p->id != id)
		p = p->next;
	return p;
}

static void raise_to(uint64_t *high, uint64_t v) {
	if (*high < v)
		*high = v;
}

static bool take(CUmemoryPool p, size_t size) {
	uint64_t *a = p->attrs;
	if (p->max > 0 && a[USED] + size > p->max)
		return false;
	if (a[USED] + size > a[RESERVED]) {
		size_t more = fake_round(a[USED] + size - a[RESERVED], STEP);
		if (!fake_charge(p->device, more)) {
			more = a[USED] + size - a[RESERVED];
			if (!fake_charge(p->device, more))
				return false;
		}
		a[RESERVED] += more;
	}
	a[USED] += size;
	raise_to(&a[RESERVED_HIGH], a[RESERVED]);
	raise_to(&a[USED_HIGH], a[USED]);
	return true;
}

static void shrink(CUmemoryPool p, size_t keep) {
	uint64_t to = p->attrs[USED] > keep ? p->attrs[USED] : keep;
	if (p->attrs[RESERVED] > to) {
		fake_uncharge(p->device, p->attrs[RESERVED] - to);
		p->attrs[RESERVED] = to;
	}
}

static void put(CUmemoryPool p, size_t size) {
	p->attrs[USED] -= size;
	shrink(p, p->attrs[THRESHOLD]);
}

static CUresult alloc(CUmemoryPool pool, addr *out, size_t size, CUstream h) {
	CUstream s;
	CUresult r = fake_stream(h, &s);
	if (r != CUDA_SUCCESS)
		return r;
	pthread_mutex_lock(&fake_lock);
	if (pool == NULL) {
		int d = fake_current()->device;
		pool = current[d] != NULL ? current[d] : default_pool(d);
	}
	if (size == 0 || !alive(pool) || pool->imported)
		r = CUDA_ERROR_INVALID_VALUE;
	else if (!take(pool, size))
		r = CUDA_ERROR_OUT_OF_MEMORY;
	else if ((r = fake_device_memory(pool->device, size, POOLED, pool->id, out)) != CUDA_SUCCESS)
		put(pool, size);
	pthread_mutex_unlock(&fake_lock);
	return r;
}

CUresult cuMemAllocAsync(CUdeviceptr *p, size_t size, CUstream s) {
	FAKE_CALL(true);
	return alloc(NULL, (addr *)p, size, s);
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr *p, size_t size, CUmemoryPool pool, CUstream s) {
	FAKE_CALL(true);
	return pool != NULL ? alloc(pool, (addr *)p, size, s) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemFreeAsync(CUdeviceptr p, CUstream h) {
	CUstream s;
	FAKE_CALL(true);
	CUresult r = fake_stream(h, &s);
	pthread_rwlock_rdlock(&fake_mem);
	range *x = fake_range(p);
	bool ok = x != NULL && x->start == p && (x->kind == POOLED || x->kind == POOL_IMPORTED);
	pthread_rwlock_unlock(&fake_mem);
	if (r != CUDA_SUCCESS)
		return r;
	return ok ? fake_submit(s, (op){.kind = OP_POOL_FREE, .dst = p}) : CUDA_ERROR_INVALID_VALUE;
}

void fake_pool_free_now(addr p) {
	range r;
	pthread_mutex_lock(&fake_lock);
	if (fake_range_remove(p, POOLED, &r)) {
		CUmemoryPool pool = pool_by_id(r.owner);
		put(pool, r.size);
		fake_range_close(&r);
	} else if (fake_range_remove(p, POOL_IMPORTED, &r)) {
		fake_range_close(&r); // the pool's owner is charged for it
	}
	pthread_mutex_unlock(&fake_lock);
}

#define WITH_LOCK(call)                          \
	do {                                     \
		pthread_mutex_lock(&fake_lock);  \
		CUresult r_ = (call);            \
		pthread_mutex_unlock(&fake_lock); \
		return r_;                       \
	} while (0)

static CUresult get(CUmemoryPool *out, CUdevice d, bool the_default) {
	if (d < 0 || d >= fake_devices)
		return CUDA_ERROR_INVALID_DEVICE;
	*out = the_default || current[d] == NULL ? default_pool(d) : current[d];
	return CUDA_SUCCESS;
}
CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *p, CUdevice d) { FAKE_CALL(false); WITH_LOCK(get(p, d, true)); }
CUresult cuDeviceGetMemPool(CUmemoryPool *p, CUdevice d) { FAKE_CALL(false); WITH_LOCK(get(p, d, false)); }

static CUresult set_current(CUdevice d, CUmemoryPool p) {
	if (d < 0 || d >= fake_devices || !alive(p) || p->device != d)
		return CUDA_ERROR_INVALID_VALUE;
	current[d] = p;
	return CUDA_SUCCESS;
}
CUresult cuDeviceSetMemPool(CUdevice d, CUmemoryPool p) { FAKE_CALL(false); WITH_LOCK(set_current(d, p)); }

static CUresult create(CUmemoryPool *p, const CUmemPoolProps *props) {
	CUmemLocation at = props->location;
	int d = at.type == CU_MEM_LOCATION_TYPE_DEVICE ? at.id : 0; // all memory is the host's
	if (at.type != CU_MEM_LOCATION_TYPE_DEVICE && at.type != CU_MEM_LOCATION_TYPE_HOST && !(at.type == CU_MEM_LOCATION_TYPE_HOST_NUMA && at.id == 0))
		return CUDA_ERROR_INVALID_VALUE;
	if (d < 0 || d >= fake_devices || (props->allocType != CU_MEM_ALLOCATION_TYPE_PINNED && props->allocType != CU_MEM_ALLOCATION_TYPE_MANAGED))
		return CUDA_ERROR_INVALID_VALUE;
	*p = make(d);
	(*p)->shareable = props->handleTypes == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
	(*p)->max = props->maxSize;
	return CUDA_SUCCESS;
}
CUresult cuMemPoolCreate(CUmemoryPool *p, const CUmemPoolProps *props) { FAKE_CALL(false); WITH_LOCK(create(p, props)); }

static CUresult destroy(CUmemoryPool p) {
	if (!alive(p) || p == defaults[p->device])
		return CUDA_ERROR_INVALID_VALUE;
	p->alive = false;
	p->attrs[THRESHOLD] = 0;
	shrink(p, 0);
	if (current[p->device] == p)
		current[p->device] = NULL;
	return CUDA_SUCCESS;
}
CUresult cuMemPoolDestroy(CUmemoryPool p) { FAKE_CALL(false); WITH_LOCK(destroy(p)); }

static CUresult trim(CUmemoryPool p, size_t keep) {
	if (!alive(p))
		return CUDA_ERROR_INVALID_VALUE;
	shrink(p, keep);
	return CUDA_SUCCESS;
}
CUresult cuMemPoolTrimTo(CUmemoryPool p, size_t keep) { FAKE_CALL(false); WITH_LOCK(trim(p, keep)); }

static CUresult set_attr(CUmemoryPool p, int attr, void *v) {
	if (!alive(p) || attr < FOLLOW || attr >= ATTRS || attr == RESERVED || attr == USED)
		return CUDA_ERROR_INVALID_VALUE;
	if ((attr == RESERVED_HIGH || attr == USED_HIGH) && *(uint64_t *)v != 0)
		return CUDA_ERROR_INVALID_VALUE; // may only be reset
	if (attr == RESERVED_HIGH || attr == USED_HIGH)
		p->attrs[attr] = p->attrs[attr - 1];
	else
		p->attrs[attr] = attr < THRESHOLD ? (uint64_t)*(int *)v : *(uint64_t *)v;
	return CUDA_SUCCESS;
}
CUresult cuMemPoolSetAttribute(CUmemoryPool p, CUmemPool_attribute attr, void *v) { FAKE_CALL(false); WITH_LOCK(set_attr(p, (int)attr, v)); }

static CUresult get_attr(CUmemoryPool p, int attr, void *v) {
	if (!alive(p) || attr < FOLLOW || attr >= ATTRS)
		return CUDA_ERROR_INVALID_VALUE;
	if (attr < THRESHOLD)
		*(int *)v = (int)p->attrs[attr];
	else
		*(uint64_t *)v = p->attrs[attr];
	return CUDA_SUCCESS;
}
CUresult cuMemPoolGetAttribute(CUmemoryPool p, CUmemPool_attribute attr, void *v) { FAKE_CALL(false); WITH_LOCK(get_attr(p, (int)attr, v)); }

static CUresult set_access(CUmemoryPool p, const CUmemAccessDesc *d, size_t n) {
	if (!alive(p) || n != 1 || d->location.id < 0 || d->location.id >= fake_devices)
		return CUDA_ERROR_INVALID_VALUE;
	if (d->location.id == p->device && d->flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
		return CUDA_ERROR_INVALID_DEVICE; // its own device always has access
	p->access[d->location.id] = d->flags;
	return CUDA_SUCCESS;
}
CUresult cuMemPoolSetAccess(CUmemoryPool p, const CUmemAccessDesc *d, size_t n) { FAKE_CALL(false); WITH_LOCK(set_access(p, d, n)); }

static CUresult get_access(CUmemAccess_flags *flags, CUmemoryPool p, CUmemLocation *at) {
	if (!alive(p) || at->id < 0 || at->id >= fake_devices)
		return CUDA_ERROR_INVALID_VALUE;
	*flags = (CUmemAccess_flags)p->access[at->id];
	return CUDA_SUCCESS;
}
CUresult cuMemPoolGetAccess(CUmemAccess_flags *flags, CUmemoryPool p, CUmemLocation *at) { FAKE_CALL(false); WITH_LOCK(get_access(flags, p, at)); }

static CUresult export_pool(int *fd, CUmemoryPool p) {
	if (!alive(p) || !p->shareable)
		return CUDA_ERROR_INVALID_VALUE;
	p->exported = true;
	*fd = fake_ticket_fd((ticket){.device = p->device, .pool = p->id});
	return *fd >= 0 ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}
CUresult cuMemPoolExportToShareableHandle(void *out, CUmemoryPool p, CUmemAllocationHandleType type, unsigned long long flags) {
	FAKE_CALL(false);
	(void)flags;
	if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
		return CUDA_ERROR_INVALID_VALUE;
	WITH_LOCK(export_pool(out, p));
}

static CUresult import_pool(CUmemoryPool *p, int fd) {
	ticket t;
	if (!fake_ticket_read(fd, &t) || t.pool == 0)
		return CUDA_ERROR_INVALID_VALUE;
	*p = make(t.device);
	(*p)->imported = true;
	return CUDA_SUCCESS;
}
CUresult cuMemPoolImportFromShareableHandle(CUmemoryPool *p, void *os, CUmemAllocationHandleType type, unsigned long long flags) {
	FAKE_CALL(false);
	(void)flags;
	if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
		return CUDA_ERROR_INVALID_VALUE;
	WITH_LOCK(import_pool(p, (int)(intptr_t)os));
}

CUresult cuMemPoolExportPointer(CUmemPoolPtrExportData *out, CUdeviceptr p) {
	FAKE_CALL(true);
	ticket t = {0};
	pthread_rwlock_rdlock(&fake_mem);
	range *r = fake_range(p);
	bool ok = r != NULL && r->kind == POOLED;
	if (ok)
		t = (ticket){.device = r->device, .offset = r->offset, .size = r->size, .pool = (uint32_t)r->owner};
	pthread_rwlock_unlock(&fake_mem);
	pthread_mutex_lock(&fake_lock);
	ok = ok && pool_by_id(t.pool)->exported; // CUDA too wants the pool first
	pthread_mutex_unlock(&fake_lock);
	if (ok)
		fake_ticket_write(out, t);
	return ok ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemPoolImportPointer(CUdeviceptr *p, CUmemoryPool pool, CUmemPoolPtrExportData *data) {
	FAKE_CALL(true);
	ticket t;
	pthread_mutex_lock(&fake_lock);
	bool ok = alive(pool) && pool->imported;
	pthread_mutex_unlock(&fake_lock);
	if (!ok || !fake_ticket_parse(data, &t))
		return CUDA_ERROR_INVALID_VALUE;
	return fake_ticket_import(&t, POOL_IMPORTED, (addr *)p);
}
