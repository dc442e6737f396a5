package cupool

import (
	"context"

	"github.com/cupool/cupool/internal/block"
	"github.com/cupool/cupool/internal/heap"
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
// of a private pool alone. All streams' allocations stop meanwhile, of one pool at a time,
// but for blocks that come and go through magazines without a lock. Safe from several
// goroutines; after Close there are no segments.
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
func (c *Pool) ownSnapshot() Snapshot {
	_, unlock := c.heaps.lockAll()
	p := c.heaps.pictureLocked()
	c.note(snapshot.Taken, 0, 0, 0)
	events := c.dev.history.Copy(0)
	unlock()
	s := Snapshot{Device: c.driver.Name(), Pool: c.name, Segments: p.named()}
	events.Of(&s)
	return s
}

// eachSegmentLocked calls f for every segment, by address, with the stream whose memory
// it is. All heaps are locked.
func (t *heapTable) eachSegmentLocked(f func(*block.Segment, *Stream)) {
	t.space.Index.Each(func(e heap.Entry) { f(e.Seg, t.at(e.Owner).stream) })
}

// picture is segments whose blocks have no stacks and labels yet.
type picture struct {
	segments []snapshot.Segment
	found    []foundOrigin
}

// foundOrigin says of which block an origin is.
type foundOrigin struct {
	segment, block int
	origin         origins.Origin
}

// pictureLocked takes a picture. All heaps are locked; the blocks of magazines
// change meanwhile.
func (t *heapTable) pictureLocked() *picture {
	p := &picture{segments: []snapshot.Segment{}}
	t.eachSegmentLocked(func(from *block.Segment, s *Stream) {
		seg := snapshot.Segment{
			Address: Ptr(from.Base), Size: from.Size, Stream: s.handle, Type: "small",
			Virtual: from.Virtual || from.Stitched, Stitched: from.Stitched, Number: s.number,
		}
		if from.Large {
			seg.Type = "large"
		}
		from.Each(&t.space.Blocks, func(_ block.ID, b *block.Block) {
			if b.Origin() != 0 {
				p.found = append(p.found, foundOrigin{len(p.segments), len(seg.Blocks), t.stacks.At(b.Origin())})
			}
			addBlock(&seg, b)
		})
		p.segments = append(p.segments, seg)
	})
	return p
}

// named returns the segments with stacks and labels. To name functions takes its
// time, so no locks should be held.
func (p *picture) named() []snapshot.Segment {
	for _, f := range p.found {
		b := &p.segments[f.segment].Blocks[f.block]
		b.Stack = framesOf(f.origin.Stack())
		b.Label, b.Weight = f.origin.Label, f.origin.Weight
	}
	return p.segments
}

// framesOf returns the functions of a stack, from the caller of the package on.
func framesOf(s origins.Stack) (frames snapshot.Stack) {
	for _, f := range s.Frames(packagePath) {
		frames = append(frames, snapshot.Frame(f))
	}
	return frames
}

// sample is where and under which label blocks were allocated.
type sample struct {
	stack origins.Stack
	label string
}

// estimate is what samples stand for.
type estimate struct{ blocks, bytes float64 }

// holdersLocked adds who holds the blocks of the pool, and returns where its live ones were
// allocated that are samples. All its heaps are locked.
func (t *heapTable) holdersLocked(to *snapshot.Holders, lines *snapshot.Lines) map[sample]estimate {
	samples := map[sample]estimate{}
	t.eachSegmentLocked(func(seg *block.Segment, s *Stream) {
		seg.Each(&t.space.Blocks, func(_ block.ID, b *block.Block) {
			o, state := t.stacks.At(b.Origin()), stateOf(b)
			to.Add(t.name, s.number, o.Label, state, b.Size)
			if state != snapshot.Live {
				return
			}
			lines.Add(t.name, o.Label, 1, b.Requested())
			if at := (sample{o.Stack(), o.Label}); at.stack != (origins.Stack{}) {
				n, weight := samples[at], max(o.Weight, 1) // a sanitizer records all
				samples[at] = estimate{n.blocks + weight, n.bytes + weight*float64(b.Requested())}
			}
		})
	})
	return samples
}

// stateNames are the names of the states of blocks.
var stateNames = [...]snapshot.State{
	block.Free: snapshot.Free, block.Live: snapshot.Live, block.Cached: snapshot.Cached,
	block.Pending: snapshot.Pending, block.Part: snapshot.Part, block.Gap: snapshot.Gap,
}

func stateOf(b *block.Block) snapshot.State { return stateNames[b.Word().State()] }

// addBlock adds the next block of a segment.
func addBlock(to *snapshot.Segment, b *block.Block) {
	n := snapshot.Block{Address: Ptr(b.Addr()), Size: b.Size, State: stateOf(b)}
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

// Leaks lists what is live, of the allocator and its private pools or of a private
// pool alone, as Close would, or returns nil when nothing is. Stream is the one
// whose memory a block is of. It stops allocations as Snapshot does.
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

// labelKey is the key of a label, a *string, in a request's context.
type labelKey struct{}

// Alloc implements Allocator.
func (l *labeled) Alloc(size int64, s *Stream) (Block, error) {
	defer nvtx.Start(l.name, size).End()
	return l.allocSlow(l.ctx, size, s, 0, false) // what lies in magazines stays there
}
