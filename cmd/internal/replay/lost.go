package replay

import (
	"fmt"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/snapshot"
)

// Reason says why bytes are reserved that the program did not request.
type Reason int

// The reasons. Those from PartialHandles on are of free memory.
const (
	Rounding        Reason = iota // live blocks are larger than what was requested
	Pending                       // freed, while other streams still use it
	Cached                        // freed, and kept whole: in magazines, or not merged yet
	FreeInPlan                    // not live in the memory of a plan
	PartialHandles                // the free part of handles that also have a block
	StitchedEnds                  // the same, where a stitched block begins or ends in the handle
	StitchedRanges                // whole handles that a stitched range without a block keeps mapped
	WholeHandles                  // other whole handles
	PartialSegments               // beside blocks in segments
	WholeSegments                 // segments without a block
	OtherPool                     // free memory of the stream's other pool, for small or for large blocks
	OtherPartial                  // of other streams, in handles or segments that also have a block
	OtherWhole                    // of other streams, whole handles or segments
	numReasons
)

var reasonNames = [numReasons]string{
	"rounding", "pending", "cached", "free_in_plan", "partial_handles", "stitched_ends", "stitched_ranges", "whole_handles",
	"partial_segments", "whole_segments", "other_pool", "other_streams_partial", "other_streams_whole",
}

var reasonTexts = [numReasons]string{
	"in live blocks, more than was requested", "freed, and other streams still use it", "freed, and kept whole or not merged yet",
	"free in the plan's memory", "smaller than a handle, beside a block", "smaller than a handle, beside a stitched block",
	"whole handles, of cached stitched ranges", "whole handles", "beside blocks in segments", "whole segments",
	"free for small blocks", "another stream's, beside its blocks", "another stream's, whole handles or segments",
}

// String returns the reason's name in JSON.
func (r Reason) String() string { return reasonNames[r] }

// MarshalText implements encoding.TextMarshaler.
func (r Reason) MarshalText() ([]byte, error) { return []byte(reasonNames[r]), nil }

// seenFrom returns what a reason for memory of place p is to a request that is
// served from place asker.
func (r Reason) seenFrom(p, asker place) Reason {
	switch {
	case r < PartialHandles || p == asker:
		return r
	case p.stream == asker.stream:
		return OtherPool
	case r == StitchedRanges || r == WholeHandles || r == WholeSegments:
		return OtherWhole
	}
	return OtherPartial
}

// Loss is the memory that is lost for one reason.
type Loss struct {
	Reason  Reason `json:"reason"`
	Bytes   int64  `json:"bytes"`
	Pieces  int64  `json:"pieces"`        // blocks, or rows of bytes in them; of a plan 0
	Largest int64  `json:"largest_bytes"` // of the pieces
}

// add counts a piece, if there is any of it.
func (l *Loss) add(bytes int64) {
	if bytes > 0 {
		l.Bytes += bytes
		l.Pieces++
		l.Largest = max(l.Largest, bytes)
	}
}

// place is where free memory can serve requests.
type place struct {
	stream cupool.StreamHandle
	pool   string // as snapshot.Segment.Type
}

// losses are what is lost at each place for each reason.
type losses map[place]*[numReasons]Loss

// at returns the losses at the place of a segment.
func (l losses) at(seg *snapshot.Segment) *[numReasons]Loss {
	p := place{seg.Stream, seg.Type}
	if l[p] == nil {
		l[p] = new([numReasons]Loss)
	}
	return l[p]
}

// seenFrom returns the losses by reason to a request at a place, all reasons in
// their order.
func (l losses) seenFrom(asker place) []Loss {
	sum := make([]Loss, numReasons)
	for i := range sum {
		sum[i].Reason = Reason(i)
	}
	for p, list := range l {
		for r, x := range list {
			to := &sum[Reason(r).seenFrom(p, asker)]
			to.Bytes += x.Bytes
			to.Pieces += x.Pieces
			to.Largest = max(to.Largest, x.Largest)
		}
	}
	return sum
}

// lostIn says where the bytes are that a Snapshot's segments hold beyond what is
// requested of live blocks. What is mapped, by address, tells the handles of
// virtual memory. Addresses without memory are no loss.
func lostIn(p cupool.Snapshot, mapped []piece) (losses, error) {
	all := losses{}
	times := map[uintptr]int{} // that a handle is mapped
	for _, m := range mapped {
		times[m.handle]++
	}
	for i := range p.Segments {
		seg := &p.Segments[i]
		lost := all.at(seg)
		for _, b := range seg.Blocks {
			switch b.State {
			case "live":
				lost[Rounding].add(b.Size - b.Requested)
			case "pending":
				lost[Pending].add(b.Size)
			case "cached":
				lost[Cached].add(b.Size)
			case "free":
				if seg.Virtual {
					continue // handle by handle
				}
				reason := PartialSegments
				if b.Size == seg.Size {
					reason = WholeSegments
				}
				lost[reason].add(b.Size)
			}
		}
		if seg.Virtual && !seg.Stitched {
			end := seg.Address + cupool.Ptr(seg.Size)
			for len(mapped) > 0 && mapped[0].at < seg.Address {
				mapped = mapped[1:]
			}
			n := 0
			for n < len(mapped) && mapped[n].at < end {
				n++
			}
			if err := lostInHandles(seg, mapped[:n], times, lost); err != nil {
				return nil, err
			}
			mapped = mapped[n:]
		}
	}
	return all, nil
}

// handleUse is how blocks share a handle.
type handleUse struct {
	piece
	free  int64 // bytes
	parts bool  // some of the rest is of a stitched block
}

// reason says why the handle's free bytes are lost.
func (h *handleUse) reason(times map[uintptr]int) Reason {
	switch {
	case h.free < h.size && h.parts:
		return StitchedEnds
	case h.free < h.size:
		return PartialHandles
	case times[h.handle] > 1:
		return StitchedRanges
	}
	return WholeHandles
}

// lostInHandles adds what is lost in the free blocks of an address range.
func lostInHandles(seg *snapshot.Segment, mapped []piece, times map[uintptr]int, lost *[numReasons]Loss) error {
	uses := make([]handleUse, len(mapped))
	for i, m := range mapped {
		uses[i].piece = m
	}
	if err := eachShare(seg, uses, func(b *snapshot.Block, h *handleUse, bytes int64) {
		switch b.State {
		case "free":
			h.free += bytes
		case "part":
			h.parts = true
		}
	}); err != nil {
		return err
	}
	var row int64 // bytes side by side in a block for one reason
	var why Reason
	var of *snapshot.Block
	err := eachShare(seg, uses, func(b *snapshot.Block, h *handleUse, bytes int64) {
		if b.State != "free" {
			return
		}
		if r := h.reason(times); b != of || r != why {
			lost[why].add(row)
			row, why, of = 0, r, b
		}
		row += bytes
	})
	lost[why].add(row)
	return err
}

// eachShare calls f for every block of an address range and every handle under
// it, by address, with the bytes that they have in common.
func eachShare(seg *snapshot.Segment, uses []handleUse, f func(*snapshot.Block, *handleUse, int64)) error {
	i := 0
	for k := range seg.Blocks {
		b := &seg.Blocks[k]
		if b.State == "gap" {
			continue
		}
		end := b.Address + cupool.Ptr(b.Size)
		for at := b.Address; at < end; {
			for i < len(uses) && uses[i].at+cupool.Ptr(uses[i].size) <= at {
				i++
			}
			if i == len(uses) || uses[i].at > at {
				return fmt.Errorf("no memory is mapped at %v, in a %s block", at, b.State)
			}
			next := min(end, uses[i].at+cupool.Ptr(uses[i].size))
			f(b, &uses[i], int64(next-at))
			at = next
		}
	}
	return nil
}
