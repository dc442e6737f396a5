// Activations of layers, and their slopes.

#ifndef CUPOOL_ACTIVATION_H
#define CUPOOL_ACTIVATION_H

#include "functions.h"

enum { ACT_NONE, ACT_RELU, ACT_SIGMOID, ACT_TANH, ACT_RECTIFY };

// The rarer activations are functions that are called: their code would be in
// the way of what is short otherwise.
template <typename T> static __device__ __noinline__ T activate_rarely(i64 act, T x) {
	switch (act) {
	case ACT_SIGMOID: return function<T>(SIGMOID, x, (T)0, (T)0);
	case ACT_TANH: return m_tanh(x);
	default: return x >= 0 ? x + (T)0 : x * (T)0; // ACT_RECTIFY: -0 where x is below 0, +0 where it is 0
	}
}

template <typename T> static __device__ __forceinline__ T activate(i64 act, T x) {
	switch (act) {
	case ACT_NONE: return x;
	case ACT_RELU: return function<T>(RELU, x, (T)0, (T)0);
	default: return activate_rarely<T>(act, x);
	}
}

template <typename T> static __device__ __noinline__ T slope_rarely(i64 act, T y) {
	switch (act) {
	case ACT_SIGMOID: return y * (1 - y);
	case ACT_TANH: return 1 - y * y;
	default: return y > 0 || (y == 0 && 1 / y > 0) ? (T)1 : (T)0;
	}
}

// slope is the activation's derivative, from its result.
template <typename T> static __device__ __forceinline__ T slope(i64 act, T y) {
	switch (act) {
	case ACT_NONE: return (T)1;
	case ACT_RELU: return y > 0 ? (T)1 : (T)0;
	default: return slope_rarely<T>(act, y);
	}
}

#endif
