package cupool

import (
	"fmt"
	"strings"

	"github.com/cupool/cupool/internal/block"
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
	origin
}

// Snapshot returns a picture of the allocator's memory. That of private pools
// is in theirs (Pools). All streams' allocations stop meanwhile, but for blocks
// that come and go through magazines without a lock. Safe from several
// goroutines; after Close there are no segments.
func (c *Caching) Snapshot() Snapshot {
	p := Snapshot{Device: c.driver.Name(), Pool: c.name, Segments: []SegmentSnapshot{}}
	var origins []found
	unlock := c.lockAll()
	c.segments.each(func(e segmentEntry) {
		seg := pictureLocked(e)
		e.seg.Each(&c.blocks, func(_ block.ID, b *block.Block) {
			if b.Stack != 0 {
				origins = append(origins, found{len(p.Segments), len(seg.Blocks), c.stacks.at(b.Stack)})
			}
			seg.add(b)
		})
		p.Segments = append(p.Segments, seg)
	})
	unlock()
	for _, f := range origins { // to name functions takes its time
		b := &p.Segments[f.segment].Blocks[f.block]
		b.Stack, b.Label = f.describe()
	}
	return p
}

// pictureLocked returns a segment without its blocks.
func pictureLocked(e segmentEntry) SegmentSnapshot {
	p := SegmentSnapshot{
		Address: Ptr(e.seg.Base), Size: e.seg.Size, Stream: e.owner.handle, Type: "small",
		Virtual: e.seg.Virtual || e.seg.Stitched, Stitched: e.seg.Stitched, number: e.owner.number,
	}
	if e.seg.Large {
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
			text := fmt.Sprintf("%s %s", b.state, block.FormatBytes(b.Size))
			if b.Label != "" {
				text += " " + b.Label
			}
			fmt.Fprintf(&sb, "[%s]", text)
		}
		sb.WriteByte('\n')
	}
	return sb.String()
}
