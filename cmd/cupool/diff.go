package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/cupool/cupool/cmd/internal/printable"
	"github.com/cupool/cupool/internal/intern"
	"github.com/cupool/cupool/snapshot"
)

const diffText = `Says what grew between two memory snapshots, and what shrank: reserved, live,
pending and cached memory; what is live or pending by label, by the place in the
program that allocated it, and by size; and which segments came and went. A
snapshot is what snapshot.WriteTorch wrote or a Snapshot as JSON, or PyTorch's
(torch.cuda.memory._dump_snapshot), with gzip or without.

Places are known where the program recorded a history (StartHistory). Where that has
samples only, what a place holds is estimated from them. What is beyond has no stack. A
place is the first line outside of libraries; -json has whole stacks. Sizes are of blocks,
as they were rounded.`

func diffCommand() *cobra.Command {
	c := newCommand("diff BEFORE AFTER", "say what grew between two memory snapshots", diffText, 2, 2, "it takes two snapshots, BEFORE and AFTER")
	asJSON := c.Flags().Bool("json", false, "print JSON, with all that changed")
	top := c.Flags().Int("top", 10, "how many `lines` each table has at most")
	c.RunE = func(cmd *cobra.Command, args []string) error {
		if *top < 1 {
			return wrongUsage("-top %d: a table has a line or more", *top)
		}
		before, err := readSnapshots(args[0])
		if err != nil {
			return err
		}
		after, err := readSnapshots(args[1])
		if err != nil {
			return err
		}
		d := compare(before, after)
		if *asJSON {
			return json.NewEncoder(cmd.OutOrStdout()).Encode(d)
		}
		return d.print(printable.Writer(cmd.OutOrStdout()), filepath.Base(args[0]), filepath.Base(args[1]), *top)
	}
	return c
}

func readSnapshots(name string) ([]snapshot.Snapshot, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	list, err := snapshot.Read(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return list, nil
}

// diff is what changed between two snapshots. Sizes are in bytes.
type diff struct {
	Before   totals          `json:"before"`
	After    totals          `json:"after"`
	Labels   []change        `json:"labels"` // by growth, the largest first, as the others
	Stacks   []change        `json:"stacks"`
	Sizes    []change        `json:"sizes"`
	Segments []segmentChange `json:"segments"` // that came, grew, shrank or went

	places []change // Stacks, summed up by place
}

// totals are the sums of a snapshot.
type totals struct {
	Reserved int64 `json:"reserved"`
	Live     int64 `json:"live"`
	Pending  int64 `json:"pending"`
	Cached   int64 `json:"cached"`
	Blocks   int64 `json:"blocks"` // live or pending
	Segments int64 `json:"segments"`
}

// A change is of the live and pending blocks that have something in common.
type change struct {
	Label  string         `json:"label,omitempty"`
	Size   int64          `json:"size,omitempty"`
	Stack  snapshot.Stack `json:"frames,omitempty"`
	Before amount         `json:"before"`
	After  amount         `json:"after"`
}

// An amount is a whole number, unless it is an estimate.
type amount struct {
	Blocks float64 `json:"blocks"`
	Bytes  float64 `json:"bytes"`
}

func (a *amount) add(b amount) {
	a.Blocks += b.Blocks
	a.Bytes += b.Bytes
}

func (c *change) bytes() float64  { return c.After.Bytes - c.Before.Bytes }
func (c *change) blocks() float64 { return c.After.Blocks - c.Before.Blocks }

// A segmentChange is of the memory at an address.
type segmentChange struct {
	segmentKey
	Type   string `json:"segment_type"`
	Before int64  `json:"before"` // 0: it is new
	After  int64  `json:"after"`  // 0: it is gone
}

type segmentKey struct {
	Device  string       `json:"device"`
	Pool    string       `json:"pool,omitempty"`
	Address snapshot.Ptr `json:"address"`
}

// comparison collects a diff.
type comparison struct {
	labels, stacks, sizes map[string]*change
	segments              map[segmentKey]*segmentChange

	numbers intern.Stacks[snapshot.Frame]
	texts   []string // of a stack's number
}

// text returns the stack as text, which is made once.
func (c *comparison) text(s snapshot.Stack) string {
	n := c.numbers.Number(s)
	if n == len(c.texts) {
		c.texts = append(c.texts, s.String())
	}
	return c.texts[n]
}

func compare(before, after []snapshot.Snapshot) *diff {
	c := comparison{labels: map[string]*change{}, stacks: map[string]*change{}, sizes: map[string]*change{}, segments: map[segmentKey]*segmentChange{}}
	d := &diff{}
	d.Before = c.add(before, func(x *change) *amount { return &x.Before }, func(x *segmentChange) *int64 { return &x.Before })
	d.After = c.add(after, func(x *change) *amount { return &x.After }, func(x *segmentChange) *int64 { return &x.After })
	if rest := c.stacks[""]; rest != nil {
		rest.Before.rest()
		rest.After.rest()
	}
	d.Labels, d.Stacks, d.Sizes, d.places = changed(c.labels), changed(c.stacks), changed(c.sizes), changed(places(c.stacks))
	d.Segments = []segmentChange{}
	for _, s := range c.segments {
		if s.Before != s.After {
			d.Segments = append(d.Segments, *s)
		}
	}
	slices.SortFunc(d.Segments, func(a, b segmentChange) int {
		return cmp.Or(cmp.Compare(b.After-b.Before, a.After-a.Before), cmp.Compare(a.Device, b.Device), cmp.Compare(a.Address, b.Address))
	})
	return d
}

// add enters the snapshots of one side.
func (c *comparison) add(list []snapshot.Snapshot, side func(*change) *amount, segment func(*segmentChange) *int64) (sum totals) {
	for _, s := range list {
		for i := range s.Segments {
			seg, reserved := &s.Segments[i], int64(0)
			for k := range seg.Blocks {
				b := &seg.Blocks[k]
				reserved += sum.add(b)
				if b.State == snapshot.Live || b.State == snapshot.Pending {
					c.addBlock(b, side)
				}
			}
			if reserved == 0 {
				continue // addresses without memory
			}
			key := segmentKey{s.Device, s.Pool, seg.Address}
			if c.segments[key] == nil {
				c.segments[key] = &segmentChange{segmentKey: key, Type: seg.Type}
			}
			*segment(c.segments[key]) += reserved
			sum.Segments++
		}
	}
	return sum
}

// add counts a block, and returns how much memory it has of its own.
func (t *totals) add(b *snapshot.Block) int64 {
	switch b.State {
	case snapshot.Live:
		t.Live += b.Size
		t.Blocks++
	case snapshot.Pending:
		t.Pending += b.Size
		t.Blocks++
	case snapshot.Cached, snapshot.Free:
		t.Cached += b.Size
	default:
		return 0
	}
	t.Reserved += b.Size
	return b.Size
}

func (c *comparison) addBlock(b *snapshot.Block, side func(*change) *amount) {
	add := func(m map[string]*change, key string, first change, weight float64) {
		if m[key] == nil {
			m[key] = &first
		}
		a := side(m[key])
		a.Blocks += weight
		a.Bytes += weight * float64(b.Size)
	}
	add(c.labels, b.Label, change{Label: b.Label}, 1)
	add(c.sizes, strconv.FormatInt(b.Size, 10), change{Size: b.Size}, 1)
	add(c.stacks, "", change{}, 1)
	if len(b.Stack) > 0 {
		weight := max(b.Weight, 1) // 0: it is no sample, and recorded all the same
		add(c.stacks, c.text(b.Stack), change{Stack: b.Stack}, weight)
		add(c.stacks, "", change{}, -weight)
	}
}

// rest leaves what is live or pending beyond what stacks stand for.
func (a *amount) rest() {
	if a.Blocks = max(a.Blocks, 0); a.Bytes < 0.5 {
		*a = amount{}
	}
}

// places sums stacks up by what they are about.
func places(stacks map[string]*change) map[string]*change {
	sums := map[string]*change{}
	for _, key := range slices.Sorted(maps.Keys(stacks)) { // estimates always add up alike
		s := stacks[key]
		at := place(s.Stack)
		if sums[at] == nil {
			sums[at] = &change{Stack: s.Stack}
		}
		sums[at].Before.add(s.Before)
		sums[at].After.add(s.After)
	}
	return sums
}

// changed returns what changed, by growth.
func changed(m map[string]*change) []change {
	list := []change{}
	for _, key := range slices.Sorted(maps.Keys(m)) {
		if c := m[key]; c.Before != c.After {
			list = append(list, *c)
		}
	}
	slices.SortStableFunc(list, func(a, b change) int {
		return cmp.Or(cmp.Compare(b.bytes(), a.bytes()), cmp.Compare(b.blocks(), a.blocks()))
	})
	return list
}
