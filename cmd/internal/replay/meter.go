package replay

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/simdev"
)

// meter counts the successful calls of a device and adds up what they cost
// by simdev's model, so that real devices compare with simulated ones.
type meter struct {
	cupool.Driver

	changed func(reserved int64) // called when the physical memory in use changes

	mu      sync.Mutex
	used    int64 // bytes of physical memory
	n       [simdev.NumCalls]int64
	cost    time.Duration
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

// vmmMeter is the meter of a device that has virtual memory.
type vmmMeter struct {
	*meter
	vmm cupool.VirtualMemory
}

// newMeter returns the driver to use in place of d, with the same optional
// parts as far as replaying needs them.
func newMeter(d cupool.Driver) (cupool.Driver, *meter) {
	m := &meter{Driver: d, allocs: map[cupool.Ptr]int64{}, handles: map[uintptr]int64{}, maps: map[cupool.Ptr]piece{}}
	if v, ok := d.(cupool.VirtualMemory); ok && v.VMMGranularity() > 0 {
		return &vmmMeter{m, v}, m
	}
	return m, m
}

// calls are what was asked of a driver so far.
type calls struct {
	allocs, frees int64         // of physical memory
	cost          time.Duration // modelled, of all calls
}

func (m *meter) calls() calls {
	m.mu.Lock()
	defer m.mu.Unlock()
	return calls{
		allocs: m.n[simdev.MemAlloc] + m.n[simdev.MemCreate],
		frees:  m.n[simdev.MemFree] + m.n[simdev.MemRelease],
		cost:   m.cost,
	}
}

// use adds to the physical memory in use; mu is held.
func (m *meter) use(bytes int64) {
	m.used += bytes
	if m.changed != nil {
		m.changed(m.used)
	}
}

// charge counts a call that succeeded, with its cost, and passes its error
// on. note, if any, updates the books.
func (m *meter) charge(c simdev.Call, bytes int64, handles int, err error, note func()) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err == nil {
		m.n[c]++
		m.cost += simdev.Cost(c, bytes, handles)
		if note != nil {
			note()
		}
	}
	return err
}

// handlesIn returns how many handles are mapped in a range.
func (m *meter) handlesIn(p cupool.Ptr, size int64) (n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.eachIn(p, size, func(piece) { n++ })
	return n
}

// eachIn calls f for what is mapped in a range, up to the first gap; mu is held.
func (m *meter) eachIn(p cupool.Ptr, size int64, f func(piece)) {
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

func (m *meter) MemAlloc(size int64) (cupool.Ptr, error) {
	p, err := m.Driver.MemAlloc(size)
	return p, m.charge(simdev.MemAlloc, size, 1, err, func() {
		m.allocs[p] = size
		m.use(size)
	})
}

// MemFree takes the address out of the books first: once the device has it
// back, another call may be given it.
func (m *meter) MemFree(p cupool.Ptr) error {
	m.mu.Lock()
	size := m.allocs[p]
	delete(m.allocs, p)
	m.mu.Unlock()
	err := m.Driver.MemFree(p)
	_ = m.charge(simdev.MemFree, size, 1, err, func() { m.use(-size) })
	if err != nil {
		m.mu.Lock()
		m.allocs[p] = size
		m.mu.Unlock()
	}
	return err
}

func (m *meter) MemInfo() (free, total int64, err error) {
	free, total, err = m.Driver.MemInfo()
	return free, total, m.charge(simdev.MemInfo, 0, 1, err, nil)
}

func (m *meter) NewEvent() (cupool.EventHandle, error) {
	e, err := m.Driver.NewEvent()
	return e, m.charge(simdev.NewEvent, 0, 1, err, nil)
}

func (m *meter) RecordEvent(e cupool.EventHandle, s cupool.StreamHandle) error {
	return m.charge(simdev.RecordEvent, 0, 1, m.Driver.RecordEvent(e, s), nil)
}

func (m *meter) QueryEvent(e cupool.EventHandle) (bool, error) {
	done, err := m.Driver.QueryEvent(e)
	return done, m.charge(simdev.QueryEvent, 0, 1, err, nil)
}

func (m *meter) StreamWaitEvent(s cupool.StreamHandle, e cupool.EventHandle) error {
	return m.charge(simdev.StreamWaitEvent, 0, 1, m.Driver.StreamWaitEvent(s, e), nil)
}

func (m *vmmMeter) VMMGranularity() int64 { return m.vmm.VMMGranularity() }

func (m *vmmMeter) AddressReserve(size int64) (cupool.Ptr, error) {
	p, err := m.vmm.AddressReserve(size)
	return p, m.charge(simdev.AddressReserve, size, 1, err, nil)
}

func (m *vmmMeter) AddressFree(p cupool.Ptr, size int64) error {
	return m.charge(simdev.AddressFree, size, 1, m.vmm.AddressFree(p, size), nil)
}

func (m *vmmMeter) MemCreate(size int64) (uintptr, error) {
	h, err := m.vmm.MemCreate(size)
	return h, m.charge(simdev.MemCreate, size, 1, err, func() {
		m.handles[h] = size
		m.use(size)
	})
}

func (m *vmmMeter) MemRelease(h uintptr) error {
	m.mu.Lock()
	size := m.handles[h]
	m.mu.Unlock()
	return m.charge(simdev.MemRelease, size, 1, m.vmm.MemRelease(h), func() {
		delete(m.handles, h)
		m.use(-size)
	})
}

func (m *vmmMeter) MemMap(p cupool.Ptr, size int64, h uintptr) error {
	return m.charge(simdev.MemMap, size, 1, m.vmm.MemMap(p, size, h), func() { m.maps[p] = piece{p, size, h} })
}

func (m *vmmMeter) MemSetAccess(p cupool.Ptr, size int64) error {
	return m.charge(simdev.MemSetAccess, size, m.handlesIn(p, size), m.vmm.MemSetAccess(p, size), nil)
}

func (m *vmmMeter) MemUnmap(p cupool.Ptr, size int64) error {
	n := m.handlesIn(p, size)
	return m.charge(simdev.MemUnmap, size, n, m.vmm.MemUnmap(p, size), func() {
		m.eachIn(p, size, func(x piece) { delete(m.maps, x.at) })
	})
}
