// Random numbers from Philox4x32-10: Salmon, Moraes, Dror and Shaw, Parallel
// random numbers: as easy as 1, 2, 3, SC 2011. A number depends on the seed
// and its place only, and is the same on a CPU (internal/philox).

#include "kernel.h"

struct RandomArgs {
	u64 dst, seed, stream;
	double p, q; // uniform in [p, p+q), or normal of mean p and deviation q
	i64 normal, n;
};

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
	EACH(k, (a.n + per - 1) / per) {
		Four f = philox(k, a.stream, a.seed);
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

INSTANTIATE(KERNEL, random, RandomArgs)
