package hook

import (
	"fmt"
	"sync"

	"github.com/cupool/cupool"
)

// Tally counts what a device has given and not got back. The zero Tally counts
// nothing yet.
type Tally struct {
	mu      sync.Mutex
	allocs  map[cupool.Ptr]int64   // of MemAlloc
	handles map[uintptr]*physical  // of MemCreate, that were not released
	maps    map[cupool.Ptr]*mapped // by their first address
	bytes   int64                  // of memory
	ranges  int                    // of addresses
	streams int
	events  int
}

// physical is physical memory, which lives on while it is mapped.
type physical struct {
	size int64
	uses int // its handle, and where it is mapped
}

type mapped struct {
	*physical
	size int64
}

// Count makes a call and counts it. What is given back is taken out before the
// call: after it, the address or handle may be another's.
func (t *Tally) Count(c *Call, do func() error) error {
	gone := t.take(c)
	err := do()
	t.mu.Lock()
	defer t.mu.Unlock()
	if err != nil {
		gone.putBackLocked(t)
		return err
	}
	if t.allocs == nil {
		t.allocs, t.handles, t.maps = map[cupool.Ptr]int64{}, map[uintptr]*physical{}, map[cupool.Ptr]*mapped{}
	}
	switch c.Name {
	case "MemAlloc":
		t.allocs[c.Ptr] = c.Size
		t.bytes += c.Size
	case "MemFree":
		t.bytes -= gone.alloc
	case "NewStream":
		t.streams++
	case "DestroyStream":
		t.streams--
	case "NewEvent":
		t.events++
	case "DestroyEvent":
		t.events--
	case "AddressReserve":
		t.ranges++
	case "AddressFree":
		t.ranges--
	case "MemCreate":
		t.handles[c.Handle] = &physical{c.Size, 1}
		t.bytes += c.Size
	case "MemRelease":
		t.dropLocked(gone.handle)
	case "MemMap":
		p := t.handles[c.Handle]
		p.uses++
		t.maps[c.Ptr] = &mapped{p, c.Size}
	case "MemUnmap":
		for _, m := range gone.maps {
			t.dropLocked(m.physical)
		}
	}
	return nil
}

// taken is what a call is about to give back.
type taken struct {
	c      *Call
	alloc  int64 // bytes
	handle *physical
	maps   map[cupool.Ptr]*mapped
}

func (t *Tally) take(c *Call) taken {
	t.mu.Lock()
	defer t.mu.Unlock()
	gone := taken{c: c}
	switch c.Name {
	case "MemFree":
		gone.alloc = t.allocs[c.Ptr]
		delete(t.allocs, c.Ptr)
	case "MemRelease":
		gone.handle = t.handles[c.Handle]
		delete(t.handles, c.Handle)
	case "MemUnmap":
		gone.maps = map[cupool.Ptr]*mapped{}
		for at := c.Ptr; at < c.Ptr+cupool.Ptr(c.Size) && t.maps[at] != nil; {
			m := t.maps[at]
			gone.maps[at] = m
			delete(t.maps, at)
			at += cupool.Ptr(m.size)
		}
	}
	return gone
}

func (g *taken) putBackLocked(t *Tally) {
	if g.alloc > 0 {
		t.allocs[g.c.Ptr] = g.alloc
	}
	if g.handle != nil {
		t.handles[g.c.Handle] = g.handle
	}
	for at, m := range g.maps {
		t.maps[at] = m
	}
}

func (t *Tally) dropLocked(p *physical) {
	if p.uses--; p.uses == 0 {
		t.bytes -= p.size
	}
}

// Held returns the bytes of memory that the device was asked for and has not got
// back.
func (t *Tally) Held() int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.bytes
}

// Ranges returns the number of address ranges that were reserved and not
// given back.
func (t *Tally) Ranges() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.ranges
}

// Leaks says what the device has given and not got back, "" for nothing.
func (t *Tally) Leaks() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.allocs)+len(t.handles)+len(t.maps)+t.ranges+t.streams+t.events == 0 {
		return ""
	}
	return fmt.Sprintf("%d bytes in %d allocations, %d handles and %d mappings, %d ranges of addresses, %d streams, %d events",
		t.bytes, len(t.allocs), len(t.handles), len(t.maps), t.ranges, t.streams, t.events)
}
