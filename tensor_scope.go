package cupool

import (
	"errors"
	"fmt"

	"gorgonia.org/tensor"

	"github.com/cupool/cupool/internal/nvtx"
	"github.com/cupool/cupool/internal/sanitize"
	"github.com/cupool/cupool/internal/tensorop/operand"
)

// Scope is a stretch of an Engine's work whose memory goes back to the pool
// at its end, but for what is kept:
//
//	sc := eng.Scope()
//	defer sc.Close()
//	... compute; every result and temporary is noted ...
//	sc.Keep(loss)
//
// Scopes nest: what is kept in an inner scope belongs to the one around it
// afterwards. What was freed explicitly meanwhile is left alone, also where
// its memory has been handed out again.
//
// A scope notes all allocations of its engine, whichever goroutine makes
// them. Goroutines that want scopes of their own use engines of their own.
// The methods are safe from several goroutines.
type Scope struct {
	e      *Engine
	parent *Scope
	from   Allocator // where memory comes from; nil: the engine's allocator
	graph  *Graph    // in whose capture it was opened: its memory is the graph's; or nil

	// Guarded by e.scopeMu.
	blocks operand.Noted[Block]
	kept   map[Block]struct{}
	left   bool // see Leave
	closed bool
	shown  nvtx.Range // of ScopeLabeled
}

// Scope opens a scope inside the engine's innermost one.
func (e *Engine) Scope() *Scope {
	if e.isNone() {
		return new(Scope)
	}
	e.scopeMu.Lock()
	defer e.scopeMu.Unlock()
	var from Allocator
	if around := e.scope.Load(); around != nil {
		from = around.from
	}
	return e.openScopeLocked(from)
}

func (e *Engine) openScopeLocked(from Allocator) *Scope {
	s := &Scope{e: e, parent: e.scope.Load(), from: from, graph: e.captured}
	e.scope.Store(s)
	return s
}

// ScopeIn opens a scope whose memory comes from a private pool of the engine's
// allocator (Pool.NewPool), or from that allocator itself. Scopes inside it
// use the pool too, unless they are given another, and so does a Graph that is
// captured in it. It fails with an *EngineError around ErrForeignStream for a
// pool that does not share the engine's stream.
func (e *Engine) ScopeIn(pool *Pool) (*Scope, error) {
	if err := e.made("open scope"); err != nil {
		return nil, err
	}
	if pool == nil || pool.dev != e.s.root.dev {
		return nil, engineError("open scope", fmt.Errorf("the pool is not one of the engine's allocator: %w", ErrForeignStream))
	}
	e.pooled.Store(true)
	e.scopeMu.Lock()
	defer e.scopeMu.Unlock()
	return e.openScopeLocked(pool), nil
}

// ScopeLabeled opens a scope whose memory stands under a name in the statistics
// and snapshots of the allocator, or of the pool that a scope around it uses
// (Pool.WithLabel). Scopes inside it have the label too, unless they are
// given another. It fails with an *EngineError around ErrNotSupported for an
// allocator without labels.
func (e *Engine) ScopeLabeled(name string) (*Scope, error) {
	if err := e.made("open scope"); err != nil {
		return nil, err
	}
	e.scopeMu.Lock()
	defer e.scopeMu.Unlock()
	a, ok := e.source().(interface{ WithLabel(name string) Allocator })
	if !ok {
		return nil, engineError("open scope", fmt.Errorf("labels on an allocator %T: %w", e.source(), ErrNotSupported))
	}
	s := e.openScopeLocked(a.WithLabel(name))
	s.shown = nvtx.Start(name, 0)
	return s, nil
}

// source returns where the engine's memory comes from at present.
func (e *Engine) source() Allocator {
	if s := e.scope.Load(); s != nil && s.from != nil && e.captured == nil {
		return s.from
	}
	return e.a
}

// lookup finds live memory of the engine's allocator, or of a pool beside it
// that the allocator may not know of (ScopeIn).
func (e *Engine) lookup(p Ptr) (Block, error) {
	b, err := e.a.Lookup(p)
	if e.isBeside(err) {
		return e.s.root.Lookup(p)
	}
	return b, err
}

// isLive reports whether a block was not freed.
func (e *Engine) isLive(b Block) bool {
	now, err := e.lookup(b.ptr)
	return err == nil && now == b
}

// free frees a block of the engine's allocator, or of a pool beside it.
func (e *Engine) free(b Block) error {
	err := e.a.Free(b)
	if e.isBeside(err) {
		return e.s.root.Free(b)
	}
	return err
}

// freePtr is free by address.
func (e *Engine) freePtr(p Ptr, size int64) error {
	err := e.a.FreePtr(p, size)
	if e.isBeside(err) {
		return e.s.root.FreePtr(p, size)
	}
	return err
}

// isBeside reports whether an error of the engine's allocator may only mean that
// the memory is a pool's.
func (e *Engine) isBeside(err error) bool {
	return err != nil && e.pooled.Load() && errors.Is(err, ErrForeignPointer)
}

// enter notes a new block in the innermost scope, and the tensor made in it,
// which may be nil.
func (e *Engine) enter(b Block, d *tensor.Dense) {
	if e.scope.Load() != nil {
		e.note(b, d)
	}
}

// note is enter where a scope is open.
func (e *Engine) note(b Block, d *tensor.Dense) {
	e.scopeMu.Lock()
	defer e.scopeMu.Unlock()
	if s := e.scope.Load(); s != nil && !b.IsEmpty() {
		s.addLocked(operand.MadeIn(b, d), e.captured)
	}
}

// addLocked notes a block that was made in the capture of a graph, or in none. That of a graph
// lives longer than a scope from before the capture may.
func (s *Scope) addLocked(b operand.Made[Block], in *Graph) {
	if in == s.graph && s.blocks.Add(b) {
		s.blocks.Prune(s.e.isLive)
	}
}

var errNoScope = fmt.Errorf("no engine opened the scope: %w", ErrInvalidHandle)

// Keep exempts the memory of tensors from what Close frees; to keep a view or
// ShallowClone is to keep all of the memory that it is a part of. A tensor
// that is kept in a scope survives the scopes inside it too. Tensors that are
// not in the pool are ignored. It fails with ErrClosed, or an *EngineError
// around ErrUseAfterFree, and keeps what it can.
func (s *Scope) Keep(ts ...tensor.Tensor) error {
	if s == nil || s.e == nil {
		return engineError("keep", errNoScope)
	}
	s.e.scopeMu.Lock()
	defer s.e.scopeMu.Unlock()
	if s.closed {
		return engineError("keep", ErrClosed)
	}
	var errs []error
	for _, t := range ts {
		p, n := operand.Extent(t)
		if n == 0 {
			continue
		}
		b, err := s.e.lookup(p)
		switch {
		case err == nil:
			if s.kept == nil {
				s.kept = make(map[Block]struct{})
			}
			s.kept[b] = struct{}{}
		case !errors.Is(err, ErrForeignPointer):
			errs = append(errs, engineError("keep", err))
		}
	}
	return errors.Join(errs...)
}

// Leave ends the scope's stretch and gives nothing back yet: what is allocated
// from now on is not the scope's, and Close frees what was, when the program
// is through with that. Scopes inside it that are still open end with it. Keep
// works until Close. To leave a scope again does nothing.
func (s *Scope) Leave() {
	if s == nil || s.e == nil {
		return
	}
	s.e.scopeMu.Lock()
	defer s.e.scopeMu.Unlock()
	s.leaveLocked()
}

func (s *Scope) leaveLocked() {
	if s.left || s.closed {
		return
	}
	for in := s.e.scope.Load(); in != s; in = in.parent {
		if in.graph == s.graph {
			s.blocks.Move(&in.blocks)
		}
		in.closed = true
		in.shown.End()
	}
	s.left = true
	s.shown.End()
	s.e.scope.Store(s.parent)
}

// Close frees what the engine allocated since the scope was opened, up to
// Leave, and that was neither kept nor freed since. Scopes inside it that are
// still open are closed first. Tensors that the engine made in that memory
// (results of its operations, FromHost and Empty) are left without data, as
// FreeTensor leaves them; those of tensor.New and Clone dangle. Close frees all
// it can and joins the allocator's errors. To close a scope again does nothing.
func (s *Scope) Close() error {
	if s == nil || s.e == nil {
		return engineError("close scope", errNoScope)
	}
	var errs []error
	for _, b := range s.leave() {
		err := s.e.free(b.Block)
		if sanitize.WasFreed(err) {
			b.Disarm(b.Block.ptr, b.Block.size)
		}
		if !errors.Is(err, ErrDoubleFree) {
			errs = append(errs, engineError("close scope", err))
		}
	}
	return errors.Join(errs...)
}

// leave takes the scope and those inside it off the engine and returns the
// blocks to be freed.
func (s *Scope) leave() (freed []operand.Made[Block]) {
	s.e.scopeMu.Lock()
	defer s.e.scopeMu.Unlock()
	s.leaveLocked()
	around := s.parent
	for around != nil && around.closed { // s was left before
		around = around.parent
	}
	for _, b := range s.blocks.Take() {
		switch {
		case s.graph != nil && s.graph != s.e.captured: // the graph goes on using it
		case !s.keepsLocked(b.Block):
			freed = append(freed, b)
		case around != nil:
			around.addLocked(b, s.graph)
		}
	}
	s.closed = true
	return freed
}

// keepsLocked reports whether the block is kept here or further out.
func (s *Scope) keepsLocked(b Block) bool {
	for ; s != nil; s = s.parent {
		if _, ok := s.kept[b]; ok {
			return true
		}
	}
	return false
}
