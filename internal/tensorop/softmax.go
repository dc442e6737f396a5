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
func (ops *Ops) SoftMax(op string, f SoftMaxOp, x tensor.Tensor, axis int, opts []tensor.FuncOpt) (tensor.Tensor, error) {
	defer operand.KeepAlive(x)
	o := operand.ParseOptions(opts)
	if r, ok, err := ops.gpu.SoftMax(op, op == "LogSoftMax", axis, &o, x); ok {
		return r, err
	}
	return ops.soft(op, func(h []tensor.Tensor, opts ...tensor.FuncOpt) (tensor.Tensor, error) {
		return f(tensor.StdEng{}, h[0], axis, opts...)
	}, opts, x)
}

// SoftMaxBack computes SoftMaxB or LogSoftMaxB, as op names it, with the options
// of SoftMax.
func (ops *Ops) SoftMaxBack(op string, f SoftMaxBackOp, output, grad tensor.Tensor, axis int, opts []tensor.FuncOpt) (tensor.Tensor, error) {
	defer operand.KeepAlive(output, grad)
	o := operand.ParseOptions(opts)
	if r, ok, err := ops.gpu.SoftMax(op, op == "LogSoftMaxB", axis, &o, output, grad); ok {
		return r, err
	}
	return ops.soft(op, func(h []tensor.Tensor, opts ...tensor.FuncOpt) (tensor.Tensor, error) {
		return f(tensor.StdEng{}, h[0], h[1], axis, opts...)
	}, opts, output, grad)
}

// soft computes f, one of the SoftMax family. StdEng reuses a tensor only when
// it is told both WithReuse and UseUnsafe, and must not be given its input
// for that, which its goroutines read across rows.
func (ops *Ops) soft(op string, f func(h []tensor.Tensor, opts ...tensor.FuncOpt) (tensor.Tensor, error), opts []tensor.FuncOpt, ts ...tensor.Tensor) (tensor.Tensor, error) {
	x := ts[0]
	if x.Dims() == 0 {
		return nil, ops.m.Error(op, fmt.Errorf("a scalar has no axes: %w", device.ErrNotSupported))
	}
	o := operand.ParseOptions(opts)
	if o.Fresh() && operand.IsContiguous(x) && ops.m.HostAccessible() && ops.serves(ts...) {
		return ops.into(x.Dtype(), x.Shape(), func(out *tensor.Dense) error {
			_, err := f(ts, tensor.WithReuse(out), tensor.UseUnsafe())
			return err
		})
	}
	if dst := o.Reuse; o.Unsafe || dst != nil {
		if dst != nil && operand.IsContiguous(x) && operand.IsContiguous(dst) && dst.Shape().Eq(x.Shape()) && ops.m.HostAccessible() && ops.serves(append(ts, dst)...) && operand.Apart(dst, ts) {
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
		return dst, err
	}
	return ops.run(op, func(h []tensor.Tensor, opts []tensor.FuncOpt) (tensor.Tensor, error) {
		return f(h, opts...)
	}, opts, ts...)
}
