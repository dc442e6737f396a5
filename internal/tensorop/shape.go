package tensorop

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"runtime"
	"slices"

	"gorgonia.org/tensor"

	"github.com/cupool/cupool/device"
	"github.com/cupool/cupool/internal/tensorop/operand"
)

// The operations that move elements.

// Transpose moves the elements of a, which is marked as transposed already, to
// where the strides say.
func (ops *Ops) Transpose(a tensor.Tensor, expStrides []int) error {
	defer operand.KeepAlive(a)
	if err := ops.made("Transpose", a); err != nil {
		return err
	}
	if ok, err := ops.gpu.Transpose(a, expStrides); ok {
		ops.m.Lose("Transpose", err)
		return err
	}
	c := call{ops: ops, op: "Transpose", byStrides: true}
	err := c.into(a, func(a tensor.Tensor, _ []tensor.Tensor) (err error) {
		defer ops.caught("Transpose", &err)
		d, ok := a.(*tensor.Dense)
		if !ok {
			return ops.m.Error("Transpose", fmt.Errorf("%T: %w", a, device.ErrNotSupported))
		}
		to := operand.Relabel(d)
		*to.Info() = tensor.MakeAP(d.Shape().Clone(), slices.Clone(expStrides), d.DataOrder(), 0)
		copyElements(to, rowMajor(d)) // StdEng moves those of column-major tensors to wrong places
		return nil
	})
	ops.m.Lose("Transpose", err) // Reshape and tensor.Transpose drop it
	return err
}

// Concat computes StdEng.Concat.
func (ops *Ops) Concat(t tensor.Tensor, axis int, others []tensor.Tensor) (r tensor.Tensor, err error) {
	defer ops.caught("Concat", &err)
	defer operand.KeepAlive(t)
	defer operand.KeepAlive(others...)
	if r, ok, err := ops.gpu.Concat(t, axis, others); ok {
		return r, err
	}
	return ops.run("Concat", func(h []tensor.Tensor, _ []tensor.FuncOpt) (tensor.Tensor, error) {
		return tensor.StdEng{}.Concat(h[0], axis, h[1:]...)
	}, nil, append([]tensor.Tensor{t}, others...)...)
}

// StackDense computes StdEng.StackDense.
func (ops *Ops) StackDense(t tensor.DenseTensor, axis int, others []tensor.DenseTensor) (r tensor.DenseTensor, err error) {
	defer ops.caught("Stack", &err)
	defer operand.KeepAlive(t)
	defer operand.KeepAlive(others...)
	if r, ok, err := ops.gpu.Stack(t, axis, others); ok {
		d, _ := r.(tensor.DenseTensor)
		return d, err
	}
	ts := []tensor.Tensor{t}
	for _, o := range others {
		ts = append(ts, o)
	}
	if err := ops.made("Stack", ts...); err != nil {
		return nil, err
	}
	for _, o := range others { // StdEng would take a part, or zeros for what is missing
		if !slices.Equal(o.Shape(), t.Shape()) {
			return nil, ops.m.Error("Stack", fmt.Errorf("%v on %v: %w", o.Shape(), t.Shape(), device.ErrSizeMismatch))
		}
	}
	stacked, err := ops.run("Stack", func(h []tensor.Tensor, _ []tensor.FuncOpt) (tensor.Tensor, error) {
		ds := make([]tensor.DenseTensor, len(h))
		for i := range h {
			ds[i] = h[i].(tensor.DenseTensor) // as its original
		}
		return tensor.StdEng{}.StackDense(ds[0], axis, ds[1:]...)
	}, nil, ts...)
	if err != nil {
		return nil, err
	}
	return stacked.(tensor.DenseTensor), nil
}

// Repeat computes StdEng.Repeat.
func (ops *Ops) Repeat(t tensor.Tensor, axis int, repeats []int) (r tensor.Tensor, err error) {
	defer ops.caught("Repeat", &err)
	if err := ops.made("Repeat", t); err != nil {
		return nil, err
	}
	defer operand.KeepAlive(t)
	if d, ok := t.(*tensor.Dense); !ok || d.IsMasked() || !operand.IsPlain(d.Dtype().Type) {
		return ops.run("Repeat", func(h []tensor.Tensor, _ []tensor.FuncOpt) (tensor.Tensor, error) {
			return tensor.StdEng{}.Repeat(h[0], axis, repeats...)
		}, nil, t)
	}
	shape, times, _, err := t.Shape().Repeat(axis, repeats...)
	if err != nil {
		return nil, err
	}
	sum := 0
	for _, n := range times {
		why := device.ErrOutOfMemory
		if n < 0 {
			why = device.ErrNotSupported
		}
		if n < 0 || n > math.MaxInt-sum {
			return nil, ops.m.Error("Repeat", fmt.Errorf("tensor of shape %v, %v times: %w", t.Shape(), repeats, why))
		}
		sum += n
	}
	return ops.into(t.Dtype(), shape, func(out *tensor.Dense) error { // before anything that is as large
		_, err := ops.RepeatReuse(t, out, axis, repeats)
		return err
	})
}

// RepeatReuse computes StdEng.RepeatReuse.
func (ops *Ops) RepeatReuse(t, reuse tensor.Tensor, axis int, repeats []int) (r tensor.Tensor, err error) {
	defer ops.caught("RepeatReuse", &err)
	if err := ops.made("Repeat", t, reuse); err != nil {
		return nil, err
	}
	defer operand.KeepAlive(t, reuse)
	if t.Dtype() != reuse.Dtype() {
		return nil, ops.m.Error("Repeat", fmt.Errorf("elements of type %v to %v: %w", t.Dtype(), reuse.Dtype(), device.ErrNotSupported))
	}
	if r, ok, err := ops.gpu.Repeat(t, reuse, axis, repeats); ok {
		return r, err
	}
	if ops.m.HostAccessible() && operand.IsContiguous(t) && ops.serves(t, reuse) && operand.IsContiguous(reuse) && operand.Apart(reuse, []tensor.Tensor{t}) {
		if shape, times, ok := repeatedShape(t, axis, repeats); ok && reuse.Shape().Eq(shape) {
			if err := ops.m.Ready(); err != nil {
				return nil, err
			}
			copyRepeated(reuse, t, axis, times)
			return reuse, nil
		}
	}
	err = ops.runInto("Repeat", reuse, func(reuse tensor.Tensor, h []tensor.Tensor) error {
		separate(reuse, h)
		if shape, times, ok := repeatedShape(h[0], axis, repeats); ok && reuse.Shape().Eq(shape) {
			copyRepeated(reuse, h[0], axis, times)
			return nil
		}
		_, err := tensor.StdEng{}.RepeatReuse(h[0], reuse, axis, repeats...)
		return err
	}, t)
	if err != nil {
		return nil, err
	}
	return reuse, nil
}

// repeatedShape returns the shape of a repeated tensor and how often each slice along
// the axis is in it, if copyRepeated serves. StdEng makes Go objects for each of them,
// and forgets all but one element of a row that is repeated once.
func repeatedShape(t tensor.Tensor, axis int, repeats []int) (shape tensor.Shape, times []int, ok bool) {
	d, dense := t.(*tensor.Dense)
	if !dense || axis < 0 || axis >= t.Dims() || d.IsMasked() || !operand.IsPlain(d.Dtype().Type) {
		return nil, nil, false
	}
	shape, times, _, err := t.Shape().Repeat(axis, repeats...)
	return shape, times, err == nil
}

// copyRepeated copies each slice of t along an axis so many times to dst.
func copyRepeated(dst, t tensor.Tensor, axis int, times []int) {
	inner := int(t.Dtype().Size())
	for _, n := range t.Shape()[axis+1:] {
		inner *= n
	}
	p, n := operand.Extent(t)
	from := operand.Bytes(p, n)
	p, n = operand.Extent(dst)
	to := operand.Bytes(p, n)
	for len(from) > 0 {
		for _, n := range times {
			for range n {
				copy(to[:inner], from)
				to = to[inner:]
			}
			from = from[inner:]
		}
	}
	runtime.KeepAlive(t)
	runtime.KeepAlive(dst)
}

// Diag computes StdEng.Diag.
func (ops *Ops) Diag(t tensor.Tensor) (r tensor.Tensor, err error) {
	defer ops.caught("Diag", &err)
	return ops.run("Diag", func(h []tensor.Tensor, _ []tensor.FuncOpt) (tensor.Tensor, error) {
		return tensor.StdEng{}.Diag(h[0])
	}, nil, t)
}

// SelectByIndices computes StdEng.SelectByIndices, and heeds WithReuse, which
// StdEng does not.
func (ops *Ops) SelectByIndices(a, indices tensor.Tensor, axis int, opts []tensor.FuncOpt) (r tensor.Tensor, err error) {
	defer ops.caught("SelectByIndices", &err)
	if err := ops.made("SelectByIndices", a, indices); err != nil {
		return nil, err
	}
	defer operand.KeepAlive(a, indices)
	opts, o := unsafeToReuse(a, opts)
	if o.Incr != nil {
		return nil, ops.m.Error("SelectByIndices", errAdded)
	}
	if r, ok, err := ops.gpu.SelectByIndices(a, indices, axis, &o); ok {
		return r, err
	}
	if ops.m.HostAccessible() && operand.IsContiguous(a) && ops.serves(a, indices) {
		if err := ops.m.Ready(); err != nil {
			return nil, err
		}
		if shape, ok := selectedShape(a, indices, axis); ok {
			switch dst := o.Reuse; {
			case dst == nil:
				return ops.into(a.Dtype(), shape, func(out *tensor.Dense) error {
					copySelected(out, a, indices, axis)
					return nil
				})
			case operand.IsContiguous(dst) && ops.serves(dst) && dst.Dtype() == a.Dtype() && dst.Shape().Eq(shape) && operand.Apart(dst, []tensor.Tensor{a, indices}):
				copySelected(dst, a, indices, axis)
				return dst, nil
			}
		}
	}
	selected := func(h []tensor.Tensor, opts ...tensor.FuncOpt) (tensor.Tensor, error) {
		if err := ops.indexed("SelectByIndices", h[0], h[1], axis); err != nil {
			return nil, err
		}
		shape, ok := selectedShape(h[0], h[1], axis)
		if !ok {
			return tensor.StdEng{}.SelectByIndices(h[0], h[1], axis, opts...)
		}
		r := tensor.NewDense(a.Dtype(), shape)
		copySelected(r, h[0], h[1], axis)
		return r, nil
	}
	if o.Reuse != nil {
		err := ops.runInto("SelectByIndices", o.Reuse, func(dst tensor.Tensor, h []tensor.Tensor) error {
			r, err := selected(h)
			if err == nil {
				err = dst.Reshape(r.Shape().Clone()...)
			}
			if err != nil {
				return err
			}
			return tensor.Copy(dst, r)
		}, a, indices)
		return unless(err, o.Reuse)
	}
	return ops.run("SelectByIndices", func(h []tensor.Tensor, opts []tensor.FuncOpt) (tensor.Tensor, error) {
		return selected(h, opts...)
	}, opts, a, indices)
}

// indexed fails for indices that are out of range along an axis. StdEng takes the first
// slice for those that are too large.
func (ops *Ops) indexed(op string, a, indices tensor.Tensor, axis int) error {
	at, ok := indices.(*tensor.Dense)
	if !ok || axis < 0 || axis >= a.Dims() { // StdEng says what is wrong
		return nil
	}
	for _, i := range operand.Slice[int](at) {
		if i < 0 || i >= a.Shape()[axis] {
			return ops.m.Error(op, fmt.Errorf("index %d is out of range along axis %d of shape %v: %w", i, axis, a.Shape(), device.ErrNotSupported))
		}
	}
	return nil
}

// selectedShape returns the shape of what indices select along an axis, if copySelected
// serves: StdEng selects other elements along any axis but the first, and one element
// of a tensor of one, whatever the indices are.
func selectedShape(a, indices tensor.Tensor, axis int) (tensor.Shape, bool) {
	d, okA := a.(*tensor.Dense)
	at, ok := indices.(*tensor.Dense)
	if !ok || !okA || axis < 0 || axis >= d.Dims() || d.IsMasked() || !operand.IsPlain(d.Dtype().Type) ||
		at.Dtype() != tensor.Int || !at.Shape().IsVectorLike() || at.RequiresIterator() || at.MemSize() == 0 {
		return nil, false
	}
	for _, i := range operand.Slice[int](at) {
		if i < 0 || i >= d.Shape()[axis] {
			return nil, false
		}
	}
	shape := d.Shape().Clone()
	shape[axis] = at.Shape().TotalSize()
	return shape, true
}

// copySelected copies the slices of a along an axis that the indices name to dst.
func copySelected(dst, a, indices tensor.Tensor, axis int) {
	p, n := operand.Extent(a)
	from := operand.Bytes(p, n)
	p, n = operand.Extent(dst)
	to := operand.Bytes(p, n)
	inner := a.Shape()[axis+1:].TotalSize() * int(a.Dtype().Size())
	for len(from) > 0 {
		for _, i := range operand.Slice[int](indices.(*tensor.Dense)) {
			copy(to[:inner], from[i*inner:])
			to = to[inner:]
		}
		from = from[a.Shape()[axis]*inner:]
	}
	operand.KeepAlive(dst, a, indices)
}

// SelectByIndicesB computes StdEng.SelectByIndicesB.
func (ops *Ops) SelectByIndicesB(input, outGrad, indices tensor.Tensor, axis int, opts []tensor.FuncOpt) (r tensor.Tensor, err error) {
	defer ops.caught("SelectByIndicesB", &err)
	defer operand.KeepAlive(input, outGrad, indices)
	o := operand.ParseOptions(opts)
	if r, ok, err := ops.gpu.SelectByIndicesB(input, outGrad, indices, axis, &o); ok {
		return r, err
	}
	return ops.run("SelectByIndicesB", func(h []tensor.Tensor, opts []tensor.FuncOpt) (tensor.Tensor, error) {
		if err := ops.indexed("SelectByIndicesB", h[0], h[2], axis); err != nil {
			return nil, err
		}
		o := operand.ParseOptions(opts)
		if o.Reuse == nil && o.Incr == nil {
			o.Reuse = tensor.NewDense(h[0].Dtype(), h[0].Shape().Clone())
		}
		r := o.Destination(nil)
		shape, ok := selectedShape(h[0], h[2], axis)
		switch {
		case !isNumber(h[0].Dtype()): // StdEng would add nothing
			return nil, ops.m.Error("SelectByIndicesB", fmt.Errorf("elements of type %v cannot be added: %w", h[0].Dtype(), device.ErrNotSupported))
		case !ok || r.Dtype() != h[0].Dtype():
			return tensor.StdEng{}.SelectByIndicesB(h[0], h[1], h[2], axis, opts...)
		case h[1].Dtype() != r.Dtype() || !h[1].Shape().Eq(shape):
			return nil, ops.m.Error("SelectByIndicesB", fmt.Errorf("a gradient of %v of %v for slices of %v of %v: %w", h[1].Shape(), h[1].Dtype(), shape, r.Dtype(), device.ErrSizeMismatch))
		}
		if err := r.Reshape(h[0].Shape().Clone()...); err != nil {
			return nil, err
		}
		separate(r, h)
		addSelected(r.(*tensor.Dense), h[1].(*tensor.Dense), h[2].(*tensor.Dense), axis)
		return r, nil
	}, opts, input, outGrad, indices)
}

// isNumber reports whether elements can be added.
func isNumber(dt tensor.Dtype) bool {
	return dt.Kind() >= reflect.Int && dt.Kind() <= reflect.Complex128 && dt.Kind() != reflect.Uintptr
}

// addSelected adds the slices of from, one after the other, to those of r along an axis
// that the indices name. Integers are added alike with a sign and without.
func addSelected(r, from, indices *tensor.Dense, axis int) {
	switch kind, size := r.Dtype().Kind(), r.Dtype().Size(); {
	case kind == reflect.Float64:
		addSlices[float64](r, from, indices, axis)
	case kind == reflect.Float32:
		addSlices[float32](r, from, indices, axis)
	case kind == reflect.Complex128:
		addSlices[complex128](r, from, indices, axis)
	case kind == reflect.Complex64:
		addSlices[complex64](r, from, indices, axis)
	case size == 1:
		addSlices[uint8](r, from, indices, axis)
	case size == 2:
		addSlices[uint16](r, from, indices, axis)
	case size == 4:
		addSlices[uint32](r, from, indices, axis)
	default:
		addSlices[uint64](r, from, indices, axis)
	}
}

// addSlices is addSelected for elements that are added as T.
func addSlices[T uint8 | uint16 | uint32 | uint64 | float32 | float64 | complex64 | complex128](r, g, indices *tensor.Dense, axis int) {
	to, from := operand.Elements[T](r), operand.Elements[T](g)
	inner := r.Shape()[axis+1:].TotalSize()
	for len(to) > 0 {
		for _, i := range operand.Slice[int](indices) {
			for k, v := range from[:inner] {
				to[i*inner+k] += v
			}
			from = from[inner:]
		}
		to = to[r.Shape()[axis]*inner:]
	}
	operand.KeepAlive(r, g, indices)
}

// Materialize returns a copy of a view or transposed tensor in the pool, in
// row-major order, and any other tensor as it is.
func (ops *Ops) Materialize(t tensor.Tensor) (tensor.Tensor, error) {
	if err := ops.made("Materialize", t); err != nil {
		return nil, err
	}
	defer operand.KeepAlive(t)
	if v, ok := t.(tensor.View); !ok || !v.IsMaterializable() {
		return t, nil
	}
	if r, ok, err := ops.gpu.Materialize(t); ok {
		return r, err
	}
	return ops.run("Materialize", func(h []tensor.Tensor, _ []tensor.FuncOpt) (tensor.Tensor, error) {
		return rowMajor(h[0].(*tensor.Dense)), nil // of a view
	}, nil, t)
}

// Compute calls f with tensors of StdEng that have the data of ts, or copies of
// it where the CPU cannot touch the memory, and moves f's result to the pool.
// f must not change the tensors or keep them.
func (ops *Ops) Compute(f func(ts []*tensor.Dense) (*tensor.Dense, error), ts []*tensor.Dense) (*tensor.Dense, error) {
	if f == nil {
		return nil, ops.m.Error("Compute", fmt.Errorf("the function is nil: %w", device.ErrInvalidHandle))
	}
	return ops.compute("Compute", f, ts...)
}

// compute is Compute for an operation of another name.
func (ops *Ops) compute(op string, f func(ts []*tensor.Dense) (*tensor.Dense, error), ts ...*tensor.Dense) (*tensor.Dense, error) {
	defer operand.KeepAlive(ts...) // f's result may lie in them
	in := make([]tensor.Tensor, len(ts))
	for i, t := range ts {
		in[i] = t
	}
	r, err := ops.run(op, func(h []tensor.Tensor, _ []tensor.FuncOpt) (tensor.Tensor, error) {
		ds := make([]*tensor.Dense, len(h))
		for i := range h {
			ds[i] = h[i].(*tensor.Dense)
		}
		r, err := f(ds)
		if r == nil && err == nil {
			err = errors.New("cupool: Compute: no result")
		}
		return r, err
	}, nil, in...)
	if err != nil {
		return nil, err
	}
	return r.(*tensor.Dense), nil
}
