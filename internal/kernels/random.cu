// Random numbers from Philox4x32-10: Salmon, Moraes, Dror and Shaw, Parallel
// random numbers: as easy as 1, 2, 3, SC 2011. A number depends on the seed
// and its place only, and is the same on a CPU (internal/philox).

#include "functions.h"

// draw_at, unless it is 0, is where a number is that is added to the stream. So
// each launch of a graph has numbers of its own.
struct RandomArgs {
	u64 dst, seed, stream, draw_at;
	double p, q; // uniform in [p, p+q), or normal of mean p and deviation q
	i64 normal, n;
};

static __device__ __forceinline__ u64 drawn(u64 stream, u64 draw_at) { return draw_at ? stream + *(const u64 *)draw_at : stream; }

struct Four {
	u32 x[4];
};

static __device__ __forceinline__ Four philox(u64 counter, u64 stream, u64 seed) {
	u32 x0 = (u32)counter, x1 = (u32)(counter >> 32), x2 = (u32)stream, x3 = (u32)(stream >> 32);
	u32 k0 = (u32)seed, k1 = (u32)(seed >> 32);
	for (int round = 0; round < 10; round++) {
		u64 a = (u64)0xD2511F53u * x0, b = (u64)0xCD9E8D57u * x2;
		x0 = (u32)(b >> 32) ^ x1 ^ k0;
		x1 = (u32)b;
		x2 = (u32)(a >> 32) ^ x3 ^ k1;
		x3 = (u32)a;
		k0 += 0x9E3779B9u;
		k1 += 0xBB67AE85u;
	}
	Four f = {{x0, x1, x2, x3}};
	return f;
}

// unit returns number j of the four (float) or two (double) in [0, 1).
static __device__ __forceinline__ float unit(const Four &f, int j, float) { return (float)(f.x[j] >> 8) * 0x1p-24f; }
static __device__ __forceinline__ double unit(const Four &f, int j, double) {
	u64 bits = (u64)f.x[2 * j + 1] << 32 | f.x[2 * j];
	return (double)(bits >> 11) * 0x1p-53;
}

static __device__ __forceinline__ void sin_cos(float x, float *s, float *c) { sincosf(x, s, c); }
static __device__ __forceinline__ void sin_cos(double x, double *s, double *c) { sincos(x, s, c); }

// Normal numbers come in pairs, by the transform of Box and Muller (1958).
template <typename T> static __device__ void random(const RandomArgs &a) {
	const int per = 16 / sizeof(T);
	T *dst = (T *)a.dst;
	u64 stream = drawn(a.stream, a.draw_at);
	EACH(k, (a.n + per - 1) / per) {
		Four f = philox(k, stream, a.seed);
		for (int j = 0; j < per; j += 2) {
			T u = unit(f, j, (T)0), v = unit(f, j + 1, (T)0);
			if (a.normal) {
				T r = m_sqrt(-2 * m_log(1 - u)), s, c;
				sin_cos((T)6.283185307179586 * v, &s, &c);
				u = r * c;
				v = r * s;
			}
			u64 i = k * per + j;
			if (i < (u64)a.n)
				dst[i] = (T)a.p + (T)a.q * u;
			if (i + 1 < (u64)a.n)
				dst[i + 1] = (T)a.p + (T)a.q * v;
		}
	}
}

// dropout keeps elements with a probability, and multiplies those by scale. Word j
// of counter k decides about element 4k+j, for both types.
struct DropoutArgs {
	u64 dst, a, seed, stream, draw_at; // dst may be a
	double keep, scale;
	i64 n;
};

template <typename T> static __device__ void dropout(const DropoutArgs &a) {
	T *dst = (T *)a.dst, scale = (T)a.scale;
	const T *src = (const T *)a.a;
	u64 stream = drawn(a.stream, a.draw_at), limit = (u64)(a.keep * 0x1p32), n = (u64)a.n;
	bool quads = (a.dst | a.a) % sizeof(Quad<T>) == 0;
	EACH(k, (n + 3) / 4) {
		Four f = philox(k, stream, a.seed);
		if (quads && 4 * k + 4 <= n) {
			Quad<T> q = ((const Quad<T> *)src)[k];
			for (int j = 0; j < 4; j++)
				q.x[j] = f.x[j] < limit ? q.x[j] * scale : (T)0;
			((Quad<T> *)dst)[k] = q;
			continue;
		}
		for (int j = 0; j < 4 && 4 * k + j < n; j++)
			dst[4 * k + j] = f.x[j] < limit ? src[4 * k + j] * scale : (T)0;
	}
}

// binomial counts in how many of so many trials a number is below p. Element i has
// the counters from i·⌈trials/per⌉ on, each with per numbers.
struct BinomialArgs {
	u64 dst, seed, stream, draw_at;
	double p;
	i64 trials, n;
};

template <typename T> static __device__ void binomial(const BinomialArgs &a) {
	const int per = 16 / sizeof(T);
	u64 stream = drawn(a.stream, a.draw_at), counters = (u64)(a.trials + per - 1) / per;
	EACH(i, a.n) {
		i64 left = a.trials, hits = 0;
		for (u64 c = 0; c < counters; c++, left -= per) {
			Four f = philox(i * counters + c, stream, a.seed);
			for (int j = 0; j < per && j < left; j++)
				hits += unit(f, j, (T)0) < (T)a.p;
		}
		((T *)a.dst)[i] = (T)hits;
	}
}

// next_draw adds one to a number.
struct NextDrawArgs {
	u64 draw;
};

KERNEL(next_draw, NextDrawArgs) {
	EACH(i, 1)
		++*(u64 *)a.draw;
}

INSTANTIATE(KERNEL, random, RandomArgs)
INSTANTIATE(KERNEL, dropout, DropoutArgs)
INSTANTIATE(KERNEL, binomial, BinomialArgs)
