package model

import (
	"cmp"
	"fmt"
	"slices"
	"sync"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/simdev"
)

// A Device is a simulated device that also has memory, and knows of every
// piece of work what comes before it and whether it is done. The memory is
// kept as runs of equal bytes, by physical memory and not by address, so that
// a piece that is mapped twice is one piece.
//
// Work runs when the simulated device runs it, which in manual mode is when a
// program says so or a call waits. All methods are safe from several
// goroutines. Functions given to Launch may call Read and nothing else of the
// device.
type Device struct {
	*simdev.Device
	unmaps func(cupool.Ptr, int64) // called before a range loses its memory; nil: none

	mu      sync.Mutex // guards all below
	streams map[cupool.StreamHandle]*stream
	numbers int // streams made so far
	events  map[cupool.EventHandle]Clock
	pages   int             // pieces of physical memory made so far
	handles map[uintptr]int // the pages of handles
	maps    []mapping       // by address
	runs    []run
	faults  []error
}

// stream is a stream of the device.
type stream struct {
	number     int
	submitting sync.Mutex // held while work gets its number and its place in the queue

	// Device.mu guards these.
	submitted, done uint64 // pieces of work
	order           Clock  // what later work comes after
}

// mapping says which physical memory a range of addresses shows.
type mapping struct {
	at   cupool.Ptr
	size int64
	page int
}

// A piece is a range of physical memory.
type piece struct {
	page   int
	lo, hi int64
}

func (p piece) overlaps(o piece) bool { return p.page == o.page && p.lo < o.hi && o.lo < p.hi }

// run is memory that holds one byte, again and again.
type run struct {
	piece
	value byte
}

// NewDevice makes a device over a simulated one.
func NewDevice(cfg simdev.Config) *Device {
	return &Device{
		Device: simdev.New(cfg), streams: map[cupool.StreamHandle]*stream{0: {}}, numbers: 1,
		events: map[cupool.EventHandle]Clock{}, handles: map[uintptr]int{},
	}
}

// stream returns the stream of a handle, or nil.
func (d *Device) stream(h cupool.StreamHandle) *stream {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.streams[h]
}

// NewStream implements cupool.Driver.
func (d *Device) NewStream() (cupool.StreamHandle, error) {
	h, err := d.Device.NewStream()
	if err == nil {
		d.mu.Lock()
		d.streams[h] = &stream{number: d.numbers}
		d.numbers++
		d.mu.Unlock()
	}
	return h, err
}

// submit has the device check the work, by what it does itself, and run f in
// its place.
func (d *Device) submit(h cupool.StreamHandle, check func() error, f func()) error {
	s := d.stream(h)
	if s == nil {
		return check()
	}
	s.submitting.Lock()
	defer s.submitting.Unlock()
	if err := check(); err != nil {
		return err
	}
	d.mu.Lock()
	n := s.submitted + 1
	d.mu.Unlock()
	err := d.Device.Launch(h, func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		f()
		s.done = n
	})
	if err == nil {
		d.mu.Lock()
		s.submitted = n
		s.order.Set(s.number, n)
		d.mu.Unlock()
	}
	return err
}

// Launch implements cupool.Launcher.
func (d *Device) Launch(h cupool.StreamHandle, f func()) error {
	return d.submit(h, func() error { return nil }, f)
}

// Memset implements cupool.Driver.
func (d *Device) Memset(dst cupool.Ptr, value byte, n int64, h cupool.StreamHandle) error {
	return d.submit(h, func() error { return d.Device.Memset(dst, value, n, h) }, func() { d.write(dst, n, value) })
}

// Copy implements cupool.Driver.
func (d *Device) Copy(dst, src cupool.Ptr, n int64, h cupool.StreamHandle) error {
	return d.submit(h, func() error { return d.Device.Copy(dst, src, n, h) }, func() {
		for _, r := range d.read(src, n) {
			d.write(dst+cupool.Ptr(r.lo), r.hi-r.lo, r.value)
		}
	})
}

// CopyIn implements cupool.Driver.
func (d *Device) CopyIn(dst cupool.Ptr, src []byte, h cupool.StreamHandle) error {
	var runs []run
	for i, b := range src {
		if n := len(runs); n > 0 && runs[n-1].value == b {
			runs[n-1].hi++
		} else {
			runs = append(runs, run{piece{lo: int64(i), hi: int64(i) + 1}, b})
		}
	}
	return d.submit(h, func() error { return d.Device.CopyIn(dst, src, h) }, func() {
		for _, r := range runs {
			d.write(dst+cupool.Ptr(r.lo), r.hi-r.lo, r.value)
		}
	})
}

// CopyOut implements cupool.Driver.
func (d *Device) CopyOut(dst []byte, src cupool.Ptr, h cupool.StreamHandle) error {
	if err := d.Device.CopyOut(dst, src, h); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, r := range d.read(src, int64(len(dst))) {
		for i := r.lo; i < r.hi; i++ {
			dst[i] = r.value
		}
	}
	return nil
}

// RecordEvent implements cupool.Driver.
func (d *Device) RecordEvent(e cupool.EventHandle, h cupool.StreamHandle) error {
	s := d.stream(h)
	if s == nil {
		return d.Device.RecordEvent(e, h)
	}
	s.submitting.Lock()
	defer s.submitting.Unlock()
	err := d.Device.RecordEvent(e, h)
	if err == nil {
		d.mu.Lock()
		d.events[e] = s.order.Clone()
		d.mu.Unlock()
	}
	return err
}

// StreamWaitEvent implements cupool.Driver.
func (d *Device) StreamWaitEvent(h cupool.StreamHandle, e cupool.EventHandle) error {
	s := d.stream(h)
	if s == nil {
		return d.Device.StreamWaitEvent(h, e)
	}
	s.submitting.Lock()
	defer s.submitting.Unlock()
	err := d.Device.StreamWaitEvent(h, e)
	if err == nil {
		d.mu.Lock()
		s.order.Join(d.events[e])
		d.mu.Unlock()
	}
	return err
}

// MemAlloc implements cupool.Driver.
func (d *Device) MemAlloc(size int64) (cupool.Ptr, error) {
	p, err := d.Device.MemAlloc(size)
	if err == nil {
		d.mu.Lock()
		d.pages++
		d.mapLocked(mapping{p, size, d.pages})
		d.mu.Unlock()
	}
	return p, err
}

// MemFree implements cupool.Driver. It waits for all work, as cuMemFree does.
func (d *Device) MemFree(p cupool.Ptr) error {
	d.CompleteAll()
	return d.unmap(p, d.sizeAt(p), func() error { return d.Device.MemFree(p) })
}

// sizeAt returns the size of the mapping that begins at an address.
func (d *Device) sizeAt(p cupool.Ptr) int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	if i, ok := d.findLocked(p); ok {
		return d.maps[i].size
	}
	return 0
}

// MemCreate implements cupool.VirtualMemory.
func (d *Device) MemCreate(size int64) (uintptr, error) {
	h, err := d.Device.MemCreate(size)
	if err == nil {
		d.mu.Lock()
		d.pages++
		d.handles[h] = d.pages
		d.mu.Unlock()
	}
	return h, err
}

// MemMap implements cupool.VirtualMemory.
func (d *Device) MemMap(p cupool.Ptr, size int64, handle uintptr) error {
	err := d.Device.MemMap(p, size, handle)
	if err == nil {
		d.mu.Lock()
		d.mapLocked(mapping{p, size, d.handles[handle]})
		d.mu.Unlock()
	}
	return err
}

// MemUnmap implements cupool.VirtualMemory.
func (d *Device) MemUnmap(p cupool.Ptr, size int64) error {
	return d.unmap(p, size, func() error { return d.Device.MemUnmap(p, size) })
}

// unmap forgets the mappings of a range before call gives it back, so that
// none is forgotten that another goroutine makes there.
func (d *Device) unmap(p cupool.Ptr, size int64, call func() error) error {
	if d.unmaps != nil {
		d.unmaps(p, size)
	}
	inside := func(m mapping) bool { return m.at >= p && m.at < p+cupool.Ptr(size) }
	d.mu.Lock()
	var gone []mapping
	d.maps = slices.DeleteFunc(d.maps, func(m mapping) bool {
		if inside(m) {
			gone = append(gone, m)
		}
		return inside(m)
	})
	d.mu.Unlock()
	err := call()
	if err != nil {
		d.mu.Lock()
		for _, m := range gone {
			d.mapLocked(m)
		}
		d.mu.Unlock()
	}
	return err
}

func (d *Device) findLocked(p cupool.Ptr) (int, bool) {
	return slices.BinarySearchFunc(d.maps, p, func(m mapping, p cupool.Ptr) int { return cmp.Compare(m.at, p) })
}

func (d *Device) mapLocked(m mapping) {
	i, _ := d.findLocked(m.at)
	d.maps = slices.Insert(d.maps, i, m)
}

// place returns the physical memory of a range of addresses. Less than the
// range is mapped where the pieces are shorter together.
func (d *Device) place(p cupool.Ptr, n int64) []piece {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.placeLocked(p, n)
}

func (d *Device) placeLocked(p cupool.Ptr, n int64) (pieces []piece) {
	i, found := d.findLocked(p)
	if !found && i > 0 {
		i-- // the one before may reach here
	}
	for ; i < len(d.maps) && n > 0; i++ {
		m := d.maps[i]
		if p < m.at || p >= m.at+cupool.Ptr(m.size) {
			break
		}
		off := int64(p - m.at)
		take := min(n, m.size-off)
		pieces = append(pieces, piece{m.page, off, off + take})
		p += cupool.Ptr(take)
		n -= take
	}
	return pieces
}

// write sets memory. The device is locked.
func (d *Device) write(p cupool.Ptr, n int64, value byte) {
	for _, x := range d.pieces("write", p, n) {
		old := d.runs
		d.runs = nil
		for _, r := range old {
			if !r.overlaps(x) {
				d.runs = append(d.runs, r)
				continue
			}
			if r.lo < x.lo {
				d.runs = append(d.runs, run{piece{r.page, r.lo, x.lo}, r.value})
			}
			if x.hi < r.hi {
				d.runs = append(d.runs, run{piece{r.page, x.hi, r.hi}, r.value})
			}
		}
		d.runs = append(d.runs, run{x, value})
	}
}

// read returns what memory holds, as runs with offsets from p. What was never
// written is missing. The device is locked.
func (d *Device) read(p cupool.Ptr, n int64) (runs []run) {
	at := int64(0)
	for _, x := range d.pieces("read", p, n) {
		for _, r := range d.runs {
			if r.overlaps(x) {
				lo, hi := max(r.lo, x.lo), min(r.hi, x.hi)
				runs = append(runs, run{piece{lo: at + lo - x.lo, hi: at + hi - x.lo}, r.value})
			}
		}
		at += x.hi - x.lo
	}
	return runs
}

// pieces is placeLocked for work that runs, which must not meet addresses
// without memory.
func (d *Device) pieces(what string, p cupool.Ptr, n int64) []piece {
	pieces := d.placeLocked(p, n)
	left := n
	for _, x := range pieces {
		left -= x.hi - x.lo
	}
	if left > 0 {
		d.faults = append(d.faults, fmt.Errorf("work that runs now wants to %s %d bytes at %v, and %d of them have no memory", what, n, p, left))
	}
	return pieces
}

// Read is for functions given to Launch: it reports a range that does not
// hold one byte from its beginning to its end.
func (d *Device) Read(who fmt.Stringer, p cupool.Ptr, n int64, want byte) {
	same := int64(0)
	for _, r := range d.read(p, n) {
		if r.value == want {
			same += r.hi - r.lo
		}
	}
	if same < n {
		d.faults = append(d.faults, fmt.Errorf("contents: %d of %d bytes at %v are not %#x, which %v holds", n-same, n, p, want, who))
	}
}

// Faults returns what work has met so far that it should not have.
func (d *Device) Faults() []error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.faults)
}

// A use is work of a stream up to a number.
type use struct {
	s *stream
	n uint64
}

// lastOf returns the use that the work of a stream makes that it has been
// given so far.
func (d *Device) lastOf(s *stream) use {
	d.mu.Lock()
	defer d.mu.Unlock()
	return use{s, s.submitted}
}

// over reports whether a use is done.
func (d *Device) over(u use) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return u.s.done >= u.n
}

// before reports whether a use is done or comes before later work of a stream.
func (d *Device) before(u use, s *stream) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return u.s.done >= u.n || s.order.At(u.s.number) >= u.n
}

// orderOf returns what later work of a stream comes after.
func (d *Device) orderOf(s *stream) Clock {
	d.mu.Lock()
	defer d.mu.Unlock()
	return s.order.Clone()
}
