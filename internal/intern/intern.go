// Package intern gives numbers to stacks of calls, which recur: a snapshot has a
// million blocks of a hundred stacks.
package intern

import (
	"encoding/binary"
	"unsafe"
)

// Stacks numbers stacks of frames. The zero Stacks is empty. It is used by one
// goroutine, and the stacks that it was given must not change while it is used.
type Stacks[F comparable] struct {
	places map[place]int  // the same memory costs one look-up, however deep the stack is
	frames map[F]uint32   // numbers of frames, by which stacks are told apart
	stacks map[string]int // by the numbers of their frames
}

// A place is where a stack lies in memory.
type place struct {
	first unsafe.Pointer // keeps the stack
	n     int
}

// Number returns the number of a stack: equal ones have one number, and the first new
// one has the next, from 0 on.
func (s *Stacks[F]) Number(stack []F) int {
	if s.places == nil {
		*s = Stacks[F]{map[place]int{}, map[F]uint32{}, map[string]int{}}
	}
	at := place{unsafe.Pointer(unsafe.SliceData(stack)), len(stack)}
	n, ok := s.places[at]
	if !ok {
		n = s.find(stack)
		s.places[at] = n
	}
	return n
}

// find returns the number of a stack by its frames.
func (s *Stacks[F]) find(stack []F) int {
	key := make([]byte, 0, 4*len(stack))
	for _, f := range stack {
		i, ok := s.frames[f]
		if !ok {
			i = uint32(len(s.frames))
			s.frames[f] = i
		}
		key = binary.LittleEndian.AppendUint32(key, i)
	}
	n, ok := s.stacks[string(key)]
	if !ok {
		n = len(s.stacks)
		s.stacks[string(key)] = n
	}
	return n
}
