package tensorop

import (
	"gorgonia.org/tensor"

	"github.com/cupool/cupool/internal/tensorop/operand"
)

// Elements are copied by the strides of tensors alone. tensor copies memory as it
// lies wherever a tensor does not say that it has gaps, and a slice of a
// transposed tensor does not say so.

// copyElements copies the elements of src and their mask to dst. Both are host
// tensors of one type. They share no memory, and their shapes differ in axes of
// one element at most.
func copyElements(dst, src *tensor.Dense) {
	defer operand.KeepAlive(dst, src)
	if dst.Shape().TotalSize() == 0 {
		return
	}
	w := waysOf(dst, src)
	if src.IsMasked() {
		mask := dst.Mask()
		if !dst.IsMasked() {
			mask = make([]bool, dst.MemSize()/dst.Dtype().Size())
		}
		copyAlong(w, mask, src.Mask())
		dst.SetMask(mask)
	}
	size := dst.Dtype().Size()
	switch plain := operand.IsPlain(dst.Dtype().Type); {
	case plain && size == 1:
		copyAlong(w, operand.Elements[uint8](dst), operand.Elements[uint8](src))
	case plain && size == 2:
		copyAlong(w, operand.Elements[uint16](dst), operand.Elements[uint16](src))
	case plain && size == 4:
		copyAlong(w, operand.Elements[uint32](dst), operand.Elements[uint32](src))
	case plain && size == 8:
		copyAlong(w, operand.Elements[uint64](dst), operand.Elements[uint64](src))
	case plain && size == 16:
		copyAlong(w, operand.Elements[[2]uint64](dst), operand.Elements[[2]uint64](src))
	default: // of structs, or with Go pointers, of which the garbage collector is told
		w.rows(func(i, j int) {
			for range w.n {
				dst.Set(i, src.Get(j))
				i, j = i+w.to, j+w.from
			}
		})
	}
}

// rowMajor returns a host tensor in row-major order with the elements of another.
func rowMajor(h *tensor.Dense) *tensor.Dense {
	out := tensor.NewDense(h.Dtype(), h.Shape().Clone())
	copyElements(out, h)
	return out
}

// ways are the ways through two tensors: rows of n elements, along axes of which
// the last is the fastest. Distances are in elements.
type ways struct {
	n, to, from int
	outer       []way
}

// way is along one axis.
type way struct{ n, to, from int }

// waysOf leaves out axes of one element and takes axes together where it can.
func waysOf(dst, src *tensor.Dense) ways {
	to, from := longAxes(dst), longAxes(src)
	var all []way
	for i, axis := range to {
		w := way{axis.n, axis.to, from[i].to}
		if last := len(all) - 1; last >= 0 && all[last].to == w.n*w.to && all[last].from == w.n*w.from {
			w.n *= all[last].n
			all = all[:last]
		}
		all = append(all, w)
	}
	if len(all) == 0 {
		return ways{n: 1, to: 1, from: 1}
	}
	last := all[len(all)-1]
	return ways{n: last.n, to: last.to, from: last.from, outer: all[:len(all)-1]}
}

// longAxes returns the axes of a tensor that have more than one element.
func longAxes(d *tensor.Dense) (axes []way) {
	strides := operand.Strides(d)
	for i, n := range d.Shape() {
		if n != 1 {
			axes = append(axes, way{n: n, to: strides[i]})
		}
	}
	return axes
}

// rows calls f with where each row begins.
func (w *ways) rows(f func(to, from int)) {
	at := make([]int, len(w.outer))
	to, from := 0, 0
	for {
		f(to, from)
		axis := len(at) - 1
		for ; axis >= 0; axis-- {
			o := &w.outer[axis]
			at[axis]++
			to, from = to+o.to, from+o.from
			if at[axis] < o.n {
				break
			}
			to, from, at[axis] = to-o.n*o.to, from-o.n*o.from, 0
		}
		if axis < 0 {
			return
		}
	}
}

func copyAlong[T any](w ways, dst, src []T) {
	w.rows(func(i, j int) {
		if w.to == 1 && w.from == 1 {
			copy(dst[i:i+w.n], src[j:j+w.n])
			return
		}
		for range w.n {
			dst[i] = src[j]
			i, j = i+w.to, j+w.from
		}
	})
}
