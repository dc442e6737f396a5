// Layers, forward and back, for batches so small that it is starting kernels
// and reaching memory that takes the time, not multiplying. One launch
// multiplies up to two pairs of matrices, blocks side by side, and does with
// each result what comes next anyway.

#include "kernel.h"

// c = a·b, m×n, from k products each. All matrices are in row-major order
// without gaps, and have less than 2³¹ elements. Then, if there is a bias,
// act(c + bias); if there is a y, c times the slope of the activation whose
// result it is.
struct Product {
	u64 c, a, b;
	u64 bias; // n; or 0
	u64 y;    // m×n; or 0
	u64 sums; // n, with LEFT only: sums of the columns of b; or 0
	i64 activation, transposed, m, n, k;
	i64 tile, blocks; // a block makes tile rows of c; see linear
};

enum { NEITHER, RIGHT, LEFT }; // which of a and b lies there as its transpose

struct LinearArgs {
	Product p[2]; // the second may have no blocks
};

enum { LINEAR_THREADS = 256, LINEAR_ROOM = 36864 }; // bytes of shared memory

// Sizes of what a block works with: ROWS of a and COLS columns of b, CHUNK
// products at a time. Every thread has HIGH×4 elements of the result; where
// that leaves threads over, groups of them share the products.
template <typename T, int ROWS, int COLS> struct Sizes {
	enum {
		HIGH = ROWS == 16 ? 4 : 32 / sizeof(T),
		WIDE = COLS / 4,            // threads
		GROUP = ROWS / HIGH * WIDE, // threads
		GROUPS = LINEAR_THREADS / GROUP,
		CHUNK = 8192 / COLS / sizeof(T),
	};
};

// A Panel is CHUNK columns of TILE rows of a, or of b transposed. It goes from
// memory to registers, and from there to shared memory, a column after the
// other. ALONG: what is side by side in memory is so along the rows. Each
// thread brings quads, of neighbours in memory, all from one row.
template <typename T, int TILE, int CHUNK, bool ALONG> struct Panel {
	enum {
		STRIDE = TILE + 4, // in shared memory
		SIZE = CHUNK * STRIDE,
		QUADS = TILE * CHUNK / 4 / LINEAR_THREADS,
		APART = CHUNK / QUADS, // columns between a thread's quads
	};
	Quad<T> next[QUADS];
	const T *from; // the first of them
	int left;      // columns from it on
	int wide;      // its elements that there are, where not ALONG
	int step, corner, slot;
	bool ones; // below the last row there is one of ones

	// A warp reads pieces of 64 bytes or more, and few of its threads meet in a
	// bank of shared memory.
	__device__ __forceinline__ void set(u64 p, int first, i64 rows, i64 k, bool one_more) {
		int t = threadIdx.x;
		int row = ALONG ? t / 32 % (TILE / 8) * 8 + t % 8 : t % (TILE / 4) * 4;
		int column = ALONG ? (t / 32 / (TILE / 8) * 4 + t / 8 % 4) * 4 : t / (TILE / 4);
		corner = first, ones = one_more, slot = column * STRIDE + row;
		row += first;
		wide = (int)rows - row;
		left = !ALONG || wide > 0 ? (int)k - column : 0;
		step = ALONG ? APART : APART * (int)rows;
		from = (const T *)p + (ALONG ? row * (int)k + column : column * (int)rows + row);
	}

	// whole reports whether quads may be read at once, and are there as a whole
	// or not at all.
	static __device__ __forceinline__ bool whole(u64 p, i64 rows, i64 k) {
		return (p | (u64)(ALONG ? k : rows) * sizeof(T)) % sizeof(Quad<T>) == 0;
	}

	// missing is what an element is that is not there.
	__device__ __forceinline__ T missing(int j) const { return ones && j == wide ? (T)1 : (T)0; }

	template <bool WHOLE> __device__ __forceinline__ void fetch() {
		UNROLL
		for (int q = 0; q < QUADS; q++, from += step) {
			int n = left - q * APART;
			if (!ALONG)
				n = n > 0 ? wide : 0;
			if (WHOLE) {
				next[q] = Quad<T>{{missing(0), 0, 0, 0}};
				if (n > 0)
					next[q] = *(const Quad<T> *)from;
			} else {
				UNROLL
				for (int j = 0; j < 4; j++)
					next[q].x[j] = j < n ? from[j] : missing(j);
			}
		}
		left -= CHUNK;
	}

	__device__ __forceinline__ void put(T *to) const {
		UNROLL
		for (int q = 0; q < QUADS; q++) {
			T *at = to + slot + q * APART * STRIDE;
			if (!ALONG)
				*(Quad<T> *)at = next[q];
			else {
				UNROLL
				for (int j = 0; j < 4; j++)
					at[j * STRIDE] = next[q].x[j];
			}
		}
	}
};

// finish does with four neighbours of a product what comes next.
template <typename T> static __device__ __forceinline__ void finish(const Product &p, int row, int col, const Quad<T> &v) {
	if (row > p.m || (row == p.m && p.sums == 0))
		return;
	T *to = row < p.m ? (T *)p.c + row * p.n : (T *)p.sums;
	UNROLL
	for (int j = 0; j < 4; j++) {
		int c = col + j;
		if (c >= p.n)
			return;
		T z = v.x[j];
		if (p.bias)
			z = activate<T>(p.activation, z + ((const T *)p.bias)[c]);
		if (p.y)
			z *= slope<T>(p.activation, ((const T *)p.y)[row * p.n + c]);
		to[c] = z;
	}
}

// A Tile is a block's part of a product. Two pairs of panels are in shared
// memory: one that is multiplied, and the next.
template <typename T, int ROWS, int COLS, bool A_ALONG, bool B_ALONG> struct Tile {
	using S = Sizes<T, ROWS, COLS>;
	using A = Panel<T, ROWS, S::CHUNK, A_ALONG>;
	using B = Panel<T, COLS, S::CHUNK, B_ALONG>;
	A a;
	B b;
	Quad<T> sum[S::HIGH];
	int group, y, x; // where sum is, in its sizes

	__device__ __forceinline__ void put(T *room, int chunk) {
		room += chunk % 2 * (A::SIZE + B::SIZE);
		a.put(room);
		b.put(room + A::SIZE);
	}

	__device__ __forceinline__ void multiply(const T *room, int chunk) {
		room += chunk % 2 * (A::SIZE + B::SIZE);
		const T *u = room + group * A::STRIDE + S::HIGH * y, *v = room + A::SIZE + group * B::STRIDE + 4 * x;
		UNROLL
		for (int i = 0; i < S::CHUNK; i += S::GROUPS) {
			Quad<T> t = *(const Quad<T> *)(v + i * B::STRIDE), s[S::HIGH / 4];
			UNROLL
			for (int r = 0; r < S::HIGH / 4; r++)
				s[r] = *(const Quad<T> *)(u + i * A::STRIDE + 4 * r);
			UNROLL
			for (int r = 0; r < S::HIGH; r++) {
				UNROLL
				for (int c = 0; c < 4; c++)
					sum[r].x[c] += s[r / 4].x[r % 4] * t.x[c];
			}
		}
	}

	template <bool WHOLE> __device__ __forceinline__ void multiply_all(T *room, int chunks) {
		a.template fetch<WHOLE>(), b.template fetch<WHOLE>();
		put(room, 0);
		__syncthreads();
		ROLL
		for (int chunk = 0; chunk < chunks; chunk++) {
			bool more = chunk + 1 < chunks;
			if (more)
				a.template fetch<WHOLE>(), b.template fetch<WHOLE>();
			multiply(room, chunk);
			if (more)
				put(room, chunk + 1);
			__syncthreads();
		}
	}

	// gather adds up what the groups have.
	__device__ __forceinline__ void gather(const Product &p, Quad<T> *all) {
		UNROLL
		for (int r = 0; r < S::HIGH; r++)
			all[(group * ROWS + S::HIGH * y + r) * S::WIDE + x] = sum[r];
		__syncthreads();
		for (int q = threadIdx.x; q < ROWS * S::WIDE; q += LINEAR_THREADS) {
			Quad<T> v = all[q];
			UNROLL
			for (int g = 1; g < S::GROUPS; g++) {
				UNROLL
				for (int c = 0; c < 4; c++)
					v.x[c] += all[g * ROWS * S::WIDE + q].x[c];
			}
			finish<T>(p, a.corner + q / S::WIDE, b.corner + q % S::WIDE * 4, v);
		}
	}

	__device__ __forceinline__ void run(const Product &p, u64 block, Quad<T> *room) {
		u64 column = split(block, (u64)(p.n + COLS - 1) / COLS);
		a.set(p.a, (int)block * ROWS, p.m, p.k, p.sums != 0);
		b.set(p.b, (int)column * COLS, p.n, p.k, false);
		int t = threadIdx.x % S::GROUP, warp = t / 32; // of 4 by 8 threads
		group = threadIdx.x / S::GROUP;
		y = warp / (S::WIDE / 8) * 4 + t % 32 / 8, x = warp % (S::WIDE / 8) * 8 + t % 8;
		UNROLL
		for (int r = 0; r < S::HIGH; r++)
			sum[r] = Quad<T>{{0, 0, 0, 0}};
		int chunks = ((int)p.k + S::CHUNK - 1) / S::CHUNK;
		if (a.whole(p.a, p.m, p.k) && b.whole(p.b, p.n, p.k))
			multiply_all<true>((T *)room, chunks);
		else
			multiply_all<false>((T *)room, chunks);
		gather(p, room);
	}
};

template <typename T, int ROWS, int COLS> static __device__ __forceinline__ void tile(const Product &p, u64 block, Quad<T> *room) {
	switch (p.transposed) {
	case NEITHER: return Tile<T, ROWS, COLS, true, false>().run(p, block, room);
	case RIGHT: return Tile<T, ROWS, COLS, true, true>().run(p, block, room);
	default: return Tile<T, ROWS, COLS, false, false>().run(p, block, room);
	}
}

// linear makes tiles of 16×32, for float only, of 32×32 or of 64×64.
template <typename T> static __device__ void linear(const LinearArgs &a) {
	__shared__ Quad<T> room[LINEAR_ROOM / sizeof(Quad<T>)];
	u64 block = blockIdx.x;
	bool second = block >= (u64)a.p[0].blocks;
	const Product &p = a.p[second];
	if (second)
		block -= (u64)a.p[0].blocks;
	switch (p.tile) {
	case 16: return tile<T, sizeof(T) == 4 ? 16 : 32, 32>(p, block, room);
	case 32: return tile<T, 32, 32>(p, block, room);
	default: return tile<T, 64, 64>(p, block, room);
	}
}

INSTANTIATE(BARRIER_KERNEL, linear, LinearArgs)
