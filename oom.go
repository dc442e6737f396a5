package cupool

import (
	"fmt"
	"math"

	"github.com/cupool/cupool/internal/sizeclass"
)

// oomError puts the numbers of a failure together.
func (c *Caching) oomError(r request, cause error) error {
	st := c.Stats()
	room, others := c.room()
	e := &OOMError{
		room: room, least: c.leastGrowth(r), virtual: c.vm != nil, OtherPools: others,
		Device: c.driver.Name(), Stream: r.s.handle,
		Requested: r.size, Rounded: r.rounded, Segment: r.segment(),
		Live: st.LiveBytes, Pending: st.PendingBytes, Cached: st.CachedBytes,
		LargestFree: st.LargestFree, Reserved: st.All.ReservedBytes.Current,
		DeviceFree: -1, DeviceTotal: -1, Limit: c.limitBytes(),
		Fragmentation: st.Fragmentation(), Cause: cause,
	}
	if free, total, err := c.driver.MemInfo(); err == nil {
		e.DeviceFree, e.DeviceTotal = free, total
	}
	e.Hint = e.hint()
	return e
}

// leastGrowth returns the fewest bytes that the device is asked for to serve a
// request.
func (c *Caching) leastGrowth(r request) int64 {
	if c.vm != nil {
		return sizeclass.RoundTo(r.rounded, c.granularity)
	}
	return min(r.segment(), sizeclass.RoundTo(r.rounded, c.cfg.SegmentRounding))
}

// hint says what would have made the request fit.
func (e *OOMError) hint() string {
	room := e.DeviceFree
	if e.room < math.MaxInt64 && (room < 0 || e.room < room) {
		room = e.room
	}
	switch {
	case e.DeviceTotal >= 0 && e.Rounded > e.DeviceTotal:
		return "the request is larger than the device"
	case e.Limit > 0 && e.Rounded > e.Limit:
		return "the request is larger than the limit"
	case e.Limit > 0 && e.DeviceFree >= e.Rounded && room < e.Rounded:
		return "the device has the memory: raise Limit or Fraction"
	case e.Cached >= e.Rounded && e.virtual:
		return fmt.Sprintf("%s is cached, but for other streams or in pieces too small to be joined: allocate first what lives long", formatBytes(e.Cached))
	case e.Cached >= e.Rounded:
		return fmt.Sprintf("%s is cached, but in pieces or for other streams: allocate large blocks first and keep them, or lower MinSplit", formatBytes(e.Cached))
	case room >= e.Rounded && room < e.least && e.DeviceFree >= e.least:
		return fmt.Sprintf("the limit leaves %s, the device is asked for %s at a time: raise Limit or Fraction", formatBytes(room), formatBytes(e.least))
	case room >= e.Rounded && room < e.least:
		return fmt.Sprintf("the device has %s left and is asked for %s at a time: free at least %s", formatBytes(room), formatBytes(e.least), formatBytes(e.least-room))
	case room >= e.Rounded:
		return "the device reports enough free memory but refuses it: it may be fragmented or shared"
	case e.OtherPools > e.Live:
		return fmt.Sprintf("free at least %s of what other pools hold", formatBytes(e.Rounded-max(room, 0)))
	default:
		return fmt.Sprintf("free at least %s of the %s that the program holds", formatBytes(e.Rounded-max(room, 0)), formatBytes(e.Live))
	}
}
