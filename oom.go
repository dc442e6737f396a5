package cupool

import (
	"time"

	"github.com/cupool/cupool/internal/oomdump"
	"github.com/cupool/cupool/internal/oomhint"
	"github.com/cupool/cupool/internal/origins"
	"github.com/cupool/cupool/snapshot"
)

// outOfMemory counts and logs a request that nothing could serve, and returns its error.
func (m *miss) outOfMemory() error {
	c := m.c
	c.ooms.Add(1)
	c.log.Warn("out of memory", "stream", uintptr(m.h.stream.handle), "bytes", m.size, "reserved", c.budget.Held(), "error", m.refused)
	return c.oomError(&m.request, m.refused, m.late)
}

// oomError puts the numbers of a failure together.
func (c *Pool) oomError(r *request, cause, late error) error {
	st := c.Stats()
	room, others := c.budget.Room()
	table, lines := c.dev.holders(reportBlocks)
	e := &OOMError{
		Device: c.driver.Name(), Stream: r.h.stream.handle, OtherPools: others,
		Requested: r.size, Rounded: r.rounded, Segment: r.segment(),
		Live: st.LiveBytes, Pending: st.PendingBytes, Cached: st.CachedBytes,
		LargestFree: st.LargestFree, Reserved: st.All.ReservedBytes.Current,
		DeviceFree: -1, DeviceTotal: -1, Limit: c.budget.Printed(),
		Fragmentation: st.Fragmentation(), Cause: cause, late: late, Table: table, Lines: lines[:min(len(lines), maxLines)],
		Time: time.Now(),
	}
	if free, total, err := c.driver.MemInfo(); err == nil {
		e.DeviceFree, e.DeviceTotal = free, total
	}
	c.note(snapshot.OutOfMemory, r.h.stream.handle, Ptr(max(e.DeviceFree, 0)), r.size)
	about := c.circumstances(room, max(r.rounded, r.leastGrowth()))
	if !c.dev.history.On() || about.Words.NoStacks {
		e.recording = about.Words.Recording
	}
	x := oomhint.Refusal{
		Rounded: e.Rounded, Segment: e.Segment, Live: e.Live, Pending: e.Pending, Cached: e.Cached, Reserved: e.Reserved, OtherPools: others,
		DeviceFree: e.DeviceFree, DeviceTotal: e.DeviceTotal, Limit: e.Limit, Room: room, Least: r.leastGrowth(),
		Settings: about, Pool: c.name, Holders: e.Table, LimitName: "limit",
	}
	e.Reason, e.Settings, e.Hint = x.Explain()
	c.dev.pictures.Take(func() { s := c.snapshotOf(c.heaps.tour(reportBlocks)); e.Snapshot = &s })
	if e.Snapshot != nil {
		c.dev.firstOOM.CompareAndSwap(nil, e)
	}
	c.dev.lastOOM.Store(e)
	if dir := c.dev.root.cfg.OOMDump; dir != "" {
		c.dev.dump.Do(func() { c.dev.dumpOOM(dir, e) })
	}
	return e
}

// dumpOOM writes to a folder what all pools hold and what one failed with.
func (d *deviceState) dumpOOM(dir string, e *OOMError) {
	var all []Snapshot
	text := e.Time.Format(time.RFC3339Nano) + "\n" + e.Error() + "\n"
	d.eachWithin(reportBlocks, func(c *Pool, most int) (looked int) {
		tour := c.heaps.tour(most)
		all = append(all, c.snapshotOf(tour))
		text += "\n" + c.Stats().String()
		return most - tour.most
	})
	var of Snapshot
	if len(all) > 0 { // no Close was under way
		of, of.Pools = all[0], all[1:]
	}
	files, err := oomdump.Write(dir, e.Time, text, of)
	if err != nil {
		d.logger.Error("not all of the out of memory dump is written", "files", files+".*", "error", err)
		return
	}
	d.logger.Warn("an out of memory dump is written", "files", files+".*")
}

// circumstances returns what matters for how an out of memory could be avoided,
// where the limits leave room bytes of those that are needed.
func (c *Pool) circumstances(room, need int64) oomhint.Settings {
	vm, _ := c.dev.driver.(VirtualMemory)
	bounds, own := c.dev.root.tuned.Load(), c.budget.Limit-c.budget.Held()
	s := oomhint.Settings{
		Virtual: c.memory != nil, CanBeVirtual: c.memory == nil && !c.ownMemory && c.splits() && vm != nil && vm.VMMGranularity() > 0,
		Own:      c != c.dev.root && c.cfg.Limit > 0 && (own == room || own < need),
		Callback: c.cfg.OnOutOfMemory != nil, Words: c.dev.words,
		Bound: bounds.Limit, Fraction: bounds.Fraction, MaxSplit: c.tuned.Load().MaxSplit, LargeSegment: c.cfg.LargeSegment, WaitTimeout: c.cfg.WaitTimeout,
	}
	for _, p := range c.dev.open() {
		if p.isolated.Load() {
			s.Isolated = append(s.Isolated, p.name)
		}
		if p.lends.Load() {
			s.Lending = append(s.Lending, p.name)
		}
	}
	return s
}

// splits reports whether blocks share segments. SetFlags may end that with all heaps locked.
func (c *Pool) splits() bool {
	c.def.mu.Lock()
	defer c.def.mu.Unlock()
	return !c.space.Policy.NoSplit
}

// reportBlocks is how many blocks the report of an out of memory looks at for its Table and
// Lines, of all pools, and for its Snapshot.
const reportBlocks = 1 << 14

// eachWithin calls f with each open pool and how many of its blocks to look at, so that those of
// all are most at most. f returns at how many it looked.
func (d *deviceState) eachWithin(most int, f func(c *Pool, most int) (looked int)) {
	pools := d.open()
	for i, c := range pools {
		most -= f(c, most/(len(pools)-i))
	}
}

// holders lists who holds the memory of all pools, by stream and label and by line. It looks
// at so many blocks, and what there is beyond them is a row for each pool.
func (d *deviceState) holders(most int) ([]snapshot.Holder, []snapshot.Line) {
	x := reported{}
	d.eachWithin(most, func(c *Pool, most int) (looked int) {
		if !c.asleep.Load() {
			looked = x.add(c, most)
		}
		return looked
	})
	return x.holders.List(), x.lines.List()
}

// reported is who holds the memory of the pools that were looked at.
type reported struct {
	holders snapshot.Holders
	lines   snapshot.Lines
}

// sample is where and under which label blocks were allocated.
type sample struct {
	stack origins.Stack
	label string
}

// estimate is what samples stand for.
type estimate struct{ blocks, bytes float64 }

// add adds a pool, of which it looks at most blocks at most, and returns at how many it did.
func (x *reported) add(c *Pool, most int) (looked int) {
	samples := map[sample]estimate{}
	rest := c.totals()
	tour := c.heaps.tour(most)
	all := tour.each(func(p *piece) {
		for i := range p.blocks {
			b := &p.blocks[i]
			o, state := tour.origin(b), stateNames[b.state]
			x.holders.Add(c.name, p.stream.number, o.Label, state, b.size)
			switch state {
			case snapshot.Pending:
				rest.PendingBytes -= b.size
			case snapshot.Cached, snapshot.Free:
				rest.CachedBytes -= b.size
			case snapshot.Live:
				rest.LiveBytes -= b.size
				rest.All.Allocation.Current--
				rest.All.RequestedBytes.Current -= b.requested
				x.lines.Add(c.name, o.Label, 1, b.requested)
				if at := (sample{o.Stack(), o.Label}); at.stack != (origins.Stack{}) {
					n, weight := samples[at], max(o.Weight, 1) // a sanitizer records all
					samples[at] = estimate{n.blocks + weight, n.bytes + weight*float64(b.requested)}
				}
			}
		}
	})
	if !all {
		x.addRest(c.name, &rest)
	}
	for of, n := range samples { // to name functions takes its time
		x.lines.Record(c.name, of.label, framesOf(of.stack), n.blocks, n.bytes)
	}
	return most - tour.most
}

// addRest adds what a pool holds beyond what was looked at. Other goroutines may have changed
// that meanwhile.
func (x *reported) addRest(pool string, rest *Stats) {
	x.holders.AddRest(snapshot.Holder{
		Pool: pool, Blocks: max(rest.All.Allocation.Current, 0),
		Live: max(rest.LiveBytes, 0), Pending: max(rest.PendingBytes, 0), Cached: max(rest.CachedBytes, 0),
	})
	if n := rest.All.Allocation.Current; n > 0 {
		x.lines.Add(pool, "", n, max(rest.All.RequestedBytes.Current, 0))
	}
}
