package cupool

import (
	"context"
	"io"

	"github.com/cupool/cupool/internal/block"
	"github.com/cupool/cupool/internal/callstack"
	"github.com/cupool/cupool/internal/heap"
	"github.com/cupool/cupool/internal/nvtx"
	"github.com/cupool/cupool/internal/origins"
	"github.com/cupool/cupool/snapshot"
)

// Snapshot is a picture of what an allocator holds: every segment and every block,
// and the last events (StartHistory). See package snapshot.
type Snapshot = snapshot.Snapshot

// found says of which block of a Snapshot an origin is.
type found struct {
	segment, block int
	origin         origins.Origin
}

// Snapshot returns a picture of the allocator's memory. That of private pools
// is in theirs (Pools). All streams' allocations stop meanwhile, but for blocks
// that come and go through magazines without a lock. Safe from several
// goroutines; after Close there are no segments.
func (c *Caching) Snapshot() Snapshot {
	p := Snapshot{Device: c.driver.Name(), Pool: c.name, Segments: []snapshot.Segment{}}
	var from []found
	_, unlock := c.lockAll()
	c.space.Index.Each(func(e heap.Entry) {
		seg := c.pictureLocked(e)
		e.Seg.Each(&c.space.Blocks, func(_ block.ID, b *block.Block) {
			if b.Origin() != 0 {
				from = append(from, found{len(p.Segments), len(seg.Blocks), c.stacks.At(b.Origin())})
			}
			addTo(&seg, b)
		})
		p.Segments = append(p.Segments, seg)
	})
	c.note(snapshot.Taken, 0, 0, 0)
	events := c.dev.history.Copy(0)
	unlock()
	events.Of(&p)
	for _, f := range from { // to name functions takes its time
		b := &p.Segments[f.segment].Blocks[f.block]
		var stack []callstack.Frame
		stack, b.Label = f.origin.Frames(packagePath)
		for _, frame := range stack {
			b.Stack = append(b.Stack, snapshot.Frame(frame))
		}
		b.Weight = f.origin.Weight
	}
	return p
}

// WriteSnapshot writes the Snapshot of the allocator and those of its private
// pools, or that of a private pool alone, for PyTorch's tools
// (snapshot.WriteTorch). It fails with the error of w.
func (c *Caching) WriteSnapshot(w io.Writer) error { return snapshot.WriteTorch(w, c.pictures()...) }

// WriteProfile writes the live blocks of the allocator and of its private pools, or
// of a private pool alone, for go tool pprof (snapshot.WriteProfile).
// A history (StartHistory) is what gives it stacks. It fails with the error of w.
func (c *Caching) WriteProfile(w io.Writer) error { return snapshot.WriteProfile(w, c.pictures()...) }

// pictures returns the Snapshot of a pool, and of the root's private ones.
func (c *Caching) pictures() []Snapshot {
	all := []Snapshot{c.Snapshot()}
	if c == c.dev.root {
		for _, p := range c.Pools() {
			all = append(all, p.Snapshot())
		}
	}
	return all
}

// Leaks lists what is live, of the allocator and its private pools or of a private
// pool alone, as Close would, or returns nil when nothing is. Stream is the one
// whose memory a block is of. It stops allocations as Snapshot does.
func (c *Caching) Leaks() *LeakError {
	var leaks []Leak
	for _, s := range c.pictures() {
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

// pictureLocked returns a segment without its blocks.
func (c *Caching) pictureLocked(e heap.Entry) snapshot.Segment {
	s := c.heapAt(e.Owner).stream
	p := snapshot.Segment{
		Address: Ptr(e.Seg.Base), Size: e.Seg.Size, Stream: s.handle, Type: "small",
		Virtual: e.Seg.Virtual || e.Seg.Stitched, Stitched: e.Seg.Stitched, Number: s.number,
	}
	if e.Seg.Large {
		p.Type = "large"
	}
	return p
}

// states are the names of the states of blocks.
var states = [...]snapshot.State{
	block.Free: snapshot.Free, block.Live: snapshot.Live, block.Cached: snapshot.Cached,
	block.Pending: snapshot.Pending, block.Part: snapshot.Part, block.Gap: snapshot.Gap,
}

func stateOf(b *block.Block) snapshot.State { return states[b.Word().State()] }

// addTo adds the next block of a segment.
func addTo(p *snapshot.Segment, b *block.Block) {
	n := snapshot.Block{Address: Ptr(b.Addr()), Size: b.Size, State: stateOf(b)}
	if n.State == snapshot.Live || n.State == snapshot.Pending {
		n.Requested = b.Requested()
		p.Requested += n.Requested
		p.Active += n.Size
	}
	if n.State == snapshot.Live {
		p.Allocated += n.Size
	}
	p.Blocks = append(p.Blocks, n)
}

// Layout prints the Snapshot shortly, a segment a line, as "stream large:
// [Live 2M][Free 18M]", for tests and for people. Addresses are left out, and
// streams have numbers in the order in which they were made, so that the same
// calls give the same text on any device. Blocks of WithLabel print with their
// label.
func (c *Caching) Layout() string {
	s := c.Snapshot()
	return s.Layout()
}

// WithLabel returns the allocator as it is seen by a part of the program: what
// is allocated through it stands under a name in Labels, WriteStats, Snapshot,
// Layout and a LeakError, whoever frees it. An Engine or a goroutine gets a
// name of its own that way, a scope by Engine.ScopeLabeled; the same name
// twice is one label. Such blocks take the lock of their stream's memory when
// they are allocated and freed, so that every free is seen.
func (c *Caching) WithLabel(name string) Allocator {
	c.stacks.Label(name)
	return &labeled{Caching: c, name: name, ctx: context.WithValue(context.Background(), labelKey{}, &name)}
}

// labeled is a Caching whose allocations have a label.
type labeled struct {
	*Caching
	name string
	ctx  context.Context // that holds the name
}

// labelKey is the key of a label, a *string, in a request's context.
type labelKey struct{}

// Alloc implements Allocator.
func (l *labeled) Alloc(size int64, s *Stream) (Block, error) {
	defer nvtx.Start(l.name, size).End()
	return l.allocSlow(l.ctx, size, s, 0) // what lies in magazines stays there
}
