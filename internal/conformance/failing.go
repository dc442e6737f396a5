package conformance

import (
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/hook"
)

// Failing is a Driver over another one whose calls fail, or come late, as a
// plan of faults says. It also counts calls, and what the device was asked for and
// has not got back.
type Failing struct {
	hook.Driver
	hook.Tally

	mu     sync.Mutex
	calls  int // of any kind
	byKind map[string]int
	faults []Fault // From is counted from the first call
	lost   error   // what every call fails with
	others int64   // bytes that another process holds

	failed map[string]int // injected failures by kind
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
	f := &Failing{byKind: map[string]int{}, failed: map[string]int{}}
	f.Driver = hook.Driver{Driver: d, Around: f.around}
	return f
}

// over puts the device under a Failing that was made without.
func (f *Failing) over(d cupool.Driver) cupool.Driver {
	f.Driver.Driver = d
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

// Heal ends all faults.
func (f *Failing) Heal() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.faults, f.lost, f.others = nil, nil, 0
}

// Lost reports whether a fault has made the device lost.
func (f *Failing) Lost() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.lost != nil
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

// snapshot returns how many calls of each kind were made.
func (f *Failing) snapshot() map[string]int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.byKind)
}

// Failed returns how many calls of a kind were made to fail.
func (f *Failing) Failed(kind string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.failed[kind]
}

// around makes a call, unless it fails.
func (f *Failing) around(c *hook.Call, do func() error) error {
	delay, late, others, err := f.meet(c.Name)
	time.Sleep(delay)
	if err != nil || late && c.Name == "QueryEvent" {
		return err
	}
	if c.Name == "MemAlloc" || c.Name == "MemCreate" {
		if err := f.room(c, others); err != nil {
			return err
		}
	}
	err = f.Tally.Count(c, do)
	if c.Name == "MemInfo" {
		c.Size = max(c.Size-others, 0)
	}
	return err
}

// meet counts a call and returns what goes wrong with it, and the bytes that
// another process holds.
func (f *Failing) meet(kind string) (delay time.Duration, late bool, others int64, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls++
	f.byKind[kind]++
	if f.lost != nil {
		f.failed[kind]++
		return 0, false, 0, f.lost
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
	return delay, late, f.others, err
}

// room fails when a call asks for more bytes than another process leaves.
func (f *Failing) room(c *hook.Call, others int64) error {
	if others == 0 {
		return nil
	}
	free, total, err := f.Driver.Driver.MemInfo()
	if err == nil && c.Size > free-others {
		err = fmt.Errorf("%s: %w: %d bytes asked for, %d of %d free", c.Name, cupool.ErrOutOfMemory, c.Size, max(free-others, 0), total)
	}
	return err
}
