package gorgoniavm_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/gorgoniavm"
	"github.com/cupool/cupool/internal/testkit"
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

// cutAndJoined is a graph of slices and concatenations with many axes of one
// element: the square of a concatenation of inputs, some of them twice, and of
// slices. Gradients of some inputs are wanted.
func cutAndJoined(r *rand.Rand) (c *covering, cost *G.Node, wanted G.Nodes, err error) {
	c = &covering{g: G.NewGraph(), r: r, dt: tensor.Float64}
	shape := make([]int, 1+r.IntN(3))
	for i := range shape {
		shape[i] = 1 + r.IntN(2)*r.IntN(4)
	}
	axis := r.IntN(len(shape))
	var parts G.Nodes
	for range 2 + r.IntN(3) {
		if len(parts) > 0 && r.IntN(3) == 0 {
			parts = append(parts, parts[r.IntN(len(parts))])
			continue
		}
		shape[axis] = 1 + r.IntN(2)*r.IntN(3)
		x := c.x(shape...)
		if n := shape[axis]; n > 1 && r.IntN(3) == 0 {
			x = c.x(shape...)
			cuts := make([]tensor.Slice, len(shape))
			cuts[axis] = G.S(r.IntN(n-1), n)
			if x, err = G.Slice(x, cuts...); err != nil {
				return nil, nil, nil, err
			}
			if x.Dims() != len(shape) {
				if x, err = G.Reshape(x, append(append(tensor.Shape{}, shape[:axis]...), append(tensor.Shape{1}, shape[axis+1:]...)...)); err != nil {
					return nil, nil, nil, err
				}
			}
		}
		parts = append(parts, x)
	}
	y, err := G.Concat(axis, parts...)
	if err != nil {
		return nil, nil, nil, err
	}
	if y, err = G.Square(y); err != nil {
		return nil, nil, nil, err
	}
	if cost, err = G.Mean(y); err != nil {
		return nil, nil, nil, err
	}
	for _, x := range c.inputs {
		if r.IntN(2) == 0 {
			wanted = append(wanted, x)
		}
	}
	if len(wanted) == 0 {
		wanted = c.inputs[:1]
	}
	_, err = G.Grad(cost, wanted...)
	return c, cost, wanted, err
}

// Axes of one element, which Gorgonia and tensor drop and add in many places, are
// as they are on the tape machine.
func TestCutAndJoined(t *testing.T) {
	seed := testkit.Seed(t)
	everywhere(t, func(t *testing.T, d device) {
		e, a := d.open(t)
		compared := 0
		for i := range testkit.Choose[uint64](400, 40) {
			results := func(run func(g *G.ExprGraph, wanted G.Nodes) error, e *cupool.Engine, close func() error) (all []any, err error) {
				c, cost, wanted, err := cutAndJoined(rand.New(rand.NewPCG(seed, i)))
				if err != nil {
					return nil, err
				}
				if err := run(c.g, wanted); err != nil {
					return nil, err
				}
				all = append(all, data(t, e, cost.Value()))
				for _, x := range wanted {
					g, err := x.Grad()
					require.NoError(t, err)
					all = append(all, data(t, e, g))
				}
				return all, close()
			}
			var tape interface {
				G.VM
				Close() error
			}
			want, err := results(func(g *G.ExprGraph, wanted G.Nodes) error {
				tape = G.NewTapeMachine(g, G.BindDualValues(wanted...))
				return cupool.Try(tape.RunAll)
			}, nil, func() error { return tape.Close() })
			if err != nil {
				continue // Gorgonia does not build it, or does not compute it
			}
			compared++
			var vm *gorgoniavm.VM
			got, err := results(func(g *G.ExprGraph, wanted G.Nodes) error {
				if i%2 == 0 {
					vm = d.vm(t, g, e, gorgoniavm.BindDualValues(wanted...))
					return vm.RunAll()
				}
				vm = d.vm(t, g, e, gorgoniavm.Gradients(wanted...))
				return errors.Join(vm.RunAll(), vm.RunAll(), vm.RunAll())
			}, e, func() error { return vm.Close() })
			require.NoError(t, err, "graph %d", i)
			for k := range want {
				requireNearly(t, tensor.Float64, want[k], got[k], fmt.Sprint("graph ", i, ", result ", k))
			}
		}
		require.Positive(t, compared)
		require.Zero(t, a.live)
	})
}

// Where a slice with steps leaves a rest, Gorgonia's nodes have other shapes than
// the values.
func TestSliceLeavesARest(t *testing.T) {
	r := testkit.Rand(t)
	everywhere(t, func(t *testing.T, d device) {
		e, a := d.open(t)
		for _, f := range []func(x *G.Node) (*G.Node, error){
			func(x *G.Node) (*G.Node, error) { return G.Sum(x) },
			func(x *G.Node) (*G.Node, error) { return G.Mean(G.Must(G.Square(x))) },
			func(x *G.Node) (*G.Node, error) { return G.Sum(G.Must(G.Square(G.Must(G.Sum(x, 0))))) },
			func(x *G.Node) (*G.Node, error) { return G.Sum(G.Must(G.Exp(G.Must(G.Transpose(x, 1, 0))))) },
			func(x *G.Node) (*G.Node, error) { return G.Sum(G.Must(G.Add(x, G.Must(G.SoftMax(x))))) },
		} {
			c := &covering{g: G.NewGraph(), r: r, dt: tensor.Float64}
			y := G.Must(f(G.Must(G.Slice(c.x(3, 8), nil, G.S(1, 8, 3)))))
			tape := G.NewTapeMachine(c.g)
			require.NoError(t, tape.RunAll())
			want := y.Value().Data()
			require.NoError(t, tape.Close())
			vm := d.vm(t, c.g, e)
			require.NoError(t, vm.RunAll())
			require.InDelta(t, want, y.Value().Data(), 1e-12)
			require.NoError(t, vm.Close())
		}
		require.Zero(t, a.live)
	})
}

// The gradient by what a slice of one element is taken from is where the slice is.
func TestGradientOfOneElement(t *testing.T) {
	everywhere(t, func(t *testing.T, d device) {
		e, _ := d.open(t)
		for name, slice := range map[string][]tensor.Slice{"of a row": {nil, G.S(1)}, "of an axis": {G.S(0), G.S(1)}, "of rows": {G.S(0, 1), G.S(1, 2)}} {
			g := G.NewGraph()
			x := G.NewMatrix(g, tensor.Float64, G.WithShape(1, 3), G.WithName("x"), G.WithValue(tensor.New(tensor.WithShape(1, 3), tensor.WithBacking([]float64{2, 3, 5}))))
			_, err := G.Grad(G.Must(G.Sum(G.Must(G.Square(G.Must(G.Slice(x, slice...)))))), x)
			require.NoError(t, err)
			vm := d.vm(t, g, e, gorgoniavm.Gradients(x))
			require.NoError(t, vm.RunAll(), name)
			require.Equal(t, []float64{0, 6, 0}, data(t, e, gradientOf(t, x)), name)
			require.NoError(t, vm.Close())
		}
	})
}

// Selecting from a tensor of one element, whose result is computed with, leaves no memory.
func TestByIndicesOfOneElement(t *testing.T) {
	everywhere(t, func(t *testing.T, d device) {
		e, m := d.open(t)
		g := G.NewGraph()
		x := G.NewMatrix(g, tensor.Float64, G.WithShape(1, 1), G.WithName("x"), G.WithValue(tensor.New(tensor.WithShape(1, 1), tensor.WithBacking([]float64{3}))))
		at := G.NewVector(g, tensor.Int, G.WithShape(2), G.WithName("at"), G.WithValue(tensor.New(tensor.WithBacking([]int{0, 0}))))
		y := G.Must(G.ByIndices(G.Must(G.Neg(x)), at, 0))
		sum := G.Must(G.Add(y, y))
		vm := d.vm(t, g, e, gorgoniavm.Keep(sum))
		for range 2 {
			require.NoError(t, vm.RunAll())
			require.Equal(t, []float64{-6, -6}, data(t, e, sum.Value()))
		}
		require.NoError(t, vm.Close())
		require.Zero(t, m.live)
	})
}

func gradientOf(t *testing.T, n *G.Node) G.Value {
	t.Helper()
	v, err := n.Grad()
	require.NoError(t, err)
	return v
}
