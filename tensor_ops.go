package cupool

import (
	"gorgonia.org/tensor"

	"github.com/cupool/cupool/internal/tensorop"
)

var _ tensorop.Engine = (*Engine)(nil)

// Materialize returns a copy of a view or transposed tensor in the pool, in
// row-major order, and any other tensor as it is.
func (e *Engine) Materialize(t tensor.Tensor) (tensor.Tensor, error) { return e.std().Materialize(t) }

// Compute calls f with tensors of tensor.StdEng that have the data of ts, or
// copies of it where the CPU cannot touch the memory, and moves f's result to
// the pool. f may call everything that tensor has, and must not change the
// tensors or keep them. Take it for what tensor does without asking its
// engine (see Engine). It fails with f's error or an *EngineError around
// ErrUseAfterFree, ErrNotSupported or what the allocator or device says.
func (e *Engine) Compute(f func(ts []*tensor.Dense) (*tensor.Dense, error), ts ...*tensor.Dense) (*tensor.Dense, error) {
	return e.std().Compute(f, ts)
}

// BatchMatMul writes the products of as many pairs of matrices as a has to
// prealloc: a is (n, i, k), b (n, k, j) and prealloc (n, i, j). It fails with an
// *EngineError around ErrSizeMismatch, ErrNotSupported, or what tensor or the
// device says.
func (e *Engine) BatchMatMul(a, b, prealloc tensor.Tensor) error {
	return e.std().BatchMatMul(a, b, prealloc)
}

// Outer implements tensor.OuterProder: it adds the outer product of two
// vectors to prealloc, a matrix.
func (e *Engine) Outer(a, b, prealloc tensor.Tensor) error {
	if err := e.made("Outer"); err != nil {
		return err
	}
	if err := e.moveIn(prealloc); err != nil {
		return err
	}
	return e.std().Product("Outer", tensor.StdEng.Outer, a, b, prealloc)
}

// Norm returns the norm of t along the axes, as t.Norm does, but loses no
// temporaries. A GPU computes it, but for those of orders that take singular values
// (2 and -2 of matrices) or powers (all but 1, 2 and infinities), which take copies.
func (e *Engine) Norm(t *tensor.Dense, ord tensor.NormOrder, axes ...int) (*tensor.Dense, error) {
	return e.std().Norm(t, ord, axes)
}

// Contract returns the product of two tensors along the axes, as
// tensor.Contract does, but loses no temporaries.
func (e *Engine) Contract(a, b *tensor.Dense, aAxes, bAxes []int) (*tensor.Dense, error) {
	return e.std().Contract(a, b, aAxes, bAxes)
}

func init() { tensorop.Of = func(engine any) *tensorop.Ops { return engine.(*Engine).std() } }

// opMemory is an Engine as its operations see it.
type opMemory Engine

var _ tensorop.Memory = (*opMemory)(nil)

func (m *opMemory) engine() *Engine                  { return (*Engine)(m) }
func (m *opMemory) Made(op string) error             { return m.engine().made(op) }
func (m *opMemory) HostAccessible() bool             { return m.accessible }
func (m *opMemory) Ready() error                     { return m.engine().hostReady() }
func (m *opMemory) Pending() error                   { return m.engine().pendingError() }
func (m *opMemory) Lose(op string, err error)        { m.engine().lose(op, err) }
func (m *opMemory) Error(op string, err error) error { return engineError(op, err) }
func (m *opMemory) IsOwn(err error) bool             { return isOwn(err) }
func (m *opMemory) Capturing() bool                  { return m.captured != nil }

// Warn implements tensorop.Memory.
func (m *opMemory) Warn(message string, err error) {
	if c := m.s.Pool(); c != nil {
		c.cfg.Logger.Warn(message, "device", m.d.Name(), "error", err)
	}
}
func (m *opMemory) Read(dst []byte, p Ptr) error        { return m.engine().read(dst, p) }
func (m *opMemory) Write(p Ptr, src []byte) error       { return m.engine().write(p, src) }
func (m *opMemory) Memcpy(dst, src tensor.Memory) error { return m.engine().Memcpy(dst, src) }
func (m *opMemory) FreeTensor(t tensor.Tensor) error    { return m.engine().freeTensor(t) }

func (m *opMemory) Empty(dt tensor.Dtype, shape ...int) (*tensor.Dense, error) {
	return m.engine().Empty(dt, shape...)
}

func (m *opMemory) Adopt(d *tensor.Dense) (*tensor.Dense, error) { return m.engine().adopt(d) }

func (m *opMemory) FromHost(t tensor.Tensor) (*tensor.Dense, error) { return m.engine().FromHost(t) }

// Check implements tensorop.Memory.
func (m *opMemory) Check(t tensor.Tensor) error {
	_, err := blockOf(t)
	return err
}

// OnDevice implements tensorop.Memory.
func (m *opMemory) OnDevice(t *tensor.Dense) bool {
	if m.accessible || EngineOf(t) != m.engine() {
		return false
	}
	b, err := blockOf(t)
	return err == nil && !b.IsEmpty()
}

// Owner implements tensorop.Memory.
func (m *opMemory) Owner(t tensor.Tensor) tensorop.Memory {
	if o := EngineOf(t); o != nil {
		return (*opMemory)(o)
	}
	return m
}

// Scratch implements tensorop.Memory. No scope notes it.
func (m *opMemory) Scratch(n int64) (Ptr, error) {
	b, err := m.a.Alloc(n, m.s)
	return b.ptr, err
}

// FreeScratch implements tensorop.Memory.
func (m *opMemory) FreeScratch(p Ptr, n int64) error { return m.a.FreePtr(p, n) }

// Begin implements tensorop.Memory.
func (m *opMemory) Begin(op string) (own, work StreamHandle, err error) {
	return m.s.handle, m.work.handle, m.work.calls.Begin(op)
}

// Submitted implements tensorop.Memory.
func (m *opMemory) Submitted(op string, err error) error { return m.work.calls.Done(op, err) }
