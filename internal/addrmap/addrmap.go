// Package addrmap maps device addresses to blocks: a radix tree of four
// levels of 4,096 entries. A look-up is four loads and takes no lock. A leaf
// takes 16 KiB and exists only where a block has ever begun: with units of 512
// bytes it covers 2 MiB (0.8 % of the memory it describes), with units of
// 1 MiB it covers 4 GiB. Leaves stay for the memory that comes to the same
// addresses next: making one costs more than all else about a small segment.
// Forget gives those of large ranges of addresses back.
// Coarse units are for blocks that are larger than one, so that no two begin
// in the same: their map stays in the cache.
package addrmap

import (
	"sync/atomic"

	"github.com/cupool/cupool/internal/lock"
)

const (
	levelBits = 12
	fanout    = 1 << levelBits

	leafShift = levelBits // bits of a unit's number below a leaf
	midShift  = leafShift + levelBits
	topShift  = midShift + levelBits
	maxBits   = topShift + levelBits
)

type (
	leaf [fanout]atomic.Uint32
	mid  [fanout]atomic.Pointer[leaf]
	top  [fanout]atomic.Pointer[mid]
)

// Map maps addresses to non-zero 32-bit values, one for each unit. New
// makes one. All methods are safe from several goroutines, but that one at a
// time may set the value of a unit: whoever owns the memory there.
type Map struct {
	root     [fanout]atomic.Pointer[top]
	unitBits uint

	mu    lock.Mutex // taken to add nodes
	bytes atomic.Int64
}

// New returns an empty map with units of 1<<unitBits bytes. It holds
// addresses below 2^(48+unitBits).
func New(unitBits uint) *Map { return &Map{unitBits: unitBits} }

// Get returns the value last set in the unit that holds addr, or 0.
func (m *Map) Get(addr uint64) uint32 {
	u := addr >> m.unitBits
	if l := m.find(u); l != nil {
		return l[u%fanout].Load()
	}
	return 0
}

func (m *Map) find(u uint64) *leaf {
	if u>>maxBits != 0 {
		return nil
	}
	t := m.root[u>>topShift].Load()
	if t == nil {
		return nil
	}
	n := t[u>>midShift%fanout].Load()
	if n == nil {
		return nil
	}
	return n[u>>leafShift%fanout].Load()
}

// Set sets the value of the unit that holds addr and reports whether the
// map can hold the address. It stores only a change, which costs more than a look.
func (m *Map) Set(addr uint64, v uint32) bool {
	u := addr >> m.unitBits
	l := m.find(u)
	if l == nil {
		if u>>maxBits != 0 {
			return false
		}
		l = m.grow(u)
	}
	if at := &l[u%fanout]; at.Load() != v {
		at.Store(v)
	}
	return true
}

func (m *Map) grow(u uint64) *leaf {
	m.mu.Lock()
	defer m.mu.Unlock()
	t := child(&m.root[u>>topShift], &m.bytes, fanout*8)
	n := child(&t[u>>midShift%fanout], &m.bytes, fanout*8)
	return child(&n[u>>leafShift%fanout], &m.bytes, fanout*4)
}

func child[T any](p *atomic.Pointer[T], bytes *atomic.Int64, size int64) *T {
	if c := p.Load(); c != nil {
		return c
	}
	c := new(T)
	p.Store(c)
	bytes.Add(size)
	return c
}

// Forget gives back the leaves for what lies wholly in size bytes from addr on,
// where the caller owns all memory and no value is needed any more. A look-up
// that is under way may still find what was there.
func (m *Map) Forget(addr, size uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	from := (addr>>m.unitBits + fanout - 1) >> leafShift
	to := min((addr+size)>>m.unitBits, 1<<maxBits) >> leafShift
	for n := from; n < to; n++ {
		u := n << leafShift
		t := m.root[u>>topShift].Load()
		if t == nil {
			continue
		}
		if mid := t[u>>midShift%fanout].Load(); mid != nil && mid[n%fanout].Swap(nil) != nil {
			m.bytes.Add(-fanout * 4)
		}
	}
}

// Bytes returns the memory that the nodes take, without the root.
func (m *Map) Bytes() int64 { return m.bytes.Load() }
