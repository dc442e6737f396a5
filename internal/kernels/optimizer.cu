// Steps of optimizers, over several tensors in one launch: blockIdx.y is the
// tensor.

#include "kernel.h"

// v ← momentum·v + g + decay·w; w ← w − lr·v
struct SGDArgs {
	double lr, momentum, decay;
	struct {
		u64 w, g, v; // v 0: no momentum
		i64 n;
	} p[MAX_PARAMS];
};

template <typename T> static __device__ __forceinline__ void sgd_element(const SGDArgs &a, T &w, T g, T *v) {
	T d = g + (T)a.decay * w;
	if (v) {
		d += (T)a.momentum * *v;
		*v = d;
	}
	w -= (T)a.lr * d;
}

// By Quads, as memory is all that the step's time goes to.
template <typename T> static __device__ void sgd(const SGDArgs &a) {
	T *w = (T *)a.p[blockIdx.y].w, *v = (T *)a.p[blockIdx.y].v;
	const T *g = (const T *)a.p[blockIdx.y].g;
	u64 n = (u64)a.p[blockIdx.y].n;
	u64 quads = ((u64)w | (u64)v | (u64)g) % sizeof(Quad<T>) == 0 ? n / 4 : 0;
	EACH(i, quads) {
		Quad<T> wi = ((Quad<T> *)w)[i], gi = ((const Quad<T> *)g)[i], vi;
		if (v)
			vi = ((Quad<T> *)v)[i];
		for (int k = 0; k < 4; k++)
			sgd_element<T>(a, wi.x[k], gi.x[k], v ? &vi.x[k] : (T *)0);
		((Quad<T> *)w)[i] = wi;
		if (v)
			((Quad<T> *)v)[i] = vi;
	}
	EACH(i, n - 4 * quads)
		sgd_element<T>(a, w[4 * quads + i], g[4 * quads + i], v ? v + 4 * quads + i : (T *)0);
}

// Adam (Kingma and Ba, 2015, algorithm 1) with decoupled weight decay
// (Loshchilov and Hutter, 2019); c1 = 1-β₁ᵗ, c2 = 1-β₂ᵗ.
struct AdamArgs {
	double lr, beta1, beta2, epsilon, decay, c1, c2;
	struct {
		u64 w, g, m, v;
		i64 n;
	} p[MAX_PARAMS];
};

template <typename T> static __device__ void adam(const AdamArgs &a) {
	T *w = (T *)a.p[blockIdx.y].w, *m = (T *)a.p[blockIdx.y].m, *v = (T *)a.p[blockIdx.y].v;
	const T *g = (const T *)a.p[blockIdx.y].g;
	T b1 = (T)a.beta1, b2 = (T)a.beta2, rate = (T)(a.lr / a.c1), root = (T)(1 / sqrt(a.c2)), eps = (T)a.epsilon, keep = (T)(1 - a.lr * a.decay);
	EACH(i, a.p[blockIdx.y].n) {
		m[i] = b1 * m[i] + (1 - b1) * g[i];
		v[i] = b2 * v[i] + (1 - b2) * g[i] * g[i];
		w[i] = keep * w[i] - rate * m[i] / (m_sqrt(v[i]) * root + eps);
	}
}

INSTANTIATE(KERNEL, sgd, SGDArgs)
INSTANTIATE(KERNEL, adam, AdamArgs)
