// Pooling over windows of images, planes of h rows and w columns. Backward
// kernels gather: a thread goes over the few windows that its element is in.

#include "activation.h"

struct PoolArgs {
	u64 x, y, dx, dy;
	i64 planes, h, w, oh, ow; // of x and y
	i64 size[2], pad[2], stride[2];
	double divisor; // of averages; 0: the window's elements
	i64 activation; // what made x, of max_pool_back
};

static __device__ __forceinline__ float lowest(float) { return -0x1.fffffep+127f; }
static __device__ __forceinline__ double lowest(double) { return -0x1.fffffffffffffp+1023; }

// A Span is [from, to).
struct Span {
	i64 from, to;
};

// inside returns what of window o lies in the n elements of axis d.
static __device__ __forceinline__ Span inside(const PoolArgs &a, int d, i64 o, i64 n) {
	i64 from = o * a.stride[d] - a.pad[d], to = min(from + a.size[d], n);
	Span s = {from < 0 ? 0 : from, to};
	return s;
}

// over returns which of n windows have element i of axis d.
static __device__ __forceinline__ Span over(const PoolArgs &a, int d, i64 i, i64 n) {
	i64 end = i + a.pad[d], first = end - a.size[d] + a.stride[d];
	Span s = {first < 0 ? 0 : (i64)((u32)first / (u32)a.stride[d]), min((i64)((u32)end / (u32)a.stride[d]) + 1, n)};
	return s;
}

// The largest element above the lowest number, the first of equal ones. A NaN
// is never larger.
template <typename T> static __device__ void max_pool(const PoolArgs &a) {
	T *y = (T *)a.y;
	EACH(i, a.planes * a.oh * a.ow) {
		u64 q = i;
		i64 c = (i64)split(q, (u64)a.ow), r = (i64)split(q, (u64)a.oh);
		const T *x = (const T *)a.x + q * (u64)(a.h * a.w);
		Span rows = inside(a, 0, r, a.h), cols = inside(a, 1, c, a.w);
		T top = lowest((T)0);
		for (i64 j = rows.from; j < rows.to; j++)
			for (i64 k = cols.from; k < cols.to; k++) {
				T v = x[j * a.w + k];
				top = v > top ? v : top;
			}
		y[i] = top;
	}
}

// first_in reports whether no element before (r, c) in a window has the value v.
template <typename T>
static __device__ __forceinline__ bool first_in(const T *x, i64 w, Span rows, Span cols, i64 r, i64 c, T v) {
	for (i64 j = rows.from; j <= r; j++)
		for (i64 k = cols.from, end = j < r ? cols.to : c; k < end; k++)
			if (x[j * w + k] == v)
				return false;
	return true;
}

// max_pool_back_apart is max_pool_back for windows that lie side by side. A thread
// does the elements of one, or of what is left over at an edge.
template <typename T> static __device__ void max_pool_back_apart(const PoolArgs &a) {
	const T *x = (const T *)a.x;
	u64 down = (u64)((a.h + a.size[0] - 1) / a.size[0]), right = (u64)((a.w + a.size[1] - 1) / a.size[1]);
	EACH(i, (u64)a.planes * down * right) {
		u64 q = i;
		i64 c = (i64)split(q, right), r = (i64)split(q, down), at = ((i64)q * a.oh + r) * a.ow + c;
		bool window = r < a.oh && c < a.ow;
		T top = window ? ((const T *)a.y)[at] : (T)0, d = window ? ((const T *)a.dy)[at] : (T)0;
		bool found = !window || !(top > lowest((T)0));
		for (i64 j = r * a.size[0]; j < min((r + 1) * a.size[0], a.h); j++)
			for (i64 k = c * a.size[1]; k < min((c + 1) * a.size[1], a.w); k++) {
				i64 p = ((i64)q * a.h + j) * a.w + k;
				T v = x[p];
				bool here = !found && v == top;
				((T *)a.dx)[p] = here ? d * slope<T>(a.activation, v) : (T)0;
				found = found || here;
			}
	}
}

template <typename T> static __device__ void max_pool_back(const PoolArgs &a) {
	if (a.stride[0] == a.size[0] && a.stride[1] == a.size[1] && (a.pad[0] | a.pad[1]) == 0)
		return max_pool_back_apart<T>(a);
	T *dx = (T *)a.dx;
	EACH(i, a.planes * a.h * a.w) {
		u64 q = i;
		i64 c = (i64)split(q, (u64)a.w), r = (i64)split(q, (u64)a.h);
		const T *x = (const T *)a.x + q * (u64)(a.h * a.w);
		const T *y = (const T *)a.y + q * (u64)(a.oh * a.ow), *dy = (const T *)a.dy + q * (u64)(a.oh * a.ow);
		Span down = over(a, 0, r, a.oh), right = over(a, 1, c, a.ow);
		T v = x[r * a.w + c], sum = 0;
		for (i64 j = down.from; j < down.to; j++)
			for (i64 k = right.from; k < right.to; k++)
				if (v == y[j * a.ow + k] && v > lowest((T)0) && first_in(x, a.w, inside(a, 0, j, a.h), inside(a, 1, k, a.w), r, c, v))
					sum += dy[j * a.ow + k];
		dx[i] = sum * slope<T>(a.activation, v);
	}
}

// divisor_of returns what the sum of a window is divided by.
template <typename T> static __device__ __forceinline__ T divisor_of(const PoolArgs &a, Span rows, Span cols) {
	return a.divisor != 0 ? (T)a.divisor : (T)((rows.to - rows.from) * (cols.to - cols.from));
}

template <typename T> static __device__ void avg_pool(const PoolArgs &a) {
	T *y = (T *)a.y;
	EACH(i, a.planes * a.oh * a.ow) {
		u64 q = i;
		i64 c = (i64)split(q, (u64)a.ow), r = (i64)split(q, (u64)a.oh);
		const T *x = (const T *)a.x + q * (u64)(a.h * a.w);
		Span rows = inside(a, 0, r, a.h), cols = inside(a, 1, c, a.w);
		T sum = 0;
		for (i64 j = rows.from; j < rows.to; j++)
			for (i64 k = cols.from; k < cols.to; k++)
				sum += x[j * a.w + k];
		y[i] = rows.from < rows.to && cols.from < cols.to ? sum / divisor_of<T>(a, rows, cols) : (T)0;
	}
}

template <typename T> static __device__ void avg_pool_back(const PoolArgs &a) {
	T *dx = (T *)a.dx;
	EACH(i, a.planes * a.h * a.w) {
		u64 q = i;
		i64 c = (i64)split(q, (u64)a.w), r = (i64)split(q, (u64)a.h);
		const T *dy = (const T *)a.dy + q * (u64)(a.oh * a.ow);
		Span down = over(a, 0, r, a.oh), right = over(a, 1, c, a.ow);
		T sum = 0;
		for (i64 j = down.from; j < down.to; j++)
			for (i64 k = right.from; k < right.to; k++)
				sum += dy[j * a.ow + k] / divisor_of<T>(a, inside(a, 0, j, a.h), inside(a, 1, k, a.w));
		dx[i] = sum;
	}
}

// avg_pool_smear is what Gorgonia has for the gradient of its average pooling,
// a thread a plane: each window's gradient goes to the window's last element, and
// then every element becomes the average of the window whose number it has, over
// elements of which some are averages already.
template <typename T> static __device__ void avg_pool_smear(const PoolArgs &a) {
	EACH(plane, a.planes) {
		T *dx = (T *)a.dx + plane * (u64)(a.h * a.w);
		const T *dy = (const T *)a.dy + plane * (u64)(a.oh * a.ow);
		for (i64 i = 0; i < a.h * a.w; i++)
			dx[i] = 0;
		for (i64 r = 0; r < a.oh; r++)
			for (i64 c = 0; c < a.ow; c++) {
				Span rows = inside(a, 0, r, a.h), cols = inside(a, 1, c, a.w);
				if (rows.from < rows.to && cols.from < cols.to)
					dx[(rows.to - 1) * a.w + cols.to - 1] += dy[r * a.ow + c];
			}
		for (i64 r = 0; r < a.h; r++)
			for (i64 c = 0; c < a.w; c++) {
				Span rows = inside(a, 0, r, a.h), cols = inside(a, 1, c, a.w);
				T sum = 0;
				for (i64 j = rows.from; j < rows.to; j++)
					for (i64 k = cols.from; k < cols.to; k++)
						sum += dx[j * a.w + k];
				dx[r * a.w + c] = sum / (T)a.divisor;
			}
	}
}

INSTANTIATE(KERNEL, max_pool, PoolArgs)
INSTANTIATE(KERNEL, max_pool_back, PoolArgs)
INSTANTIATE(KERNEL, avg_pool, PoolArgs)
INSTANTIATE(KERNEL, avg_pool_back, PoolArgs)
INSTANTIATE(KERNEL, avg_pool_smear, PoolArgs)
