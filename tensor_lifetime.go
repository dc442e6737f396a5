package cupool

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"

	"gorgonia.org/tensor"

	"github.com/cupool/cupool/internal/tensorop/operand"
)

// Lifetimes by the garbage collector.
//
// Go does not see memory outside its heap, and a view holds the tensor that it
// is a view of by a bare address, so that a cleanup on a tensor would free
// memory under its views. What views and shallow clones do have from their
// tensor is its engine. So each block that is cared for has an engine object of
// its own, an owner, which the collector finds as long as any tensor over the
// block is reachable: it counts the references. When none is, the owner's
// cleanup queues the block (FreeLater): no lock, no driver. The block's
// generation tells whether it was freed otherwise in the meantime.

// owner is the engine of all tensors over one block, and of tensors that tensor
// makes with the engine of one of them. It is an Engine in all it does.
type owner struct {
	*Engine
	block  Block
	reused atomic.Bool // a tensor of this engine was given the block's memory again
}

// had reports whether a tensor at p with this engine was made in the owner's
// block, whatever has the memory now.
func (o *owner) had(p Ptr) bool {
	return p >= o.block.ptr && p < o.block.ptr+Ptr(o.block.size) && !o.reused.Load()
}

// Alloc is Engine.Alloc for tensors that tensor makes with the engine of another
// one, as it does for results of MatMul. They may get the memory of that one
// when it was freed.
func (o *owner) Alloc(size int64) (tensor.Memory, error) {
	mem, err := o.Engine.Alloc(size)
	if m, ok := mem.(*operand.Memory); ok && err == nil && m.Ptr < o.block.ptr+Ptr(o.block.size) && o.block.ptr < m.Ptr+Ptr(m.Size) {
		o.reused.Store(true)
	}
	return mem, err
}

// checkMaker fails where tensor.New asks for memory that nothing would give back: the
// engine, which is WithLifetimes, does not see the tensor, whose engine others have, too.
func (e *Engine) checkMaker(size int64) error {
	if size <= 0 || e.captured != nil || e.scope.Load() != nil {
		return nil
	}
	if maker := operand.FindMaker(); maker != "" {
		return engineError("alloc", fmt.Errorf("%s of %d bytes on an engine with lifetimes: the collector would never give the tensor back; Engine.Empty and FromHost make one that it does, and within a Scope this call works: %w", maker, size, ErrNotSupported))
	}
	return nil
}

// own has the collector care for d, new and without views, and its block.
func (e *Engine) own(d *tensor.Dense, b Block) {
	if !e.lifetimes || b.IsEmpty() || e.captured != nil { // then it is the graph's
		return
	}
	o := &owner{Engine: e, block: b}
	runtime.AddCleanup(o, e.freeLater, b)
	runtime.AddCleanup(d, func(*owner) {}, o) // d keeps its owner when it is given another engine
	operand.SetEngine(d, o)
}

// WithLifetimes has Go's garbage collector give back the memory of tensors that
// nobody has any more: results of the engine's operations, of Empty and of
// FromHost, and what Track was given. Memory lives as long as any tensor that
// was made from it with Slice, ShallowClone and the like. It is a safety net:
// the collector runs when Go's heap has grown, which says nothing of a device,
// and a tensor costs about a microsecond more. FreeTensor and scopes work as
// without it, and are to be preferred.
//
// When the allocator is a *Pool, it runs the collector by itself before it
// asks a device for memory of which three quarters are in use, as long as that
// takes no more than a twentieth of the time (the thresholds of CUDA.jl).
//
// What it asks of the program:
//
//   - tensor.New with this engine, or that of one of its tensors, works within a
//     Scope alone. Elsewhere tensor panics with an *EngineError around
//     ErrNotSupported: Empty and FromHost make tensors that are cared for.
//   - Tensors that tensor makes of others (Clone, Materialize, MatMul, MatVecMul,
//     Outer) live until they are freed or given to Track.
//   - Whoever works on a tensor's data past the engine (Data, Float32s, an
//     iterator, Zero, Memset) keeps the tensor, or calls runtime.KeepAlive(t)
//     afterwards.
//   - Whoever puts another engine into such a tensor (tensor.WithEngine as an
//     option applied later, as Gorgonia's own machines do) keeps it for as long
//     as its views are used.
//
// NewEngine turns tensor's recycling of tensors off for the whole program
// (tensor.DontUsePool): a recycled tensor would hold what it was before. Package tensor
// does not guard that setting, so make the first such engine before other goroutines
// work with tensors. NewEngine fails with ErrNotSupported when the allocator has no
// FreeLater method.
func WithLifetimes() EngineOption {
	return func(e *Engine) { e.lifetimes = true }
}

// recycling is turned off once: other goroutines read the setting without a lock.
var recycling sync.Once

// startLifetimes makes ready what WithLifetimes asks for.
func (e *Engine) startLifetimes() error {
	if !e.lifetimes {
		return nil
	}
	a, ok := e.a.(interface{ FreeLater(Block) })
	if !ok {
		return engineError("new engine", fmt.Errorf("WithLifetimes on an allocator %T without FreeLater: %w", e.a, ErrNotSupported))
	}
	e.freeLater = a.FreeLater
	if c, ok := e.a.(*Pool); ok {
		c.dev.pressure.On.Store(true)
	}
	recycling.Do(tensor.DontUsePool)
	return nil
}

// EngineOf returns the Engine that t belongs to, or nil, as for a nil t. With
// WithLifetimes t.Engine() is another object that does the same.
func EngineOf(t tensor.Tensor) *Engine {
	if operand.IsNil(t) {
		return nil
	}
	switch e := t.Engine().(type) {
	case *Engine:
		return e
	case interface{ engine() *Engine }:
		return e.engine()
	}
	return nil
}

// engine is what an Engine has in common with all that embed one.
func (e *Engine) engine() *Engine { return e }

// Track has the garbage collector care for tensors that a function of package
// tensor made, as if the engine had. Each must be whole,
// with no views or shallow clones yet, and have this engine. Tensors that are cared for already
// and tensors of no elements are left alone. It fails with ErrNotSupported
// without WithLifetimes, or with an *EngineError around ErrForeignPointer,
// ErrInteriorPointer, ErrSizeMismatch or ErrUseAfterFree, and tracks what it
// can before that one.
func (e *Engine) Track(ts ...tensor.Tensor) error {
	if err := e.made("track"); err != nil {
		return err
	}
	if !e.lifetimes {
		return engineError("track", fmt.Errorf("an engine without WithLifetimes: %w", ErrNotSupported))
	}
	for _, t := range ts {
		if operand.IsNil(t) {
			continue
		}
		if err := e.track(t); err != nil {
			return engineError("track", err)
		}
	}
	return nil
}

func (e *Engine) track(t tensor.Tensor) error {
	d, ok := t.(*tensor.Dense)
	if !ok {
		return fmt.Errorf("a tensor of type %T: %w", t, ErrNotSupported)
	}
	if operand.IsFreed(d) {
		return ErrUseAfterFree
	}
	p, n := operand.Extent(d)
	if n == 0 {
		return nil
	}
	b, err := e.a.Lookup(p)
	switch {
	case err != nil:
		return err
	case b.ptr != p:
		return &BlockError{Op: "tracking", Ptr: p, Size: n, Err: ErrInteriorPointer, Detail: fmt.Sprintf("it lies in block %v", b)}
	case b.size != n:
		return &BlockError{Op: "tracking", Ptr: p, Size: n, Err: ErrSizeMismatch, Detail: fmt.Sprintf("it is a part of block %v", b)}
	}
	if o, ok := d.Engine().(*owner); !ok || o.block != b {
		e.own(d, b)
	}
	return nil
}
