// Package later keeps values until somebody has time for them. Any goroutine puts
// them in without a lock, even a cleanup of the garbage collector.
package later

import "github.com/cupool/cupool/internal/atomic"

// Stack holds values, the newest first. The zero Stack is empty. Its methods are
// safe from several goroutines.
type Stack[T any] struct{ head atomic.Pointer[node[T]] }

type node[T any] struct {
	value T
	next  *node[T]
}

// Push puts a value in (Treiber 1986).
func (s *Stack[T]) Push(value T) {
	n := &node[T]{value: value}
	for {
		n.next = s.head.Load()
		if s.head.CompareAndSwap(n.next, n) {
			return
		}
	}
}

// Drain takes all values out and calls f for each.
func (s *Stack[T]) Drain(f func(T)) {
	for n := s.head.Swap(nil); n != nil; n = n.next {
		f(n.value)
	}
}
