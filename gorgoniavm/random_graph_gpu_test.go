//go:build gpu

package gorgoniavm_test

import (
	"math/rand/v2"

	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// newRandomGraph combines matrices by random elementwise operations, slices and
// concatenations, whose results are between -1 and 1 or so.
func newRandomGraph(seed uint64, dt tensor.Dtype, ops int) *model {
	r := rand.New(rand.NewPCG(seed, 1))
	m := startModel()
	rows, columns := 2+r.IntN(4), 2*(1+r.IntN(3))
	var pool G.Nodes
	for i := range 1 + r.IntN(3) {
		pool = append(pool, m.paramOf(dt, name("x", i), int64(i), rows, columns))
	}
	inputs := pool
	pick := func() *G.Node { return pool[r.IntN(len(pool))] }
	for range ops {
		pool = append(pool, randomOperation(r, dt, pick, tensor.Shape{rows, columns}))
	}
	return m.learn(append(pool[len(pool)-min(len(pool), 2):], inputs...)...) // all have gradients
}

// randomOperation makes a matrix of some of those that pick returns.
func randomOperation(r *rand.Rand, dt tensor.Dtype, pick func() *G.Node, shape tensor.Shape) *G.Node {
	half := constant(dt, 0.5)
	a, b := pick(), pick()
	columns := shape[1]
	switch r.IntN(12) {
	case 0:
		return G.Must(G.Mul(G.Must(G.Add(a, b)), half))
	case 1:
		return G.Must(G.Mul(half, G.Must(G.Sub(a, b))))
	case 2:
		return G.Must(G.HadamardProd(a, b))
	case 3:
		return G.Must(G.Sigmoid(a))
	case 4:
		return G.Must(G.Tanh(a))
	case 5:
		return G.Must(G.Rectify(a))
	case 6:
		return G.Must(G.HadamardProd(a, G.Must(G.Gt(a, b, true))))
	case 7:
		return G.Must(G.HadamardDiv(a, G.Must(G.Exp(G.Must(G.Square(b))))))
	case 8:
		return G.Must(G.Neg(G.Must(G.Cube(a))))
	case 9: // its columns the other way round
		left, right := G.Must(G.Slice(a, nil, G.S(0, columns/2))), G.Must(G.Slice(a, nil, G.S(columns/2, columns)))
		if columns == 2 {
			left, right = G.Must(G.Reshape(left, tensor.Shape{shape[0], 1})), G.Must(G.Reshape(right, tensor.Shape{shape[0], 1}))
		}
		return G.Must(G.Concat(1, G.Must(G.Sigmoid(right)), left))
	case 10:
		rows := G.Must(G.Concat(0, a, G.Must(G.Tanh(b))))
		return G.Must(G.Slice(rows, G.S(shape[0]-shape[0]/2, 2*shape[0]-shape[0]/2)))
	}
	flat := G.Must(G.Reshape(G.Must(G.Tanh(a)), tensor.Shape{1, shape.TotalSize()}))
	return G.Must(G.Reshape(G.Must(G.Mul(flat, half)), shape))
}

func constant(dt tensor.Dtype, x float64) *G.Node {
	if dt == tensor.Float64 {
		return G.NewConstant(x)
	}
	return G.NewConstant(float32(x))
}
