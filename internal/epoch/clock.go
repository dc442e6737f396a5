package epoch

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/cupool/cupool/device"
	"github.com/cupool/cupool/internal/lock"
	"github.com/cupool/cupool/internal/realtime"
)

// maxInFlight bounds the events of one stream that are recorded ahead. A device may be a
// thousand kernels behind the program, and a block that waits is free once the next event
// behind it is done: with few of them much memory waits longer than it has to. Each takes some
// 50 bytes.
const maxInFlight = 256

// mark is a recorded event and the epoch that it closed.
type mark struct {
	event device.Event
	epoch uint64
	time  uint64    // of the device
	at    time.Time // when it was recorded, with Events.Dated
}

// Clock counts a stream's epochs and knows which are over. It is safe for use
// from several goroutines.
type Clock struct {
	stream device.Stream
	slot   uint32 // by which blocks name the stream
	events *Events

	tick     atomic.Uint64 // the open epoch
	done     atomic.Uint64 // every epoch up to this one is over
	newest   atomic.Uint64 // the newest that a block waits for
	ended    atomic.Bool   // the stream is closed and its work is done
	passed   atomic.Uint64 // all that the stream was given before this time of the device is done
	captured atomic.Bool   // see Capture; set with mu held

	mu       lock.Mutex // taken to record and to query
	inFlight []mark     // oldest first; guarded by mu
	synced   []mark     // that somebody waits for, once for each who does; guarded by mu
	before   uint64     // the device's time when the capture began; guarded by mu
}

// Insist says what may be done to learn how far a stream is.
type Insist int

// The degrees.
const (
	Peek  Insist = iota // ask about the events in flight
	Ask                 // and record one where blocks wait and none is in flight
	Force               // and record one where blocks wait that no event covers
)

// NewClock returns the clock of a stream. Blocks name the stream by slot.
func NewClock(s device.Stream, slot uint32, events *Events) *Clock {
	k := &Clock{stream: s, slot: slot, events: events}
	k.mu.Init(lock.Clock, 0)
	k.tick.Store(1)
	return k
}

// Open returns the open epoch for a block to wait for.
func (k *Clock) Open() uint64 {
	epoch := k.tick.Load()
	raise(&k.newest, epoch)
	return epoch
}

// Mark closes the open epoch and returns it. The caller then records an event,
// or waits for the stream.
func (k *Clock) Mark() uint64 { return k.tick.Add(1) - 1 }

// Over says that all epochs up to this one are over.
func (k *Clock) Over(epoch uint64) { raise(&k.done, epoch) }

// Done returns the epoch up to which all are known to be over.
func (k *Clock) Done() uint64 { return k.done.Load() }

// Newest returns the newest epoch that a block waits for, 0 for none.
func (k *Clock) Newest() uint64 { return k.newest.Load() }

// Waited reports whether a block waits for an epoch that may not be over.
func (k *Clock) Waited() bool { return k.newest.Load() > k.done.Load() }

// End says that the stream is closed and its work is done. When it returns, no
// event is being recorded, none is in flight, and none is recorded any more.
func (k *Clock) End() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.ended.Store(true)
	for _, m := range k.inFlight {
		k.putLocked(m)
	}
	k.inFlight = nil
}

// putLocked gives back the event of a mark that goes out of flight, unless somebody waits for it.
// An event that is used again is another point, perhaps of another stream.
func (k *Clock) putLocked(m mark) {
	if !slices.Contains(k.synced, m) {
		k.events.Put(m.event)
	}
}

// Ended reports whether End was called.
func (k *Clock) Ended() bool { return k.ended.Load() }

// raise makes a value no lower than v.
func raise(p *atomic.Uint64, v uint64) {
	for old := p.Load(); old < v && !p.CompareAndSwap(old, v); {
		old = p.Load()
	}
}

// Capture calls begin, which makes the device keep the stream's work as a
// graph. Until EndCapture no event is recorded on the stream and nobody waits
// for it, as either would break the capture: blocks that wait for the stream
// wait on. An event shows what came before, and without it no capture begins.
func (k *Clock) Capture(begin func() error) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	before := k.events.Time.Load()
	if err := k.recordLocked(); err != nil {
		return err
	}
	if err := begin(); err != nil {
		return err
	}
	k.before = before
	k.captured.Store(true)
	return nil
}

// EndCapture ends what Capture began.
func (k *Clock) EndCapture() {
	k.mu.Lock()
	k.captured.Store(false)
	k.mu.Unlock()
}

// Captured reports whether the stream's work is kept as a graph.
func (k *Clock) Captured() bool { return k.captured.Load() }

// RecordAhead records an event unless there are enough in flight.
func (k *Clock) RecordAhead() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.inFlight) < maxInFlight {
		_ = k.recordLocked()
	}
}

// recordLocked closes the open epoch with an event. When the device refuses,
// the next event covers the epoch, as it does while the stream is captured. A
// stream that is closed needs none.
func (k *Clock) recordLocked() error {
	if k.Captured() || k.Ended() {
		return nil
	}
	now := k.events.Time.Add(1) // before the epoch is closed, so that whoever closes a later one comes after it
	epoch := k.Mark()           // before the event: see the package's comment
	e, err := k.events.Record(k.stream)
	if err != nil {
		err = fmt.Errorf("cupool: recording an event on %v: %w", k.stream, err)
		k.events.failed(k.stream, err)
		return err
	}
	m := mark{event: e, epoch: epoch, time: now}
	if k.events.Dated {
		m.at = time.Now()
	}
	k.inFlight = append(k.inFlight, m)
	return nil
}

// uncoveredLocked reports whether a block waits for an epoch that no event in
// flight covers.
func (k *Clock) uncoveredLocked() bool {
	covered := k.done.Load()
	if n := len(k.inFlight); n > 0 {
		covered = max(covered, k.inFlight[n-1].epoch)
	}
	return k.newest.Load() > covered
}

// Advance learns how far the stream is.
func (k *Clock) Advance(how Insist) error {
	if !k.Waited() {
		return nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	var err error
	if (how == Force || how == Ask && len(k.inFlight) == 0) && k.uncoveredLocked() {
		err = k.recordLocked()
	}
	err = errors.Join(err, k.queryLocked())
	if how != Peek && len(k.inFlight) < maxInFlight && k.uncoveredLocked() {
		err = errors.Join(err, k.recordLocked())
	}
	return err
}

// queryLocked asks about the events in flight, oldest first, up to the first
// that is not done.
func (k *Clock) queryLocked() (err error) {
	over := 0
	for ; over < len(k.inFlight); over++ {
		m := k.inFlight[over]
		if m.epoch > k.done.Load() {
			done, e := k.events.Query(m.event)
			if e != nil {
				err = fmt.Errorf("cupool: querying an event of %v: %w", k.stream, e)
			}
			if !done || e != nil {
				break
			}
			k.Over(m.epoch)
		}
		raise(&k.passed, m.time)
		k.putLocked(m)
	}
	k.inFlight = append(k.inFlight[:0], k.inFlight[over:]...)
	return err
}

// query is queryLocked that takes the lock.
func (k *Clock) query() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.queryLocked()
}

// Wait waits on the host until an epoch is over, unless the epoch is part of a
// capture. It fails with the cause of ctx when that is done first.
func (k *Clock) Wait(ctx context.Context, epoch uint64) error {
	if err := k.awaitRoom(ctx); err != nil {
		return err
	}
	k.mu.Lock()
	if k.done.Load() >= epoch || k.Ended() {
		k.mu.Unlock()
		return nil
	}
	var m mark
	for _, m = range k.inFlight {
		if m.epoch >= epoch {
			break
		}
	}
	if m.epoch < epoch {
		if err := k.recordLocked(); err != nil || k.Captured() {
			k.mu.Unlock()
			return err
		}
		m = k.inFlight[len(k.inFlight)-1]
	}
	k.mu.Unlock()
	if ctx.Done() != nil {
		return k.pollEpoch(ctx, epoch)
	}
	return k.sync(m)
}

// sync waits on the host for an event that is in flight, or was: then it is done.
func (k *Clock) sync(m mark) error {
	k.mu.Lock()
	if !slices.Contains(k.inFlight, m) {
		k.mu.Unlock()
		return nil
	}
	k.synced = append(k.synced, m)
	k.mu.Unlock()
	defer k.endSync(m)
	if err := k.events.device.SyncEvent(m.event); err != nil {
		return fmt.Errorf("cupool: waiting for an event of %v: %w", k.stream, err)
	}
	k.Over(m.epoch)
	raise(&k.passed, m.time)
	return nil
}

// endSync ends what sync began.
func (k *Clock) endSync(m mark) {
	k.mu.Lock()
	defer k.mu.Unlock()
	i := slices.Index(k.synced, m)
	k.synced = slices.Delete(k.synced, i, i+1)
	if !slices.Contains(k.inFlight, m) {
		k.putLocked(m)
	}
}

// The time between two looks at events while a wait can be cancelled.
const (
	firstPause = 5 * time.Microsecond
	lastPause  = time.Millisecond
)

// pollEpoch asks about the events in flight until an epoch is over or ctx is done.
func (k *Clock) pollEpoch(ctx context.Context, epoch uint64) error {
	return k.poll(ctx, func() bool { return k.done.Load() >= epoch })
}

// poll asks about the events in flight until over reports true or ctx is done.
func (k *Clock) poll(ctx context.Context, over func() bool) error {
	start := time.Now()
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		switch err := k.query(); {
		case err != nil:
			return err
		case over() || k.Ended():
			return nil
		case ctx.Err() != nil && pause > firstPause: // what is done at once has the time
			return k.late(ctx, start)
		}
		realtime.Sleep(pause)
	}
}

// late says that a wait that began at start ended with ctx.
func (k *Clock) late(ctx context.Context, start time.Time) error {
	now := time.Now()
	e := &device.WaitError{Stream: k.stream, Waited: now.Sub(start), Err: context.Cause(ctx)}
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.inFlight) > 0 && k.events.Dated {
		e.Age = now.Sub(k.inFlight[0].at)
	}
	return e
}

// maxWaiting bounds the events of one stream that waits record which are given
// up: of a stream that is stuck, a program may wait again and again.
const maxWaiting = 4 * maxInFlight

// awaitRoom waits until no more events than that are in flight, where the wait
// can be cancelled.
func (k *Clock) awaitRoom(ctx context.Context) error {
	if ctx.Done() == nil {
		return nil
	}
	k.mu.Lock()
	n := len(k.inFlight) - maxWaiting
	if n < 0 {
		k.mu.Unlock()
		return nil
	}
	epoch := k.inFlight[n].epoch
	k.mu.Unlock()
	return k.pollEpoch(ctx, epoch)
}

// Await waits on the host until an event of the stream is done that is not one of
// the clock's own, or fails with the cause of ctx.
func (k *Clock) Await(ctx context.Context, e device.Event) error {
	return k.Until(ctx, func() (bool, error) { return k.events.Query(e) })
}

// Until waits on the host until done reports true or fails, or fails with the cause of ctx.
func (k *Clock) Until(ctx context.Context, done func() (bool, error)) error {
	start := time.Now()
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		over, err := done()
		switch {
		case err != nil || over:
			return err
		case ctx.Err() != nil:
			return k.late(ctx, start)
		}
		realtime.Sleep(pause)
	}
}

// Finish waits on the host until all work that the stream was given is done, or
// fails with the cause of ctx.
func (k *Clock) Finish(ctx context.Context) error {
	if err := k.awaitRoom(ctx); err != nil {
		return err
	}
	k.mu.Lock()
	if k.Captured() {
		k.mu.Unlock()
		return k.capturedError()
	}
	epoch := k.Open()
	err := k.recordLocked()
	k.mu.Unlock()
	if err != nil {
		return err
	}
	return k.pollEpoch(ctx, epoch)
}

func (k *Clock) capturedError() error {
	return fmt.Errorf("cupool: waiting for %v, which is captured: %w", k.stream, device.ErrNotSupported)
}

// Now returns the device's time.
func (k *Clock) Now() uint64 { return k.events.Time.Load() }

// Sync calls wait, which waits for all that the stream was given, and notes that it is
// done.
func (k *Clock) Sync(wait func() error) error {
	now := k.events.Time.Add(1) // as for an event
	epoch := k.Mark()
	if err := wait(); err != nil {
		return err
	}
	k.Over(epoch)
	raise(&k.passed, now)
	return nil
}

// Past reports whether the stream is known to be past a time of the device: all that it
// was given until then is done.
func (k *Clock) Past(time uint64) bool { return k.passed.Load() > time || k.Ended() }

// PassedUntil returns a time such that the stream is known to be past all times before it:
// the latest, as far as Passed has asked.
func (k *Clock) PassedUntil() uint64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.Captured() && k.Past(k.before) {
		return math.MaxUint64
	}
	return k.passed.Load()
}

// Passed is Past that asks. Of a stream that is captured counts what it was given before
// the capture: what a graph holds is no work yet. An event is recorded where none in
// flight shows it. They are asked about once, and at most polls times again; polls is
// what is left.
func (k *Clock) Passed(time uint64, polls *int) (bool, error) {
	time, by, err := k.show(time, maxInFlight)
	for err == nil && by.time > time && !k.Past(time) && *polls > 0 {
		*polls--
		err = k.query()
	}
	return err == nil && k.Past(time), err
}

// AwaitPassed waits on the host until Passed, or fails with the cause of ctx.
func (k *Clock) AwaitPassed(ctx context.Context, time uint64) error {
	if err := k.awaitRoom(ctx); err != nil {
		return err
	}
	time, by, err := k.show(time, math.MaxInt)
	switch {
	case err != nil || k.Past(time):
		return err
	case ctx.Done() == nil:
		return k.sync(by)
	}
	return k.poll(ctx, func() bool { return k.Past(time) })
}

// show has an event in flight that shows whether the stream is past a time, unless there
// are most of others. It returns the time that counts, which a capture may bound, and the
// newest event, which is none for a stream that is known to be past the time.
func (k *Clock) show(time uint64, most int) (_ uint64, newest mark, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.Captured() {
		time = min(time, k.before)
	}
	if k.Past(time) {
		return time, mark{}, nil
	}
	if n := len(k.inFlight); n < most && (n == 0 || k.inFlight[n-1].time <= time) {
		err = k.recordLocked()
	}
	if n := len(k.inFlight); n > 0 {
		newest = k.inFlight[n-1]
	}
	return time, newest, errors.Join(err, k.queryLocked())
}

// InFlight returns the times before which all is done once the newest event in flight is, and
// once one is behind which so many others are: the latest and the earliest time where there is
// none.
func (k *Clock) InFlight(behind int) (newest, ahead uint64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.inFlight) == 0 {
		return math.MaxUint64, 0
	}
	return k.markWith(0).time, k.markWith(behind).time
}

// ahead returns the newest epoch that an event shows behind which so many others are in
// flight, or 0.
func (k *Clock) ahead(behind int) uint64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.markWith(behind).epoch
}

// markWith returns the newest mark in flight behind which so many others are, or none.
func (k *Clock) markWith(behind int) (m mark) {
	if i := len(k.inFlight) - 1 - behind; i >= 0 {
		m = k.inFlight[i]
	}
	return m
}
