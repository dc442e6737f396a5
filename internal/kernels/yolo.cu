// The last layer of YOLOv3 (Redmon and Farhadi, 2018).

#include "functions.h"

// a is of batch × (boxes·attrs) × rows × cols; dst is of batch × (rows·cols·boxes) ×
// attrs. A box has x, y, width, height, whether there is one, and classes.
struct YOLOArgs {
	u64 dst, a;
	double stride, sizes[2 * MAX_BOXES]; // width and height of each box, in pixels
	i64 boxes, attrs, rows, cols, n;
};

template <typename T> static __device__ void yolo(const YOLOArgs &a) {
	T *dst = (T *)a.dst;
	const T *src = (const T *)a.a;
	T stride = (T)a.stride;
	EACH(i, a.n) {
		u64 o = i;
		u64 attr = split(o, (u64)a.attrs), box = split(o, (u64)a.boxes), col = split(o, (u64)a.cols), row = split(o, (u64)a.rows);
		T v = src[(((o * a.boxes + box) * a.attrs + attr) * a.rows + row) * a.cols + col];
		if (attr == 2 || attr == 3) {
			dst[i] = m_exp(v) * ((T)a.sizes[2 * box + attr - 2] / stride) * stride;
			continue;
		}
		v = 1 / (1 + m_exp(-v));
		dst[i] = attr == 0 ? (v + (T)col) * stride : attr == 1 ? (v + (T)row) * stride : v;
	}
}

INSTANTIATE(KERNEL, yolo, YOLOArgs)
