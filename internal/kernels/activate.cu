// Activations by themselves, and back.

#include "activation.h"

// dst is act(a), or, if there is a y, what an activation made, a times the slope
// there. dst may be a.
struct ActivateArgs {
	u64 dst, a, y; // y 0: none
	i64 activation, n;
};

template <typename T> static __device__ __forceinline__ T activated(i64 act, T a, const T *y) {
	return y ? a * slope<T>(act, *y) : activate<T>(act, a);
}

// By Quads, as memory is all that the time goes to.
template <typename T> static __device__ void activate_all(const ActivateArgs &p) {
	T *dst = (T *)p.dst;
	const T *a = (const T *)p.a, *y = (const T *)p.y;
	u64 n = (u64)p.n, quads = (p.dst | p.a | p.y) % sizeof(Quad<T>) == 0 ? n / 4 : 0;
	EACH(i, quads) {
		Quad<T> v = ((const Quad<T> *)a)[i], w = y ? ((const Quad<T> *)y)[i] : v;
		UNROLL
		for (int k = 0; k < 4; k++)
			v.x[k] = activated<T>(p.activation, v.x[k], y ? &w.x[k] : (const T *)0);
		((Quad<T> *)dst)[i] = v;
	}
	EACH(i, n - 4 * quads)
		dst[4 * quads + i] = activated<T>(p.activation, a[4 * quads + i], y ? y + 4 * quads + i : (const T *)0);
}

KERNEL(activate_f32, ActivateArgs) { activate_all<float>(a); }
KERNEL(activate_f64, ActivateArgs) { activate_all<double>(a); }
