// Package picture makes snapshots of blocks and of who holds them.
package picture

import (
	"github.com/cupool/cupool/internal/block"
	"github.com/cupool/cupool/internal/device"
	"github.com/cupool/cupool/internal/origins"
	"github.com/cupool/cupool/snapshot"
)

// Subject is what pictures are taken of. Nothing changes meanwhile but the blocks of
// magazines.
type Subject struct {
	Blocks *block.Table
	Stacks *origins.Table
	// Each calls f for every segment, by address, with the stream whose memory it
	// is, and the number of that.
	Each func(f func(seg *block.Segment, s device.Stream, number uint64))
}

// Picture is segments whose blocks have no stacks and labels yet.
type Picture struct {
	segments []snapshot.Segment
	found    []found
}

// found says of which block an origin is.
type found struct {
	segment, block int
	origin         origins.Origin
}

// Take returns a picture.
func (x *Subject) Take() *Picture {
	p := &Picture{segments: []snapshot.Segment{}}
	x.Each(func(from *block.Segment, s device.Stream, number uint64) {
		seg := snapshot.Segment{
			Address: device.Ptr(from.Base), Size: from.Size, Stream: s, Type: "small",
			Virtual: from.Virtual || from.Stitched, Stitched: from.Stitched, Number: number,
		}
		if from.Large {
			seg.Type = "large"
		}
		from.Each(x.Blocks, func(_ block.ID, b *block.Block) {
			if b.Origin() != 0 {
				p.found = append(p.found, found{len(p.segments), len(seg.Blocks), x.Stacks.At(b.Origin())})
			}
			add(&seg, b)
		})
		p.segments = append(p.segments, seg)
	})
	return p
}

// Segments returns the segments with stacks, without the frames of the allocator's
// package at their top, and labels. To name functions takes its time, so no locks
// should be held.
func (p *Picture) Segments(allocator string) []snapshot.Segment {
	for _, f := range p.found {
		b := &p.segments[f.segment].Blocks[f.block]
		stack, label := f.origin.Frames(allocator)
		for _, frame := range stack {
			b.Stack = append(b.Stack, snapshot.Frame(frame))
		}
		b.Label, b.Weight = label, f.origin.Weight
	}
	return p.segments
}

// Holders adds who holds the blocks, which are of a pool.
func (x *Subject) Holders(pool string, to *snapshot.Holders) {
	x.Each(func(seg *block.Segment, _ device.Stream, number uint64) {
		seg.Each(x.Blocks, func(_ block.ID, b *block.Block) {
			to.Add(pool, number, x.Stacks.At(b.Origin()).Label(), stateOf(b), b.Size)
		})
	})
}

// states are the names of the states of blocks.
var states = [...]snapshot.State{
	block.Free: snapshot.Free, block.Live: snapshot.Live, block.Cached: snapshot.Cached,
	block.Pending: snapshot.Pending, block.Part: snapshot.Part, block.Gap: snapshot.Gap,
}

func stateOf(b *block.Block) snapshot.State { return states[b.Word().State()] }

// add adds the next block of a segment.
func add(to *snapshot.Segment, b *block.Block) {
	n := snapshot.Block{Address: device.Ptr(b.Addr()), Size: b.Size, State: stateOf(b)}
	if n.State == snapshot.Live || n.State == snapshot.Pending {
		n.Requested = b.Requested()
		to.Requested += n.Requested
		to.Active += n.Size
	}
	if n.State == snapshot.Live {
		to.Allocated += n.Size
	}
	to.Blocks = append(to.Blocks, n)
}
