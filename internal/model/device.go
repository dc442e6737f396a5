package model

import (
	"cmp"
	"fmt"
	"slices"
	"sync"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/hook"
	"github.com/cupool/cupool/internal/simdev"
)

// A Device watches the Driver below it, and knows of every piece of work what
// comes before it and which physical memory an address shows. That work is done
// it knows of what the calls say: a wait that has returned, an event that is done.
//
// A simulated device gets memory as well, kept as runs of equal bytes, by
// physical memory and not by address, so that a piece that is mapped twice is one
// piece. Its work runs when the simulated device runs it, which in manual mode is
// when a program says so or a call waits.
//
// All methods are safe from several goroutines. Functions given to Launch may
// call Read and nothing else of the device.
type Device struct {
	hook.Driver
	hook.Tally
	sim    *simdev.Device                           // the one below; nil: it is another device
	unmaps func(p cupool.Ptr, n int64, waited bool) // called before a range loses its memory; nil: none

	mu      sync.Mutex                      // guards all below
	streams map[cupool.StreamHandle]*stream // the last one of each handle
	all     []*stream                       // also destroyed ones, by number
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
	destroyed       bool
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

// NewDevice makes a device over another one.
func NewDevice(below cupool.Driver) *Device {
	def := &stream{}
	d := &Device{
		streams: map[cupool.StreamHandle]*stream{0: def}, all: []*stream{def},
		events: map[cupool.EventHandle]Clock{}, handles: map[uintptr]int{},
	}
	d.Driver = hook.Driver{Driver: below, Around: d.around}
	d.sim, _ = below.(*simdev.Device)
	return d
}

// CompleteAll has all work done.
func (d *Device) CompleteAll() error {
	if d.sim != nil {
		d.sim.CompleteAll()
		return nil
	}
	d.mu.Lock()
	var open []cupool.StreamHandle
	for h, s := range d.streams {
		if !s.destroyed {
			open = append(open, h)
		}
	}
	d.mu.Unlock()
	for _, h := range open {
		if err := d.SyncStream(h); err != nil {
			return err
		}
	}
	return nil
}

// stream returns the stream of a handle, or nil.
func (d *Device) stream(h cupool.StreamHandle) *stream {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.streams[h]
}

// around makes a call of the device below and keeps track of it.
func (d *Device) around(c *hook.Call, call func() error) error {
	do := func() error { return d.Count(c, call) }
	switch c.Name {
	case "Launch", "Memset", "Copy", "CopyIn":
		return d.submit(c, do)
	case "RecordEvent", "StreamWaitEvent":
		return d.orders(c, do)
	case "SyncStream", "DestroyStream", "CopyOut", "SyncEvent", "QueryEvent":
		return d.waits(c, do)
	case "MemFree", "MemUnmap":
		return d.unmap(c, do)
	case "MemRelease":
		return d.release(c, do)
	}
	if err := do(); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	switch c.Name {
	case "NewStream":
		s := &stream{number: len(d.all)}
		d.streams[c.Stream], d.all = s, append(d.all, s)
	case "MemAlloc":
		d.pages++
		d.mapLocked(mapping{c.Ptr, c.Size, d.pages})
	case "MemCreate":
		d.pages++
		d.handles[c.Handle] = d.pages
	case "MemMap":
		d.mapLocked(mapping{c.Ptr, c.Size, d.handles[c.Handle]})
	}
	return nil
}

// submit makes a call that gives a stream work.
func (d *Device) submit(c *hook.Call, do func() error) error {
	s := d.stream(c.Stream)
	if s == nil {
		return do()
	}
	s.submitting.Lock()
	defer s.submitting.Unlock()
	if d.sim != nil {
		do = d.simulated(c, s, do)
	}
	if err := do(); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	s.submitted++
	s.order.Set(s.number, s.submitted)
	return nil
}

// simulated returns a call that has the device check the work, by what it does
// itself, and do it to the memory that it has here.
func (d *Device) simulated(c *hook.Call, s *stream, check func() error) func() error {
	work := d.work(c)
	n := s.submitted + 1 // only submit changes it
	return func() error {
		if c.Name != "Launch" {
			if err := check(); err != nil {
				return err
			}
		}
		return d.sim.Launch(c.Stream, func() {
			d.mu.Lock()
			defer d.mu.Unlock()
			work()
			s.done = max(s.done, n)
		})
	}
}

// work returns what a call does to memory. The device is locked when it runs.
func (d *Device) work(c *hook.Call) func() {
	switch c.Name {
	case "Memset":
		return func() { d.write(c.Ptr, c.Size, c.Value) }
	case "Copy":
		return func() {
			for _, r := range d.read(c.Src, c.Size) {
				d.write(c.Ptr+cupool.Ptr(r.lo), r.hi-r.lo, r.value)
			}
		}
	case "CopyIn":
		runs := runsOf(c.Data)
		return func() {
			for _, r := range runs {
				d.write(c.Ptr+cupool.Ptr(r.lo), r.hi-r.lo, r.value)
			}
		}
	}
	return c.Func
}

// runsOf returns bytes as runs.
func runsOf(data []byte) (runs []run) {
	for i, b := range data {
		if n := len(runs); n > 0 && runs[n-1].value == b {
			runs[n-1].hi++
		} else {
			runs = append(runs, run{piece{lo: int64(i), hi: int64(i) + 1}, b})
		}
	}
	return runs
}

// orders makes a call that records an event or has a stream wait for one.
func (d *Device) orders(c *hook.Call, do func() error) error {
	s := d.stream(c.Stream)
	if s == nil {
		return do()
	}
	s.submitting.Lock()
	defer s.submitting.Unlock()
	if err := do(); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if c.Name == "RecordEvent" {
		d.events[c.Event] = s.order.Clone()
	} else {
		s.order.Join(d.events[c.Event])
	}
	return nil
}

// waits makes a call that tells that work is done.
func (d *Device) waits(c *hook.Call, do func() error) error {
	var done Clock
	d.mu.Lock()
	s := d.streams[c.Stream]
	switch {
	case c.Event != 0:
		done = d.events[c.Event].Clone()
	case s != nil:
		done = s.order.Clone()
	}
	d.mu.Unlock()
	if err := do(); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if c.Name == "DestroyStream" && s != nil {
		s.destroyed = true
	}
	if c.Name != "QueryEvent" || c.Done {
		for i, n := range done {
			d.all[i].done = max(d.all[i].done, n)
		}
	}
	if c.Name == "CopyOut" && d.sim != nil {
		for _, r := range d.read(c.Src, int64(len(c.Data))) {
			for i := r.lo; i < r.hi; i++ {
				c.Data[i] = r.value
			}
		}
	}
	return nil
}

// unmap makes a call that takes addresses their memory. The mappings are forgotten
// before, so that none is forgotten that another goroutine makes there.
// MemFree waits for all work, as cuMemFree does.
func (d *Device) unmap(c *hook.Call, do func() error) error {
	size, waits := c.Size, c.Name == "MemFree"
	var given []use
	if waits {
		given = d.given()
		size = d.sizeAt(c.Ptr)
		if d.sim != nil {
			d.sim.CompleteAll()
		}
	}
	if d.unmaps != nil {
		d.unmaps(c.Ptr, size, waits)
	}
	inside := func(m mapping) bool { return m.at >= c.Ptr && m.at < c.Ptr+cupool.Ptr(size) }
	d.mu.Lock()
	var gone []mapping
	d.maps = slices.DeleteFunc(d.maps, func(m mapping) bool {
		if inside(m) {
			gone = append(gone, m)
		}
		return inside(m)
	})
	d.mu.Unlock()
	err := do()
	if err != nil {
		d.mu.Lock()
		for _, m := range gone {
			d.mapLocked(m)
		}
		d.mu.Unlock()
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, u := range given {
		u.s.done = max(u.s.done, u.n)
	}
	return nil
}

// given returns all that the streams have been given so far.
func (d *Device) given() (uses []use) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, s := range d.all {
		uses = append(uses, use{s, s.submitted})
	}
	return uses
}

// release makes a call that gives a handle back. It is forgotten before, as it may be
// another piece's after that.
func (d *Device) release(c *hook.Call, do func() error) error {
	d.mu.Lock()
	page := d.handles[c.Handle]
	delete(d.handles, c.Handle)
	d.mu.Unlock()
	err := do()
	if err != nil {
		d.mu.Lock()
		d.handles[c.Handle] = page
		d.mu.Unlock()
	}
	return err
}

// forget forgets the events and all streams but the default one, when no other is
// left and all work is done.
func (d *Device) forget() {
	d.mu.Lock()
	defer d.mu.Unlock()
	def := d.all[0]
	def.order = Clock{def.submitted}
	d.all, d.streams = d.all[:1:1], map[cupool.StreamHandle]*stream{0: def}
	clear(d.events)
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
