// Package tensorop computes the operations of tensors whose memory an engine
// manages: on the CPU with tensor.StdEng, and on a GPU with package gpu. It
// takes results, and memory for what comes between, from the engine's Memory.
//
// The files: ops.go what operations need of an engine; call.go operations on
// host twins; elementwise.go, shape.go and linalg.go the operations by their
// form; copies.go between the host and the engine.
package tensorop

import (
	"fmt"
	"slices"

	"gorgonia.org/tensor"

	"github.com/cupool/cupool/device"
	"github.com/cupool/cupool/internal/tensorop/gpu"
	"github.com/cupool/cupool/internal/tensorop/operand"
)

// Memory is the engine whose tensors are computed with.
type Memory interface {
	gpu.Memory

	// Made fails where there is no engine.
	Made(op string) error
	// HostAccessible reports whether the CPU may touch the memory.
	HostAccessible() bool
	// Ready waits until the CPU may touch what the stream was given to do. It
	// waits for nothing where the CPU never may.
	Ready() error
	// Pending returns the error of an earlier operation that could not return
	// it. Lose keeps such an error.
	Pending() error
	Lose(op string, err error)
	// Check fails for a tensor of an engine whose memory was freed, also where t
	// is a view of what was freed, and for elements that hold Go pointers. Memory
	// that was handed out again since is told from t's where the engine knows
	// which block t had. Tensors of other kinds of engines pass.
	Check(t tensor.Tensor) error
	// Owner returns the engine that t is of, or this one where t has another
	// kind of engine.
	Owner(t tensor.Tensor) Memory
	// Adopt moves the data of d, a host tensor that nobody else has, to the
	// engine's memory and makes d the engine's. Elements that hold Go pointers
	// stay where they are.
	Adopt(d *tensor.Dense) (*tensor.Dense, error)
	// Write copies src to memory, in stream order.
	Write(p device.Ptr, src []byte) error
	// IsOwn reports whether an error is the engine's.
	IsOwn(err error) bool
	// Memcpy copies between tensors of this engine, as they lie in memory.
	Memcpy(dst, src tensor.Memory) error
}

// Ops are the operations of one engine. Its methods have the options, errors and
// numbers of those of tensor.StdEng that they are called with; results are in
// the engine's memory. They fail with what Memory.Error makes of an error where
// that does not come from StdEng.
type Ops struct {
	m      Memory
	gpu    *gpu.Ops // nil: the device does not compute
	counts counts
}

// New returns the operations of m. g is nil where its device does not compute.
func New(m Memory, g *gpu.Ops) *Ops { return &Ops{m: m, gpu: g} }

// Of returns the operations of a *cupool.Engine, for the packages of this module that
// compute with its memory, such as nn. Package cupool sets it.
var Of func(engine any) *Ops

// GPU returns the operations of the engine's GPU. They are nil where the device
// does not compute, which they allow for.
func (ops *Ops) GPU() *gpu.Ops { return ops.gpu }

// made fails where there is no engine, and for a tensor that is none.
func (ops *Ops) made(op string, ts ...tensor.Tensor) error {
	if err := ops.m.Made(op); err != nil {
		return err
	}
	for _, t := range ts {
		if operand.IsNil(t) {
			return ops.m.Error(op, fmt.Errorf("no tensor: %w", device.ErrNotSupported))
		}
	}
	return nil
}

// madeWith is made for an operation that calls functions of the program: what these panic with
// is not caught, so that an option that is nil is refused here.
func (ops *Ops) madeWith(op string, opts []tensor.FuncOpt, ts ...tensor.Tensor) error {
	if err := ops.made(op, ts...); err != nil {
		return err
	}
	if slices.ContainsFunc(opts, func(o tensor.FuncOpt) bool { return o == nil }) {
		return ops.m.Error(op, fmt.Errorf("an option is nil: %w", device.ErrNotSupported))
	}
	return nil
}

// serves reports whether StdEng may work on the tensors themselves: it reads them
// as they are laid out, and reaches. nil is no tensor.
func (ops *Ops) serves(ts ...tensor.Tensor) bool {
	for _, t := range ts {
		if t == nil {
			continue
		}
		if d, ok := t.(*tensor.Dense); ok && operand.IsMisread(d) || !ops.reaches(t) {
			return false
		}
	}
	return true
}

// reaches reports whether the CPU can touch a tensor's memory, which waits for no
// other engine and was not freed.
func (ops *Ops) reaches(t tensor.Tensor) bool {
	return t.IsNativelyAccessible() && ops.m.Owner(t) == ops.m && ops.m.Check(t) == nil
}

// into calls f with a new, undefined tensor in the pool and returns it, or
// f's error.
func (ops *Ops) into(dt tensor.Dtype, shape tensor.Shape, f func(out *tensor.Dense) error) (tensor.Tensor, error) {
	out, err := ops.m.Empty(dt, shape...)
	if err != nil {
		return nil, err
	}
	done := false
	defer func() {
		if !done {
			_ = ops.m.FreeTensor(out) // it is live and whole
		}
	}()
	if err = ops.m.Ready(); err == nil { // not before: its memory may be in use until then
		err = f(out) // which may panic
	}
	if err != nil {
		return nil, err
	}
	done = true
	return out, nil
}

// caught, deferred, makes an error of what StdEng panics with where it is given what
// it does not expect, such as a wrong axis or other types, and where it gets an error of
// the engine's that it cannot return. Faults go on (see cupool.Try).
func (ops *Ops) caught(op string, err *error) {
	p := recover()
	if p == nil {
		return
	}
	if _, fault := p.(interface{ Addr() uintptr }); fault {
		panic(p)
	}
	if own, ok := p.(error); ok && ops.m.IsOwn(own) {
		*err = own
		return
	}
	*err = ops.m.Error(op, fmt.Errorf("tensor panicked, as it does for wrong arguments: %v: %w", p, device.ErrNotSupported))
}

// none returns the result of an elementwise operation on a tensor without elements,
// for which StdEng panics, and false for any other tensor and where options name a
// tensor that does not fit. dt is the type of a new result. It fails as f does, which
// computes the operation for a tensor of one element in t's place.
func (ops *Ops) none(t tensor.Tensor, o *operand.Options, dt tensor.Dtype, f func(one tensor.Tensor) (tensor.Tensor, error)) (tensor.Tensor, bool, error) {
	if t.Shape().TotalSize() != 0 {
		return nil, false, nil
	}
	dst := o.Destination(t)
	if dst != nil && (operand.IsNil(dst) || dst.Dtype() != dt || !dst.Shape().Eq(t.Shape())) {
		return nil, false, nil
	}
	if _, err := f(tensor.Ones(t.Dtype(), 1)); err != nil {
		return nil, true, err
	}
	if dst != nil {
		return dst, true, nil
	}
	d, err := ops.m.Empty(dt, t.Shape()...)
	r, err := unless(err, d)
	return r, true, err
}

// unless returns the result of an operation, and none beside an error, as StdEng returns none.
func unless(err error, r tensor.Tensor) (tensor.Tensor, error) {
	if err != nil {
		return nil, err
	}
	return r, nil
}
