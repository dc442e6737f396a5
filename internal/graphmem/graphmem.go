// Package graphmem keeps the blocks that a graph allocates while it is captured.
// Blocks that were freed are handed out again for the same size only, since the
// graph has their addresses.
//
// A capture may fork: a second stream then works beside the first, until they
// are joined. What is freed in between goes to a list of its own, from which only
// forks are served, unless the block was allocated outside of them and since the
// last one. All that a fork did not see the end of comes before the next one, but
// before a join nothing of the second stream comes before what the first is given.
package graphmem

import (
	"errors"
	"sync"

	"github.com/cupool/cupool/device"
)

// Blocks are the blocks B of one graph. Its methods are safe from several
// goroutines. The zero Blocks has none.
type Blocks[B any] struct {
	mu          sync.Mutex
	at          map[device.Ptr]*held[B]
	idle, later lists[B]
	forks       int  // so far
	open        bool // there was no Join since the last of them
	inFork      bool
}

// lists are blocks that are free, by size.
type lists[B any] map[int64][]*held[B]

type held[B any] struct {
	block B
	size  int64
	freed bool
	use   uint64 // how often it was handed out again
	forks int    // that the block certainly has nothing to do with: so many were before it was allocated
}

// take removes the block that came last.
func (l lists[B]) take(size int64) *held[B] {
	n := len(l[size])
	if n == 0 {
		return nil
	}
	b := l[size][n-1]
	l[size] = l[size][:n-1]
	return b
}

// Take hands out a block of a size, in bytes, that was freed. It was handed out
// again as often as use says.
func (m *Blocks[B]) Take(size int64) (block B, use uint64, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var h *held[B]
	if m.inFork {
		h = m.later.take(size)
	}
	if h == nil {
		h = m.idle.take(size)
	}
	if h == nil {
		return block, 0, false
	}
	h.use++
	m.useLocked(h)
	return h.block, h.use, true
}

// Add puts in a new block, which is in use.
func (m *Blocks[B]) Add(block B, p device.Ptr, size int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.at == nil {
		m.at, m.idle, m.later = map[device.Ptr]*held[B]{}, lists[B]{}, lists[B]{}
	}
	h := &held[B]{block: block, size: size}
	m.at[p] = h
	m.useLocked(h)
}

func (m *Blocks[B]) useLocked(h *held[B]) {
	h.freed, h.forks = false, m.forks
	if m.inFork {
		h.forks-- // this one uses it
	}
}

// At returns the block at an address, how often it was handed out again, and
// whether it is free at present.
func (m *Blocks[B]) At(p device.Ptr) (block B, use uint64, freed, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if h := m.at[p]; h != nil {
		return h.block, h.use, h.freed, true
	}
	return block, 0, false, false
}

// Any returns one of the blocks.
func (m *Blocks[B]) Any() (block B, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, h := range m.at {
		return h.block, true
	}
	return block, false
}

// Free takes back the block at an address. It reports false where the graph has
// none there that is in use.
func (m *Blocks[B]) Free(p device.Ptr) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	h := m.at[p]
	if h == nil || h.freed {
		return false
	}
	h.freed = true
	to := m.idle
	if m.inFork || m.open && h.forks < m.forks {
		to = m.later
	}
	to[h.size] = append(to[h.size], h)
	return true
}

// Fork begins a fork.
func (m *Blocks[B]) Fork() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.forks++
	m.open, m.inFork = true, true
}

// EndFork ends the fork's work; the fork stays open until Join.
func (m *Blocks[B]) EndFork() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.inFork = false
}

// Join has all that was freed serve again, because the streams work one after
// the other.
func (m *Blocks[B]) Join() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.open = false
	for size, hs := range m.later {
		m.idle[size] = append(m.idle[size], hs...)
	}
	clear(m.later)
}

// Drop removes all blocks, calls free for each and joins its errors.
func (m *Blocks[B]) Drop(free func(B) error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	var errs []error
	for _, h := range m.at {
		errs = append(errs, free(h.block))
	}
	clear(m.at)
	clear(m.idle)
	clear(m.later)
	return errors.Join(errs...)
}
