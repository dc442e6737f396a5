package gorgoniavm_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/gorgoniavm"
)

// Inputs may be anything that has their shape: in Go's heap or in the pool,
// whole, parts of other tensors, or transposed.
func TestInputs(t *testing.T) {
	set := func() *tensor.Dense {
		return tensor.New(tensor.WithBacking(tensor.Range(tensor.Float32, 0, 24)), tensor.WithShape(4, 6))
	}
	part := func(t *testing.T, d *tensor.Dense, s ...tensor.Slice) *tensor.Dense {
		v, err := d.Slice(s...)
		require.NoError(t, err)
		return v.(*tensor.Dense)
	}
	for name, newEngine := range engines {
		for _, c := range []struct {
			name string
			in   func(t *testing.T, d *tensor.Dense) *tensor.Dense
			want []float32
		}{
			{"whole", func(t *testing.T, d *tensor.Dense) *tensor.Dense {
				return part(t, d, tensor.S(0, 2), tensor.S(0, 3)).Materialize().(*tensor.Dense)
			}, []float32{0, 1, 2, 6, 7, 8}},
			{"part", func(t *testing.T, d *tensor.Dense) *tensor.Dense { return part(t, d, tensor.S(1, 3), tensor.S(2, 5)) },
				[]float32{8, 9, 10, 14, 15, 16}},
			{"rows", func(t *testing.T, d *tensor.Dense) *tensor.Dense {
				require.NoError(t, d.Reshape(8, 3))
				return part(t, d, tensor.S(2, 4))
			}, []float32{6, 7, 8, 9, 10, 11}},
			{"transposed", func(t *testing.T, d *tensor.Dense) *tensor.Dense {
				require.NoError(t, d.Reshape(3, 8))
				v := part(t, d, nil, tensor.S(0, 2))
				require.NoError(t, v.T())
				return v
			}, []float32{0, 8, 16, 1, 9, 17}},
		} {
			for _, pooled := range []bool{false, true} {
				t.Run(name+" "+c.name, func(t *testing.T) {
					e, _ := newEngine(t)
					whole := set()
					if pooled {
						up, err := e.FromHost(whole)
						require.NoError(t, err)
						whole = up
						defer func() {
							require.NoError(t, e.Allocator().FreePtr(cupool.Ptr(whole.Uintptr()), int64(whole.MemSize())))
						}()
					}
					if pooled && name == "far" && c.name == "whole" {
						t.Skip("tensor cannot materialize it")
					}
					in := c.in(t, whole)
					if pooled && c.name == "whole" {
						defer func() { require.NoError(t, e.FreeTensor(in)) }()
					}
					g := G.NewGraph()
					x := G.NewMatrix(g, tensor.Float32, G.WithShape(2, 3), G.WithName("x"), G.WithValue(in))
					flat := G.Must(G.Reshape(x, tensor.Shape{6}))
					row := G.Must(G.Slice(x, G.S(1)))
					sum := G.Must(G.Sum(x))
					product := G.Must(G.Mul(x, G.Must(G.Transpose(x))))
					vm, err := gorgoniavm.New(g, e, gorgoniavm.TraceValues())
					require.NoError(t, err)
					require.NoError(t, vm.RunAll())
					w := c.want
					assert.Equal(t, w, data(t, e, flat.Value()))
					assert.Equal(t, w[3:], data(t, e, row.Value()))
					assert.Equal(t, w[0]+w[1]+w[2]+w[3]+w[4]+w[5], sum.Value().Data())
					dot := w[0]*w[3] + w[1]*w[4] + w[2]*w[5]
					assert.Equal(t, []float32{w[0]*w[0] + w[1]*w[1] + w[2]*w[2], dot, dot, w[3]*w[3] + w[4]*w[4] + w[5]*w[5]}, data(t, e, product.Value()))
					require.NoError(t, vm.Close())
				})
			}
		}
	}
}
