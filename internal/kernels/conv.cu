// Convolutions of images in the order NCHW, as products of matrices whose one
// operand is gathered from the image while it is read, so that it never lies in
// memory as a whole. Gradients by the image are made so too: each element gathers
// what it went into, and nothing is added up in an order that changes. Gradients
// by the weights are made in parts, which conv_sum adds up.

#include "activation.h"

enum {
	CONV_PARTS = 4,         // products that one launch makes
	CONV_THREADS = 256,     // of a block, at most
	CONV_ROOM = 22 << 10,   // bytes of shared memory
	WEIGHTS_ROOM = 34 << 10,
	CONV_CHUNK = 32,        // products at a time, at most
	CONV_OUTSIDE = -(1 << 30) // a coordinate that no image has
};

// The result's pixels (i, j) of high×wide are
//
//	dst[n, row, i, j] = Σ w[row, c, ty, tx]·src[n, c, i·mul + first + ty·step, ...]
//
// over channels c and taps. The source is 0 outside.
struct ConvPart {
	i64 high, wide, taps_y, taps_x, first_y, first_x;
	i64 w_first, dst_first; // offsets of the first weight and the first pixel
};

// What parts have in common. They are act(dst + bias) or, if there is a y, dst times
// the slope of the activation whose result it is. No tensor has 2³⁰ elements, and no
// coordinate is that far outside.
struct ConvProduct {
	u64 dst, src, w;
	u64 bias; // rows; or 0
	u64 y;    // as dst; or 0
	i64 activation, batch, rows, channels, height, width; // of the source
	i64 mul_y, mul_x, step_y, step_x;
	i64 w_row, w_channel, w_tap_y, w_tap_x;
	i64 dst_plane, dst_row, dst_column;
	i64 tile;
	i64 splits, size; // sums in splits, of which each makes a dst, size elements apart
};

struct ConvArgs {
	ConvProduct product;
	ConvPart part[CONV_PARTS];
};

// dw[row, c, ty, tx] = Σ dz[n, row, i, j]·x[n, c, i·stride − pad + ty·dilation, ...]
// over images and pixels, span of them for each of the parts of the sum. The
// columns are taps, and one more with the sums of dz where those are wanted.
struct ConvWeightsArgs {
	u64 sums, x, dz;
	i64 batch, rows, channels, height, width, high, wide; // of x and dz
	i64 taps_y, taps_x, pad_y, pad_x, stride_y, stride_x, dilation_y, dilation_x;
	i64 taps, columns, span, tile;
};

// ConvSumArgs are those of conv_sum: parts matrices of sums become dw and db.
struct ConvSumArgs {
	u64 dw, db, sums;
	i64 rows, taps, columns, parts;
	i64 lanes; // threads for an element: a power of 2 up to 32
};

// Sizes of what a block works with: ROWS×COLS of the result, CHUNK products at a
// time. A thread has HIGH×WIDE of them. GROUPS of threads share the products.
template <typename Element, int ROWS_, int COLS_, int HIGH_, int WIDE_, int GROUPS_, int CHUNK_> struct ConvSizes {
	typedef Element T;
	enum {
		ROWS = ROWS_,
		COLS = COLS_,
		HIGH = HIGH_,
		WIDE = WIDE_,
		GROUPS = GROUPS_,
		CHUNK = CHUNK_,
		ACROSS = COLS / WIDE, // threads
		GROUP = ROWS / HIGH * ACROSS,
		THREADS = GROUP * GROUPS,
		A_STRIDE = ROWS + 4, // in shared memory
		B_STRIDE = COLS + 4,
		A_MINE = CHUNK * ROWS / THREADS, // elements that a thread brings
		B_MINE = CHUNK * COLS / THREADS,
		PANELS = CHUNK * (A_STRIDE + B_STRIDE),
	};
};

// A Tap is what one of the products adds to where an element is: y and x are
// coordinates in the image, at and w are offsets in the image and in the other
// operand. w < 0: there is none.
struct alignas(16) Tap {
	int at, y, x, w;
};

static __device__ __forceinline__ Tap no_tap() { return Tap{0, CONV_OUTSIDE, CONV_OUTSIDE, -1}; }

// An Odometer counts in steps, with three digits of which two have a range.
struct Odometer {
	int z, y, x, high, wide, step_z, step_y, step_x;

	__device__ __forceinline__ void set(int first, int step, i64 high_, i64 wide_) {
		high = high_ > 0 ? (int)high_ : 1, wide = wide_ > 0 ? (int)wide_ : 1;
		digits(first, z, y, x);
		digits(step, step_z, step_y, step_x);
	}
	__device__ __forceinline__ void digits(int n, int &c, int &b, int &a) const {
		u32 line = (u32)n / (u32)wide;
		a = (int)((u32)n - line * (u32)wide);
		c = (int)(line / (u32)high);
		b = (int)(line - (u32)c * (u32)high);
	}
	__device__ __forceinline__ void next() {
		x += step_x, y += step_y, z += step_z;
		if (x >= wide)
			x -= wide, y++;
		if (y >= high)
			y -= high, z++;
	}
};

// fragment reads N neighbours of shared memory.
template <int N, typename T> static __device__ __forceinline__ void fragment(T *to, const T *from) {
	UNROLL
	for (int i = 0; i < N; i += 4) {
		Quad<T> q = *(const Quad<T> *)(from + i);
		UNROLL
		for (int j = 0; j < 4; j++)
			to[i + j] = q.x[j];
	}
}

// A ConvBlock is a block's part of a product. One pair of panels is in shared
// memory, and the next in registers, on its way there.
template <typename S> struct ConvBlock {
	using T = typename S::T;
	T sum[S::HIGH][S::WIDE];
	T a[S::A_MINE], b[S::B_MINE];
	int group, y, x;   // where sum is, in its sizes
	int product, line; // that of the operands that this thread brings, where they lie along the products

	// Of a warp, neighbours by x read the same of a, and those by y the same of
	// b, which shared memory then hands out in half as many turns.
	__device__ __forceinline__ void place() {
		int warp = threadIdx.x / 32, t = threadIdx.x % S::GROUP;
		group = threadIdx.x / S::GROUP;
		product = warp % (S::CHUNK / 8) * 8 + threadIdx.x % 8;
		line = warp / (S::CHUNK / 8) * 4 + threadIdx.x / 8 % 4;
		x = t % 2 + t / 4 % (S::ACROSS / 2) * 2, y = t / 2 % 2 + t / (2 * S::ACROSS) * 2;
		UNROLL
		for (int r = 0; r < S::HIGH; r++) {
			UNROLL
			for (int c = 0; c < S::WIDE; c++)
				sum[r][c] = 0;
		}
	}

	// fetch_a reads rows of an operand from the first on: row i of n at from + i·stride.
	// Of a warp, eight read neighbours, and all write to different banks.
	__device__ __forceinline__ void fetch_a(const Tap &tap, const T *from, int first, int n, int stride) {
		int row = first + line;
		from += tap.w + row * stride;
		UNROLL
		for (int i = 0; i < S::A_MINE; i++, row += S::THREADS / S::CHUNK, from += S::THREADS / S::CHUNK * stride)
			a[i] = tap.w >= 0 && row < n ? *from : (T)0;
	}

	__device__ __forceinline__ void put_a(T *panels) const {
		T *to = panels + product * S::A_STRIDE + line;
		UNROLL
		for (int i = 0; i < S::A_MINE; i++)
			to[i * (S::THREADS / S::CHUNK)] = a[i];
	}

	__device__ __forceinline__ void multiply(const T *panels) {
		const T *u = panels + group * S::A_STRIDE + S::HIGH * y, *v = panels + S::CHUNK * S::A_STRIDE + group * S::B_STRIDE + S::WIDE * x;
		UNROLL
		for (int i = 0; i < S::CHUNK; i += S::GROUPS) {
			T s[S::HIGH], t[S::WIDE];
			fragment<S::HIGH>(s, u + i * S::A_STRIDE);
			fragment<S::WIDE>(t, v + i * S::B_STRIDE);
			UNROLL
			for (int r = 0; r < S::HIGH; r++) {
				UNROLL
				for (int c = 0; c < S::WIDE; c++)
					sum[r][c] += s[r] * t[c];
			}
		}
	}

	// gather adds to the first group's sums those of the others, one after the other.
	__device__ __forceinline__ void gather(T *room) {
		UNROLL
		for (int g = 1; g < S::GROUPS; g++) {
			T *mine = room + threadIdx.x % S::GROUP;
			if (group == g) {
				UNROLL
				for (int i = 0; i < S::HIGH * S::WIDE; i++)
					mine[i * S::GROUP] = sum[i / S::WIDE][i % S::WIDE];
			}
			__syncthreads();
			if (group == 0) {
				UNROLL
				for (int i = 0; i < S::HIGH * S::WIDE; i++)
					sum[i / S::WIDE][i % S::WIDE] += mine[i * S::GROUP];
			}
			__syncthreads();
		}
	}
};

// multiply_chunks multiplies chunk after chunk. There are two pairs of panels and
// two tables of taps: while one is used the next is made.
template <typename W> static __device__ __forceinline__ void multiply_chunks(W &work, typename W::T *room, Tap *taps, int chunks) {
	enum { CHUNK = W::S::CHUNK, PANELS = W::S::PANELS };
	work.make_taps(taps);
	__syncthreads();
	work.fetch(taps);
	work.make_taps(taps + CHUNK);
	work.put(room);
	__syncthreads();
	ROLL
	for (int i = 0; i < chunks; i++) {
		int now = i % 2, next = 1 - now;
		work.fetch(taps + next * CHUNK); // of what is not used, after the last
		work.make_taps(taps + now * CHUNK);
		work.block.multiply(room + now * PANELS);
		work.put(room + next * PANELS);
		__syncthreads();
	}
	work.block.gather(room);
}

// A ConvGather makes part of an image. The operand b is gathered, each thread for
// one pixel.
template <typename Sizes_> struct ConvGather {
	using S = Sizes_;
	using T = typename S::T;
	enum { APART = S::THREADS / S::COLS }; // products between those that a thread brings
	const ConvProduct &g;
	const ConvPart &part;
	ConvBlock<S> block;
	Odometer tap;
	int row, pixel;       // the first of the block
	int product, beyond;  // of those that it sums, the next of this thread, and the end
	int chunks, at, y, x; // y, x: where this thread's pixel is
	T *dst;

	__device__ __forceinline__ ConvGather(const ConvProduct &product, const ConvPart &p) : g(product), part(p) {}

	// find returns the image, row and column of a pixel.
	__device__ __forceinline__ void find(int p, int &n, int &i, int &j) const {
		u32 wide = (u32)part.wide, high = (u32)part.high, line = (u32)p / wide;
		j = (int)((u32)p - line * wide);
		n = (int)(line / high);
		i = (int)(line - (u32)n * high);
	}

	__device__ __forceinline__ int pixels() const { return (int)(g.batch * part.high * part.wide); }

	__device__ __forceinline__ void set(u64 of) {
		u64 column = of;
		row = (int)split(column, (u64)(g.rows + S::ROWS - 1) / S::ROWS) * S::ROWS;
		set_products((int)split(column, (u64)g.splits));
		pixel = (int)column * S::COLS;
		int p = pixel + (int)threadIdx.x % S::COLS, n, i, j;
		at = 0, y = CONV_OUTSIDE, x = 0;
		if (p < pixels()) {
			find(p, n, i, j);
			y = i * (int)g.mul_y + (int)part.first_y;
			x = j * (int)g.mul_x + (int)part.first_x;
			at = n * (int)(g.channels * g.height * g.width) + y * (int)g.width + x;
		}
		block.place();
	}

	__device__ __forceinline__ void set_products(int piece) {
		int all = (int)(g.channels * part.taps_y * part.taps_x);
		chunks = (all + S::CHUNK - 1) / S::CHUNK;
		chunks = (chunks + (int)g.splits - 1) / (int)g.splits;
		dst = (T *)g.dst + piece * g.size;
		int first = piece * chunks * S::CHUNK;
		beyond = first + chunks * S::CHUNK < all ? first + chunks * S::CHUNK : all;
		product = first + (int)threadIdx.x;
		tap.set(product, S::CHUNK, part.taps_y, part.taps_x);
	}

	__device__ __forceinline__ void make_taps(Tap *taps) {
		if (threadIdx.x >= S::CHUNK)
			return;
		Tap t = no_tap();
		if (product < beyond) {
			t.y = tap.y * (int)g.step_y;
			t.x = tap.x * (int)g.step_x;
			t.at = tap.z * (int)(g.height * g.width) + t.y * (int)g.width + t.x;
			t.w = (int)part.w_first + tap.z * (int)g.w_channel + tap.y * (int)g.w_tap_y + tap.x * (int)g.w_tap_x;
		}
		taps[threadIdx.x] = t;
		product += S::CHUNK;
		tap.next();
	}

	__device__ __forceinline__ void fetch(const Tap *taps) {
		block.fetch_a(taps[block.product], (const T *)g.w, row, (int)g.rows, (int)g.w_row);
		UNROLL
		for (int i = 0; i < S::B_MINE; i++) {
			Tap t = taps[threadIdx.x / S::COLS + i * APART];
			bool inside = (u32)(y + t.y) < (u32)g.height && (u32)(x + t.x) < (u32)g.width;
			block.b[i] = inside ? ((const T *)g.src)[at + t.at] : (T)0;
		}
	}

	__device__ __forceinline__ void put(T *panels) const {
		block.put_a(panels);
		T *to = panels + S::CHUNK * S::A_STRIDE + threadIdx.x / S::COLS * S::B_STRIDE + threadIdx.x % S::COLS;
		UNROLL
		for (int i = 0; i < S::B_MINE; i++)
			to[i * APART * S::B_STRIDE] = block.b[i];
	}

	// whole reports whether four pixels from a multiple of four on are neighbours
	// in memory.
	__device__ __forceinline__ bool whole() const {
		i64 plane = part.high * part.wide;
		return plane % 4 == 0 && g.dst_plane == plane && g.dst_row == part.wide && ((u64)dst | g.y) % sizeof(Quad<T>) == 0;
	}

	__device__ __forceinline__ int place_of(int p) const {
		int n, i, j;
		find(p, n, i, j);
		return (int)(part.dst_first + n * g.rows * g.dst_plane + i * g.dst_row + j * g.dst_column);
	}

	__device__ __forceinline__ T finished(T v, T with, T by) const {
		if (g.y)
			return v * slope<T>(g.activation, by);
		return activate<T>(g.activation, g.bias ? v + with : v);
	}

	// finish_quad does with four pixels what comes next, and writes them.
	__device__ __forceinline__ void finish_quad(int first, int q, bool aligned) {
		int plane = (int)g.dst_plane, to[4];
		T bias[S::HIGH];
		UNROLL
		for (int r = 0; r < S::HIGH; r++) {
			int of = row + S::HIGH * block.y + r;
			bias[r] = g.bias && of < g.rows ? ((const T *)g.bias)[of] : (T)0;
		}
		UNROLL
		for (int c = 0; c < 4; c++)
			to[c] = c > 0 && aligned ? to[0] + c : first + c < pixels() ? place_of(first + c) : 0;
		UNROLL
		for (int r = 0; r < S::HIGH; r++) {
			int of = row + S::HIGH * block.y + r;
			if (of >= g.rows)
				return;
			Quad<T> v, by = Quad<T>{{0, 0, 0, 0}};
			if (g.y && aligned)
				by = *(const Quad<T> *)((const T *)g.y + to[0] + of * plane);
			UNROLL
			for (int c = 0; c < 4; c++) {
				if (g.y && !aligned)
					by.x[c] = ((const T *)g.y)[to[c] + of * plane];
				v.x[c] = finished(block.sum[r][4 * q + c], bias[r], by.x[c]);
				if (!aligned && first + c < pixels())
					dst[to[c] + of * plane] = v.x[c];
			}
			if (aligned)
				*(Quad<T> *)(dst + to[0] + of * plane) = v;
		}
	}

	__device__ __forceinline__ void run(u64 of, T *room, Tap *taps) {
		set(of);
		if (pixel >= pixels())
			return; // another part of the launch has more
		multiply_chunks(*this, room, taps, chunks);
		if (block.group > 0)
			return;
		UNROLL
		for (int q = 0; q < S::WIDE / 4; q++) {
			int first = pixel + S::WIDE * block.x + 4 * q;
			if (first < pixels())
				finish_quad(first, q, whole());
		}
	}
};

// A ConvWeights makes part of the sums that the gradient by the weights consists
// of. The operand b is gathered, each thread for one pixel of each chunk.
template <typename Sizes_> struct ConvWeights {
	using S = Sizes_;
	using T = typename S::T;
	enum { APART = S::THREADS / S::CHUNK }; // columns between those that a thread brings
	const ConvWeightsArgs &g;
	Odometer place;
	const Tap *columns;
	ConvBlock<S> block;
	int row, column;  // the first of the block
	int pixel, beyond; // the pixels that it sums over
	int next;          // of this thread

	__device__ __forceinline__ ConvWeights(const ConvWeightsArgs &args, const Tap *of) : g(args), columns(of) {}

	// column_tap returns what a column adds to a pixel's place. Its w is 1 where
	// the column is of ones.
	__device__ __forceinline__ Tap column_tap(int k) const {
		Tap t = no_tap();
		t.w = k == g.taps;
		if (k < g.taps) {
			u32 line = (u32)k / (u32)g.taps_x, c = line / (u32)g.taps_y;
			t.y = (int)(line - c * (u32)g.taps_y) * (int)g.dilation_y;
			t.x = (int)((u32)k - line * (u32)g.taps_x) * (int)g.dilation_x;
			t.at = (int)c * (int)(g.height * g.width) + t.y * (int)g.width + t.x;
		}
		return t;
	}

	__device__ __forceinline__ void set(u64 of, Tap *made) {
		u64 tile = of;
		row = (int)split(tile, (u64)(g.rows + S::ROWS - 1) / S::ROWS) * S::ROWS;
		column = (int)tile * S::COLS;
		i64 all = g.batch * g.high * g.wide, to = (i64)(blockIdx.y + 1) * g.span;
		pixel = (int)(blockIdx.y * g.span);
		beyond = (int)(to < all ? to : all);
		next = pixel + (int)threadIdx.x;
		place.set(pixel + (int)threadIdx.x, S::CHUNK, g.high, g.wide);
		for (int i = threadIdx.x; i < S::COLS; i += S::THREADS)
			made[i] = column_tap(column + i);
		block.place();
	}

	__device__ __forceinline__ void make_taps(Tap *taps) {
		if (threadIdx.x >= S::CHUNK)
			return;
		Tap t = no_tap();
		if (next < beyond) {
			t.y = place.y * (int)g.stride_y - (int)g.pad_y;
			t.x = place.x * (int)g.stride_x - (int)g.pad_x;
			t.at = place.z * (int)(g.channels * g.height * g.width) + t.y * (int)g.width + t.x;
			t.w = place.z * (int)(g.rows * g.high * g.wide) + place.y * (int)g.wide + place.x;
		}
		next += S::CHUNK;
		place.next();
		taps[threadIdx.x] = t;
	}

	__device__ __forceinline__ void fetch(const Tap *taps) {
		Tap p = taps[block.product];
		block.fetch_a(p, (const T *)g.dz, row, (int)g.rows, (int)(g.high * g.wide));
		UNROLL
		for (int i = 0; i < S::B_MINE; i++) {
			Tap t = columns[block.line + i * APART];
			bool inside = (u32)(p.y + t.y) < (u32)g.height && (u32)(p.x + t.x) < (u32)g.width;
			T other = t.w == 1 && p.w >= 0 ? (T)1 : (T)0;
			block.b[i] = inside ? ((const T *)g.x)[p.at + t.at] : other;
		}
	}

	__device__ __forceinline__ void put(T *panels) const {
		block.put_a(panels);
		T *to = panels + S::CHUNK * S::A_STRIDE + block.product * S::B_STRIDE + block.line;
		UNROLL
		for (int i = 0; i < S::B_MINE; i++)
			to[i * APART] = block.b[i];
	}

	__device__ __forceinline__ void run(u64 of, T *room, Tap *taps, Tap *made) {
		set(of, made);
		__syncthreads();
		multiply_chunks(*this, room, taps, (beyond - pixel + S::CHUNK - 1) / S::CHUNK);
		if (block.group > 0)
			return;
		UNROLL
		for (int r = 0; r < S::HIGH; r++) {
			int y = row + S::HIGH * block.y + r;
			T *to = (T *)g.sums + ((i64)blockIdx.y * g.rows + y) * g.columns;
			UNROLL
			for (int c = 0; c < S::WIDE; c++) {
				int x = column + S::WIDE * block.x + c;
				if (y < g.rows && x < g.columns)
					to[x] = block.sum[r][c];
			}
		}
	}
};

template <typename S> static __device__ __forceinline__ void conv_tile(const ConvProduct &g, const ConvPart &part, void *room, Tap *taps) {
	ConvGather<S>(g, part).run(blockIdx.x, (typename S::T *)room, taps);
}

// conv_sized makes tiles as ConvTiles of args_conv.go says.
static __device__ __forceinline__ void conv_sized(float, const ConvProduct &g, const ConvPart &part, void *room, Tap *taps) {
	switch (g.tile) {
	case 0: return conv_tile<ConvSizes<float, 16, 128, 4, 4, 1, 16>>(g, part, room, taps);
	case 1: return conv_tile<ConvSizes<float, 32, 32, 4, 4, 1, 16>>(g, part, room, taps);
	case 2: return conv_tile<ConvSizes<float, 32, 64, 4, 4, 1, 16>>(g, part, room, taps);
	case 3: return conv_tile<ConvSizes<float, 32, 128, 8, 4, 1, 16>>(g, part, room, taps);
	case 4: return conv_tile<ConvSizes<float, 64, 32, 4, 4, 1, 16>>(g, part, room, taps);
	case 5: return conv_tile<ConvSizes<float, 64, 64, 4, 4, 1, 16>>(g, part, room, taps);
	default: return conv_tile<ConvSizes<float, 64, 64, 8, 4, 2, 16>>(g, part, room, taps);
	}
}

static __device__ __forceinline__ void conv_sized(double, const ConvProduct &g, const ConvPart &part, void *room, Tap *taps) {
	switch (g.tile) {
	case 0: return conv_tile<ConvSizes<double, 16, 128, 4, 4, 1, 8>>(g, part, room, taps);
	case 1: return conv_tile<ConvSizes<double, 32, 32, 4, 4, 1, 8>>(g, part, room, taps);
	case 2: return conv_tile<ConvSizes<double, 32, 64, 4, 4, 1, 8>>(g, part, room, taps);
	default: return conv_tile<ConvSizes<double, 64, 64, 4, 4, 1, 8>>(g, part, room, taps);
	}
}

// The arguments are copied, as tiles that find them by different ways would make the
// compiler keep them in local memory.
template <typename T> static __device__ void conv(const ConvArgs &a) {
	__shared__ Quad<double> room[CONV_ROOM / sizeof(Quad<double>)];
	__shared__ Tap taps[2 * CONV_CHUNK];
	ConvProduct product = a.product;
	ConvPart part = a.part[blockIdx.y];
	conv_sized((T)0, product, part, room, taps);
}

template <typename S> static __device__ __forceinline__ void weights_tile(const ConvWeightsArgs &a, void *room, Tap *taps, Tap *made) {
	ConvWeights<S>(a, made).run(blockIdx.x, (typename S::T *)room, taps, made);
}

// weights_sized makes tiles as ConvWeightsTiles of args_conv.go says.
static __device__ __forceinline__ void weights_sized(float, const ConvWeightsArgs &a, void *room, Tap *taps, Tap *made) {
	switch (a.tile) {
	case 0: return weights_tile<ConvSizes<float, 32, 16, 4, 4, 4, 32>>(a, room, taps, made);
	case 1: return weights_tile<ConvSizes<float, 16, 64, 8, 4, 4, 32>>(a, room, taps, made);
	case 2: return weights_tile<ConvSizes<float, 32, 32, 4, 4, 2, 32>>(a, room, taps, made);
	case 3: return weights_tile<ConvSizes<float, 32, 64, 8, 4, 4, 32>>(a, room, taps, made);
	default: return weights_tile<ConvSizes<float, 64, 64, 8, 4, 2, 32>>(a, room, taps, made);
	}
}

static __device__ __forceinline__ void weights_sized(double, const ConvWeightsArgs &a, void *room, Tap *taps, Tap *made) {
	switch (a.tile) {
	case 0: return weights_tile<ConvSizes<double, 32, 16, 4, 4, 4, 8>>(a, room, taps, made);
	case 1: return weights_tile<ConvSizes<double, 16, 64, 4, 4, 1, 8>>(a, room, taps, made);
	case 2: return weights_tile<ConvSizes<double, 32, 32, 4, 4, 1, 8>>(a, room, taps, made);
	case 3: return weights_tile<ConvSizes<double, 32, 64, 4, 4, 1, 8>>(a, room, taps, made);
	default: return weights_tile<ConvSizes<double, 64, 64, 4, 4, 1, 8>>(a, room, taps, made);
	}
}

template <typename T> static __device__ void conv_weights(const ConvWeightsArgs &a) {
	__shared__ Quad<double> room[WEIGHTS_ROOM / sizeof(Quad<double>)];
	__shared__ Tap taps[2 * CONV_CHUNK], made[64];
	weights_sized((T)0, a, room, taps, made);
}

// conv_sum: neighbours in a block sum the same part for neighbours in memory.
template <typename T> static __device__ void conv_sum(const ConvSumArgs &g) {
	__shared__ T room[CONV_THREADS];
	int lanes = (int)g.lanes, many = CONV_THREADS / lanes;
	int lane = (int)threadIdx.x / many;
	i64 all = g.rows * g.columns, i = (i64)blockIdx.x * many + (int)threadIdx.x % many;
	T sum = 0;
	if (i < all)
		for (i64 part = lane; part < g.parts; part += lanes)
			sum += ((const T *)g.sums)[part * all + i];
	room[threadIdx.x] = sum;
	for (int half = lanes / 2; half > 0; half /= 2) {
		__syncthreads();
		if (lane < half)
			room[threadIdx.x] = sum += room[threadIdx.x + half * many];
	}
	if (lane > 0 || i >= all)
		return;
	u64 row = (u64)i, column = split(row, (u64)g.columns);
	if ((i64)column < g.taps)
		((T *)g.dw)[row * g.taps + column] = sum;
	else
		((T *)g.db)[row] = sum;
}

// ConvFinishArgs are those of conv_finish: parts tensors of sums become dst, as
// ConvArgs has it.
struct ConvFinishArgs {
	u64 dst, sums, bias, y;
	i64 activation, n, parts, rows, plane; // n: elements
};

template <typename T> static __device__ void conv_finish(const ConvFinishArgs &g) {
	EACH(i, g.n) {
		T sum = 0;
		for (i64 part = 0; part < g.parts; part++)
			sum += ((const T *)g.sums)[part * g.n + (i64)i];
		if (g.bias) {
			u64 row = i;
			split(row, (u64)g.plane);
			sum += ((const T *)g.bias)[split(row, (u64)g.rows)];
		}
		((T *)g.dst)[i] = g.y ? sum * slope<T>(g.activation, ((const T *)g.y)[i]) : activate<T>(g.activation, sum);
	}
}

// Im2ColArgs are those of im2col and col2im: col has a row for each pixel of the
// result, with all that goes into it.
struct Im2ColArgs {
	u64 x, col;
	i64 n, channels, height, width, high, wide; // n: elements of what is made
	i64 taps_y, taps_x, pad_y, pad_x, stride_y, stride_x, dilation_y, dilation_x;
};

template <typename T> static __device__ void im2col(const Im2ColArgs &g) {
	EACH(at, g.n) {
		u64 i = at;
		i64 tx = (i64)split(i, (u64)g.taps_x), ty = (i64)split(i, (u64)g.taps_y), c = (i64)split(i, (u64)g.channels);
		i64 x = (i64)split(i, (u64)g.wide) * g.stride_x - g.pad_x + tx * g.dilation_x;
		i64 y = (i64)split(i, (u64)g.high) * g.stride_y - g.pad_y + ty * g.dilation_y;
		bool inside = y >= 0 && y < g.height && x >= 0 && x < g.width;
		((T *)g.col)[at] = inside ? ((const T *)g.x)[(((i64)i * g.channels + c) * g.height + y) * g.width + x] : (T)0;
	}
}

// col2im adds up what each element of x went into, the pixels of the result in
// their order.
template <typename T> static __device__ void col2im(const Im2ColArgs &g) {
	EACH(at, g.n) {
		u64 n = at;
		i64 x = (i64)split(n, (u64)g.width) + g.pad_x, y = (i64)split(n, (u64)g.height) + g.pad_y, c = (i64)split(n, (u64)g.channels);
		T sum = 0;
		for (i64 ty = g.taps_y - 1; ty >= 0; ty--) {
			i64 i = y - ty * g.dilation_y;
			if (i < 0 || i % g.stride_y != 0 || i / g.stride_y >= g.high)
				continue;
			for (i64 tx = g.taps_x - 1; tx >= 0; tx--) {
				i64 j = x - tx * g.dilation_x;
				if (j < 0 || j % g.stride_x != 0 || j / g.stride_x >= g.wide)
					continue;
				i64 row = ((i64)n * g.high + i / g.stride_y) * g.wide + j / g.stride_x;
				sum += ((const T *)g.col)[((row * g.channels + c) * g.taps_y + ty) * g.taps_x + tx];
			}
		}
		((T *)g.x)[at] = sum;
	}
}

// Two blocks of the most threads share a multiprocessor.
#define CONV_KERNEL(name, Args) BOUNDED_KERNEL(name, Args, CONV_THREADS, 2)
INSTANTIATE(CONV_KERNEL, conv, ConvArgs)
INSTANTIATE(CONV_KERNEL, conv_weights, ConvWeightsArgs)
INSTANTIATE(BARRIER_KERNEL, conv_sum, ConvSumArgs)
INSTANTIATE(KERNEL, conv_finish, ConvFinishArgs)
INSTANTIATE(KERNEL, im2col, Im2ColArgs)
INSTANTIATE(KERNEL, col2im, Im2ColArgs)
