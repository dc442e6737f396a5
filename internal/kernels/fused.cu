// Elementwise operations of one shape as one: a short program that every thread
// runs for its elements, with what lies between in registers.

#include "activation.h"

#define FUSED_INPUTS 24
#define FUSED_BATCH 8 // inputs that are loaded at once
#define FUSED_SCALARS 8
#define FUSED_OUTPUTS 12
#define FUSED_STEPS 48

// FusedOperand is a tensor of rows and columns. A stride of 0 repeats elements.
struct FusedOperand {
	u64 p;
	i64 row, column; // strides
	i64 reg;         // that an output is taken from
};

// A step is op | a << 8 | b << 16 of registers a and b. Registers are the
// inputs, the scalars and the results of the steps, in this order.
struct FusedArgs {
	i64 n, columns, inputs, scalars, outputs, steps;
	FusedOperand in[FUSED_INPUTS], out[FUSED_OUTPUTS];
	double scalar[FUSED_SCALARS];
	i64 step[FUSED_STEPS];
};

// Operations of a step: those of arithmetic, then holds, then function, then
// Rectify and its gradient.
enum { FUSED_COMPARE = 16, FUSED_FUNCTION = 32, FUSED_RECTIFY = 128, FUSED_RECTIFY_BACK = 129 };

template <typename T> static __device__ __forceinline__ T fused_step(int op, T x, T y) {
	if (op == FUSED_RECTIFY)
		return activate<T>(ACT_RECTIFY, x);
	if (op == FUSED_RECTIFY_BACK)
		return y * slope<T>(ACT_RECTIFY, x);
	if (op >= FUSED_FUNCTION)
		return function<T>(op - FUSED_FUNCTION, x, 0, 0);
	if (op >= FUSED_COMPARE)
		return holds<T>(op - FUSED_COMPARE, x, y) ? (T)1 : (T)0;
	return arithmetic<T>(op, x, y);
}

// fused_load loads some inputs from k on. All are on their way before any is
// there. The last one is loaded in place of those that do not exist.
template <typename T> static __device__ __forceinline__ void fused_load(const FusedArgs &a, int k, i64 row, i64 column, T *reg) {
	T v[FUSED_BATCH];
	UNROLL for (int j = 0; j < FUSED_BATCH; j++) {
		const FusedOperand &in = a.in[min((i64)(k + j), a.inputs - 1)];
		v[j] = ((const T *)in.p)[row * in.row + column * in.column];
	}
	UNROLL for (int j = 0; j < FUSED_BATCH; j++)
		reg[j] = v[j];
}

template <typename T> static __device__ void fused(const FusedArgs &a) {
	T reg[FUSED_INPUTS + FUSED_SCALARS + FUSED_STEPS];
	EACH(i, a.n) {
		u64 left = i;
		i64 column = (i64)split(left, (u64)a.columns), row = (i64)left;
		int r = 0;
		ROLL for (; r < a.inputs; r += FUSED_BATCH)
			fused_load<T>(a, r, row, column, reg + r);
		r = (int)a.inputs;
		ROLL for (int k = 0; k < a.scalars; k++)
			reg[r++] = (T)a.scalar[k];
		ROLL for (int k = 0; k < a.steps; k++) {
			int s = (int)a.step[k];
			reg[r++] = fused_step<T>(s & 255, reg[s >> 8 & 255], reg[s >> 16 & 255]);
		}
		ROLL for (int k = 0; k < a.outputs; k++)
			((T *)a.out[k].p)[row * a.out[k].row + column * a.out[k].column] = reg[a.out[k].reg];
	}
}

INSTANTIATE(KERNEL, fused, FusedArgs)
