package conformance

import (
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/cupool/cupool"
)

// Failing is a Driver over another one whose calls fail, or come late, as a
// plan of faults says. It also counts what the device was asked for and has not
// got back.
type Failing struct {
	cupool.Driver

	mu     sync.Mutex
	calls  int // of any kind
	byKind map[string]int
	faults []Fault // From is counted from the first call
	lost   error   // what every call fails with
	others int64   // bytes that another process holds

	failed  map[string]int       // injected failures by kind
	held    map[cupool.Ptr]int64 // of MemAlloc
	handles map[uintptr]int64    // of virtual memory
	mapped  int64                // bytes of addresses
	ranges  int                  // of addresses
	streams int
	events  int
}

// Fault says which calls of a device go wrong, and how. A call that fails does not
// reach the device.
type Fault struct {
	Call  string // the method's name; "" is any
	From  int    // the first call that it hits: 1, as 0, is the next one
	Every int    // 0: only that one; else that one and every so many from there on

	Err   error         // what the call fails with
	Lost  bool          // the device is lost: all later calls fail with Err, too
	Delay time.Duration // how long the call takes
	Late  bool          // QueryEvent says that the event is not done
}

func (x *Fault) hits(n int) bool {
	return n == x.From || x.Every > 0 && n > x.From && (n-x.From)%x.Every == 0
}

// NewFailing returns a Driver over d that fails nothing yet.
func NewFailing(d cupool.Driver) *Failing {
	return &Failing{Driver: d, byKind: map[string]int{}, held: map[cupool.Ptr]int64{}, handles: map[uintptr]int64{}, failed: map[string]int{}}
}

// over puts the device under a Failing that was made without.
func (f *Failing) over(d cupool.Driver) cupool.Driver {
	f.Driver = d
	return f
}

// Arm adds faults to those that are there.
func (f *Failing) Arm(faults ...Fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, x := range faults {
		x.From = max(x.From, 1)
		if x.Call == "" {
			x.From += f.calls
		} else {
			x.From += f.byKind[x.Call]
		}
		f.faults = append(f.faults, x)
	}
}

// FailNth makes the nth call of a kind from now (1 is the next; kind "" is
// any) fail with err, in addition to what was asked before.
func (f *Failing) FailNth(kind string, nth int, err error) {
	f.Arm(Fault{Call: kind, From: nth, Err: err})
}

// FailAlways makes all calls of a kind fail with err.
func (f *Failing) FailAlways(kind string, err error) {
	f.Arm(Fault{Call: kind, Every: 1, Err: err})
}

// Occupy has another process hold so many bytes of the device.
func (f *Failing) Occupy(bytes int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.others = bytes
}

// room fails when size bytes more than another process leaves are asked for.
func (f *Failing) room(kind string, size int64) error {
	f.mu.Lock()
	others := f.others
	f.mu.Unlock()
	if others == 0 {
		return nil
	}
	free, total, err := f.Driver.MemInfo()
	if err == nil && size > free-others {
		err = fmt.Errorf("%s: %w: %d bytes asked for, %d of %d free", kind, cupool.ErrOutOfMemory, size, max(free-others, 0), total)
	}
	return err
}

// Heal ends all faults.
func (f *Failing) Heal() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.faults, f.lost, f.others = nil, nil, 0
}

// Calls returns how many calls of a kind, or "" for any, were made.
func (f *Failing) Calls(kind string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	if kind == "" {
		return f.calls
	}
	return f.byKind[kind]
}

// Failed returns how many calls of a kind were made to fail.
func (f *Failing) Failed(kind string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.failed[kind]
}

// Held returns the bytes that the device was asked for and has not got back.
func (f *Failing) Held() (n int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, size := range f.held {
		n += size
	}
	for _, size := range f.handles {
		n += size
	}
	return n
}

// call counts a call and returns the error that it fails with, or nil.
func (f *Failing) call(kind string) error {
	delay, _, err := f.meet(kind)
	time.Sleep(delay)
	return err
}

// meet counts a call and returns what goes wrong with it.
func (f *Failing) meet(kind string) (delay time.Duration, late bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls++
	f.byKind[kind]++
	if f.lost != nil {
		f.failed[kind]++
		return 0, false, f.lost
	}
	for _, x := range f.faults {
		n := f.byKind[kind]
		if x.Call == "" {
			n = f.calls
		} else if x.Call != kind {
			continue
		}
		if !x.hits(n) {
			continue
		}
		delay, late = delay+x.Delay, late || x.Late
		if x.Err != nil && err == nil {
			f.failed[kind]++
			err = fmt.Errorf("%s, call %d: %w", kind, n, x.Err)
			if x.Lost {
				f.lost = err
			}
		}
	}
	return delay, late, err
}

// count adds to what the device has given, after a call that did not fail.
func (f *Failing) count(n *int, by int, err error) error {
	if err == nil {
		f.mu.Lock()
		*n += by
		f.mu.Unlock()
	}
	return err
}

// Leaks says what the device has given and not got back, "" for nothing.
func (f *Failing) Leaks() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.held)+len(f.handles)+f.ranges+f.streams+f.events == 0 && f.mapped == 0 {
		return ""
	}
	return fmt.Sprintf("%d allocations, %d handles, %d ranges of addresses, %d bytes mapped, %d streams, %d events",
		len(f.held), len(f.handles), f.ranges, f.mapped, f.streams, f.events)
}

func (f *Failing) MemAlloc(size int64) (cupool.Ptr, error) {
	if err := f.call("MemAlloc"); err != nil {
		return 0, err
	}
	if err := f.room("MemAlloc", size); err != nil {
		return 0, err
	}
	p, err := f.Driver.MemAlloc(size)
	if err == nil {
		f.mu.Lock()
		f.held[p] = size
		f.mu.Unlock()
	}
	return p, err
}

func (f *Failing) MemFree(p cupool.Ptr) error {
	if err := f.call("MemFree"); err != nil {
		return err
	}
	f.mu.Lock() // before the call: after it the address may be another's
	size := f.held[p]
	delete(f.held, p)
	f.mu.Unlock()
	err := f.Driver.MemFree(p)
	if err != nil {
		f.mu.Lock()
		f.held[p] = size
		f.mu.Unlock()
	}
	return err
}

func (f *Failing) MemInfo() (free, total int64, err error) {
	if err := f.call("MemInfo"); err != nil {
		return 0, 0, err
	}
	f.mu.Lock()
	others := f.others
	f.mu.Unlock()
	free, total, err = f.Driver.MemInfo()
	return max(free-others, 0), total, err
}

func (f *Failing) NewStream() (cupool.StreamHandle, error) {
	if err := f.call("NewStream"); err != nil {
		return 0, err
	}
	h, err := f.Driver.NewStream()
	return h, f.count(&f.streams, 1, err)
}

func (f *Failing) DestroyStream(s cupool.StreamHandle) error {
	if err := f.call("DestroyStream"); err != nil {
		return err
	}
	return f.count(&f.streams, -1, f.Driver.DestroyStream(s))
}

func (f *Failing) SyncStream(s cupool.StreamHandle) error {
	if err := f.call("SyncStream"); err != nil {
		return err
	}
	return f.Driver.SyncStream(s)
}

func (f *Failing) NewEvent() (cupool.EventHandle, error) {
	if err := f.call("NewEvent"); err != nil {
		return 0, err
	}
	h, err := f.Driver.NewEvent()
	return h, f.count(&f.events, 1, err)
}

func (f *Failing) DestroyEvent(e cupool.EventHandle) error {
	if err := f.call("DestroyEvent"); err != nil {
		return err
	}
	return f.count(&f.events, -1, f.Driver.DestroyEvent(e))
}

func (f *Failing) RecordEvent(e cupool.EventHandle, s cupool.StreamHandle) error {
	if err := f.call("RecordEvent"); err != nil {
		return err
	}
	return f.Driver.RecordEvent(e, s)
}

func (f *Failing) QueryEvent(e cupool.EventHandle) (bool, error) {
	delay, late, err := f.meet("QueryEvent")
	time.Sleep(delay)
	if err != nil || late {
		return false, err
	}
	return f.Driver.QueryEvent(e)
}

func (f *Failing) SyncEvent(e cupool.EventHandle) error {
	if err := f.call("SyncEvent"); err != nil {
		return err
	}
	return f.Driver.SyncEvent(e)
}

func (f *Failing) StreamWaitEvent(s cupool.StreamHandle, e cupool.EventHandle) error {
	if err := f.call("StreamWaitEvent"); err != nil {
		return err
	}
	return f.Driver.StreamWaitEvent(s, e)
}

func (f *Failing) Copy(dst, src cupool.Ptr, n int64, s cupool.StreamHandle) error {
	if err := f.call("Copy"); err != nil {
		return err
	}
	return f.Driver.Copy(dst, src, n, s)
}

func (f *Failing) CopyIn(dst cupool.Ptr, src []byte, s cupool.StreamHandle) error {
	if err := f.call("CopyIn"); err != nil {
		return err
	}
	return f.Driver.CopyIn(dst, src, s)
}

func (f *Failing) CopyOut(dst []byte, src cupool.Ptr, s cupool.StreamHandle) error {
	if err := f.call("CopyOut"); err != nil {
		return err
	}
	return f.Driver.CopyOut(dst, src, s)
}

func (f *Failing) Memset(dst cupool.Ptr, value byte, n int64, s cupool.StreamHandle) error {
	if err := f.call("Memset"); err != nil {
		return err
	}
	return f.Driver.Memset(dst, value, n, s)
}

// Launch passes functions on to devices that run them.
func (f *Failing) Launch(s cupool.StreamHandle, fn func()) error {
	if err := f.call("Launch"); err != nil {
		return err
	}
	l, ok := f.Driver.(cupool.Launcher)
	if !ok {
		return cupool.ErrNotSupported
	}
	return l.Launch(s, fn)
}

// snapshot returns how many calls of each kind were made.
func (f *Failing) snapshot() map[string]int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.byKind)
}
