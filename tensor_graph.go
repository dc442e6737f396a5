package cupool

import (
	"errors"
	"fmt"
	"sync"
)

// grapher is the optional part of a Driver that keeps work given to a stream as
// a graph, to be run again as a whole (cu_graph.go).
type grapher interface {
	beginCapture(s StreamHandle) error
	// endCapture returns the graph. The capture is over in any case.
	endCapture(s StreamHandle) (graph uintptr, err error)
	dropCapture(s StreamHandle)
	launchGraph(graph uintptr, s StreamHandle) error
	destroyGraph(graph uintptr) error
}

// Graph is work of an Engine that was captured, with the memory that it uses.
// Its methods are safe from several goroutines.
type Graph struct {
	e    *Engine
	d    grapher
	held *heldMemory
	side *sideStream // of the capture, once there was a Fork

	mu     sync.Mutex
	graph  uintptr
	closed bool
}

// Capture calls f and keeps what it computes as a CUDA graph, which Launch runs
// as often as wanted, at the price of one call. Nothing runs during Capture.
// Tensors that f uses are read and written where they were, so they have to
// live as long as the Graph, and what f computes with that is no tensor (sizes,
// numbers) stays what it was. Optimizers take what changes from step to step
// from tensors too: SGD.Rate, Adam.Rate and Adam.Step.
//
// Memory that f allocates belongs to the Graph, and is taken from the Caching
// where the engine's allocator is a Native: results of f can be read after
// a Launch until Close, and are not to be freed. The pool gives it to nobody
// else meanwhile; within f it is used again as it is freed.
//
// f must not wait for the device nor copy to or from the host (Sync, ToHost,
// FromHost, operations without a kernel), and nothing else may use the engine
// during Capture. Operations should have run before, since the first use of
// some makes what a capture cannot hold. Where any of that goes wrong, Capture
// fails, gives all memory back, and the engine is as before. It fails with an
// *EngineError around ErrNotSupported where the device has no graphs or the
// engine works on the default stream, which cannot be captured (WithStream), or
// around f's error or the device's.
func (e *Engine) Capture(f func() error) (*Graph, error) {
	const op = "capture"
	d, ok := e.d.(grapher)
	if !ok || e.gpu == nil {
		return nil, engineError(op, fmt.Errorf("%s has no graphs: %w", e.d.Name(), ErrNotSupported))
	}
	if e.s.handle == 0 {
		return nil, engineError(op, fmt.Errorf("the default stream cannot be captured, use NewEngine(a, WithStream(s)): %w", ErrNotSupported))
	}
	if err := e.pendingError(); err != nil {
		return nil, err
	}
	if err := e.s.usable(op); err != nil {
		return nil, engineError(op, err)
	}
	from := e.source()
	if _, ok := from.(*Native); ok {
		from = e.s.c // or allocating would be captured too
		e.pooled.Store(true)
	}
	g := &Graph{e: e, d: d, held: newHeldMemory(e.a, from)}
	begin := func() error { return e.s.submit(op, d.beginCapture(e.s.handle)) }
	if err := e.s.capture(begin); err != nil {
		return nil, engineError(op, err)
	}
	if err := g.end(g.call(f)); err != nil {
		return nil, engineError(op, err)
	}
	return g, nil
}

// call calls f with the graph's memory for the engine's, in a scope of its own
// whose blocks stay with the graph. Should f panic otherwise than Try expects,
// the capture is dropped and the memory given back on the way out.
func (g *Graph) call(f func() error) (err error) {
	e := g.e
	sc := e.Scope()
	done := false
	e.a, e.captured = g.held, g
	defer func() {
		sc.leave()
		e.a, e.captured = g.held.Allocator, nil
		if !done {
			_ = g.end(errPanic)
		}
	}()
	err = Try(f)
	if err == nil {
		err = e.pendingError()
	}
	done = true
	return err
}

var errPanic = errors.New("the captured function panicked")

// end ends the capture of what f was called for, and drops it where that failed.
// All streams are joined in any case, as a capture fails that has others.
func (g *Graph) end(failed error) error {
	s, err := g.e.s, failed
	if joined := g.join(); err == nil {
		err = joined
	}
	if err == nil {
		g.graph, err = g.d.endCapture(s.handle)
		err = s.submit("capture", err)
	} else {
		g.d.dropCapture(s.handle)
	}
	s.endCapture()
	err = errors.Join(err, g.side.close(g.e.d))
	if err == nil {
		return nil
	}
	if g.graph != 0 {
		err = errors.Join(err, g.d.destroyGraph(g.graph))
	}
	return errors.Join(err, g.held.release())
}

// errCaptured: a graph would copy from or to host memory that is somebody
// else's by the time it runs.
var errCaptured = fmt.Errorf("copies from and to the host cannot be captured: %w", ErrNotSupported)

// Launch submits the graph to the engine's stream. It returns before it is
// done. It fails with an *EngineError around ErrClosed or the device's error.
func (g *Graph) Launch() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return engineError("launch graph", ErrClosed)
	}
	if err := g.e.s.usable("launch graph"); err != nil {
		return engineError("launch graph", err)
	}
	return engineError("launch graph", g.e.s.submit("launch graph", g.d.launchGraph(g.graph, g.e.s.handle)))
}

// Close gives the graph and its memory back; what was launched still runs. To
// close a Graph again does nothing.
func (g *Graph) Close() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return nil
	}
	g.closed = true
	return engineError("close graph", errors.Join(g.d.destroyGraph(g.graph), g.held.release()))
}
