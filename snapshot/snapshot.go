// Package snapshot is the picture of what an allocator holds and lately did, after
// torch.cuda.memory_snapshot: segments, the blocks in them, and events. An
// allocator of package cupool makes one (Pool.Snapshot); tools read, compare
// and draw it. All types are plain values.
package snapshot

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/cupool/cupool/device"
	"github.com/cupool/cupool/internal/bytesize"
)

// Ptr is an address in device memory, or 0 for none.
type Ptr = device.Ptr

// StreamHandle is the device's own handle of a stream; 0 is the default stream.
type StreamHandle = device.Stream

// Snapshot is a picture of what an allocator holds: every segment, and every
// block in it with its state, its label and, where it was recorded, where it was
// allocated. As JSON it has PyTorch's names where there are any. Sizes are in
// bytes.
type Snapshot struct {
	Device   string    `json:"device"`           // Driver.Name
	Pool     string    `json:"pool,omitempty"`   // name of a private pool
	Segments []Segment `json:"segments"`         // by address
	Events   []Event   `json:"events,omitempty"` // of the pool, oldest first
	Totals   []Total   `json:"totals,omitempty"` // of the pool, largest first; none of a private pool that is closed

	Pools []Snapshot `json:"pools,omitempty"` // of an allocator's private pools, in the order in which they were made
}

// Flat returns the snapshot without its Pools, and then these.
func (s Snapshot) Flat() []Snapshot {
	all := append([]Snapshot{s}, s.Pools...)
	all[0].Pools = nil
	return all
}

// flat returns the snapshots of all pools, one by one.
func flat(list []Snapshot) (all []Snapshot) {
	for _, s := range list {
		all = append(all, s.Flat()...)
	}
	return all
}

// Segment is a range of addresses that blocks are cut from: a segment, the range
// of a stream's pool in virtual memory, or a stitched one.
type Segment struct {
	Address   Ptr          `json:"address"`
	Size      int64        `json:"total_size"`
	Allocated int64        `json:"allocated_size"` // in live blocks
	Active    int64        `json:"active_size"`    // in live and pending blocks
	Requested int64        `json:"requested_size"` // of the active ones, as the program asked
	Stream    StreamHandle `json:"stream"`         // that its memory is reused on
	Number    uint64       `json:"stream_number"`  // of that stream, in the order in which streams were made
	Type      string       `json:"segment_type"`   // "small" or "large"
	Virtual   bool         `json:"is_expandable"`  // virtual memory
	Stitched  bool         `json:"is_stitched"`    // mapped a second time: the memory is that of parts elsewhere

	Blocks []Block `json:"blocks"` // by address; they tile the range
}

// Block is a block of a segment.
type Block struct {
	Address   Ptr    `json:"address"`
	Size      int64  `json:"size"`
	Requested int64  `json:"requested_size"` // 0 unless live or pending
	State     State  `json:"state"`
	Label     string `json:"label,omitempty"`
	Stack     Stack  `json:"frames,omitempty"` // where it was allocated, if that was recorded

	// Weight is how many live blocks of its size the block stands for, as one that was
	// sampled (History of package cupool). 0: it was not. Read takes weights up to 2^63.
	Weight float64 `json:"weight,omitempty"`
}

// State says what a block is.
type State string

// The states of blocks.
const (
	Live    State = "live"
	Pending State = "pending" // freed while other streams use it
	Cached  State = "cached"  // kept whole for the next request of about its size
	Free    State = "free"
	Part    State = "part" // its memory is in use at the addresses of a stitched block
	Gap     State = "gap"  // addresses without memory
)

// Stack is where something was called from, the innermost function first.
type Stack []Frame

// Frame is a function in a Stack.
type Frame struct {
	Function string `json:"name"` // with the path of its package
	File     string `json:"filename"`
	Line     int    `json:"line"`
}

// String prints the stack as Go does, "" for an empty one.
func (s Stack) String() string {
	var sb strings.Builder
	for _, f := range s {
		fmt.Fprintf(&sb, "%s\n\t%s:%d\n", f.Function, f.File, f.Line)
	}
	return sb.String()
}

// Event is one thing that an allocator did.
type Event struct {
	Number  uint64       `json:"number"` // in the order of the events of an allocator, from 1
	Kind    Kind         `json:"action"`
	Time    time.Time    `json:"time"`
	Pool    string       `json:"pool,omitempty"` // name of a private pool
	Address Ptr          `json:"addr"`
	Size    int64        `json:"size"` // bytes, of blocks as requested
	Stream  StreamHandle `json:"stream"`
	Label   string       `json:"label,omitempty"`
	Stack   Stack        `json:"frames,omitempty"`

	// Weight is how many allocations or frees of its size the event stands for,
	// where only samples are recorded. It is 1 for what is always recorded.
	Weight float64 `json:"weight"`
}

// Total is what was allocated at one place in the program since the history began,
// as estimated from samples.
type Total struct {
	Stack       Stack   `json:"frames,omitempty"`
	Label       string  `json:"label,omitempty"`
	Allocations float64 `json:"allocations"`
	Bytes       float64 `json:"bytes"` // as requested
}

// Kind says what happened.
type Kind string

// The kinds of events.
const (
	Alloc         Kind = "alloc"
	FreeRequested Kind = "free_requested" // the program freed a block
	FreeCompleted Kind = "free_completed" // no stream uses it any more
	SegmentAlloc  Kind = "segment_alloc"  // a segment came from the device
	SegmentFree   Kind = "segment_free"
	SegmentMap    Kind = "segment_map" // physical memory was mapped to a range
	SegmentUnmap  Kind = "segment_unmap"
	Stitch        Kind = "stitch" // free pieces were mapped as one range
	Trim          Kind = "trim"   // cached memory went back because the program said so
	Taken         Kind = "snapshot"
	OutOfMemory   Kind = "oom" // a request was refused; the Address is how many bytes the device had free
)

// Layout prints the Segments shortly, one a line, as "0 large: [Live 2M][Free 18M]".
// Addresses are left out, and streams have their numbers, so that the same calls give the
// same text on any device. Blocks with a label print with it, and
// those without a State as "?".
func (s Snapshot) Layout() string {
	var sb strings.Builder
	for _, seg := range s.Segments {
		fmt.Fprintf(&sb, "%d %s: ", seg.Number, seg.Type)
		for _, b := range seg.Blocks {
			state := string(cmp.Or(b.State, "?"))
			text := fmt.Sprintf("%s %s", strings.ToUpper(state[:1])+state[1:], bytesize.Exact(b.Size))
			if b.Label != "" {
				text += " " + b.Label
			}
			fmt.Fprintf(&sb, "[%s]", text)
		}
		sb.WriteByte('\n')
	}
	return sb.String()
}
