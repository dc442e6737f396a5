package dist

import "unsafe"

// A number is an element that ranks compute with.
type number interface {
	float32 | float64 | int32 | int64 | uint8
}

// combine sets dst to a op b, element by element. dst may be a or b. Avg counts as
// Sum here.
func combine(t Type, op Op, dst, a, b []byte) {
	switch t {
	case Float32:
		combineAs[float32](op, dst, a, b)
	case Float64:
		combineAs[float64](op, dst, a, b)
	case Int32:
		combineAs[int32](op, dst, a, b)
	case Int64:
		combineAs[int64](op, dst, a, b)
	case Uint8:
		combineAs[uint8](op, dst, a, b)
	}
}

func combineAs[T number](op Op, dst, a, b []byte) {
	d := as[T](dst)
	x, y := as[T](a)[:len(d)], as[T](b)[:len(d)] // no checks in the loops
	switch op {
	case Sum, Avg:
		for i := range d {
			d[i] = x[i] + y[i]
		}
	case Prod:
		for i := range d {
			d[i] = x[i] * y[i]
		}
	case Min:
		for i := range d {
			d[i] = min(x[i], y[i])
		}
	case Max:
		for i := range d {
			d[i] = max(x[i], y[i])
		}
	}
}

// divide makes the sums of n ranks their means.
func divide(t Type, dst []byte, n int) {
	switch t {
	case Float32:
		divideAs(as[float32](dst), float32(n))
	case Float64:
		divideAs(as[float64](dst), float64(n))
	}
}

func divideAs[T float32 | float64](d []T, n T) {
	for i := range d {
		d[i] /= n
	}
}

// as returns the elements in b, which is aligned to them.
func as[T number](b []byte) []T {
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/int(unsafe.Sizeof(*new(T))))
}
