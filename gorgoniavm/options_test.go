package gorgoniavm_test

import (
	"bytes"
	"errors"
	"log/slog"
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/gorgoniavm"
)

// chain is x → x² → 3·x² → sum, and what a run of it comes to.
type chain struct {
	g                    *G.ExprGraph
	x, square, cube, sum *G.Node
}

func newChain() *chain {
	g := G.NewGraph()
	x := G.NewVector(g, tensor.Float32, G.WithShape(4), G.WithName("x"), G.WithValue(tensor.New(tensor.WithBacking([]float32{1, 2, 3, 4}))))
	c := &chain{g: g, x: x}
	c.square = G.Must(G.Square(x))
	c.cube = G.Must(G.HadamardProd(c.square, x))
	c.sum = G.Must(G.Sum(c.cube))
	return c
}

// A nil option changes nothing.
func TestNilOptions(t *testing.T) {
	eng, _ := newMeter(t)
	newChain().run(t, eng, nil)
	s, err := gorgoniavm.NewSolver(eng, gorgoniavm.SGD{}, nil)
	require.NoError(t, err)
	require.NoError(t, s.Close())
}

// run returns a VM of the chain that has run once.
func (c *chain) run(t *testing.T, e *cupool.Engine, opts ...gorgoniavm.Option) *gorgoniavm.VM {
	t.Helper()
	vm, err := gorgoniavm.New(c.g, e, opts...)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, vm.Close()) })
	require.NoError(t, vm.RunAll())
	return vm
}

func TestKept(t *testing.T) {
	everywhere(t, func(t *testing.T, d device) {
		for _, c := range []struct {
			name         string
			opt          func(c *chain) []gorgoniavm.Option
			square, cube bool
		}{
			{"nothing", func(*chain) []gorgoniavm.Option { return nil }, false, false},
			{"one", func(c *chain) []gorgoniavm.Option { return []gorgoniavm.Option{gorgoniavm.Keep(c.square)} }, true, false},
			{"all", func(c *chain) []gorgoniavm.Option { return []gorgoniavm.Option{gorgoniavm.TraceValues()} }, true, true},
		} {
			t.Run(c.name, func(t *testing.T) {
				e, a := d.open(t)
				ch := newChain()
				vm := ch.run(t, e, c.opt(ch)...)
				assert.Equal(t, float32(100), ch.sum.Value().Data(), "scalars are always kept")
				assert.Equal(t, c.square, ch.square.Value() != nil)
				assert.Equal(t, c.cube, ch.cube.Value() != nil)
				if !c.square {
					assert.Zero(t, a.live)
					return
				}
				kept := ch.square.Value()
				assert.True(t, e.Owns(kept.(tensor.Tensor)))
				assert.Equal(t, []float32{1, 4, 9, 16}, data(t, e, kept))
				require.NoError(t, vm.RunAll())
				assert.Zero(t, kept.MemSize(), "the next run takes it back")
				last := ch.square.Value()
				require.NoError(t, vm.Close())
				assert.Zero(t, last.MemSize())
				assert.Equal(t, []float32{1, 4, 9, 16}, ch.square.Value().Data(), "the node has a copy")
				assert.Zero(t, a.live)
			})
		}
	})
}

// Roots and gradients that are not bound are kept without being asked for.
func TestKeptByItself(t *testing.T) {
	e, _ := newMeter(t)
	c := newChain()
	root := G.Must(G.Neg(c.cube))
	_, err := G.Grad(c.sum, c.x)
	require.NoError(t, err)
	c.run(t, e)
	assert.Equal(t, []float32{-1, -8, -27, -64}, data(t, e, root.Value()))
	g, err := c.x.Grad()
	require.NoError(t, err)
	assert.Equal(t, []float32{3, 12, 27, 48}, data(t, e, g))
}

// A program may take values from their nodes: they are given back all the
// same, and what gorgonia does with the tensor then is left alone.
func TestUnboundMeanwhile(t *testing.T) {
	e, a := newMeter(t)
	c := newChain()
	vm := c.run(t, e, gorgoniavm.Keep(c.square))
	c.g.UnbindAllNonInputs()
	require.Nil(t, c.square.Value())
	other := tensor.New(tensor.Of(tensor.Float32), tensor.WithShape(4))
	require.NoError(t, vm.RunAll())
	require.NoError(t, vm.Close())
	assert.Equal(t, []float32{0, 0, 0, 0}, other.Data())
	assert.Zero(t, a.live)
}

func TestBindDualValues(t *testing.T) {
	grad := func(t *testing.T, e *cupool.Engine, n *G.Node) any {
		g, err := n.Grad()
		require.NoError(t, err)
		return data(t, e, g)
	}
	everywhere(t, func(t *testing.T, d device) {
		e, a := d.open(t)
		c := newChain()
		_, err := G.Grad(c.sum, c.x)
		require.NoError(t, err)
		host := c.x.Value()
		vm := c.run(t, e, append(d.options, gorgoniavm.BindDualValues())...)
		assert.Equal(t, []float32{3, 12, 27, 48}, grad(t, e, c.x))
		require.NoError(t, vm.RunAll())
		assert.Equal(t, []float32{6, 24, 54, 96}, grad(t, e, c.x), "gradients add up")
		assert.Equal(t, !d.exact, c.x.Value() != host, "weights move to a device")
		require.NoError(t, vm.Close())
		assert.Equal(t, []float32{6, 24, 54, 96}, grad(t, e, c.x), "Close leaves a copy")

		again := d.vm(t, c.g, e, gorgoniavm.BindDualValues(c.x))
		require.NoError(t, again.RunAll())
		assert.Equal(t, []float32{9, 36, 81, 144}, grad(t, e, c.x), "a later VM goes on")
		require.NoError(t, again.Close())
		assert.Equal(t, []float32{1, 2, 3, 4}, c.x.Value().Data(), "Close brings weights back")
		assert.Zero(t, a.live)
	})
}

// A gradient of an inner node is bound when it is asked for.
func TestBindInnerNode(t *testing.T) {
	e, _ := newMeter(t)
	c := newChain()
	_, err := G.Grad(c.sum, c.x)
	require.NoError(t, err)
	c.run(t, e, gorgoniavm.BindDualValues(c.x, c.cube))
	g, err := c.cube.Grad()
	require.NoError(t, err)
	assert.Equal(t, []float32{1, 1, 1, 1}, data(t, e, g))
	assert.Equal(t, []float32{1, 8, 27, 64}, data(t, e, c.cube.Value()))
}

func TestWatch(t *testing.T) {
	var out bytes.Buffer
	log := slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelInfo}))
	e, _ := newMeter(t)
	c := newChain()
	c.run(t, e, gorgoniavm.WithLogger(log), gorgoniavm.Watch(c.square))
	assert.Contains(t, out.String(), "9   16]")
	assert.NotContains(t, out.String(), "Σ", "only what is watched")

	out.Reset()
	c.run(t, e, gorgoniavm.WithLogger(log), gorgoniavm.Watch())
	assert.Contains(t, out.String(), "27   64]")
	assert.Contains(t, out.String(), "sumOp")

	out.Reset()
	c.run(t, e, gorgoniavm.WithLogger(log))
	assert.Empty(t, out.String())
	log = slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug}))
	c.run(t, e, gorgoniavm.WithLogger(log))
	assert.Contains(t, out.String(), "gorgonia.elemUnaryOp")
	assert.NotContains(t, out.String(), "value=")
}

func TestWatchNumbers(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(-1))
	for _, c := range []struct {
		name string
		x    float32
		opt  gorgoniavm.Option
		bad  bool
	}{
		{"NaN", nan, gorgoniavm.WatchNaN(), true},
		{"NaN is no infinity", nan, gorgoniavm.WatchInf(), false},
		{"infinity", inf, gorgoniavm.WatchInf(), true},
		{"infinity is no NaN", inf, gorgoniavm.WatchNaN(), false},
		{"number", 1, gorgoniavm.WatchNaN(), false},
	} {
		t.Run(c.name, func(t *testing.T) {
			e, a := newMeter(t)
			ch := newChain()
			require.NoError(t, G.Let(ch.x, tensor.New(tensor.WithBacking([]float32{1, c.x, 3, 4}))))
			vm, err := gorgoniavm.New(ch.g, e, c.opt)
			require.NoError(t, err)
			err = vm.RunAll()
			if !c.bad {
				require.NoError(t, err)
			} else {
				require.ErrorIs(t, err, gorgoniavm.ErrNotANumber)
				var op *gorgoniavm.OpError
				require.ErrorAs(t, err, &op)
				assert.Contains(t, op.Node, "x", "it is in the input already")
				assert.Zero(t, a.live)
			}
			require.NoError(t, vm.Close())
		})
	}
}

// Gradients that are not bound are the same, of one run, and move weights as
// those do that are.
func TestGradients(t *testing.T) {
	bound, free := newMLP(16, 20, 30, 10), newMLP(16, 20, 30, 10)
	eng, _ := newMeter(t)
	vm, err := gorgoniavm.New(bound.g, eng, gorgoniavm.BindDualValues(bound.weights...))
	require.NoError(t, err)
	other, err := gorgoniavm.New(free.g, eng, gorgoniavm.Gradients(free.weights...))
	require.NoError(t, err)
	zeroing, err := gorgoniavm.NewSolver(eng, gorgoniavm.Adam{LearnRate: 0.01})
	require.NoError(t, err)
	keeping, err := gorgoniavm.NewSolver(eng, gorgoniavm.Adam{LearnRate: 0.01}, gorgoniavm.KeepGradients())
	require.NoError(t, err)
	for range 5 {
		require.NoError(t, vm.RunAll())
		require.NoError(t, other.RunAll())
		require.Equal(t, bits(bound.cost.Value().Data()), bits(free.cost.Value().Data()))
		require.NoError(t, zeroing.Step(G.NodesToValueGrads(bound.weights)))
		require.NoError(t, keeping.Step(G.NodesToValueGrads(free.weights)))
	}
	require.NoError(t, errors.Join(vm.Close(), other.Close(), zeroing.Close(), keeping.Close()))
	_, err = gorgoniavm.New(free.g, eng, gorgoniavm.Gradients(bound.weights...))
	require.ErrorIs(t, err, cupool.ErrInvalidConfig)
}
