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

template <typename T> static __device__ void sgd(const SGDArgs &a) {
	T *w = (T *)a.p[blockIdx.y].w, *v = (T *)a.p[blockIdx.y].v;
	const T *g = (const T *)a.p[blockIdx.y].g;
	T lr = (T)a.lr, momentum = (T)a.momentum, decay = (T)a.decay;
	EACH(i, a.p[blockIdx.y].n) {
		T d = g[i] + decay * w[i];
		if (v) {
			d += momentum * v[i];
			v[i] = d;
		}
		w[i] -= lr * d;
	}
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
