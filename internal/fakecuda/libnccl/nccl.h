// A stand-in for NCCL between ranks that are threads or processes of one
// machine. What it does and does not is in ../README.md.
//
// Files: nccl.c the library's calls; group.c shared memory, who is in the group
// and who is gone; collective.c what all ranks do together; p2p.c sending and
// receiving.
//
// Each rank publishes a piece of its memory in its slot and counts a step. When
// all ranks have counted it, everybody reads what it needs. A slot has two
// halves, used by turns: who has counted a step has read the one before it.

#ifndef FAKE_NCCL_H
#define FAKE_NCCL_H

#include "fake.h"

enum { MAX_RANKS = 8, PIECE = 256 << 10, RING = 64 << 10, DEVICE_BUFFER = 4 << 20, ID_BYTES = 128 };

// ncclResult_t
typedef enum { OK, UNHANDLED_CUDA_ERROR, SYSTEM_ERROR, INTERNAL_ERROR, INVALID_ARGUMENT, INVALID_USAGE, REMOTE_ERROR, IN_PROGRESS } result;

typedef enum { ALL_REDUCE, BROADCAST, ALL_GATHER, REDUCE_SCATTER, SEND, RECV } kind;

// A task is one call: what has to be the same on all ranks, and where this
// rank's memory is.
typedef struct {
	uint64_t kind, type, op, root, count;
} terms;

typedef struct {
	terms t; // of SEND and RECV, root is the peer
	addr dst, src;
	CUstream stream;
	size_t done;   // p2p.c: bytes
	bool told, over;
} task;

typedef enum { ABSENT, HERE, LEFT, ABORTED } presence;

typedef struct {
	_Atomic int here; // presence
	int pid, device;
	_Atomic uint64_t step;
	terms terms[2]; // of the step's parity
} member;

typedef struct {
	_Atomic uint64_t in, out; // bytes ever
	char bytes[RING];
} ring;

// What the ranks share.
typedef struct {
	_Atomic uint32_t bell; // changes when anything does
	_Atomic uint32_t joined;
	member members[MAX_RANKS];
	ring rings[MAX_RANKS][MAX_RANKS]; // from, to
	char slots[MAX_RANKS][2][PIECE];
} shared;

typedef struct registration {
	addr p;
	struct registration *next;
} registration;

// A communicator. It is never given back to malloc, so that work of a graph
// that is launched after it was destroyed does nothing.
typedef struct ncclComm {
	int rank, ranks, blocking;
	CUcontext ctx;
	char name[64]; // of the shared memory
	int fd;
	shared *all; // NULL: ended
	uint64_t step;
	char *piece, *sum; // PIECE bytes each

	pthread_mutex_t running; // held while a task runs
	_Atomic int failed;      // result
	_Atomic bool stop, ready, finalized;
	_Atomic uint64_t given, done; // lists of tasks, outside of graphs
	char text[256];               // of failed

	pthread_mutex_t mu; // guards what follows
	int polls;          // until what is held is submitted
	struct list *held;
	CUevent last; // the end of what was submitted last
	cuuint64_t capture;
	bool recorded;
	CUdeviceptr buffer;
	registration *registered;
} comm;

// A list of tasks that begin together.
typedef struct list {
	comm *c;
	bool keep; // a graph has it
	size_t n;
	task *tasks;
	struct list *next;
} list;

// group.c
result group_join(comm *c, const char *id, int device);
bool group_complete(comm *c);
void group_leave(comm *c, presence how);
void group_ring(comm *c);
presence group_presence(comm *c, int rank, bool ask);
void fail(comm *c, result r, const char *format, ...) __attribute__((format(printf, 3, 4)));

// group_wait waits until ready says so. false: the rank failed or was told to
// stop. missing says whose absence is to be waited for in vain.
bool group_wait(comm *c, bool (*ready)(comm *c, void *arg), bool (*missing)(comm *c, int rank, void *arg), void *arg);

size_t type_size(uint64_t type); // 0: unknown
const char *kind_name(uint64_t kind);
bool fetch(comm *c, char *to, addr from, size_t n);
bool store(comm *c, addr to, const char *from, size_t n);

// collective.c, p2p.c
void collective(comm *c, const task *t);
void exchange_all(comm *c, task *tasks, size_t n);

#endif
