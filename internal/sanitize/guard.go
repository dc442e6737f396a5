package sanitize

import (
	"errors"
	"fmt"
	"sync"

	"github.com/cupool/cupool/device"
	"github.com/cupool/cupool/internal/sizeclass"
	"github.com/cupool/cupool/internal/vmem"
)

// Guards gives every block addresses of its own, between addresses that have no
// memory: the device faults when it touches those. A block ends where its memory
// does. What the device refuses to take back is tried again later. It is safe for use
// from several goroutines.
type Guards struct {
	memory *vmem.Mapper

	mu     sync.Mutex
	blocks map[device.Ptr]guarded
}

// guarded is the addresses of a block.
type guarded struct {
	base   device.Ptr
	memory vmem.Piece // behind the first guard; without a handle: it was taken away
}

// NewGuards returns the guards over a device, or ErrNotSupported.
func NewGuards(d any, name string) (*Guards, error) {
	vm, ok := d.(device.VirtualMemory)
	if !ok || vm.VMMGranularity() == 0 {
		return nil, fmt.Errorf("cupool: Sanitize.Guard on %s, which has no virtual memory: %w", name, device.ErrNotSupported)
	}
	pass := func(err error) error { return err }
	return &Guards{memory: vmem.New(vm, name, 0, uncounted{}, pass), blocks: map[device.Ptr]guarded{}}, nil
}

// uncounted is a vmem.Budget of memory that the heap counts.
type uncounted struct{}

func (uncounted) Held() int64      { return 0 }
func (uncounted) Take(int64) error { return nil }
func (uncounted) Cancel(int64)     {}
func (uncounted) Keep()            {}
func (uncounted) Return(int64)     {}

// addresses returns how many addresses are reserved for so much memory.
func (g *Guards) addresses(memory int64) int64 { return memory + 2*g.memory.Granularity }

// start returns where the memory begins.
func (g *Guards) start(x guarded) device.Ptr { return x.base + device.Ptr(g.memory.Granularity) }

// Alloc returns size bytes of memory, a multiple of 512, with guards.
func (g *Guards) Alloc(size int64) (device.Ptr, error) {
	x := guarded{memory: vmem.Piece{Size: sizeclass.RoundTo(size, g.memory.Granularity)}}
	var err error
	if x.base, err = g.memory.Reserve(g.addresses(x.memory.Size)); err != nil {
		return 0, err
	}
	handles, err := g.memory.Create(g.start(x), []int64{x.memory.Size})
	if err != nil {
		return 0, errors.Join(err, g.memory.Unreserve(x.base, g.addresses(x.memory.Size)))
	}
	x.memory.Handle = handles[0]
	p := g.start(x) + device.Ptr(x.memory.Size-size)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.blocks[p] = x
	return p, nil
}

// Unmap takes the memory away from a block that no work uses any more. Its
// addresses stay reserved.
func (g *Guards) Unmap(p device.Ptr) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	x, ok := g.blocks[p]
	if !ok || x.memory.Handle == 0 {
		return nil
	}
	if err := g.memory.Unmap(g.start(x), x.memory.Size); err != nil {
		return fmt.Errorf("cupool: the guarded block at %v: %w", p, err)
	}
	_ = g.memory.Release(x.memory) // where it fails, it is tried again
	x.memory.Handle = 0
	g.blocks[p] = x
	return nil
}

// Free gives everything of a block back.
func (g *Guards) Free(p device.Ptr, _ int64) error {
	if err := g.Unmap(p); err != nil {
		return err
	}
	g.mu.Lock()
	x := g.blocks[p]
	delete(g.blocks, p)
	g.mu.Unlock()
	_ = g.memory.Unreserve(x.base, g.addresses(x.memory.Size)) // as in Unmap
	return nil
}

// Retry tries again to give back what the device refused to take.
func (g *Guards) Retry() error { return g.memory.Retry() }

// Left reports whether there is something to Retry.
func (g *Guards) Left() bool { return g.memory.Left() }
