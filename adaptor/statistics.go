package adaptor

import (
	"sync"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/sanitize"
)

// Counters count what was allocated and freed in a section of a program.
type Counters struct {
	Blocks cupool.Stat
	Bytes  cupool.Stat // as requested
}

func (c *Counters) add(bytes int64) { c.Blocks.Add(1); c.Bytes.Add(bytes) }

func (c *Counters) take(bytes int64) { c.Blocks.Take(1); c.Bytes.Take(bytes) }

// Statistics counts blocks and bytes, exactly. Push begins a section of the
// program, with counters of its own, and Pop ends it. Sections nest.
type Statistics struct {
	over
	mu       sync.Mutex
	total    Counters
	sections []Counters // the innermost last
}

// NewStatistics returns an allocator that counts what is allocated and freed
// through it.
func NewStatistics(a cupool.Allocator) *Statistics {
	return &Statistics{over: over{orNone(a)}}
}

// Counters returns the counters of the innermost section, or without a section
// those since the beginning. In a section, Current is the difference to its
// begin. It is negative when more was freed than allocated.
func (s *Statistics) Counters() Counters {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.sections); n > 0 {
		return s.sections[n-1]
	}
	return s.total
}

// Push begins a section.
func (s *Statistics) Push() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sections = append(s.sections, Counters{})
}

// Pop ends the innermost section and returns its counters. The sections around it
// count the same calls, too. Without a section Pop returns the Counters since the
// beginning, and false.
func (s *Statistics) Pop() (Counters, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	last := len(s.sections) - 1
	if last < 0 {
		return s.total, false
	}
	c := s.sections[last]
	s.sections = s.sections[:last]
	return c, true
}

func (s *Statistics) count(b cupool.Block, how func(*Counters, int64)) {
	if b.IsEmpty() {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	how(&s.total, b.Size())
	for i := range s.sections {
		how(&s.sections[i], b.Size())
	}
}

// Alloc implements cupool.Allocator.
func (s *Statistics) Alloc(size int64, on *cupool.Stream) (cupool.Block, error) {
	b, err := s.Unwrap().Alloc(size, on)
	if err == nil {
		s.count(b, (*Counters).add)
	}
	return b, err
}

// Free implements cupool.Allocator.
func (s *Statistics) Free(b cupool.Block) error {
	err := s.Unwrap().Free(b)
	if sanitize.WasFreed(err) {
		s.count(b, (*Counters).take)
	}
	return err
}

// FreePtr implements cupool.Allocator.
func (s *Statistics) FreePtr(p cupool.Ptr, size int64) error {
	return freePtr(s.Unwrap(), p, size, s.Free)
}
