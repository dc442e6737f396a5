// The kernels of ../../kernels, and what runs them. See emulate.h.

#include "emulate.h"

#include <ucontext.h>

#include <memory>
#include <vector>

#include "../../kernels/kernels.cu"
#include "../../kernels/linear.cu"
#include "../../kernels/conv.cu"

thread_local emulated_dim threadIdx, blockIdx, blockDim, gridDim;

namespace {

enum { STACK = 64 << 10, WARP = 32 };

// A barrier lets nobody pass before all who are left have come.
struct barrier {
	unsigned members = 0, waiting = 0, passed = 0;

	void leave() {
		members--;
		open();
	}
	bool open() {
		if (members == 0 || waiting < members)
			return false;
		waiting = 0;
		passed++;
		return true;
	}
};

struct fiber {
	ucontext_t context;
	std::unique_ptr<char[]> stack;
	unsigned thread;
	bool done;
};

// A block of a BARRIER_KERNEL while it runs.
struct block {
	const emulated *kernel;
	const void *args;
	std::vector<fiber> fibers;
	std::vector<barrier> warps;
	std::vector<u64> slots;
	barrier all;
	ucontext_t scheduler;
	fiber *now;
	unsigned left; // fibers that are not done

	void wait(barrier &b) {
		unsigned before = b.passed;
		b.waiting++;
		if (b.open())
			return;
		while (b.passed == before)
			swapcontext(&now->context, &scheduler);
	}
};

thread_local block *running;

void enter() {
	block *b = running;
	b->kernel->thread(b->args);
	b->now->done = true;
	b->all.leave();
	b->warps[b->now->thread / WARP].leave();
}

void run_fibers(block &b) {
	b.left = blockDim.x;
	if (b.fibers.size() < b.left)
		b.fibers.resize(b.left);
	b.slots.resize(b.left);
	b.warps.assign((b.left + WARP - 1) / WARP, barrier());
	b.all = barrier();
	for (unsigned i = 0; i < blockDim.x; i++) {
		fiber &f = b.fibers[i];
		if (f.stack == nullptr)
			f.stack.reset(new char[STACK]);
		f.thread = i;
		f.done = false;
		b.all.members++;
		b.warps[i / WARP].members++;
		getcontext(&f.context);
		f.context.uc_stack.ss_sp = f.stack.get();
		f.context.uc_stack.ss_size = STACK;
		f.context.uc_link = &b.scheduler;
		makecontext(&f.context, enter, 0);
	}
	running = &b;
	while (b.left > 0) {
		for (unsigned i = 0; i < blockDim.x; i++) {
			fiber &f = b.fibers[i];
			if (f.done)
				continue;
			b.now = &f;
			threadIdx.x = f.thread;
			swapcontext(&b.scheduler, &f.context);
			b.left -= f.done;
		}
	}
}

} // namespace

void __syncthreads() { running->wait(running->all); }

u64 emulated_exchange(u64 bits, unsigned lane) {
	block *b = running;
	unsigned thread = b->now->thread, warp = thread / WARP;
	b->slots[thread] = bits;
	b->wait(b->warps[warp]);
	u64 got = b->slots[warp * WARP + lane];
	b->wait(b->warps[warp]); // before anybody leaves something new
	return got;
}

extern "C" void fake_emulate(const emulated *k, const void *args, unsigned gx, unsigned gy, unsigned bx) {
	static thread_local block b; // keeps its fibers' stacks
	b.kernel = k;
	b.args = args;
	gridDim = {gx, gy, 1};
	blockDim = {bx, 1, 1};
	for (blockIdx.y = 0; blockIdx.y < gy; blockIdx.y++)
		for (blockIdx.x = 0; blockIdx.x < gx; blockIdx.x++) {
			if (k->barriers) {
				run_fibers(b);
				continue;
			}
			for (threadIdx.x = 0; threadIdx.x < bx; threadIdx.x++)
				k->thread(args);
		}
}
