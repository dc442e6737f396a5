package epoch

import (
	"errors"
	"sync"

	"github.com/cupool/cupool/device"
	"github.com/cupool/cupool/internal/block"
)

var errBroken = errors.New("broken")

// fakeDevice is a device whose events are done when the test says so.
type fakeDevice struct {
	mu        sync.Mutex
	events    map[device.Event]device.Stream // the stream on which each was last recorded
	done      map[device.Event]bool
	synced    []device.Event
	destroyed int
	instant   bool                 // events are done when they are recorded
	recording func()               // called while an event is being recorded
	queried   func()               // called before an event is looked at
	syncing   func(e device.Event) // called before an event is waited for

	newErr, recordErr, queryErr, syncErr, destroyErr error
}

func newFake() *fakeDevice {
	return &fakeDevice{events: map[device.Event]device.Stream{}, done: map[device.Event]bool{}}
}

func (d *fakeDevice) NewEvent() (device.Event, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.newErr != nil {
		return 0, d.newErr
	}
	e := device.Event(len(d.events) + 1)
	d.events[e] = 0
	return e, nil
}

func (d *fakeDevice) DestroyEvent(e device.Event) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.destroyed++
	return d.destroyErr
}

func (d *fakeDevice) RecordEvent(e device.Event, s device.Stream) error {
	if f := d.recording; f != nil {
		f()
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.recordErr != nil {
		return d.recordErr
	}
	d.events[e], d.done[e] = s, d.instant
	return nil
}

func (d *fakeDevice) QueryEvent(e device.Event) (bool, error) {
	if f := d.queried; f != nil {
		f()
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.done[e] && d.queryErr == nil, d.queryErr
}

// SyncEvent completes the event.
func (d *fakeDevice) SyncEvent(e device.Event) error {
	if f := d.syncing; f != nil {
		f(e)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.synced = append(d.synced, e)
	if d.syncErr == nil {
		d.done[e] = true
	}
	return d.syncErr
}

func (d *fakeDevice) complete(events ...device.Event) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, e := range events {
		d.done[e] = true
	}
}

// rig is a device, its events and clocks of streams 0, 1, ...
type rig struct {
	d      *fakeDevice
	events *Events
	clocks []*Clock
	told   []error // of records that failed
	table  *block.Table
	slots  block.SlotCache
}

func newRig(streams int) *rig {
	g := &rig{d: newFake(), events: &Events{}, table: &block.Table{}}
	g.slots.Table = g.table
	g.events.Init(g.d, func(_ device.Stream, err error) { g.told = append(g.told, err) })
	for i := range streams {
		g.clocks = append(g.clocks, NewClock(device.Stream(100+i), uint32(i), g.events))
	}
	return g
}

// pending returns an empty Pending of the rig.
func (g *rig) pending() *Pending {
	return &Pending{Table: g.table, Clock: func(slot uint32) *Clock { return g.clocks[slot] }}
}

// block returns a live block of so many bytes.
func (g *rig) block(size int64) (block.ID, *block.Block) {
	if err := g.slots.Ensure(1); err != nil {
		panic(err)
	}
	id, b := g.slots.Take()
	b.Size = size
	b.SetUses(0)
	b.SetWord(block.MakeWord(1, block.Live))
	return id, b
}
