#include "share.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define MAGIC 0x6b6174206563616dull

_Static_assert(sizeof(ticket) <= 64, "a ticket has to fit CUDA's handles");

static ticket complete(ticket t) {
	t.magic = MAGIC;
	t.pid = getpid();
	t.fd = fake_store(t.device);
	return t;
}

void fake_ticket_write(void *out64, ticket t) {
	t = complete(t);
	memset(out64, 0, 64);
	memcpy(out64, &t, sizeof t);
}

bool fake_ticket_parse(const void *in64, ticket *t) {
	memcpy(t, in64, sizeof *t);
	return t->magic == MAGIC;
}

int fake_ticket_fd(ticket t) {
	int fd = memfd_create("fakecuda-ticket", MFD_CLOEXEC);
	t = complete(t);
	if (fd >= 0 && pwrite(fd, &t, sizeof t, 0) != (ssize_t)sizeof t) {
		close(fd);
		fd = -1;
	}
	return fd;
}

bool fake_ticket_read(int fd, ticket *t) {
	return pread(fd, t, sizeof *t, 0) == (ssize_t)sizeof *t && t->magic == MAGIC;
}

char *fake_ticket_map(const ticket *t) {
	char path[64];
	snprintf(path, sizeof path, "/proc/%d/fd/%d", t->pid, t->fd);
	int fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		return NULL;
	char *p = fake_map_store(fd, t->offset, t->size);
	close(fd);
	return p;
}

CUresult fake_ticket_import(const ticket *t, memory_kind kind, addr *out) {
	range r = {.size = t->size, .kind = kind, .ctx = fake_current(), .device = fake_current()->device, .offset = -1,
		   .pid = t->pid, .fd = t->fd, .source = t->offset};
	r.bytes = fake_ticket_map(t);
	r.start = r.bytes != NULL ? fake_addresses(t->size, PAGE) : 0;
	if (r.start == 0)
		return CUDA_ERROR_INVALID_VALUE;
	fake_range_add(r);
	*out = r.start;
	return CUDA_SUCCESS;
}

CUresult cuIpcGetMemHandle(CUipcMemHandle *h, CUdeviceptr p) {
	FAKE_CALL(true);
	ticket t = {0};
	pthread_rwlock_rdlock(&fake_mem);
	range *r = fake_range(p);
	bool ok = r != NULL && r->kind == DEVICE;
	if (ok)
		t = (ticket){.device = r->device, .offset = r->offset, .size = r->size};
	pthread_rwlock_unlock(&fake_mem);
	if (!ok)
		return CUDA_ERROR_INVALID_VALUE;
	fake_ticket_write(h, t);
	return CUDA_SUCCESS;
}

CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *p, CUipcMemHandle h, unsigned flags) {
	FAKE_CALL(true);
	ticket t;
	if (flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS || !fake_ticket_parse(&h, &t))
		return CUDA_ERROR_INVALID_VALUE;
	if (t.pid == getpid()) // as CUDA: not in the process that made it
		return CUDA_ERROR_INVALID_CONTEXT;
	if (fake_range_again(t.pid, t.fd, t.offset, (addr *)p)) // as CUDA, which counts
		return CUDA_SUCCESS;
	return fake_ticket_import(&t, IMPORTED, (addr *)p);
}

CUresult cuIpcCloseMemHandle(CUdeviceptr p) {
	FAKE_CALL(true);
	range r;
	fake_sync_device(fake_current()->device);
	if (fake_range_less(p))
		return CUDA_SUCCESS;
	if (!fake_range_remove(p, IMPORTED, &r))
		return CUDA_ERROR_INVALID_VALUE;
	fake_range_close(&r);
	return CUDA_SUCCESS;
}
