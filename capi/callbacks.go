package main

// #include "internal.h"
import "C"

import "github.com/cupool/cupool"

// beforeGrow is Config.BeforeGrow.
func (g *gpu) beforeGrow(size int64) {
	if c := g.callbacks.Load(); c != nil && c.before_grow != nil {
		C.cupool_call_before_grow(c, C.int(g.ordinal), C.size_t(size))
	}
}

// onOOM is Config.OnOutOfMemory.
func (g *gpu) onOOM(requested int64) bool {
	c := g.callbacks.Load()
	return c != nil && c.on_oom != nil && C.cupool_call_on_oom(c, C.int(g.ordinal), C.size_t(requested)) != 0
}

// tell tells the program of a segment. Locks of the pool may be held.
func (g *gpu) tell(action C.int, of poolID, p cupool.Ptr, size int64, stream C.uintptr_t) {
	if c := g.callbacks.Load(); c != nil && c.segment != nil {
		C.cupool_call_segment(c, C.int(g.ordinal), action, of.c(), C.uintptr_t(p), C.size_t(size), stream)
	}
}

//export cupoolGoSetCallbacks
func cupoolGoSetCallbacks(t *C.thread, ordinal C.int, c *C.cupool_callbacks) C.cupool_status {
	return call(t, ordinal, func(g *gpu) error {
		var mine *C.cupool_callbacks
		if c != nil {
			set := *c
			mine = &set
		}
		g.callbacks.Store(mine)
		return nil
	})
}
