// Package columns is a snapshot in columns, in a tenth of the bytes of its JSON: what the
// debug page draws and cupool top asks for.
package columns

import (
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/cupool/cupool/internal/intern"
	"github.com/cupool/cupool/snapshot"
)

// Snapshot is the segments of a snapshot, without its events and totals. What recurs is
// numbered: states, labels, stacks and their frames. The blocks of a segment tile it, and
// those of all segments stand in one list.
type Snapshot struct {
	Device   string   `json:"device"`
	Pool     string   `json:"pool"`
	Segments Segments `json:"segments"`
	Blocks   Blocks   `json:"blocks"`

	States []snapshot.State `json:"states"`
	Labels []string         `json:"labels"` // the first is none
	Stacks [][]int          `json:"stacks"` // frames, innermost first; the first stack is none
	Frames []snapshot.Frame `json:"frames"`
}

// Segments has what a snapshot.Segment has, without its sums.
type Segments struct {
	Address  []string `json:"address"` // in hexadecimal, as numbers in browsers are too small
	Size     []int64  `json:"size"`
	Stream   []uint64 `json:"stream"` // number
	Small    []int    `json:"small"`
	Virtual  []int    `json:"virtual"`
	Stitched []int    `json:"stitched"`
	Blocks   []int    `json:"blocks"` // how many
}

// Blocks has what a snapshot.Block has, without its address.
type Blocks struct {
	Size      []int64 `json:"size"`
	Requested []int64 `json:"requested"`
	State     []int   `json:"state"`
	Label     []int   `json:"label"`
	Stack     []int   `json:"stack"`

	Weight []float64 `json:"weight,omitempty"` // none, if no block was sampled
}

var states = []snapshot.State{snapshot.Live, snapshot.Pending, snapshot.Cached, snapshot.Free, snapshot.Part, snapshot.Gap}

// Of puts a snapshot into columns.
func Of(p *snapshot.Snapshot) *Snapshot {
	out := &Snapshot{Device: p.Device, Pool: p.Pool, States: states, Labels: []string{""}, Stacks: [][]int{{}}, Frames: []snapshot.Frame{}}
	n := numbers{out: out, labels: map[string]int{"": 0}, frames: map[snapshot.Frame]int{}}
	n.stacks.Number(nil)
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

func (c *Segments) make(n int) {
	*c = Segments{make([]string, 0, n), make([]int64, 0, n), make([]uint64, 0, n), make([]int, 0, n), make([]int, 0, n), make([]int, 0, n), make([]int, 0, n)}
}

func (c *Segments) add(s *snapshot.Segment) {
	c.Address = append(c.Address, fmt.Sprintf("%#x", uintptr(s.Address)))
	c.Size = append(c.Size, s.Size)
	c.Stream = append(c.Stream, s.Number)
	c.Small = append(c.Small, number(s.Type == "small"))
	c.Virtual = append(c.Virtual, number(s.Virtual))
	c.Stitched = append(c.Stitched, number(s.Stitched))
	c.Blocks = append(c.Blocks, len(s.Blocks))
}

func (c *Blocks) make(n int) {
	*c = Blocks{make([]int64, 0, n), make([]int64, 0, n), make([]int, 0, n), make([]int, 0, n), make([]int, 0, n), nil}
}

// weigh sets the weight of the last block, of so many.
func (c *Blocks) weigh(weight float64, blocks int) {
	if weight != 0 && c.Weight == nil {
		c.Weight = make([]float64, blocks)
	}
	if c.Weight != nil {
		c.Weight[len(c.Size)-1] = weight
	}
}

// Snapshot returns what was put into columns, which somebody else may have written, or
// an error that says what cannot be. Blocks share their stacks.
func (c *Snapshot) Snapshot() (snapshot.Snapshot, error) {
	p := snapshot.Snapshot{Device: c.Device, Pool: c.Pool, Segments: []snapshot.Segment{}}
	s, b := &c.Segments, &c.Blocks
	n := len(s.Size)
	if len(s.Address) != n || len(s.Stream) != n || len(s.Small) != n || len(s.Virtual) != n || len(s.Stitched) != n || len(s.Blocks) != n {
		return p, errors.New("the columns of segments differ in length")
	}
	n = len(b.Size)
	if len(b.Requested) != n || len(b.State) != n || len(b.Label) != n || len(b.Stack) != n || b.Weight != nil && len(b.Weight) != n {
		return p, errors.New("the columns of blocks differ in length")
	}
	stacks, err := c.stacks()
	if err != nil {
		return p, err
	}
	first := 0
	for i := range s.Size {
		address, err := strconv.ParseUint(s.Address[i], 0, 64)
		if err != nil || s.Blocks[i] < 0 || s.Blocks[i] > n-first {
			return p, fmt.Errorf("segment %d has %d blocks of %d at address %.32q", i, s.Blocks[i], n-first, s.Address[i])
		}
		seg := snapshot.Segment{
			Address: snapshot.Ptr(address), Size: s.Size[i], Number: s.Stream[i], Type: "large",
			Virtual: s.Virtual[i] != 0, Stitched: s.Stitched[i] != 0, Blocks: make([]snapshot.Block, 0, s.Blocks[i]),
		}
		if s.Small[i] != 0 {
			seg.Type = "small"
		}
		at := seg.Address
		for k := first; k < first+s.Blocks[i]; k++ {
			if !within(b.State[k], c.States) || !within(b.Label[k], c.Labels) || !within(b.Stack[k], stacks) {
				return p, fmt.Errorf("block %d has a state, a label or a stack that is not there", k)
			}
			block := snapshot.Block{Address: at, Size: b.Size[k], Requested: b.Requested[k], State: c.States[b.State[k]], Label: c.Labels[b.Label[k]], Stack: stacks[b.Stack[k]]}
			if b.Weight != nil {
				block.Weight = b.Weight[k]
			}
			at += snapshot.Ptr(block.Size)
			seg.Blocks = append(seg.Blocks, block)
		}
		first += s.Blocks[i]
		p.Segments = append(p.Segments, seg)
	}
	return p, nil
}

func within[T any](i int, list []T) bool { return i >= 0 && i < len(list) }

func (c *Snapshot) stacks() (all []snapshot.Stack, err error) {
	for i, frames := range c.Stacks {
		s := slices.Grow(snapshot.Stack(nil), len(frames))
		for _, f := range frames {
			if !within(f, c.Frames) {
				return nil, fmt.Errorf("stack %d has a frame that is not there", i)
			}
			s = append(s, c.Frames[f])
		}
		all = append(all, s)
	}
	return all, nil
}

func number(b bool) int {
	if b {
		return 1
	}
	return 0
}

// numbers gives numbers to what recurs.
type numbers struct {
	out    *Snapshot
	labels map[string]int
	frames map[snapshot.Frame]int
	stacks intern.Stacks[snapshot.Frame]
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
	i := n.stacks.Number(s)
	if i == len(n.out.Stacks) {
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
