package program_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/cupool/cupool/gorgoniavm/internal/program"
)

// newImages is two convolutions, normalized and rectified, and pooling, with
// gradients by the weights.
func newImages(t *testing.T) (g *G.ExprGraph, weights G.Nodes) {
	t.Helper()
	g = G.NewGraph()
	param := func(name string, shape ...int) *G.Node {
		n := G.NewTensor(g, tensor.Float32, len(shape), G.WithShape(shape...), G.WithName(name))
		weights = append(weights, n)
		return n
	}
	x := G.NewTensor(g, tensor.Float32, 4, G.WithShape(2, 3, 8, 8), G.WithName("x"))
	h := G.Must(G.Conv2d(x, param("w1", 4, 3, 3, 3), tensor.Shape{3, 3}, []int{1, 1}, []int{2, 2}, []int{1, 1}))
	h, _, _, _, err := G.BatchNorm(h, param("scale", 1, 4, 1, 1), param("shift", 1, 4, 1, 1), 0.1, 1e-5)
	require.NoError(t, err)
	h = G.Must(G.Conv2d(G.Must(G.Rectify(h)), param("w2", 5, 4, 3, 3), tensor.Shape{3, 3}, []int{1, 1}, []int{1, 1}, []int{1, 1}))
	h = G.Must(G.Rectify(G.Must(G.BroadcastAdd(h, param("bias", 1, 5, 1, 1), nil, []byte{0, 2, 3}))))
	h = G.Must(G.MaxPool2D(h, tensor.Shape{2, 2}, []int{0, 0}, []int{2, 2}))
	_, err = G.Grad(G.Must(G.Sum(G.Must(G.Square(h)))), weights...)
	require.NoError(t, err)
	return g, weights
}

func TestFuseImages(t *testing.T) {
	g, weights := newImages(t)
	all, err := program.Compile(g, &program.Wants{Grads: weights})
	require.NoError(t, err)
	for _, grouped := range []bool{false, true} {
		p, err := program.Compile(g, &program.Wants{Grads: weights, Fuse: true, Group: grouped})
		require.NoError(t, err)
		requireSound(t, p)
		n := steps(p)
		require.Equal(t, []int{2, 2, 1, 1, 0, 0}, []int{n[program.ConvForward], n[program.ConvBack], n[program.NormForward], n[program.NormBack], n[program.Rectify], n[program.RectifyBack]})
		require.Less(t, 2*len(p.Instrs), len(all.Instrs))
	}
	last := program.Conv{}
	for _, in := range all.Instrs {
		if in.Name == "gorgonia.im2colOp" {
			last = in.Conv
		}
	}
	require.Equal(t, program.Conv{Kernel: [2]int{3, 3}, Pad: [2]int{1, 1}, Stride: [2]int{1, 1}, Dilation: [2]int{1, 1}}, last)
}

// Whichever node the program keeps, the program is sound, and the node is there.
func TestFuseImagesAroundAValue(t *testing.T) {
	g, weights := newImages(t)
	for _, kept := range g.AllNodes() {
		p, err := program.Compile(g, &program.Wants{Grads: weights, Fuse: true, Group: true, Keep: G.Nodes{kept}})
		require.NoError(t, err)
		requireSound(t, p)
		found := kept.Op() == nil
		for _, in := range p.Instrs {
			found = found || in.Node == kept
		}
		require.True(t, found, kept.Name())
	}
}
