package program_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/cupool/cupool/gorgoniavm/internal/program"
)

// newLayer is the sum of rectify(x·w + b), and its gradients by w and b.
func newLayer(t *testing.T) (g *G.ExprGraph, w, b *G.Node) {
	t.Helper()
	g = G.NewGraph()
	matrix := func(name string, rows, cols int) *G.Node {
		return G.NewMatrix(g, tensor.Float32, G.WithShape(rows, cols), G.WithName(name))
	}
	x := matrix("x", 4, 3)
	w, b = matrix("w", 3, 2), matrix("b", 1, 2)
	out := G.Must(G.Rectify(G.Must(G.BroadcastAdd(G.Must(G.Mul(x, w)), b, nil, []byte{0}))))
	_, err := G.Grad(G.Must(G.Sum(out)), w, b)
	require.NoError(t, err)
	return g, w, b
}

// requireSound checks what holds of every program: an instruction reads only
// slots that are filled before it, and each slot ends once, with its last
// reader.
func requireSound(t *testing.T, p *program.Program) {
	t.Helper()
	last, uses := make(map[int]int), make([]int32, len(p.Instrs))
	for i, in := range p.Instrs {
		require.Equal(t, i, in.Out)
		for _, from := range in.In {
			require.Less(t, from, i, in.Name)
			last[from] = i
			uses[from]++
		}
		if len(in.DerivOf) > 0 {
			uses[i]++
		}
	}
	require.Equal(t, uses, p.Uses)
	for i, in := range p.Instrs {
		for _, slot := range in.Dead {
			require.Equal(t, i, last[slot])
			delete(last, slot)
		}
		if in.InPlace >= 0 {
			require.Contains(t, in.Dead, in.In[in.InPlace])
		}
	}
	for slot := range last { // read once more at the end of the run
		require.NotEmpty(t, p.Instrs[slot].DerivOf)
	}
}

func steps(p *program.Program) map[program.Step]int {
	n := make(map[program.Step]int)
	for _, in := range p.Instrs {
		n[in.Step]++
	}
	return n
}

func TestCompile(t *testing.T) {
	g, w, b := newLayer(t)
	all, err := program.Compile(g, &program.Wants{})
	require.NoError(t, err)
	requireSound(t, all)
	require.Len(t, all.Instrs, len(g.AllNodes()))
	require.Empty(t, all.Targets)

	few, err := program.Compile(g, &program.Wants{Bind: true, BindOnly: G.Nodes{w, b}})
	require.NoError(t, err)
	requireSound(t, few)
	require.Less(t, len(few.Instrs), len(all.Instrs), "the gradient by x is left out")
	require.ElementsMatch(t, []*G.Node{w, b}, few.Targets)
	require.Equal(t, map[program.Step]int{program.Own: len(few.Instrs)}, steps(few))
}

func TestFuse(t *testing.T) {
	g, w, b := newLayer(t)
	p, err := program.Compile(g, &program.Wants{Bind: true, BindOnly: G.Nodes{w, b}, Fuse: true})
	require.NoError(t, err)
	requireSound(t, p)
	n := steps(p)
	require.Equal(t, 1, n[program.Linear])
	require.Equal(t, 1, n[program.LinearBack])
	for _, in := range p.Instrs {
		if in.Step == program.Linear {
			require.False(t, in.Rectify, "its gradient reads the mask too")
			require.Len(t, in.In, 3)
		}
	}
	traced, err := program.Compile(g, &program.Wants{KeepAll: true, Fuse: true})
	require.NoError(t, err)
	requireSound(t, traced)
	require.Zero(t, steps(traced)[program.Linear], "what is wanted is not fused away")
}

func TestReadTarget(t *testing.T) {
	g, w, _ := newLayer(t)
	var into G.Value
	read := G.Read(w, &into)
	require.Same(t, &into, program.ReadTarget(read.Op()))
	require.Nil(t, program.ReadTarget(w.Op()))
	p, err := program.Compile(g, &program.Wants{})
	require.NoError(t, err)
	require.Equal(t, "input", program.OpName(w.Op()))
	require.Contains(t, kinds(p), program.Statement)
}

func kinds(p *program.Program) (ks []program.Kind) {
	for _, in := range p.Instrs {
		ks = append(ks, in.Kind)
	}
	return ks
}
