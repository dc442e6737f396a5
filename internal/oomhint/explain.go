package oomhint

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// The reasons why a request is refused.
const (
	Fragmentation = "fragmentation"   // there is enough free memory, in pieces, and it is much beside what is held
	Limit         = "limit"           // the device has more than may be reserved
	OtherProcess  = "another process" // it, or the driver itself, holds what is missing
	PendingFrees  = "pending frees"   // other streams still use memory that was freed
	OtherPools    = "other pools"     // other pools hold what is missing
	TooMuch       = "too much"        // the program holds or wants too much
)

// Settings are those of the pool that refused which matter for what to advise.
type Settings struct {
	Virtual      bool // memory is virtual, and joined
	CanBeVirtual bool // the device could map memory, and the pool may use that
	Own          bool // the pool's own limit refuses, whatever that of all leaves
	Callback     bool // Config.OnOutOfMemory is set

	Bound        int64         // Config.Limit
	Fraction     float64       // of Config
	MaxSplit     int64         // of Config
	LargeSegment int64         // of Config
	WaitTimeout  time.Duration // of Config; 0: none

	Words             *Words   // nil: Go's
	Isolated, Lending []string // other pools with PoolConfig.Isolated and UseOnOOM
}

// room returns what limits and device leave.
func (r *Refusal) room() int64 {
	room := r.DeviceFree
	if r.Room < math.MaxInt64 && (room < 0 || r.Room < room) {
		room = r.Room
	}
	return max(room, 0)
}

// missing returns the bytes that lack for the request.
func (r *Refusal) missing() int64 { return max(r.Rounded, r.Least) - r.room() }

// foreign returns what is in use on the device, and not by this allocator.
func (r *Refusal) foreign() int64 {
	if r.DeviceTotal < 0 || r.DeviceFree < 0 {
		return 0
	}
	return max(r.DeviceTotal-r.DeviceFree-r.Reserved-r.OtherPools, 0)
}

// foreignPart is which part of a device others hold at least where they are the
// reason: what the driver needs for a process is no reason.
const foreignPart = 8

// freePart is which part of what is held has to be free, in pieces, to be the reason: a
// program that holds nearly all of a device would soon be refused in any case.
const freePart = 8

// much reports whether free bytes are many beside what is held.
func (r *Refusal) much(free int64) bool { return free >= (r.Live+r.OtherPools)/freePart }

// Explain returns the reason, the settings that would have helped, and a hint.
func (r *Refusal) Explain() (reason string, advice []string, hint string) {
	return r.Reason(), r.Advice(), r.Hint()
}

// Reason returns the one reason that would have to go for the request to fit.
func (r *Refusal) Reason() string {
	room, missing, foreign := r.room(), r.missing(), r.foreign()
	_, idle := r.otherIdle()
	switch {
	case r.DeviceTotal >= 0 && r.Rounded > r.DeviceTotal:
		return TooMuch
	case r.Limit > 0 && r.Rounded > r.Limit:
		return Limit
	case r.Pending > 0 && missing > 0 && r.Pending >= missing:
		return PendingFrees
	case r.inPieces() && r.much(r.Cached):
		return Fragmentation
	case !r.Own && idle > 0 && idle >= missing && missing > 0:
		return OtherPools
	case r.limits():
		return Limit
	case foreign >= missing && foreign > r.DeviceTotal/foreignPart && foreign >= r.OtherPools:
		return OtherProcess
	case room >= max(r.Rounded, r.Least) && r.Virtual:
		return OtherProcess // it was faster
	case room >= max(r.Rounded, r.Least) && r.much(room):
		return Fragmentation // of the device
	case r.OtherPools > r.Live:
		return OtherPools
	default:
		return TooMuch
	}
}

// inPieces reports whether the cached memory would be enough in one piece, with what is
// left where it is much.
func (r *Refusal) inPieces() bool {
	room := r.room()
	return room < r.Rounded && (r.Cached >= r.Rounded || r.much(r.Cached) && r.Cached > 0 && r.Cached+room >= r.Rounded)
}

// limits reports whether the device has what a limit refuses.
func (r *Refusal) limits() bool {
	need := max(r.Rounded, r.Least)
	return r.Limit > 0 && r.DeviceFree >= need && r.Room < need
}

// otherIdle returns the other pool that caches the most, and what all of them cache.
func (r *Refusal) otherIdle() (pool string, sum int64) {
	most, by := int64(0), map[string]int64{}
	for _, h := range r.Holders {
		if h.Pool == r.Pool {
			continue
		}
		sum += h.Cached
		if by[h.Pool] += h.Cached; by[h.Pool] > most {
			pool, most = h.Pool, by[h.Pool]
		}
	}
	return pool, sum
}

// maxAdvice is how many settings are advised.
const maxAdvice = 2

// Advice returns the settings and calls that would most likely have helped, the
// best first, as a program has them in its source.
func (r *Refusal) Advice() []string {
	w := r.words()
	var list []string
	add := func(when bool, format string, args ...any) {
		if when {
			list = append(list, fmt.Sprintf(format, args...))
		}
	}
	pool, idle := r.otherIdle()
	reason := r.Reason()
	switch {
	case reason == Limit:
		list = append(list, r.raise()...)
		add(slices.Contains(r.Isolated, pool) && !r.Own, w.EmptyCache, name(pool))
	case reason == Fragmentation, reason == TooMuch && r.inPieces():
		add(r.CanBeVirtual && r.MaxSplit == 0, "%s", w.Virtual)
		add(r.CanBeVirtual && r.MaxSplit > 0, "%s", w.VirtualSplit)
		add(!r.Virtual && r.MaxSplit == 0 && r.Rounded >= r.LargeSegment && r.LargeSegment > 0, w.MaxSplit, size(r.Rounded)...)
		add(r.Virtual, "%s for blocks that live long", w.NewPool)
		if r.limits() {
			list = append(list, r.raise()...)
		}
	case reason == OtherPools:
		kept := idle > 0 && slices.Contains(r.Isolated, pool)
		add(kept, w.EmptyCache, name(pool))
		add(kept, w.NotIsolated, name(pool))
		add(idle > 0 && r.Pool == "" && !slices.Contains(slices.Concat(r.Lending, r.Isolated), pool), w.UseOnOOM, name(pool))
		add(idle == 0, w.PoolLimit, name(r.largestOther()))
	case reason == OtherProcess:
		list = append(list, "end the other process (nvidia-smi lists it)", w.OtherProcess)
	case reason == PendingFrees:
		list = append(list, w.Sync+" before the allocation")
		add(r.WaitTimeout > 0, "a "+w.WaitTimeout+" above %v", r.WaitTimeout)
	}
	holder := r.largestLabel()
	add(holder != "", "free some of label %q", holder)
	add(reason == TooMuch, "smaller batches") // no other setting helps then
	add(!r.Callback && r.freeable(), "OnOutOfMemory: a function that frees what can be made again")
	add(reason != TooMuch && r.Rounded > r.room()+r.Cached, "smaller batches")
	return slices.Clip(list[:min(len(list), maxAdvice)])
}

// raise returns the limits that would have been enough, of those that are below.
func (r *Refusal) raise() (list []string) {
	w := r.words()
	growth := r.Segment
	if r.Virtual { // it grows by what is missing
		growth = r.Least
	}
	enough, others := r.Reserved+max(growth, r.Rounded), r.OtherPools
	if r.Own {
		list = append(list, fmt.Sprintf(w.OwnLimit, size(enough)...))
		_, idle := r.otherIdle()
		others -= idle // which other pools give up when this one may have it
	}
	enough += others
	part := float64(enough) / float64(r.DeviceTotal)
	fraction := r.Fraction > 0 && r.DeviceTotal > 0 && r.Fraction < part
	if r.Bound > 0 && r.Bound < enough || !fraction && !r.Own {
		list = append(list, fmt.Sprintf(w.Limit, size(enough)...))
	}
	if fraction {
		list = append(list, fmt.Sprintf(w.Fraction, min(math.Ceil(100*part)/100, 1)))
	}
	return list
}

// freeable reports whether the request would fit if the program freed what it holds.
func (r *Refusal) freeable() bool {
	held := r.Live
	for _, h := range r.Holders {
		if h.Pool != r.Pool && !r.Own {
			held += h.Live
		}
	}
	need := max(r.Rounded, r.Least)
	return held > 0 && (r.Limit == 0 || need <= r.Limit) && (r.DeviceFree < 0 || need <= r.DeviceFree+r.Reserved+r.OtherPools)
}

// largestLabel returns the label that the pool holds the most under, where that would be
// enough, or "".
func (r *Refusal) largestLabel() string {
	for _, h := range r.Holders {
		if h.Pool == r.Pool && h.Label != "" && h.Live >= max(r.missing(), 1) {
			return h.Label
		}
	}
	return ""
}

// largestOther returns the other pool that holds the most.
func (r *Refusal) largestOther() string {
	for _, h := range r.Holders {
		if h.Pool != r.Pool {
			return h.Pool
		}
	}
	return ""
}

// name names a pool for people.
func name(pool string) string {
	if pool == "" {
		return "the allocator"
	}
	return fmt.Sprintf("pool %q", pool)
}

// Expr prints a size as Go source, rounded up to MiB: "8<<30", "1300<<20".
func Expr(n int64) string {
	mib := mebibytes(n)
	if mib%1024 == 0 {
		return fmt.Sprintf("%d<<30", mib/1024)
	}
	return fmt.Sprintf("%d<<20", mib)
}

func mebibytes(n int64) int64 { return (n + 1<<20 - 1) >> 20 }
