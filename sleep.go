package cupool

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/cupool/cupool/internal/nvtx"
)

// Sleep and Wake, for programs that share a GPU by turns, such as servers of
// several models: the memory goes back to the device and the addresses stay.

// contents are what a block held.
type contents struct {
	b    Block
	data []byte
}

// Sleep gives all memory back to the device until Wake. It waits for the work
// of all streams first; from then on until Wake nothing may use the memory.
// Addresses and handles stay valid: live blocks have memory again after Wake,
// where they were. The contents are lost, but for the blocks that keep
// chooses: those are held in the computer's memory meanwhile. keep, nil for
// none, is called for every live block and must not use the allocator.
//
// Blocks can be freed while the allocator sleeps; allocating, Trim,
// EmptyCache and Sleep fail with ErrAsleep. Sleep needs virtual memory and fails
// with ErrNotSupported without it or while blocks are held (Hold), with ErrClosed, and with what the
// device says: when that is before anything was given back, or zeroed for
// ZeroOnFree, the allocator stays awake; else it sleeps, and only what the error
// names stays reserved.
func (c *Pool) Sleep(keep func(Block) bool) error {
	if err := c.mayWait("sleep"); err != nil {
		return err
	}
	return c.reclaim.sleep(keep)
}

// sleep is Pool.Sleep.
func (r *reclaimer) sleep(keep func(Block) bool) error {
	defer nvtx.Start("sleep", 0).End()
	if r.memory == nil {
		return fmt.Errorf("cupool: sleep on %s without virtual memory: %w", r.driver.Name(), ErrNotSupported)
	}
	r.Lock()
	defer r.Unlock()
	switch {
	case r.closed.Load():
		return fmt.Errorf("cupool: sleep: %w", ErrClosed)
	case r.dev.lost.Load() != nil:
		return r.dev.lostError()
	case r.asleep.Load():
		return r.asleepError("sleep")
	}
	err := r.calm()
	if err == nil && r.held.Load() > 0 { // the holders' memory would be another
		err = errHeld
	}
	if err == nil && !r.isolated.Load() {
		ctx, cancel := r.dev.waiting(context.Background())
		_, err = r.upToLocked(ctx, r.budget.Held())
		cancel()
	}
	if err == nil {
		err = r.keepContents(keep)
	}
	if err != nil {
		r.contents = nil
		r.asleep.Store(false)
		return fmt.Errorf("cupool: sleep: %w", err)
	}
	heaps, unlock := r.heaps.lockAll()
	defer unlock()
	if zeroed, err := r.heaps.sleepSanitizers(heaps); err != nil {
		if !zeroed { // else Wake has to bring the contents back
			r.contents = nil
			r.asleep.Store(false)
		}
		return fmt.Errorf("cupool: sleep: %w", err)
	}
	return r.unmapAll(heaps)
}

// calm ends allocating and waits until nothing uses the memory any more.
func (r *reclaimer) calm() (err error) {
	heaps, unlock := r.heaps.lockAll()
	r.asleep.Store(true)
	for _, h := range heaps {
		h.UnhomeAll() // a block in a magazine comes and goes without asking
	}
	unlock()
	ctx, cancel := r.dev.waiting(context.Background())
	defer cancel()
	err = r.dev.syncAll(ctx)
	r.dev.drainLater()
	r.heaps.flush()
	return err
}

// keepContents copies the contents of the blocks that keep chooses.
func (r *reclaimer) keepContents(keep func(Block) bool) error {
	if keep == nil {
		return nil
	}
	heaps, unlock := r.heaps.lockAll()
	live := liveBlocks(heaps)
	unlock()
	for _, b := range live {
		if !keep(b) {
			continue
		}
		data := make([]byte, b.size)
		if err := r.dev.def.calls.WaitAWhile(); err != nil {
			return err
		}
		if err := r.driver.CopyOut(data, b.ptr, r.dev.def.handle); err != nil {
			return r.dev.failed(fmt.Errorf("keeping the contents of %v: %w", b, err))
		}
		r.contents = append(r.contents, contents{b, data})
	}
	return nil
}

// unmapAll puts all memory to sleep. What a call fails for stays as it is: its
// memory stays reserved, and the rest goes on. All heaps are locked.
func (r *reclaimer) unmapAll(heaps []*streamHeap) error {
	var errs []error
	for _, h := range heaps {
		slept, err := h.Sleep()
		r.asleepBytes.Add(slept)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// Wake gets new memory for everything that sleeps, at the same addresses, and
// puts the contents back that Sleep kept. It waits for the copies. Where memory lacks,
// other pools that are not Isolated give back what they cache. An
// allocator that is awake is left alone. It fails with ErrOutOfMemory when
// the device has not enough by now, with ErrClosed, and with what the device
// says, or with a *WaitError after Config.WaitTimeout. The allocator then sleeps
// on and can be woken later. It holds no more than before, unless the device
// does not say that the copies are done: their memory stays reserved.
func (c *Pool) Wake() error {
	if err := c.mayWait("wake"); err != nil {
		return err
	}
	err := c.reclaim.wake()
	if !errors.Is(err, ErrOutOfMemory) {
		return err
	}
	ctx, cancel := c.dev.waiting(context.Background())
	defer cancel()
	before := c.dev.budget.Returns.Load()
	_, late := c.dev.releaseBeside(ctx, c, c.asleepBytes.Load()+c.budget.Beyond())
	if onlyLost(late) == nil && c.dev.budget.Returns.Load() != before {
		err = c.reclaim.wake()
	}
	if err == nil {
		return nil
	}
	return errors.Join(err, late)
}

// wake is Pool.Wake.
func (r *reclaimer) wake() error {
	defer nvtx.Start("wake", 0).End()
	r.Lock()
	defer r.Unlock()
	switch {
	case r.closed.Load():
		return fmt.Errorf("cupool: wake: %w", ErrClosed)
	case !r.asleep.Load():
		return nil
	}
	if len(r.contents) > 0 { // they are put back in the order of the default stream
		if err := r.dev.def.calls.WaitAWhile(); err != nil {
			return fmt.Errorf("cupool: wake: %w", err)
		}
	}
	if err := r.mapAll(); err != nil {
		return fmt.Errorf("cupool: wake: %w", err)
	}
	if err := r.refill(); err != nil {
		return fmt.Errorf("cupool: wake: %w", errors.Join(err, r.doze()))
	}
	r.contents = nil
	r.asleep.Store(false)
	return nil
}

// mapAll gives all that sleeps new memory, or takes it away again where a call fails.
func (r *reclaimer) mapAll() error {
	heaps, unlock := r.heaps.lockAll()
	defer unlock()
	for _, h := range heaps {
		woken, err := h.Wake()
		r.asleepBytes.Add(-woken)
		if err != nil {
			return errors.Join(err, r.unmapAll(heaps))
		}
	}
	return nil
}

// refill gives live blocks what they have to hold, as work of streams, and waits
// for it. No heap is locked then: the streams may run functions that free blocks.
func (r *reclaimer) refill() error {
	if err := r.heaps.wakeSanitizers(); err != nil {
		return err
	}
	return r.putBack()
}

// doze undoes mapAll when the work is done that refill gave to the device.
func (r *reclaimer) doze() error {
	heaps, unlock := r.heaps.lockAll()
	r.heaps.dozeSanitizers(heaps) // no more fills
	unlock()
	if late := r.awaitFills(); late != nil { // memory that is written to cannot be unmapped
		return late
	}
	heaps, unlock = r.heaps.lockAll()
	defer unlock()
	return r.unmapAll(heaps)
}

// putBack copies the kept contents into the blocks that are still live.
func (r *reclaimer) putBack() error {
	var copying []*Stream
	for _, k := range r.contents {
		h, _ := r.heaps.lockLive(k.b)
		if h == nil {
			continue
		}
		by := r.dev.def
		if r.sanitizer != nil && !h.stream.clock.Captured() { // a free of the block fills it in the order of its stream
			by = h.stream
		}
		err := r.driver.CopyIn(k.b.ptr, k.data, by.handle)
		h.mu.Unlock()
		if err != nil {
			return r.dev.failed(fmt.Errorf("putting the contents of %v back: %w", k.b, err))
		}
		if !slices.Contains(copying, by) {
			copying = append(copying, by)
		}
	}
	var errs []error
	for _, s := range copying {
		errs = append(errs, s.calls.WaitAWhile())
	}
	return errors.Join(errs...)
}

// awaitFills waits for the work that refill gave to the device.
func (r *reclaimer) awaitFills() error {
	errs := []error{r.dev.def.calls.WaitAWhile()}
	for _, h := range r.heaps.all() {
		errs = append(errs, h.stream.calls.WaitAWhile())
	}
	return errors.Join(errs...)
}
