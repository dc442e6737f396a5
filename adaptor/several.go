package adaptor

import (
	"errors"
	"fmt"
	"sync"

	"github.com/cupool/cupool"
)

// several is the common part of adaptors over more than one allocator of the same
// device. Programs use the streams of the first allocator. Private pools share
// these streams with it, and any other allocator adopts their handles.
type several struct {
	all []cupool.Allocator

	mu      sync.Mutex
	adopted map[*cupool.Stream][]*cupool.Stream // by allocator; nil where it has not adopted the stream
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
// stream. CloseStream fails with the errors of Stream.Close.
func (m *several) CloseStream(s *cupool.Stream) error {
	m.mu.Lock()
	known := m.adopted[s]
	delete(m.adopted, s)
	m.mu.Unlock()
	var errs []error
	for _, o := range known {
		if o != nil {
			errs = append(errs, o.Close())
		}
	}
	return errors.Join(append(errs, s.Close())...)
}

// owner calls f with one allocator after the other, until one does not fail with
// ErrForeignPointer, and returns its error. When all fail with that, it returns
// the error of the first.
func (m *several) owner(f func(i int) error) error {
	var first error
	for i := range max(1, len(m.all)) {
		err := f(i)
		if !errors.Is(err, cupool.ErrForeignPointer) {
			return err
		}
		if i == 0 {
			first = err
		}
	}
	return first
}

// Free implements cupool.Allocator.
func (m *several) Free(b cupool.Block) error {
	return m.owner(func(i int) error { return m.at(i).Free(b) })
}

// FreePtr implements cupool.Allocator.
func (m *several) FreePtr(p cupool.Ptr, size int64) error {
	return m.owner(func(i int) error { return m.at(i).FreePtr(p, size) })
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
	return m.owner(func(i int) error {
		now, err := m.streamOf(i, s)
		if err != nil {
			return err
		}
		return m.at(i).RecordStream(b, now)
	})
}
