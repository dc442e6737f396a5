package gorgoniavm

import (
	"reflect"
	"unsafe"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// sigmoid is 1 / (1 + exp(-x)), of kernels that a device has where gorgonia
// has a Go function.
func sigmoid(m *VM, in *instr, args []gorgonia.Value) (gorgonia.Value, error) {
	d, ok := args[0].(*tensor.Dense)
	if !ok || m.e.AllocAccessible() {
		return elementwise(m, in, args)
	}
	if _, ok := m.reuse(in); !ok {
		dst, err := m.destination(in)
		if err != nil {
			return nil, err
		}
		if err := m.e.Copy(dst, d); err != nil {
			return nil, err
		}
		d = dst
	}
	one, err := oneOf(d.Dtype())
	if err != nil {
		return nil, err
	}
	for _, f := range []func() (tensor.Tensor, error){
		func() (tensor.Tensor, error) { return m.e.Neg(d, tensor.UseUnsafe()) },
		func() (tensor.Tensor, error) { return m.e.Exp(d, tensor.UseUnsafe()) },
		func() (tensor.Tensor, error) { return m.e.AddScalar(d, one, true, tensor.UseUnsafe()) },
		func() (tensor.Tensor, error) { return m.e.Inv(d, tensor.UseUnsafe()) },
	} {
		if _, err := f(); err != nil {
			return nil, err
		}
	}
	return d, nil
}

// dropout is gorgonia's, with its random numbers, into a destination:
// gorgonia's own way to give it one fails.
func dropout(m *VM, in *instr, args []gorgonia.Value) (gorgonia.Value, error) {
	d, ok := args[0].(*tensor.Dense)
	drop := field(in.op, "probability").Float()
	switch {
	case !ok || !m.e.AllocAccessible():
		return foreign(m, in, args)
	case drop == 0 || !field(in.op, "isTraining").Bool():
		return d, nil
	}
	m.fallbacks[in.name]++
	dst, err := m.destination(in)
	if err != nil {
		return nil, err
	}
	if _, err := m.e.Accessible(d); err != nil {
		return nil, err
	}
	random := *(*func() float64)(unsafe.Pointer(reflect.ValueOf(in.op).Elem().FieldByName("rndGen").UnsafeAddr()))
	switch x := d.Data().(type) {
	case []float32:
		dropTo(dst.Data().([]float32), x, float32(1-drop), random)
	case []float64:
		dropTo(dst.Data().([]float64), x, 1-drop, random)
	default:
		return nil, ErrOperand
	}
	return dst, nil
}

// dropTo keeps elements with a probability.
func dropTo[T float32 | float64](dst, src []T, keep T, random func() float64) {
	for i, x := range src {
		dst[i] = 0
		if T(random()) < keep {
			dst[i] = x / keep
		}
	}
}

// permute moves the elements of src to dst, whose axes are src's in the order
// of axes. It serves what the CPU can touch, where it takes a fraction of the
// time of tensor's iterators.
func (m *VM) permute(dst, src *tensor.Dense, axes []int) (bool, error) {
	if !m.e.AllocAccessible() || src.RequiresIterator() || src.DataOrder() != 0 || src.Dims() == 0 ||
		len(src.Strides()) != len(axes) || src.Shape().TotalSize() == 0 {
		return false, nil
	}
	if _, err := m.e.Accessible(dst); err != nil {
		return false, err
	}
	steps := make([]int, len(axes))
	for i, axis := range axes {
		steps[i] = src.Strides()[axis]
	}
	switch x := src.Data().(type) {
	case []float32:
		permuteTo(dst.Data().([]float32), x, dst.Shape(), steps)
	case []float64:
		permuteTo(dst.Data().([]float64), x, dst.Shape(), steps)
	default:
		return false, nil
	}
	return true, nil
}

// permuteTo fills dst in order from src, in which the elements of each axis
// are so many steps apart.
func permuteTo[T any](dst, src []T, shape tensor.Shape, steps []int) {
	last := len(shape) - 1
	n, step := shape[last], steps[last]
	at := make([]int, last)
	for from := 0; len(dst) > 0; dst = dst[n:] {
		for i := range n {
			dst[i] = src[from+i*step]
		}
		for i := last - 1; i >= 0; i-- {
			at[i]++
			from += steps[i]
			if at[i] < shape[i] {
				break
			}
			from -= at[i] * steps[i]
			at[i] = 0
		}
	}
}
