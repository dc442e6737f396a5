package simdev

import (
	"fmt"
	"time"

	"github.com/cupool/cupool/device"
)

// A Call is a kind of driver call: what is counted, costs time and can be
// made to fail.
type Call uint8

// The calls, named for the methods.
const (
	MemAlloc Call = iota
	MemFree
	MemInfo
	NewStream
	DestroyStream
	SyncStream
	Launch
	NewEvent
	DestroyEvent
	RecordEvent
	QueryEvent
	SyncEvent
	StreamWaitEvent
	Copy
	CopyIn
	CopyOut
	Memset
	AddressReserve
	AddressFree
	MemCreate
	MemRelease
	MemMap
	MemSetAccess
	MemUnmap
	NumCalls // how many kinds there are
)

var callNames = [NumCalls]string{
	"MemAlloc", "MemFree", "MemInfo", "NewStream", "DestroyStream", "SyncStream", "Launch",
	"NewEvent", "DestroyEvent", "RecordEvent", "QueryEvent", "SyncEvent", "StreamWaitEvent",
	"Copy", "CopyIn", "CopyOut", "Memset",
	"AddressReserve", "AddressFree", "MemCreate", "MemRelease", "MemMap", "MemSetAccess", "MemUnmap",
}

// String returns the method's name.
func (c Call) String() string {
	if c < NumCalls {
		return callNames[c]
	}
	return fmt.Sprintf("Call(%d)", uint8(c))
}

// A price is what a call costs: each a piece (a call, or for MemSetAccess and
// MemUnmap a handle in the range) and perGiB for the bytes in question.
type price struct{ each, perGiB time.Duration }

// prices were measured on an H200 (driver 580, CUDA 13.0) by C programs, and
// record and query through gorgonia.org/cu from Go. What is missing was not
// measured and costs nothing: work on streams runs beside the program, and
// reserving addresses vanished in the noise of mapping.
var prices = [NumCalls]price{
	MemAlloc:        {55 * time.Microsecond, 26 * time.Microsecond},
	MemFree:         {40 * time.Microsecond, 260 * time.Microsecond},
	MemInfo:         {3500 * time.Nanosecond, 0},
	NewEvent:        {4600 * time.Nanosecond, 0},
	RecordEvent:     {189 * time.Nanosecond, 0},
	QueryEvent:      {165 * time.Nanosecond, 0},
	StreamWaitEvent: {50 * time.Nanosecond, 0},
	MemCreate:       {7 * time.Microsecond, 20 * time.Microsecond},
	MemRelease:      {9 * time.Microsecond, 260 * time.Microsecond},
	MemMap:          {500 * time.Nanosecond, 0},
	MemSetAccess:    {20 * time.Microsecond, 33 * time.Microsecond},
	MemUnmap:        {14 * time.Microsecond, 0},
}

// Cost returns the modelled time of a call over the given number of bytes
// and handles; handles is 1 for calls that have none.
func Cost(c Call, bytes int64, handles int) time.Duration {
	p := prices[c]
	const gib = 1 << 30
	// Whole GiB and the rest apart, so that no product overflows.
	sized := p.perGiB*time.Duration(bytes/gib) + p.perGiB*time.Duration(bytes%gib)/gib
	return p.each*time.Duration(handles) + sized
}

// A tally counts the calls of one kind. Failed calls count too, and cost
// nothing.
type tally struct {
	calls int64
	cost  time.Duration
}

// A fault is a failure to come. nth counts down to the call that fails.
type fault struct {
	nth    int
	err    error // of the nth call; nil: none armed
	always error // of every call; nil: none
}

// FailNth makes the nth call of a kind from now fail with an error that wraps
// err, once; 1 is the next. The failing call changes nothing. It replaces an
// earlier FailNth of the kind; a nil err takes it back.
func (d *Device) FailNth(c Call, nth int, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.faults[c].nth, d.faults[c].err = nth, err
	d.setTroubleLocked()
}

// FailAlways makes every call of a kind fail with an error that wraps err,
// until called again with nil.
func (d *Device) FailAlways(c Call, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.faults[c].always = err
	d.setTroubleLocked()
}

// Lose makes the device lost: every call fails with ErrDeviceLost from now
// on, and queued work does not run.
func (d *Device) Lose(reason string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.loseLocked(reason)
}

// Calls returns how often a kind was called, successfully or not.
func (d *Device) Calls(c Call) int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.tallies[c].calls
}

// ModelledTotal returns the modelled time of all calls.
func (d *Device) ModelledTotal() time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	var sum time.Duration
	for _, t := range d.tallies {
		sum += t.cost
	}
	return sum
}

// beginLocked counts a call and returns why it must fail, or nil.
func (d *Device) beginLocked(c Call) error {
	d.tallies[c].calls++
	if d.trouble {
		return d.troubleLocked(c)
	}
	return nil
}

// chargeLocked adds the cost of a successful call.
func (d *Device) chargeLocked(c Call, bytes int64, handles int) {
	d.tallies[c].cost += Cost(c, bytes, handles)
}

func (d *Device) troubleLocked(c Call) error {
	if d.closed {
		return wrap(c, device.ErrClosed)
	}
	if d.lost != nil {
		return wrap(c, d.lost)
	}
	f := &d.faults[c]
	if f.err != nil {
		if f.nth--; f.nth <= 0 {
			err := f.err
			f.err = nil
			d.setTroubleLocked()
			return wrap(c, err)
		}
	}
	if f.always != nil {
		return wrap(c, f.always)
	}
	return nil
}

// setTroubleLocked keeps trouble true exactly while some call may have to
// fail, so that the others need only one look.
func (d *Device) setTroubleLocked() {
	d.trouble = d.closed || d.lost != nil
	for _, f := range d.faults {
		d.trouble = d.trouble || f.err != nil || f.always != nil
	}
}

func (d *Device) loseLocked(reason string) {
	if d.lost == nil {
		d.lost = fmt.Errorf("%w: %s", device.ErrDeviceLost, reason)
		d.trouble = true
	}
}

func wrap(c Call, err error) error { return fmt.Errorf("simdev: %v: %w", c, err) }
