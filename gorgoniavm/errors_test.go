package gorgoniavm_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/gorgoniavm"
)

func TestNewErrors(t *testing.T) {
	e, _ := newMeter(t)
	c, other := newChain(), newChain()
	for name, f := range map[string]func() (*gorgoniavm.VM, error){
		"no graph":        func() (*gorgoniavm.VM, error) { return gorgoniavm.New(nil, e) },
		"no engine":       func() (*gorgoniavm.VM, error) { return gorgoniavm.New(c.g, nil) },
		"the zero engine": func() (*gorgoniavm.VM, error) { return gorgoniavm.New(c.g, new(cupool.Engine)) },
		"a foreign node":  func() (*gorgoniavm.VM, error) { return gorgoniavm.New(c.g, e, gorgoniavm.Keep(other.x)) },
		"a nil node":      func() (*gorgoniavm.VM, error) { return gorgoniavm.New(c.g, e, gorgoniavm.Watch(nil)) },
		"a foreign bound": func() (*gorgoniavm.VM, error) { return gorgoniavm.New(c.g, e, gorgoniavm.BindDualValues(other.x)) },
	} {
		t.Run(name, func(t *testing.T) {
			_, err := f()
			require.ErrorIs(t, err, cupool.ErrInvalidConfig)
		})
	}
}

// Errors number nodes that have no name.
func TestUnnamedNodes(t *testing.T) {
	e, _ := newMeter(t)
	node := G.NewScalar(G.NewGraph(), tensor.Float64)
	G.Must(G.Neg(node))
	vm, err := gorgoniavm.New(node.Graph(), e)
	require.NoError(t, err)
	c := newChain()
	_, foreign := gorgoniavm.New(c.g, e, gorgoniavm.Keep(node))
	for _, err := range []error{vm.RunAll(), foreign, c.run(t, e).Let(node, 1.0)} {
		require.ErrorContains(t, err, "unnamed (node 0)")
		require.NotContains(t, err.Error(), "%!")
	}
	s, err := gorgoniavm.NewSolver(e, gorgoniavm.SGD{})
	require.NoError(t, err)
	for _, weight := range []*G.Node{nil, node} {
		require.ErrorContains(t, s.Step([]G.ValueGrad{weight}), "solving for weight 0: no ")
	}
	require.NoError(t, s.Close())
	require.NoError(t, vm.Close())
}

// own adds an operation of the test's to the chain, between cube and sum.
func (c *chain) own(op *ownOp) { G.Must(G.ApplyOp(op, c.cube, c.x)) }

func TestRunErrors(t *testing.T) {
	for _, c := range []struct {
		name string
		set  func(t *testing.T, e *cupool.Engine, c *chain) (mend func())
		is   error
		node string
	}{
		{"no value", func(t *testing.T, _ *cupool.Engine, c *chain) func() {
			v := G.NewVector(c.g, tensor.Float32, G.WithShape(4), G.WithName("v"))
			G.Must(G.Add(v, c.square))
			return func() { require.NoError(t, G.Let(v, tensor.New(tensor.WithBacking([]float32{1, 2, 3, 4})))) }
		}, gorgoniavm.ErrNoValue, "v (node"},
		{"a scalar of another type", func(t *testing.T, _ *cupool.Engine, c *chain) func() {
			s := G.NewScalar(c.g, tensor.Float32, G.WithName("s"))
			G.Must(G.Neg(s))
			require.NoError(t, G.Let(s, 2.0))
			return func() { require.NoError(t, G.Let(s, float32(2))) }
		}, gorgoniavm.ErrOperand, "s (node"},
		{"a number for a vector", func(t *testing.T, _ *cupool.Engine, c *chain) func() {
			host := c.x.Value()
			require.NoError(t, G.Let(c.x, float32(2)))
			return func() { require.NoError(t, G.Let(c.x, host)) }
		}, gorgoniavm.ErrOperand, "x (node"},
		{"a freed value", func(t *testing.T, e *cupool.Engine, c *chain) func() {
			d, err := e.FromHost(c.x.Value().(tensor.Tensor))
			require.NoError(t, err)
			host := c.x.Value()
			require.NoError(t, G.Let(c.x, d))
			require.NoError(t, e.FreeTensor(d))
			return func() { require.NoError(t, G.Let(c.x, host)) }
		}, cupool.ErrUseAfterFree, "x (node"},
		{"an operation that fails", func(_ *testing.T, _ *cupool.Engine, c *chain) func() {
			op := &ownOp{name: "fails", arity: 2, do: func(...G.Value) (G.Value, error) { return nil, errOp }}
			c.own(op)
			return func() { op.do = func(args ...G.Value) (G.Value, error) { return args[0], nil } }
		}, errOp, "fails"},
		{"an operation that fails with a destination", func(_ *testing.T, _ *cupool.Engine, c *chain) func() {
			op := &ownOp{name: "fails", arity: 2, into: func(G.Value, ...G.Value) (G.Value, error) { return nil, errOp }}
			c.own(op)
			return func() { op.into = func(dst G.Value, _ ...G.Value) (G.Value, error) { return dst, nil } }
		}, errOp, "fails"},
		{"an operation without a result", func(_ *testing.T, _ *cupool.Engine, c *chain) func() {
			op := &ownOp{name: "nothing", arity: 2, do: func(...G.Value) (G.Value, error) { return nil, nil }}
			c.own(op)
			return func() { op.do = func(args ...G.Value) (G.Value, error) { return G.CloneValue(args[1]) } }
		}, gorgoniavm.ErrNoValue, "nothing"},
		{"a result of another shape", func(_ *testing.T, _ *cupool.Engine, c *chain) func() {
			op := &ownOp{name: "long", arity: 2, do: func(...G.Value) (G.Value, error) {
				return tensor.New(tensor.Of(tensor.Float32), tensor.WithShape(5)), nil
			}}
			c.own(op)
			return func() { op.do = func(args ...G.Value) (G.Value, error) { return args[1], nil } }
		}, gorgoniavm.ErrOperand, "long"},
	} {
		t.Run(c.name, func(t *testing.T) {
			e, a := newMeter(t)
			ch := newChain()
			mend := c.set(t, e, ch)
			vm, err := gorgoniavm.New(ch.g, e)
			require.NoError(t, err)
			for range 2 {
				err = vm.RunAll()
				require.ErrorIs(t, err, c.is)
				var op *gorgoniavm.OpError
				require.ErrorAs(t, err, &op)
				assert.Contains(t, op.Error(), c.node)
				assert.Zero(t, a.live, "nothing stays behind")
			}
			mend()
			require.NoError(t, vm.RunAll(), "the next run works")
			assert.Equal(t, float32(100), ch.sum.Value().Data())
			require.NoError(t, vm.Close())
		})
	}
}

// A panic that is not the engine's goes on, and leaves nothing behind either.
func TestPanic(t *testing.T) {
	e, a := newMeter(t)
	c := newChain()
	op := &ownOp{name: "panics", arity: 2, do: func(...G.Value) (G.Value, error) { panic(errOp) }}
	c.own(op)
	vm, err := gorgoniavm.New(c.g, e)
	require.NoError(t, err)
	require.PanicsWithValue(t, errOp, func() { _ = vm.RunAll() })
	assert.Zero(t, a.live)
	op.do = func(args ...G.Value) (G.Value, error) { return args[0], nil }
	require.NoError(t, vm.RunAll())
	require.NoError(t, vm.Close())
}

func TestClosed(t *testing.T) {
	e, _ := newMeter(t)
	c := newChain()
	vm := c.run(t, e)
	require.NoError(t, vm.Close())
	require.NoError(t, vm.Close(), "again")
	require.ErrorIs(t, vm.RunAll(), cupool.ErrClosed)
}

// What the pool's end makes of a close is reported.
func TestCloseErrors(t *testing.T) {
	a, err := cupool.New(cupool.Config{})
	require.NoError(t, err)
	e, err := cupool.NewEngine(a)
	require.NoError(t, err)
	c := newChain()
	vm, err := gorgoniavm.New(c.g, e, gorgoniavm.Keep(c.square))
	require.NoError(t, err)
	require.NoError(t, vm.RunAll())
	require.Error(t, a.Close(), "a block is live")
	err = vm.Close()
	require.Error(t, err)
	assert.True(t, errors.Is(err, cupool.ErrClosed) || errors.Is(err, cupool.ErrUseAfterFree), "%v", err)
}
