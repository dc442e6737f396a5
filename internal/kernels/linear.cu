// Layers, forward and back, for batches so small that it is starting kernels
// and reaching memory that takes the time, not multiplying. One launch
// multiplies up to two pairs of matrices, blocks side by side, and does with
// each result what comes next anyway.

#include "activation.h"

// c = a·b, m×n, from k products each. All matrices are in row-major order
// without gaps, and have less than 2³¹ elements. Then, if there is a y, c times
// the slope of the activation whose result it is; otherwise act(c + bias), the
// bias being 0 without one.
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

enum { LINEAR_THREADS = 256, LINEAR_ROOM = 32768 }; // bytes of shared memory

// Sizes of what a block works with: ROWS of a and COLS columns of b, CHUNK
// products at a time. Every thread has HIGH×4 elements of the result; where that
// leaves threads over, groups of them share the products.
template <typename Element, int ROWS_, int COLS_, int HIGH_, int CHUNK_> struct Sizes {
	typedef Element T;
	enum {
		ROWS = ROWS_,
		COLS = COLS_,
		HIGH = HIGH_,
		CHUNK = CHUNK_,
		ACROSS = COLS / 4,  // threads
		DOWN = ROWS / HIGH, // threads
		GROUP = DOWN * ACROSS,
		GROUPS = LINEAR_THREADS / GROUP,
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

// expected returns what an element of a product and its three neighbours need of
// the bias, or of y. It is read before they are made, so that nobody waits for it.
template <typename T> static __device__ __forceinline__ Quad<T> expected(const Product &p, int row, int col) {
	const T *from = p.bias ? (const T *)p.bias + col : p.y && row < p.m ? (const T *)p.y + row * p.n + col : (const T *)0;
	Quad<T> by;
	UNROLL
	for (int j = 0; j < 4; j++)
		by.x[j] = from && col + j < p.n ? from[j] : (T)0;
	return by;
}

// finish does with an element and its neighbours what comes next.
template <typename T> static __device__ __forceinline__ void finish(const Product &p, int row, int col, Quad<T> &v, const Quad<T> &by) {
	if (row > p.m || (row == p.m && p.sums == 0))
		return;
	T *to = row < p.m ? (T *)p.c + row * p.n + col : (T *)p.sums + col;
	UNROLL
	for (int j = 0; j < 4; j++) {
		if (p.y)
			v.x[j] *= slope<T>(p.activation, by.x[j]);
		else
			v.x[j] = activate<T>(p.activation, v.x[j] + by.x[j]);
	}
	if (col + 4 <= p.n && (u64)to % sizeof(Quad<T>) == 0) {
		*(Quad<T> *)to = v;
		return;
	}
	UNROLL
	for (int j = 0; j < 4; j++)
		if (col + j < p.n)
			to[j] = v.x[j];
}

// A Tile is a block's part of a product. One pair of panels is in shared
// memory, and the next in registers, on its way there.
template <typename S, bool A_ALONG, bool B_ALONG> struct Tile {
	using T = typename S::T;
	using A = Panel<T, S::ROWS, S::CHUNK, A_ALONG>;
	using B = Panel<T, S::COLS, S::CHUNK, B_ALONG>;
	enum {
		PARTS = S::HIGH / 4,                    // of the tile, gathered one after the other
		PART = 4 * S::DOWN * S::ACROSS,         // quads
		MINE = 1 + (PART - 1) / LINEAR_THREADS, // of these, a thread finishes so many
	};
	A a;
	B b;
	Quad<T> sum[S::HIGH];
	Quad<T> by[PARTS][MINE];
	int group, y, x; // where sum is, in its sizes

	template <bool WHOLE> __device__ __forceinline__ void fetch() {
		a.template fetch<WHOLE>();
		b.template fetch<WHOLE>();
	}

	__device__ __forceinline__ void put(T *room) const {
		a.put(room);
		b.put(room + A::SIZE);
		__syncthreads();
	}

	__device__ __forceinline__ void multiply(const T *room) {
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
		__syncthreads();
	}

	// multiply_all fetches one chunk more than there is, of nothing: were that
	// left out, the compiler would move what is fetched to where it is put, and
	// every chunk would wait for memory.
	template <bool WHOLE> __device__ __forceinline__ void multiply_all(T *room, int chunks) {
		fetch<WHOLE>();
		put(room);
		ROLL
		for (int chunk = 0; chunk < chunks; chunk++) {
			fetch<WHOLE>();
			multiply(room);
			put(room);
		}
	}

	// A quad of a part is of the product's row row_of, from the column col_of on.
	__device__ __forceinline__ int row_of(int part, int q) const {
		int row = q / S::ACROSS;
		return a.corner + row / 4 * S::HIGH + 4 * part + row % 4;
	}
	__device__ __forceinline__ int col_of(int q) const { return b.corner + q % S::ACROSS * 4; }

	// expect reads what the quads need that this thread finishes.
	__device__ __forceinline__ void expect(const Product &p) {
		UNROLL
		for (int part = 0; part < PARTS; part++) {
			UNROLL
			for (int i = 0; i < MINE; i++) {
				int q = threadIdx.x + i * LINEAR_THREADS;
				by[part][i] = expected<T>(p, row_of(part, q), col_of(q));
			}
		}
	}

	// gather adds up what the groups have, four rows of each thread at a time.
	__device__ __forceinline__ void gather(const Product &p, Quad<T> *all) {
		UNROLL
		for (int part = 0; part < PARTS; part++) {
			__syncthreads();
			UNROLL
			for (int r = 0; r < 4; r++)
				all[group * PART + (4 * y + r) * S::ACROSS + x] = sum[4 * part + r];
			__syncthreads();
			UNROLL
			for (int i = 0; i < MINE; i++) {
				int q = threadIdx.x + i * LINEAR_THREADS;
				if (q >= PART)
					break;
				Quad<T> v = all[q];
				UNROLL
				for (int g = 1; g < S::GROUPS; g++) {
					UNROLL
					for (int c = 0; c < 4; c++)
						v.x[c] += all[g * PART + q].x[c];
				}
				finish<T>(p, row_of(part, q), col_of(q), v, by[part][i]);
			}
		}
	}

	// Of a warp, neighbours by x read the same of a, and those by y the same of
	// b, which shared memory then hands out in half as many turns.
	__device__ __forceinline__ void place() {
		int t = threadIdx.x % S::GROUP;
		group = threadIdx.x / S::GROUP;
		x = t % 2 + t / 4 % (S::ACROSS / 2) * 2, y = t / 2 % 2 + t / (2 * S::ACROSS) * 2;
		UNROLL
		for (int r = 0; r < S::HIGH; r++)
			sum[r] = Quad<T>{{0, 0, 0, 0}};
	}

	__device__ __forceinline__ void run(const Product &p, u64 block, Quad<T> *room) {
		u64 column = split(block, (u64)(p.n + S::COLS - 1) / S::COLS);
		a.set(p.a, (int)block * S::ROWS, p.m, p.k, p.sums != 0);
		b.set(p.b, (int)column * S::COLS, p.n, p.k, false);
		place();
		expect(p);
		int chunks = ((int)p.k + S::CHUNK - 1) / S::CHUNK;
		if (a.whole(p.a, p.m, p.k) && b.whole(p.b, p.n, p.k))
			multiply_all<true>((T *)room, chunks);
		else
			multiply_all<false>((T *)room, chunks);
		gather(p, room);
	}
};

template <typename S> static __device__ __forceinline__ void tile(const Product &p, u64 block, void *room) {
	Quad<typename S::T> *quads = (Quad<typename S::T> *)room;
	switch (p.transposed) {
	case NEITHER: return Tile<S, true, false>().run(p, block, quads);
	case RIGHT: return Tile<S, true, true>().run(p, block, quads);
	default: return Tile<S, false, false>().run(p, block, quads);
	}
}

// tile_of makes tiles as LinearTile of args.go says.
static __device__ __forceinline__ void tile_of(float, const Product &p, u64 block, void *room) {
	switch (p.tile) {
	case 4: return tile<Sizes<float, 8, 16, 4, 128>>(p, block, room);
	case 8: return tile<Sizes<float, 8, 32, 4, 128>>(p, block, room);
	case 16: return tile<Sizes<float, 16, 32, 4, 64>>(p, block, room);
	case 32: return tile<Sizes<float, 32, 64, 8, 32>>(p, block, room);
	default: return tile<Sizes<float, 64, 64, 8, 32>>(p, block, room);
	}
}

static __device__ __forceinline__ void tile_of(double, const Product &p, u64 block, void *room) {
	if (p.tile == 32)
		return tile<Sizes<double, 32, 32, 4, 32>>(p, block, room);
	tile<Sizes<double, 64, 64, 4, 16>>(p, block, room);
}

template <typename T> static __device__ void linear(const LinearArgs &a) {
	__shared__ Quad<double> room[LINEAR_ROOM / sizeof(Quad<double>)];
	u64 block = blockIdx.x;
	bool second = block >= (u64)a.p[0].blocks;
	const Product &p = a.p[second];
	if (second)
		block -= (u64)a.p[0].blocks;
	tile_of((T)0, p, block, room);
}

// Two blocks share a multiprocessor, as each waits for memory now and then.
#define LINEAR_KERNEL(name, Args) BOUNDED_KERNEL(name, Args, LINEAR_THREADS, 2)
INSTANTIATE(LINEAR_KERNEL, linear, LinearArgs)
