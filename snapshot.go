package cupool

import (
	"context"
	"io"

	"github.com/cupool/cupool/internal/block"
	"github.com/cupool/cupool/internal/heap"
	"github.com/cupool/cupool/internal/nvtx"
	"github.com/cupool/cupool/internal/picture"
	"github.com/cupool/cupool/snapshot"
)

// Snapshot is a picture of what an allocator holds: every segment and every block,
// and the last events (StartHistory). See package snapshot.
type Snapshot = snapshot.Snapshot

// Snapshot returns a picture of the allocator's memory. That of private pools
// is in theirs (Pools). All streams' allocations stop meanwhile, but for blocks
// that come and go through magazines without a lock. Safe from several
// goroutines; after Close there are no segments.
func (c *Pool) Snapshot() Snapshot {
	_, unlock := c.lockAll()
	p := c.subject().Take()
	c.note(snapshot.Taken, 0, 0, 0)
	events := c.dev.history.Copy(0)
	unlock()
	s := Snapshot{Device: c.driver.Name(), Pool: c.name, Segments: p.Segments(packagePath)}
	events.Of(&s)
	return s
}

// subject returns what pictures are taken of while all heaps are locked.
func (c *Pool) subject() *picture.Subject {
	return &picture.Subject{Blocks: &c.space.Blocks, Stacks: &c.stacks, Each: func(f func(*block.Segment, StreamHandle, uint64)) {
		c.space.Index.Each(func(e heap.Entry) {
			s := c.heapAt(e.Owner).stream
			f(e.Seg, s.handle, s.number)
		})
	}}
}

// WriteSnapshot writes the Snapshot of the allocator and those of its private
// pools, or that of a private pool alone, for PyTorch's tools
// (snapshot.WriteTorch). It fails with the error of w.
func (c *Pool) WriteSnapshot(w io.Writer) error { return snapshot.WriteTorch(w, c.pictures()...) }

// WriteProfile writes the live blocks of the allocator and of its private pools, or
// of a private pool alone, for go tool pprof (snapshot.WriteProfile).
// A history (StartHistory) is what gives it stacks. It fails with the error of w.
func (c *Pool) WriteProfile(w io.Writer) error { return snapshot.WriteProfile(w, c.pictures()...) }

// pictures returns the Snapshot of a pool, and of the root's private ones.
func (c *Pool) pictures() []Snapshot {
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
func (c *Pool) Leaks() *LeakError {
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

// Layout is Snapshot's Layout, in which the same calls give the same text on any
// device.
func (c *Pool) Layout() string { s := c.Snapshot(); return s.Layout() }

// WithLabel returns the allocator as it is seen by a part of the program: what
// is allocated through it stands under a name in Labels, WriteStats, Snapshot,
// Layout and a LeakError, whoever frees it. An Engine or a goroutine gets a
// name of its own that way, a scope by Engine.ScopeLabeled; the same name
// twice is one label. Such blocks take the lock of their stream's memory when
// they are allocated and freed, so that every free is seen.
func (c *Pool) WithLabel(name string) Allocator {
	c.stacks.Label(name)
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
	return l.allocSlow(l.ctx, size, s, 0) // what lies in magazines stays there
}
