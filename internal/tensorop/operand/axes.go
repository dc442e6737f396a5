package operand

import "slices"

// Rest returns the axes of a tensor that are not among some.
func Rest(dims int, axes []int) (others []int) {
	for axis := range dims {
		if !slices.Contains(axes, axis) {
			others = append(others, axis)
		}
	}
	return others
}

// Paired reports whether shapes can be contracted along axes.
func Paired(a, b, aAxes, bAxes []int) bool {
	ok := len(aAxes) == len(bAxes) && len(aAxes) > 0
	for i := 0; ok && i < len(aAxes); i++ {
		x, y := aAxes[i], bAxes[i]
		ok = x >= 0 && y >= 0 && x < len(a) && y < len(b) && a[x] == b[y] &&
			!slices.Contains(aAxes[:i], x) && !slices.Contains(bAxes[:i], y)
	}
	return ok
}
