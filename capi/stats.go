package main

// #include "internal.h"
import "C"

import (
	"math"
	"slices"
	"unsafe"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/poolaccess"
)

// account is the statistics of one pool or of several.
type account C.cupool_stats

// quantities is how many cupool_stat there are in cupool_stats, from allocation on.
const quantities = 9*3 + 2

func (a *account) stats() *[quantities]C.cupool_stat {
	return (*[quantities]C.cupool_stat)(unsafe.Pointer(&a.allocation))
}

// counters are those that only grow.
func (a *account) counters() [6]*C.int64_t {
	return [...]*C.int64_t{&a.num_alloc_retries, &a.num_ooms, &a.num_sync_all_streams, &a.num_device_alloc, &a.num_device_free, &a.hits}
}

// books are what is known of the pools of a device beside their own statistics. gpu.mu guards them.
type books struct {
	past account // of pools that are gone; its peaks are of all pools, until the last one went
	base account // what the sums of the device began with anew
	main account // what those of its own pool did
}

// accountOf returns the statistics of a pool, whose segments are counted as snapshots have them.
func accountOf(p *cupool.Pool) (a account) {
	s, shape := p.Stats(), poolaccess.Of(p).Shape()
	small, large := shape[0], shape[1]
	for i, k := range [...]struct {
		at    *cupool.PoolStats
		shape poolaccess.Shape
	}{{&s.All, poolaccess.Shape{Segments: small.Segments + large.Segments, Free: small.Free + large.Free,
		FreeBytes: small.FreeBytes + large.FreeBytes}},
		{&s.Small, small}, {&s.Large, large}} {
		to := func(of *C.cupool_stats3) *C.cupool_stat { return &(*[3]C.cupool_stat)(unsafe.Pointer(of))[i] }
		*to(&a.allocation) = statOf(k.at.Allocation)
		*to(&a.segment) = seenAs(k.at.Segment, k.shape.Segments)
		*to(&a.active) = statOf(k.at.Active)
		*to(&a.inactive_split) = seenAs(k.at.InactiveSplit, k.shape.Free)
		*to(&a.allocated_bytes) = statOf(k.at.AllocatedBytes)
		*to(&a.reserved_bytes) = seenAs(k.at.ReservedBytes, k.at.ReservedBytes.Current-k.shape.Lent)
		*to(&a.active_bytes) = statOf(k.at.ActiveBytes)
		*to(&a.inactive_split_bytes) = seenAs(k.at.InactiveSplitBytes, k.shape.FreeBytes)
		*to(&a.requested_bytes) = statOf(k.at.ActiveRequestedBytes)
	}
	a.num_alloc_retries, a.num_ooms = C.int64_t(s.Retries), C.int64_t(s.OOMs)
	a.num_device_alloc, a.num_device_free = C.int64_t(s.DriverAllocs), C.int64_t(s.DriverFrees)
	a.pending_bytes, a.cached_bytes, a.asleep_bytes = C.int64_t(s.PendingBytes), C.int64_t(s.CachedBytes), C.int64_t(s.AsleepBytes)
	a.largest_free, a.limit = C.int64_t(s.LargestFree), C.int64_t(s.Limit)
	a.hits, a.metadata_bytes, a.streams = C.int64_t(s.Hits), C.int64_t(s.MetadataBytes), C.int64_t(s.Streams)
	a.max_split_size = -1
	if m := p.Config().MaxSplit; m > 0 {
		a.max_split_size = C.int64_t(m)
	}
	return a
}

func statOf(s cupool.Stat) C.cupool_stat {
	return C.cupool_stat{current: C.int64_t(s.Current), peak: C.int64_t(s.Peak), allocated: C.int64_t(s.Allocated), freed: C.int64_t(s.Freed)}
}

// seenAs is statOf a quantity that is counted by other pieces than are seen, of which there are so
// many: the peak is as far above them as it was counted to be.
func seenAs(s cupool.Stat, current int64) C.cupool_stat {
	more := current - s.Current
	s.Current, s.Peak, s.Freed = current, max(s.Peak+more, current), s.Freed-more
	return statOf(s)
}

// add adds the statistics of another pool of the device.
func (a *account) add(b *account) {
	to, of := a.stats(), b.stats()
	for i := range to {
		to[i].current += of[i].current
		to[i].peak += of[i].peak
		to[i].allocated += of[i].allocated
		to[i].freed += of[i].freed
	}
	n := b.counters()
	for i, c := range a.counters() {
		*c += *n[i]
	}
	a.pending_bytes += b.pending_bytes
	a.cached_bytes += b.cached_bytes
	a.asleep_bytes += b.asleep_bytes
	a.metadata_bytes += b.metadata_bytes
	a.largest_free = max(a.largest_free, b.largest_free)
}

// since returns the statistics with sums that began anew.
func (a account) since(base *account) account {
	to, of := a.stats(), base.stats()
	for i := range to {
		to[i].allocated -= of[i].allocated
		to[i].freed -= of[i].freed
	}
	n := base.counters()
	for i, c := range a.counters() {
		*c -= *n[i]
	}
	return a
}

// gone adds what a pool counted that is gone, of which nothing is left.
func (b *books) gone(p *cupool.Pool) {
	a := accountOf(p)
	for i := range a.stats() {
		s := &a.stats()[i]
		s.freed, s.current, s.peak = s.allocated, 0, 0
	}
	a.pending_bytes, a.cached_bytes, a.asleep_bytes, a.metadata_bytes, a.largest_free = 0, 0, 0, 0, 0
	b.past.add(&a)
}

// total returns the statistics of all pools of the device, with sums since these began anew.
func (g *gpu) total() account {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return g.totalLocked().since(&g.books.base)
}

// totalLocked returns the statistics of all pools of the device since its begin. gpu.mu is held all
// the while: a pool that goes meanwhile is not counted twice. Pools that are gone and those that are
// there were not all there at once, so the larger one of their peaks counts.
func (g *gpu) totalLocked() account {
	list := g.membersLocked()
	a := accountOf(list[0].made)
	for _, m := range list[1:] {
		b := accountOf(m.made)
		a.add(&b)
	}
	present, past := *a.stats(), g.books.past.stats()
	a.add(&g.books.past)
	for i := range a.stats() {
		a.stats()[i].peak = max(present[i].peak, past[i].peak)
	}
	a.num_sync_all_streams = C.int64_t(g.syncs.Load())
	a.limit = C.int64_t(g.limit)
	return a
}

// accountSince is accountOf a pool with sums since these began anew.
func (g *gpu) accountSince(p *cupool.Pool, base *account) account {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return accountOf(p).since(base)
}

// emptyAccount returns the statistics of a private pool from which nothing was allocated.
func (g *gpu) emptyAccount(id poolID) (a account, err error) {
	p, err := g.find(id)
	if err != nil {
		return a, err
	}
	main := accountOf(g.root)
	a.limit, a.max_split_size, a.streams = main.limit, main.max_split_size, main.streams
	if own := C.int64_t(p.set.limit); own > 0 && (a.limit == 0 || own < a.limit) {
		a.limit = own
	}
	return a, nil
}

//export cupoolGoStats
func cupoolGoStats(t *C.thread, ordinal C.int, id C.cupool_pool_id, to *C.cupool_stats) C.cupool_status {
	return call(t, ordinal, func(g *gpu) error {
		var a account
		switch idOf(id) {
		case everyPool:
			g.sweep()
			a = g.total()
		case poolID{}:
			a = g.accountSince(g.root, &g.books.main)
		default:
			list, err := g.chosen(idOf(id))
			if err != nil {
				return err
			}
			for i, m := range list {
				b := g.accountSince(m.made, &m.of.base)
				if i == 0 {
					a = b
				} else {
					a.add(&b)
				}
			}
			if list == nil { // nothing was allocated yet
				if a, err = g.emptyAccount(idOf(id)); err != nil {
					return err
				}
			}
		}
		a.struct_size = to.struct_size
		*to = C.cupool_stats(a)
		return nil
	})
}

//export cupoolGoResetPeaks
func cupoolGoResetPeaks(t *C.thread, ordinal C.int) C.cupool_status {
	return call(t, ordinal, func(g *gpu) error {
		g.sweep()          // what is gone has no current values
		_, _ = g.collect() // nor has what streams are done with, as far as the device says so
		for _, m := range g.members() {
			poolaccess.Of(m.made).Flush()
			m.made.ResetPeak()
		}
		g.mu.Lock()
		defer g.mu.Unlock()
		for i := range g.books.past.stats() {
			g.books.past.stats()[i].peak = 0
		}
		return nil
	})
}

//export cupoolGoResetAccumulated
func cupoolGoResetAccumulated(t *C.thread, ordinal C.int) C.cupool_status {
	return call(t, ordinal, func(g *gpu) error {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.books.base, g.books.main = g.totalLocked(), accountOf(g.root)
		for _, m := range g.membersLocked()[1:] {
			m.of.base = accountOf(m.made)
		}
		return nil
	})
}

//export cupoolGoLastOOM
func cupoolGoLastOOM(t *C.thread, ordinal C.int, to *C.cupool_oom) C.cupool_status {
	return call(t, ordinal, func(g *gpu) error {
		e := g.root.LastOOM()
		if e == nil {
			return faultf(C.CUPOOL_ERROR_NOT_FOUND, "device %d has refused nothing", g.ordinal)
		}
		n := func(v int64) C.int64_t { return C.int64_t(v) }
		*to = C.cupool_oom{struct_size: to.struct_size, requested: n(e.Requested), rounded: n(e.Rounded), live: n(e.Live), pending: n(e.Pending),
			cached: n(e.Cached), largest_free: n(e.LargestFree), reserved: n(e.Reserved), other_pools: n(e.OtherPools),
			device_free: n(e.DeviceFree), device_total: n(e.DeviceTotal), limit: n(e.Limit), time: n(e.Time.UnixNano())}
		return nil
	})
}

//export cupoolGoForgetLabels
func cupoolGoForgetLabels(t *C.thread, ordinal C.int) C.cupool_status {
	return call(t, ordinal, func(g *gpu) error {
		for _, m := range g.members() {
			m.made.ForgetLabels()
		}
		g.labeled.Clear() // they are made again when they are used
		return nil
	})
}

//export cupoolGoLabels
func cupoolGoLabels(t *C.thread, ordinal C.int, visit *C.label_visit) C.cupool_status {
	return call(t, ordinal, func(g *gpu) error {
		sums := map[string]*cupool.LabelStats{}
		var order []string
		for _, m := range g.members() {
			for _, l := range m.made.Stats().Labels {
				if s := sums[l.Label]; s != nil {
					sum(&s.Blocks, l.Blocks)
					sum(&s.Bytes, l.Bytes)
					continue
				}
				sums[l.Label] = &l
				order = append(order, l.Label)
			}
		}
		slices.Sort(order)
		for _, name := range order {
			s := sums[name]
			text := newText(name)
			l := C.cupool_label_stats{label: text.c, blocks: statOf(s.Blocks), bytes: statOf(s.Bytes)}
			C.cupool_call_label(visit, &l)
			text.free()
		}
		return nil
	})
}

// sum adds the statistics of a label in another pool.
func sum(to *cupool.Stat, s cupool.Stat) {
	to.Current += s.Current
	to.Peak += s.Peak
	to.Allocated += s.Allocated
	to.Freed += s.Freed
}

//export cupoolGoHistoryStart
func cupoolGoHistoryStart(t *C.thread, ordinal C.int, events, sample C.size_t) C.cupool_status {
	return call(t, ordinal, func(g *gpu) error {
		return g.root.StartHistory(cupool.History{Events: int(min(events, math.MaxInt64)), SampleBytes: int64(min(sample, math.MaxInt64))})
	})
}

//export cupoolGoHistoryStop
func cupoolGoHistoryStop(t *C.thread, ordinal C.int) C.cupool_status {
	return call(t, ordinal, func(g *gpu) error {
		g.root.StopHistory()
		return nil
	})
}

//export cupoolGoHistoryEnabled
func cupoolGoHistoryEnabled(t *C.thread, ordinal C.int) (on C.int) {
	defer func() { _ = recover() }()
	if uint(ordinal) < uint(len(gpus)) {
		if g := gpus[ordinal].Load(); g != nil {
			on = boolean(g.root.Config().History != nil)
		}
	}
	return on
}
