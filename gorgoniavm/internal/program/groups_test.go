package program_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/cupool/cupool/gorgoniavm/internal/program"
	"github.com/cupool/cupool/internal/tensorop/gpu"
)

// unrolled is a plain recurrent network whose inputs and states are parts of
// larger tensors.
func unrolled(t *testing.T, steps int) (g *G.ExprGraph, weights G.Nodes) {
	t.Helper()
	g = G.NewGraph()
	matrix := func(name string, rows, columns int) *G.Node {
		return G.NewMatrix(g, tensor.Float32, G.WithShape(rows, columns), G.WithName(name))
	}
	wx, wh := matrix("wx", 4, 6), matrix("wh", 3, 6)
	z := G.Must(G.Reshape(G.Must(G.Mul(matrix("x", 2*steps, 4), wx)), tensor.Shape{steps, 2, 6}))
	var hs G.Nodes
	for i := range steps {
		zi := G.Must(G.Slice(z, G.S(i)))
		if i > 0 {
			h := G.Must(G.Reshape(hs[i-1], tensor.Shape{2, 3}))
			zi = G.Must(G.Add(zi, G.Must(G.Mul(h, wh))))
		}
		zi = G.Must(G.Reshape(zi, tensor.Shape{2, 2, 3}))
		h := G.Must(G.HadamardProd(G.Must(G.Sigmoid(G.Must(G.Slice(zi, nil, G.S(0))))), G.Must(G.Tanh(G.Must(G.Slice(zi, nil, G.S(1)))))))
		hs = append(hs, G.Must(G.Reshape(h, tensor.Shape{1, 2, 3})))
	}
	_, err := G.Grad(G.Must(G.Sum(G.Must(G.Concat(0, hs...)))), wx, wh)
	require.NoError(t, err)
	return g, G.Nodes{wx, wh}
}

// A step of a recurrent network is one group forward and one back, and what its
// steps have in common is one product.
func TestGroup(t *testing.T) {
	const long = 5
	g, weights := unrolled(t, long)
	p, err := program.Compile(g, &program.Wants{Grads: weights, Fuse: true, Group: true})
	require.NoError(t, err)
	requireSound(t, p)
	n := steps(p)
	require.Equal(t, 2*long, n[program.Elementwise])
	require.Equal(t, 1, n[program.Product])
	require.Equal(t, long+2, n[program.Room], "the hidden states, the gradients of all steps, and in those the one of each")
	require.Equal(t, n[program.Room], n[program.Whole])
	for i := range p.Instrs {
		in := &p.Instrs[i]
		require.NotEqual(t, "gorgonia.sliceIncrOp", in.Name)
		if in.Step == program.Elementwise {
			requireFits(t, in)
		}
	}
	alone, err := program.Compile(g, &program.Wants{Grads: weights, Fuse: true})
	require.NoError(t, err)
	require.Zero(t, steps(alone)[program.Elementwise])
}

// requireFits checks that a group keeps to what the kernel has, and to its own
// operands.
func requireFits(t *testing.T, in *program.Instr) {
	t.Helper()
	g := in.Group
	require.LessOrEqual(t, len(g.Inputs), gpu.FusedInputs)
	require.LessOrEqual(t, len(g.Scalars), gpu.FusedScalars)
	require.LessOrEqual(t, len(g.Steps), gpu.FusedSteps)
	require.LessOrEqual(t, len(g.Outputs), gpu.FusedOutputs)
	registers := len(g.Inputs) + len(g.Scalars)
	for k, s := range g.Steps {
		require.Less(t, int(s>>8&255), registers+k)
		require.Less(t, int(s>>16&255), registers+k)
	}
	for _, o := range g.Outputs {
		require.Less(t, o.Reg, registers+len(g.Steps))
		if o.Room {
			require.Less(t, o.Slot, len(in.In))
		} else {
			require.Less(t, o.Slot, len(in.Parts))
		}
	}
}

// A program knows when its groups have slices that are others now.
func TestRecut(t *testing.T) {
	g := G.NewGraph()
	x := G.NewMatrix(g, tensor.Float32, G.WithShape(4, 2), G.WithName("x"))
	cut := G.Must(G.Slice(x, G.S(0, 2)))
	G.Must(G.Neg(cut))
	p, err := program.Compile(g, &program.Wants{Fuse: true, Group: true})
	require.NoError(t, err)
	require.False(t, p.Recut())
	require.NoError(t, G.UnsafeLet(cut, G.S(1, 3)))
	require.True(t, p.Recut())
}
