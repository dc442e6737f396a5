// Package handles gives out the handles by which a device's streams and events
// are named, and finds what they name.
package handles

import (
	"sync"
	"sync/atomic"
)

// A handle is index+1 in its low indexBits and a generation above them, so
// that a handle of something destroyed is told from its slot's next owner. No
// handle is 0.
const (
	indexBits = 20
	indexMask = 1<<indexBits - 1
	chunkSize = 256
)

// A Table finds objects by handle. It is safe from several goroutines. Get
// takes no lock, as it is on the path of every submission and every event
// query; the others take mu. The zero Table is empty and ready.
type Table[T any] struct {
	mu     sync.Mutex
	chunks atomic.Pointer[[]*chunk[T]] // replaced, never changed; a chunk stays where it is
	free   []uint32                    // indexes without an owner
	gens   []uintptr                   // generation of each index's next owner
	live   atomic.Int64
}

type chunk[T any] [chunkSize]atomic.Pointer[entry[T]]

type entry[T any] struct {
	handle uintptr
	value  *T
}

// Add enters v and returns its handle, or 0 when all indexes are in use.
func (t *Table[T]) Add(v *T) uintptr {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.free) == 0 && !t.growLocked() {
		return 0
	}
	i := t.free[len(t.free)-1]
	t.free = t.free[:len(t.free)-1]
	h := t.gens[i]<<indexBits | uintptr(i+1)
	t.slot(i).Store(&entry[T]{h, v})
	t.live.Add(1)
	return h
}

// Get returns the object of handle h, or nil.
func (t *Table[T]) Get(h uintptr) *T {
	s := t.slot(uint32(h&indexMask) - 1)
	if s == nil {
		return nil
	}
	if e := s.Load(); e != nil && e.handle == h {
		return e.value
	}
	return nil
}

// Remove takes h out and returns its object, or nil when h names none. Of
// several callers with the same h one gets the object.
func (t *Table[T]) Remove(h uintptr) *T {
	t.mu.Lock()
	defer t.mu.Unlock()
	v := t.Get(h)
	if v == nil {
		return nil
	}
	i := uint32(h&indexMask) - 1
	t.slot(i).Store(nil)
	t.gens[i]++
	t.free = append(t.free, i)
	t.live.Add(-1)
	return v
}

// All returns the objects in the table, ordered by index.
func (t *Table[T]) All() []*T {
	t.mu.Lock()
	defer t.mu.Unlock()
	var vs []*T
	for i := range t.gens {
		if e := t.slot(uint32(i)).Load(); e != nil {
			vs = append(vs, e.value)
		}
	}
	return vs
}

func (t *Table[T]) slot(i uint32) *atomic.Pointer[entry[T]] {
	chunks := t.chunks.Load()
	if chunks == nil || int(i/chunkSize) >= len(*chunks) {
		return nil
	}
	return &(*chunks)[i/chunkSize][i%chunkSize]
}

// growLocked adds a chunk of free indexes, lowest last so that it goes first.
func (t *Table[T]) growLocked() bool {
	n := len(t.gens)
	if n+chunkSize > indexMask {
		return false
	}
	var chunks []*chunk[T]
	if old := t.chunks.Load(); old != nil {
		chunks = append(chunks, *old...)
	}
	chunks = append(chunks, new(chunk[T]))
	t.chunks.Store(&chunks)
	t.gens = append(t.gens, make([]uintptr, chunkSize)...)
	for i := n + chunkSize - 1; i >= n; i-- {
		t.free = append(t.free, uint32(i))
	}
	return true
}

// Clear takes everything out.
func (t *Table[T]) Clear() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range t.gens {
		if s := t.slot(uint32(i)); s.Load() != nil {
			s.Store(nil)
			t.gens[i]++
			t.free = append(t.free, uint32(i))
			t.live.Add(-1)
		}
	}
}

// Len returns the number of objects in the table.
func (t *Table[T]) Len() int { return int(t.live.Load()) }
