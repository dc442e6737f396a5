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

// growing is a graph that computes a new weight of an old one, w + u + x, as
// Gorgonia's example of logistic regression does. w and u have the same value.
type growing struct {
	g      *G.ExprGraph
	w, u   *G.Node
	update *G.Node
}

func newGrowing(of func(values ...float64) *tensor.Dense) growing {
	g := G.NewGraph()
	vector := func(name string, v *tensor.Dense) *G.Node {
		return G.NewVector(g, tensor.Float64, G.WithShape(3), G.WithName(name), G.WithValue(v))
	}
	m := growing{g: g, w: vector("w", of(0, 0, 0)), u: vector("u", of(0, 0, 0))}
	m.update = G.Must(G.Add(G.Must(G.Add(m.w, m.u)), vector("x", of(1, 10, 100))))
	return m
}

// step runs the graph and gives the update to both inputs.
func (m growing) step(t *testing.T, e *cupool.Engine, vm G.VM, want float64) {
	t.Helper()
	require.NoError(t, vm.RunAll())
	d, err := e.ToHost(m.update.Value().(*tensor.Dense))
	require.NoError(t, err)
	require.Equal(t, []float64{want, 10 * want, 100 * want}, d.Data())
	require.NoError(t, G.Let(m.w, m.update.Value()))
	require.NoError(t, G.Let(m.u, m.update.Value()))
}

// An input may be given the value of another node between runs. It has that
// until it is given another, and Close leaves it a copy in Go's heap.
func TestInputsOfValues(t *testing.T) {
	heap := func(values ...float64) *tensor.Dense { return tensor.New(tensor.WithBacking(values)) }
	for name, newEngine := range engines {
		t.Run(name, func(t *testing.T) {
			e, a := newEngine(t)
			m := newGrowing(heap)
			vm, err := gorgoniavm.New(m.g, e)
			require.NoError(t, err)
			m.step(t, e, vm, 1)
			m.step(t, e, vm, 3)
			live := a.live
			m.step(t, e, vm, 7)
			require.Equal(t, live, a.live, "the value before is given back")
			old := m.u.Value()
			require.NoError(t, G.Let(m.u, heap(1, 10, 100)))
			m.step(t, e, vm, 9)
			m.step(t, e, vm, 19)
			require.Zero(t, old.MemSize(), "a freed tensor")
			require.NoError(t, vm.Close())
			for _, n := range []*G.Node{m.w, m.u, m.update} {
				require.Equal(t, []float64{19, 190, 1900}, n.Value().Data())
				require.False(t, e.Owns(n.Value().(*tensor.Dense)))
			}
		})
	}
}
