#include "fake.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

// Device memory lies in one sparse memfd a device, the store, so that other
// processes can map pieces of it. The addresses that programs get are
// reserved without access: a host that touches device memory dies, as it
// does with a GPU. Workers reach the bytes through a second mapping.
typedef struct {
	int fd;
	int64_t next; // offsets are not used twice; holes take no memory
	size_t used, capacity;
} store;

static store stores[MAX_DEVICES + 1]; // the last one counts pinned memory
static pthread_mutex_t store_lock = PTHREAD_MUTEX_INITIALIZER;

pthread_rwlock_t fake_mem = PTHREAD_RWLOCK_INITIALIZER;
static range *ranges; // by start
static size_t nranges, room;

static store *store_of(int device) {
	store *s = &stores[device];
	if (s->capacity == 0) {
		s->capacity = (size_t)fake_setting(device == MAX_DEVICES ? "FAKECUDA_HOST_MEMORY" : "FAKECUDA_MEMORY", 4L << 30);
		s->fd = memfd_create("fakecuda", MFD_CLOEXEC);
		if (s->fd < 0 || ftruncate(s->fd, 1L << 44) != 0)
			abort();
	}
	return s;
}

int fake_store(int device) {
	pthread_mutex_lock(&store_lock);
	int fd = store_of(device)->fd;
	pthread_mutex_unlock(&store_lock);
	return fd;
}

int64_t fake_store_take(int device, size_t size) {
	pthread_mutex_lock(&store_lock);
	store *s = store_of(device);
	int64_t off = s->next;
	s->next += (int64_t)fake_round(size, PAGE);
	pthread_mutex_unlock(&store_lock);
	return off;
}

void fake_store_give(int device, int64_t offset, size_t size) {
	(void)fallocate(fake_store(device), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offset, (off_t)fake_round(size, PAGE));
}

bool fake_charge(int device, size_t size) {
	pthread_mutex_lock(&store_lock);
	store *s = store_of(device);
	bool fits = size <= s->capacity && s->used <= s->capacity - size;
	if (fits)
		s->used += size;
	pthread_mutex_unlock(&store_lock);
	return fits;
}

void fake_uncharge(int device, size_t size) {
	pthread_mutex_lock(&store_lock);
	store_of(device)->used -= size;
	pthread_mutex_unlock(&store_lock);
}

void fakecuda_set_memory(int device, size_t bytes) {
	pthread_mutex_lock(&store_lock);
	store_of(device)->capacity = bytes;
	pthread_mutex_unlock(&store_lock);
}

// fakecuda_host_memory says how much may still be pinned, and in all.
void fakecuda_host_memory(size_t *free, size_t *total) {
	pthread_mutex_lock(&store_lock);
	store *s = store_of(MAX_DEVICES);
	*free = s->capacity - s->used;
	*total = s->capacity;
	pthread_mutex_unlock(&store_lock);
}

char *fake_map_store(int fd, int64_t offset, size_t size) {
	void *p = mmap(NULL, fake_round(size, PAGE), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, offset);
	return p == MAP_FAILED ? NULL : p;
}

addr fake_addresses(size_t size, size_t align) {
	size_t n = fake_round(size, PAGE);
	if (n > SIZE_MAX - align || n == 0)
		return 0;
	char *p = mmap(NULL, n + align, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (p == MAP_FAILED)
		return 0;
	char *at = (char *)fake_round((uintptr_t)p, align);
	if (at > p)
		munmap(p, (size_t)(at - p));
	munmap(at + n, (size_t)(p + align - at));
	return (addr)at;
}

// The ranges. Callers hold fake_mem.

static size_t find(addr p) { // the first range that starts after p
	size_t lo = 0, hi = nranges;
	while (lo < hi) {
		size_t mid = (lo + hi) / 2;
		if (ranges[mid].start > p)
			hi = mid;
		else
			lo = mid + 1;
	}
	return lo;
}

range *fake_range(addr p) {
	size_t i = find(p);
	if (i == 0 || p - ranges[i - 1].start >= ranges[i - 1].size)
		return NULL;
	return &ranges[i - 1];
}

char *fake_translate(addr p, size_t *left) {
	range *r = fake_range(p);
	if (r == NULL || !fake_may_touch(r))
		return NULL;
	*left = r->size - (p - r->start);
	return r->bytes + (p - r->start);
}

bool fake_covered(addr p, size_t n) {
	for (size_t left; n > 0; p += left, n -= left) {
		if (fake_translate(p, &left) == NULL)
			return false;
		if (left > n)
			left = n;
	}
	return true;
}

void fake_range_add(range r) {
	pthread_rwlock_wrlock(&fake_mem);
	if (nranges == room) {
		room = room ? 2 * room : 64;
		ranges = realloc(ranges, room * sizeof *ranges);
	}
	size_t i = find(r.start);
	memmove(ranges + i + 1, ranges + i, (nranges++ - i) * sizeof *ranges);
	ranges[i] = r;
	pthread_rwlock_unlock(&fake_mem);
}

static void remove_at(size_t i) { memmove(ranges + i, ranges + i + 1, (--nranges - i) * sizeof *ranges); }

bool fake_range_remove(addr start, memory_kind kind, range *out) {
	pthread_rwlock_wrlock(&fake_mem);
	size_t i = find(start);
	bool ok = i > 0 && ranges[i - 1].start == start && ranges[i - 1].kind == kind;
	if (ok) {
		*out = ranges[i - 1];
		remove_at(i - 1);
	}
	pthread_rwlock_unlock(&fake_mem);
	return ok;
}

// fake_range_again opens another process's memory once more that the current context has open, and
// fake_range_less takes one of these back.
bool fake_range_again(int pid, int fd, int64_t source, addr *out) {
	bool ok = false;
	pthread_rwlock_wrlock(&fake_mem);
	for (range *r = ranges; r < ranges + nranges && !ok; r++) {
		ok = r->kind == IMPORTED && r->ctx == fake_current() && r->pid == pid && r->fd == fd && r->source == source;
		if (ok) {
			r->more++;
			*out = r->start;
		}
	}
	pthread_rwlock_unlock(&fake_mem);
	return ok;
}

bool fake_range_less(addr start) {
	pthread_rwlock_wrlock(&fake_mem);
	range *r = fake_range(start);
	bool ok = r != NULL && r->kind == IMPORTED && r->start == start && r->more > 0;
	if (ok)
		r->more--;
	pthread_rwlock_unlock(&fake_mem);
	return ok;
}

// fake_range_close gives back what a removed range held.
void fake_range_close(range *r) {
	size_t n = fake_round(r->size, PAGE);
	switch (r->kind) {
	case MANAGED:
	case PINNED:
		fake_uncharge(r->kind == PINNED ? MAX_DEVICES : r->device, r->size);
		munmap(r->bytes, n);
		break;
	case DEVICE:
		fake_uncharge(r->device, r->size); // fall through
	case POOLED:
		fake_store_give(r->device, r->offset, r->size); // fall through
	case IMPORTED:
	case POOL_IMPORTED:
		munmap(r->bytes, n);
		munmap((void *)r->start, n);
		break;
	case MAPPED:
	case REGISTERED:
		break;
	}
}

// fake_ranges_drop ends what a dying context holds. Mappings and pools belong
// to the device and stay.
void fake_ranges_drop(CUcontext ctx) {
	pthread_rwlock_wrlock(&fake_mem);
	for (size_t i = nranges; i-- > 0;) {
		if (ranges[i].ctx != ctx || ranges[i].kind == MAPPED || ranges[i].kind == POOLED)
			continue;
		range r = ranges[i];
		remove_at(i);
		fake_range_close(&r);
	}
	pthread_rwlock_unlock(&fake_mem);
}

CUresult fake_device_memory(int device, size_t size, memory_kind kind, uint64_t owner, addr *out) {
	range r = {.size = size, .kind = kind, .ctx = fake_current(), .device = device, .owner = owner};
	r.offset = fake_store_take(device, size);
	r.bytes = fake_map_store(fake_store(device), r.offset, size);
	r.start = fake_addresses(size, size >= GRANULARITY ? GRANULARITY : PAGE);
	if (r.bytes == NULL || r.start == 0)
		return CUDA_ERROR_OUT_OF_MEMORY;
	fake_range_add(r);
	*out = r.start;
	return CUDA_SUCCESS;
}

CUresult cuMemAlloc_v2(CUdeviceptr *p, size_t size) {
	FAKE_CALL(true);
	int device = fake_current()->device;
	if (size == 0)
		return CUDA_ERROR_INVALID_VALUE;
	if (!fake_charge(device, size))
		return CUDA_ERROR_OUT_OF_MEMORY;
	CUresult r = fake_device_memory(device, size, DEVICE, 0, (addr *)p);
	if (r != CUDA_SUCCESS)
		fake_uncharge(device, size);
	return r;
}

// host_memory is memory that both sides reach at the same address.
static CUresult host_memory(size_t size, memory_kind kind, void **out) {
	range r = {.size = size, .kind = kind, .ctx = fake_current(), .device = fake_current()->device, .offset = -1};
	if (size == 0)
		return CUDA_ERROR_INVALID_VALUE;
	if (!fake_charge(kind == PINNED ? MAX_DEVICES : r.device, size))
		return CUDA_ERROR_OUT_OF_MEMORY;
	void *p = mmap(NULL, fake_round(size, PAGE), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (p == MAP_FAILED) {
		fake_uncharge(kind == PINNED ? MAX_DEVICES : r.device, size);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	r.start = (addr)p;
	r.bytes = p;
	fake_range_add(r);
	*out = p;
	return CUDA_SUCCESS;
}

CUresult cuMemAllocManaged(CUdeviceptr *p, size_t size, unsigned flags) {
	FAKE_CALL(true);
	if (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST)
		return CUDA_ERROR_INVALID_VALUE;
	return host_memory(size, MANAGED, (void **)p);
}

CUresult cuMemHostAlloc(void **p, size_t size, unsigned flags) {
	FAKE_CALL(true);
	(void)flags;
	return host_memory(size, PINNED, p);
}

static CUresult take_away(addr p, memory_kind kind) {
	range r;
	fake_sync_device(fake_current()->device);
	if (!fake_range_remove(p, kind, &r))
		return CUDA_ERROR_INVALID_VALUE;
	fake_range_close(&r);
	return CUDA_SUCCESS;
}

CUresult cuMemFree_v2(CUdeviceptr p) {
	FAKE_CALL(true);
	pthread_rwlock_rdlock(&fake_mem);
	range *r = fake_range(p);
	memory_kind kind = r != NULL ? r->kind : DEVICE;
	pthread_rwlock_unlock(&fake_mem);
	return take_away(p, kind == MANAGED ? MANAGED : DEVICE);
}

CUresult cuMemFreeHost(void *p) {
	FAKE_CALL(true);
	return take_away((addr)p, PINNED);
}

CUresult cuMemHostRegister_v2(void *p, size_t size, unsigned flags) {
	FAKE_CALL(true);
	(void)flags;
	pthread_rwlock_rdlock(&fake_mem);
	bool taken = fake_range((addr)p) != NULL;
	pthread_rwlock_unlock(&fake_mem);
	if (p == NULL || size == 0)
		return CUDA_ERROR_INVALID_VALUE;
	if (taken)
		return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
	fake_range_add((range){.start = (addr)p, .size = size, .kind = REGISTERED, .ctx = fake_current(), .device = fake_current()->device, .bytes = p, .offset = -1});
	return CUDA_SUCCESS;
}

CUresult cuMemHostUnregister(void *p) {
	FAKE_CALL(true);
	return take_away((addr)p, REGISTERED) == CUDA_SUCCESS ? CUDA_SUCCESS : CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
}

CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *d, void *p, unsigned flags) {
	FAKE_CALL(true);
	(void)flags;
	*d = (CUdeviceptr)p;
	return CUDA_SUCCESS;
}

CUresult cuMemGetInfo_v2(size_t *free, size_t *total) {
	FAKE_CALL(true);
	pthread_mutex_lock(&store_lock);
	store *s = store_of(fake_current()->device);
	*free = s->used < s->capacity ? s->capacity - s->used : 0;
	*total = s->capacity;
	pthread_mutex_unlock(&store_lock);
	return CUDA_SUCCESS;
}

CUresult cuDeviceTotalMem_v2(size_t *total, CUdevice d) {
	FAKE_CALL(false);
	if (d < 0 || d >= fake_devices)
		return CUDA_ERROR_INVALID_DEVICE;
	pthread_mutex_lock(&store_lock);
	*total = store_of(d)->capacity;
	pthread_mutex_unlock(&store_lock);
	return CUDA_SUCCESS;
}

CUresult cuMemGetAddressRange_v2(CUdeviceptr *start, size_t *size, CUdeviceptr p) {
	FAKE_CALL(true);
	pthread_rwlock_rdlock(&fake_mem);
	range *r = fake_range(p);
	if (r != NULL && start != NULL)
		*start = r->start;
	if (r != NULL && size != NULL)
		*size = r->size;
	pthread_rwlock_unlock(&fake_mem);
	return r != NULL ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}
