package cuda

import (
	"slices"
	"sort"
	"sync"
)

type spanKind uint8

const (
	spanAllocated spanKind = iota // device memory
	spanManaged                   // managed memory
	spanPinned                    // page-locked host memory
	spanReserved                  // addresses of virtual memory
)

// A span is a range of addresses that a Driver has from CUDA.
type span struct {
	start  Ptr
	size   int64
	kind   spanKind
	owner  owner
	mapped []mapping // spanReserved: by address; guarded by the book's lock
}

// A mapping is a handle at an address.
type mapping struct {
	start Ptr
	size  int64
}

// An addressBook has the spans of a context, by address. They do not overlap.
type addressBook struct {
	mu    sync.RWMutex
	spans []span
}

// after returns the index of the first span that starts after p.
func (b *addressBook) after(p Ptr) int {
	return sort.Search(len(b.spans), func(i int) bool { return b.spans[i].start > p })
}

// holding returns the span that p is in, or nil. The caller holds the lock.
func (b *addressBook) holding(p Ptr) *span {
	i := b.after(p)
	if i == 0 || int64(p-b.spans[i-1].start) >= b.spans[i-1].size {
		return nil
	}
	return &b.spans[i-1]
}

// count returns the number of the spans of an owner and their bytes.
func (b *addressBook) count(o owner) (n int, bytes int64) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	for _, s := range b.spans {
		if s.owner == o {
			n++
			bytes += s.size
		}
	}
	return n, bytes
}

// find returns the bounds of the span that p is in, and what it is.
func (b *addressBook) find(p Ptr) (start Ptr, size int64, kind spanKind, ok bool) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	if s := b.holding(p); s != nil {
		return s.start, s.size, s.kind, true
	}
	return 0, 0, 0, false
}

// mappingsOf returns the span that p is in, and of reserved addresses the mappings
// under n bytes, or none where they are not all mapped.
func (b *addressBook) mappingsOf(p Ptr, n int64) (start Ptr, size int64, kind spanKind, mapped []mapping) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	s := b.holding(p)
	if s == nil {
		return 0, 0, 0, nil
	}
	at := p
	for _, m := range s.mapped {
		if at >= m.start && at < m.end() && at < p+Ptr(n) {
			mapped = append(mapped, m)
			at = m.end()
		}
	}
	if at < p+Ptr(n) {
		mapped = nil
	}
	return s.start, s.size, s.kind, mapped
}

func (b *addressBook) add(s span) {
	b.mu.Lock()
	defer b.mu.Unlock()
	i := b.after(s.start)
	b.spans = append(b.spans, span{})
	copy(b.spans[i+1:], b.spans[i:])
	b.spans[i] = s
}

// take removes the span of the Driver that starts at p.
func (b *addressBook) take(p Ptr, kind spanKind, o owner) (span, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	i := b.after(p) - 1
	if i < 0 || b.spans[i].start != p || b.spans[i].kind != kind || b.spans[i].owner != o {
		return span{}, false
	}
	s := b.spans[i]
	b.spans = append(b.spans[:i], b.spans[i+1:]...)
	return s, true
}

func (b *addressBook) takeAll(o owner) (taken []span) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var kept []span
	for _, s := range b.spans {
		if s.owner == o {
			taken = append(taken, s)
		} else {
			kept = append(kept, s)
		}
	}
	b.spans = kept
	return taken
}

// firstFrom returns the index of the first mapping at or after p.
func (s *span) firstFrom(p Ptr) int {
	i, _ := slices.BinarySearchFunc(s.mapped, p, func(m mapping, p Ptr) int {
		return int(int64(m.start) - int64(p))
	})
	return i
}

func (m mapping) end() Ptr { return m.start + Ptr(m.size) }
