package tensorop

import (
	"fmt"

	"gorgonia.org/tensor"

	"github.com/cupool/cupool/device"
	"github.com/cupool/cupool/internal/tensorop/operand"
)

// The operations of tensor.StdEng around SoftMax, by their form.
type (
	SoftMaxOp     func(e tensor.StdEng, x tensor.Tensor, axis int, opts ...tensor.FuncOpt) (tensor.Tensor, error)
	SoftMaxBackOp func(e tensor.StdEng, output, grad tensor.Tensor, axis int, opts ...tensor.FuncOpt) (tensor.Tensor, error)
)

// SoftMax computes SoftMax or LogSoftMax, as op names it. Unlike StdEng it heeds
// WithReuse and UseUnsafe.
func (ops *Ops) SoftMax(op string, f SoftMaxOp, x tensor.Tensor, axis int, opts []tensor.FuncOpt) (r tensor.Tensor, err error) {
	defer ops.caught(op, &err)
	defer operand.KeepAlive(x)
	o := operand.ParseOptions(opts)
	if r, ok, err := ops.gpu.SoftMax(op, op == "LogSoftMax", axis, &o, x); ok {
		return r, err
	}
	return ops.soft(op, func(h []tensor.Tensor, opts ...tensor.FuncOpt) (tensor.Tensor, error) {
		r, err := f(tensor.StdEng{}, h[0], axis, opts...)
		if err == nil {
			err = mendRows(f, h[0], r, axis)
		}
		return r, err
	}, opts, x)
}

// mendRows computes again, each by itself, the rows of r = f(x) along the last axis that
// StdEng gets wrong. It subtracts from a row the largest of its elements, but has the
// first one of x in the place of the row's first, and the exponentials of what is far
// from the largest are infinities or zeros.
func mendRows(f SoftMaxOp, x, r tensor.Tensor, axis int) error {
	d, ok := x.(*tensor.Dense)
	out, dense := r.(*tensor.Dense)
	last := x.Dims() - 1
	if !ok || !dense || axis != last && axis != -1 || !operand.IsRowMajor(d) {
		return nil
	}
	defer operand.KeepAlive(d, out)
	n := x.Shape()[last]
	again := func(row int) error {
		_, err := f(tensor.StdEng{}, rowAt(d, row, n), 0, tensor.WithReuse(rowAt(out, row, n)), tensor.UseUnsafe())
		return err
	}
	if d.Dtype() == tensor.Float64 {
		return farRows(operand.Slice[float64](d), n, again)
	}
	return farRows(operand.Slice[float32](d), n, again)
}

// farRows calls f with the rows of x whose largest element is far from what StdEng
// subtracts, or not a finite number.
func farRows[T float32 | float64](x []T, n int, f func(row int) error) error {
	for row := 1; row < len(x)/max(n, 1); row++ {
		most, subtracted := x[row*n], x[0]
		for _, v := range x[row*n+1 : (row+1)*n] {
			most, subtracted = max(most, v), max(subtracted, v)
		}
		if d := most - subtracted; !(-40 < d && d < 40) {
			if err := f(row); err != nil {
				return err
			}
		}
	}
	return nil
}

// rowAt returns the i-th row of a row-major tensor. The caller keeps that alive.
func rowAt(d *tensor.Dense, i, n int) *tensor.Dense {
	size := uintptr(n) * d.Dtype().Size()
	return tensor.NewDense(d.Dtype(), tensor.Shape{n}, tensor.FromMemory(d.Uintptr()+uintptr(i)*size, size))
}

// SoftMaxBack computes SoftMaxB or LogSoftMaxB, as op names it, with the options
// of SoftMax.
func (ops *Ops) SoftMaxBack(op string, f SoftMaxBackOp, output, grad tensor.Tensor, axis int, opts []tensor.FuncOpt) (r tensor.Tensor, err error) {
	defer ops.caught(op, &err)
	defer operand.KeepAlive(output, grad)
	o := operand.ParseOptions(opts)
	if r, ok, err := ops.gpu.SoftMax(op, op == "LogSoftMaxB", axis, &o, output, grad); ok {
		return r, err
	}
	return ops.soft(op, func(h []tensor.Tensor, opts ...tensor.FuncOpt) (tensor.Tensor, error) {
		return f(tensor.StdEng{}, h[0], h[1], axis, opts...)
	}, opts, output, grad)
}

// errAdded: StdEng returns the result, and adds nothing.
var errAdded = fmt.Errorf("a result that is added to another (WithIncr): %w", device.ErrNotSupported)

// soft computes f, one of the SoftMax family. StdEng reuses a tensor only when
// it is told both WithReuse and UseUnsafe, and must not be given its input
// for that, which its goroutines read across rows.
func (ops *Ops) soft(op string, f func(h []tensor.Tensor, opts ...tensor.FuncOpt) (tensor.Tensor, error), opts []tensor.FuncOpt, ts ...tensor.Tensor) (tensor.Tensor, error) {
	if err := ops.made(op, ts...); err != nil {
		return nil, err
	}
	x := ts[0]
	if x.Dims() == 0 {
		return nil, ops.m.Error(op, fmt.Errorf("a scalar has no axes: %w", device.ErrNotSupported))
	}
	o := operand.ParseOptions(opts)
	if o.Incr != nil {
		return nil, ops.m.Error(op, errAdded)
	}
	for _, t := range ts { // where StdEng's goroutines would panic
		if _, ok := t.(*tensor.Dense); !ok {
			return nil, ops.m.Error(op, fmt.Errorf("operand of type %T: %w", t, device.ErrNotSupported))
		}
	}
	fit(&o, x.Dtype(), x)
	if dst := o.Destination(x); dst != nil && (operand.IsNil(dst) || dst.Dtype() != x.Dtype() || !dst.Shape().Eq(x.Shape())) {
		return nil, ops.m.Error(op, fmt.Errorf("a result of another type or shape than %v of %v: %w", x.Shape(), x.Dtype(), device.ErrSizeMismatch))
	}
	if x.Shape().TotalSize() == 0 && operand.IsFloat(x.Dtype()) && x.Shape().Eq(ts[len(ts)-1].Shape()) {
		r, _, err := ops.none(x, &o, x.Dtype(), func(one tensor.Tensor) (tensor.Tensor, error) { return one, nil })
		return r, err
	}
	direct := ops.m.HostAccessible() && ops.serves(ts...) // StdEng reads all of them in the order of memory
	for _, t := range ts {
		direct = direct && operand.IsContiguous(t)
	}
	if direct && o.Fresh() {
		return ops.into(x.Dtype(), x.Shape(), func(out *tensor.Dense) error {
			_, err := f(ts, tensor.WithReuse(out), tensor.UseUnsafe())
			return err
		})
	}
	if dst := o.Reuse; o.Unsafe || dst != nil {
		if direct && dst != nil && operand.IsContiguous(dst) && dst.Shape().Eq(x.Shape()) && ops.serves(dst) && operand.Apart(dst, ts) {
			if err := ops.m.Ready(); err != nil {
				return nil, err
			}
			return f(ts, tensor.WithReuse(dst), tensor.UseUnsafe())
		}
		if dst == nil {
			dst = x
		}
		err := ops.runInto(op, dst, func(dst tensor.Tensor, h []tensor.Tensor) error {
			r, err := f(h)
			if err != nil {
				return err
			}
			return tensor.Copy(dst, r)
		}, ts...)
		return unless(err, dst)
	}
	return ops.run(op, func(h []tensor.Tensor, opts []tensor.FuncOpt) (tensor.Tensor, error) {
		return f(h, opts...)
	}, opts, ts...)
}
