package debug

import (
	"fmt"
	"hash/maphash"
	"slices"

	"github.com/cupool/cupool/snapshot"
)

// blocks is a snapshot in columns, in a tenth of the bytes. What recurs is numbered:
// states, labels, stacks and their frames. The blocks of a segment tile it, and those
// of all segments stand in one list.
type blocks struct {
	Device   string         `json:"device"`
	Pool     string         `json:"pool"`
	Segments segmentColumns `json:"segments"`
	Blocks   blockColumns   `json:"blocks"`

	States []snapshot.State `json:"states"`
	Labels []string         `json:"labels"` // the first is none
	Stacks [][]int          `json:"stacks"` // frames, innermost first; the first stack is none
	Frames []snapshot.Frame `json:"frames"`
}

type segmentColumns struct {
	Address  []string `json:"address"` // in hexadecimal, as numbers in browsers are too small
	Size     []int64  `json:"size"`
	Stream   []uint64 `json:"stream"` // number
	Small    []int    `json:"small"`
	Virtual  []int    `json:"virtual"`
	Stitched []int    `json:"stitched"`
	Blocks   []int    `json:"blocks"` // how many
}

type blockColumns struct {
	Size      []int64 `json:"size"`
	Requested []int64 `json:"requested"`
	State     []int   `json:"state"`
	Label     []int   `json:"label"`
	Stack     []int   `json:"stack"`

	Weight []float64 `json:"weight,omitempty"` // none, if no block was sampled
}

var states = []snapshot.State{snapshot.Live, snapshot.Pending, snapshot.Cached, snapshot.Free, snapshot.Part, snapshot.Gap}

// columnsOf puts a snapshot into columns.
func columnsOf(p snapshot.Snapshot) *blocks {
	out := &blocks{Device: p.Device, Pool: p.Pool, States: states, Labels: []string{""}, Stacks: [][]int{{}}, Frames: []snapshot.Frame{}}
	n := numbers{out: out, labels: map[string]int{"": 0}, frames: map[snapshot.Frame]int{}, stacks: map[uint64]int{}, seed: maphash.MakeSeed()}
	total := 0
	for i := range p.Segments {
		total += len(p.Segments[i].Blocks)
	}
	out.Segments.make(len(p.Segments))
	out.Blocks.make(total)
	for i := range p.Segments {
		seg := &p.Segments[i]
		out.Segments.add(seg)
		for j := range seg.Blocks {
			b := &seg.Blocks[j]
			c := &out.Blocks
			c.Size = append(c.Size, b.Size)
			c.Requested = append(c.Requested, b.Requested)
			c.State = append(c.State, slices.Index(states, b.State))
			c.Label = append(c.Label, n.label(b.Label))
			c.Stack = append(c.Stack, n.stack(b.Stack))
			c.weigh(b.Weight, total)
		}
	}
	return out
}

func (c *segmentColumns) make(n int) {
	*c = segmentColumns{make([]string, 0, n), make([]int64, 0, n), make([]uint64, 0, n), make([]int, 0, n), make([]int, 0, n), make([]int, 0, n), make([]int, 0, n)}
}

func (c *segmentColumns) add(s *snapshot.Segment) {
	c.Address = append(c.Address, fmt.Sprintf("%#x", uintptr(s.Address)))
	c.Size = append(c.Size, s.Size)
	c.Stream = append(c.Stream, s.Number)
	c.Small = append(c.Small, number(s.Type == "small"))
	c.Virtual = append(c.Virtual, number(s.Virtual))
	c.Stitched = append(c.Stitched, number(s.Stitched))
	c.Blocks = append(c.Blocks, len(s.Blocks))
}

func (c *blockColumns) make(n int) {
	*c = blockColumns{make([]int64, 0, n), make([]int64, 0, n), make([]int, 0, n), make([]int, 0, n), make([]int, 0, n), nil}
}

// weigh sets the weight of the last block, of so many.
func (c *blockColumns) weigh(weight float64, blocks int) {
	if weight != 0 && c.Weight == nil {
		c.Weight = make([]float64, blocks)
	}
	if c.Weight != nil {
		c.Weight[len(c.Size)-1] = weight
	}
}

func number(b bool) int {
	if b {
		return 1
	}
	return 0
}

// numbers gives numbers to what recurs.
type numbers struct {
	out    *blocks
	labels map[string]int
	frames map[snapshot.Frame]int
	stacks map[uint64]int // by hash
	seed   maphash.Seed
}

func (n *numbers) label(name string) int {
	i, ok := n.labels[name]
	if !ok {
		i = len(n.out.Labels)
		n.labels[name] = i
		n.out.Labels = append(n.out.Labels, name)
	}
	return i
}

func (n *numbers) stack(s snapshot.Stack) int {
	if len(s) == 0 {
		return 0
	}
	var h maphash.Hash
	h.SetSeed(n.seed)
	for _, f := range s {
		maphash.WriteComparable(&h, f)
	}
	key := h.Sum64()
	i, ok := n.stacks[key]
	if !ok {
		i = len(n.out.Stacks)
		n.stacks[key] = i
		frames := make([]int, len(s))
		for j, f := range s {
			frames[j] = n.frame(f)
		}
		n.out.Stacks = append(n.out.Stacks, frames)
	}
	return i
}

func (n *numbers) frame(f snapshot.Frame) int {
	i, ok := n.frames[f]
	if !ok {
		i = len(n.out.Frames)
		n.frames[f] = i
		n.out.Frames = append(n.out.Frames, f)
	}
	return i
}
