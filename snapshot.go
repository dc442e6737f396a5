package cupool

import (
	"cmp"
	"context"
	"slices"

	"github.com/cupool/cupool/internal/block"
	"github.com/cupool/cupool/internal/nvtx"
	"github.com/cupool/cupool/internal/origins"
	"github.com/cupool/cupool/snapshot"
)

// Snapshot is a picture of what an allocator holds: every segment and every block, the
// last events (StartHistory), and the same of its private pools. It prints as JSON, and
// as a short text (Layout). Package snapshot writes it for PyTorch's viewer (WriteTorch) and for
// go tool pprof (WriteProfile), and reads it.
type Snapshot = snapshot.Snapshot

// Snapshot returns a picture of the allocator's memory and that of its private pools, or
// of a private pool alone. Safe from several goroutines; after Close there are no segments.
//
// It holds the locks of streams for 2,048 blocks at a time. A pool that has no more is seen at
// one moment, but for blocks that come and go through magazines without a lock. A larger one
// is seen in portions, and other goroutines allocate and free between them: the blocks of a
// segment tile it, and a block that is live all the time is listed once, but what moves
// meanwhile may be missing, or free where it was and live where it went. Such a picture agrees
// with Stats while nothing else runs. The events are those until the first portion.
func (c *Pool) Snapshot() Snapshot {
	if c.isNone() {
		return Snapshot{}
	}
	s := c.ownSnapshot()
	if c == c.dev.root {
		for _, p := range c.Pools() {
			s.Pools = append(s.Pools, p.ownSnapshot())
		}
	}
	return s
}

// ownSnapshot returns a picture of the pool alone.
func (c *Pool) ownSnapshot() Snapshot { return c.snapshotOf(c.heaps.tour(everyBlock)) }

// snapshotOf is ownSnapshot of what a tour sees. A segment that is not seen to its end is left
// out.
func (c *Pool) snapshotOf(tour *tour) Snapshot {
	p, last := picture{segments: []snapshot.Segment{}}, uint64(0)
	tour.began = func() {
		c.note(snapshot.Taken, 0, 0, 0)
		last = c.dev.history.Last()
	}
	tour.each(func(x *piece) { p.add(tour, x) })
	s := Snapshot{Device: c.driver.Name(), Pool: c.name, Segments: p.summed()}
	c.dev.history.Copy(0, last).Of(&s, c.id)
	return s
}

// picture is segments without their sums.
type picture struct {
	segments []snapshot.Segment
}

// add adds a piece of a tour.
func (p *picture) add(t *tour, x *piece) {
	if x.gone {
		p.segments = p.segments[:len(p.segments)-1]
		return
	}
	if x.first {
		p.segments = append(p.segments, snapshot.Segment{})
	}
	seg := &p.segments[len(p.segments)-1]
	*seg = snapshot.Segment{
		Address: Ptr(x.seg.Base), Size: x.seg.Size, Stream: x.stream.handle, Number: x.stream.number, Type: "small",
		Virtual: x.seg.Virtual || x.seg.Stitched, Stitched: x.seg.Stitched, Blocks: seg.Blocks,
	}
	if x.seg.Large {
		seg.Type = "large"
	}
	if len(x.blocks) > 0 {
		cut(seg, Ptr(x.blocks[0].addr))
	}
	for i := range x.blocks {
		b := &x.blocks[i]
		n := snapshot.Block{Address: Ptr(b.addr), Size: b.size, State: stateNames[b.state]}
		if b.origin != 0 {
			o := t.origin(b)
			n.Stack, n.Label, n.Weight = framesOf(o.Stack()), o.Label, o.Weight
		}
		if n.State == snapshot.Live || n.State == snapshot.Pending {
			n.Requested = b.requested
		}
		seg.Blocks = append(seg.Blocks, n)
	}
}

// cut takes off what was listed of a segment from an address on: a block is there by now that
// begins at the address. What remains of the block around it is free.
func cut(seg *snapshot.Segment, at Ptr) {
	n := len(seg.Blocks)
	for n > 0 && seg.Blocks[n-1].Address >= at {
		n--
	}
	seg.Blocks = seg.Blocks[:n]
	if n > 0 {
		if b := &seg.Blocks[n-1]; b.Address+Ptr(b.Size) > at {
			*b = snapshot.Block{Address: b.Address, Size: int64(at - b.Address), State: snapshot.Free}
		}
	}
}

// summed returns the segments, by address, with their sums.
func (p *picture) summed() []snapshot.Segment {
	for i := range p.segments {
		seg := &p.segments[i]
		for j := range seg.Blocks {
			switch b := &seg.Blocks[j]; b.State {
			case snapshot.Live:
				seg.Allocated += b.Size
				fallthrough
			case snapshot.Pending:
				seg.Active += b.Size
				seg.Requested += b.Requested
			}
		}
	}
	return inPlace(p.segments)
}

// inPlace returns the segments by address. One that was seen, went back to the device, and
// came again as others, at addresses in it, is left out: they were seen later.
func inPlace(seen []snapshot.Segment) []snapshot.Segment {
	segments := make([]snapshot.Segment, 0, len(seen))
	end := func(s *snapshot.Segment) Ptr { return s.Address + Ptr(s.Size) }
	order := make([]int, len(seen))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(i, j int) int { return cmp.Compare(seen[i].Address, seen[j].Address) })
	var last []int // of the segments
	for _, i := range order {
		stale := false
		for n := len(last); n > 0 && end(&segments[n-1]) > seen[i].Address; n = len(last) {
			if stale = last[n-1] > i; stale {
				break
			}
			segments, last = segments[:n-1], last[:n-1]
		}
		if !stale {
			segments, last = append(segments, seen[i]), append(last, i)
		}
	}
	return segments
}

// framesOf returns the functions of a stack, from the caller of the package on.
func framesOf(s origins.Stack) (frames snapshot.Stack) {
	for _, f := range s.Frames(packagePath) {
		frames = append(frames, snapshot.Frame(f))
	}
	return frames
}

// stateNames are the names of the states of blocks.
var stateNames = [...]snapshot.State{
	block.Free: snapshot.Free, block.Live: snapshot.Live, block.Cached: snapshot.Cached,
	block.Pending: snapshot.Pending, block.Part: snapshot.Part, block.Gap: snapshot.Gap,
}

// Leaks lists what is live, of the allocator and its private pools or of a private
// pool alone, as Close would, or returns nil when nothing is. Stream is the one
// whose memory a block is of. It looks at the pools as Snapshot does.
func (c *Pool) Leaks() *LeakError {
	if c.isNone() {
		return nil
	}
	var leaks []Leak
	for _, s := range c.Snapshot().Flat() {
		for _, seg := range s.Segments {
			for _, b := range seg.Blocks {
				if b.State == snapshot.Live {
					leaks = append(leaks, Leak{Ptr: b.Address, Size: b.Requested, Stream: seg.Stream, Stack: b.Stack.String(), Label: b.Label})
				}
			}
		}
	}
	if leaks == nil {
		return nil
	}
	return newLeakError(leaks)
}

// WithLabel returns an Allocator over the same memory for a part of the program, such
// as an Engine or a goroutine: Stats, Snapshot and a LeakError have what is allocated
// through it under the name, whoever frees it. The same name twice is one label. A
// scope has Engine.ScopeLabeled. To allocate and to free such a block takes the lock of
// its stream's heap.
func (c *Pool) WithLabel(name string) Allocator {
	if !c.isNone() {
		c.labels.add(name, 0, 0)
	}
	return &labeled{Pool: c, name: name, ctx: context.WithValue(context.Background(), labelKey{}, &name)}
}

// labeled is a Pool whose allocations have a label.
type labeled struct {
	*Pool
	name string
	ctx  context.Context // that holds the name
}

// Unwrap has adaptor.Find find the Pool.
func (l *labeled) Unwrap() Allocator { return l.Pool }

// labelKey is the key of a label, a *string, in a request's context.
type labelKey struct{}

// Alloc implements Allocator.
func (l *labeled) Alloc(size int64, s *Stream) (Block, error) {
	if l.isNone() {
		return Block{}, noPool("allocation")
	}
	defer nvtx.Start(l.name, size).End()
	return l.allocSlow(l.ctx, size, s, 0, false) // what lies in magazines stays there
}
