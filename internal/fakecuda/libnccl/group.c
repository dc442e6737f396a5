#include "nccl.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

// Each rank holds a lock on one byte of the shared memory's file, which the
// kernel gives back when the process dies. The byte lies behind the memory.
static struct flock byte_of(int rank) { return (struct flock){.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = (off_t)sizeof(shared) + rank, .l_len = 1}; }

void fail(comm *c, result r, const char *format, ...) {
	char text[sizeof c->text];
	va_list args;
	va_start(args, format);
	vsnprintf(text, sizeof text, format, args);
	va_end(args);
	pthread_mutex_lock(&c->mu);
	if (c->failed == OK) {
		memcpy(c->text, text, sizeof text);
		c->failed = (int)r;
	}
	pthread_mutex_unlock(&c->mu);
}

static result failed(comm *c, const char *what) {
	fail(c, SYSTEM_ERROR, "%s failed: %m", what);
	return SYSTEM_ERROR;
}

result group_join(comm *c, const char *id, int device) {
	snprintf(c->name, sizeof c->name, "%.40s", id);
	c->fd = shm_open(c->name, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (c->fd < 0 || ftruncate(c->fd, (off_t)sizeof(shared)) != 0)
		return failed(c, "shm_open");
	void *p = mmap(NULL, sizeof(shared), PROT_READ | PROT_WRITE, MAP_SHARED, c->fd, 0);
	if (p == MAP_FAILED)
		return failed(c, "mmap");
	c->all = p;
	struct flock lock = byte_of(c->rank);
	member *m = &c->all->members[c->rank];
	if (fcntl(c->fd, F_OFD_SETLK, &lock) != 0 || m->here != ABSENT) {
		fail(c, INVALID_USAGE, "rank %d is there already", c->rank);
		return INVALID_USAGE;
	}
	m->pid = getpid();
	m->device = device;
	m->here = HERE;
	c->all->joined++;
	group_ring(c);
	return OK;
}

// group_complete reports whether all ranks are there. The name is not needed
// from then on.
bool group_complete(comm *c) {
	if (c->all->joined < (uint32_t)c->ranks)
		return false;
	shm_unlink(c->name);
	member *me = &c->all->members[c->rank];
	for (int r = 0; r < c->ranks; r++) {
		member *m = &c->all->members[r];
		if (r != c->rank && m->pid == me->pid && m->device == me->device)
			fail(c, INVALID_USAGE, "Duplicate GPU detected : rank %d and rank %d both on CUDA device %d", c->rank, r, me->device);
	}
	return true;
}

void group_ring(comm *c) {
	c->all->bell++;
	syscall(SYS_futex, &c->all->bell, FUTEX_WAKE, 1 << 20, NULL, NULL, 0);
}

// group_presence returns whether a rank is there; ABORTED also where its process
// died, for which the kernel has to be asked.
presence group_presence(comm *c, int rank, bool ask) {
	member *m = &c->all->members[rank];
	struct flock lock = byte_of(rank);
	int here = m->here;
	if (ask && here == HERE && rank != c->rank && fcntl(c->fd, F_OFD_GETLK, &lock) == 0 && lock.l_type == F_UNLCK && m->here == HERE)
		return ABORTED;
	return (presence)here;
}

bool group_wait(comm *c, bool (*ready)(comm *, void *), bool (*missing)(comm *, int, void *), void *arg) {
	const struct timespec nap = {0, 5000000};
	for (bool ask = false;; ask = true) {
		uint32_t heard = c->all->bell;
		if (c->stop || c->failed != OK)
			return false;
		if (ready(c, arg))
			return true;
		for (int r = 0; r < c->ranks; r++) {
			presence p = group_presence(c, r, ask);
			if (p != HERE && missing(c, r, arg) && heard == c->all->bell) // else look again at what it left
				fail(c, REMOTE_ERROR, p == LEFT ? "rank %d has left" : "rank %d is gone", r);
		}
		syscall(SYS_futex, &c->all->bell, FUTEX_WAIT, heard, &nap, NULL, 0);
	}
}

// group_leave ends the rank, with no task running.
void group_leave(comm *c, presence how) {
	if (c->all == NULL)
		return;
	c->all->members[c->rank].here = how;
	group_ring(c);
	if (c->all->joined < (uint32_t)c->ranks)
		shm_unlink(c->name);
	munmap(c->all, sizeof(shared));
	c->all = NULL;
	close(c->fd);
}

size_t type_size(uint64_t type) {
	static const size_t sizes[] = {1, 1, 4, 4, 8, 8, 0, 4, 8};
	return type < sizeof sizes / sizeof *sizes ? sizes[type] : 0;
}

const char *kind_name(uint64_t kind) {
	static const char *const names[] = {"ncclAllReduce", "ncclBroadcast", "ncclAllGather", "ncclReduceScatter", "ncclSend", "ncclRecv"};
	return names[kind];
}

// fetch and store copy from and to device memory. false: it is not there.
bool fetch(comm *c, char *to, addr from, size_t n) {
	bool ok = true;
	pthread_rwlock_rdlock(&fake_mem);
	for (size_t left; n > 0 && ok; to += left, from += left, n -= left) {
		char *p = fake_translate(from, &left);
		ok = p != NULL;
		left = !ok || left > n ? n : left;
		if (ok)
			memcpy(to, p, left);
	}
	pthread_rwlock_unlock(&fake_mem);
	if (!ok)
		fake_lose(c->ctx, CUDA_ERROR_ILLEGAL_ADDRESS);
	return ok;
}

bool store(comm *c, addr to, const char *from, size_t n) {
	bool ok = true;
	pthread_rwlock_rdlock(&fake_mem);
	for (size_t left; n > 0 && ok; to += left, from += left, n -= left) {
		char *p = fake_translate(to, &left);
		ok = p != NULL;
		left = !ok || left > n ? n : left;
		if (ok)
			memcpy(p, from, left);
	}
	pthread_rwlock_unlock(&fake_mem);
	if (!ok)
		fake_lose(c->ctx, CUDA_ERROR_ILLEGAL_ADDRESS);
	return ok;
}
