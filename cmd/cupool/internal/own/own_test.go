package own

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool/snapshot"
)

func TestOf(t *testing.T) {
	engine := snapshot.Frame{Function: "github.com/cupool/cupool.(*Engine).Add", File: "/go/cupool/tensor_ops.go"}
	gorgonia := snapshot.Frame{Function: "gorgonia.org/tensor.Add", File: "/go/tensor/api.go"}
	torch := snapshot.Frame{Function: "empty", File: "/usr/lib/python3/site-packages/torch/functional.py"}
	train := snapshot.Frame{Function: "main.train", File: "/home/u/train.go"}
	test := snapshot.Frame{Function: "github.com/cupool/cupool/nn.TestAdam", File: "/go/cupool/nn/adam_test.go"}
	end := snapshot.Frame{Function: "runtime.main", File: "/go/src/runtime/proc.go"}
	require.Empty(t, Of(nil))
	require.Equal(t, snapshot.Stack{train, end}, Of(snapshot.Stack{engine, gorgonia, torch, train, end}))
	require.Equal(t, snapshot.Stack{train, gorgonia}, Of(snapshot.Stack{train, gorgonia}), "what the program calls is not looked at")
	require.Equal(t, snapshot.Stack{test, end}, Of(snapshot.Stack{engine, test, end}))
	require.Equal(t, snapshot.Stack{gorgonia, end}, Of(snapshot.Stack{gorgonia, end}), "there is nothing else")
}
