package devices

import (
	"errors"
	"fmt"

	"github.com/cupool/cupool"
)

// Found is a live block and where it is.
type Found struct {
	Block  cupool.Block
	Pool   *cupool.Pool // of the device, or one of Shared
	Device int          // the number of the device; -1: memory for all devices
}

// Lookup returns the live block that holds an address, which may be anywhere
// inside it, of whichever device. It fails with a *cupool.BlockError around
// cupool.ErrForeignPointer, cupool.ErrUseAfterFree or cupool.ErrClosed.
func (s *Set) Lookup(p cupool.Ptr) (Found, error) { return s.find("look-up", p) }

// find asks the pools in turn. One that has memory at the address, if no live
// block, has the last word. Those that are closed do not know: the first of them
// answers where no other does.
func (s *Set) find(op string, p cupool.Ptr) (Found, error) {
	if err := s.made(op); err != nil {
		return Found{}, err
	}
	var closed Found
	var gone error
	for i, c := range s.all() {
		b, err := c.Lookup(p)
		if errors.Is(err, cupool.ErrForeignPointer) {
			continue
		}
		if i >= s.n {
			i = -1
		}
		at := Found{b, c, i}
		if !errors.Is(err, cupool.ErrClosed) {
			return at, s.of(c, err)
		}
		if gone == nil {
			closed, gone = at, s.of(c, err)
		}
	}
	if gone != nil {
		return closed, gone
	}
	return Found{}, &cupool.BlockError{Op: op, Ptr: p, Size: -1, Err: cupool.ErrForeignPointer, Detail: fmt.Sprintf("no pool of this set of %d devices holds the address", s.n)}
}

// holder returns the pool that has memory at an address.
func (s *Set) holder(op string, p cupool.Ptr) (*cupool.Pool, error) {
	at, err := s.find(op, p)
	if at.Pool == nil {
		return nil, err
	}
	return at.Pool, nil // what is wrong with the block it says itself
}

// Free is Free of the pool that the block is of.
func (s *Set) Free(b cupool.Block) error {
	if err := s.made("free"); err != nil {
		return err
	}
	if b.IsEmpty() {
		return nil
	}
	c, err := s.holder("free", b.Ptr())
	if err != nil {
		return err
	}
	return s.of(c, c.Free(b))
}

// FreePtr is FreePtr of the pool that holds the address.
func (s *Set) FreePtr(p cupool.Ptr, size int64) error {
	if err := s.made("free"); err != nil {
		return err
	}
	if p == 0 && size <= 0 {
		return nil
	}
	c, err := s.holder("free", p)
	if err != nil {
		return err
	}
	return s.of(c, c.FreePtr(p, size))
}

// RecordStream says that work on st, a stream of any device of the Set, uses the
// block. A stream of the block's own allocator (nil: its default stream) counts
// as RecordStream of the pool says. Of another device's stream counts what it was
// given before this call: call it after the last use. After Free, from the Set or
// from the pool, the memory is not reused before that work is done.
//
// It fails as RecordStream of a pool does, with cupool.ErrForeignStream for a
// stream of no device of the Set, with cupool.ErrNotSupported for another device's
// that is captured, or with what the devices say.
func (s *Set) RecordStream(b cupool.Block, st *cupool.Stream) error {
	if err := s.made("record stream"); err != nil {
		return err
	}
	if b.IsEmpty() {
		return nil
	}
	c, err := s.holder("record stream", b.Ptr())
	if err != nil {
		return err
	}
	return s.of(c, s.record(c, b, st))
}

// FreeOn is RecordStream followed by Free: the block was last used by work that
// st has been given.
func (s *Set) FreeOn(b cupool.Block, st *cupool.Stream) error {
	if err := s.RecordStream(b, st); err != nil {
		return err
	}
	return s.Free(b)
}

// A route is from the streams of one pool to those of another.
type route struct{ from, to *cupool.Pool }

// record is RecordStream of a block of c. A pool knows the streams of its own
// device only, so one of them, the agent, waits for the other device's.
func (s *Set) record(c *cupool.Pool, b cupool.Block, st *cupool.Stream) error {
	if st == nil || st.Pool() == c {
		return c.RecordStream(b, st)
	}
	if err := s.knows("record stream", b, st); err != nil {
		return err
	}
	agent, err := s.agent(route{st.Pool(), c})
	if err != nil {
		return err
	}
	if err := order(agent, st); err != nil {
		if st.Closed() { // which waited for its work
			return nil
		}
		return err
	}
	return c.RecordStream(b, agent)
}

// knows returns nil for the streams of the Set's pools.
func (s *Set) knows(op string, b cupool.Block, st *cupool.Stream) error {
	if s.has(st.Pool()) {
		return nil
	}
	if st.Pool() == nil {
		return &cupool.BlockError{Op: op, Ptr: b.Ptr(), Size: b.Size(), Err: cupool.ErrForeignStream, Detail: "no allocator made the stream"}
	}
	return &cupool.BlockError{Op: op, Ptr: b.Ptr(), Size: b.Size(), Stream: st.Handle(), Err: cupool.ErrForeignStream,
		Detail: fmt.Sprintf("the stream was made on %s by an allocator that is none of this set of %d devices", st.Pool().Driver().Name(), s.n)}
}

// agent returns the stream by which one pool waits for the streams of another.
func (s *Set) agent(r route) (*cupool.Stream, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if a := s.agents[r]; a != nil {
		return a, nil
	}
	a, err := r.to.NewStream()
	if err == nil {
		s.agents[r] = a
	}
	return a, err
}
