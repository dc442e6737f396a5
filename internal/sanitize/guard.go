package sanitize

import (
	"errors"
	"fmt"
	"sync"

	"github.com/cupool/cupool/device"
)

// Guards gives every block addresses of its own, between addresses that have no
// memory: the device faults when it touches those. A block ends where its memory
// does. It is safe for use from several goroutines.
type Guards struct {
	vm device.VirtualMemory

	mu     sync.Mutex
	blocks map[device.Ptr]guarded
	left   []guarded // addresses that the device would not take back
}

// guarded is the addresses of a block.
type guarded struct {
	base   device.Ptr
	memory int64 // bytes behind the first guard
	mapped bool
}

// NewGuards returns the guards over a device, or ErrNotSupported.
func NewGuards(d any, name string) (*Guards, error) {
	vm, ok := d.(device.VirtualMemory)
	if !ok || vm.VMMGranularity() == 0 {
		return nil, fmt.Errorf("cupool: Sanitize.Guard on %s, which has no virtual memory: %w", name, device.ErrNotSupported)
	}
	return &Guards{vm: vm, blocks: map[device.Ptr]guarded{}}, nil
}

// addresses returns how many addresses are reserved.
func (g *Guards) addresses(x guarded) int64 { return x.memory + 2*g.vm.VMMGranularity() }

// start returns where the memory begins.
func (g *Guards) start(x guarded) device.Ptr { return x.base + device.Ptr(g.vm.VMMGranularity()) }

// Alloc returns size bytes of memory, a multiple of 512, with guards.
func (g *Guards) Alloc(size int64) (device.Ptr, error) {
	unit := g.vm.VMMGranularity()
	x := guarded{memory: (size + unit - 1) / unit * unit}
	var err error
	if x.base, err = g.vm.AddressReserve(g.addresses(x)); err != nil {
		return 0, err
	}
	handle, err := g.vm.MemCreate(x.memory)
	if err != nil {
		return 0, errors.Join(err, g.vm.AddressFree(x.base, g.addresses(x)))
	}
	if err = g.vm.MemMap(g.start(x), x.memory, handle); err == nil {
		if err = g.vm.MemSetAccess(g.start(x), x.memory); err != nil {
			err = errors.Join(err, g.vm.MemUnmap(g.start(x), x.memory))
		}
	}
	err = errors.Join(err, g.vm.MemRelease(handle)) // it lives as long as it is mapped
	if err != nil {
		return 0, errors.Join(err, g.vm.AddressFree(x.base, g.addresses(x)))
	}
	x.mapped = true
	p := g.start(x) + device.Ptr(x.memory-size)
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
	if !ok || !x.mapped {
		return nil
	}
	if err := g.vm.MemUnmap(g.start(x), x.memory); err != nil {
		return fmt.Errorf("cupool: unmapping the guarded block at %v (%d bytes): %w", p, x.memory, err)
	}
	x.mapped = false
	g.blocks[p] = x
	return nil
}

// Free gives everything of a block back. What the device refuses to take is
// tried again with the next block.
func (g *Guards) Free(p device.Ptr, _ int64) error {
	if err := g.Unmap(p); err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.left = append(g.left, g.blocks[p])
	delete(g.blocks, p)
	var kept []guarded
	for _, x := range g.left {
		if g.vm.AddressFree(x.base, g.addresses(x)) != nil {
			kept = append(kept, x)
		}
	}
	g.left = kept
	return nil
}
