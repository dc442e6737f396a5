package testkit

// Coordinates calls f with all coordinates of a shape, in row-major order. The
// coordinates are f's until it returns.
func Coordinates(shape []int, f func(i int, at []int)) {
	at, n := make([]int, len(shape)), 1
	for _, size := range shape {
		n *= size
	}
	for i := range n {
		f(i, at)
		for a := len(at) - 1; a >= 0; a-- {
			if at[a]++; at[a] < shape[a] {
				break
			}
			at[a] = 0
		}
	}
}

// PlaceOf returns where coordinates are in row-major order.
func PlaceOf(shape, at []int) int {
	p := 0
	for a, n := range shape {
		p = p*n + at[a]
	}
	return p
}
