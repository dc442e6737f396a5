package planner

import (
	"errors"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/poolaccess"
)

// giveBack frees the memory of an arena. No lane's lock is held.
func giveBack(c *cupool.Pool, old leaving) error {
	if old.memory.IsEmpty() || errors.Is(c.Err(), cupool.ErrClosed) {
		return nil
	}
	for _, u := range old.users {
		if err := c.RecordStream(old.memory, u); err != nil {
			return err
		}
	}
	return c.Free(old.memory)
}

// install gets memory for the plans that are ready and gives them to the lanes.
// Idle memory of the Pool goes back to the device, so that no more is reserved
// than during the recording, or than the plans take. With segments it goes back
// before the arenas are made. With virtual memory the arenas are made of it, and
// the rest goes back after that.
func install(c *cupool.Pool, list []*lane) error {
	var ready []*lane
	var errs []error
	for _, l := range list {
		if old, ok := l.makeRoom(); ok {
			ready = append(ready, l)
			errs = append(errs, giveBack(c, old))
		}
	}
	if len(ready) == 0 {
		return nil
	}
	backing := c.Config().Backing
	trim := func(b cupool.Backing) {
		if b == backing {
			_, err := c.Trim(0)
			errs = append(errs, err)
		}
	}
	trim(cupool.BackingSegments)
	for _, l := range ready {
		errs = append(errs, allocate(c, l))
	}
	trim(cupool.BackingVMM)
	return errors.Join(errs...)
}

// allocate gets the arena for a lane's next plan. It returns no error when there
// is no memory.
func allocate(c *cupool.Pool, l *lane) error {
	pl := l.wants()
	if pl == nil {
		return nil
	}
	memory, err := c.Alloc(pl.height, l.s)
	if err == nil {
		err = poolaccess.Of(c).Cut(memory)
	}
	if err != nil {
		l.refuse()
		if errors.Is(err, cupool.ErrOutOfMemory) {
			err = nil
		}
		return err
	}
	l.install(pl, memory)
	return nil
}

// rescue serves a request for which the Pool has no memory. It gives back the
// arenas of all lanes in which no block lives, or takes idle memory of the lane's
// own arena.
func rescue(c *cupool.Pool, all []*lane, l *lane, size int64, s *cupool.Stream, refused error) (cupool.Block, error) {
	freed := false
	for _, o := range all {
		old := o.relinquish()
		freed = !old.memory.IsEmpty() && giveBack(c, old) == nil || freed
	}
	if freed {
		if h, err := c.Alloc(size, s); !errors.Is(err, cupool.ErrOutOfMemory) {
			return h, err
		}
	}
	l.press()
	if h, ok := l.stray(size, s); ok {
		return h, nil
	}
	return cupool.Block{}, refused
}
