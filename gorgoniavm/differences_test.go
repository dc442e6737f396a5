package gorgoniavm_test

import (
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/cupool/cupool/gorgoniavm"
)

// TestDifferences holds rows of the tables in docs/gorgonia.md: what the tape machine, a VM on
// the host and one on a GPU compute.
func TestDifferences(t *testing.T) {
	nan := math.NaN()
	input := func(g *G.ExprGraph, name string, shape []int, values ...float64) *G.Node {
		return G.NewTensor(g, tensor.Float64, len(shape), G.WithShape(shape...), G.WithName(name), G.WithValue(tensor.New(tensor.WithShape(shape...), tensor.WithBacking(values))))
	}
	ones := []float64{1, 1, 1, 1, 1, 1}
	rows := map[string]struct {
		build           func(g *G.ExprGraph) *G.Node
		tape, host, gpu []float64 // nil: whatever
	}{
		"AveragePool2D": {func(g *G.ExprGraph) *G.Node {
			return G.Must(G.AveragePool2D(input(g, "x", []int{1, 1, 2, 3}, ones...), tensor.Shape{2, 2}, []int{0, 0}, []int{1, 1}))
		}, []float64{4. / 3, 4. / 3}, []float64{4. / 3, 4. / 3}, []float64{4. / 3, 4. / 3}},
		"AveragePool1D": {func(g *G.ExprGraph) *G.Node {
			return G.Must(G.AveragePool1D(input(g, "x", []int{1, 1, 1, 4}, 1, 2, 3, 4), 2, 0, 1))
		}, []float64{2, 3, 4}, []float64{2, 3, 4}, []float64{2, 3, 4}},
		"the gradient of OuterProd": {func(g *G.ExprGraph) *G.Node {
			v, w := input(g, "v", []int{2}, 1, 2), input(g, "w", []int{2}, 3, 5)
			grads, err := G.Grad(G.Must(G.Sum(G.Must(G.OuterProd(v, w)))), v)
			require.NoError(t, err)
			return grads[0]
		}, []float64{3, 3}, []float64{3, 3}, []float64{3, 3}}, // 8, 8
		"the gradient of InverseSqrt": {func(g *G.ExprGraph) *G.Node {
			x := input(g, "x", []int{2}, 4, 0.25)
			grads, err := G.Grad(G.Must(G.Sum(G.Must(G.InverseSqrt(x)))), x)
			require.NoError(t, err)
			return grads[0]
		}, []float64{-4, -1. / 16}, []float64{-4, -1. / 16}, []float64{-4, -1. / 16}}, // -1/16, -4
		"the gradient of Log2": {func(g *G.ExprGraph) *G.Node {
			x := input(g, "x", []int{2}, 4, 0.25)
			grads, err := G.Grad(G.Must(G.Sum(G.Must(G.Log2(x)))), x)
			require.NoError(t, err)
			return grads[0]
		}, []float64{math.Ln2 / 4, math.Ln2 * 4}, []float64{math.Ln2 / 4, math.Ln2 * 4}, []float64{math.Ln2 / 4, math.Ln2 * 4}}, // 1 / (x ln 2)
		"the gradient by a number for each channel": {func(g *G.ExprGraph) *G.Node {
			s := input(g, "s", []int{1, 3, 1, 1}, 1, 1, 1)
			grads, err := G.Grad(G.Must(G.Sum(G.Must(G.Auto(G.BroadcastHadamardProd, s, input(g, "x", []int{1, 3, 3, 1}, 1, 2, 3, 4, 5, 6, 7, 8, 9))))), s)
			require.NoError(t, err)
			return grads[0]
		}, []float64{6, 12, 18}, []float64{6, 15, 24}, []float64{6, 15, 24}},
		"GroupNorm of 264 elements": {func(g *G.ExprGraph) *G.Node { // the mean of its squares is 1 but for the epsilon
			xs := make([]float64, 264)
			for i := range xs {
				xs[i] = float64(i % 7)
			}
			y := G.Must(G.GroupNorm(input(g, "x", []int{1, 1, 12, 22}, xs...), input(g, "s", []int{1, 1, 1, 1}, 1), input(g, "b", []int{1, 1, 1, 1}, 0), 1, 1, 1e-14))
			return G.Must(G.Mean(G.Must(G.Square(y))))
		}, []float64{449.96481564}, []float64{449.96481564}, []float64{1}},
		"the gradient of BatchNorm in EvalMode": {func(g *G.ExprGraph) *G.Node {
			x := input(g, "x", []int{1, 1, 1, 2}, 1, 2)
			y, _, _, op, err := G.BatchNorm(x, input(g, "s", []int{1, 1, 1, 1}, 1), input(g, "b", []int{1, 1, 1, 1}, 0), 0.9, 1)
			require.NoError(t, err)
			require.NoError(t, op.SetStats(floatsOf(tensor.Float64, []float64{0}, 1), floatsOf(tensor.Float64, []float64{3}, 1)))
			grads, err := G.Grad(G.Must(G.Sum(y)), x)
			require.NoError(t, err)
			return grads[0]
		}, []float64{1, 1}, []float64{1, 1}, []float64{0.5, 0.5}},
		"MaxPool2D of nothing": {func(g *G.ExprGraph) *G.Node {
			return G.Must(G.MaxPool2D(input(g, "x", []int{1, 1, 1, 2}, math.Inf(-1), nan), tensor.Shape{1, 2}, []int{0, 0}, []int{1, 1}))
		}, []float64{-math.MaxFloat64}, []float64{-math.MaxFloat64}, []float64{-math.MaxFloat64}},
		"a value and its reshape": {func(g *G.ExprGraph) *G.Node {
			x := input(g, "x", []int{2, 2}, 1, 2, 3, 4)
			y := G.Must(G.Square(x))
			same := G.Must(G.Neg(G.Must(G.Neg(G.Must(G.Reshape(y, tensor.Shape{4}))))))
			G.Must(G.Add(y, x))
			return same
		}, []float64{2, 6, 12, 20}, []float64{1, 4, 9, 16}, []float64{1, 4, 9, 16}},
		"Max of NaN": {func(g *G.ExprGraph) *G.Node { return G.Must(G.Max(input(g, "x", []int{2, 2}, 1, nan, 0, 2), 1)) },
			nil, nil, []float64{nan, 2}},
		"products with infinities": {func(g *G.ExprGraph) *G.Node {
			return G.Must(G.Mul(input(g, "x", []int{1, 2}, 0, 1), input(g, "y", []int{2, 1}, math.Inf(1), 2)))
		}, nil, nil, []float64{nan}},
		"Upsample2D of a zero": {func(g *G.ExprGraph) *G.Node {
			return G.Must(G.Inverse(G.Must(G.Upsample2D(input(g, "x", []int{1, 1, 1, 1}, math.Copysign(0, -1)), 2))))
		}, nil, slices.Repeat([]float64{math.Inf(-1)}, 4), slices.Repeat([]float64{math.Inf(1)}, 4)},
		"Sigmoid": {func(g *G.ExprGraph) *G.Node { return G.Must(G.Sigmoid(input(g, "x", []int{2}, 20, 0))) },
			[]float64{1, 0.5}, []float64{1, 0.5}, []float64{1 / (1 + math.Exp(-20)), 0.5}},
		"Softplus": {func(g *G.ExprGraph) *G.Node { return G.Must(G.Softplus(input(g, "x", []int{2}, 20, 0))) },
			[]float64{20, math.Ln2}, []float64{20, math.Ln2}, []float64{20 + math.Log1p(math.Exp(-20)), math.Ln2}},
	}
	evaluated := func(name string) bool { return strings.HasSuffix(name, "EvalMode") }
	read := func(n *G.Node) *G.Value {
		v := new(G.Value)
		G.Read(n, v)
		return v
	}
	check := func(want, got []float64, what string) {
		require.True(t, want == nil || len(got) == len(want), "%s: %v, want %v", what, got, want)
		for i := range want {
			require.True(t, same(want[i], got[i]) || math.Abs(want[i]-got[i]) < 1e-7*(1+math.Abs(want[i])), "%s: %v, want %v", what, got, want)
		}
	}
	for name, row := range rows {
		g := G.NewGraph()
		v := read(row.build(g))
		var opts []G.VMOpt
		if evaluated(name) {
			opts = append(opts, G.EvalMode())
		}
		tape := G.NewTapeMachine(g, opts...)
		require.NoError(t, tape.RunAll())
		require.NoError(t, tape.Close())
		check(row.tape, elementsOf(*v), name+", tape machine")
	}
	everywhere(t, func(t *testing.T, d device) {
		for name, row := range rows {
			e, _ := d.open(t)
			g := G.NewGraph()
			v := read(row.build(g))
			var opts []gorgoniavm.Option
			if evaluated(name) {
				opts = append(opts, gorgoniavm.EvalMode())
			}
			vm := d.vm(t, g, e, opts...)
			for range 3 {
				require.NoError(t, vm.RunAll())
				switch {
				case d.computes:
					check(row.gpu, elementsOf(*v), name)
				case d.exact:
					check(row.host, elementsOf(*v), name)
				}
			}
			require.NoError(t, vm.Close())
		}
	})
}

// Where no element of a window is a maximum, Gorgonia panics in the gradient: a VM on the host fails, and one
// on a GPU has none.
func TestMaxPoolOfNothingHasNoGradient(t *testing.T) {
	everywhere(t, func(t *testing.T, d device) {
		g := G.NewGraph()
		x := G.NewTensor(g, tensor.Float64, 4, G.WithShape(1, 1, 1, 4), G.WithName("x"), G.WithValue(tensor.New(tensor.WithShape(1, 1, 1, 4), tensor.WithBacking([]float64{math.Inf(-1), math.NaN(), 1, 2}))))
		_, err := G.Grad(G.Must(G.Sum(G.Must(G.MaxPool2D(x, tensor.Shape{1, 2}, []int{0, 0}, []int{1, 2})))), x)
		require.NoError(t, err)
		e, _ := d.open(t)
		vm := d.vm(t, g, e, gorgoniavm.Gradients(x))
		err = vm.RunAll()
		var op *gorgoniavm.OpError
		if d.computes {
			require.NoError(t, err)
			grad, err := x.Grad()
			require.NoError(t, err)
			require.Equal(t, []float64{0, 0, 0, 1}, data(t, e, grad))
		} else if d.exact {
			require.ErrorAs(t, err, &op)
		}
		require.NoError(t, vm.Close())
	})
}

// Gorgonia's Momentum regularizes its momentum and forgets that of scalars, its RMSProp
// does not clamp scalars' gradients, and its AdamW changes no weights.
// BatchNormOp has no SetTesting.
func TestWhatGorgoniasSolversDo(t *testing.T) {
	steps := func(s interface{ Step([]G.ValueGrad) error }, w *weight, grads ...float64) {
		for _, g := range grads {
			if d, ok := w.grad.(*tensor.Dense); ok {
				d.Set(0, g)
			} else {
				w.grad = G.NewF64(g)
			}
			require.NoError(t, s.Step([]G.ValueGrad{w}))
		}
	}
	vector := func() *weight {
		return &weight{value: tensor.New(tensor.WithBacking([]float64{1})), grad: tensor.New(tensor.WithBacking([]float64{0}))}
	}
	number := func() *weight { return &weight{value: G.NewF64(1), grad: G.NewF64(0)} }
	of := func(w *weight) float64 { return elementsOf(w.value)[0] }
	stock := map[string]struct {
		solver G.Solver
		w      *weight
		grads  []float64
		want   float64
	}{
		"Momentum":           {G.NewMomentum(G.WithLearnRate(0.5), G.WithMomentum(0.5)), vector(), []float64{0.25, 0.25}, 1 - 0.5*0.25 - 0.5*0.375},
		"Momentum of scalar": {G.NewMomentum(G.WithLearnRate(0.5), G.WithMomentum(0.5)), number(), []float64{0.25, 0.25}, 1 - 0.5*0.25 - 0.5*0.25},
		"Momentum with L2":   {G.NewMomentum(G.WithLearnRate(0.5), G.WithMomentum(0.5), G.WithL2Reg(0.5)), vector(), []float64{0}, 1},
		"RMSProp clipped":    {G.NewRMSPropSolver(G.WithLearnRate(0.5), G.WithRho(0.75), G.WithClip(0.5)), vector(), []float64{4}, 1 - 0.5*0.5/2},
		"RMSProp of scalar":  {G.NewRMSPropSolver(G.WithLearnRate(0.5), G.WithRho(0.75), G.WithClip(0.5)), number(), []float64{4}, 1 - 0.5*4/2},
		"L1 of a scalar 0":   {G.NewVanillaSolver(G.WithLearnRate(0.5), G.WithL1Reg(0.5)), &weight{value: G.NewF64(0)}, []float64{0}, -0.5 * 0.5},
	}
	for name, c := range stock {
		steps(c.solver, c.w, c.grads...)
		require.InDelta(t, c.want, of(c.w), 1e-8, name)
	}
	n := G.NewVector(G.NewGraph(), tensor.Float64, G.WithShape(1), G.WithName("w"), G.WithValue(tensor.New(tensor.WithShape(1), tensor.WithBacking([]float64{1}))))
	G.WithGrad(tensor.New(tensor.WithShape(1), tensor.WithBacking([]float64{0.25})))(n)
	require.NoError(t, G.NewAdamW().Step(G.NodesToValueGrads(G.Nodes{n})))
	require.Equal(t, []float64{1}, n.Value().Data())
	e, _ := newMeter(t)
	ours := map[string]struct {
		method gorgoniavm.Method
		grads  []float64
		want   float64
	}{
		"Momentum":         {gorgoniavm.Momentum{LearnRate: 0.5, Momentum: 0.5}, []float64{0.25, 0.25}, 1 - 0.5*0.25 - 0.5*0.375},
		"Momentum with L2": {gorgoniavm.Momentum{LearnRate: 0.5, Momentum: 0.5, Regularization: gorgoniavm.Regularization{L2: 0.5}}, []float64{0}, 1 - 0.5*0.5},
		"RMSProp clipped":  {gorgoniavm.RMSProp{LearnRate: 0.5, Rho: 0.75, Clip: 0.5}, []float64{4}, 1 - 0.5*0.5/2},
		"AdamW":            {gorgoniavm.AdamW{LearnRate: 0.5}, []float64{0.25}, (1 - 0.5*0.01) - 0.5},
	}
	for name, c := range ours {
		for _, w := range []*weight{vector(), number()} {
			s, err := gorgoniavm.NewSolver(e, c.method)
			require.NoError(t, err)
			steps(s, w, c.grads...)
			require.InDelta(t, c.want, of(w), 1e-6, name)
			require.NoError(t, s.Close())
		}
	}
	_, has := reflect.TypeOf(&G.BatchNormOp{}).MethodByName("SetTesting")
	require.False(t, has)
}
