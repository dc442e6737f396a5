package gorgoniavm_test

import (
	"errors"
	"fmt"
	"math"
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/gorgoniavm"
)

// Inputs may be anything that has their shape, another one in every run: in Go's heap
// or in the pool, whole, parts of other tensors, or transposed.
func TestInputs(t *testing.T) {
	part := func(t *testing.T, d *tensor.Dense, s ...tensor.Slice) *tensor.Dense {
		v, err := d.Slice(s...)
		require.NoError(t, err)
		return v.(*tensor.Dense)
	}
	kinds := []struct {
		name string
		rows int // of the 24 numbers that it is part of
		in   func(t *testing.T, d *tensor.Dense) *tensor.Dense
		want []float32
	}{
		{"whole", 0, func(_ *testing.T, d *tensor.Dense) *tensor.Dense { return d }, []float32{0, 1, 2, 3, 4, 5}},
		{"columns", 4, func(t *testing.T, d *tensor.Dense) *tensor.Dense { return part(t, d, tensor.S(1, 3), tensor.S(2, 5)) },
			[]float32{8, 9, 10, 14, 15, 16}},
		{"rows", 8, func(t *testing.T, d *tensor.Dense) *tensor.Dense { return part(t, d, tensor.S(2, 4)) }, []float32{6, 7, 8, 9, 10, 11}},
		{"transposed", 3, func(t *testing.T, d *tensor.Dense) *tensor.Dense {
			v := part(t, d, nil, tensor.S(0, 2))
			require.NoError(t, v.T())
			return v
		}, []float32{0, 8, 16, 1, 9, 17}},
	}
	everywhere(t, func(t *testing.T, d device) {
		for first, c := range kinds {
			for _, pooled := range []bool{false, true} {
				t.Run(fmt.Sprint(c.name, ", pooled ", pooled), func(t *testing.T) {
					e, _ := d.open(t)
					g := G.NewGraph()
					x := G.NewMatrix(g, tensor.Float32, G.WithShape(2, 3), G.WithName("x"))
					flat := G.Must(G.Reshape(x, tensor.Shape{6}))
					row := G.Must(G.Slice(x, G.S(1)))
					sum := G.Must(G.Sum(x))
					product := G.Must(G.Mul(x, G.Must(G.Transpose(x))))
					vm := d.vm(t, g, e, gorgoniavm.TraceValues())
					const runs = 10
					for run := range runs { // the one kind twice, then all
						c, pooled := kinds[(first+max(0, run-1)/2)%len(kinds)], pooled != (run > 1 && run%2 == 0)
						shape := tensor.Shape{2, 3}
						if c.rows > 0 {
							shape = tensor.Shape{c.rows, 24 / c.rows}
						}
						whole := tensor.New(tensor.WithBacking(tensor.Range(tensor.Float32, 0, shape.TotalSize())), tensor.WithShape(shape...))
						if pooled {
							up, err := e.FromHost(whole)
							require.NoError(t, err)
							whole = up
							defer func() { require.NoError(t, e.FreeTensor(up)) }()
						}
						require.NoError(t, G.Let(x, c.in(t, whole)))
						require.NoError(t, vm.RunAll())
						w := c.want
						assert.Equal(t, w, data(t, e, flat.Value()))
						assert.Equal(t, w[3:], data(t, e, row.Value()))
						assert.Equal(t, w[0]+w[1]+w[2]+w[3]+w[4]+w[5], sum.Value().Data())
						dot := w[0]*w[3] + w[1]*w[4] + w[2]*w[5]
						assert.Equal(t, []float32{w[0]*w[0] + w[1]*w[1] + w[2]*w[2], dot, dot, w[3]*w[3] + w[4]*w[4] + w[5]*w[5]}, data(t, e, product.Value()))
					}
					require.Equal(t, d.records, vm.Replays().Launches > runs-3, "%+v", vm.Replays())
					require.NoError(t, vm.Close())
				})
			}
		}
	})
}

// TestInputInColumnMajorOrder: Gorgonia's operations read the memory of images in its order.
func TestInputInColumnMajorOrder(t *testing.T) {
	everywhere(t, func(t *testing.T, d device) {
		for _, pooled := range []bool{false, true} {
			e, _ := d.open(t)
			g := G.NewGraph()
			x := G.NewTensor(g, tensor.Float64, 4, G.WithShape(1, 1, 2, 3), G.WithName("x"))
			columns := G.Must(G.Im2Col(x, tensor.Shape{1, 2}, tensor.Shape{0, 0}, tensor.Shape{1, 1}, tensor.Shape{1, 1}))
			flat := G.Must(G.Reshape(x, tensor.Shape{6}))
			vm := d.vm(t, g, e)
			for range 3 {
				in := tensor.New(tensor.WithShape(1, 1, 2, 3), tensor.WithBacking([]float64{1, 4, 2, 5, 3, 6}), tensor.AsFortran(nil))
				if pooled {
					up, err := e.FromHost(in)
					require.NoError(t, err)
					defer func() { require.NoError(t, e.FreeTensor(up)) }()
					in = up
				}
				require.NoError(t, G.Let(x, in))
				require.NoError(t, vm.RunAll())
				for n, want := range map[*G.Node][]float64{columns: {1, 2, 2, 3, 4, 5, 5, 6}, flat: {1, 2, 3, 4, 5, 6}} {
					h, err := e.ToHost(n.Value().(*tensor.Dense))
					require.NoError(t, err)
					require.Equal(t, want, elementsOf(h))
				}
			}
			require.NoError(t, vm.Close())
		}
	})
}

// A tensor in the pool that is the same in every run is read in place, with the
// numbers that it has then.
func TestInputInPlace(t *testing.T) {
	everywhere(t, func(t *testing.T, d device) {
		e, _ := d.open(t)
		m := newMLP(4, 6, 5, 3)
		require.NoError(t, gorgoniavm.ToPool(e, m.inputs...))
		defer freeInputs(t, e, m)
		let := func(i int) {
			require.NoError(t, e.Copy(m.inputs[0].Value().(*tensor.Dense), values(int64(i), 4, 6)))
		}
		want := m.train(t, e, open(t, m, e, quiet()), 5, let)
		vm := d.bound(t, m, e)
		d.requireTrained(t, want, m.train(t, e, vm, 5, let))
		require.Equal(t, d.records, vm.Replays().Launches == 4)
		require.NoError(t, vm.Close())
	})
}

// An input is copied before the launch, and is not lost in memory that the
// launch works in before it reads that input.
func TestReplayInputOfLaterUse(t *testing.T) {
	e, _ := newRecordingMeter(t)
	g := G.NewGraph()
	var xs G.Nodes
	sums := func(i int, f func(*G.Node) (*G.Node, error)) *G.Node {
		xs = append(xs, G.NewMatrix(g, tensor.Float32, G.WithShape(4, 6), G.WithName(name("x", i))))
		return G.Must(G.Sum(G.Must(G.Mul(G.Must(f(xs[i])), G.NewConstant(values(int64(i), 6, 2)))), 1))
	}
	sum := G.Must(G.Sum(G.Must(G.HadamardProd(sums(0, G.Exp), sums(1, G.Tanh)))))
	run := func(opts ...gorgoniavm.Option) (all []any, stats gorgoniavm.ReplayStats) {
		vm, err := gorgoniavm.New(g, e, opts...)
		require.NoError(t, err)
		for i := range 4 {
			for k, x := range xs {
				require.NoError(t, G.Let(x, values(int64(10*i+k), 4, 6)))
			}
			require.NoError(t, vm.RunAll())
			all = append(all, sum.Value().Data())
		}
		require.NoError(t, vm.Close())
		return all, vm.Replays()
	}
	want, _ := run()
	got, stats := run(gorgoniavm.Replay())
	require.EqualValues(t, 3, stats.Launches, stats.Err)
	for i := range want {
		near(t, bits(want[i]), bits(got[i]))
	}
}

// rows returns rows of a matrix, in place.
func rows(t testing.TB, all *tensor.Dense, from, n int) *tensor.Dense {
	t.Helper()
	v, err := all.Slice(tensor.S(from, from+n))
	require.NoError(t, err)
	return v.(*tensor.Dense)
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
// until it is given another, and Close leaves it a copy in Go's heap. A recording
// that made it may be gone by then.
func TestInputsOfValues(t *testing.T) {
	everywhere(t, func(t *testing.T, d device) {
		for _, pooled := range []bool{false, true} {
			t.Run(fmt.Sprint("pooled ", pooled), func(t *testing.T) {
				e, a := d.open(t)
				var mine []*tensor.Dense
				of := func(values ...float64) *tensor.Dense {
					v := tensor.New(tensor.WithBacking(values))
					if pooled {
						up, err := e.FromHost(v)
						require.NoError(t, err)
						v, mine = up, append(mine, up)
					}
					return v
				}
				m := newGrowing(of)
				vm := d.vm(t, m.g, e)
				for range 3 { // recorded with the inputs where they are
					require.NoError(t, vm.RunAll())
				}
				var live int64
				for i, want := 0, 1.0; i < 6; i, want = i+1, 2*want+1 {
					m.step(t, e, vm, want)
					require.True(t, d.records || i < 2 || a.live == live, "the value before is given back")
					live = a.live
				}
				require.NoError(t, vm.Let(m.u, of(1, 10, 100)))
				m.step(t, e, vm, 65)
				require.NoError(t, vm.Set(m.w, m.update))
				require.Equal(t, d.records, vm.Replays().Launches > 0)
				require.NoError(t, vm.Close())
				for _, n := range []*G.Node{m.w, m.u, m.update} {
					require.Equal(t, []float64{65, 650, 6500}, n.Value().Data())
					require.False(t, e.Owns(n.Value().(*tensor.Dense)))
				}
				for _, v := range mine {
					require.NoError(t, e.FreeTensor(v))
				}
			})
		}
	})
}

// pair makes an input of a graph with the values v and ten times v.
func pair(g *G.ExprGraph, name string, v float64) *G.Node {
	return G.NewVector(g, tensor.Float64, G.WithShape(2), G.WithName(name), G.WithValue(tensor.New(tensor.WithBacking([]float64{v, 10 * v}))))
}

// A program may give the value of one input to another, and a new one to the first. Each
// stays what it is until the input has another.
func TestInputsOfInputs(t *testing.T) {
	everywhere(t, func(t *testing.T, d device) {
		for _, reversed := range []bool{false, true} {
			e, _ := d.open(t)
			g := G.NewGraph()
			last, now := pair(g, "a", 1), pair(g, "b", 1)
			if reversed {
				last, now = now, last
			}
			next := G.Must(G.Add(last, now))
			vm := d.vm(t, g, e)
			a, b := 1.0, 1.0
			for range 8 {
				require.NoError(t, vm.RunAll())
				require.Equal(t, []float64{a + b, 10 * (a + b)}, data(t, e, next.Value()))
				require.NoError(t, vm.Set(last, now))
				require.NoError(t, vm.Set(now, next))
				a, b = b, a+b
			}
			require.NoError(t, vm.Close())
			require.Equal(t, []float64{a, 10 * a}, last.Value().Data())
			require.Equal(t, []float64{b, 10 * b}, now.Value().Data())
		}
	})
}

// An input that has a value of the last run keeps its numbers when the graph runs again.
func TestRunsAgainWithAValueOfTheLast(t *testing.T) {
	everywhere(t, func(t *testing.T, d device) {
		e, _ := d.open(t)
		g := G.NewGraph()
		x, w := pair(g, "x", 1), pair(g, "w", 2)
		sum := G.Must(G.Add(x, w)) // a recording computes it where it has x
		vm := d.vm(t, g, e)
		for want := 3.0; want < 8; want++ {
			for range 3 {
				require.NoError(t, vm.RunAll())
				require.Equal(t, []float64{want, 10 * want}, data(t, e, sum.Value()))
				require.Equal(t, []float64{want - 1, 10 * (want - 1)}, data(t, e, w.Value()))
			}
			require.NoError(t, G.Let(w, sum.Value()))
		}
		require.Equal(t, d.records, vm.Replays().Launches > 0)
		require.NoError(t, vm.Close())
	})
}

// A weight that the VM moved to the device goes back when it has had another value, at
// Close at the latest.
func TestCloseWithAWeightOfARun(t *testing.T) {
	everywhere(t, func(t *testing.T, d device) {
		e, a := d.open(t)
		g := G.NewGraph()
		w := G.NewVector(g, tensor.Float64, G.WithShape(2), G.WithName("w"), G.WithValue(tensor.New(tensor.WithBacking([]float64{1, 10}))))
		twice := G.Must(G.Mul(w, G.NewConstant(2.0)))
		_, err := G.Grad(G.Must(G.Sum(G.Must(G.Square(w)))), w)
		require.NoError(t, err)
		vm := d.vm(t, g, e, gorgoniavm.BindDualValues(w), gorgoniavm.Keep(twice))
		for range 3 {
			require.NoError(t, vm.RunAll())
		}
		require.NoError(t, G.Let(w, twice.Value()))
		require.NoError(t, vm.Close())
		require.Equal(t, []float64{2, 20}, w.Value().Data())
		require.Zero(t, a.live)
	})
}

func TestLetAndSetErrors(t *testing.T) {
	e, _ := newMeter(t)
	heap := func(values ...float64) *tensor.Dense { return tensor.New(tensor.WithBacking(values)) }
	m, other := newGrowing(heap), newGrowing(heap)
	inner := G.Must(G.Square(m.update))
	G.Must(G.Sum(inner))
	vm, err := gorgoniavm.New(m.g, e)
	require.NoError(t, err)
	require.NoError(t, vm.RunAll())
	var config *cupool.ConfigError
	require.ErrorAs(t, vm.Let(other.update, 1.0), &config)
	require.ErrorAs(t, vm.Set(m.w, other.w), &config)
	require.ErrorAs(t, vm.Set(nil, m.w), &config)
	require.ErrorIs(t, vm.Set(m.w, inner), gorgoniavm.ErrNoValue)
	require.ErrorAs(t, vm.Let(m.w, (*tensor.Dense)(nil)), &config)
	require.ErrorContains(t, vm.Let(m.update, 1.0), "non input node")
	require.ErrorContains(t, vm.Let(m.w, heap(1)), "shape")
	require.ErrorIs(t, vm.Let(m.w, 1.0), gorgoniavm.ErrOperand)
	require.ErrorIs(t, vm.Let(m.w, 1), gorgoniavm.ErrOperand)
	require.NoError(t, vm.Close())
}

// evaluate runs a graph of its own on every device and returns the values of nodes.
func evaluate(t *testing.T, nodes ...*G.Node) (all []any) {
	t.Helper()
	everywhere(t, func(t *testing.T, d device) {
		e, _ := d.open(t)
		vm := d.vm(t, nodes[0].Graph(), e, gorgoniavm.TraceValues())
		require.NoError(t, vm.RunAll())
		var got []any
		for _, n := range nodes {
			got = append(got, data(t, e, n.Value()))
		}
		require.NoError(t, vm.Close())
		if all == nil {
			all = got
		}
		for i := range all {
			requireNearly(t, tensor.Float64, all[i], got[i], fmt.Sprint("node ", i))
		}
	})
	return all
}

// Operations among scalars of all kinds, and from tensors to scalars.
func TestScalars(t *testing.T) {
	g := G.NewGraph()
	v := G.NewVector(g, tensor.Float64, G.WithShape(3), G.WithName("v"), G.WithValue(tensor.New(tensor.WithBacking([]float64{1, 2, 4}))))
	x := G.NewScalar(g, tensor.Float64, G.WithName("x"), G.WithValue(2.5))
	one := G.Must(G.Reshape(x, tensor.Shape{1}))
	n := G.NewScalar(g, tensor.Int, G.WithName("n"), G.WithValue(3))
	m := G.NewMatrix(g, tensor.Float64, G.WithShape(2, 2), G.WithName("m"), G.WithValue(tensor.New(tensor.WithShape(2, 2), tensor.WithBacking([]float64{1, 2, 3, 4}))))
	ints := G.NewMatrix(g, tensor.Int, G.WithShape(2, 2), G.WithName("ints"), G.WithValue(tensor.New(tensor.WithShape(2, 2), tensor.WithBacking([]int{1, 2, 3, 4}))))
	constant := G.NewConstant(tensor.New(tensor.WithBacking([]float64{10, 20, 30})), G.WithName("constant"))
	got := evaluate(t,
		G.Must(G.Add(x, G.Must(G.Sum(v)))),
		G.Must(G.Slice(v, G.S(1))),
		G.Must(G.Reshape(one, tensor.Shape{})),
		G.Must(G.Reshape(x, tensor.Shape{1, 1})),
		G.Must(G.Mul(v, v)),
		G.Must(G.At(m, 1, 0)),
		G.Must(G.Max(v)),
		G.Must(G.Add(n, n)),
		G.Must(G.Transpose(ints)),
		G.Must(G.Gt(x, x, true)),
		G.Must(G.Lt(x, G.Must(G.Sum(v)), false)),
		G.Must(G.Add(constant, v)),
		G.Must(G.HadamardProd(v, x)),
		G.Must(G.Sigmoid(x)),
		G.Must(G.Sigmoid(v)),
		G.Must(G.DiagFlat(v)),
		G.Must(G.ConvType(v, tensor.Float64, tensor.Int)),
		G.Must(G.Transpose(m)),
		G.Must(G.Transpose(v)),
	)
	sigmoid := func(x float64) float64 { return 1 / (1 + math.Exp(-x)) }
	want := []any{9.5, 2., 2.5, []float64{2.5}, 21., 3., 4., 6, []int{1, 3, 2, 4}, 0., true, []float64{11, 22, 34}, []float64{2.5, 5, 10}, sigmoid(2.5),
		[]float64{sigmoid(1), sigmoid(2), sigmoid(4)}, []float64{1, 0, 0, 0, 2, 0, 0, 0, 4}, []int{1, 2, 4}, []float64{1, 3, 2, 4}, []float64{1, 2, 4}}
	require.Len(t, got, len(want))
	for i := range want {
		assert.Equal(t, want[i], got[i], "%d", i)
	}
}

// Gradients of scalars of float64, and one that was bound in Go's heap before.
func TestGradientsOfDoubles(t *testing.T) {
	everywhere(t, func(t *testing.T, d device) {
		e, _ := d.open(t)
		g := G.NewGraph()
		v := G.NewVector(g, tensor.Float64, G.WithShape(3), G.WithName("v"), G.WithValue(tensor.New(tensor.WithBacking([]float64{1, 2, 4}))))
		G.WithGrad(tensor.New(tensor.WithBacking([]float64{100, 100, 100})))(v)
		x := G.NewScalar(g, tensor.Float64, G.WithName("x"), G.WithValue(2.5))
		cost := G.Must(G.Sum(G.Must(G.HadamardProd(v, x))))
		_, err := G.Grad(cost, v, x)
		require.NoError(t, err)
		vm := d.vm(t, g, e, gorgoniavm.BindDualValues(v, x))
		for i := range 2 {
			require.NoError(t, vm.RunAll())
			dv, err := v.Grad()
			require.NoError(t, err)
			assert.True(t, e.Owns(dv.(tensor.Tensor)))
			up := 100 + 2.5*float64(i+1)
			assert.Equal(t, []float64{up, up, up}, data(t, e, dv))
			dx, err := x.Grad()
			require.NoError(t, err)
			assert.Equal(t, 7*float64(i+1), dx.Data())
		}
		require.NoError(t, vm.Close())
	})
}

// What the program gives a weight that has moved to a device takes its place.
func TestWeightReplaced(t *testing.T) {
	e, a := newFarMeter(t)
	c := newChain()
	_, err := G.Grad(c.sum, c.x)
	require.NoError(t, err)
	vm := c.run(t, e, gorgoniavm.BindDualValues(c.x))
	live := a.live
	require.NoError(t, G.Let(c.x, tensor.New(tensor.WithBacking([]float32{1, 1, 1, 1}))))
	require.NoError(t, vm.RunAll())
	assert.Equal(t, float32(4), c.sum.Value().Data())
	assert.Equal(t, live, a.live, "the old one is given back")
	require.NoError(t, vm.Close())
	assert.Zero(t, a.live)
}

// On an engine whose tensors have lifetimes, VM and solver compute what they
// compute without, with the garbage collector after every step and freed memory
// poisoned.
func TestVMWithLifetimes(t *testing.T) {
	everywhere(t, func(t *testing.T, d device) {
		const steps = 6
		losses := func(opts ...cupool.EngineOption) (ls []any) {
			e, a := d.open(t, opts...)
			m := newMLP(16, 20, 30, 10)
			require.NoError(t, gorgoniavm.ToPool(e, m.weights...))
			vm := d.vm(t, m.g, e, gorgoniavm.Gradients(m.weights...))
			s, err := gorgoniavm.NewSolver(e, gorgoniavm.Adam{LearnRate: 0.01}, gorgoniavm.KeepGradients())
			require.NoError(t, err)
			for range steps {
				require.NoError(t, vm.RunAll())
				ls = append(ls, bits(m.cost.Value().Data()))
				require.NoError(t, s.Step(G.NodesToValueGrads(m.weights)))
				runtime.GC()
				_, err := a.ProcessDeferred()
				require.NoError(t, err)
				poison(t, e)
			}
			require.Equal(t, d.records, vm.Replays().Launches == steps-1)
			require.NoError(t, errors.Join(vm.Close(), s.Close()))
			freeInputs(t, e, m)
			return ls
		}
		require.Equal(t, losses(), losses(cupool.WithLifetimes()))
	})
}

// What an operation of a program's own passes on lives as long as its result, where the
// garbage collector gives memory back that no tensor has.
func TestPassedOnWithLifetimes(t *testing.T) {
	everywhere(t, func(t *testing.T, d device) {
		e, a := d.open(t, cupool.WithLifetimes())
		g := G.NewGraph()
		x := G.NewVector(g, tensor.Float64, G.WithShape(2), G.WithName("x"), G.WithValue(tensor.New(tensor.WithBacking([]float64{1, 2}))))
		pass := &ownOp{name: "pass", arity: 1, do: func(args ...G.Value) (G.Value, error) { return args[0], nil }}
		collect := &ownOp{name: "collect", arity: 1, do: func(args ...G.Value) (G.Value, error) {
			for range 3 { // cleanups take a while
				runtime.GC()
				if _, err := a.ProcessDeferred(); err != nil {
					return nil, err
				}
				poison(t, e)
			}
			return args[0], nil
		}}
		y := G.Must(G.ApplyOp(collect, G.Must(G.ApplyOp(pass, G.Must(G.Square(x))))))
		z := G.Must(G.Square(y))
		vm := d.vm(t, g, e)
		for range 3 {
			require.NoError(t, vm.RunAll())
			require.Equal(t, []float64{1, 16}, data(t, e, z.Value()))
		}
		require.NoError(t, vm.Close())
	})
}

// An input that has a value of the last run has it still when memory ran out in this one.
func TestOutOfMemoryWithAValueOfTheLast(t *testing.T) {
	everywhere(t, func(t *testing.T, d device) {
		e, a := d.open(t)
		g := G.NewGraph()
		x, w := pair(g, "x", 1), pair(g, "w", 1)
		sum := G.Must(G.Add(x, w))
		vm := d.vm(t, g, e)
		a.full = true
		want := 2.0
		for failed := true; failed; want++ {
			for range 2 { // recorded, the second one
				require.NoError(t, vm.RunAll())
				require.Equal(t, []float64{want, 10 * want}, data(t, e, sum.Value()))
			}
			require.NoError(t, G.Let(w, sum.Value()))
			a.failIn = int(want) - 1
			err := vm.RunAll()
			a.failIn = 0
			require.Equal(t, []float64{want, 10 * want}, data(t, e, w.Value()))
			if failed = err != nil; failed {
				require.ErrorIs(t, err, cupool.ErrOutOfMemory)
			}
		}
		require.NoError(t, vm.Close())
	})
}

// Inputs may lie in the memory of another device, wherever the VM computes.
func TestInputsOfAnotherDevice(t *testing.T) {
	everywhere(t, func(t *testing.T, d device) {
		for _, other := range []string{"near", "far"} {
			e, _ := d.open(t)
			others, _ := devices[other].open(t)
			x, err := others.FromHost(tensor.New(tensor.WithBacking([]float32{1, 2, 3, 4})))
			require.NoError(t, err)
			c := newChain()
			require.NoError(t, G.Let(c.x, x))
			vm := d.vm(t, c.g, e)
			for range 3 {
				require.NoError(t, vm.RunAll())
				require.Equal(t, float32(100), c.sum.Value().Data())
			}
			require.NoError(t, vm.Close())
			require.NoError(t, others.FreeTensor(x))
		}
	})
}

// An input may have no elements, as the last batch of a program has that divides what it has.
func TestInputsWithoutElements(t *testing.T) {
	everywhere(t, func(t *testing.T, d device) {
		for _, pooled := range []bool{false, true} {
			e, a := d.open(t)
			none := tensor.New(tensor.Of(tensor.Float64), tensor.WithShape(0, 4))
			if pooled {
				var err error
				none, err = e.Empty(tensor.Float64, 0, 4)
				require.NoError(t, err)
			}
			g := G.NewGraph()
			x := G.NewMatrix(g, tensor.Float64, G.WithShape(0, 4), G.WithName("x"), G.WithValue(none))
			square := G.Must(G.Square(x))
			sum := G.Must(G.Sum(square))
			_, err := G.Grad(sum, x)
			require.NoError(t, err)
			vm := d.vm(t, g, e, gorgoniavm.BindDualValues(x), gorgoniavm.Keep(square))
			for range 3 {
				require.NoError(t, vm.RunAll())
				require.Equal(t, 0.0, sum.Value().Data())
				require.Equal(t, tensor.Shape{0, 4}, square.Value().Shape())
			}
			require.NoError(t, vm.Close())
			require.Zero(t, a.live)
		}
	})
}
