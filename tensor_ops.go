package cupool

import (
	"fmt"
	"reflect"
	"slices"

	"gorgonia.org/tensor"
)

// Everything that tensor looks for in an engine.
var _ interface {
	tensor.Engine
	tensor.NonStdEngine
	tensor.Adder
	tensor.Suber
	tensor.Muler
	tensor.Diver
	tensor.Power
	tensor.Moder
	tensor.FMAer
	tensor.MinBetweener
	tensor.MaxBetweener
	tensor.Lter
	tensor.Lteer
	tensor.Gter
	tensor.Gteer
	tensor.ElEqer
	tensor.Mapper
	tensor.Neger
	tensor.Inver
	tensor.Squarer
	tensor.Cuber
	tensor.Exper
	tensor.Tanher
	tensor.Loger
	tensor.Log2er
	tensor.Log10er
	tensor.Sqrter
	tensor.Cbrter
	tensor.InvSqrter
	tensor.Signer
	tensor.Abser
	tensor.Clamper
	tensor.SoftMaxer
	tensor.Reducer
	tensor.OptimizedReducer
	tensor.Sumer
	tensor.Miner
	tensor.Maxer
	tensor.Argmaxer
	tensor.Argminer
	tensor.Tracer
	tensor.MatMuler
	tensor.MatVecMuler
	tensor.InnerProder
	tensor.OuterProder
	tensor.Dotter
	tensor.SVDer
	tensor.Transposer
	tensor.Concater
	tensor.DenseStacker
	tensor.Repeater
	tensor.Diager
	tensor.ByIndiceser
} = (*Engine)(nil)

// StdEng's operations by their form.
type (
	unaryOp   func(e tensor.StdEng, a tensor.Tensor, opts ...tensor.FuncOpt) (tensor.Tensor, error)
	binaryOp  func(e tensor.StdEng, a, b tensor.Tensor, opts ...tensor.FuncOpt) (tensor.Tensor, error)
	scalarOp  func(e tensor.StdEng, t tensor.Tensor, s interface{}, leftTensor bool, opts ...tensor.FuncOpt) (tensor.Tensor, error)
	softMaxOp func(e tensor.StdEng, x tensor.Tensor, axis int, opts ...tensor.FuncOpt) (tensor.Tensor, error)
	softMaxB  func(e tensor.StdEng, output, grad tensor.Tensor, axis int, opts ...tensor.FuncOpt) (tensor.Tensor, error)
)

// serves reports whether StdEng may work on the tensors themselves: the CPU can
// touch their memory, which waits for no other engine. nil is no tensor.
func (e *Engine) serves(ts ...tensor.Tensor) bool {
	for _, t := range ts {
		if t != nil && (!t.IsNativelyAccessible() || e.ownerOf(t) != e || isFreed(t)) {
			return false
		}
	}
	return true
}

// plain reports whether t is laid out as a new tensor is, with more than one
// element: then StdEng does the same to a new tensor as it does to one that it
// is told to reuse.
func plain(t tensor.Tensor) bool {
	d, ok := t.(*tensor.Dense)
	return ok && d.DataOrder() == 0 && !d.RequiresIterator() && d.MemSize() > d.Dtype().Size()
}

// into calls f with a new, undefined tensor in the pool and returns it, or
// f's error.
func (e *Engine) into(dt tensor.Dtype, shape tensor.Shape, f func(out *tensor.Dense) error) (tensor.Tensor, error) {
	out, err := e.Empty(dt, shape...)
	if err != nil {
		return nil, err
	}
	if err = e.hostReady(); err == nil { // not before: its memory may be in use until then
		err = f(out)
	}
	if err != nil {
		_ = e.freeTensor(out) // it is live and whole
		return nil, err
	}
	return out, nil
}

// binary computes an operation whose result has the type of a.
func (e *Engine) binary(op string, f binaryOp, a, b tensor.Tensor, opts []tensor.FuncOpt) (tensor.Tensor, error) {
	return e.elementwise(op, f, a, b, opts, parseOpts(opts), a.Dtype(), isFloat(a.Dtype()) && exact(op))
}

// compare computes an operation whose result is bool, or has the type of a
// with tensor.AsSameType.
func (e *Engine) compare(op string, f binaryOp, a, b tensor.Tensor, opts []tensor.FuncOpt) (tensor.Tensor, error) {
	o := parseOpts(opts)
	return e.elementwise(op, f, a, b, opts, o, compareType(a, &o), true)
}

// between is binary for MinBetween and MaxBetween: StdEng panics with
// UseUnsafe, which means the same as reusing a.
func (e *Engine) between(op string, f binaryOp, a, b tensor.Tensor, opts []tensor.FuncOpt) (tensor.Tensor, error) {
	opts, o := unsafeToReuse(a, opts)
	return e.elementwise(op, f, a, b, opts, o, a.Dtype(), true)
}

func compareType(a tensor.Tensor, o *funcOpts) tensor.Dtype {
	if o.same {
		return a.Dtype()
	}
	return tensor.Bool
}

func unsafeToReuse(a tensor.Tensor, opts []tensor.FuncOpt) ([]tensor.FuncOpt, funcOpts) {
	o := parseOpts(opts)
	if o.unsafe && o.reuse == nil {
		return []tensor.FuncOpt{tensor.WithReuse(a)}, funcOpts{reuse: a}
	}
	return opts, o
}

// exact reports whether StdEng computes an arithmetic operation on floats in
// the same way wherever it puts the result. Of the others, and of integers, it
// does not: -1/0 is -Inf in a tensor to be reused and +Inf in a new one.
func exact(op string) bool {
	switch op {
	case "Add", "Sub", "Mul", "AddScalar", "SubScalar", "MulScalar":
		return true
	}
	return false
}

func isFloat(dt tensor.Dtype) bool {
	return dt.Kind() == reflect.Float32 || dt.Kind() == reflect.Float64
}

// elementwise computes f; dt is the type of a new result. reusable says that
// StdEng computes that as it computes one that it is told to reuse; else what
// it does in place to a copy of a is the same.
func (e *Engine) elementwise(op string, f binaryOp, a, b tensor.Tensor, opts []tensor.FuncOpt, o funcOpts, dt tensor.Dtype, reusable bool) (tensor.Tensor, error) {
	defer keepAlive(a, b)
	if r, ok, err := e.gpu.binary(op, a, b, &o, dt); ok {
		return r, err
	}
	switch {
	case !e.accessible || !e.serves(a, b, o.reuse, o.incr):
	case !o.fresh():
		if err := e.hostReady(); err != nil {
			return nil, err
		}
		return f(std, a, b, opts...)
	case plain(a) && plain(b):
		return e.into(dt, a.Shape(), func(out *tensor.Dense) (err error) {
			if reusable {
				_, err = f(std, a, b, with(opts, tensor.WithReuse(out))...)
			} else if err = e.Memcpy(out, a); err == nil {
				_, err = f(std, out, b, tensor.UseUnsafe())
			}
			return err
		})
	}
	return e.run(op, func(h []tensor.Tensor, opts []tensor.FuncOpt) (tensor.Tensor, error) {
		return f(std, h[0], h[1], opts...)
	}, opts, a, b)
}

// with returns opts and more in a slice of its own.
func with(opts []tensor.FuncOpt, more ...tensor.FuncOpt) []tensor.FuncOpt {
	return append(opts[:len(opts):len(opts)], more...)
}

func (e *Engine) binaryScalar(op string, f scalarOp, t tensor.Tensor, s interface{}, leftTensor bool, opts []tensor.FuncOpt) (tensor.Tensor, error) {
	reusable := leftTensor || isFloat(t.Dtype()) && exact(op)
	return e.elementwiseScalar(op, f, t, s, leftTensor, opts, parseOpts(opts), t.Dtype(), reusable)
}

func (e *Engine) compareScalar(op string, f scalarOp, t tensor.Tensor, s interface{}, leftTensor bool, opts []tensor.FuncOpt) (tensor.Tensor, error) {
	o := parseOpts(opts)
	return e.elementwiseScalar(op, f, t, s, leftTensor, opts, o, compareType(t, &o), true)
}

func (e *Engine) betweenScalar(op string, f scalarOp, t tensor.Tensor, s interface{}, leftTensor bool, opts []tensor.FuncOpt) (tensor.Tensor, error) {
	opts, o := unsafeToReuse(t, opts)
	return e.elementwiseScalar(op, f, t, s, leftTensor, opts, o, t.Dtype(), true)
}

// elementwiseScalar is elementwise with a scalar: a Go value, or a tensor of
// one element.
func (e *Engine) elementwiseScalar(op string, f scalarOp, t tensor.Tensor, s interface{}, leftTensor bool, opts []tensor.FuncOpt, o funcOpts, dt tensor.Dtype, reusable bool) (tensor.Tensor, error) {
	defer keepAlive(t)
	if r, ok, err := e.gpu.binaryScalar(op, t, s, leftTensor, &o, dt); ok {
		return r, err
	}
	st, _ := s.(tensor.Tensor)
	switch {
	case !e.accessible || !e.serves(t, st, o.reuse, o.incr):
	case !o.fresh():
		if err := e.hostReady(); err != nil {
			return nil, err
		}
		return f(std, t, s, leftTensor, opts...)
	case plain(t) && reusable:
		return e.into(dt, t.Shape(), func(out *tensor.Dense) error {
			_, err := f(std, t, s, leftTensor, with(opts, tensor.WithReuse(out))...)
			return err
		})
	}
	ts := []tensor.Tensor{t}
	if st != nil {
		ts = append(ts, st)
	}
	return e.run(op, func(h []tensor.Tensor, opts []tensor.FuncOpt) (tensor.Tensor, error) {
		if st != nil {
			s = h[1]
		}
		return f(std, h[0], s, leftTensor, opts...)
	}, opts, ts...)
}

// unary computes an operation on one tensor.
func (e *Engine) unary(op string, f unaryOp, a tensor.Tensor, opts []tensor.FuncOpt) (tensor.Tensor, error) {
	defer keepAlive(a)
	o := parseOpts(opts)
	if r, ok, err := e.gpu.function(op, a, &o); ok {
		return r, err
	}
	switch {
	case !e.accessible || !e.serves(a, o.reuse) || o.incr != nil: // StdEng clones a for incr
	case !o.fresh():
		if err := e.hostReady(); err != nil {
			return nil, err
		}
		return f(std, a, opts...)
	case plain(a):
		return e.into(a.Dtype(), a.Shape(), func(out *tensor.Dense) error {
			_, err := f(std, a, with(opts, tensor.WithReuse(out))...)
			return err
		})
	}
	return e.run(op, func(h []tensor.Tensor, opts []tensor.FuncOpt) (tensor.Tensor, error) {
		return f(std, h[0], opts...)
	}, opts, a)
}

// Clamp implements tensor.Clamper.
func (e *Engine) Clamp(a tensor.Tensor, min, max interface{}, opts ...tensor.FuncOpt) (tensor.Tensor, error) {
	defer keepAlive(a)
	o := parseOpts(opts)
	if r, ok, err := e.gpu.clamp(a, min, max, &o); ok {
		return r, err
	}
	return e.unary("Clamp", func(std tensor.StdEng, a tensor.Tensor, opts ...tensor.FuncOpt) (tensor.Tensor, error) {
		return std.Clamp(a, min, max, opts...)
	}, a, opts)
}

// Map implements tensor.Mapper: fn is a func of a's element type to itself.
func (e *Engine) Map(fn interface{}, a tensor.Tensor, opts ...tensor.FuncOpt) (tensor.Tensor, error) {
	defer keepAlive(a)
	o := parseOpts(opts)
	if o.fresh() && plain(a) && e.accessible && e.serves(a) {
		return e.into(a.Dtype(), a.Shape(), func(out *tensor.Dense) error {
			if err := e.Memcpy(out, a); err != nil {
				return err
			}
			_, err := std.Map(fn, out, tensor.UseUnsafe())
			return err
		})
	}
	return e.run("Map", func(h []tensor.Tensor, opts []tensor.FuncOpt) (tensor.Tensor, error) {
		return std.Map(fn, h[0], opts...)
	}, opts, a)
}

// FMA implements tensor.FMAer: it adds a × x to y.
func (e *Engine) FMA(a, x, y tensor.Tensor) (tensor.Tensor, error) {
	return e.Mul(a, x, tensor.WithIncr(y))
}

// FMAScalar implements tensor.FMAer: it adds a × x to y.
func (e *Engine) FMAScalar(a tensor.Tensor, x interface{}, y tensor.Tensor) (tensor.Tensor, error) {
	return e.MulScalar(a, x, true, tensor.WithIncr(y))
}

// SoftMax implements tensor.SoftMaxer. Unlike StdEng it heeds WithReuse and
// UseUnsafe, as do the other three.
func (e *Engine) SoftMax(x tensor.Tensor, axis int, opts ...tensor.FuncOpt) (tensor.Tensor, error) {
	return e.softMax("SoftMax", tensor.StdEng.SoftMax, x, axis, opts)
}

// LogSoftMax implements tensor.SoftMaxer.
func (e *Engine) LogSoftMax(x tensor.Tensor, axis int, opts ...tensor.FuncOpt) (tensor.Tensor, error) {
	return e.softMax("LogSoftMax", tensor.StdEng.LogSoftMax, x, axis, opts)
}

// SoftMaxB implements tensor.SoftMaxer.
func (e *Engine) SoftMaxB(output, grad tensor.Tensor, axis int, opts ...tensor.FuncOpt) (tensor.Tensor, error) {
	return e.softMaxBack("SoftMaxB", tensor.StdEng.SoftMaxB, output, grad, axis, opts)
}

// LogSoftMaxB implements tensor.SoftMaxer.
func (e *Engine) LogSoftMaxB(output, grad tensor.Tensor, axis int, opts ...tensor.FuncOpt) (tensor.Tensor, error) {
	return e.softMaxBack("LogSoftMaxB", tensor.StdEng.LogSoftMaxB, output, grad, axis, opts)
}

func (e *Engine) softMax(op string, f softMaxOp, x tensor.Tensor, axis int, opts []tensor.FuncOpt) (tensor.Tensor, error) {
	defer keepAlive(x)
	o := parseOpts(opts)
	if r, ok, err := e.gpu.softMax(op, op == "LogSoftMax", axis, &o, x); ok {
		return r, err
	}
	return e.soft(op, func(h []tensor.Tensor, opts ...tensor.FuncOpt) (tensor.Tensor, error) {
		return f(std, h[0], axis, opts...)
	}, opts, x)
}

func (e *Engine) softMaxBack(op string, f softMaxB, output, grad tensor.Tensor, axis int, opts []tensor.FuncOpt) (tensor.Tensor, error) {
	defer keepAlive(output, grad)
	o := parseOpts(opts)
	if r, ok, err := e.gpu.softMax(op, op == "LogSoftMaxB", axis, &o, output, grad); ok {
		return r, err
	}
	return e.soft(op, func(h []tensor.Tensor, opts ...tensor.FuncOpt) (tensor.Tensor, error) {
		return f(std, h[0], h[1], axis, opts...)
	}, opts, output, grad)
}

// soft computes f, one of the SoftMax family. StdEng reuses a tensor only when
// it is told both WithReuse and UseUnsafe, and must not be given its input
// for that, which its goroutines read across rows.
func (e *Engine) soft(op string, f func(h []tensor.Tensor, opts ...tensor.FuncOpt) (tensor.Tensor, error), opts []tensor.FuncOpt, ts ...tensor.Tensor) (tensor.Tensor, error) {
	x := ts[0]
	if x.Dims() == 0 {
		return nil, engineError(op, fmt.Errorf("a scalar has no axes: %w", ErrNotSupported))
	}
	o := parseOpts(opts)
	if o.fresh() && plain(x) && e.accessible && e.serves(ts...) {
		return e.into(x.Dtype(), x.Shape(), func(out *tensor.Dense) error {
			_, err := f(ts, tensor.WithReuse(out), tensor.UseUnsafe())
			return err
		})
	}
	if dst := o.reuse; o.unsafe || dst != nil {
		if dst != nil && plain(x) && plain(dst) && dst.Shape().Eq(x.Shape()) && e.accessible && e.serves(append(ts, dst)...) && apart(dst, ts) {
			if err := e.hostReady(); err != nil {
				return nil, err
			}
			return f(ts, tensor.WithReuse(dst), tensor.UseUnsafe())
		}
		if dst == nil {
			dst = x
		}
		err := e.runInto(op, dst, func(dst tensor.Tensor, h []tensor.Tensor) error {
			r, err := f(h)
			if err != nil {
				return err
			}
			return tensor.Copy(dst, r)
		}, ts...)
		return dst, err
	}
	return e.run(op, func(h []tensor.Tensor, opts []tensor.FuncOpt) (tensor.Tensor, error) {
		return f(h, opts...)
	}, opts, ts...)
}

// apart reports whether dst shares no memory with any of ts.
func apart(dst tensor.Tensor, ts []tensor.Tensor) bool {
	p, n := extent(dst)
	return !slices.ContainsFunc(ts, func(t tensor.Tensor) bool {
		q, m := extent(t)
		return p < q+Ptr(m) && q < p+Ptr(n)
	})
}
