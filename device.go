package cupool

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/cupool/cupool/internal/budget"
	"github.com/cupool/cupool/internal/epoch"
	"github.com/cupool/cupool/internal/epoch/calls"
	"github.com/cupool/cupool/internal/gcpressure"
	"github.com/cupool/cupool/internal/history"
	"github.com/cupool/cupool/internal/lock"
	"github.com/cupool/cupool/internal/oomhint"
)

// deviceState is what an allocator that New made, the root, shares with its private
// pools: the Driver, the streams, the events, and the limit on what is reserved.
//
// Its locks and those of the pools are taken in the order of internal/lock.
type deviceState struct {
	driver Driver
	logger *slog.Logger
	root   *Pool
	def    *Stream // the default stream

	calls calls.Device // of the streams, with Config.WaitTimeout
	order calls.Order  // Config.IdleOrder

	history  history.Log
	events   epoch.Events
	pressure gcpressure.Pressure
	later    laterStack            // that FreeLater was given
	lost     atomic.Pointer[error] // the error after which the device is gone

	life lifecycle

	mu      lock.Mutex         // taken to change what follows
	streams published[*Stream] // by slot; closed ones stay until their slot is needed
	pools   published[*Pool]   // that are open, the root first
	remains published[*Pool]   // closed pools whose memory the device would not take back
	numbers uint64             // streams made so far
	look    int                // the slot at which the last search for a free one ended
	closed  bool               // no pools and streams are made any more

	budget budget.Device

	firstOOM, lastOOM atomic.Pointer[OOMError]
	pictures          oomhint.Pictures // of the memory at such a moment
	words             *oomhint.Words   // of the program's language
	dump              sync.Once        // written to Config.OOMDump
}

func newDevice(root *Pool, d Driver, logger *slog.Logger, limit int64) *deviceState {
	dev := &deviceState{driver: d, logger: logger, root: root, budget: budget.Device{Limit: limit}, words: &oomhint.GoWords}
	if s, ok := d.(oomhint.Speaker); ok {
		dev.words = s.Words()
	}
	dev.life.dev = dev
	dev.life.mu.Init(lock.Closing, 0)
	dev.mu.Init(lock.Device, 0)
	dev.calls = calls.Device{Driver: d, Patience: epoch.Patience(root.cfg.WaitTimeout), Failed: dev.failed, Closed: &root.closed}
	if root.cfg.IdleOrder == DeviceOrder {
		dev.order.Streams = dev.eachCalls
	}
	dev.history.Package = packagePath
	dev.pools.Add(root)
	dev.events.Dated = root.cfg.WaitTimeout > 0
	dev.events.Init(d, func(s StreamHandle, err error) {
		logger.Warn("recording an event failed; freed blocks wait on", "stream", uintptr(s), "error", err)
		_ = dev.failed(err)
	})
	return dev
}

// failed remembers a device that is lost, for all pools, and passes the error on. Only
// that error is copied to Go's heap.
func (d *deviceState) failed(err error) error {
	if !errors.Is(err, ErrDeviceLost) {
		return err
	}
	if lost := err; !d.lost.CompareAndSwap(nil, &lost) {
		return err
	}
	for _, c := range d.open() {
		for _, h := range c.heaps.all() { // the lock of one may be held
			h.Magazine.Shut()
		}
	}
	d.logger.Error("device lost", "error", err)
	return err
}

func (d *deviceState) lostError() error {
	if p := d.lost.Load(); p != nil {
		return fmt.Errorf("cupool: %s is lost: %w", d.driver.Name(), *p)
	}
	return nil
}

// waiting returns what bounds the waits of one call.
func (d *deviceState) waiting(ctx context.Context) (context.Context, context.CancelFunc) {
	return d.calls.Patience.Bound(ctx)
}

// open returns the pools that are open, the root first.
func (d *deviceState) open() []*Pool { return d.pools.All() }

// private returns the private pools that are open.
func (d *deviceState) private() []*Pool {
	return d.pools.Without(func(c *Pool) bool { return c == d.root })
}

// byID returns the open pool that a handle is of, or nil.
func (d *deviceState) byID(id uint32) *Pool {
	for _, c := range d.open() {
		if c.id == id {
			return c
		}
	}
	return nil
}

// holder returns the open pool whose memory or addresses hold p, or nil.
func (d *deviceState) holder(p Ptr) *Pool {
	for _, c := range d.open() {
		if _, ok := c.space.Index.Find(uint64(p)); ok {
			return c
		}
	}
	return nil
}

// join adds a pool, whose settings are as the root's were.
func (d *deviceState) join(c *Pool, were *Config) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return fmt.Errorf("cupool: new pool on %s: %w", d.driver.Name(), ErrClosed)
	}
	if now := d.root.tuned.Load(); now != were { // Configure was faster
		change, err := c.change(*now)
		if err != nil {
			return err
		}
		change()
	}
	d.pools.Add(c)
	return nil
}

// leave takes out a pool that was closed. What it could not give back stays reserved
// and is tried again later.
func (d *deviceState) leave(c *Pool) {
	if c != d.root {
		d.history.Forget(c.id)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if c.holdsMemory() {
		d.remains.Add(c)
	}
	d.pools.Remove(c)
}

// settled takes out a closed pool that has given everything back.
func (d *deviceState) settled(c *Pool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.remains.Remove(c)
}

// setClosed says whether no streams and pools are made any more.
func (d *deviceState) setClosed(closed bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = closed
}

// outside fails with ErrNotPermitted in a function that a stream runs, for calls that wait
// for all streams. It comes before any lock, whose holder may wait for the function.
func (d *deviceState) outside(op string) error {
	for _, s := range d.streams.All() {
		if err := s.calls.Outside(op); err != nil {
			return err
		}
	}
	return nil
}

// openStreams returns the streams that are open, by slot.
func (d *deviceState) openStreams() []*Stream {
	return d.streams.Without(func(s *Stream) bool { return !s.calls.IsOpen() })
}

// eachCalls yields the streams that are not closed, and some that are.
func (d *deviceState) eachCalls(yield func(*calls.Stream) bool) {
	for _, s := range d.streams.All() {
		if !yield(&s.calls) {
			return
		}
	}
}

// eachHeap calls f for what the pools hold for a stream, one heap after the other with its
// lock held.
func (d *deviceState) eachHeap(s *Stream, f func(*streamHeap)) {
	for _, c := range d.open() {
		if h := c.heaps.of(s); h != nil {
			h.locked(f)
		}
	}
}

// clock returns the clock of a stream that a block names.
func (d *deviceState) clock(slot uint32) *epoch.Clock { return d.streams.At(int(slot)).clock }

// check verifies C6, once more when pools were made or closed meanwhile.
func (d *deviceState) check() error {
	for {
		open, remains := d.open(), d.remains.All()
		var held []*budget.Pool
		for _, c := range slices.Concat(open, remains) {
			if !slices.Contains(held, &c.budget) { // one that is closed just now is in both lists
				held = append(held, &c.budget)
			}
		}
		err := d.budget.Check(held)
		if err == nil || d.pools.Same(open) && d.remains.Same(remains) {
			return err
		}
	}
}

// obtainable returns how many bytes the allocator can have: its limit, or what
// it holds and the device has left.
func (d *deviceState) obtainable(reserved int64) (int64, error) {
	free, _, err := d.driver.MemInfo()
	if err != nil {
		return 0, d.failed(err)
	}
	return min(d.budget.Bound(), reserved+free), nil
}

// shed trims all pools to their soft limits; no locks are held.
func (d *deviceState) shed() {
	for _, c := range d.open() {
		c.shed()
	}
}
