package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/simdev"
	"github.com/cupool/cupool/snapshot"
)

// snapshots writes what a program holds before and after it grew, as JSON and for
// PyTorch's viewer.
func snapshots(t *testing.T) (before, after string) {
	t.Helper()
	c, err := cupool.New(cupool.Config{Driver: simdev.New(simdev.Config{}), Backing: cupool.BackingSegments})
	require.NoError(t, err)
	weights := c.WithLabel("weights")
	alloc := func(a cupool.Allocator, size int64) cupool.Block {
		b, err := a.Alloc(size, nil)
		require.NoError(t, err)
		return b
	}
	free := func(b cupool.Block) { require.NoError(t, c.Free(b)) }
	alloc(weights, 3<<20)
	gone := alloc(c.WithLabel("batches"), 12<<20)
	old := alloc(c, 1<<20)
	dir := t.TempDir()
	before, after = filepath.Join(dir, "before.json"), filepath.Join(dir, "after.pickle")
	text, err := json.Marshal(c.Snapshot())
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(before, text, 0o644))
	free(gone)
	free(old)
	require.NoError(t, c.EmptyCache())
	p, err := c.NewPool(cupool.PoolConfig{Name: "tenant"})
	require.NoError(t, err)
	alloc(weights, 5<<20)
	alloc(p, 30<<20)
	f, err := os.Create(after)
	require.NoError(t, err)
	require.NoError(t, snapshot.WriteTorch(f, c.Snapshot()))
	require.NoError(t, f.Close())
	return before, after
}

func TestDiffTable(t *testing.T) {
	before, after := snapshots(t)
	status, out, errs := tool(t, "diff", before, after)
	require.Zero(t, status, errs)
	require.Empty(t, errs)
	var lines []string
	for line := range strings.Lines(out) {
		if fields := strings.Fields(line); len(fields) > 0 {
			lines = append(lines, strings.Join(fields, " "))
		}
	}
	require.Regexp(t, `^before\.json after\.pickle change
reserved 22 MiB 50 MiB \+28 MiB
live 16 MiB 38 MiB \+22 MiB
pending 0 B 0 B 0 B
cached 6 MiB 12 MiB \+6 MiB
blocks 3 3 \+0
segments 2 2 \+0
by label bytes change blocks change
\(no label\) 30 MiB \+29 MiB 1 \+0
weights 8 MiB \+5 MiB 2 \+1
batches 0 B -12 MiB 0 -1
by allocated at bytes change blocks change
\(no stack\) 38 MiB \+22 MiB 3 \+0
by size bytes change blocks change
30 MiB 30 MiB \+30 MiB 1 \+1
5 MiB 5 MiB \+5 MiB 1 \+1
1 MiB 0 B -1 MiB 0 -1
12 MiB 0 B -12 MiB 0 -1
by segment bytes change
0x\w+ large of pool tenant 30 MiB \+30 MiB new
0x\w+ small 0 B -2 MiB gone$`, strings.Join(lines, "\n"))
	_, out, _ = tool(t, "diff", "-top", "2", before, after)
	require.Regexp(t, `by label.*\n *\(no label\).*\n *batches.*\nand 1 more with less change \(-top\)\n`, out)
	_, out, _ = tool(t, "diff", before, before)
	require.Equal(t, 7, strings.Count(out, "\n"), "nothing but the totals: %s", out)
}

func TestDiffJSON(t *testing.T) {
	before, after := snapshots(t)
	status, out, errs := tool(t, "diff", "-json", before, after)
	require.Zero(t, status, errs)
	var d diff
	require.NoError(t, json.Unmarshal([]byte(out), &d))
	require.Equal(t, totals{Reserved: 50 << 20, Live: 38 << 20, Cached: 12 << 20, Blocks: 3, Segments: 2}, d.After)
	require.Equal(t, change{Label: "weights", Before: amount{1, 3 << 20}, After: amount{2, 8 << 20}}, d.Labels[1])
	require.Len(t, d.Segments, 2)
	require.Equal(t, segmentChange{segmentKey{"sim", "tenant", d.Segments[0].Address}, "large", 0, 30 << 20}, d.Segments[0])
	_, out, _ = tool(t, "diff", "-json", before, before)
	require.Contains(t, out, `"labels":[],"stacks":[],"sizes":[],"segments":[]`)
}

// Snapshots of PyTorch are compared too.
func TestDiffPyTorch(t *testing.T) {
	status, out, errs := tool(t, "diff", traces+"torch_default.pickle.gz", traces+"torch_expandable.pickle.gz")
	require.Zero(t, status, errs)
	require.Regexp(t, `(?m)^ *reserved +88 MiB +84 MiB +-4 MiB$`, out)
	require.NotContains(t, out, "by label", "what is live is the same")
}

// What is allocated where is estimated where there are samples; the rest is exact.
func TestDiffSamples(t *testing.T) {
	stack := snapshot.Stack{{Function: "main.load", File: "load.go", Line: 3}}
	blocks := func(b ...snapshot.Block) []snapshot.Snapshot {
		for i := range b {
			b[i].State, b[i].Size = snapshot.Live, 512
		}
		return []snapshot.Snapshot{{Segments: []snapshot.Segment{{Blocks: b}}}}
	}
	d := compare(blocks(snapshot.Block{Stack: stack}), blocks(snapshot.Block{}, snapshot.Block{}, snapshot.Block{Stack: stack, Weight: 3.5}))
	require.Equal(t, []change{{Stack: stack, Before: amount{1, 512}, After: amount{3.5, 3.5 * 512}}}, d.Stacks)
	require.Equal(t, []change{{Size: 512, Before: amount{1, 512}, After: amount{3, 3 * 512}}}, d.Sizes)
	require.EqualValues(t, 3*512, d.After.Live)
}

// What was allocated before the history began stays what no stack is known of.
func TestDiffLateHistory(t *testing.T) {
	c, err := cupool.New(cupool.Config{Driver: simdev.New(simdev.Config{}), Backing: cupool.BackingSegments})
	require.NoError(t, err)
	alloc := func(n int) {
		for range n {
			_, err := c.Alloc(1<<20, nil)
			require.NoError(t, err)
		}
	}
	alloc(10)
	before := c.Snapshot().Flat()
	require.NoError(t, c.StartHistory(cupool.History{SampleBytes: 1}))
	alloc(3)
	d := compare(before, c.Snapshot().Flat())
	require.Len(t, d.Stacks, 1, "nothing that no stack is known of came or went")
	require.Equal(t, amount{}, d.Stacks[0].Before)
	require.Equal(t, amount{3, 3 << 20}, d.Stacks[0].After)
}

// The largest weights that a snapshot may have can be printed, and their sums end at the most that an
// int64 holds.
func TestDiffHeavy(t *testing.T) {
	dir := t.TempDir()
	name, empty := filepath.Join(dir, "heavy.json"), filepath.Join(dir, "empty.json")
	require.NoError(t, os.WriteFile(empty, []byte(`{"segments": []}`), 0o644))
	for weight, ok := range map[string]bool{"9223372036854775808": true, "1e308": false} {
		text := `{"segments": [{"total_size": 9223372036854775807, "blocks": [
			{"state": "live", "size": 4611686018427387903, "weight": ` + weight + `, "frames": [{"name": "main.load"}]},
			{"state": "live", "address": 4611686018427387903, "size": 4611686018427387904, "weight": ` + weight + `, "frames": [{"name": "main.load"}]}]}]}`
		require.NoError(t, os.WriteFile(name, []byte(text), 0o644))
		status, out, errs := tool(t, "diff", "-json", name, name)
		require.Equal(t, ok, status == 0, errs)
		if ok {
			require.True(t, json.Valid([]byte(out)))
			_, out, _ = tool(t, "diff", empty, name)
			require.Regexp(t, `main.load +8 EiB +\+8 EiB +18446744073709551616 +\+18446744073709551616 *\n`, out)
			_, out, _ = tool(t, "diff", name, empty)
			require.Regexp(t, `main.load +0 B +-8 EiB +0 +-18446744073709551616 *\n`, out)
		} else {
			require.Contains(t, errs, "its weight is 1e+308")
		}
	}
}

// Stacks that meet in one line of the program are one row, with all that it holds.
func TestDiffPlaces(t *testing.T) {
	block := func(caller string) snapshot.Block {
		return snapshot.Block{State: snapshot.Live, Size: 1 << 20, Stack: snapshot.Stack{
			{Function: "main.load", File: "load.go", Line: 3}, {Function: caller, File: "main.go", Line: 7},
		}}
	}
	list := func(b ...snapshot.Block) []snapshot.Snapshot {
		return []snapshot.Snapshot{{Segments: []snapshot.Segment{{Blocks: b}}}}
	}
	a, b, c := block("main.a"), block("main.b"), block("main.c")
	d := compare(list(a, b), list(b, c, c))
	require.Len(t, d.Stacks, 2)
	var out strings.Builder
	require.NoError(t, d.print(&out, "before", "after", 10))
	require.Regexp(t, `by allocated at +bytes +change +blocks +change *\n *load.go:3 main.load +3 MiB +\+1 MiB +3 +\+1 *\n\n`, out.String())
}

// A stack is about the first line that is not a library's.
func TestPlace(t *testing.T) {
	frame := func(function, file string) snapshot.Frame {
		return snapshot.Frame{Function: function, File: file, Line: 3}
	}
	lib := frame("github.com/cupool/cupool.(*Engine).Add", "/go/cupool/tensor_ops.go")
	for want, stack := range map[string]snapshot.Stack{
		"(no stack)": nil,
		"/src/mlp/main.go:3 main.train": {
			lib, frame("gorgonia.org/tensor.Add", "/go/tensor/api.go"), frame("main.train", "/src/mlp/main.go"), frame("main.main", "/src/mlp/main.go"),
		},
		"train.py:3 forward":                         {frame("__call__", "/lib/site-packages/torch/nn/module.py"), frame("forward", "train.py")},
		"/go/cupool/tensor_ops.go:3 " + lib.Function: {lib},
	} {
		require.Equal(t, want, place(stack))
	}
}

// TestNamesOfOneLine: no label and no name of a pool makes a row of its own, or a column.
func TestNamesOfOneLine(t *testing.T) {
	c, err := cupool.New(cupool.Config{Driver: simdev.New(simdev.Config{}), Backing: cupool.BackingSegments})
	require.NoError(t, err)
	dir := t.TempDir()
	write := func(name string) string {
		text, err := json.Marshal(c.Snapshot())
		require.NoError(t, err)
		name = filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(name, text, 0o644))
		return name
	}
	before := write("before.json")
	p, err := c.NewPool(cupool.PoolConfig{Name: "tenant\nforged\t1"})
	require.NoError(t, err)
	_, err = p.WithLabel("weights\nforged\t1").Alloc(3<<20, nil)
	require.NoError(t, err)
	for _, args := range [][]string{{"diff", before, write("after.json")}, {"top", write("after.json")}} {
		status, out, errs := tool(t, args...)
		require.Zero(t, status, errs)
		require.Contains(t, out, "weights�forged�1")
		require.Contains(t, out, "tenant�forged�1")
	}
}
