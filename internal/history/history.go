// Package history records what an allocator did lately: every change of its
// memory, and samples of its allocations and frees.
//
// A Log is a ring of events of a fixed size. Go stacks are kept once each, and
// dropped with the last event that has them. They are turned into the names of
// functions when somebody asks, outside of locks.
//
// Allocations are sampled by bytes, as Go's heap profile is: before each byte lies
// a point with a probability of one in the mean distance, and an allocation in which
// one lies or more is a sample. A sample stands for as many allocations of its size
// as one in the mean would be: its weight. So sums of weights estimate what all
// allocations were, without bias.
package history

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/cupool/cupool/device"
	"github.com/cupool/cupool/internal/lock"
	"github.com/cupool/cupool/internal/origins"
	"github.com/cupool/cupool/snapshot"
)

// Settings of a Log, above 0.
type Settings struct {
	Events      int   // that are kept
	SampleBytes int64 // the mean distance between samples; 1: everything is recorded
}

// The usual Settings, and the most events.
const (
	DefaultEvents      = 65_536
	MaxEvents          = 1 << 24
	DefaultSampleBytes = 512 << 10
)

// Completed returns the Settings with the usual ones for zeros. It fails with a
// *device.ConfigError.
func (s Settings) Completed() (Settings, error) {
	switch {
	case s.Events < 0 || s.Events > MaxEvents:
		return s, &device.ConfigError{Field: "History.Events", Value: s.Events, Reason: fmt.Sprintf("must be from 0 to %d", MaxEvents)}
	case s.SampleBytes < 0:
		return s, &device.ConfigError{Field: "History.SampleBytes", Value: s.SampleBytes, Reason: "must not be negative; 0 means 512 KiB"}
	}
	return Settings{cmp.Or(s.Events, DefaultEvents), cmp.Or(s.SampleBytes, DefaultSampleBytes)}, nil
}

// Event is what Add is told.
type Event struct {
	Kind    snapshot.Kind
	Address uint64
	Size    int64 // bytes
	Stream  device.Stream
	Pool    string
	ID      uint32 // of the pool; no other one has it, as names may be given again
	Label   string
	Weight  float64
	Stack   *origins.Stack // nil: none
}

// record is an Event in the ring.
type record struct {
	time    int64 // nanoseconds since 1970
	address uint64
	size    int64
	stream  device.Stream
	weight  float64
	pool    string
	label   string
	stack   uint32 // in Log.stacks
	id      uint32 // of the pool
	kind    uint8  // in kinds
}

var kinds = [...]snapshot.Kind{
	snapshot.Alloc, snapshot.FreeRequested, snapshot.FreeCompleted, snapshot.SegmentAlloc, snapshot.SegmentFree,
	snapshot.SegmentMap, snapshot.SegmentUnmap, snapshot.Stitch, snapshot.Trim, snapshot.Taken, snapshot.OutOfMemory,
}

func kindOf(k snapshot.Kind) uint8 {
	for i, x := range kinds {
		if x == k {
			return uint8(i)
		}
	}
	panic("history: no event is a " + string(k))
}

// Log is a history. Its methods are safe from several goroutines; its lock is
// taken last. The zero Log is off and empty.
type Log struct {
	Package string // of the allocator: its functions at the top of stacks are left out

	sampler

	mu     lock.Mutex
	ring   []record
	last   uint64 // number of the last event
	kept   int    // events in the ring
	stacks stacks
	totals totals
}

// Start begins a history, or begins anew with other settings: the events and totals
// so far are dropped, and numbers go on.
func (l *Log) Start(s Settings) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ring, l.kept = make([]record, s.Events), 0
	l.stacks, l.totals = newStacks(), totals{}
	l.current.Store(&clock{mean: s.SampleBytes, begun: now()})
}

// Settings returns those of Start; ok is false while the history is off.
func (l *Log) Settings() (s Settings, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.current.Load()
	if c == nil {
		return Settings{}, false
	}
	return Settings{len(l.ring), c.mean}, true
}

// Stop ends the history, and reports whether it was on. What was recorded stays until
// the next Start.
func (l *Log) Stop() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.current.Swap(nil) != nil
}

// Add records an event, unless the history is off, and returns its number.
func (l *Log) Add(e Event) uint64 {
	if !l.On() {
		return 0
	}
	at := now()
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.On() { // meanwhile
		return 0
	}
	r := record{
		time: at.UnixNano(), address: e.Address, size: e.Size, stream: e.Stream, weight: e.Weight,
		pool: e.Pool, id: e.ID, label: e.Label, stack: l.stacks.add(e.Stack), kind: kindOf(e.Kind),
	}
	if e.Kind == snapshot.Alloc {
		l.totals.add(&l.stacks, r)
	}
	l.last++
	slot := &l.ring[l.last%uint64(len(l.ring))]
	if l.kept == len(l.ring) {
		l.stacks.drop(slot.stack)
	} else {
		l.kept++
	}
	*slot = r
	return l.last
}

// Forget drops the totals of a pool that is closed: others find a place.
func (l *Log) Forget(id uint32) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for k := range l.totals {
		if k.id == id {
			delete(l.totals, k)
			l.stacks.drop(k.stack)
		}
	}
}

// Last returns the number of the last event.
func (l *Log) Last() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last
}

// Copy is a part of a Log.
type Copy struct {
	log    *Log
	first  uint64
	events []copied[record]
	totals []copied[totalOf]
}

// copied is something with its stack, whose number another one may have by now.
type copied[T any] struct {
	of T
	at *stack // nil: none
}

// copyPortion is how many events are copied while the lock is held.
const copyPortion = 1024

// Copy copies the events with numbers above after, up to last, and the totals. To name
// functions is left to the Copy. It copies the last events first: the oldest ones are
// overwritten meanwhile.
func (l *Log) Copy(after, last uint64) *Copy {
	c := &Copy{log: l}
	c.copyTotals()
	for more := true; more; {
		last, more = c.copyEvents(after, last)
	}
	c.first = last + 1
	slices.Reverse(c.events)
	return c
}

func (c *Copy) copyTotals() {
	l := c.log
	l.mu.Lock()
	defer l.mu.Unlock()
	c.totals = make([]copied[totalOf], 0, len(l.totals))
	for _, x := range l.totals {
		c.totals = append(c.totals, copied[totalOf]{*x, l.stacks.list[x.stack]})
	}
}

// copyEvents copies some of the events up to last, and returns the number before them. It
// reports whether there may be more.
func (c *Copy) copyEvents(after, last uint64) (before uint64, more bool) {
	c.events = slices.Grow(c.events, copyPortion)
	l := c.log
	l.mu.Lock()
	defer l.mu.Unlock()
	after = max(after, l.last-uint64(l.kept))
	last = min(last, l.last)
	for n := 0; n < copyPortion && last > after; n, last = n+1, last-1 {
		r := l.ring[last%uint64(len(l.ring))]
		c.events = append(c.events, copied[record]{r, l.stacks.list[r.stack]})
	}
	return last, last > after
}

// Events returns the events of all pools, oldest first. Events of the same stack
// share it.
func (c *Copy) Events() (out []snapshot.Event) {
	for i := range c.events {
		out = append(out, c.event(i))
	}
	return out
}

// EventsOf is Events of one pool.
func (c *Copy) EventsOf(id uint32) (out []snapshot.Event) {
	for i := range c.events {
		if c.events[i].of.id == id {
			out = append(out, c.event(i))
		}
	}
	return out
}

// Of fills in the events and totals of a pool, whose snapshot it is.
func (c *Copy) Of(s *snapshot.Snapshot, id uint32) {
	s.Events = c.EventsOf(id)
	for _, x := range c.totals {
		if t := &x.of; t.id == id {
			s.Totals = append(s.Totals, snapshot.Total{Stack: c.frames(x.at), Label: t.label, Allocations: t.allocations, Bytes: t.bytes})
		}
	}
	slices.SortFunc(s.Totals, func(a, b snapshot.Total) int { return cmp.Compare(b.Bytes, a.Bytes) })
}

func (c *Copy) event(i int) snapshot.Event {
	r := &c.events[i].of
	return snapshot.Event{
		Number: c.first + uint64(i), Kind: kinds[r.kind], Time: time.Unix(0, r.time), Pool: r.pool, Address: snapshot.Ptr(r.address),
		Size: r.size, Stream: r.stream, Label: r.label, Weight: r.weight, Stack: c.frames(c.events[i].at),
	}
}

func (c *Copy) frames(s *stack) snapshot.Stack {
	if s == nil {
		return nil
	}
	return s.name(c.log.Package)
}
