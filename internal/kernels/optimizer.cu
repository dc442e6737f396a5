// Steps of optimizers, over several tensors in one launch: blockIdx.y is the
// tensor.

#include "functions.h"

// given returns what is at an address, or, where that is 0, otherwise. So a
// graph can go on with another value than it was captured with.
template <typename T> static __device__ __forceinline__ T given(u64 at, double otherwise) { return at ? *(const T *)at : (T)otherwise; }

// v ← momentum·v + g + decay·w; w ← w − lr·v
struct SGDArgs {
	double lr, momentum, decay;
	u64 rate_at; // of lr
	struct {
		u64 w, g, v; // v 0: no momentum
		i64 n;
	} p[MAX_PARAMS];
};

template <typename T> static __device__ __forceinline__ void sgd_element(const SGDArgs &a, T lr, T &w, T g, T *v) {
	T d = g + (T)a.decay * w;
	if (v) {
		d += (T)a.momentum * *v;
		*v = d;
	}
	w -= lr * d;
}

// By Quads, as memory is all that the step's time goes to.
template <typename T> static __device__ void sgd(const SGDArgs &a) {
	T *w = (T *)a.p[blockIdx.y].w, *v = (T *)a.p[blockIdx.y].v;
	const T *g = (const T *)a.p[blockIdx.y].g;
	T lr = given<T>(a.rate_at, a.lr);
	u64 n = (u64)a.p[blockIdx.y].n;
	u64 quads = ((u64)w | (u64)v | (u64)g) % sizeof(Quad<T>) == 0 ? n / 4 : 0;
	EACH(i, quads) {
		Quad<T> wi = ((Quad<T> *)w)[i], gi = ((const Quad<T> *)g)[i], vi;
		if (v)
			vi = ((Quad<T> *)v)[i];
		for (int k = 0; k < 4; k++)
			sgd_element<T>(a, lr, wi.x[k], gi.x[k], v ? &vi.x[k] : (T *)0);
		((Quad<T> *)w)[i] = wi;
		if (v)
			((Quad<T> *)v)[i] = vi;
	}
	EACH(i, n - 4 * quads)
		sgd_element<T>(a, lr, w[4 * quads + i], g[4 * quads + i], v ? v + 4 * quads + i : (T *)0);
}

// Adam (Kingma and Ba, 2015, algorithm 1) with decoupled weight decay
// (Loshchilov and Hutter, 2019). What the moments are short of after so many
// steps, 1-βᵗ, is -expm1(t·log β), which keeps its digits where β is near 1.
struct AdamArgs {
	double lr, step, beta1, beta2, log1, log2, epsilon, decay;
	u64 rate_at, step_at; // of lr and step
	struct {
		u64 w, g, m, v;
		i64 n;
	} p[MAX_PARAMS];
};

template <typename T> static __device__ void adam(const AdamArgs &a) {
	T *w = (T *)a.p[blockIdx.y].w, *m = (T *)a.p[blockIdx.y].m, *v = (T *)a.p[blockIdx.y].v;
	const T *g = (const T *)a.p[blockIdx.y].g;
	T lr = given<T>(a.rate_at, a.lr), t = given<T>(a.step_at, a.step), b1 = (T)a.beta1, b2 = (T)a.beta2, eps = (T)a.epsilon;
	T rate = -lr / m_expm1(t * (T)a.log1), root = 1 / m_sqrt(-m_expm1(t * (T)a.log2)), keep = 1 - lr * (T)a.decay;
	EACH(i, a.p[blockIdx.y].n) {
		m[i] = b1 * m[i] + (1 - b1) * g[i];
		v[i] = b2 * v[i] + (1 - b2) * g[i] * g[i];
		w[i] = keep * w[i] - rate * m[i] / (m_sqrt(v[i]) * root + eps);
	}
}

// RMSProp, of Hinton's lecture 6: v ← ρ·v + (1−ρ)·g²; w ← w − lr·clamp(g)/√(v+ε)
// − decay·w.
struct RMSPropArgs {
	double lr, rho, epsilon, decay, clip; // clip 0: not clamped
	u64 rate_at;                          // of lr
	struct {
		u64 w, g, v;
		i64 n;
	} p[MAX_PARAMS];
};

// A NaN stays one.
template <typename T> static __device__ __forceinline__ T clamped(T x, T limit) {
	return limit != 0 && x > limit ? limit : limit != 0 && x < -limit ? -limit : x;
}

template <typename T> static __device__ __forceinline__ void rmsprop_element(const RMSPropArgs &a, T lr, T &w, T g, T &v) {
	v = (T)a.rho * v + (T)(1 - a.rho) * g * g;
	w -= lr * clamped<T>(g, (T)a.clip) / m_sqrt(v + (T)a.epsilon) + (T)a.decay * w;
}

// By Quads, as sgd.
template <typename T> static __device__ void rmsprop(const RMSPropArgs &a) {
	T *w = (T *)a.p[blockIdx.y].w, *v = (T *)a.p[blockIdx.y].v;
	const T *g = (const T *)a.p[blockIdx.y].g;
	T lr = given<T>(a.rate_at, a.lr);
	u64 n = (u64)a.p[blockIdx.y].n;
	u64 quads = ((u64)w | (u64)v | (u64)g) % sizeof(Quad<T>) == 0 ? n / 4 : 0;
	EACH(i, quads) {
		Quad<T> wi = ((Quad<T> *)w)[i], gi = ((const Quad<T> *)g)[i], vi = ((Quad<T> *)v)[i];
		UNROLL
		for (int k = 0; k < 4; k++)
			rmsprop_element<T>(a, lr, wi.x[k], gi.x[k], vi.x[k]);
		((Quad<T> *)w)[i] = wi;
		((Quad<T> *)v)[i] = vi;
	}
	EACH(i, n - 4 * quads)
		rmsprop_element<T>(a, lr, w[4 * quads + i], g[4 * quads + i], v[4 * quads + i]);
}

INSTANTIATE(KERNEL, sgd, SGDArgs)
INSTANTIATE(KERNEL, rmsprop, RMSPropArgs)
INSTANTIATE(KERNEL, adam, AdamArgs)
