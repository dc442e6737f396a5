package main

// #include "internal.h"
import "C"

import (
	"errors"
	"math"

	"github.com/cupool/cupool"
)

//export cupoolGoTrim
func cupoolGoTrim(t *C.thread, ordinal C.int, id C.cupool_pool_id, keep C.size_t, released *C.size_t) C.cupool_status {
	return call(t, ordinal, func(g *gpu) error {
		list, err := g.chosen(idOf(id))
		if err != nil {
			return err
		}
		if keep == 0 {
			g.syncs.Add(1)
		}
		before := g.reserved(list)
		for _, m := range list {
			if idOf(id) == everyPool && m.kept {
				continue
			}
			if keep == 0 {
				err = errors.Join(err, unlessCaptured(m.unlessGone(m.made.EmptyCache())))
				continue
			}
			over := g.reserved(list) - int64(min(keep, math.MaxInt64))
			if over <= 0 {
				break
			}
			_, e := m.made.Trim(max(0, m.made.Stats().All.ReservedBytes.Current-over))
			err = errors.Join(err, unlessCaptured(m.unlessGone(e)))
		}
		set(released, max(0, before-g.reserved(list)))
		g.sweep()
		return err
	})
}

// unlessCaptured drops the error of memory that stays, as it waits for a stream that is captured.
func unlessCaptured(err error) error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		var others []error
		for _, e := range joined.Unwrap() {
			others = append(others, unlessCaptured(e))
		}
		return errors.Join(others...)
	}
	if errors.Is(err, errCaptured) {
		return nil
	}
	return err
}

// reserved returns the bytes that pools hold.
func (g *gpu) reserved(list []member) (n int64) {
	for _, m := range list {
		n += m.made.Stats().All.ReservedBytes.Current
	}
	return n
}

//export cupoolGoSleep
func cupoolGoSleep(t *C.thread, ordinal C.int, id C.cupool_pool_id, contents C.int) C.cupool_status {
	return call(t, ordinal, func(g *gpu) error {
		var keep func(cupool.Block) bool
		switch contents {
		case C.CUPOOL_DROP:
		case C.CUPOOL_KEEP:
			keep = func(cupool.Block) bool { return true }
		default:
			return faultf(C.CUPOOL_ERROR_INVALID, "contents are kept (1) or dropped (0), not %d", int(contents))
		}
		if p, _ := g.find(idOf(id)); p != nil { // one from which nothing was allocated yet sleeps, too
			if _, err := g.private(p.id); err != nil {
				return err
			}
		}
		list, err := g.chosen(idOf(id))
		if err == nil {
			err = g.awaitPeers()
		}
		if err != nil {
			return err
		}
		for _, m := range list {
			if idOf(id) == everyPool && m.kept {
				continue
			}
			e := m.unlessGone(m.made.Sleep(keep))
			if idOf(id) == everyPool && !errors.Is(e, errCaptured) && (errors.Is(e, cupool.ErrAsleep) || m.of != nil && errors.Is(e, cupool.ErrNotSupported)) {
				continue
			}
			err = errors.Join(err, e)
		}
		return err
	})
}

//export cupoolGoWake
func cupoolGoWake(t *C.thread, ordinal C.int, id C.cupool_pool_id) C.cupool_status {
	return call(t, ordinal, func(g *gpu) error {
		list, err := g.chosen(idOf(id))
		for _, m := range list {
			err = errors.Join(err, m.unlessGone(m.made.Wake()))
		}
		return err
	})
}
