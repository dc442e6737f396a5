package operand

import (
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/cupool/cupool/device"
	"github.com/cupool/cupool/internal/callstack"
)

// Copier is a function that asks an engine for memory, or "". Where the CPU
// cannot touch the memory, those below need to be known, and tensor does not
// tell the engine.
type Copier string

const (
	// Materialize calls Memcpy if the tensor has no gaps. Otherwise it would copy
	// the elements itself, sees that it cannot, and returns a tensor of zeros
	// without an error.
	Materialize Copier = "gorgonia.org/tensor.(*Dense).Materialize"
	// CloneValue makes what Gorgonia's solvers remember, which they zero on the
	// CPU.
	CloneValue Copier = "gorgonia.org/gorgonia.CloneValue"
	// Outer zeroes the memory on the CPU before it calls the engine.
	Outer Copier = "gorgonia.org/tensor.(*Dense).Outer"
)

// Copiers call an engine's Alloc through functions of tensor and Gorgonia alone, and
// through the Alloc of an engine around it.
var copiers = callstack.NewFinder(isTensors, string(Materialize), string(CloneValue), string(Outer))

// makers make tensors for who calls tensor, and for no operation of its.
var makers = callstack.NewFinder(isTensors, "gorgonia.org/tensor.New", "gorgonia.org/tensor.NewDense")

func isTensors(function string) bool {
	return strings.HasPrefix(function, "gorgonia.org/") || strings.HasSuffix(function, ".Alloc") ||
		strings.HasPrefix(function, "github.com/cupool/cupool.(") || strings.HasPrefix(function, "github.com/cupool/cupool/internal/tensorop/operand.Find")
}

// FindCopier returns the Copier that the caller of FindCopier was called by.
func FindCopier() Copier { return Copier(copiers.Find()) }

// FindMaker returns tensor.New or NewDense where the caller of FindMaker was called by
// one of them, and else "".
func FindMaker() string { return makers.Find() }

// Copies is the memory that Copiers have got and that the engine was not called
// with since. Blocks of the type B are for Materialize. Memory for CloneValue and
// Outer is in Go's heap, where tensor keeps it by an address alone at first. The
// zero value has none. Its methods are safe from several goroutines.
type Copies[B comparable] struct {
	n      atomic.Int64 // of all below
	mu     sync.Mutex
	heap   map[device.Ptr][]uint64
	blocks map[B]struct{}
}

// Awaited reports whether there are any.
func (c *Copies[B]) Awaited() bool { return c.n.Load() != 0 }

// InHeap returns size bytes of zeroed memory in Go's heap for a copy.
func (c *Copies[B]) InHeap(size int64) *Memory {
	words, m := InHeap(size)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.heap == nil {
		c.heap = make(map[device.Ptr][]uint64)
	}
	c.heap[m.Ptr] = words
	c.countLocked()
	return &m
}

// InHeap returns size bytes of zeroed memory in Go's heap, as a slice that keeps
// it and as tensor sees it.
func InHeap(size int64) ([]uint64, Memory) {
	words := make([]uint64, (size+7)/8)
	return words, Memory{Ptr: device.Ptr(unsafe.Pointer(unsafe.SliceData(words))), Size: size}
}

// Expect adds a block for a copy. It forgets those that are not live any more.
func (c *Copies[B]) Expect(b B, live func(B) bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.blocks, func(old B, _ struct{}) bool { return !live(old) })
	if c.blocks == nil {
		c.blocks = make(map[B]struct{})
	}
	c.blocks[b] = struct{}{}
	c.countLocked()
}

// Arrive takes away the memory at an address, in a block if there is one there,
// and reports whether it was in Go's heap.
func (c *Copies[B]) Arrive(at device.Ptr, b B) (inHeap bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, inHeap = c.heap[at]
	delete(c.heap, at)
	delete(c.blocks, b)
	c.countLocked()
	return inHeap
}

// Misses reports whether the copy in a block did not arrive.
func (c *Copies[B]) Misses(b B) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, ok := c.blocks[b]
	return ok
}

func (c *Copies[B]) countLocked() { c.n.Store(int64(len(c.blocks) + len(c.heap))) }
