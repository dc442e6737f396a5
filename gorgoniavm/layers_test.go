package gorgoniavm_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Transpositions are tensor's.
func TestTranspose(t *testing.T) {
	for _, c := range []struct {
		shape tensor.Shape
		axes  []int
	}{
		{tensor.Shape{2, 3}, []int{1, 0}},
		{tensor.Shape{1, 4}, []int{1, 0}},
		{tensor.Shape{1, 1}, []int{1, 0}},
		{tensor.Shape{5, 1, 2}, []int{2, 0, 1}},
		{tensor.Shape{2, 3, 4, 5}, []int{0, 3, 1, 2}},
		{tensor.Shape{2, 3, 4, 5}, []int{3, 2, 1, 0}},
		{tensor.Shape{2, 3, 4, 5}, []int{0, 2, 3, 1}},
	} {
		for _, dt := range []tensor.Dtype{tensor.Float32, tensor.Float64, tensor.Int} {
			t.Run(fmt.Sprint(c.shape, c.axes, dt), func(t *testing.T) {
				x := tensor.New(tensor.WithShape(c.shape...), tensor.WithBacking(tensor.Range(dt, 0, c.shape.TotalSize())))
				want, err := tensor.Transpose(x, c.axes...)
				require.NoError(t, err)
				g := G.NewGraph()
				n := G.NewTensor(g, dt, len(c.shape), G.WithShape(c.shape...), G.WithName("x"), G.WithValue(x))
				got := evaluate(t, G.Must(G.Transpose(n, c.axes...)))
				assert.Equal(t, want.Data(), got[0])
			})
		}
	}
}
