#include "fake.h"

#include <stdlib.h>
#include <sys/mman.h>

#include "share.h"

// A memory handle is its index in handles, plus one.
typedef struct {
	int device;
	int64_t offset;
	size_t size;
	char *bytes;
	int maps;
	int refs;         // that cuMemRelease takes
	int handle_types; // by which it can be exported
	bool rdma;        // network cards may reach it
	bool imported;
} memory;

// A reservation has a shadow: what is mapped at its addresses is mapped there
// too, for workers, so that neighbours are neighbours to kernels.
typedef struct {
	addr start;
	size_t size;
	char *shadow;
} reservation;

static memory *handles; // guarded by fake_lock, as are the reservations
static size_t nhandles, handles_room;
static reservation *reserved;
static size_t nreserved, reserved_room;

static void *grow(void *array, size_t *room, size_t n, size_t size) {
	if (n < *room)
		return array;
	*room = *room ? 2 * *room : 64;
	return realloc(array, *room * size);
}

static memory *memory_of(CUmemGenericAllocationHandle h) {
	if (h == 0 || h > nhandles || handles[h - 1].refs == 0)
		return NULL;
	return &handles[h - 1];
}

static CUmemGenericAllocationHandle add(memory m) {
	handles = grow(handles, &handles_room, nhandles, sizeof *handles);
	m.refs = 1;
	handles[nhandles] = m;
	return ++nhandles;
}

static void drop_if_unused(memory *m) {
	if (m->refs > 0 || m->maps > 0)
		return;
	munmap(m->bytes, m->size);
	if (!m->imported) {
		fake_store_give(m->device, m->offset, m->size);
		fake_uncharge(m->device, m->size);
	}
	m->bytes = NULL;
}

CUresult cuMemGetAllocationGranularity(size_t *g, const CUmemAllocationProp *prop, CUmemAllocationGranularity_flags opt) {
	FAKE_CALL(false);
	(void)opt;
	*g = GRANULARITY;
	return prop->location.id >= 0 && prop->location.id < fake_devices ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuMemAddressReserve(CUdeviceptr *p, size_t size, size_t align, CUdeviceptr at, unsigned long long flags) {
	FAKE_CALL(false);
	(void)at;
	if (size == 0 || size % GRANULARITY != 0 || flags != 0)
		return CUDA_ERROR_INVALID_VALUE;
	addr a = fake_addresses(size, align > GRANULARITY ? align : GRANULARITY);
	char *shadow = (char *)fake_addresses(size, GRANULARITY);
	if (a == 0 || shadow == NULL)
		return CUDA_ERROR_OUT_OF_MEMORY;
	pthread_mutex_lock(&fake_lock);
	reserved = grow(reserved, &reserved_room, nreserved, sizeof *reserved);
	reserved[nreserved++] = (reservation){a, size, shadow};
	pthread_mutex_unlock(&fake_lock);
	*p = a;
	return CUDA_SUCCESS;
}

static reservation *reservation_of(addr p, size_t size) {
	for (size_t i = 0; i < nreserved; i++)
		if (p >= reserved[i].start && p - reserved[i].start < reserved[i].size && size <= reserved[i].size - (p - reserved[i].start))
			return &reserved[i];
	return NULL;
}

static bool any_range(addr p, size_t size) {
	bool found = false;
	pthread_rwlock_rdlock(&fake_mem);
	for (size_t at = 0; at < size && !found; at += GRANULARITY)
		found = fake_range(p + at) != NULL;
	pthread_rwlock_unlock(&fake_mem);
	return found;
}

static CUresult address_free(addr p, size_t size) {
	reservation *r = reservation_of(p, size);
	if (r == NULL || r->start != p || r->size != size || any_range(p, size))
		return CUDA_ERROR_INVALID_VALUE;
	munmap(r->shadow, size);
	*r = reserved[--nreserved];
	munmap((void *)p, size);
	return CUDA_SUCCESS;
}

CUresult cuMemAddressFree(CUdeviceptr p, size_t size) {
	FAKE_CALL(false);
	pthread_mutex_lock(&fake_lock);
	CUresult r = address_free(p, size);
	pthread_mutex_unlock(&fake_lock);
	return r;
}

CUresult cuMemCreate(CUmemGenericAllocationHandle *h, size_t size, const CUmemAllocationProp *prop, unsigned long long flags) {
	FAKE_CALL(false);
	int d = prop->location.id;
	if (size == 0 || size % GRANULARITY != 0 || flags != 0 || prop->type != CU_MEM_ALLOCATION_TYPE_PINNED)
		return CUDA_ERROR_INVALID_VALUE;
	if (prop->location.type != CU_MEM_LOCATION_TYPE_DEVICE || d < 0 || d >= fake_devices)
		return CUDA_ERROR_INVALID_DEVICE;
	bool rdma = prop->allocFlags.gpuDirectRDMACapable;
	if (rdma && !fake_rdma())
		return CUDA_ERROR_NOT_SUPPORTED;
	if (prop->requestedHandleTypes & CU_MEM_HANDLE_TYPE_FABRIC && fake_setting("FAKECUDA_FABRIC", 0) != 1)
		return CUDA_ERROR_NOT_PERMITTED;
	if (!fake_charge(d, size))
		return CUDA_ERROR_OUT_OF_MEMORY;
	memory m = {.device = d, .offset = fake_store_take(d, size), .size = size, .handle_types = (int)prop->requestedHandleTypes, .rdma = rdma};
	m.bytes = fake_map_store(fake_store(d), m.offset, size);
	if (m.bytes == NULL) {
		fake_uncharge(d, size);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	pthread_mutex_lock(&fake_lock);
	*h = add(m);
	pthread_mutex_unlock(&fake_lock);
	return CUDA_SUCCESS;
}

// fakecuda_rdma reports whether network cards may reach a handle's memory.
int fakecuda_rdma(CUmemGenericAllocationHandle h) {
	pthread_mutex_lock(&fake_lock);
	memory *m = memory_of(h);
	bool rdma = m != NULL && m->rdma;
	pthread_mutex_unlock(&fake_lock);
	return rdma;
}

CUresult cuMemRelease(CUmemGenericAllocationHandle h) {
	FAKE_CALL(false);
	pthread_mutex_lock(&fake_lock);
	memory *m = memory_of(h);
	if (m != NULL) {
		m->refs--;
		drop_if_unused(m);
	}
	pthread_mutex_unlock(&fake_lock);
	return m != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult map(addr p, size_t size, CUmemGenericAllocationHandle h) {
	memory *m = memory_of(h);
	if (m == NULL || p % GRANULARITY != 0)
		return CUDA_ERROR_INVALID_VALUE;
	if (m->size != size) // as CUDA says it, on an H200 with driver 580
		return CUDA_ERROR_NOT_SUPPORTED;
	reservation *r = reservation_of(p, size);
	if (r == NULL || any_range(p, size))
		return CUDA_ERROR_INVALID_VALUE;
	char *bytes = r->shadow + (p - r->start);
	// Of size 0, shared memory stays where it was and is mapped once more.
	if (mremap(m->bytes, 0, size, MREMAP_MAYMOVE | MREMAP_FIXED, bytes) == MAP_FAILED)
		return CUDA_ERROR_OUT_OF_MEMORY;
	m->maps++;
	fake_range_add((range){.start = p, .size = size, .kind = MAPPED, .device = m->device, .bytes = bytes, .offset = m->offset, .owner = h});
	return CUDA_SUCCESS;
}

CUresult cuMemMap(CUdeviceptr p, size_t size, size_t offset, CUmemGenericAllocationHandle h, unsigned long long flags) {
	FAKE_CALL(false);
	if (offset != 0 || flags != 0)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&fake_lock);
	CUresult r = map(p, size, h);
	pthread_mutex_unlock(&fake_lock);
	return r;
}

// whole reports whether [p, p+size) consists of whole mappings.
static bool whole(addr p, size_t size) {
	bool ok = size > 0;
	pthread_rwlock_rdlock(&fake_mem);
	while (ok && size > 0) {
		range *r = fake_range(p);
		ok = r != NULL && r->kind == MAPPED && r->start == p && r->size <= size;
		if (ok) {
			p += r->size;
			size -= r->size;
		}
	}
	pthread_rwlock_unlock(&fake_mem);
	return ok;
}

// cuMemUnmap does not wait: work that is still to come to the range will
// find nothing there.
CUresult cuMemUnmap(CUdeviceptr p, size_t size) {
	FAKE_CALL(false);
	pthread_mutex_lock(&fake_lock);
	CUresult res = whole(p, size) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
	while (res == CUDA_SUCCESS && size > 0) {
		range r;
		if (!fake_range_remove(p, MAPPED, &r))
			break;
		(void)mmap(r.bytes, r.size, PROT_NONE, MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		memory *m = &handles[r.owner - 1];
		m->maps--;
		drop_if_unused(m);
		p += r.size;
		size -= r.size;
	}
	pthread_mutex_unlock(&fake_lock);
	return res;
}

static int device_at(addr p) {
	pthread_rwlock_rdlock(&fake_mem);
	range *r = fake_range(p);
	int d = r != NULL ? r->device : 0;
	pthread_rwlock_unlock(&fake_mem);
	return d;
}

CUresult cuMemSetAccess(CUdeviceptr p, size_t size, const CUmemAccessDesc *desc, size_t n) {
	FAKE_CALL(false);
	unsigned on = 0, off = 0;
	for (size_t i = 0; i < n; i++) {
		if (desc[i].location.id < 0 || desc[i].location.id >= fake_devices)
			return CUDA_ERROR_INVALID_VALUE;
		*(desc[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE ? &on : &off) |= 1u << desc[i].location.id;
	}
	if (n == 0 || !whole(p, size))
		return CUDA_ERROR_INVALID_VALUE;
	for (int d = 0; d < fake_devices; d++)
		if (on & 1u << d && !fake_peers_possible(d, device_at(p)))
			return CUDA_ERROR_INVALID_DEVICE;
	pthread_rwlock_wrlock(&fake_mem);
	for (range *r; size > 0 && (r = fake_range(p)) != NULL; p += r->size, size -= r->size)
		r->access = (r->access & ~off) | on;
	pthread_rwlock_unlock(&fake_mem);
	return CUDA_SUCCESS;
}

CUresult cuMemGetAccess(unsigned long long *flags, const CUmemLocation *at, CUdeviceptr p) {
	FAKE_CALL(false);
	pthread_rwlock_rdlock(&fake_mem);
	range *r = fake_range(p);
	if (r != NULL)
		*flags = at->id >= 0 && at->id < MAX_DEVICES && (r->access & 1u << at->id) != 0 ? 3 : 0;
	pthread_rwlock_unlock(&fake_mem);
	return r != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *h, void *p) {
	FAKE_CALL(false);
	CUresult res = CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&fake_lock);
	pthread_rwlock_rdlock(&fake_mem);
	range *r = fake_range((addr)p);
	if (r != NULL && r->kind == MAPPED) {
		handles[r->owner - 1].refs++;
		*h = r->owner;
		res = CUDA_SUCCESS;
	}
	pthread_rwlock_unlock(&fake_mem);
	pthread_mutex_unlock(&fake_lock);
	return res;
}

CUresult cuMemExportToShareableHandle(void *out, CUmemGenericAllocationHandle h, CUmemAllocationHandleType type, unsigned long long flags) {
	FAKE_CALL(false);
	(void)flags;
	if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR && type != CU_MEM_HANDLE_TYPE_FABRIC)
		return CUDA_ERROR_NOT_SUPPORTED;
	pthread_mutex_lock(&fake_lock);
	memory *m = memory_of(h);
	bool ok = m != NULL && (m->handle_types & type) != 0;
	ticket t = {0};
	if (ok)
		t = (ticket){.device = m->device, .offset = m->offset, .size = m->size};
	pthread_mutex_unlock(&fake_lock);
	if (ok && type == CU_MEM_HANDLE_TYPE_FABRIC)
		fake_ticket_write(out, t);
	else
		ok = (*(int *)out = ok ? fake_ticket_fd(t) : -1) >= 0;
	return ok ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *h, void *os, CUmemAllocationHandleType type) {
	FAKE_CALL(false);
	ticket t;
	bool ok = type == CU_MEM_HANDLE_TYPE_FABRIC ? fake_ticket_parse(os, &t)
		: type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR && fake_ticket_read((int)(intptr_t)os, &t);
	if (!ok || t.size == 0)
		return CUDA_ERROR_INVALID_VALUE;
	char *bytes = fake_ticket_map(&t);
	if (bytes == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&fake_lock);
	*h = add((memory){.device = t.device, .offset = t.offset, .size = t.size, .bytes = bytes, .imported = true});
	pthread_mutex_unlock(&fake_lock);
	return CUDA_SUCCESS;
}
