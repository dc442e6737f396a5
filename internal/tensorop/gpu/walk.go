package gpu

import "github.com/cupool/cupool/internal/kernels"

// Ways through tensors, for kernels. Dimensions of one element are left out,
// and neighbours that can be walked as one are merged, so that a tensor
// without gaps is a walk of one dimension.

// walk3 returns the way through up to three tensors of one shape; false when
// it has too many dimensions.
func walk3(shape []int, strides ...[]int) (w kernels.Walk3, ok bool) {
	n := 0
	for d, size := range shape {
		if size == 1 {
			continue
		}
		if n > 0 && mergeable(&w, n-1, size, d, strides) {
			w.Shape[n-1] *= int64(size)
		} else if n == kernels.MaxDims {
			return w, false
		} else {
			w.Shape[n] = int64(size)
			n++
		}
		for k, s := range strides {
			w.Stride[k][n-1] = int64(s[d])
		}
	}
	if n == 0 {
		w.Shape[0], n = 1, 1
	}
	w.Dims = int64(n)
	return w, true
}

// mergeable reports whether dimension d, of size elements, goes on where the
// walk's dimension i ends, in all tensors.
func mergeable(w *kernels.Walk3, i, size, d int, strides [][]int) bool {
	for k, s := range strides {
		if w.Stride[k][i] != int64(size)*int64(s[d]) {
			return false
		}
	}
	return true
}

// walk1 is walk3 for one tensor.
func walk1(shape, strides []int) (kernels.Walk, bool) {
	w, ok := walk3(shape, strides)
	return kernels.Walk{Dims: w.Dims, Shape: w.Shape, Stride: w.Stride[0]}, ok
}

// split returns the dimensions of a tensor along the axes and those across
// them; false when the axes are not all different dimensions. None are all.
func splitAxes(v *view, axes []int) (across, along view, ok bool) {
	var is [kernels.MaxDims]bool
	if len(v.shape) > len(is) {
		return across, along, false
	}
	for _, a := range axes {
		if a < 0 || a >= len(v.shape) || is[a] {
			return across, along, false
		}
		is[a] = true
	}
	across.n, along.n = 1, 1
	for d := range v.shape {
		part := &across
		if is[d] || len(axes) == 0 {
			part = &along
		}
		part.shape = append(part.shape, v.shape[d])
		part.strides = append(part.strides, v.strides[d])
		part.n *= v.shape[d]
	}
	return across, along, true
}
