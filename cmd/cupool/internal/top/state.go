// Package top is the live view of an allocator in a terminal: it asks the debug
// page of a program (package debug) for its figures again and again, and draws
// them.
package top

import (
	"cmp"
	"slices"
	"time"

	"github.com/cupool/cupool/snapshot"
)

// A State is what an allocator says about itself at one moment. Sizes are in
// bytes, and counts are since the start.
type State struct {
	Device string // of the first pool, and how many others there are
	Time   time.Time
	Limit  int64 // what may be reserved; 0: no limit
	Peak   int64 // of what was reserved; 0: not known
	Memory
	Counts

	Places []Place // pools, each followed by its streams
	Labels []Holder
	Lines  []Holder
	Events []snapshot.Event // the newest last

	Recorded bool // where some of it was allocated
	OOM      *OOM // nil: none

	unlimited bool // one allocator has no limit
}

// OOM is the last allocation that failed for lack of memory.
type OOM struct {
	Time  time.Time
	Asked int64
	Why   []string // the cause, and who held most
}

// Memory is what a pool or a stream has of the device.
type Memory struct {
	Live, Pending, Cached int64
	Reserved              int64
	Blocks                int64 // live ones
}

// Counts grow as long as the program runs.
type Counts struct {
	Allocs, Frees         int64
	Hits, Mapped, Grown   int64
	DriverAllocs, Retries int64
	OOMs                  int64
}

// A Place is a pool, or a stream of the pool before it.
type Place struct {
	Name   string
	Stream bool
	Memory
}

// A Holder is a part of the program that holds memory.
type Holder struct {
	Name          string
	Bytes, Blocks int64
}

// An order is one that holders are sorted by.
type order int

const (
	byBytes order = iota
	byBlocks
	byName
	orders
)

func (o order) String() string { return [...]string{"bytes", "blocks", "name"}[o] }

// sorted returns the holders in an order, the larger ones first.
func sorted(holders []Holder, by order) []Holder {
	return slices.SortedFunc(slices.Values(holders), func(a, b Holder) int {
		name := cmp.Compare(a.Name, b.Name)
		switch by {
		case byBlocks:
			return cmp.Or(cmp.Compare(b.Blocks, a.Blocks), name)
		case byName:
			return name
		}
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), name)
	})
}

// rates returns how much each count grew in a second, and false where that is
// not known: there is one state only, the program was started anew, or a pool was closed.
func rates(before, now *State) (c Counts, known bool) {
	if before == nil || !now.Time.After(before.Time) {
		return Counts{}, false
	}
	seconds := now.Time.Sub(before.Time).Seconds()
	known = true
	per := func(now, before int64) int64 {
		known = known && now >= before
		return int64(float64(now-before)/seconds + 0.5)
	}
	c = Counts{
		Allocs: per(now.Allocs, before.Allocs), Frees: per(now.Frees, before.Frees),
		Hits: per(now.Hits, before.Hits), Mapped: per(now.Mapped, before.Mapped), Grown: per(now.Grown, before.Grown),
		DriverAllocs: per(now.DriverAllocs, before.DriverAllocs),
		Retries:      per(now.Retries, before.Retries), OOMs: per(now.OOMs, before.OOMs),
	}
	return c, known
}
