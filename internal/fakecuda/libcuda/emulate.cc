// What runs the kernels of ../../kernels. See emulate.h.

#undef _FORTIFY_SOURCE // whose longjmp knows one stack only

#include "emulate.h"

#include <setjmp.h>
#include <ucontext.h>

#include <memory>
#include <vector>

__thread emulated_dim threadIdx, blockIdx, blockDim, gridDim;

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

// A fiber runs one thread after the other, each of another block. ucontext starts
// it. From then on it gives way by _longjmp, as swapcontext makes a system call.
struct fiber {
	std::unique_ptr<char[]> stack;
	jmp_buf at; // where it gave way
	bool done;  // with its thread of the block
};

void enter();

// A block of a BARRIER_KERNEL while it runs.
struct block {
	const emulated *kernel;
	const void *args;
	std::vector<fiber> fibers; // by thread
	std::vector<barrier> warps;
	std::vector<u64> slots;
	barrier all;
	jmp_buf scheduler;
	unsigned left; // fibers that are not done

	void yield() {
		if (_setjmp(fibers[threadIdx.x].at) == 0)
			_longjmp(scheduler, 1);
	}

	void resume(fiber &f) {
		if (_setjmp(scheduler) != 0)
			return;
		if (f.stack != nullptr)
			_longjmp(f.at, 1);
		f.stack.reset(new char[STACK]);
		ucontext_t start;
		getcontext(&start);
		start.uc_stack.ss_sp = f.stack.get();
		start.uc_stack.ss_size = STACK;
		start.uc_link = nullptr;
		makecontext(&start, enter, 0);
		setcontext(&start);
	}

	void wait(barrier &b) {
		unsigned before = b.passed;
		b.waiting++;
		if (b.open())
			return;
		while (b.passed == before)
			yield();
	}

	void run() {
		left = blockDim.x;
		if (fibers.size() < left)
			fibers.resize(left);
		slots.resize(left);
		warps.assign((left + WARP - 1) / WARP, barrier());
		all = barrier();
		for (unsigned i = 0; i < blockDim.x; i++) {
			fibers[i].done = false;
			all.members++;
			warps[i / WARP].members++;
		}
		while (left > 0)
			for (threadIdx.x = 0; threadIdx.x < blockDim.x; threadIdx.x++)
				if (fiber &f = fibers[threadIdx.x]; !f.done) {
					resume(f);
					left -= f.done;
				}
	}
};

thread_local block running; // keeps its fibers

void enter() {
	for (block &b = running;; b.yield()) {
		b.kernel->thread(b.args);
		b.fibers[threadIdx.x].done = true;
		b.all.leave();
		b.warps[threadIdx.x / WARP].leave();
	}
}

} // namespace

void __syncthreads() { running.wait(running.all); }

u64 emulated_exchange(u64 bits, unsigned lane) {
	block &b = running;
	unsigned thread = threadIdx.x, warp = thread / WARP;
	b.slots[thread] = bits;
	b.wait(b.warps[warp]);
	u64 got = b.slots[warp * WARP + lane];
	b.wait(b.warps[warp]); // before anybody leaves something new
	return got;
}

extern "C" void fake_emulate(const emulated *k, const void *args, unsigned gx, unsigned gy, unsigned bx) {
	running.kernel = k;
	running.args = args;
	gridDim = {gx, gy, 1};
	blockDim = {bx, 1, 1};
	for (blockIdx.y = 0; blockIdx.y < gy; blockIdx.y++)
		for (blockIdx.x = 0; blockIdx.x < gx; blockIdx.x++) {
			if (k->barriers) {
				running.run();
				continue;
			}
			for (threadIdx.x = 0; threadIdx.x < bx; threadIdx.x++)
				k->thread(args);
		}
}
