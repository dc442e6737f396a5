package gorgoniavm

import (
	"errors"
	"fmt"
	"unsafe"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/nn"
)

// param is a weight with its gradient and what a Solver remembers of it. On the
// host they are where numbers of the type lie, on a device tensors.
type param struct {
	dt   tensor.Dtype
	size int // elements

	w, g       unsafe.Pointer
	remembered [2]unsafe.Pointer // nil: the method does not need it

	device  nn.Param
	scratch tensor.Tensor

	blocks []cupool.Block // of what is remembered
	states int            // how many tensors that is
}

func (p *param) onDevice() bool { return p.device.Value != nil }

// same reports whether another weight on a device is in the same place.
func (p *param) same(o *param) bool {
	return p.size > 0 && o.size > 0 && o.onDevice() && p.device.Value.Uintptr() == o.device.Value.Uintptr()
}

// find looks up the weight and the gradient of a node, which may be others than
// those of the last step, but not of another size or type.
func (p *param) find(eng *cupool.Engine, n gorgonia.ValueGrad) error {
	w, g, err := valueAndGrad(n)
	if err != nil {
		return err
	}
	switch {
	case isFreed(w) || isFreed(g):
		return fmt.Errorf("a weight or gradient is a freed tensor: %w", cupool.ErrUseAfterFree)
	case w.Dtype() != g.Dtype() || elementsOf(w) != elementsOf(g):
		return fmt.Errorf("a weight of %v %v with a gradient of %v %v: %w", w.Shape(), w.Dtype(), g.Shape(), g.Dtype(), cupool.ErrSizeMismatch)
	case p.size != 0 && (p.size != elementsOf(w) || p.dt != w.Dtype()):
		return fmt.Errorf("%d elements of %v, after %d of %v: %w", elementsOf(w), w.Dtype(), p.size, p.dt, cupool.ErrSizeMismatch)
	case w.Dtype() != tensor.Float32 && w.Dtype() != tensor.Float64:
		return fmt.Errorf("weights of %v: %w", w.Dtype(), cupool.ErrNotSupported)
	}
	device := p.device
	p.dt, p.size = w.Dtype(), elementsOf(w)
	p.w, p.g, device.Value, device.Grad = nil, nil, nil, nil
	if d, ok := g.(*tensor.Dense); ok {
		if err := toDevice(d); err != nil {
			return err
		}
	}
	wt, onDevice := deviceTensor(w)
	if onDevice {
		gt, ok := deviceTensor(g)
		if !ok || cupool.EngineOf(wt) != eng || cupool.EngineOf(gt) != eng {
			return fmt.Errorf("a weight and gradient that are not both in the solver's engine: %w", cupool.ErrNotSupported)
		}
		if err := errors.Join(gapless(wt), gapless(gt)); err != nil {
			return err
		}
		device.Value, device.Grad = wt, gt
		p.device = device
		return nil
	}
	if gt, far := deviceTensor(g); far {
		return fmt.Errorf("its value is in Go's heap, its gradient in memory of %v: give the VM BindDualValues with it, or move it by ToPool: %w", cupool.EngineOf(gt), cupool.ErrNotSupported)
	}
	p.device = device
	if p.w, err = elements(w); err == nil {
		p.g, err = elements(g)
	}
	return err
}

// floats returns numbers that lie at p; nil: none do.
func floats[T float32 | float64](p unsafe.Pointer, n int) []T {
	if p == nil {
		return nil
	}
	return unsafe.Slice((*T)(p), n)
}

var errNoNode = fmt.Errorf("no node: %w", cupool.ErrNotSupported)

func isNoNode(n gorgonia.ValueGrad) bool {
	node, ok := n.(*gorgonia.Node)
	return n == nil || ok && node == nil
}

func valueAndGrad(n gorgonia.ValueGrad) (w, g gorgonia.Value, err error) {
	if isNoNode(n) {
		return nil, nil, errNoNode
	}
	if w = n.Value(); w == nil {
		return nil, nil, fmt.Errorf("no value: %w", cupool.ErrNotSupported)
	}
	if g, err = n.Grad(); err == nil && g == nil {
		err = fmt.Errorf("no gradient; bind dual values or call gorgonia.Grad: %w", cupool.ErrNotSupported)
	}
	return w, g, err
}

// deviceTensor returns a value as a tensor in memory that the CPU cannot touch,
// if it is one.
func deviceTensor(v gorgonia.Value) (*tensor.Dense, bool) {
	d, ok := v.(*tensor.Dense)
	return d, ok && !d.IsNativelyAccessible()
}

// elements returns where a value's elements lie. Those of a tensor may lie in any
// engine's memory, once that is done with them.
func elements(v gorgonia.Value) (unsafe.Pointer, error) {
	switch v := v.(type) {
	case *gorgonia.F32: // a pointer to the number
		return unsafe.Pointer(v), nil
	case *gorgonia.F64:
		return unsafe.Pointer(v), nil
	case *tensor.Dense:
		if _, err := v.Engine().Accessible(v); err != nil {
			return nil, err
		}
		return unsafe.Pointer(unsafe.SliceData(v.Raw)), gapless(v)
	}
	return nil, fmt.Errorf("a value of type %T: %w", v, cupool.ErrNotSupported)
}

// gapless fails for a tensor whose elements do not lie one after the other, or have a
// mask.
func gapless(d *tensor.Dense) error {
	if n := elementsOf(d); n > 1 && (d.RequiresIterator() || d.DataOrder() != 0) || n > 0 && d.IsMasked() {
		return fmt.Errorf("a tensor of shape %v that is not one in row-major order without gaps and a mask: %w", d.Shape(), cupool.ErrNotSupported)
	}
	return nil
}

// elementsOf returns how many elements a value has; a scalar has one.
func elementsOf(v gorgonia.Value) int { return v.Shape().TotalSize() }

// remember makes as many tensors of zeros as the method remembers, once.
func (p *param) remember(eng *cupool.Engine, shape tensor.Shape, states int) error {
	if p.states == states {
		return nil
	}
	if p.states != 0 {
		return fmt.Errorf("the weight has moved between the host and the device: %w", cupool.ErrNotSupported)
	}
	p.states = states
	if !p.onDevice() && !eng.AllocAccessible() { // a scalar, say, whose model is on a device
		for i := range states {
			p.remembered[i] = unsafe.Pointer(unsafe.SliceData(make([]float64, p.size))) // enough for either type
		}
		return nil
	}
	made := make([]*tensor.Dense, states)
	for i := range made {
		t, err := p.zeros(eng, shape)
		if err != nil {
			return errors.Join(err, p.forget(eng.Allocator()))
		}
		made[i] = t
	}
	return p.place(made)
}

// zeros makes a tensor of zeros like the weight. It takes its memory from the
// allocator, not the engine, whose scopes would free it.
func (p *param) zeros(eng *cupool.Engine, shape tensor.Shape) (*tensor.Dense, error) {
	b, err := eng.Allocator().Alloc(int64(p.size)*int64(p.dt.Size()), eng.Stream())
	if err != nil {
		return nil, err
	}
	p.blocks = append(p.blocks, b)
	t := tensor.NewDense(p.dt, shape.Clone(), tensor.FromMemory(uintptr(b.Ptr()), uintptr(b.Size())), tensor.WithEngine(eng))
	return t, eng.Zero(t)
}

// place puts what is remembered where the method looks for it. The last tensor
// of a device may be one to work in.
func (p *param) place(made []*tensor.Dense) (err error) {
	if p.onDevice() {
		for i, to := range []*tensor.Tensor{&p.device.Momentum, &p.device.Second} {
			if i < len(made) {
				*to = made[i]
			}
		}
		if len(made) > 0 {
			p.scratch = made[len(made)-1]
		}
		return nil
	}
	for i, t := range made {
		if p.remembered[i], err = elements(t); err != nil {
			return err
		}
	}
	return nil
}

// forget gives back what is remembered.
func (p *param) forget(a cupool.Allocator) error {
	var errs []error
	for _, b := range p.blocks {
		errs = append(errs, a.Free(b))
	}
	*p = param{}
	return errors.Join(errs...)
}
