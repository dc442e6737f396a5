// Package oomhint says why a request was refused for lack of memory, and what would
// have made it fit.
package oomhint

import (
	"cmp"
	"fmt"

	"github.com/cupool/cupool/internal/bytesize"
	"github.com/cupool/cupool/snapshot"
)

// A Refusal is a request that was refused, and the memory that there is. Sizes
// are in bytes.
type Refusal struct {
	Rounded     int64 // the block that would have held the request
	Live        int64 // in blocks that the program holds
	Cached      int64 // free in the pools
	OtherPools  int64 // held by other pools
	DeviceFree  int64 // what the device has left; -1: it did not say
	DeviceTotal int64 // what the device has; -1: it did not say
	Limit       int64 // what may be reserved; 0: no limit
	Room        int64 // what limits leave of that; MaxInt64: no limit
	Least       int64 // the fewest bytes that the device is asked for; 0: any number
	Segment     int64 // the segment that the device refused
	Pending     int64 // freed, but still used by other streams
	Reserved    int64 // held from the device

	Settings
	Pool    string            // that refused
	Holders []snapshot.Holder // of the memory of all pools, the largest first

	LimitName string // what the request may be larger than: "limit"
	InPieces  string // why Cached does not serve, where it is enough; "": as the Settings have it
}

// Hint returns a sentence without a full stop, for people.
func (r *Refusal) Hint() string {
	room := r.room()
	missing := bytesize.Format(r.Rounded - room)
	switch {
	case r.DeviceTotal >= 0 && r.Rounded > r.DeviceTotal:
		return "the request is larger than the device"
	case r.Limit > 0 && r.Rounded > r.Limit:
		return "the request is larger than the " + r.LimitName
	case r.inPieces():
		return fmt.Sprintf("%s is cached, but %s", bytesize.Format(r.Cached), cmp.Or(r.InPieces, r.Settings.inPieces()))
	case r.Limit > 0 && r.DeviceFree >= r.Rounded && room < r.Rounded:
		return "the device has the memory: raise " + r.words().Raise
	case room >= r.Rounded && room < r.Least && r.DeviceFree >= r.Least:
		return fmt.Sprintf("the limit leaves %s, the device is asked for %s at a time: raise %s", bytesize.Format(room), bytesize.Format(r.Least), r.words().Raise)
	case room >= r.Rounded && room < r.Least:
		return fmt.Sprintf("the device has %s left and is asked for %s at a time: free at least %s", bytesize.Format(room), bytesize.Format(r.Least), bytesize.Format(r.Least-room))
	case room >= r.Rounded:
		return "the device reports enough free memory but refuses it: it may be fragmented or shared"
	case r.OtherPools > r.Live:
		return fmt.Sprintf("free at least %s of what other pools hold", missing)
	default:
		return fmt.Sprintf("free at least %s of the %s that the program holds", missing, bytesize.Format(r.Live))
	}
}

// inPieces says why free memory does not serve that is enough, and what would help.
func (s *Settings) inPieces() string {
	switch {
	case s.Virtual:
		return "for other streams or in pieces too small to be joined: allocate first what lives long"
	case s.CanBeVirtual:
		return "in pieces or for other streams: virtual memory would join them"
	default:
		return "in pieces or for other streams: allocate large blocks first and keep them, or lower " + s.words().MinSplit
	}
}
