package cupool

import (
	"time"

	"github.com/cupool/cupool/internal/oomhint"
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
	table, lines := c.dev.holders()
	e := &OOMError{
		Device: c.driver.Name(), Stream: r.h.stream.handle, OtherPools: others,
		Requested: r.size, Rounded: r.rounded, Segment: r.segment(),
		Live: st.LiveBytes, Pending: st.PendingBytes, Cached: st.CachedBytes,
		LargestFree: st.LargestFree, Reserved: st.All.ReservedBytes.Current,
		DeviceFree: -1, DeviceTotal: -1, Limit: c.budget.Printed(),
		Fragmentation: st.Fragmentation(), Cause: cause, late: late, Table: table, Lines: lines[:min(len(lines), maxLines)],
		Time: time.Now(), recorded: c.dev.history.On(),
	}
	if free, total, err := c.driver.MemInfo(); err == nil {
		e.DeviceFree, e.DeviceTotal = free, total
	}
	c.note(snapshot.OutOfMemory, r.h.stream.handle, Ptr(max(e.DeviceFree, 0)), r.size)
	x := oomhint.Refusal{
		Rounded: e.Rounded, Segment: e.Segment, Live: e.Live, Pending: e.Pending, Cached: e.Cached, Reserved: e.Reserved, OtherPools: others,
		DeviceFree: e.DeviceFree, DeviceTotal: e.DeviceTotal, Limit: e.Limit, Room: room, Least: r.leastGrowth(),
		Settings: c.circumstances(room), Pool: c.name, Holders: e.Table, LimitName: "limit", Raise: "Limit or Fraction",
	}
	e.Reason, e.Settings, e.Hint = x.Explain()
	c.dev.pictures.Take(func() { s := c.ownSnapshot(); e.Snapshot = &s })
	if e.Snapshot != nil {
		c.dev.firstOOM.CompareAndSwap(nil, e)
	}
	c.dev.lastOOM.Store(e)
	return e
}

// circumstances returns what matters for how an out of memory could be avoided,
// where the limits leave so many bytes.
func (c *Pool) circumstances(room int64) oomhint.Settings {
	vm, _ := c.dev.driver.(VirtualMemory)
	s := oomhint.Settings{
		Virtual: c.memory != nil, CanBeVirtual: c.memory == nil && !c.ownMemory && !c.space.Policy.NoSplit && vm != nil && vm.VMMGranularity() > 0,
		Own: c != c.dev.root && c.cfg.Limit > 0 && c.budget.Limit-c.budget.Held() == room, LimitField: "PoolConfig.Limit",
		Callback: c.cfg.OnOutOfMemory != nil,
		Fraction: c.dev.root.cfg.Fraction, MaxSplit: c.cfg.MaxSplit, LargeSegment: c.cfg.LargeSegment, WaitTimeout: c.cfg.WaitTimeout,
	}
	for _, p := range c.dev.open() {
		if p.isolated {
			s.Isolated = append(s.Isolated, p.name)
		}
		if p.lends {
			s.Lending = append(s.Lending, p.name)
		}
	}
	return s
}

// holders lists who holds the memory of all pools, by stream and label and by line.
func (d *deviceState) holders() ([]snapshot.Holder, []snapshot.Line) {
	var all snapshot.Holders
	var lines snapshot.Lines
	for _, c := range d.open() {
		if !c.asleep.Load() {
			_, unlock := c.heaps.lockAll()
			samples := c.heaps.holdersLocked(&all, &lines)
			unlock()
			for of, n := range samples { // to name functions takes its time
				lines.Record(c.name, of.label, framesOf(of.stack), n.blocks, n.bytes)
			}
		}
	}
	return all.List(), lines.List()
}
