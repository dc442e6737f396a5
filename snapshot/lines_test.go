package snapshot_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool/snapshot"
)

func TestProgram(t *testing.T) {
	engine := snapshot.Frame{Function: "github.com/cupool/cupool.(*Engine).Add", File: "/go/cupool/tensor_ops.go"}
	gorgonia := snapshot.Frame{Function: "gorgonia.org/tensor.Add", File: "/go/tensor/api.go"}
	torch := snapshot.Frame{Function: "empty", File: "/usr/lib/python3/site-packages/torch/functional.py"}
	train := snapshot.Frame{Function: "main.train", File: "/src/github.com/cupool/cupool/train.go"}
	test := snapshot.Frame{Function: "github.com/cupool/cupool/nn.TestAdam", File: "/go/cupool/nn/adam_test.go"}
	example := snapshot.Frame{Function: "github.com/cupool/cupool/examples/internal/training.Run", File: "training.go"}
	end := snapshot.Frame{Function: "runtime.main", File: "/go/src/runtime/proc.go"}
	for _, tc := range []struct{ of, want snapshot.Stack }{
		{nil, nil},
		{snapshot.Stack{engine, gorgonia, torch, train, end}, snapshot.Stack{train}},
		{snapshot.Stack{train, gorgonia, test}, snapshot.Stack{train, test}},
		{snapshot.Stack{engine, example, end}, snapshot.Stack{example}},
		{snapshot.Stack{gorgonia, end}, snapshot.Stack{gorgonia, end}}, // there is nothing else
	} {
		require.Equal(t, tc.want, tc.of.Program())
	}
}

// Blocks of one line are one holder, with the callers that all of them have. Samples count
// as often as they stand for, and what is live beyond them was not recorded.
func TestLines(t *testing.T) {
	frame := func(f string, line int) snapshot.Frame {
		return snapshot.Frame{Function: "example.com/train." + f, File: "/src/" + f + ".go", Line: line}
	}
	load, fit, eval, root := frame("load", 3), frame("fit", 5), frame("eval", 7), frame("main", 9)
	block := func(size int64, weight float64, label string, stack ...snapshot.Frame) snapshot.Block {
		return snapshot.Block{Size: 2 * size, Requested: size, State: snapshot.Live, Weight: weight, Label: label, Stack: stack}
	}
	list := snapshot.LinesOf(
		snapshot.Snapshot{Segments: []snapshot.Segment{{Blocks: []snapshot.Block{
			block(100, 1, "", load, fit, root), block(50, 2, "", load, eval, root), block(50, 0, ""), block(50, 0, ""),
			{State: snapshot.Free, Size: 4096}, {State: snapshot.Pending, Requested: 9999},
		}}}, Pools: []snapshot.Snapshot{{Pool: "p", Segments: []snapshot.Segment{{Blocks: []snapshot.Block{
			block(1000, 1, "w", load, fit, eval, root), block(10, 5, "w", fit), block(500, 0, "w"),
		}}}}}},
	)
	require.Equal(t, []snapshot.Line{
		{Pool: "p", Label: "w", Stack: snapshot.Stack{load, fit, eval, root}, Blocks: 1, Bytes: 1000},
		{Pool: "p", Label: "w", Blocks: 1, Bytes: 460},
		{Stack: snapshot.Stack{load}, Blocks: 3, Bytes: 200},
		{Pool: "p", Label: "w", Stack: snapshot.Stack{fit}, Blocks: 5, Bytes: 50},
		{Blocks: 1, Bytes: 50},
	}, list)
	var text []string
	for _, l := range list {
		text = append(text, l.String())
	}
	require.Equal(t, []string{
		`1 block, 1000 B, in pool "p", for w, allocated at train.load (load.go:3), called by train.fit (fit.go:5), train.eval (eval.go:7)`,
		`1 block, 460 B, in pool "p", for w, not recorded where`,
		"3 blocks, 200 B, allocated at train.load (load.go:3)",
		`5 blocks, 50 B, in pool "p", for w, allocated at train.fit (fit.go:5)`,
		"1 block, 50 B, not recorded where",
	}, text)
	require.Empty(t, snapshot.LinesOf())
}
