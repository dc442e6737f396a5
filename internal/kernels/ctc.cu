// Connectionist temporal classification: Graves, Fernández, Gomez and Schmidhuber,
// ICML 2006, in logarithms. A block has a sample. The classes that a path goes
// through are blanks, class 0, between the targets: W = 2·targets + 1 of them.

#include "functions.h"

struct CTCArgs {
	u64 x, targets, lengths, target_lengths; // x: logarithms of probabilities, frames × samples × classes; the others i64
	u64 alpha, beta, losses, dx;             // alpha, beta: work space; losses: one a sample; dx 0: not wanted
	double scale;                            // of dx
	i64 frames, samples, classes;
	i64 count, width; // of targets: all, and a row's; width 0: they lie one after the other
};

// Sample is what a block works on.
struct Sample {
	const i64 *targets;
	i64 length, n, W; // frames; targets; places of a path
	i64 work;         // where its part of the work space begins
};

static __device__ Sample sample_of(const CTCArgs &a, i64 b) {
	const i64 *n = (const i64 *)a.target_lengths;
	i64 from = b * a.width;
	for (i64 i = 0; a.width == 0 && i < b; i++)
		from += n[i];
	Sample s;
	s.targets = (const i64 *)a.targets + from;
	s.length = ((const i64 *)a.lengths)[b];
	s.n = n[b];
	s.W = 2 * s.n + 1;
	s.work = a.frames * (2 * from + b);
	if (s.n < 0 || from < 0 || s.n > a.count - from || (a.width > 0 && s.n > a.width) || s.length < 1 || s.length > a.frames)
		s.length = -1;
	return s;
}

static __device__ __forceinline__ i64 class_at(const Sample &s, i64 place) { return place % 2 ? s.targets[place / 2] : 0; }

// sound reports, to all threads of the block, whether a sample's lengths and classes
// are in range.
static __device__ bool sound(const CTCArgs &a, const Sample &s) {
	__shared__ int wrong;
	if (threadIdx.x == 0)
		wrong = s.length < 0;
	__syncthreads();
	for (i64 i = threadIdx.x; s.length > 0 && i < s.n; i += blockDim.x)
		if (s.targets[i] < 0 || s.targets[i] >= a.classes)
			wrong = 1;
	__syncthreads();
	bool ok = !wrong;
	__syncthreads();
	return ok;
}

// log_add is log(exp x + exp y + exp z).
template <typename T> static __device__ __forceinline__ T log_add(T x, T y, T z) {
	T top = x > y ? x : y;
	top = z > top ? z : top;
	if (top == -infinity((T)0))
		top = 0;
	return m_log(m_exp(x - top) + m_exp(y - top) + m_exp(z - top)) + top;
}

template <typename T> static __device__ __forceinline__ T log_probability(const CTCArgs &a, i64 b, i64 t, i64 c) {
	return ((const T *)a.x)[(t * a.samples + b) * a.classes + c];
}

// ctc_alpha fills alpha: the logarithm of the probability of all beginnings of paths
// that are at a place at a time. It returns the sample's loss.
template <typename T> static __device__ T ctc_alpha(const CTCArgs &a, const Sample &s, i64 b) {
	const T none = -infinity((T)0);
	T *alpha = (T *)a.alpha + s.work;
	for (i64 p = threadIdx.x; p < s.W; p += blockDim.x)
		alpha[p] = p < 2 ? log_probability<T>(a, b, 0, class_at(s, p)) : none;
	__syncthreads();
	for (i64 t = 1; t < s.length; t++) {
		const T *last = alpha + (t - 1) * s.W;
		for (i64 p = threadIdx.x; p < s.W; p += blockDim.x) {
			i64 c = class_at(s, p);
			T jump = p > 1 && class_at(s, p - 2) != c ? last[p - 2] : none;
			alpha[t * s.W + p] = log_add<T>(last[p], p > 0 ? last[p - 1] : none, jump) + log_probability<T>(a, b, t, c);
		}
		__syncthreads();
	}
	const T *end = alpha + (s.length - 1) * s.W + 2 * s.n;
	return -log_add<T>(end[0], s.n > 0 ? end[-1] : none, none);
}

// ctc_beta fills beta: that of all ends of paths from there.
template <typename T> static __device__ void ctc_beta(const CTCArgs &a, const Sample &s, i64 b) {
	const T none = -infinity((T)0);
	T *beta = (T *)a.beta + s.work;
	for (i64 t = s.length - 1; t >= 0; t--) {
		const T *next = beta + (t + 1) * s.W;
		for (i64 p = threadIdx.x; p < s.W; p += blockDim.x) {
			i64 c = class_at(s, p);
			T v = p >= s.W - 2 ? (T)0 : none;
			if (t < s.length - 1) {
				T jump = p < s.W - 2 && class_at(s, p + 2) != c ? next[p + 2] : none;
				v = log_add<T>(next[p], p < s.W - 1 ? next[p + 1] : none, jump);
			}
			beta[t * s.W + p] = v + log_probability<T>(a, b, t, c);
		}
		__syncthreads();
	}
}

// ctc_gradient adds up what goes through a class at a time, which one thread does,
// that of the class's last place.
template <typename T> static __device__ void ctc_gradient(const CTCArgs &a, const Sample &s, i64 b, T loss) {
	const T none = -infinity((T)0);
	const T *alpha = (const T *)a.alpha + s.work, *beta = (const T *)a.beta + s.work;
	T *dx = (T *)a.dx;
	for (i64 k = threadIdx.x; k < a.frames * a.classes; k += blockDim.x)
		dx[(k / a.classes * a.samples + b) * a.classes + k % a.classes] = none;
	__syncthreads();
	for (i64 k = threadIdx.x; k < s.length * s.W; k += blockDim.x) {
		i64 t = k / s.W, p = k % s.W, c = class_at(s, p), later = p + 1;
		while (later < s.W && class_at(s, later) != c)
			later++;
		if (later < s.W)
			continue;
		T sum = none;
		for (i64 q = p; q >= 0; q--)
			if (class_at(s, q) == c)
				sum = log_add<T>(sum, alpha[t * s.W + q] + beta[t * s.W + q], none);
		dx[(t * a.samples + b) * a.classes + c] = sum;
	}
	__syncthreads();
	for (i64 k = threadIdx.x; k < a.frames * a.classes; k += blockDim.x) {
		i64 t = k / a.classes, c = k % a.classes;
		T *to = dx + (t * a.samples + b) * a.classes + c;
		T lp = log_probability<T>(a, b, t, c);
		*to = t < s.length ? (m_exp(lp) - m_exp(*to + loss - lp)) * (T)a.scale : (T)0;
	}
}

// ctc makes a sample's loss, and its gradient if that is wanted. They are NaN where a
// length or a class is out of range.
template <typename T> static __device__ void ctc(const CTCArgs &a) {
	for (i64 b = blockIdx.x; b < a.samples; b += gridDim.x) {
		Sample s = sample_of(a, b);
		bool ok = sound(a, s);
		T loss = infinity((T)0) - infinity((T)0);
		if (ok)
			loss = ctc_alpha<T>(a, s, b);
		if (threadIdx.x == 0 && a.losses)
			((T *)a.losses)[b] = loss;
		if (!a.dx)
			continue;
		if (ok) {
			ctc_beta<T>(a, s, b);
			ctc_gradient<T>(a, s, b, loss);
			continue;
		}
		for (i64 k = threadIdx.x; k < a.frames * a.classes; k += blockDim.x)
			((T *)a.dx)[(k / a.classes * a.samples + b) * a.classes + k % a.classes] = loss;
	}
}

// ctc_total adds up losses, or is the mean of losses by target. It has one thread.
struct CTCTotalArgs {
	u64 loss, losses, target_lengths;
	i64 mean, samples;
};

template <typename T> static __device__ void ctc_total(const CTCTotalArgs &a) {
	const T *losses = (const T *)a.losses;
	EACH(i, 1) {
		T sum = 0;
		for (i64 b = 0; b < a.samples; b++) {
			i64 n = ((const i64 *)a.target_lengths)[b];
			sum += a.mean && n > 1 ? losses[b] / (T)n : losses[b];
		}
		((T *)a.loss)[i] = a.mean ? sum / (T)a.samples : sum;
	}
}

INSTANTIATE(BARRIER_KERNEL, ctc, CTCArgs)
INSTANTIATE(KERNEL, ctc_total, CTCTotalArgs)
