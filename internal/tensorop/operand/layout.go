package operand

import (
	"gorgonia.org/tensor"

	"github.com/cupool/cupool/device"
)

// Strides returns how many elements apart those along each axis of a tensor are.
// tensor has a single one for a vector of two axes in column-major order.
func Strides(d *tensor.Dense) []int {
	shape, strides := d.Shape(), d.Strides()
	if len(strides) == len(shape) {
		return strides
	}
	all := make([]int, len(shape))
	for i := range all {
		all[i] = 1
		if shape[i] != 1 && len(strides) > 0 {
			all[i] = strides[0]
		}
	}
	return all
}

// InOrder reports whether the elements of a tensor lie one after the other, in
// row-major order, or in column-major order where the tensor says so.
func InOrder(d *tensor.Dense) bool {
	shape, strides := d.Shape(), Strides(d)
	step := 1
	for k := range shape {
		i := k
		if d.DataOrder().IsRowMajor() {
			i = len(shape) - 1 - k
		}
		if shape[i] != 1 && strides[i] != step {
			return false
		}
		step *= shape[i]
	}
	return uintptr(step)*d.Dtype().Size() == d.MemSize()
}

// IsRowMajor reports whether d is laid out as tensor.New lays it out.
func IsRowMajor(d *tensor.Dense) bool {
	return d.DataOrder() == 0 && InOrder(d) && (!d.RequiresIterator() || d.IsMasked() && !d.IsMaterializable())
}

// IsMisread reports whether tensor reads other elements of d than its strides
// say, because d does not say that it has gaps. Slices of transposed tensors are
// such, and clones of these, and slices of one element with a step.
func IsMisread(d *tensor.Dense) bool {
	if d.Shape().TotalSize() == 1 {
		return d.MemSize() != d.Dtype().Size()
	}
	return (d.IsView() || d.DataOrder() != 0) && !d.RequiresIterator() && d.Shape().TotalSize() > 1 && !InOrder(d)
}

// IsTransposed reports whether d is a row-major matrix that is marked as
// transposed, which StdEng multiplies as it is.
func IsTransposed(d *tensor.Dense) bool {
	shape, strides := d.Shape(), d.Strides()
	return len(strides) == 2 && (strides[0] == 1 || shape[0] == 1) && (strides[1] == shape[0] || shape[1] == 1) &&
		d.DataOrder() == tensor.Transposed && d.IsMaterializable() && !d.IsView() && !d.IsMasked() &&
		d.MemSize() == uintptr(shape.TotalSize())*d.Dtype().Size()
}

// SetMemory makes memory outside Go's heap the data of d.
func SetMemory(d *tensor.Dense, p device.Ptr, n int64) {
	tensor.FromMemory(uintptr(p), uintptr(n))(d)
}

// Disarm leaves d without data, as a tensor whose memory was freed (IsFreed).
// tensor takes its data for inaccessible then: At, SetAt and Memset fail, and to
// print it prints that. A scalar, which tensor would print without a look, gets
// the shape (1).
func Disarm(d *tensor.Dense) {
	SetMemory(d, 0, 0)
	was := d.Engine()
	SetEngine(d, nowhere{})
	SetEngine(d, was)
	if d.IsScalar() {
		*d.Info() = tensor.MakeAP(tensor.Shape{1}, []int{1}, 0, 0)
	}
}

// nowhere is an engine whose tensors are marked as inaccessible. The mark stays
// with a tensor whose engine is replaced.
type nowhere struct{ tensor.StdEng }

func (nowhere) AllocAccessible() bool { return false }

// SetEngine makes e the engine of d.
func SetEngine(d *tensor.Dense, e tensor.Engine) { tensor.WithEngine(e)(d) }

// Relabel returns a tensor of StdEng over d's memory.
func Relabel(d *tensor.Dense) *tensor.Dense {
	if d.IsMaterializable() {
		p, n := Extent(d)
		flat := tensor.NewDense(d.Dtype(), tensor.Shape{int(n) / int(d.Dtype().Size())}, tensor.FromMemory(uintptr(p), uintptr(n)))
		return LayOut(flat, d)
	}
	h := d.ShallowClone()
	SetEngine(h, tensor.StdEng{})
	return h
}

// LayOut returns a tensor with flat's memory and engine and d's shape,
// strides, pending transposition and mask.
func LayOut(flat, d *tensor.Dense) *tensor.Dense {
	h := flat
	if d.IsMaterializable() {
		// Only a clone of d brings along a transposition that was marked but
		// not done, and only Clone does not share its slices, which tensor
		// recycles. It is made without memory, as it would copy that.
		h = d.ShallowClone()
		SetMemory(h, 0, 0)
		SetEngine(h, tensor.StdEng{})
		h = h.Clone().(*tensor.Dense)
		// Slicing is the one way to take d's flags off.
		if _, err := flat.SliceInto(h); err != nil {
			panic(err) // all of a vector can always be sliced
		}
	}
	*h.Info() = d.Info().Clone()
	h.SetMask(d.Mask())
	return h
}

// Transposed returns a tensor over the memory of t, a matrix, that is marked as
// its transpose. The caller keeps t alive.
func Transposed(t tensor.Tensor) *tensor.Dense {
	p, n := Extent(t)
	d := tensor.NewDense(t.Dtype(), t.Shape().Clone(), tensor.FromMemory(uintptr(p), uintptr(n)), tensor.WithEngine(t.Engine()))
	if err := d.T(); err != nil {
		panic(err) // a matrix can always be transposed
	}
	return d
}
