package layers

import "math"

// Sparsemax sets each row of y to the probabilities nearest to that of x:
// max(x - tau, 0), with the tau that makes the sum 1. It is found from the elements
// above the last tau, which become fewer until they stay (Michelot, 1986).
func Sparsemax[T Float](y, x []T, cols int) {
	for ; len(x) > 0; x, y = x[cols:], y[cols:] {
		top := T(math.Inf(-1))
		for _, v := range x[:cols] {
			if v > top || v != v {
				top = v
			}
		}
		if math.IsInf(float64(top), -1) {
			top = 0
		}
		tau := threshold(x[:cols], top)
		for i, v := range x[:cols] {
			if y[i] = v - top - tau; y[i] <= 0 {
				y[i] = 0
			}
		}
	}
}

// threshold returns tau for a row whose largest element is top.
func threshold[T Float](x []T, top T) T {
	tau := T(-1)
	for count := len(x) + 1; ; {
		sum, now := T(0), 0
		for _, v := range x {
			if v -= top; !(v <= tau) {
				sum += v
				now++
			}
		}
		if now >= count || now == 0 {
			return tau
		}
		count = now
		tau = (sum - 1) / T(count)
	}
}

// SparsemaxBack sets dx, where y is not 0, to g less the mean of g over those
// elements of a row, and to 0 elsewhere.
func SparsemaxBack[T Float](dx, y, g []T, cols int) {
	for ; len(y) > 0; dx, y, g = dx[cols:], y[cols:], g[cols:] {
		var sum, count T
		for i, v := range y[:cols] {
			if v != 0 {
				sum += g[i]
				count++
			}
		}
		for i, v := range y[:cols] {
			if v != 0 {
				dx[i] = g[i] - sum/count
			} else {
				dx[i] = 0
			}
		}
	}
}
