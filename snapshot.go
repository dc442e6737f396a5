package cupool

import (
	"context"
	"fmt"
	"strings"

	"github.com/cupool/cupool/internal/block"
	"github.com/cupool/cupool/internal/bytesize"
	"github.com/cupool/cupool/internal/heap"
	"github.com/cupool/cupool/internal/origins"
)

// Snapshot is a picture of what an allocator holds, after
// torch.cuda.memory_snapshot: every segment, and every block in it with its
// state, its label and, with Config.RecordStacks, where it was allocated. It is
// a plain value, for JSON (by PyTorch's names where there are any), for tools
// and for tests. Sizes are in bytes.
type Snapshot struct {
	Device   string            `json:"device"`         // Driver.Name
	Pool     string            `json:"pool,omitempty"` // Caching.Name of a private pool
	Segments []SegmentSnapshot `json:"segments"`       // by address
}

// SegmentSnapshot is a range of addresses that blocks are cut from: a segment,
// the range of a stream's pool in virtual memory, or a stitched one.
type SegmentSnapshot struct {
	Address   Ptr          `json:"address"`
	Size      int64        `json:"total_size"`
	Allocated int64        `json:"allocated_size"` // in live blocks
	Active    int64        `json:"active_size"`    // in live and pending blocks
	Requested int64        `json:"requested_size"` // of the active ones, as the program asked
	Stream    StreamHandle `json:"stream"`         // that its memory is reused on
	Type      string       `json:"segment_type"`   // "small" or "large"
	Virtual   bool         `json:"is_expandable"`  // virtual memory
	Stitched  bool         `json:"is_stitched"`    // mapped a second time: the memory is that of parts elsewhere

	Blocks []BlockSnapshot `json:"blocks"` // by address; they tile the range

	number uint64 // of the stream
}

// BlockSnapshot is a block.
type BlockSnapshot struct {
	Address   Ptr   `json:"address"`
	Size      int64 `json:"size"`
	Requested int64 `json:"requested_size"` // 0 unless live or pending

	// State is "live"; "pending", freed while other streams use it; "cached",
	// kept whole for the next request of about its size; "free"; "part", whose
	// memory is in use at the addresses of a stitched block; or "gap",
	// addresses without memory.
	State string `json:"state"`
	Label string `json:"label,omitempty"` // see WithLabel
	Stack string `json:"stack,omitempty"` // as Go prints it

	state block.State
}

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
	p := Snapshot{Device: c.driver.Name(), Pool: c.name, Segments: []SegmentSnapshot{}}
	var from []found
	_, unlock := c.lockAll()
	c.space.Index.Each(func(e heap.Entry) {
		seg := c.pictureLocked(e)
		e.Seg.Each(&c.space.Blocks, func(_ block.ID, b *block.Block) {
			if b.Stack != 0 {
				from = append(from, found{len(p.Segments), len(seg.Blocks), c.stacks.At(b.Stack)})
			}
			seg.add(b)
		})
		p.Segments = append(p.Segments, seg)
	})
	unlock()
	for _, f := range from { // to name functions takes its time
		b := &p.Segments[f.segment].Blocks[f.block]
		b.Stack, b.Label = f.origin.Describe(packagePath)
	}
	return p
}

// pictureLocked returns a segment without its blocks.
func (c *Caching) pictureLocked(e heap.Entry) SegmentSnapshot {
	s := c.heapAt(e.Owner).stream
	p := SegmentSnapshot{
		Address: Ptr(e.Seg.Base), Size: e.Seg.Size, Stream: s.handle, Type: "small",
		Virtual: e.Seg.Virtual || e.Seg.Stitched, Stitched: e.Seg.Stitched, number: s.number,
	}
	if e.Seg.Large {
		p.Type = "large"
	}
	return p
}

// add adds the next block.
func (p *SegmentSnapshot) add(b *block.Block) {
	state := b.Word().State()
	n := BlockSnapshot{Address: Ptr(b.Addr()), Size: b.Size, State: strings.ToLower(state.String()), state: state}
	if state == block.Live || state == block.Pending {
		n.Requested = b.Requested()
		p.Requested += n.Requested
		p.Active += n.Size
	}
	if state == block.Live {
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
	var sb strings.Builder
	for _, seg := range c.Snapshot().Segments {
		fmt.Fprintf(&sb, "%d %s: ", seg.number, seg.Type)
		for _, b := range seg.Blocks {
			text := fmt.Sprintf("%s %s", b.state, bytesize.Exact(b.Size))
			if b.Label != "" {
				text += " " + b.Label
			}
			fmt.Fprintf(&sb, "[%s]", text)
		}
		sb.WriteByte('\n')
	}
	return sb.String()
}

// WithLabel returns the allocator as it is seen by a part of the program: what
// is allocated through it stands under a name in Labels, WriteStats, Snapshot,
// Layout and a LeakError, whoever frees it. An Engine or a goroutine gets a
// name of its own that way, a scope by Engine.ScopeLabeled; the same name
// twice is one label. Such blocks take the lock of their stream's memory when
// they are allocated and freed, so that every free is seen.
func (c *Caching) WithLabel(name string) Allocator {
	return &labeled{Caching: c, label: c.stacks.Label(name)}
}

// labeled is a Caching whose allocations have a label.
type labeled struct {
	*Caching
	label *origins.Label
}

// Alloc implements Allocator.
func (l *labeled) Alloc(size int64, s *Stream) (Block, error) {
	b, err := l.allocSlow(context.Background(), size, s, 0) // what lies in magazines stays there
	if err != nil || b.IsEmpty() {
		return b, err
	}
	c, label := l.Caching, l.label
	if o := c.other(b); o != nil { // lent by another pool
		c, label = o, o.stacks.Label(label.Name)
	}
	h, x, err := c.lockOwner("label", b, ErrUseAfterFree)
	if err != nil {
		return Block{}, err // the allocator was closed meanwhile
	}
	defer h.mu.Unlock()
	if x.Word().Has(block.Homed) {
		h.Unhome(b.id(), x)
		h.NoHomes() // a home is of no use to such blocks
	}
	x.Stack = c.stacks.SetLabel(x.Stack, label, x.Requested())
	return b, nil
}
