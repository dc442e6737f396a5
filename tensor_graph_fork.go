package cupool

import "errors"

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
	g := e.captured
	if g == nil || e.work != e.s {
		return f()
	}
	if err := g.fork(); err != nil {
		return engineError("fork", err)
	}
	e.work = g.side.stream
	g.held.fork()
	defer func() {
		g.held.endFork()
		e.work = e.s
	}()
	return f()
}

// Join has what the engine is given next wait for the work of all Forks. The
// end of a capture does so too. Where nothing was forked it does nothing. It
// fails with an *EngineError around the device's error, and then Capture fails
// too.
func (e *Engine) Join() error {
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
		side, err := newSideStream(e.d, e.s.c)
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
	g.held.join()
	return nil
}

func newSideStream(d Driver, c *Caching) (*sideStream, error) {
	h, err := d.NewStream()
	if err != nil {
		return nil, c.driverError(err)
	}
	event, err := d.NewEvent()
	if err != nil {
		return nil, c.driverError(errors.Join(err, d.DestroyStream(h)))
	}
	return &sideStream{stream: &Stream{c: c, handle: h}, event: event}, nil
}

// order has the second stream wait for what the first was given.
func (s *sideStream) order(first, second *Stream) error {
	d := first.c.driver
	if err := first.submit("fork", d.RecordEvent(s.event, first.handle)); err != nil {
		return err
	}
	return second.submit("fork", d.StreamWaitEvent(second.handle, s.event))
}

// close destroys them, after the capture.
func (s *sideStream) close(d Driver) error {
	if s == nil {
		return nil
	}
	return s.stream.submit("end capture", errors.Join(d.DestroyEvent(s.event), d.DestroyStream(s.stream.handle)))
}
