package cupool

import (
	"context"
	"errors"
	"fmt"

	"github.com/cupool/cupool/snapshot"
)

// Trim gives wholly free segments back to the device until at most keep bytes
// are reserved, and returns the bytes that went: the largest first, where some
// can stay. It does not wait for pending blocks, but the device may wait for
// its work: after Config.WaitTimeout what that may use stays, and a *WaitError says
// so. What is in quarantine goes too, as far as the work on it is done.
func (c *Caching) Trim(keep int64) (released int64, err error) {
	if keep < 0 {
		return 0, &BlockError{Op: "trim", Size: keep, Err: ErrInvalidSize}
	}
	if c.closed.Load() {
		return 0, fmt.Errorf("cupool: trim: %w", ErrClosed)
	}
	if c == c.dev.root {
		if err := c.dev.closeRetired(); err != nil {
			return 0, err
		}
	}
	c.reclaim.Lock()
	defer c.reclaim.Unlock()
	if c.asleep.Load() {
		return 0, c.asleepError("trim")
	}
	if err := c.settleEverything(); err != nil {
		return 0, err
	}
	c.drainQuarantines()
	c.flushAll()
	ctx, cancel := c.dev.waiting(context.Background())
	defer cancel()
	released, err = c.releaseSegments(ctx, c.budget.Held()-keep)
	c.note(snapshot.Trim, 0, 0, released)
	return released, err
}

// EmptyCache waits for pending blocks and gives every wholly free segment
// back to the device. Where work is not done after Config.WaitTimeout, it gives back
// the rest and returns a *WaitError. With Config.Sanitize it returns corrupted
// blocks as Check does.
func (c *Caching) EmptyCache() error {
	if c.closed.Load() {
		return fmt.Errorf("cupool: empty cache: %w", ErrClosed)
	}
	if c == c.dev.root {
		if err := c.dev.closeRetired(); err != nil {
			return err
		}
	}
	defer c.reclaim.Report()
	return errors.Join(c.emptyCache(), c.sanitizer.Findings())
}
