package cupool

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/cupool/cupool/device"
	"github.com/cupool/cupool/internal/graphmem"
)

// Graph is work of an Engine that was captured, with the memory that it uses.
// Its methods are safe from several goroutines.
type Graph struct {
	e    *Engine
	d    graphmem.Device
	held *heldMemory
	side *sideStream // of the capture, once there was a Fork

	mu     sync.Mutex
	graph  uintptr
	closed bool
}

// Capture calls f and keeps what it computes as a CUDA graph, which Launch runs
// as often as wanted, at the price of one call. Nothing runs during Capture.
// Tensors that f uses are read and written where they were, so they have to
// live as long as the Graph. Sizes and numbers that f computes with stay what they
// were. Optimizers take what changes from step to step
// from tensors too: nn.SGD.Rate, nn.Adam.Rate and nn.Adam.StepNumber.
//
// Memory that f allocates belongs to the Graph, whatever pools and labels the
// scopes in f have. Where the engine's allocator is over a pool of the driver
// (package native), it is taken from the Pool. The results of f can be read
// after a Launch until Close, and are not to be freed.
// The pool gives this memory to nobody else meanwhile; within f it is used again
// as it is freed.
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
	if err := e.made(op); err != nil {
		return nil, err
	}
	d, ok := e.d.(graphmem.Device)
	if !ok || e.ops.GPU() == nil {
		return nil, engineError(op, fmt.Errorf("%s has no graphs: %w", e.d.Name(), ErrNotSupported))
	}
	if e.s.handle == 0 {
		return nil, engineError(op, fmt.Errorf("the default stream cannot be captured, use NewEngine(a, WithStream(s)): %w", ErrNotSupported))
	}
	if err := e.pendingError(); err != nil {
		return nil, err
	}
	from := e.source()
	if isOverDriverPool(from) {
		from = e.s.root // or allocating would be captured too
		e.pooled.Store(true)
	}
	g := &Graph{e: e, d: d, held: &heldMemory{Allocator: e.a, from: from, e: e}}
	begin := func() error { return d.BeginCapture(e.s.handle) }
	if err := e.s.beginCapture(op, begin); err != nil {
		return nil, engineError(op, err)
	}
	if err := g.end(g.call(f)); err != nil {
		return nil, engineError(op, err)
	}
	return g, nil
}

// beginCapture calls begin with the locks of the heaps whose blocks the stream fills: who has
// looked whether the stream is captured, with such a lock held, has given it the fill by then. A
// graph would fill the memory with each launch, whosever it is.
func (s *Stream) beginCapture(op string, begin func() error) error {
	pools := slices.Clone(s.root.dev.open())
	slices.SortFunc(pools, func(a, b *Pool) int { return cmp.Compare(a.id, b.id) }) // as the locks are taken
	for _, c := range pools {
		if h := c.heaps.of(s); h != nil && c.sanitizer != nil {
			h.mu.Lock()
			defer h.mu.Unlock()
		}
	}
	return s.do(op, func(Driver) error { return s.clock.Capture(begin) })
}

// isOverDriverPool reports whether an Allocator, or the one behind it, is over a pool of the
// driver. What that allocates would be captured.
func isOverDriverPool(a Allocator) bool {
	for {
		if _, ok := a.(interface{ Pool() device.Pool }); ok {
			return true
		}
		adaptor, ok := a.(interface{ Unwrap() Allocator })
		if !ok {
			return false
		}
		a = adaptor.Unwrap()
	}
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
		sc.Leave() // without Close, which would give what f kept to a scope around
		e.a, e.captured = g.held.Allocator, nil
		e.lost.Store(nil) // there was none before, and Capture fails with f's
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
		g.graph, err = g.d.EndCapture(s.handle)
		err = s.calls.Submitted("capture", err)
	} else {
		g.d.DropCapture(s.handle)
	}
	s.clock.EndCapture()
	err = errors.Join(err, g.side.close(g.e.d))
	if err == nil {
		return nil
	}
	if g.graph != 0 {
		err = errors.Join(err, g.d.DestroyGraph(g.graph))
	}
	return errors.Join(err, g.held.release())
}

// errCaptured: a graph would copy from or to host memory that is somebody
// else's by the time it runs.
var errCaptured = fmt.Errorf("copies from and to the host cannot be captured: %w", ErrNotSupported)

// Launch submits the graph to the engine's stream. It returns before it is
// done. It fails with an *EngineError around ErrClosed, around ErrUseAfterFree where
// Pool.Reset has ended the graph's memory, or around the device's error.
func (g *Graph) Launch() error {
	if g == nil || g.e == nil {
		return engineError("launch graph", errNoGraph)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return engineError("launch graph", ErrClosed)
	}
	if b, ok := g.held.blocks.Any(); ok {
		if now, err := g.held.from.Lookup(b.ptr); errors.Is(err, ErrClosed) {
			return engineError("launch graph", err)
		} else if now != b {
			return engineError("launch graph", fmt.Errorf("the graph's memory is gone: %w", ErrUseAfterFree))
		}
	}
	launch := func(Driver) error { return g.d.LaunchGraph(g.graph, g.e.s.handle) }
	return engineError("launch graph", g.e.s.do("launch graph", launch))
}

var errNoGraph = fmt.Errorf("no engine captured the graph: %w", ErrInvalidHandle)

// Close gives the graph and its memory back; what was launched still runs. To
// close a Graph again does nothing.
func (g *Graph) Close() error {
	if g == nil || g.e == nil {
		return engineError("close graph", errNoGraph)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return nil
	}
	g.closed = true
	return engineError("close graph", errors.Join(g.d.DestroyGraph(g.graph), g.held.release()))
}

// Fork calls f, whose work a graph that is being captured runs at the same time
// as what the engine is given after Fork, until Join: for kernels that do not
// fill the device. The work of f begins after all that came before, and that of
// several Forks runs one after the other. Without a capture, and within another
// Fork, f is just called. Fork returns f's error, or fails with an *EngineError
// around the device's, and then Capture fails too.
//
// Between Fork and Join, what f reads must not be written, and what it writes
// neither be read nor written. Tensors may be freed; their memory is not handed
// out again for what could run at the same time. Work that f submits to
// Stream() itself is not the Fork's.
func (e *Engine) Fork(f func() error) error {
	if err := e.made("fork"); err != nil {
		return err
	}
	if f == nil {
		return engineError("fork", errNoFunction)
	}
	g := e.captured
	if g == nil || e.work != e.s {
		return f()
	}
	if err := g.fork(); err != nil {
		return engineError("fork", err)
	}
	e.work = g.side.stream
	g.held.blocks.Fork()
	defer func() {
		g.held.blocks.EndFork()
		e.work = e.s
	}()
	return f()
}

// Join has what the engine is given next wait for the work of all Forks. The
// end of a capture does so too. Where nothing was forked it does nothing. It
// fails with an *EngineError around the device's error, and then Capture fails
// too.
func (e *Engine) Join() error {
	if err := e.made("join"); err != nil {
		return err
	}
	if e.captured == nil || e.work != e.s {
		return nil
	}
	return engineError("join", e.captured.join())
}

// sideStream is the second stream of a capture, with the event by which it and
// the engine's wait for each other. It is there as long as the capture; the graph
// does without.
type sideStream struct {
	stream *Stream // given work only: memory is the engine's stream's
	event  EventHandle
	open   bool // there was no join since the last fork
}

// fork has the side stream wait for all that the engine's was given.
func (g *Graph) fork() error {
	e := g.e
	if g.side == nil {
		side, err := newSideStream(e.d, e.s.root)
		if err != nil {
			return err
		}
		g.side = side
	}
	g.side.open = true
	return g.side.order(e.s, g.side.stream)
}

// join has the engine's stream wait for all that the side stream was given.
func (g *Graph) join() error {
	if g.side == nil || !g.side.open {
		return nil
	}
	if err := g.side.order(g.side.stream, g.e.s); err != nil {
		return err
	}
	g.side.open = false
	g.held.blocks.Join()
	return nil
}

func newSideStream(d Driver, c *Pool) (*sideStream, error) {
	h, err := d.NewStream()
	if err != nil {
		return nil, c.dev.failed(err)
	}
	event, err := d.NewEvent()
	if err != nil {
		return nil, c.dev.failed(errors.Join(err, d.DestroyStream(h)))
	}
	s := &Stream{root: c, handle: h}
	s.calls.Init(&c.dev.calls, h, nil, false) // it is given work, and never waited for
	return &sideStream{stream: s, event: event}, nil
}

// order has the second stream wait for what the first was given.
func (s *sideStream) order(first, second *Stream) error {
	d := first.root.driver
	if err := first.calls.Submitted("fork", d.RecordEvent(s.event, first.handle)); err != nil {
		return err
	}
	return second.calls.Submitted("fork", d.StreamWaitEvent(second.handle, s.event))
}

// close destroys them, after the capture.
func (s *sideStream) close(d Driver) error {
	if s == nil {
		return nil
	}
	return s.stream.calls.Submitted("end capture", errors.Join(d.DestroyEvent(s.event), d.DestroyStream(s.stream.handle)))
}

// heldMemory is an Allocator whose blocks, once freed, are handed out again
// for the same size only (internal/graphmem), and go back to where they came
// from all together. It is no private pool, as that could not use what the
// engine's allocator caches.
type heldMemory struct {
	Allocator
	from Allocator // of its blocks: the same, or a pool (ScopeIn)
	e    *Engine

	blocks graphmem.Blocks[Block]
}

// Alloc implements Allocator.
func (h *heldMemory) Alloc(size int64, s *Stream) (Block, error) {
	if b, use, ok := h.blocks.Take(size); ok {
		return b.again(use), nil
	}
	b, err := h.from.Alloc(size, s)
	if err == nil && !b.IsEmpty() {
		h.blocks.Add(b, b.ptr, b.size)
		if e := h.e; e.work != e.s { // a Fork's work comes after what the allocator fills the block with
			err = e.captured.side.order(e.s, e.work)
		}
	}
	return b, err
}

// WithLabel has Engine.ScopeLabeled work within a capture. The graph's memory has the label of
// the scope that Capture is in.
func (h *heldMemory) WithLabel(string) Allocator { return h }

// again returns a graph's block as it is known when it was handed out again, which no pool's is
// equal to.
func (b Block) again(use uint64) Block {
	if use > 0 {
		b.gen = ^use
	}
	return b
}

// at returns the graph's block at an address, and as it is known at present: the empty Block
// where it was freed.
func (h *heldMemory) at(p Ptr) (own, now Block, ok bool) {
	own, use, freed, ok := h.blocks.At(p)
	if ok && !freed {
		now = own.again(use)
	}
	return own, now, ok
}

// Lookup implements Allocator.
func (h *heldMemory) Lookup(p Ptr) (Block, error) {
	b, err := h.Allocator.Lookup(p)
	if h.e.isBeside(err) {
		b, err = h.e.s.root.Lookup(p)
	}
	own, now, ok := h.at(b.ptr)
	switch {
	case err != nil, !ok:
		return b, err
	case now.IsEmpty():
		return Block{}, errFreedInCapture("look-up", own, ErrUseAfterFree)
	}
	return now, nil
}

// RecordStream implements Allocator.
func (h *heldMemory) RecordStream(b Block, s *Stream) error {
	own, now, ok := h.at(b.ptr)
	switch {
	case !ok:
		return h.Allocator.RecordStream(b, s)
	case now != b:
		return errFreedInCapture("record stream", own, ErrUseAfterFree)
	}
	return h.from.RecordStream(own, s)
}

// Free implements Allocator.
func (h *heldMemory) Free(b Block) error {
	own, now, ok := h.at(b.ptr)
	switch {
	case !ok:
		return h.Allocator.Free(b)
	case now != b:
		return errFreedInCapture("free", own, ErrDoubleFree)
	}
	return h.freeOwn(own)
}

// FreePtr implements Allocator.
func (h *heldMemory) FreePtr(p Ptr, size int64) error {
	own, _, ok := h.at(p)
	switch {
	case !ok:
		return h.Allocator.FreePtr(p, size)
	case size >= 0 && size != own.size:
		return &BlockError{Op: "free", Ptr: p, Size: size, Err: ErrSizeMismatch, Detail: fmt.Sprintf("it has %d bytes", own.size)}
	}
	return h.freeOwn(own)
}

func (h *heldMemory) freeOwn(b Block) error {
	if !h.blocks.Free(b.ptr) {
		return errFreedInCapture("free", b, ErrDoubleFree)
	}
	return nil
}

func errFreedInCapture(op string, b Block, err error) error {
	return &BlockError{Op: op, Ptr: b.ptr, Size: b.size, Err: err, Detail: "it was freed during a capture"}
}

// release frees all blocks.
func (h *heldMemory) release() error { return h.blocks.Drop(h.from.Free) }
