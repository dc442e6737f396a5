package columns

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool/internal/testkit"
	"github.com/cupool/cupool/snapshot"
)

func sample() *snapshot.Snapshot {
	stack := snapshot.Stack{{Function: "main.load", File: "load.go", Line: 3}, {Function: "main.main", File: "main.go", Line: 5}}
	return &snapshot.Snapshot{Device: "host", Pool: "p", Segments: []snapshot.Segment{
		{Address: 1 << 40, Size: 30, Number: 2, Type: "small", Blocks: []snapshot.Block{
			{Address: 1 << 40, Size: 10, Requested: 7, State: snapshot.Live, Label: "weights", Stack: stack, Weight: 1.5},
			{Address: 1<<40 + 10, Size: 20, State: snapshot.Free},
		}},
		{Address: 1 << 41, Size: 5, Type: "large", Virtual: true, Stitched: true, Blocks: []snapshot.Block{
			{Address: 1 << 41, Size: 5, Requested: 5, State: snapshot.Pending, Label: "weights", Stack: append(snapshot.Stack{}, stack...)},
		}},
		{Address: 1 << 42, Type: "large", Blocks: []snapshot.Block{}},
	}}
}

// What is put into columns comes out again, through JSON, and equal stacks are one.
func TestColumns(t *testing.T) {
	want := sample()
	text, err := json.Marshal(Of(want))
	require.NoError(t, err)
	var c Snapshot
	require.NoError(t, json.Unmarshal(text, &c))
	require.Len(t, c.Stacks, 2)
	got, err := c.Snapshot()
	require.NoError(t, err)
	require.Equal(t, *want, got)
	got, err = (&Snapshot{}).Snapshot()
	require.NoError(t, err)
	require.Empty(t, got.Segments)
}

// A stack that a million blocks have is numbered once.
func TestSharedStacks(t *testing.T) {
	p := snapshot.Snapshot{Segments: []snapshot.Segment{{Blocks: make([]snapshot.Block, 1000)}}}
	deep := make(snapshot.Stack, 10_000)
	for i := range p.Segments[0].Blocks {
		p.Segments[0].Blocks[i] = snapshot.Block{State: snapshot.Live, Stack: deep}
	}
	testkit.RequireAllocates(t, 4<<20, 0, 0, func() {
		c := Of(&p)
		_, err := c.Snapshot()
		require.NoError(t, err)
	})
}

func TestDamaged(t *testing.T) {
	for want, damage := range map[string]func(*Snapshot){
		"the columns of segments differ in length":                  func(c *Snapshot) { c.Segments.Small = nil },
		"the columns of blocks differ in length":                    func(c *Snapshot) { c.Blocks.Weight = c.Blocks.Weight[1:] },
		`segment 0 has 2 blocks of 3 at address "here"`:             func(c *Snapshot) { c.Segments.Address[0] = "here" },
		"segment 1 has -1 blocks of 1":                              func(c *Snapshot) { c.Segments.Blocks[1] = -1 },
		"segment 1 has 9223372036854775807 blocks of 1":             func(c *Snapshot) { c.Segments.Blocks[1] = 1<<63 - 1 },
		"block 2 has a state, a label or a stack that is not there": func(c *Snapshot) { c.Blocks.Stack[2] = 2 },
		"block 1 has a state, a label or a stack that is not there": func(c *Snapshot) { c.Blocks.State[1] = -1 },
		"block 0 has a state, a label or a stack that is not there": func(c *Snapshot) { c.Labels = nil },
		"stack 1 has a frame that is not there":                     func(c *Snapshot) { c.Frames = c.Frames[:1] },
	} {
		c := Of(sample())
		damage(c)
		_, err := c.Snapshot()
		require.ErrorContains(t, err, want)
	}
}

// FuzzSnapshot: whatever a page answers, it is an error or a snapshot whose blocks have
// something that the columns hold, and allocates no more than it may.
func FuzzSnapshot(f *testing.F) {
	text, err := json.Marshal(Of(sample()))
	require.NoError(f, err)
	f.Add(text)
	f.Add([]byte(`{"segments":{"address":["0x0"],"size":[0],"stream":[0],"small":[0],"virtual":[0],"stitched":[0],"blocks":[9]}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		testkit.RequireAllocates(t, 64<<10, 256, len(data), func() {
			var c Snapshot
			if json.Unmarshal(data, &c) != nil {
				return
			}
			p, err := c.Snapshot()
			if err != nil {
				require.Less(t, len(err.Error()), 300)
				return
			}
			blocks := 0
			for _, s := range p.Segments {
				blocks += len(s.Blocks)
			}
			require.LessOrEqual(t, len(p.Segments)+blocks, len(data))
		})
	})
}
