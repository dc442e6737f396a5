package tensorop

import (
	"gorgonia.org/tensor"

	"github.com/cupool/cupool/internal/tensorop/operand"
)

// StdEng divides floats by 0 in one of two ways: as IEEE 754 has it, or, in place and
// onto a sum, with +Inf for whatever is divided. GPUs divide as IEEE 754 has it, and so
// do these on the host.

// divide is StdEng.Div for floats.
func divide(e tensor.StdEng, a, b tensor.Tensor, opts ...tensor.FuncOpt) (tensor.Tensor, error) {
	x, y, dst, o := plain(a), plain(b), (*tensor.Dense)(nil), operand.ParseOptions(opts)
	if x != nil && y != nil && x.Shape().Eq(y.Shape()) {
		dst = quotientIn(x, &o)
	}
	switch {
	case dst == nil || y.Dtype() != x.Dtype():
		return e.Div(a, b, opts...) // which says what is wrong
	case x.Dtype() == tensor.Float64:
		quotients(dst.Float64s(), x.Float64s(), y.Float64s(), o.Incr != nil)
	default:
		quotients(dst.Float32s(), x.Float32s(), y.Float32s(), o.Incr != nil)
	}
	return dst, nil
}

// divideScalar is StdEng.DivScalar for floats.
func divideScalar(e tensor.StdEng, t tensor.Tensor, s interface{}, leftTensor bool, opts ...tensor.FuncOpt) (tensor.Tensor, error) {
	x, dst, o := plain(t), (*tensor.Dense)(nil), operand.ParseOptions(opts)
	if x != nil {
		dst = quotientIn(x, &o)
	}
	value := s
	if d, ok := s.(*tensor.Dense); ok && plain(d) != nil && d.Shape().TotalSize() == 1 {
		value = d.Get(0)
	}
	if dst != nil {
		switch v := value.(type) {
		case float64:
			if x.Dtype() == tensor.Float64 {
				byScalar(dst.Float64s(), x.Float64s(), v, leftTensor, o.Incr != nil)
				return dst, nil
			}
		case float32:
			if x.Dtype() == tensor.Float32 {
				byScalar(dst.Float32s(), x.Float32s(), v, leftTensor, o.Incr != nil)
				return dst, nil
			}
		}
	}
	return e.DivScalar(t, s, leftTensor, opts...)
}

// plain returns t as a tensor of floats in row-major order without gaps or a mask, or nil.
func plain(t tensor.Tensor) *tensor.Dense {
	d, ok := t.(*tensor.Dense)
	if !ok || d == nil || !operand.IsFloat(d.Dtype()) || d.RequiresIterator() || d.IsMasked() ||
		!d.DataOrder().IsRowMajor() && !d.Shape().IsVectorLike() || !operand.InOrder(d) {
		return nil
	}
	return d
}

// quotientIn returns where the options want x divided, or nil where that is not plain or
// of another shape.
func quotientIn(x *tensor.Dense, o *operand.Options) *tensor.Dense {
	dst := o.Reuse
	switch {
	case o.Incr != nil && o.Reuse != nil:
		return nil
	case o.Incr != nil:
		dst = o.Incr
	case dst == nil && o.Unsafe:
		return x
	case dst == nil:
		return tensor.NewDense(x.Dtype(), x.Shape().Clone())
	}
	d := plain(dst)
	if d == nil || d.Dtype() != x.Dtype() || !d.Shape().Eq(x.Shape()) {
		return nil
	}
	return d
}

func quotients[T float32 | float64](dst, x, y []T, sum bool) {
	for i, v := range x[:len(dst)] {
		if q := v / y[i]; sum {
			dst[i] += q
		} else {
			dst[i] = q
		}
	}
}

func byScalar[T float32 | float64](dst, x []T, s T, left, sum bool) {
	for i, v := range x[:len(dst)] {
		q := v / s
		if !left {
			q = s / v
		}
		if sum {
			q += dst[i]
		}
		dst[i] = q
	}
}
