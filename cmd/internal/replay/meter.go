package replay

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/hook"
	"github.com/cupool/cupool/internal/simdev"
)

// meter counts the successful calls of a device and adds up what they cost
// by simdev's model, so that real devices compare with simulated ones.
type meter struct {
	changed func(reserved int64) // called when the physical memory in use changes

	mu      sync.Mutex
	used    int64 // bytes of physical memory
	made    calls
	allocs  map[cupool.Ptr]int64 // bytes
	handles map[uintptr]int64    // bytes
	maps    map[cupool.Ptr]piece // what is mapped, by address
}

// piece is a handle's memory where it is mapped.
type piece struct {
	at     cupool.Ptr
	size   int64
	handle uintptr
}

// calls are what was asked of a driver so far.
type calls struct {
	allocs, frees int64         // of physical memory
	cost          time.Duration // modelled, of all calls
}

// modelled are the calls of simdev's model, by name.
var modelled = func() map[string]simdev.Call {
	byName := map[string]simdev.Call{}
	for c := range simdev.NumCalls {
		byName[c.String()] = c
	}
	return byName
}()

// newMeter returns the driver to use in place of d.
func newMeter(d cupool.Driver) (cupool.Driver, *meter) {
	m := &meter{allocs: map[cupool.Ptr]int64{}, handles: map[uintptr]int64{}, maps: map[cupool.Ptr]piece{}}
	return &hook.Driver{Driver: d, Around: m.count}, m
}

func (m *meter) calls() calls {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.made
}

// count makes a call and counts it. What is given back is taken out of the books before the call:
// once the device has it back, another call may be given its address.
func (m *meter) count(c *hook.Call, do func() error) error {
	size, handles := m.before(c)
	err := do()
	m.mu.Lock()
	defer m.mu.Unlock()
	if err != nil {
		switch c.Name {
		case "MemFree":
			m.allocs[c.Ptr] = size
		case "MemRelease":
			m.handles[c.Handle] = size
		}
		return err
	}
	m.made.cost += simdev.Cost(modelled[c.Name], size, handles)
	switch c.Name {
	case "MemAlloc":
		m.allocs[c.Ptr] = size
		m.useLocked(size)
	case "MemCreate":
		m.handles[c.Handle] = size
		m.useLocked(size)
	case "MemFree", "MemRelease":
		m.useLocked(-size)
	case "MemMap":
		m.maps[c.Ptr] = piece{c.Ptr, size, c.Handle}
	case "MemUnmap":
		m.eachInLocked(c.Ptr, size, func(x piece) { delete(m.maps, x.at) })
	}
	return nil
}

// before returns the bytes and handles of a call, and takes what it gives back out of the books.
func (m *meter) before(c *hook.Call) (size int64, handles int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	size, handles = c.Size, 1
	switch c.Name {
	case "MemFree":
		size = m.allocs[c.Ptr]
		delete(m.allocs, c.Ptr)
	case "MemRelease":
		size = m.handles[c.Handle]
		delete(m.handles, c.Handle)
	case "MemSetAccess", "MemUnmap":
		handles = 0
		m.eachInLocked(c.Ptr, size, func(piece) { handles++ })
	}
	return size, handles
}

// useLocked counts a call that got physical memory, or gave some back.
func (m *meter) useLocked(bytes int64) {
	if bytes > 0 {
		m.made.allocs++
	} else {
		m.made.frees++
	}
	m.used += bytes
	if m.changed != nil {
		m.changed(m.used)
	}
}

// eachInLocked calls f for what is mapped in a range, up to the first gap.
func (m *meter) eachInLocked(p cupool.Ptr, size int64, f func(piece)) {
	for end := p + cupool.Ptr(size); p < end; {
		x, ok := m.maps[p]
		if !ok {
			return
		}
		f(x)
		p += cupool.Ptr(x.size)
	}
}

// mapped returns everything that is mapped, by address.
func (m *meter) mapped() []piece {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := make([]piece, 0, len(m.maps))
	for _, x := range m.maps {
		all = append(all, x)
	}
	slices.SortFunc(all, func(a, b piece) int { return cmp.Compare(a.at, b.at) })
	return all
}
