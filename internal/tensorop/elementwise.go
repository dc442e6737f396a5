package tensorop

import (
	"fmt"
	"strings"

	"gorgonia.org/tensor"

	"github.com/cupool/cupool/device"
	"github.com/cupool/cupool/internal/tensorop/operand"
)

// The elementwise operations of tensor.StdEng, by their form.
type (
	UnaryOp  func(e tensor.StdEng, a tensor.Tensor, opts ...tensor.FuncOpt) (tensor.Tensor, error)
	BinaryOp func(e tensor.StdEng, a, b tensor.Tensor, opts ...tensor.FuncOpt) (tensor.Tensor, error)
	ScalarOp func(e tensor.StdEng, t tensor.Tensor, s interface{}, leftTensor bool, opts ...tensor.FuncOpt) (tensor.Tensor, error)
)

// Binary computes an operation whose result has the type of a.
func (ops *Ops) Binary(op string, f BinaryOp, a, b tensor.Tensor, opts []tensor.FuncOpt) (r tensor.Tensor, err error) {
	defer ops.caught(op, &err)
	if err := ops.made(op, a, b); err != nil {
		return nil, err
	}
	float := operand.IsFloat(a.Dtype())
	if op == "Div" && float {
		f = divide
	}
	return ops.elementwise(op, f, a, b, opts, operand.ParseOptions(opts), a.Dtype(), float && exact(op))
}

// Compare computes an operation whose result is bool, or has the type of a
// with tensor.AsSameType.
func (ops *Ops) Compare(op string, f BinaryOp, a, b tensor.Tensor, opts []tensor.FuncOpt) (r tensor.Tensor, err error) {
	defer ops.caught(op, &err)
	if err := ops.made(op, a, b); err != nil {
		return nil, err
	}
	o := comparison(opts)
	return ops.elementwise(op, f, a, b, opts, o, compareType(a, &o), true)
}

// Between is Binary for MinBetween and MaxBetween: StdEng panics with
// UseUnsafe, which means the same as reusing a.
func (ops *Ops) Between(op string, f BinaryOp, a, b tensor.Tensor, opts []tensor.FuncOpt) (r tensor.Tensor, err error) {
	defer ops.caught(op, &err)
	if err := ops.made(op, a, b); err != nil {
		return nil, err
	}
	opts, o := unsafeToReuse(a, opts)
	return ops.elementwise(op, f, a, b, opts, o, a.Dtype(), true)
}

// compareType returns the type of a comparison's result.
func compareType(a tensor.Tensor, o *operand.Options) tensor.Dtype {
	if o.Same || o.Unsafe {
		return a.Dtype()
	}
	return tensor.Bool
}

// comparison returns the options of a comparison: StdEng takes WithIncr for WithReuse.
func comparison(opts []tensor.FuncOpt) operand.Options {
	o := operand.ParseOptions(opts)
	if o.Incr != nil {
		o.Reuse, o.Incr = o.Incr, nil
	}
	return o
}

func unsafeToReuse(a tensor.Tensor, opts []tensor.FuncOpt) ([]tensor.FuncOpt, operand.Options) {
	o := operand.ParseOptions(opts)
	if o.Unsafe && o.Reuse == nil {
		return []tensor.FuncOpt{tensor.WithReuse(a)}, operand.Options{Reuse: a}
	}
	return opts, o
}

// exact reports whether an arithmetic operation on floats, StdEng's or a division of
// this package, is computed in the same way wherever the result goes. StdEng does not
// do so with others, and with integers: -1 to a power, say.
func exact(op string) bool {
	switch op {
	case "Add", "Sub", "Mul", "Div", "AddScalar", "SubScalar", "MulScalar", "DivScalar":
		return true
	}
	return false
}

// elementwise computes f; dt is the type of a new result. reusable says that
// StdEng computes that as it computes one that it is told to reuse; else what
// it does in place to a copy of a is the same.
func (ops *Ops) elementwise(op string, f BinaryOp, a, b tensor.Tensor, opts []tensor.FuncOpt, o operand.Options, dt tensor.Dtype, reusable bool) (tensor.Tensor, error) {
	defer operand.KeepAlive(a, b)
	fit(&o, dt, a, b)
	if r, ok, err := ops.gpu.Binary(op, a, b, &o, dt); ok {
		return r, err
	}
	if a.Shape().TotalSize() == 0 && a.Dtype() == b.Dtype() && a.Shape().Eq(b.Shape()) {
		if r, ok, err := ops.none(a, &o, dt, func(one tensor.Tensor) (tensor.Tensor, error) { return f(tensor.StdEng{}, one, one) }); ok {
			return r, err
		}
	}
	compute := func(h []tensor.Tensor, opts []tensor.FuncOpt) (tensor.Tensor, error) {
		return f(tensor.StdEng{}, h[0], h[1], opts...)
	}
	dst, near := destination(&o, dt, a, b), ops.m.HostAccessible() && ops.serves(a, b, o.Reuse, o.Incr)
	switch {
	case dst != nil && !(near && writes(op, &o, dst, a, b)):
		return ops.placed(op, compute, &o, dst, a, b)
	case !near:
	case !o.Fresh():
		if err := ops.m.Ready(); err != nil {
			return nil, err
		}
		return f(tensor.StdEng{}, a, b, opts...)
	case operand.IsContiguous(a) && operand.IsContiguous(b):
		return ops.into(dt, a.Shape(), func(out *tensor.Dense) (err error) {
			if reusable {
				_, err = f(tensor.StdEng{}, a, b, with(opts, tensor.WithReuse(out))...)
			} else if err = ops.m.Memcpy(out, a); err == nil {
				_, err = f(tensor.StdEng{}, out, b, tensor.UseUnsafe())
			}
			return err
		})
	}
	return ops.run(op, compute, opts, a, b)
}

// fit gives the tensor that options name for the result of an elementwise operation on ts
// their shape, where it has as many elements in another. StdEng does so too, and then takes
// its elements for ones in the order of the operands'.
func fit(o *operand.Options, dt tensor.Dtype, ts ...tensor.Tensor) {
	dst, ok := o.Destination(ts[0]).(*tensor.Dense)
	shape := ts[0].Shape()
	if !ok || operand.IsNil(dst) || dst.Dtype() != dt || dst.Shape().Eq(shape) || dst.MemSize() != uintptr(shape.TotalSize())*dt.Size() {
		return
	}
	for _, t := range ts {
		if t.Dtype() != ts[0].Dtype() || !t.Shape().Eq(shape) {
			return
		}
	}
	_ = dst.Reshape(shape.Clone()...) // of a view with gaps StdEng says why not
}

// destination returns the tensor that options name for the result of an elementwise
// operation on operands ts, which has the first one's shape, and nil for a new one.
// What StdEng refuses or fits first, and what it does with masks, is left to it: nil, too.
func destination(o *operand.Options, dt tensor.Dtype, ts ...tensor.Tensor) *tensor.Dense {
	dst, ok := o.Destination(ts[0]).(*tensor.Dense)
	if !ok || dst == nil || dst.Dtype() != dt || !dst.Shape().Eq(ts[0].Shape()) || dst.IsMasked() {
		return nil
	}
	for _, t := range ts {
		if d, ok := t.(*tensor.Dense); t != nil && (!ok || d == nil || d.IsMasked()) {
			return nil
		}
	}
	return dst
}

// writes reports whether StdEng writes to dst what a new tensor would have, or adds it.
// It does not with single elements, views and sums of MinBetween and MaxBetween, and
// overwrites what it reads later where dst lies in another operand than the first. A division of
// integers by zero, which fails, it takes for 0 there, or fails after it has changed dst.
func writes(op string, o *operand.Options, dst *tensor.Dense, ts ...tensor.Tensor) bool {
	if divides := strings.HasPrefix(op, "Div") || strings.HasPrefix(op, "Mod"); divides && !operand.IsFloat(dst.Dtype()) {
		return false
	}
	if !operand.IsContiguous(dst) || !operand.IsContiguous(ts[0]) || o.Incr != nil && strings.Contains(op, "Between") {
		return false
	}
	to, n := operand.Extent(dst)
	for i, t := range ts {
		p, m := operand.Extent(t)
		switch {
		case m > int64(t.Dtype().Size()) && !operand.IsContiguous(t):
			return false
		case (p != to || m != n || i > 0 && !exact(op)) && !operand.Apart(dst, ts[i:i+1]):
			return false
		}
	}
	return true
}

// placed computes f as a new tensor, and then puts that into dst or adds it.
func (ops *Ops) placed(op string, f hostFunc, o *operand.Options, dst *tensor.Dense, ts ...tensor.Tensor) (tensor.Tensor, error) {
	var opts []tensor.FuncOpt
	if o.Same || o.Unsafe {
		opts = append(opts, tensor.AsSameType())
	}
	err := ops.runInto(op, dst, func(dst tensor.Tensor, h []tensor.Tensor) error {
		r, err := f(h, opts)
		if err == nil && o.Incr != nil {
			r, err = tensor.StdEng{}.Add(dst, r, tensor.WithReuse(r)) // dst would be cloned into the pool
		}
		if err == nil {
			copyElements(dst.(*tensor.Dense), r.(*tensor.Dense))
		}
		return err
	}, ts...)
	return unless(err, dst)
}

// with returns opts and more in a slice of its own.
func with(opts []tensor.FuncOpt, more ...tensor.FuncOpt) []tensor.FuncOpt {
	return append(opts[:len(opts):len(opts)], more...)
}

// BinaryScalar is Binary with a scalar: a Go value, or a tensor of one element.
func (ops *Ops) BinaryScalar(op string, f ScalarOp, t tensor.Tensor, s interface{}, leftTensor bool, opts []tensor.FuncOpt) (r tensor.Tensor, err error) {
	defer ops.caught(op, &err)
	if err := ops.made(op, t); err != nil {
		return nil, err
	}
	float := operand.IsFloat(t.Dtype())
	reusable := leftTensor || float && exact(op)
	if op == "DivScalar" && float {
		f = divideScalar
	}
	return ops.elementwiseScalar(op, f, t, s, leftTensor, opts, operand.ParseOptions(opts), t.Dtype(), reusable)
}

// CompareScalar is Compare with a scalar.
func (ops *Ops) CompareScalar(op string, f ScalarOp, t tensor.Tensor, s interface{}, leftTensor bool, opts []tensor.FuncOpt) (r tensor.Tensor, err error) {
	defer ops.caught(op, &err)
	if err := ops.made(op, t); err != nil {
		return nil, err
	}
	o := comparison(opts)
	return ops.elementwiseScalar(op, f, t, s, leftTensor, opts, o, compareType(t, &o), true)
}

// BetweenScalar is Between with a scalar.
func (ops *Ops) BetweenScalar(op string, f ScalarOp, t tensor.Tensor, s interface{}, leftTensor bool, opts []tensor.FuncOpt) (r tensor.Tensor, err error) {
	defer ops.caught(op, &err)
	if err := ops.made(op, t); err != nil {
		return nil, err
	}
	opts, o := unsafeToReuse(t, opts)
	return ops.elementwiseScalar(op, f, t, s, leftTensor, opts, o, t.Dtype(), true)
}

// elementwiseScalar is elementwise with a scalar.
func (ops *Ops) elementwiseScalar(op string, f ScalarOp, t tensor.Tensor, s interface{}, leftTensor bool, opts []tensor.FuncOpt, o operand.Options, dt tensor.Dtype, reusable bool) (tensor.Tensor, error) {
	defer operand.KeepAlive(t)
	st, _ := s.(tensor.Tensor)
	if st != nil && !operand.IsNil(st) && st.Shape().TotalSize() != 1 { // StdEng may write to it
		return nil, ops.m.Error(op, fmt.Errorf("the scalar is a tensor of shape %v: %w", st.Shape(), device.ErrNotSupported))
	}
	fit(&o, dt, t)
	if r, ok, err := ops.gpu.BinaryScalar(op, t, s, leftTensor, &o, dt); ok {
		return r, err
	}
	if st == nil {
		if r, ok, err := ops.none(t, &o, dt, func(one tensor.Tensor) (tensor.Tensor, error) { return f(tensor.StdEng{}, one, s, leftTensor) }); ok {
			return r, err
		}
	}
	ts := []tensor.Tensor{t}
	if st != nil {
		ts = append(ts, st)
	}
	compute := func(h []tensor.Tensor, opts []tensor.FuncOpt) (tensor.Tensor, error) {
		s := s
		if st != nil {
			s = h[1]
		}
		return f(tensor.StdEng{}, h[0], s, leftTensor, opts...)
	}
	dst, near := destination(&o, dt, ts...), ops.m.HostAccessible() && ops.serves(t, st, o.Reuse, o.Incr)
	switch {
	case dst != nil && !(near && writes(op, &o, dst, ts...)):
		return ops.placed(op, compute, &o, dst, ts...)
	case !near:
	case !o.Fresh():
		if err := ops.m.Ready(); err != nil {
			return nil, err
		}
		return f(tensor.StdEng{}, t, s, leftTensor, opts...)
	case operand.IsContiguous(t) && reusable:
		return ops.into(dt, t.Shape(), func(out *tensor.Dense) error {
			_, err := f(tensor.StdEng{}, t, s, leftTensor, with(opts, tensor.WithReuse(out))...)
			return err
		})
	}
	return ops.run(op, compute, opts, ts...)
}

// Unary computes an operation on one tensor, whose result has its type.
func (ops *Ops) Unary(op string, f UnaryOp, a tensor.Tensor, opts []tensor.FuncOpt) (r tensor.Tensor, err error) {
	defer ops.caught(op, &err)
	if err := ops.made(op, a); err != nil {
		return nil, err
	}
	defer operand.KeepAlive(a)
	o := operand.ParseOptions(opts)
	fit(&o, a.Dtype(), a)
	if r, ok, err := ops.gpu.Function(op, a, &o); ok {
		return r, err
	}
	if r, ok, err := ops.none(a, &o, a.Dtype(), func(one tensor.Tensor) (tensor.Tensor, error) { return f(tensor.StdEng{}, one) }); ok {
		return r, err
	}
	compute := func(h []tensor.Tensor, opts []tensor.FuncOpt) (tensor.Tensor, error) {
		return f(tensor.StdEng{}, h[0], opts...)
	}
	dst, near := destination(&o, a.Dtype(), a), ops.m.HostAccessible() && ops.serves(a, o.Reuse) && o.Incr == nil // for which StdEng clones a
	switch {
	case dst != nil && !(near && writes(op, &o, dst, a)):
		return ops.placed(op, compute, &o, dst, a)
	case !near:
	case !o.Fresh():
		if err := ops.m.Ready(); err != nil {
			return nil, err
		}
		return f(tensor.StdEng{}, a, opts...)
	case operand.IsContiguous(a):
		return ops.into(a.Dtype(), a.Shape(), func(out *tensor.Dense) error {
			_, err := f(tensor.StdEng{}, a, with(opts, tensor.WithReuse(out))...)
			return err
		})
	}
	return ops.run(op, compute, opts, a)
}

// Clamp computes StdEng.Clamp.
func (ops *Ops) Clamp(a tensor.Tensor, min, max interface{}, opts []tensor.FuncOpt) (r tensor.Tensor, err error) {
	defer ops.caught("Clamp", &err)
	defer operand.KeepAlive(a)
	if err := ops.made("Clamp", a); err != nil {
		return nil, err
	}
	o := operand.ParseOptions(opts)
	if r, ok, err := ops.gpu.Clamp(a, min, max, &o); ok {
		return r, err
	}
	return ops.Unary("Clamp", func(std tensor.StdEng, a tensor.Tensor, opts ...tensor.FuncOpt) (tensor.Tensor, error) {
		return tensor.StdEng{}.Clamp(a, min, max, opts...)
	}, a, opts)
}

// Map computes StdEng.Map: fn is a func of a's element type to itself. StdEng has the elements
// of the tensor that it is told to reuse, or to add to, in the place of a's.
func (ops *Ops) Map(fn interface{}, a tensor.Tensor, opts []tensor.FuncOpt) (tensor.Tensor, error) {
	if err := ops.madeWith("Map", opts, a); err != nil {
		return nil, err
	}
	defer operand.KeepAlive(a)
	o := operand.ParseOptions(opts)
	fit(&o, a.Dtype(), a)
	compute := func(h []tensor.Tensor, opts []tensor.FuncOpt) (tensor.Tensor, error) {
		return tensor.StdEng{}.Map(fn, h[0], opts...)
	}
	if r, ok, err := ops.none(a, &o, a.Dtype(), func(one tensor.Tensor) (tensor.Tensor, error) { return one, nil }); ok {
		return r, err
	}
	if dst := destination(&o, a.Dtype(), a); dst != nil {
		return ops.placed("Map", compute, &o, dst, a)
	}
	if o.Fresh() && operand.IsContiguous(a) && ops.m.HostAccessible() && ops.serves(a) {
		return ops.into(a.Dtype(), a.Shape(), func(out *tensor.Dense) error {
			if err := ops.m.Memcpy(out, a); err != nil {
				return err
			}
			_, err := tensor.StdEng{}.Map(fn, out, tensor.UseUnsafe())
			return err
		})
	}
	return ops.run("Map", compute, opts, a)
}
