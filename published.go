package cupool

import (
	"slices"
	"sync/atomic"
)

// published is a list that is read without a lock, by any number of goroutines, while one at
// a time changes it: each change publishes a copy. The zero one is empty.
type published[T comparable] struct{ now atomic.Pointer[[]T] }

// All returns the list as it is now. It must not be changed.
func (l *published[T]) All() []T {
	if p := l.now.Load(); p != nil {
		return *p
	}
	return nil
}

// At returns an element, and the zero T beyond the end.
func (l *published[T]) At(i int) (x T) {
	if p := l.now.Load(); p != nil && i < len(*p) {
		x = (*p)[i]
	}
	return x
}

// Set changes an element. Zero Ts fill the list up to it where it is beyond the end.
func (l *published[T]) Set(i int, x T) {
	list := make([]T, max(len(l.All()), i+1))
	copy(list, l.All())
	list[i] = x
	l.now.Store(&list)
}

// Add adds an element at the end.
func (l *published[T]) Add(x T) { l.Set(len(l.All()), x) }

// Remove takes an element out, as often as the list has it.
func (l *published[T]) Remove(x T) {
	list := l.Without(func(y T) bool { return y == x })
	l.now.Store(&list)
}

// Without returns a list of the elements for which del is false.
func (l *published[T]) Without(del func(T) bool) []T {
	return slices.DeleteFunc(slices.Clone(l.All()), del)
}

// Same reports whether the list is the one that All returned, unchanged since.
func (l *published[T]) Same(all []T) bool {
	now := l.All()
	return len(now) == len(all) && (len(now) == 0 || &now[0] == &all[0])
}
