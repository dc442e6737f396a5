package tensorop

import (
	"bytes"
	"fmt"
	"slices"

	"gorgonia.org/tensor"

	"github.com/cupool/cupool/device"
	"github.com/cupool/cupool/internal/tensorop/operand"
)

// Copies between tensors of any engines.

// ToHost returns a copy of t in Go's heap with tensor.StdEng for its engine, in
// row-major order when t is a view or transposed, otherwise in t's order. It
// waits for the work on t.
func (ops *Ops) ToHost(t tensor.Tensor) (*tensor.Dense, error) {
	defer operand.KeepAlive(t)
	const op = "copy to host"
	if err := ops.made(op, t); err != nil {
		return nil, err
	}
	d, ok := t.(*tensor.Dense)
	if !ok {
		return nil, ops.m.Error(op, fmt.Errorf("%T: %w", t, device.ErrNotSupported))
	}
	if err := ops.m.Pending(); err != nil {
		return nil, err
	}
	h, err := ops.stage(d)
	if err == nil && (h.IsMaterializable() || !operand.InOrder(h)) {
		h = rowMajor(h)
	}
	return h, err
}

// Staged returns a host tensor with t's data, without the gaps of views, which
// Memory.Adopt may have. It may share t's data where the CPU can touch that.
func (ops *Ops) Staged(t tensor.Tensor) (*tensor.Dense, error) {
	if err := ops.m.Pending(); err != nil {
		return nil, err
	}
	d, ok := t.(*tensor.Dense)
	if !ok || d.IsMaterializable() || !operand.InOrder(d) || !d.IsNativelyAccessible() || ops.m.Check(d) != nil {
		return ops.ToHost(t)
	}
	if err := ops.m.Owner(d).Ready(); err != nil {
		return nil, err
	}
	h := operand.Relabel(d)
	h.SetMask(slices.Clone(d.Mask()))
	return h, nil
}

// Copy copies the elements of src to dst, which has the same shape and type.
func (ops *Ops) Copy(dst, src tensor.Tensor) error {
	defer operand.KeepAlive(dst, src)
	if err := ops.made("copy", dst, src); err != nil {
		return err
	}
	if !dst.Shape().Eq(src.Shape()) || dst.Dtype() != src.Dtype() {
		return ops.m.Error("copy", fmt.Errorf("%v of %v to %v of %v: %w", src.Shape(), src.Dtype(), dst.Shape(), dst.Dtype(), device.ErrSizeMismatch))
	}
	for _, t := range [...]tensor.Tensor{dst, src} {
		if err := ops.m.Check(t); err != nil {
			return ops.m.Error("copy", fmt.Errorf("tensor of shape %v: %w", t.Shape(), err))
		}
	}
	to, okTo := dst.(*tensor.Dense)
	from, okFrom := src.(*tensor.Dense)
	switch {
	case !okTo || !okFrom:
		return ops.m.Error("copy", fmt.Errorf("%T to %T: %w", src, dst, device.ErrNotSupported))
	case alike(to, from) && ops.m.Owner(dst) == ops.m && ops.m.Owner(src) == ops.m:
		return ops.m.Memcpy(dst, src)
	}
	if ok, err := ops.gpu.Copy(dst, src); ok {
		return err
	}
	return ops.moveElements("copy", to, from)
}

// alike reports whether two tensors of one shape have the same elements in the same
// places, and no gaps.
func alike(dst, src *tensor.Dense) bool {
	return operand.InOrder(dst) && operand.InOrder(src) && !dst.IsMasked() && !src.IsMasked() &&
		(dst.DataOrder().HasSameOrder(src.DataOrder()) || dst.Shape().IsVectorLike())
}

// moveElements copies the elements of src to dst on the host.
func (ops *Ops) moveElements(op string, dst, src *tensor.Dense) error {
	c := call{ops: ops, op: op, byStrides: true}
	return c.into(dst, func(dst tensor.Tensor, h []tensor.Tensor) error {
		separate(dst, h)
		copyElements(dst.(*tensor.Dense), h[0].(*tensor.Dense))
		return nil
	}, src)
}

// Fill sets all elements of d to val, whose bytes are the pattern, if d is a view
// or a GPU does it. Otherwise it returns false.
func (ops *Ops) Fill(d *tensor.Dense, val interface{}, pattern []byte) (bool, error) {
	if ok, err := ops.gpu.Fill(d, pattern); ok {
		return true, err
	}
	if !d.IsMaterializable() { // no gaps
		return false, nil
	}
	return true, ops.runInto("memset", d, func(d tensor.Tensor, _ []tensor.Tensor) error { return d.Memset(val) })
}

// stage returns a tensor of StdEng with a copy of d's memory in Go's heap,
// gaps of views included.
func (ops *Ops) stage(d *tensor.Dense) (*tensor.Dense, error) {
	if err := ops.m.Check(d); err != nil {
		return nil, ops.m.Error("read", fmt.Errorf("tensor of shape %v: %w", d.Shape(), err))
	}
	size := int(d.Dtype().Size())
	flat := tensor.NewDense(d.Dtype(), tensor.Shape{int(d.MemSize()) / size})
	if d.MemSize() > 0 {
		p, n := operand.Extent(flat)
		if err := ops.m.Owner(d).Read(operand.Bytes(p, n), device.Ptr(d.Uintptr())); err != nil {
			return nil, err
		}
		if !d.IsNativelyAccessible() {
			ops.counts.bytes.Add(n)
		}
	}
	return operand.LayOut(flat, d), nil
}

// fillChunk is the most bytes of a pattern that are put together at once.
const fillChunk = 1 << 20

// FillBytes repeats pattern over [p, p+n); n is a multiple of its length. A GPU
// does it where the memory is the device's and it has a kernel for the pattern.
func (ops *Ops) FillBytes(p device.Ptr, n int64, pattern []byte, onDevice bool) error {
	if onDevice {
		if ok, err := ops.gpu.FillRange(p, n, pattern); ok {
			return err
		}
	}
	chunk := bytes.Repeat(pattern, int(max(1, min(n, fillChunk)/int64(len(pattern)))))
	for n > 0 {
		m := min(n, int64(len(chunk)))
		if err := ops.m.Write(p, chunk[:m]); err != nil {
			return err
		}
		p, n = p+device.Ptr(m), n-m
	}
	return nil
}
