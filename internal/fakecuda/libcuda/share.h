#ifndef FAKE_SHARE_H
#define FAKE_SHARE_H

#include "fake.h"

// A ticket names memory of some process of the same user: a piece of one of
// its stores, or a pool. It fits the 64 bytes of CUDA's handles.
typedef struct {
	uint64_t magic;
	int pid, fd, device;
	uint32_t pool;
	int64_t offset;
	size_t size;
} ticket;

int fake_ticket_fd(ticket t); // a descriptor to send to another process
bool fake_ticket_read(int fd, ticket *t);
char *fake_ticket_map(const ticket *t);
void fake_ticket_write(void *out64, ticket t);
bool fake_ticket_parse(const void *in64, ticket *t);
CUresult fake_ticket_import(const ticket *t, memory_kind kind, addr *out);

#endif
