package gorgoniavm_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"math"
	"math/rand/v2"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/gorgoniavm"
	"github.com/cupool/cupool/internal/testkit"
	"github.com/cupool/cupool/internal/testkit/enginetest"
)

// noOperations are gorgonia's functions that return a node and make none of an
// operation, or one of an operation that they are given.
var noOperations = []string{"ApplyOp", "ApplyOpWithName", "Must", "NewConstant", "NewMatrix", "NewScalar", "NewTensor", "NewUniqueNode",
	"NewVector", "NodeFromAny", "OneHotVector", "Grad", "Compile", "CompileFunction", "WalkGraph", "Lift1", "Lift1Axial", "Lift2",
	"Lift2Broadcast", "Read", "Set", "Backpropagate", "NodesFromInputs", "Sort", "UnstableSort", "NewNodeSet", "WithPrecompiled"}

// covering builds the graph of a case: inputs with random numbers.
type covering struct {
	g      *G.ExprGraph
	r      *rand.Rand
	dt     tensor.Dtype
	inputs G.Nodes // of floats
	others int
}

// x returns an input.
func (c *covering) x(shape ...int) *G.Node {
	n := G.NewTensor(c.g, c.dt, len(shape), G.WithShape(shape...), G.WithName(fmt.Sprint("x", len(c.inputs))), G.WithValue(enginetest.Random(c.r, c.dt, shape...)))
	c.inputs = append(c.inputs, n)
	return n
}

// tied is x with numbers among which there are equal ones, and these for the first.
func (c *covering) tied(shape tensor.Shape, first ...float64) *G.Node {
	n := c.x(shape...)
	d := n.Value().(*tensor.Dense)
	for i := range d.DataSize() {
		v := float64(c.r.IntN(8)) / 4
		if i < len(first) {
			v = first[i]
		}
		d.Set(i, enginetest.Value(c.dt, v))
	}
	return n
}

// ints returns an input of ints below n.
func (c *covering) ints(n int, shape ...int) *G.Node {
	numbers := make([]int, tensor.Shape(shape).TotalSize())
	for i := range numbers {
		numbers[i] = c.r.IntN(n)
	}
	c.others++ // or gorgonia takes nodes for one
	return G.NewTensor(c.g, tensor.Int, len(shape), G.WithShape(shape...), G.WithName(fmt.Sprint("ints", c.others)), G.WithValue(tensor.New(tensor.WithShape(shape...), tensor.WithBacking(numbers))))
}

// any is x of a random shape.
func (c *covering) any() *G.Node { return c.x(c.shape()...) }

func (c *covering) shape() []int {
	shape := make([]int, 1+c.r.IntN(4))
	for i := range shape {
		shape[i] = 2 + c.r.IntN(4)
	}
	return shape
}

// positive is any with numbers above 0.
func (c *covering) positive() *G.Node { return G.Must(G.Exp(c.any())) }

type (
	build    = func(c *covering) (*G.Node, error)
	coverage struct {
		build   build
		noGrads bool // gorgonia has none, or none that can be compared
		rounds  int  // of random sizes; 0: one
	}
)

func unary(f func(*G.Node) (*G.Node, error)) coverage {
	return coverage{build: func(c *covering) (*G.Node, error) { return f(c.any()) }}
}

func unaryOfPositive(f func(*G.Node) (*G.Node, error)) coverage {
	return coverage{build: func(c *covering) (*G.Node, error) { return f(c.positive()) }}
}

func binary(f func(a, b *G.Node) (*G.Node, error)) coverage {
	return coverage{build: func(c *covering) (*G.Node, error) {
		s := c.shape()
		return f(c.x(s...), G.Must(G.Exp(c.x(s...))))
	}}
}

func comparison(f func(a, b *G.Node, retSame bool) (*G.Node, error)) coverage {
	b := binary(func(a, b *G.Node) (*G.Node, error) { return f(a, b, true) })
	b.noGrads = true
	return b
}

func broadcast(f func(a, b *G.Node, left, right []byte) (*G.Node, error)) coverage {
	return coverage{build: func(c *covering) (*G.Node, error) {
		return f(G.Must(G.Exp(c.x(3, 4))), c.x(1, 4), nil, []byte{0})
	}}
}

func broadcastComparison(f func(a, b *G.Node, same bool, left, right []byte) (*G.Node, error)) coverage {
	return coverage{noGrads: true, build: func(c *covering) (*G.Node, error) { return f(c.x(3, 4), c.x(3, 1), true, nil, []byte{1}) }}
}

// covered are cases for all of gorgonia's functions that make nodes, by name. A
// name may go on behind a blank.
var covered = map[string]coverage{
	"Abs": unary(G.Abs), "Sign": withoutGrads(unary(G.Sign)), "Ceil": withoutGrads(unary(G.Ceil)), "Floor": withoutGrads(unary(G.Floor)),
	"Sin": unary(G.Sin), "Cos": unary(G.Cos), "Exp": unary(G.Exp), "Log": unaryOfPositive(G.Log), "Log2": unaryOfPositive(G.Log2),
	"Neg": unary(G.Neg), "Square": unary(G.Square), "Sqrt": unaryOfPositive(G.Sqrt), "Inverse": unaryOfPositive(G.Inverse),
	"InverseSqrt": unaryOfPositive(G.InverseSqrt), "Cube": unary(G.Cube), "Tanh": unary(G.Tanh), "Sigmoid": unary(G.Sigmoid),
	"Log1p": unaryOfPositive(G.Log1p), "Expm1": unary(G.Expm1), "Softplus": unary(G.Softplus), "Mish": unary(G.Mish),
	"Rectify": unary(G.Rectify), "Ravel": unary(G.Ravel),
	"LeakyRelu": unary(func(a *G.Node) (*G.Node, error) { return G.LeakyRelu(a, 0.1) }),

	"Add": binary(G.Add), "Sub": binary(G.Sub), "HadamardProd": binary(G.HadamardProd), "HadamardDiv": binary(G.HadamardDiv), "Div": binary(G.Div),
	"Pow": withoutGrads(binary(func(a, b *G.Node) (*G.Node, error) { return G.Pow(b, a) })), "MinBetween": binary(G.MinBetween), "MaxBetween": binary(G.MaxBetween),
	"Lt": comparison(G.Lt), "Gt": comparison(G.Gt), "Lte": comparison(G.Lte), "Gte": comparison(G.Gte), "Eq": comparison(G.Eq), "Ne": comparison(G.Ne),
	"ReduceAdd": binary(func(a, b *G.Node) (*G.Node, error) { return G.ReduceAdd(G.Nodes{a, b, a}) }),
	"ReduceMul": {build: func(c *covering) (*G.Node, error) { return G.ReduceMul(G.Nodes{c.x(2, 3), c.x(3, 4), c.x(4, 2)}) }},

	"BroadcastAdd": broadcast(G.BroadcastAdd), "BroadcastSub": broadcast(G.BroadcastSub), "BroadcastHadamardProd": broadcast(G.BroadcastHadamardProd),
	"BroadcastHadamardDiv": broadcast(func(a, b *G.Node, l, r []byte) (*G.Node, error) {
		return G.BroadcastHadamardDiv(a, G.Must(G.Exp(b)), l, r)
	}),
	"BroadcastPow": withoutGrads(broadcast(G.BroadcastPow)),
	"BroadcastLt":  broadcastComparison(G.BroadcastLt), "BroadcastGt": broadcastComparison(G.BroadcastGt), "BroadcastLte": broadcastComparison(G.BroadcastLte),
	"BroadcastGte": broadcastComparison(G.BroadcastGte), "BroadcastEq": broadcastComparison(G.BroadcastEq), "BroadcastNe": broadcastComparison(G.BroadcastNe),
	"Broadcast": {build: func(c *covering) (*G.Node, error) {
		a, b, err := G.Broadcast(c.x(2, 3), c.x(2, 1), G.NewBroadcastPattern(nil, []byte{1}))
		if err != nil {
			return nil, err
		}
		return G.Sub(a, b)
	}},
	"Auto": {build: func(c *covering) (*G.Node, error) { return G.Auto(G.BroadcastHadamardProd, c.x(2, 3, 4), c.x(2, 1, 4)) }},

	"Mul":                          {build: func(c *covering) (*G.Node, error) { return G.Mul(c.x(3, 5), c.x(5, 2)) }},
	"Mul of a matrix and a vector": {build: func(c *covering) (*G.Node, error) { return G.Mul(c.x(3, 5), c.x(5)) }},
	"Mul of vectors":               {build: func(c *covering) (*G.Node, error) { return G.Mul(c.x(5), c.x(5)) }},
	"Mul by a number":              {build: func(c *covering) (*G.Node, error) { return G.Mul(c.any(), c.number(0.5)) }},
	"BatchedMatMul":                {build: func(c *covering) (*G.Node, error) { return G.BatchedMatMul(c.x(3, 2, 4), c.x(3, 4, 5)) }},
	"OuterProd":                    {build: func(c *covering) (*G.Node, error) { return G.OuterProd(c.x(4), c.x(4)) }},
	"Tensordot of vectors":         {build: func(c *covering) (*G.Node, error) { return G.Tensordot([]int{0}, []int{0}, c.x(5), c.x(5)) }},
	"Tensordot of cubes": {build: func(c *covering) (*G.Node, error) {
		return G.Tensordot([]int{2, 0}, []int{0, 1}, c.x(2, 3, 4), c.x(4, 2, 5))
	}},
	"Tensordot": {build: func(c *covering) (*G.Node, error) { return G.Tensordot([]int{1}, []int{0}, c.x(2, 3), c.x(3, 4)) }},

	"Sum": {build: func(c *covering) (*G.Node, error) { return G.Sum(c.x(3, 4, 5), 1) }}, "Mean": {build: func(c *covering) (*G.Node, error) { return G.Mean(c.x(3, 4), 0) }},
	"Sum of all": unary(func(a *G.Node) (*G.Node, error) { return G.Sum(a) }), "Mean of all": unary(func(a *G.Node) (*G.Node, error) { return G.Mean(a) }),
	"Max":       {build: func(c *covering) (*G.Node, error) { return G.Max(c.x(3, 4), 1) }},
	"Norm":      {build: func(c *covering) (*G.Node, error) { return G.Norm(c.x(3, 4), 1, 2) }},
	"Norm of 3": {noGrads: true, build: func(c *covering) (*G.Node, error) { return G.Norm(G.Must(G.Exp(c.x(3, 4))), 1, 3) }},
	"LogSumExp": {build: func(c *covering) (*G.Node, error) { return G.LogSumExp(c.x(5), 0) }},
	"KeepDims": {build: func(c *covering) (*G.Node, error) {
		return G.KeepDims(c.x(3, 4), false, func(a *G.Node) (*G.Node, error) { return G.Sum(a, 1) })
	}},
	"SoftMax": {build: func(c *covering) (*G.Node, error) { return G.SoftMax(c.x(3, 4)) }}, "LogSoftMax": {build: func(c *covering) (*G.Node, error) { return G.LogSoftMax(c.x(3, 4)) }},
	"Sparsemax":             {build: func(c *covering) (*G.Node, error) { return G.Sparsemax(c.x(3, 7)) }},
	"Sparsemax of columns":  {noGrads: true, build: func(c *covering) (*G.Node, error) { return G.Sparsemax(c.x(3, 7), 0) }},
	"Sparsemax of rows":     {build: func(c *covering) (*G.Node, error) { return G.Sparsemax(c.x(3, 7), 1) }},
	"Sparsemax of a vector": {build: func(c *covering) (*G.Node, error) { return G.Sparsemax(c.x(7)) }},
	"Sparsemax of a cube":   {noGrads: true, build: func(c *covering) (*G.Node, error) { return G.Sparsemax(c.x(2, 3, 40)) }},
	"BinaryXent": {build: func(c *covering) (*G.Node, error) {
		return G.BinaryXent(G.Must(G.Sigmoid(c.x(3, 4))), G.Must(G.Sigmoid(c.x(3, 4))))
	}},

	"Reshape": {build: func(c *covering) (*G.Node, error) { return G.Reshape(c.x(3, 4), tensor.Shape{2, 6}) }},
	"Transpose": {rounds: 4, build: func(c *covering) (*G.Node, error) {
		shape := []int{1 + c.r.IntN(3), 2, 1 + c.r.IntN(4), 3}[:2+c.r.IntN(3)]
		return G.Transpose(c.x(shape...), c.r.Perm(len(shape))...)
	}},
	"Concat": {build: func(c *covering) (*G.Node, error) { return G.Concat(1, c.x(2, 3), c.x(2, 1)) }},
	"Unconcat": {build: func(c *covering) (*G.Node, error) {
		parts, err := G.Unconcat(c.x(2, 6), 1, 2)
		if err != nil {
			return nil, err
		}
		return G.Sub(parts[0], parts[1])
	}},
	"Slice":                {build: func(c *covering) (*G.Node, error) { return G.Slice(c.x(4, 5), G.S(1, 3), G.S(2)) }},
	"SizeOf":               {noGrads: true, build: func(c *covering) (*G.Node, error) { return G.SizeOf(1, c.x(4, 5)) }},
	"At":                   {noGrads: true, build: func(c *covering) (*G.Node, error) { return G.At(c.x(4, 5), 2, 3) }},
	"DiagFlat":             {noGrads: true, build: func(c *covering) (*G.Node, error) { return G.DiagFlat(c.any()) }},
	"ByIndices":            {build: func(c *covering) (*G.Node, error) { return G.ByIndices(c.x(5, 3), c.ints(5, 40), 0) }},
	"ByIndices of columns": {noGrads: true, build: func(c *covering) (*G.Node, error) { return G.ByIndices(c.x(3, 6), c.ints(6, 9), 1) }},
	"ConvType": {noGrads: true, build: func(c *covering) (*G.Node, error) {
		return G.ConvType(G.Must(G.Mul(c.any(), c.number(10))), c.dt, tensor.Int)
	}},
	"ConvType of ints": {noGrads: true, build: func(c *covering) (*G.Node, error) { return G.ConvType(c.ints(1000, 3, 4), tensor.Int, c.dt) }},

	"Dropout that passes on": {noGrads: true, build: func(c *covering) (*G.Node, error) { return G.Dropout(c.any(), 0) }},
	"Dropout": {noGrads: true, build: func(c *covering) (*G.Node, error) { // all of its numbers are 0
		return G.Mul(G.Must(G.Dropout(c.any(), 0.5)), c.number(0))
	}},
	"UniformRandomNode":  withRandom(func(c *covering) *G.Node { return G.UniformRandomNode(c.g, c.dt, 0, 1, c.shape()...) }),
	"GaussianRandomNode": withRandom(func(c *covering) *G.Node { return G.GaussianRandomNode(c.g, c.dt, 0, 1, c.shape()...) }),
	"BinomialRandomNode": withRandom(func(c *covering) *G.Node { return G.BinomialRandomNode(c.g, c.dt, 5, 0.5, c.shape()...) }),

	"CTCLoss":             {build: func(c *covering) (*G.Node, error) { return c.ctc(G.ReductionSum, 3, 4) }},
	"CTCLoss by mean":     {build: func(c *covering) (*G.Node, error) { return c.ctc(G.ReductionMean, 3, 4) }},
	"CTCLoss of a vector": {build: func(c *covering) (*G.Node, error) { return c.ctc(G.ReductionMean, 12) }},

	"YOLOv3": {noGrads: true, build: func(c *covering) (*G.Node, error) {
		c.dt = tensor.Float32 // gorgonia has no other
		return G.YOLOv3(c.x(1, 14, 4, 4), []float32{10, 13, 16, 30, 33, 23}, []int{0, 1}, 64, 2, 0.5)
	}},

	"Im2Col": {build: func(c *covering) (*G.Node, error) {
		return G.Im2Col(c.x(2, 1, 5, 5), tensor.Shape{3, 3}, tensor.Shape{1, 1}, tensor.Shape{1, 1}, tensor.Shape{1, 1})
	}},
	"Conv2d": {rounds: 4, build: func(c *covering) (*G.Node, error) { return c.conv(randomConv(c.r)) }},
	"Conv2d to one element": {build: func(c *covering) (*G.Node, error) { // which is no scalar
		return c.conv(convLayer{[2]int{4, 5}, [2]int{}, [2]int{1, 1}, [2]int{1, 1}, true, true}, tensor.Shape{1, 3, 4, 5}, 1)
	}},
	"Conv1d":        {build: func(c *covering) (*G.Node, error) { return G.Conv1d(c.x(2, 3, 1, 8), c.x(4, 3, 1, 3), 3, 1, 1, 1) }},
	"MaxPool2D":     pooling(G.MaxPool2D),
	"AveragePool2D": pooling(G.AveragePool2D),
	"MaxPool2D of NaN": {noGrads: true, build: func(c *covering) (*G.Node, error) { // which is not the largest of a window
		x := c.tied(tensor.Shape{1, 1, 2, 4}, math.NaN(), 3, math.Inf(-1), math.Inf(1), 3, 2, 5, math.Inf(1))
		return G.MaxPool2D(x, tensor.Shape{2, 2}, []int{0, 0}, []int{1, 1})
	}},
	"MaxPool2D, padded unevenly": {build: func(c *covering) (*G.Node, error) { // before and behind rows, before and behind columns
		return G.MaxPool2D(c.tied(tensor.Shape{1, 2, 6, 5}), tensor.Shape{2, 3}, []int{1, 0, 1, 1}, []int{1, 2})
	}},
	"AveragePool2D, padded unevenly": {build: func(c *covering) (*G.Node, error) {
		return G.AveragePool2D(c.tied(tensor.Shape{1, 2, 6, 5}), tensor.Shape{2, 3}, []int{1, 1, 0, 1}, []int{1, 2})
	}},
	"MaxPool1D":           {build: func(c *covering) (*G.Node, error) { return G.MaxPool1D(c.tied(tensor.Shape{2, 2, 1, 9}), 3, 1, 2) }},
	"AveragePool1D":       {build: func(c *covering) (*G.Node, error) { return G.AveragePool1D(c.x(2, 2, 1, 9), 3, 1, 2) }},
	"GlobalAveragePool2D": {noGrads: true, build: func(c *covering) (*G.Node, error) { return G.GlobalAveragePool2D(c.x(c.images()...)) }},
	"BatchNorm": {build: func(c *covering) (*G.Node, error) {
		s := c.images()
		y, _, _, _, err := G.BatchNorm(c.x(s...), c.x(s...), c.x(s...), 0.1, 0.1)
		return y, err
	}},
	"BatchNorm of rows": {build: func(c *covering) (*G.Node, error) {
		s := c.images()[:2]
		y, _, _, _, err := G.BatchNorm(c.x(s...), c.x(s...), c.x(s...), 0.1, 0.1)
		return y, err
	}},
	"BatchNorm, by channels": {build: func(c *covering) (*G.Node, error) {
		s := c.images()
		y, _, _, _, err := G.BatchNorm(c.x(s...), c.x(1, s[1], 1, 1), c.x(1, s[1], 1, 1), 0.1, 0.1)
		if err != nil {
			return nil, err
		}
		return G.Rectify(y)
	}},
	"GroupNorm": {build: func(c *covering) (*G.Node, error) {
		s, groups := c.images(), 1+c.r.IntN(3)
		s[1] *= groups
		return G.GroupNorm(c.x(s...), c.x(1, s[1], 1, 1), c.x(1, s[1], 1, 1), groups, s[1], 0.1)
	}},
	"GroupNorm, by elements": {build: func(c *covering) (*G.Node, error) {
		return G.GroupNorm(c.x(2, 4, 3, 2), c.x(2, 4, 3, 2), c.x(2, 4, 3, 2), 2, 4, 0.1)
	}},
	"Upsample2D": {build: func(c *covering) (*G.Node, error) { return G.Upsample2D(c.x(2, 2, 3, 4), 1+c.r.IntN(3)) }},
}

// images returns a random shape of images. Those of one column have one row: with
// more, gorgonia's gradient by a number for each channel is a Sum along the third of
// four axes, which tensor.StdEng gets wrong. It adds up elements of neighbouring
// channels, where a GPU computes what the formula says.
func (c *covering) images() []int {
	s := []int{2 + c.r.IntN(4), 1 + c.r.IntN(4), 1 + c.r.IntN(5), 1 + c.r.IntN(5)}
	if s[3] == 1 {
		s[2] = 1
	}
	return s
}

// pooling is a case of random windows over images.
func pooling(f func(x *G.Node, kernel tensor.Shape, pad, stride []int) (*G.Node, error)) coverage {
	return coverage{rounds: 4, build: func(c *covering) (*G.Node, error) {
		r := c.r
		kernel := tensor.Shape{1 + r.IntN(3), 1 + r.IntN(3)}
		x := c.tied(tensor.Shape{1 + r.IntN(3), 1 + r.IntN(3), 3 + r.IntN(6), 3 + r.IntN(6)})
		return f(x, kernel, []int{r.IntN(kernel[0]), r.IntN(kernel[1])}, []int{1 + r.IntN(3), 1 + r.IntN(3)})
	}}
}

// randomConv returns a layer of random sizes, the shape of images that it fits, and
// how many channels it makes.
func randomConv(r *rand.Rand) (l convLayer, shape tensor.Shape, out int) {
	shape = tensor.Shape{1 + r.IntN(3), 1 + r.IntN(3), 0, 0}
	for d := range 2 {
		l.kernel[d], l.pad[d], l.stride[d], l.dilation[d] = 1+r.IntN(5), r.IntN(3), 1+r.IntN(3), 1+r.IntN(2)
		shape[2+d] = max(1, l.dilation[d]*(l.kernel[d]-1)+1-2*l.pad[d]) + r.IntN(6)
	}
	l.bias, l.rectify = r.IntN(2) == 0, r.IntN(2) == 0
	return l, shape, 1 + r.IntN(4)
}

func (c *covering) conv(l convLayer, shape tensor.Shape, out int) (*G.Node, error) {
	x := c.x(shape...)
	return l.apply(x, c.x(out, shape[1], l.kernel[0], l.kernel[1]), c.x), nil
}

// ctc is a CTCLoss of three samples.
func (c *covering) ctc(by G.Reduction, targets ...int) (*G.Node, error) {
	const frames, samples, classes = 12, 3, 5
	lp := G.Must(G.LogSoftMax(c.x(frames*samples, classes)))
	at := c.ints(classes-1, targets...)
	for i := range at.Value().Data().([]int) {
		at.Value().Data().([]int)[i]++ // not the blank
	}
	lengths, of := c.ints(1, samples), c.ints(4, samples)
	for i := range samples {
		lengths.Value().Data().([]int)[i] = frames
		of.Value().Data().([]int)[i]++
	}
	return G.CTCLoss(G.Must(G.Reshape(lp, tensor.Shape{frames, samples, classes})), at, lengths, of, by)
}

// withoutGrads is a case without gradients.
func withoutGrads(c coverage) coverage {
	c.noGrads = true
	return c
}

// withRandom is a case of random numbers, of which only the shape can be compared.
func withRandom(f func(c *covering) *G.Node) coverage {
	return coverage{noGrads: true, build: func(c *covering) (*G.Node, error) { return G.Mul(f(c), c.number(0)) }}
}

// number returns a constant.
func (c *covering) number(x float64) *G.Node { return G.NewConstant(enginetest.Value(c.dt, x)) }

// Every device computes all operations of gorgonia, and their gradients, to what
// the tape machine computes.
func TestEveryOperation(t *testing.T) {
	everywhere(t, func(t *testing.T, d device) {
		for _, name := range slices.Sorted(maps.Keys(covered)) {
			for _, dt := range []tensor.Dtype{tensor.Float32, tensor.Float64} {
				if d.computes && quick() && d.records == (dt == tensor.Float32) {
					continue // the first run is the same on both devices
				}
				rounds := max(1, covered[name].rounds)
				if d.computes {
					rounds = testkit.Choose(rounds, 1)
				}
				for i := range rounds {
					t.Run(fmt.Sprint(name, "/", dt, i), func(t *testing.T) { covered[name].check(t, d, dt, slices.Contains(notRecorded, name)) })
				}
			}
		}
	})
}

// notRecorded are the cases in which a tensor depends on a number of the device.
var notRecorded = []string{"LogSumExp"}

// graph builds a case and its gradients.
func (o coverage) graph(t *testing.T, dt tensor.Dtype) (*covering, *G.Node) {
	t.Helper()
	c := &covering{g: G.NewGraph(), r: testkit.Rand(t), dt: dt}
	y, err := o.build(c)
	require.NoError(t, err)
	if o.noGrads {
		return c, y
	}
	cost := y
	if !y.IsScalar() { // squares with uneven weights: those of what is normalized have no gradient
		uneven := G.NewConstant(enginetest.Random(c.r, c.dt, y.Shape()...))
		cost = G.Must(G.Sum(G.Must(G.HadamardProd(G.Must(G.Square(y)), uneven))))
	}
	_, err = G.Grad(cost, c.inputs...)
	require.NoError(t, err)
	return c, y
}

// check runs a case on both machines.
func (o coverage) check(t *testing.T, d device, dt tensor.Dtype, refused bool) {
	c, y := o.graph(t, dt)
	before := make([]any, len(c.inputs)) // the tape machine may write to an input that is reshaped
	for i, n := range c.inputs {
		before[i] = clone(t, nil, n.Value())
	}
	tape := G.NewTapeMachine(c.g, G.TraceExec())
	require.NoError(t, tape.RunAll())
	want := o.results(t, c, y, func(v G.Value) any { return data(t, nil, v) })
	require.NoError(t, tape.Close())
	for i, n := range c.inputs {
		require.NoError(t, G.Let(n, before[i]))
	}

	e, a := d.open(t)
	vm := d.vm(t, c.g, e, gorgoniavm.Keep(y))
	var first []any
	for run := range 3 {
		require.NoError(t, vm.RunAll())
		got := o.results(t, c, y, func(v G.Value) any { return data(t, e, v) })
		if run == 0 {
			first = got
		}
		require.Equal(t, first, got, "run %d", run)
		if !d.records {
			break // one is as all are
		}
	}
	for i := range want {
		if want[i] == nil { // the tape machine leaves At out
			require.NotNil(t, first[i])
			continue
		}
		requireNearly(t, c.dt, want[i], first[i], fmt.Sprint("result ", i))
	}
	if d.computes {
		require.Empty(t, vm.Fallbacks())
	}
	if d.records && !refused {
		require.Equal(t, gorgoniavm.ReplayStats{Recordings: 1, Launches: 2}, vm.Replays())
	} else {
		require.Zero(t, vm.Replays().Launches)
	}
	require.NoError(t, vm.Close())
	require.Zero(t, a.live)
}

// results are the numbers of a node and the gradients of the inputs.
func (o coverage) results(t *testing.T, c *covering, y *G.Node, read func(G.Value) any) []any {
	t.Helper()
	var all []any
	if y.Value() == nil {
		return []any{nil}
	}
	all = append(all, read(y.Value()))
	for _, n := range c.inputs {
		if o.noGrads {
			break
		}
		g, err := n.Grad()
		require.NoError(t, err)
		all = append(all, read(g))
	}
	return all
}

// requireNearly compares numbers as far as their type goes.
func requireNearly(t *testing.T, dt tensor.Dtype, want, got any, what string) {
	t.Helper()
	w, g := floatsIn(want), floatsIn(got)
	require.Len(t, g, len(w))
	if w == nil {
		require.Equal(t, want, got)
		return
	}
	bound := map[tensor.Dtype]float64{tensor.Float32: 1e-4, tensor.Float64: 1e-7}[dt] // gorgonia's Softplus is x above 16
	(&enginetest.Bench{T: t}).RequireClose(append(w, 1), append(g, 1), bound, what)
}

// floatsIn returns numbers as float64s, nil for others.
func floatsIn(data any) (xs []float64) {
	v := reflect.ValueOf(data)
	if v.Kind() != reflect.Slice {
		s := reflect.MakeSlice(reflect.SliceOf(v.Type()), 0, 1)
		v = reflect.Append(s, v)
	}
	if !v.Type().Elem().ConvertibleTo(reflect.TypeFor[float64]()) {
		return nil
	}
	for i := range v.Len() {
		xs = append(xs, v.Index(i).Convert(reflect.TypeFor[float64]()).Float())
	}
	return xs
}

// There is a case for every function of gorgonia that makes a node.
func TestEveryFunctionIsCovered(t *testing.T) {
	file, _ := runtime.FuncForPC(reflect.ValueOf(G.Add).Pointer()).FileLine(reflect.ValueOf(G.Add).Pointer())
	files, err := filepath.Glob(filepath.Join(filepath.Dir(file), "*.go"))
	require.NoError(t, err)
	if len(files) == 0 {
		t.Skip("gorgonia's source is not there: the test was built with -trimpath")
	}
	var known []string
	for name := range covered {
		first, _, _ := strings.Cut(name, " ")
		known = append(known, first)
	}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		for _, d := range parsed.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && makesNode(f) && !slices.Contains(noOperations, f.Name.Name) {
				require.Contains(t, known, f.Name.Name)
			}
		}
	}
}

// makesNode reports whether an exported function returns nodes.
func makesNode(f *ast.FuncDecl) bool {
	if f.Recv != nil || !f.Name.IsExported() || f.Type.Results == nil || len(f.Type.Results.List) == 0 {
		return false
	}
	switch r := f.Type.Results.List[0].Type.(type) {
	case *ast.StarExpr:
		id, ok := r.X.(*ast.Ident)
		return ok && id.Name == "Node"
	case *ast.Ident:
		return r.Name == "Nodes"
	}
	return false
}

// Whichever allocation of an operation fails, nothing stays, and the next run is
// right.
func TestEveryOperationOutOfMemory(t *testing.T) {
	everywhere(t, func(t *testing.T, d device) {
		if d.records {
			t.Skip("the same runs as on the device that records none")
		}
		for _, name := range slices.Sorted(maps.Keys(covered)) {
			t.Run(name, func(t *testing.T) { covered[name].failEverywhere(t, d) })
		}
	})
}

func (o coverage) failEverywhere(t *testing.T, d device) {
	c, _ := o.graph(t, tensor.Float32)
	e, a := d.open(t)
	vm, err := gorgoniavm.New(c.g, e)
	require.NoError(t, err)
	require.NoError(t, vm.RunAll())
	live := a.live
	for n := range d.failures(t) {
		a.failIn = n
		err := vm.RunAll()
		a.failIn = 0
		if err == nil {
			break
		}
		require.ErrorIs(t, err, cupool.ErrOutOfMemory)
		require.LessOrEqual(t, a.live, live)
	}
	require.Equal(t, live, a.live)
	require.NoError(t, vm.Close())
	require.Zero(t, a.live)
}

// What gorgonia refuses at run time, a device refuses.
func TestRefusedOperations(t *testing.T) {
	everywhere(t, func(t *testing.T, d device) {
		for name, b := range map[string]build{
			"ConvType between floats": func(c *covering) (*G.Node, error) { return G.ConvType(c.x(3), tensor.Float32, tensor.Float64) },
			"Sparsemax of a number":   func(c *covering) (*G.Node, error) { return G.Sparsemax(G.Must(G.Sum(c.x(3)))) },
			"a mask without anchor": func(c *covering) (*G.Node, error) {
				return G.YOLOv3(c.x(1, 7, 4, 4), []float32{10, 13}, []int{1}, 64, 2, 0.5)
			},
		} {
			t.Run(name, func(t *testing.T) {
				c := &covering{g: G.NewGraph(), r: testkit.Rand(t), dt: tensor.Float32}
				_, err := b(c)
				require.NoError(t, err)
				require.Error(t, cupool.Try(G.NewTapeMachine(c.g).RunAll))
				e, a := d.open(t)
				vm := d.vm(t, c.g, e)
				var ours *gorgoniavm.OpError
				require.ErrorAs(t, vm.RunAll(), &ours)
				require.NoError(t, vm.Close())
				require.Zero(t, a.live)
			})
		}
	})
}
