package gorgoniavm_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Gorgonia takes slices that differ by multiples of 256 for the same one, of
// which the package's documentation warns.
func TestSlicesThatGorgoniaTakesForOne(t *testing.T) {
	g := G.NewGraph()
	x := G.NewMatrix(g, tensor.Float32, G.WithShape(2, 512), G.WithName("x"))
	left, right := G.Must(G.Slice(x, nil, G.S(0, 256))), G.Must(G.Slice(x, nil, G.S(256, 512)))
	require.Same(t, left, right)
	y := G.Must(G.Reshape(x, tensor.Shape{2, 2, 256}))
	require.NotSame(t, G.Must(G.Slice(y, nil, G.S(0))), G.Must(G.Slice(y, nil, G.S(1))))
}
