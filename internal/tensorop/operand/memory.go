package operand

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/cupool/cupool/device"
)

// Memory is a block of device memory as tensor sees it.
type Memory struct {
	Ptr       device.Ptr
	Size      int64  // bytes
	Slot      uint32 // of the block, in the table of its allocator
	Allocator uint32 // the number of that; 0: the memory is of none
}

// Uintptr implements tensor.Memory.
func (m *Memory) Uintptr() uintptr { return uintptr(m.Ptr) }

// MemSize implements tensor.Memory.
func (m *Memory) MemSize() uintptr { return uintptr(m.Size) }

// String prints the address and the size.
func (m *Memory) String() string { return fmt.Sprintf("%v (%d bytes)", m.Ptr, m.Size) }

// Memories holds one Memory for each slot of an allocator's table of blocks, so
// that an allocation makes no Go object. A Memory is overwritten when its slot is
// handed out again. There is a table for each allocator, of which there are few:
// that of the engine, and pools that lend it memory. Its methods are safe from
// several goroutines.
type Memories struct {
	tables atomic.Pointer[[]*memoryTable]
	mu     sync.Mutex // taken to add a table
}

// Set returns the Memory of a slot of an allocator, set to an address and a size.
func (ms *Memories) Set(allocator, slot uint32, p device.Ptr, size int64) *Memory {
	if tables := ms.tables.Load(); tables != nil {
		for _, t := range *tables {
			if t.allocator == allocator {
				return t.set(slot, p, size)
			}
		}
	}
	return ms.add(allocator).set(slot, p, size)
}

func (ms *Memories) add(allocator uint32) *memoryTable {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	var tables []*memoryTable
	if old := ms.tables.Load(); old != nil {
		tables = slices.Clone(*old)
	}
	if i := slices.IndexFunc(tables, func(t *memoryTable) bool { return t.allocator == allocator }); i >= 0 {
		return tables[i]
	}
	t := &memoryTable{allocator: allocator}
	tables = append(tables, t)
	ms.tables.Store(&tables)
	return t
}

const memoryChunk = 1 << 10

// memoryTable holds the Memory of each slot, in chunks that do not move.
type memoryTable struct {
	allocator uint32
	chunks    atomic.Pointer[[]*[memoryChunk]Memory]
	mu        sync.Mutex // taken to add chunks
}

func (t *memoryTable) set(slot uint32, p device.Ptr, size int64) *Memory {
	i := int(slot / memoryChunk)
	chunks := t.chunks.Load()
	if chunks == nil || i >= len(*chunks) || (*chunks)[i] == nil {
		chunks = t.grow(i)
	}
	m := &(*chunks)[i][slot%memoryChunk]
	*m = Memory{p, size, slot, t.allocator}
	return m
}

func (t *memoryTable) grow(i int) *[]*[memoryChunk]Memory {
	t.mu.Lock()
	defer t.mu.Unlock()
	var chunks []*[memoryChunk]Memory
	if old := t.chunks.Load(); old != nil {
		chunks = slices.Clone(*old)
	}
	for len(chunks) <= i {
		chunks = append(chunks, nil)
	}
	if chunks[i] == nil {
		chunks[i] = new([memoryChunk]Memory)
	}
	t.chunks.Store(&chunks)
	return &chunks
}
