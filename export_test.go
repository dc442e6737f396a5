package cupool

import (
	"cmp"
	"fmt"
	"math"

	"github.com/cupool/cupool/internal/block"
	"github.com/cupool/cupool/internal/budget"
	"github.com/cupool/cupool/internal/epoch"
	"github.com/cupool/cupool/internal/ledger"
	"github.com/cupool/cupool/snapshot"
)

// Corruptions break the books of an allocator, by the rule that they break.
// Package heap does so with the rules of heaps, of which one is here, too.
var Corruptions = map[string]map[string]func(*Pool){
	"B1": {
		"sizes": func(c *Pool) { c.def.Each(func(_ *block.Segment, _ block.ID, b *block.Block) { b.Size += 512 }) },
	},
	"C1": {
		"live bytes":        func(c *Pool) { c.def.Ledger.Out(ledger.Large, 512, 0) },
		"pending blocks":    func(c *Pool) { c.def.Ledger.Pending(ledger.Large, 512, 0) },
		"splits":            func(c *Pool) { c.def.Ledger.Unsplit(ledger.Large, 1, 512) },
		"against the limit": func(c *Pool) { budget.Miscount(&c.budget, nil, 1) },
	},
	"C6": {
		"bytes of nobody": func(c *Pool) { budget.Miscount(nil, &c.dev.budget, 1) },
		"bytes of closed pools": func(c *Pool) {
			closed := &Pool{}
			budget.Miscount(&closed.budget, nil, 1)
			c.dev.remains.Add(closed)
		},
		"a pool not counted": func(c *Pool) { c.dev.pools.Remove(c) },
	},
	"C7": {
		"a heap that is not found": func(c *Pool) { c.heaps.byIndex.Set(1, c.def); c.heaps.byIndex.Set(0, nil) },
		"a stream that is not there": func(c *Pool) {
			c.def.pending.Record(c.space.Blocks.At(1), epoch.NewClock(0, 77, &c.dev.events))
		},
	},
	"C8": {
		"growth":   func(c *Pool) { c.grown.Add(2) },
		"mappings": func(c *Pool) { c.mapped.Add(2) },
	},
}

// HomedBytes returns the bytes of the default stream's blocks that the
// magazines refer to.
func (c *Pool) HomedBytes() int64 { return c.def.HomedBytes() }

// Slots returns how many streams the allocator keeps, closed ones included.
func (c *Pool) Slots() int { return len(c.dev.streams.All()) }

// Kept returns the bytes that were reserved on purpose.
func (c *Pool) Kept() int64 { return c.heaps.kept() }

// Heaps returns how many heaps the allocator keeps, those of closed streams
// included.
func (c *Pool) Heaps() int { return len(c.heaps.all()) }

// Regrets returns how many kinds of segments are noted as given back.
func (c *Pool) Regrets() int {
	c.reclaim.Lock()
	defer c.reclaim.Unlock()
	return len(c.reclaim.regrets)
}

// FlushOwn is the ladder's step for a request of the default stream.
func (c *Pool) FlushOwn(size int64) bool {
	_, got, err := (&miss{c: c, request: request{size: size, h: c.def}}).flushOwn()
	return got == freed && err == nil
}

// LockEverything locks all that the allocator has locks for, but for its private pools.
func (c *Pool) LockEverything() (unlock func()) {
	c.reclaim.Lock()
	c.dev.mu.Lock()
	c.idle.mu.Lock()
	_, heaps := c.heaps.lockAll()
	return func() {
		heaps()
		c.idle.mu.Unlock()
		c.dev.mu.Unlock()
		c.reclaim.Unlock()
	}
}

// LockHeaps locks the list of the allocator's heaps.
func (c *Pool) LockHeaps() (unlock func()) {
	c.heaps.mu.Lock()
	return c.heaps.mu.Unlock
}

// LockHeap locks what the allocator holds for a stream.
func (c *Pool) LockHeap(s *Stream) (unlock func()) {
	h := c.heaps.of(s)
	h.mu.Lock()
	return h.mu.Unlock
}

// HeapIsFree reports whether nobody holds the lock of LockHeap.
func (c *Pool) HeapIsFree(s *Stream) bool {
	h := c.heaps.of(s)
	if !h.mu.TryLock() {
		return false
	}
	h.mu.Unlock()
	return true
}

// HeldLocks names the locks of the allocator and its open pools that somebody holds.
func (c *Pool) HeldLocks() (names []string) {
	try := func(name string, tryLock func() bool, unlock func()) {
		if !tryLock() {
			names = append(names, name)
			return
		}
		unlock()
	}
	d := c.dev
	try("lifecycle", d.life.mu.TryLock, d.life.mu.Unlock)
	try("device", d.mu.TryLock, d.mu.Unlock)
	for _, p := range d.open() {
		try(p.name+" reclaim", p.reclaim.TryLock, p.reclaim.UnlockUntold)
		try(p.name+" lending", p.idle.mu.TryLock, p.idle.mu.Unlock)
		try(p.name+" heap table", p.heaps.mu.TryLock, p.heaps.mu.Unlock)
		for _, h := range p.heaps.all() {
			try(p.name+" heap", h.mu.TryLock, h.mu.Unlock)
		}
	}
	return names
}

// LockBoth locks what the allocator holds for two streams.
func (c *Pool) LockBoth(a, b *Stream) (unlock func()) {
	return lockBoth(c.heaps.of(a), c.heaps.of(b))
}

// IsHomed reports whether a block has a place in the magazines.
func (c *Pool) IsHomed(b Block) bool {
	_, _, _, ok := c.space.Blocks.At(b.id()).Homed()
	return ok
}

// MakeLender has the memory of a stream lent as if other streams had often taken it.
func (c *Pool) MakeLender(s *Stream) {
	h := c.heaps.of(s)
	c.idle.mu.Lock()
	defer c.idle.mu.Unlock()
	c.idle.of[h] = lender{lends: true}
}

// IsLent reports whether a live block lies on memory of another stream than its own.
func (c *Pool) IsLent(b Block) bool {
	h, _ := c.heaps.lockLive(b)
	defer h.mu.Unlock()
	return h.lent[b.id()] != nil
}

// CheckLent says what is wrong with the blocks that are lent.
func (c *Pool) CheckLent() error {
	heaps, unlock := c.heaps.lockAll()
	defer unlock()
	for _, h := range heaps {
		for id, to := range h.lent {
			b := c.space.Blocks.At(id)
			switch w := b.Word(); {
			case w.State() != block.Live || !w.Has(block.Used) || b.Owner() != h.Index():
				return fmt.Errorf("heap %d has lent %v, which heap %d owns", h.Index(), b, b.Owner())
			case b.Uses() == 0, to.clock.Ended():
				return fmt.Errorf("heap %d has lent %v to a stream that is closed, or not recorded", h.Index(), b)
			}
		}
	}
	return nil
}

// Capture has the pool take a stream for one whose work is kept as a graph.
func (s *Stream) Capture() (end func(), err error) {
	return s.clock.EndCapture, s.clock.Capture(func() error { return nil })
}

// ScopeLen returns the number of blocks that a scope notes.
func ScopeLen(s *Scope) int {
	s.e.scopeMu.Lock()
	defer s.e.scopeMu.Unlock()
	return s.blocks.Len()
}

// HoldMemory returns the memory of a graph, and what gives it back.
func HoldMemory(c *Pool) (a Allocator, release func() error) {
	h := &heldMemory{Allocator: c, from: c, e: new(Engine)}
	return h, h.release
}

// Mapped returns how many of the blocks the pool's maps by address have.
func (c *Pool) Mapped(blocks []Block) (n int) {
	for _, b := range blocks {
		if c.space.At(c.space.Policy.KindOf(b.Size()), uint64(b.Ptr())) == b.id() {
			n++
		}
	}
	return n
}

// SnapshotBetween is a Snapshot of the pool alone that looks at n blocks a portion (0: as many as
// Snapshot does), and calls between before each portion but the first. It returns how many
// blocks each portion had.
func (c *Pool) SnapshotBetween(n int, between func()) (s Snapshot, portions []int) {
	t := c.heaps.tour(everyBlock)
	t.size, t.between = cmp.Or(n, t.size), func() {
		portions = append(portions, len(t.seen))
		if between != nil {
			between()
		}
	}
	s = c.snapshotOf(t)
	return s, portions
}

// ReportUpTo is what the report of an out of memory has that looks at so many blocks: the
// holders, the lines and the Snapshot.
func (c *Pool) ReportUpTo(most int) ([]snapshot.Holder, []snapshot.Line, Snapshot) {
	holders, lines := c.dev.holders(most)
	return holders, lines, c.snapshotOf(c.heaps.tour(most))
}

// InPlace is inPlace.
var InPlace = inPlace

// WithoutSources returns a Config without what it knows of where its settings came from.
func WithoutSources(cfg Config) Config {
	cfg.found, cfg.zeros = nil, nil
	return cfg
}

// AllEvents is poolaccess.Access.Events of an allocator and all its pools, closed ones too.
func AllEvents(c *Pool, after uint64) []snapshot.Event {
	return c.dev.history.Copy(after, math.MaxUint64).Events()
}
