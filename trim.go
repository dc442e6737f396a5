package cupool

import (
	"context"
	"errors"
	"fmt"

	"github.com/cupool/cupool/internal/block"
	"github.com/cupool/cupool/snapshot"
)

// Trim gives wholly free segments back to the device until at most keep bytes are
// reserved, those in use counted, as cudaMemPoolTrimTo does. To keep so much free memory
// beside what is in use, add Stats.LiveBytes and Stats.PendingBytes; to give so many bytes
// back, subtract them from Stats.All.ReservedBytes. It returns the bytes that went, in
// the order of Config.TrimOldest where some can stay.
//
// It does not wait for pending blocks, but the device may wait for its work: after
// Config.WaitTimeout what that may use stays, and a *WaitError says so. What is in
// quarantine goes too, as far as the work on it is done. It fails with ErrInvalidSize
// for a negative keep, ErrClosed, ErrAsleep, or what the device says.
func (c *Pool) Trim(keep int64) (released int64, err error) {
	if err := c.made("trim"); err != nil {
		return 0, err
	}
	if keep < 0 {
		return 0, &BlockError{Op: "trim", Size: -1, Err: ErrInvalidSize, Detail: fmt.Sprintf("%d bytes cannot stay", keep)}
	}
	if c.closed.Load() {
		return 0, fmt.Errorf("cupool: trim: %w", ErrClosed)
	}
	if err := c.dev.outside("trim"); err != nil {
		return 0, err
	}
	late, err := c.finish()
	if err != nil {
		return 0, err
	}
	released, err = c.reclaim.trim(keep)
	return released, errors.Join(late, err)
}

// finish is lifecycle.finish where c is the allocator. Work of other pools that is late does
// not hold up the allocator's own memory, so that error is apart.
func (c *Pool) finish() (late, err error) {
	if c != c.dev.root {
		return nil, nil
	}
	if err = c.dev.life.finish(context.Background()); isLate(err) {
		return err, nil
	}
	return nil, err
}

// trim is Pool.Trim of a pool that is open.
func (r *reclaimer) trim(keep int64) (released int64, err error) {
	r.Lock()
	defer r.Unlock()
	if r.asleep.Load() {
		return 0, r.asleepError("trim")
	}
	if err := r.heaps.settleEverything(); err != nil {
		return 0, err
	}
	r.heaps.drainQuarantines()
	r.heaps.flush()
	ctx, cancel := r.dev.waiting(context.Background())
	defer cancel()
	released, err = r.upToLocked(ctx, r.budget.Held()-keep)
	r.note(snapshot.Trim, 0, 0, released)
	return released, err
}

// SetSoftLimit changes the SoftLimit of the allocator, or of the private pool that
// it is called on, to so many bytes, 0 for none. From then on free memory beyond it
// also goes back to the device: in this call, and when blocks are freed or Sync
// finds them free. That waits for no work: what streams at work may use stays, and
// segments do while any stream is at work, until the next such call. Blocks larger
// than Config.SmallLimit take a lock then when they are freed, and a program that
// needs more than the limit pays the device's calls for it; 0 ends both. What was
// reserved on purpose stays in segments. What the device refuses to take back when a block
// is freed, or in Sync, is logged, stays reserved and is tried again by the next such call.
// SetSoftLimit fails with ErrInvalidSize for a
// negative number, ErrClosed, or with what the device says.
func (c *Pool) SetSoftLimit(bytes int64) error {
	if err := c.made("set soft limit"); err != nil {
		return err
	}
	switch {
	case bytes < 0:
		return &BlockError{Op: "set soft limit", Size: -1, Err: ErrInvalidSize, Detail: fmt.Sprintf("%d bytes are no limit", bytes)}
	case c.closed.Load():
		return fmt.Errorf("cupool: set soft limit: %w", ErrClosed)
	}
	heaps, unlock := c.heaps.lockAll()
	p := &c.space.Policy
	p.HomeLimit = c.cfg.policy(p.NoSplit).HomeLimit
	if bytes > 0 { // the free of a block with a place in a magazine is not seen
		p.HomeLimit = min(p.HomeLimit, c.cfg.SmallLimit)
		for _, h := range heaps {
			h.UnhomeAll()
		}
	}
	c.budget.Soft.Store(bytes)
	c.sheds.Store(bytes > 0)
	unlock()
	return c.reclaim.shed()
}

// shed trims the pool to its soft limit after a call that may have freed blocks, which has
// done what it had to: its caller is not told what the device refuses. No locks are held.
func (c *Pool) shed() {
	if c.sheds.Load() {
		c.reclaim.shedQuietly()
	}
}

// shedQuietly is shed whose error is logged.
func (r *reclaimer) shedQuietly() {
	if err := r.shed(); err != nil {
		r.log.Warn("giving memory beyond the soft limit back failed", "error", err)
	}
}

// freeShed is freeSlow, and then shed.
func (c *Pool) freeShed(b Block) error {
	err := c.freeSlow(b)
	c.shed()
	return err
}

// shed gives free memory beyond the soft limit back.
func (r *reclaimer) shed() error {
	soft := r.budget.Soft.Load()
	if soft == 0 || r.budget.Held() <= soft || !r.TryLock() {
		return nil // the lock's holder gives memory back
	}
	defer r.Unlock()
	_, err := r.atOnceLocked(r.budget.Held() - soft)
	return err
}

// Reset ends the life of all blocks of the allocator, or of the private pool that
// it is called on, live ones too, and gives all their memory back to the device.
// The allocator and its streams go on, and its peaks begin anew. It waits for
// the work of all streams first. The handles are as after Free: their use fails
// with ErrDoubleFree or ErrUseAfterFree. So do allocations of an Arena over them, and a
// Planner over the pool has no plan any more. Other pools keep their blocks. Nothing may
// be allocated, nor work be submitted on the blocks, before Reset returns. Take it
// between phases of a program, or after an error that leaves blocks which nobody
// knows; EmptyCache spares live blocks. It fails with ErrClosed, ErrAsleep, with
// ErrNotSupported while blocks are held (Hold), or a *WaitError after
// Config.WaitTimeout, and has changed nothing then, or with what the device says,
// which keeps what the error names.
func (c *Pool) Reset() error {
	if err := c.mayWait("reset"); err != nil {
		return err
	}
	return c.dev.life.reset(c)
}

// EmptyCache waits for pending blocks and gives every wholly free segment
// back to the device. Where work is not done after Config.WaitTimeout, it gives back
// the rest and returns a *WaitError. It fails with ErrClosed, ErrAsleep or what the device
// says. With Config.Sanitize it returns corrupted blocks as Check does.
func (c *Pool) EmptyCache() error {
	if err := c.made("empty cache"); err != nil {
		return err
	}
	if c.closed.Load() {
		return fmt.Errorf("cupool: empty cache: %w", ErrClosed)
	}
	if err := c.dev.outside("empty cache"); err != nil {
		return err
	}
	late, err := c.finish()
	if err != nil {
		return err
	}
	defer c.reclaim.Report()
	ctx, cancel := c.dev.waiting(context.Background())
	defer cancel()
	return errors.Join(late, c.reclaim.empty(ctx), c.sanitizer.Findings())
}

// reclaimAll gives need bytes of each pool back, as poolaccess.Access says.
func (c *Pool) reclaimAll(need int64) (released int64, err error) {
	ctx, cancel := c.dev.waiting(context.Background())
	defer cancel()
	for _, m := range c.dev.open() {
		if !m.isolated.Load() {
			m.heaps.flush()
			n, e := m.reclaim.upTo(ctx, need)
			released, err = released+n, errors.Join(err, e)
		}
	}
	return released, err
}

// cutLast gives the memory back that the last handle of a live block has behind it.
func (r *reclaimer) cutLast(b Block) error {
	if b.pool() != r.id || r.memory == nil || r.isolated.Load() || r.sanitizer != nil { // another pool lent it, or a sanitizer has filled it
		return nil
	}
	ctx, cancel := r.dev.waiting(context.Background())
	defer cancel()
	if !r.LockUntil(ctx) {
		return nil
	}
	defer r.Unlock()
	h, x := r.heaps.lockLive(b)
	if h == nil { // its life was ended
		return nil
	}
	defer h.mu.Unlock()
	now := h.stream.clock.Now() // what has used that memory was submitted before the block was allocated
	if h.lent[b.id()] != nil || r.asleep.Load() || h.stream.clock.Captured() || h.awaitLocked(ctx, func() uint64 { return now }) != nil {
		return nil
	}
	if w := x.Word(); x.Owner() != h.Index() || w.Gen() != b.gen || w.State() != block.Live {
		return nil // it was freed meanwhile, or its stream closed
	}
	released, err := h.CutLast(x)
	h.checkLocked()
	if released > 0 {
		r.note(snapshot.Trim, 0, 0, released)
	}
	return err
}
