package adaptor

import (
	"cmp"
	"errors"
	"fmt"
	"sync"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/sanitize"
)

// several is the common part of adaptors over more than one allocator of the same
// device. Programs use the streams of the first allocator. Private pools share
// these streams with it, and any other allocator adopts their handles.
type several struct {
	all []cupool.Allocator

	mu      sync.Mutex
	adopted map[*cupool.Stream][]*cupool.Stream // by allocator; nil where it has not adopted the stream
	given   map[cupool.Ptr]given                // by all but the first allocator
}

// given is a block and the allocator that it is of. Private pools take the blocks of
// each other, so that the first one to take a block back need not be its own. Blocks
// may end without a Free, such as those of an arena: the next at the address
// replaces them.
type given struct {
	block cupool.Block
	by    int
}

// adopter is an allocator that adopts the streams of others.
type adopter interface {
	AdoptStream(h cupool.StreamHandle) (*cupool.Stream, error)
}

// at returns an allocator, or one that is none where there are fewer.
func (m *several) at(i int) cupool.Allocator {
	if i >= len(m.all) {
		return none
	}
	return m.all[i]
}

// Unwrap returns the first allocator.
func (m *several) Unwrap() cupool.Allocator { return m.at(0) }

// Driver returns the device.
func (m *several) Driver() cupool.Driver { return m.at(0).Driver() }

// DefaultStream returns the device's default stream.
func (m *several) DefaultStream() *cupool.Stream { return m.at(0).DefaultStream() }

// NewStream makes a stream of the device. It is closed with CloseStream.
func (m *several) NewStream() (*cupool.Stream, error) { return m.at(0).NewStream() }

// streamOf returns the i-th allocator's Stream for a stream of the first one.
func (m *several) streamOf(i int, s *cupool.Stream) (*cupool.Stream, error) {
	a := m.at(i)
	switch {
	case i == 0 || s == nil || a.DefaultStream() == m.DefaultStream():
		return s, nil
	case s == m.DefaultStream():
		return nil, nil
	case s.Pool() == nil || s.Pool() != m.DefaultStream().Pool():
		return nil, fmt.Errorf("adaptor: the stream was not made by the first allocator: %w", cupool.ErrForeignStream)
	case s.Closed(): // the device may have given its handle to another stream
		return nil, fmt.Errorf("adaptor: %v: %w", s.Handle(), cupool.ErrClosed)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	known := m.adopted[s]
	if known == nil {
		known = make([]*cupool.Stream, len(m.all))
		if m.adopted == nil {
			m.adopted = map[*cupool.Stream][]*cupool.Stream{}
		}
		m.adopted[s] = known
	}
	if known[i] != nil {
		return known[i], nil
	}
	by, ok := Find[adopter](a)
	if !ok {
		return nil, fmt.Errorf("adaptor: %T takes no streams of other allocators: %w", a, cupool.ErrForeignStream)
	}
	now, err := by.AdoptStream(s.Handle())
	known[i] = now
	return now, err
}

// CloseStream closes a stream, also in the other allocators that adopted it.
// Stream.Close alone would leave them a handle that the device may give to another
// stream. CloseStream fails with the errors of Stream.Close. While another allocator
// still has the stream, it stays open, and CloseStream can be called again.
func (m *several) CloseStream(s *cupool.Stream) error {
	m.mu.Lock()
	known := m.adopted[s]
	delete(m.adopted, s)
	m.mu.Unlock() // a Close waits for work, which may use the allocator
	var errs []error
	for i, o := range known {
		if o == nil {
			continue
		}
		errs = append(errs, o.Close())
		if !o.Closed() {
			m.mu.Lock()
			defer m.mu.Unlock()
			m.adopted[s] = known
			return errors.Join(errs...)
		}
		known[i] = nil
	}
	return errors.Join(append(errs, s.Close())...)
}

// alloc allocates from the i-th allocator, for a stream of the first one.
func (m *several) alloc(i int, size int64, s *cupool.Stream) (cupool.Block, error) {
	now, err := m.streamOf(i, s)
	if err != nil {
		return cupool.Block{}, err
	}
	b, err := m.at(i).Alloc(size, now)
	if err != nil || b.IsEmpty() || i == 0 {
		return b, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.given == nil {
		m.given = map[cupool.Ptr]given{}
	}
	m.given[b.Ptr()] = given{b, i}
	return b, nil
}

// of calls f with the allocator that gave a block, or as owner does where that is
// the first one or not known.
func (m *several) of(b cupool.Block, f func(i int) error) error {
	m.mu.Lock()
	g := m.given[b.Ptr()]
	m.mu.Unlock()
	if g.block == b && !b.IsEmpty() {
		return f(g.by)
	}
	return m.owner(f)
}

// owner calls f with one allocator after the other, until one knows the block, and
// returns its error. Those that fail with ErrForeignPointer do not, nor do those
// that are closed. When none does, it returns the first ErrClosed, or else the error
// of the first.
func (m *several) owner(f func(i int) error) error {
	var foreign, closed error
	for i := range max(1, len(m.all)) {
		err := f(i)
		switch {
		case errors.Is(err, cupool.ErrForeignPointer):
			foreign = cmp.Or(foreign, err)
		case errors.Is(err, cupool.ErrClosed):
			closed = cmp.Or(closed, err)
		default:
			return err
		}
	}
	return cmp.Or(closed, foreign)
}

// Free implements cupool.Allocator.
func (m *several) Free(b cupool.Block) error {
	err := m.of(b, func(i int) error { return m.at(i).Free(b) })
	if sanitize.WasFreed(err) {
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.given[b.Ptr()].block == b { // and not the next at the address
			delete(m.given, b.Ptr())
		}
	}
	return err
}

// FreePtr implements cupool.Allocator.
func (m *several) FreePtr(p cupool.Ptr, size int64) error {
	b, err := m.Lookup(p)
	if err != nil || b.Ptr() != p || size >= 0 && size != b.Size() {
		return m.owner(func(i int) error { return m.at(i).FreePtr(p, size) }) // its error says what is wrong
	}
	return m.Free(b)
}

// Lookup implements cupool.Allocator.
func (m *several) Lookup(p cupool.Ptr) (b cupool.Block, err error) {
	err = m.owner(func(i int) (err error) {
		b, err = m.at(i).Lookup(p)
		return err
	})
	return b, err
}

// RecordStream implements cupool.Allocator.
func (m *several) RecordStream(b cupool.Block, s *cupool.Stream) error {
	return m.of(b, func(i int) error {
		now, err := m.streamOf(i, s)
		if err != nil && !(errors.Is(err, cupool.ErrClosed) && s.Closed()) { // the work of a closed stream is done
			return err
		}
		return m.at(i).RecordStream(b, now)
	})
}
