package conformance

import (
	"fmt"
	"maps"
	"sync"

	"github.com/cupool/cupool"
)

// Failing is a Driver over another one whose calls fail on demand, before
// they reach the device. It also counts what the device was asked for and
// has not got back.
type Failing struct {
	cupool.Driver

	mu     sync.Mutex
	calls  int // of any kind, since the last arm
	byKind map[string]int
	rules  []rule
	held   map[cupool.Ptr]int64

	failed  map[string]int    // injected failures by kind
	handles map[uintptr]int64 // of virtual memory
	ranges  int
}

// rule makes the nth call fail, or every one from it on.
type rule struct {
	kind   string // "" is any
	nth    int
	onward bool
	err    error
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

// FailNth makes the nth call of a kind from now (1 is the next; kind "" is
// any) fail with err, in addition to what was asked before.
func (f *Failing) FailNth(kind string, nth int, err error) { f.add(rule{kind, nth, false, err}) }

// FailAlways makes all calls of a kind fail with err.
func (f *Failing) FailAlways(kind string, err error) { f.add(rule{kind, 1, true, err}) }

func (f *Failing) add(r rule) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if r.kind == "" {
		r.nth += f.calls
	} else {
		r.nth += f.byKind[r.kind]
	}
	f.rules = append(f.rules, r)
}

// Heal ends all failures.
func (f *Failing) Heal() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rules = nil
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
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls++
	f.byKind[kind]++
	for _, r := range f.rules {
		n := f.byKind[kind]
		if r.kind == "" {
			n = f.calls
		} else if r.kind != kind {
			continue
		}
		if n == r.nth || r.onward && n > r.nth {
			f.failed[kind]++
			return fmt.Errorf("%s, call %d: %w", kind, n, r.err)
		}
	}
	return nil
}

func (f *Failing) MemAlloc(size int64) (cupool.Ptr, error) {
	if err := f.call("MemAlloc"); err != nil {
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
	return f.Driver.MemInfo()
}

func (f *Failing) NewStream() (cupool.StreamHandle, error) {
	if err := f.call("NewStream"); err != nil {
		return 0, err
	}
	return f.Driver.NewStream()
}

func (f *Failing) DestroyStream(s cupool.StreamHandle) error {
	if err := f.call("DestroyStream"); err != nil {
		return err
	}
	return f.Driver.DestroyStream(s)
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
	return f.Driver.NewEvent()
}

func (f *Failing) DestroyEvent(e cupool.EventHandle) error {
	if err := f.call("DestroyEvent"); err != nil {
		return err
	}
	return f.Driver.DestroyEvent(e)
}

func (f *Failing) RecordEvent(e cupool.EventHandle, s cupool.StreamHandle) error {
	if err := f.call("RecordEvent"); err != nil {
		return err
	}
	return f.Driver.RecordEvent(e, s)
}

func (f *Failing) QueryEvent(e cupool.EventHandle) (bool, error) {
	if err := f.call("QueryEvent"); err != nil {
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
