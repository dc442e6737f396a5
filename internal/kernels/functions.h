// Arithmetic, comparisons and functions of numbers.

#ifndef CUPOOL_FUNCTIONS_H
#define CUPOOL_FUNCTIONS_H

#include "kernel.h"

enum { ADD, SUB, MUL, DIV, POW, MOD, MIN, MAX };

static __device__ __forceinline__ float power(float x, float y) { return powf(x, y); }
static __device__ __forceinline__ double power(double x, double y) { return pow(x, y); }
static __device__ __forceinline__ float modulo(float x, float y) { return fmodf(x, y); }
static __device__ __forceinline__ double modulo(double x, double y) { return fmod(x, y); }

// Min and Max return x where either is NaN, as tensor does.
template <typename T> static __device__ __forceinline__ T arithmetic(i64 op, T x, T y) {
	switch (op) {
	case ADD: return x + y;
	case SUB: return x - y;
	case MUL: return x * y;
	case DIV: return x / y;
	case POW: return power(x, y);
	case MOD: return modulo(x, y);
	case MIN: return y < x ? y : x;
	default: return y > x ? y : x;
	}
}

enum { GT, GTE, LT, LTE, EQ, NE };

template <typename T> static __device__ __forceinline__ bool holds(i64 op, T x, T y) {
	switch (op) {
	case GT: return x > y;
	case GTE: return x >= y;
	case LT: return x < y;
	case LTE: return x <= y;
	case EQ: return x == y;
	default: return x != y;
	}
}

enum { NEG, INV, SQUARE, CUBE, EXP, TANH, LOG, LOG2, LOG10, SQRT, CBRT, INVSQRT, SIGN, ABS, CLAMP, SIGMOID, RELU,
       SIN, COS, CEIL, FLOOR, LOG1P, EXPM1, SOFTPLUS, COPY };

// MATH names a function for both types.
#define MATH(name) \
	static __device__ __forceinline__ float m_##name(float x) { return name##f(x); } \
	static __device__ __forceinline__ double m_##name(double x) { return name(x); }
MATH(exp)
MATH(expm1)
MATH(tanh)
MATH(log)
MATH(log2)
MATH(log10)
MATH(sqrt)
MATH(cbrt)
MATH(fabs)
MATH(sin)
MATH(cos)
MATH(ceil)
MATH(floor)
MATH(log1p)

template <typename T> static __device__ __forceinline__ T function(i64 op, T x, T p, T q) {
	switch (op) {
	case NEG: return -x;
	case INV: return 1 / x;
	case SQUARE: return x * x;
	case CUBE: return x * x * x;
	case EXP: return m_exp(x);
	case TANH: return m_tanh(x);
	case LOG: return m_log(x);
	case LOG2: return m_log2(x);
	case LOG10: return m_log10(x);
	case SQRT: return m_sqrt(x);
	case CBRT: return m_cbrt(x);
	case INVSQRT: return 1 / m_sqrt(x);
	case SIGN: return x < 0 ? (T)-1 : x > 0 ? (T)1 : x;
	case ABS: return m_fabs(x);
	case CLAMP: return x < p ? p : x > q ? q : x;
	case SIGMOID: return 1 / (1 + m_exp(-x));
	case RELU: return x > 0 || x != x ? x : (T)0;
	case SIN: return m_sin(x);
	case COS: return m_cos(x);
	case CEIL: return m_ceil(x);
	case FLOOR: return m_floor(x);
	case LOG1P: return m_log1p(x);
	case EXPM1: return m_expm1(x);
	case SOFTPLUS: return x > 0 ? x + m_log1p(m_exp(-x)) : m_log1p(m_exp(x));
	default: return x;
	}
}

#endif
