package tensorop_test

import (
	"fmt"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
	"gorgonia.org/tensor"

	"github.com/cupool/cupool"
)

// farWay says what an operation does where the CPU cannot touch the memory.
type farWay int

const (
	works      farWay = iota
	fails             // returns an error
	impossible        // listed in Engine's comment: must not be called
)

// opCase is an operation to be compared with StdEng's. It is called with
// tensors of StdEng and then with copies of them in the pool.
type opCase struct {
	shapes [][]int
	f      func(in []*tensor.Dense) (tensor.Tensor, error)
	types  []tensor.Dtype // nil: floats
	lossy  bool           // loses temporaries in tensor itself
	far    farWay
	finite bool // does not end for NaN
}

type in = []*tensor.Dense

// dense turns a method's result into an interface, nil if it is nil.
func dense(d *tensor.Dense, err error) (tensor.Tensor, error) {
	if d == nil {
		return nil, err
	}
	return d, err
}

func ints(of *tensor.Dense, is ...int) *tensor.Dense {
	return tensor.New(tensor.WithBacking(is), tensor.WithEngine(of.Engine()))
}

// straight returns a copy in row-major order of a tensor of StdEng, which computes
// wrong numbers of others in some operations, and other tensors as they are.
func straight(d *tensor.Dense) *tensor.Dense {
	if _, std := d.Engine().(tensor.StdEng); std {
		return d.Materialize().(*tensor.Dense)
	}
	return d
}

var opCases = map[string]opCase{
	// Construction and copies.
	"New": {shapes: [][]int{{2}}, f: func(a in) (tensor.Tensor, error) {
		return tensor.New(tensor.Of(a[0].Dtype()), tensor.WithShape(3, 5), tensor.WithEngine(a[0].Engine())), nil
	}},
	"NewDense": {shapes: [][]int{{2}}, f: func(a in) (tensor.Tensor, error) {
		return tensor.NewDense(tensor.Bool, tensor.Shape{7}, tensor.WithEngine(a[0].Engine())), nil
	}},
	"New scalar": {shapes: [][]int{{2}}, f: func(a in) (tensor.Tensor, error) {
		return tensor.New(tensor.Of(a[0].Dtype()), tensor.WithShape(), tensor.WithEngine(a[0].Engine())), nil
	}},
	"New empty": {shapes: [][]int{{2}}, f: func(a in) (tensor.Tensor, error) {
		return tensor.New(tensor.Of(a[0].Dtype()), tensor.WithShape(0, 3), tensor.WithEngine(a[0].Engine())), nil
	}},
	"AsFortran": {shapes: [][]int{{2}}, f: func(a in) (tensor.Tensor, error) {
		return tensor.New(tensor.Of(a[0].Dtype()), tensor.WithShape(3, 5), tensor.AsFortran(nil), tensor.WithEngine(a[0].Engine())), nil
	}},
	"Clone":               {shapes: [][]int{{3, 4}}, f: func(a in) (tensor.Tensor, error) { return a[0].Clone().(tensor.Tensor), nil }},
	"Clone of T":          {shapes: [][]int{{3, 4}}, f: func(a in) (tensor.Tensor, error) { return transposed(a[0]).Clone().(tensor.Tensor), nil }},
	"SafeT":               {shapes: [][]int{{3, 4}}, f: func(a in) (tensor.Tensor, error) { return dense(a[0].SafeT()) }},
	"RollAxis":            {shapes: [][]int{{3, 4, 2}}, f: func(a in) (tensor.Tensor, error) { return dense(a[0].RollAxis(2, 0, true)) }},
	"CopyTo":              {shapes: [][]int{{3, 4}, {3, 4}}, f: func(a in) (tensor.Tensor, error) { return nil, a[0].CopyTo(a[1]) }},
	"Copy":                {shapes: [][]int{{3, 4}, {3, 4}}, f: func(a in) (tensor.Tensor, error) { return nil, tensor.Copy(a[1], a[0]) }},
	"Copy view":           {shapes: [][]int{{3, 4}, {3, 2}}, f: func(a in) (tensor.Tensor, error) { return nil, tensor.Copy(a[1], view(a[0], nil, tensor.S(1, 3))) }, far: fails},
	"Materialize rows":    {shapes: [][]int{{5, 4}}, f: func(a in) (tensor.Tensor, error) { return view(a[0], tensor.S(1, 3)).Materialize(), nil }},
	"Materialize columns": {shapes: [][]int{{5, 4}}, f: func(a in) (tensor.Tensor, error) { return view(a[0], nil, tensor.S(1, 3)).Materialize(), nil }, far: impossible},

	// In place.
	"Memset": {shapes: [][]int{{3, 4}}, f: func(a in) (tensor.Tensor, error) { return nil, a[0].Memset(value(a[0].Dtype(), 3)) }, far: fails},
	"Memset view": {shapes: [][]int{{3, 4}}, f: func(a in) (tensor.Tensor, error) {
		return nil, view(a[0], nil, tensor.S(1, 3)).Memset(value(a[0].Dtype(), 3))
	}, far: fails},
	"Zero":             {shapes: [][]int{{3, 4}}, f: func(a in) (tensor.Tensor, error) { a[0].Zero(); return nil, nil }, far: impossible},
	"SetAt":            {shapes: [][]int{{3, 4}}, f: func(a in) (tensor.Tensor, error) { return nil, a[0].SetAt(value(a[0].Dtype(), 3), 1, 2) }, far: fails},
	"T":                {shapes: [][]int{{3, 4}}, f: func(a in) (tensor.Tensor, error) { return nil, a[0].T() }},
	"Transpose":        {shapes: [][]int{{3, 4}}, f: func(a in) (tensor.Tensor, error) { return nil, transposed(a[0]).Transpose() }},
	"Transpose 3":      {shapes: [][]int{{3, 4, 2}}, f: func(a in) (tensor.Tensor, error) { return nil, transposed(a[0], 2, 0, 1).Transpose() }, types: append(numbers, tensor.Bool)},
	"tensor.Transpose": {shapes: [][]int{{3, 4}}, f: func(a in) (tensor.Tensor, error) { return tensor.Transpose(a[0]) }},
	"tensor.T":         {shapes: [][]int{{3, 4}}, f: func(a in) (tensor.Tensor, error) { return tensor.T(a[0]) }},
	"Reshape":          {shapes: [][]int{{3, 4}}, f: func(a in) (tensor.Tensor, error) { return nil, a[0].Reshape(2, 6) }},
	"T Reshape":        {shapes: [][]int{{3, 4}}, f: func(a in) (tensor.Tensor, error) { return nil, transposed(a[0]).Reshape(2, 6) }},
	"FMA":              {shapes: [][]int{{3, 4}, {3, 4}, {3, 4}}, f: func(a in) (tensor.Tensor, error) { return tensor.FMA(a[0], a[1], a[2]) }},
	"FMAScalar":        {shapes: [][]int{{3, 4}, {3, 4}}, f: func(a in) (tensor.Tensor, error) { return tensor.FMA(a[0], value(a[0].Dtype(), 2), a[1]) }},

	// Products.
	"MatMul":       {shapes: [][]int{{3, 4}, {4, 5}}, f: func(a in) (tensor.Tensor, error) { return tensor.MatMul(a[0], a[1]) }},
	"MatMul large": {shapes: [][]int{{33, 70}, {70, 65}}, f: func(a in) (tensor.Tensor, error) { return tensor.MatMul(a[0], a[1]) }},
	"MatMul Ta":    {shapes: [][]int{{4, 3}, {4, 5}}, f: func(a in) (tensor.Tensor, error) { return tensor.MatMul(transposed(a[0]), a[1]) }},
	"MatMul Tb":    {shapes: [][]int{{3, 4}, {5, 4}}, f: func(a in) (tensor.Tensor, error) { return tensor.MatMul(a[0], transposed(a[1])) }},
	"MatMul TaTb":  {shapes: [][]int{{4, 3}, {5, 4}}, f: func(a in) (tensor.Tensor, error) { return tensor.MatMul(transposed(a[0]), transposed(a[1])) }},
	"MatMul rows":  {shapes: [][]int{{5, 4}, {4, 5}}, f: func(a in) (tensor.Tensor, error) { return tensor.MatMul(view(a[0], tensor.S(1, 3)), a[1]) }},
	"MatMul reuse": {shapes: [][]int{{3, 4}, {4, 5}, {3, 5}}, f: func(a in) (tensor.Tensor, error) { return tensor.MatMul(a[0], a[1], tensor.WithReuse(a[2])) }},
	"MatMul incr":  {shapes: [][]int{{3, 4}, {4, 5}, {3, 5}}, f: func(a in) (tensor.Tensor, error) { return tensor.MatMul(a[0], a[1], tensor.WithIncr(a[2])) }, lossy: true},
	"MatMul reuse incr": {shapes: [][]int{{3, 4}, {4, 5}, {3, 5}, {3, 5}}, f: func(a in) (tensor.Tensor, error) {
		return tensor.MatMul(a[0], a[1], tensor.WithReuse(a[2]), tensor.WithIncr(a[3]))
	}},
	"MatMul mismatch": {shapes: [][]int{{3, 4}, {3, 4}}, f: func(a in) (tensor.Tensor, error) { return tensor.MatMul(a[0], a[1]) }},
	"MatVecMul":       {shapes: [][]int{{3, 4}, {4}}, f: func(a in) (tensor.Tensor, error) { return tensor.MatVecMul(a[0], a[1]) }},
	"MatVecMul T":     {shapes: [][]int{{4, 3}, {4}}, f: func(a in) (tensor.Tensor, error) { return tensor.MatVecMul(transposed(a[0]), a[1]) }},
	"MatVecMul reuse": {shapes: [][]int{{3, 4}, {4}, {3}}, f: func(a in) (tensor.Tensor, error) { return tensor.MatVecMul(a[0], a[1], tensor.WithReuse(a[2])) }},
	"Outer":           {shapes: [][]int{{3}, {4}}, f: func(a in) (tensor.Tensor, error) { return tensor.Outer(a[0], a[1]) }, far: impossible},
	"Outer reuse":     {shapes: [][]int{{3}, {4}, {3, 4}}, f: func(a in) (tensor.Tensor, error) { return tensor.Outer(a[0], a[1], tensor.WithReuse(a[2])) }, far: impossible},
	"Dot vv":          {shapes: [][]int{{4}, {4}}, f: func(a in) (tensor.Tensor, error) { return tensor.Dot(a[0], a[1]) }},
	"Dot mv":          {shapes: [][]int{{3, 4}, {4}}, f: func(a in) (tensor.Tensor, error) { return tensor.Dot(a[0], a[1]) }},
	"Dot vm":          {shapes: [][]int{{3}, {3, 4}}, f: func(a in) (tensor.Tensor, error) { return tensor.Dot(a[0], a[1]) }},
	"Dot mm":          {shapes: [][]int{{3, 4}, {4, 5}}, f: func(a in) (tensor.Tensor, error) { return tensor.Dot(a[0], a[1]) }},
	"Dot mm reuse":    {shapes: [][]int{{3, 4}, {4, 5}, {3, 5}}, f: func(a in) (tensor.Tensor, error) { return tensor.Dot(a[0], a[1], tensor.WithReuse(a[2])) }},
	"Dot 3m":          {shapes: [][]int{{2, 3, 4}, {4, 5}}, f: func(a in) (tensor.Tensor, error) { return tensor.Dot(a[0], a[1]) }},
	"Dot 3m reuse":    {shapes: [][]int{{2, 3, 4}, {4, 5}, {2, 3, 5}}, f: func(a in) (tensor.Tensor, error) { return tensor.Dot(a[0], a[1], tensor.WithReuse(a[2])) }},
	"Dot 33":          {shapes: [][]int{{2, 3, 4}, {2, 4, 5}}, f: func(a in) (tensor.Tensor, error) { return tensor.Dot(a[0], a[1]) }},
	"Dot 3T m":        {shapes: [][]int{{4, 3, 2}, {4, 5}}, f: func(a in) (tensor.Tensor, error) { return tensor.Dot(transposed(a[0]), a[1]) }},
	"Dot 3v":          {shapes: [][]int{{2, 3, 4}, {4}}, f: func(a in) (tensor.Tensor, error) { return tensor.Dot(a[0], a[1]) }},
	"Dot v3":          {shapes: [][]int{{4}, {2, 4, 5}}, f: func(a in) (tensor.Tensor, error) { return tensor.Dot(a[0], a[1]) }},
	"Dot 43":          {shapes: [][]int{{2, 1, 3, 4}, {5, 4, 1}}, f: func(a in) (tensor.Tensor, error) { return tensor.Dot(a[0], a[1]) }},
	"Dot 33 mismatch": {shapes: [][]int{{2, 3, 4}, {2, 3, 4}}, f: func(a in) (tensor.Tensor, error) { return tensor.Dot(a[0], a[1]) }},
	"Dot ss":          {shapes: [][]int{{}, {}}, f: func(a in) (tensor.Tensor, error) { return tensor.Dot(a[0], a[1]) }},
	"Dot ss reuse":    {shapes: [][]int{{}, {}, {}}, f: func(a in) (tensor.Tensor, error) { return tensor.Dot(a[0], a[1], tensor.WithReuse(a[2])) }},
	"Dot sm":          {shapes: [][]int{{}, {3, 4}}, f: func(a in) (tensor.Tensor, error) { return tensor.Dot(a[0], a[1]) }},
	"Dot ms":          {shapes: [][]int{{3, 4}, {}}, f: func(a in) (tensor.Tensor, error) { return tensor.Dot(a[0], a[1]) }},
	"Dot ms incr":     {shapes: [][]int{{3, 4}, {}, {3, 4}}, f: func(a in) (tensor.Tensor, error) { return tensor.Dot(a[0], a[1], tensor.WithIncr(a[2])) }},
	"Dot mismatch":    {shapes: [][]int{{3, 4}, {3, 4}}, f: func(a in) (tensor.Tensor, error) { return tensor.Dot(a[0], a[1]) }},
	"TensorMul":       {shapes: [][]int{{2, 3, 4}, {4, 3, 5}}, f: func(a in) (tensor.Tensor, error) { return dense(a[0].TensorMul(a[1], []int{1, 2}, []int{1, 0})) }, lossy: true},
	"Contract":        {shapes: [][]int{{2, 3, 4}, {4, 3, 5}}, f: func(a in) (tensor.Tensor, error) { return tensor.Contract(a[0], a[1], []int{1, 2}, []int{1, 0}) }, lossy: true},

	// Reductions.
	"Sum":         {shapes: [][]int{{3, 4}}, f: func(a in) (tensor.Tensor, error) { return tensor.Sum(a[0]) }, types: numbers},
	"Sum 0":       {shapes: [][]int{{3, 4}}, f: func(a in) (tensor.Tensor, error) { return tensor.Sum(a[0], 0) }, types: numbers},
	"Sum 1":       {shapes: [][]int{{3, 4}}, f: func(a in) (tensor.Tensor, error) { return tensor.Sum(a[0], 1) }, types: numbers},
	"Sum 0 1":     {shapes: [][]int{{3, 4, 2}}, f: func(a in) (tensor.Tensor, error) { return tensor.Sum(a[0], 0, 1) }},
	"Sum middle":  {shapes: [][]int{{3, 4, 2}}, f: func(a in) (tensor.Tensor, error) { return tensor.Sum(a[0], 1) }},
	"Sum T":       {shapes: [][]int{{3, 4}}, f: func(a in) (tensor.Tensor, error) { return tensor.Sum(transposed(a[0]), 0) }},
	"Sum columns": {shapes: [][]int{{3, 4}}, f: func(a in) (tensor.Tensor, error) { return tensor.Sum(view(a[0], nil, tensor.S(1, 3)), 0) }},
	"Sum wrong":   {shapes: [][]int{{3, 4}}, f: func(a in) (tensor.Tensor, error) { return tensor.Sum(a[0], 5) }},
	"Max":         {shapes: [][]int{{3, 4}}, f: func(a in) (tensor.Tensor, error) { return dense(a[0].Max()) }, types: ordered},
	"Max 0":       {shapes: [][]int{{3, 4}}, f: func(a in) (tensor.Tensor, error) { return dense(a[0].Max(0)) }, types: ordered},
	"Max 1 T":     {shapes: [][]int{{3, 4}}, f: func(a in) (tensor.Tensor, error) { return dense(transposed(a[0]).Max(1)) }, types: ordered},
	"Min":         {shapes: [][]int{{3, 4}}, f: func(a in) (tensor.Tensor, error) { return dense(a[0].Min()) }, types: ordered},
	"Min 1":       {shapes: [][]int{{3, 4, 2}}, f: func(a in) (tensor.Tensor, error) { return dense(a[0].Min(1)) }, types: ordered},
	"Argmax":      {shapes: [][]int{{3, 4}}, f: func(a in) (tensor.Tensor, error) { return tensor.Argmax(a[0], 1) }, types: ordered},
	"Argmax m":    {shapes: [][]int{{3, 4}}, f: func(a in) (tensor.Tensor, error) { return dense(a[0].Argmax(0)) }, types: ordered},
	"Argmax all":  {shapes: [][]int{{3, 4}}, f: func(a in) (tensor.Tensor, error) { return dense(a[0].Argmax(tensor.AllAxes)) }, types: ordered},
	"Argmax T":    {shapes: [][]int{{3, 4}}, f: func(a in) (tensor.Tensor, error) { return dense(transposed(a[0]).Argmax(0)) }, types: ordered},
	"Argmin":      {shapes: [][]int{{3, 4, 2}}, f: func(a in) (tensor.Tensor, error) { return tensor.Argmin(a[0], 1) }, types: ordered},
	"Argmin all":  {shapes: [][]int{{3, 4}}, f: func(a in) (tensor.Tensor, error) { return dense(a[0].Argmin(tensor.AllAxes)) }, types: ordered},
	"Reduce": {shapes: [][]int{{3, 4}}, f: func(a in) (tensor.Tensor, error) {
		return dense(a[0].Reduce(func(x, y float64) float64 { return x + 2*y }, 1, 0.0))
	}, types: floats[:1]},
	"Reduce 0": {shapes: [][]int{{3, 4, 2}}, f: func(a in) (tensor.Tensor, error) {
		return dense(a[0].Reduce(func(x, y float64) float64 { return x + 2*y }, 0, 0.0))
	}, types: floats[:1]},
	"OptimizedReduce": {shapes: [][]int{{3, 4, 2}}, f: func(a in) (tensor.Tensor, error) {
		first := func(a, b []float64) {
			for i := range a {
				a[i] += 2 * b[i]
			}
		}
		last := func(a []float64) float64 { return a[0] }
		plain := func(a, b float64) float64 { return a + 2*b }
		return a[0].Engine().(tensor.OptimizedReducer).OptimizedReduce(a[0], 0, first, last, plain, 0.0)
	}, types: floats[:1]},

	// Moving elements.
	"Concat 0":       {shapes: [][]int{{3, 4}, {2, 4}}, f: func(a in) (tensor.Tensor, error) { return tensor.Concat(0, a[0], a[1]) }, types: append(numbers, tensor.Bool)},
	"Concat 1":       {shapes: [][]int{{3, 4}, {3, 2}, {3, 1}}, f: func(a in) (tensor.Tensor, error) { return tensor.Concat(1, a[0], a[1], a[2]) }},
	"Concat T":       {shapes: [][]int{{4, 3}, {3, 2}}, f: func(a in) (tensor.Tensor, error) { return tensor.Concat(1, transposed(a[0]), a[1]) }},
	"Concat vectors": {shapes: [][]int{{3}, {4}}, f: func(a in) (tensor.Tensor, error) { return tensor.Concat(0, a[0], a[1]) }},
	"Concat wrong":   {shapes: [][]int{{3, 4}, {2, 5}}, f: func(a in) (tensor.Tensor, error) { return tensor.Concat(0, a[0], a[1]) }},
	"Concat scalars": {shapes: [][]int{{}, {}}, f: func(a in) (tensor.Tensor, error) { return tensor.Concat(0, a[0], a[1]) }},
	"Vstack":         {shapes: [][]int{{3, 4}, {2, 4}}, f: func(a in) (tensor.Tensor, error) { return dense(a[0].Vstack(a[1])) }},
	"Hstack":         {shapes: [][]int{{3, 4}, {3, 2}}, f: func(a in) (tensor.Tensor, error) { return dense(a[0].Hstack(a[1])) }},
	"Stack 0":        {shapes: [][]int{{3, 4}, {3, 4}}, f: func(a in) (tensor.Tensor, error) { return tensor.Stack(0, a[0], a[1]) }, types: append(numbers, tensor.Bool)},
	"Stack 1":        {shapes: [][]int{{3, 4}, {3, 4}, {3, 4}}, f: func(a in) (tensor.Tensor, error) { return dense(a[0].Stack(1, a[1], a[2])) }},
	"Stack 2":        {shapes: [][]int{{3, 4}, {3, 4}}, f: func(a in) (tensor.Tensor, error) { return dense(a[0].Stack(2, a[1])) }},
	"Stack T":        {shapes: [][]int{{4, 3}, {3, 4}}, f: func(a in) (tensor.Tensor, error) { return dense(straight(transposed(a[0])).Stack(0, a[1])) }},
	"Stack columns": {shapes: [][]int{{3, 5}, {3, 4}}, f: func(a in) (tensor.Tensor, error) {
		return dense(straight(view(a[0], nil, tensor.S(1, 5))).Stack(0, a[1]))
	}},
	"Stack wrong":       {shapes: [][]int{{3, 4}, {3, 4}}, f: func(a in) (tensor.Tensor, error) { return dense(a[0].Stack(5, a[1])) }},
	"Repeat 0":          {shapes: [][]int{{1, 4}}, f: func(a in) (tensor.Tensor, error) { return tensor.Repeat(a[0], 0, 3) }, types: append(numbers, tensor.Bool)},
	"Repeat 1":          {shapes: [][]int{{3, 1}}, f: func(a in) (tensor.Tensor, error) { return tensor.Repeat(a[0], 1, 4) }},
	"Repeat each":       {shapes: [][]int{{3, 4}}, f: func(a in) (tensor.Tensor, error) { return tensor.Repeat(a[0], 0, 1, 0, 2) }},
	"Repeat each 1":     {shapes: [][]int{{2, 3, 2}}, f: func(a in) (tensor.Tensor, error) { return tensor.Repeat(a[0], 1, 2, 1, 0) }, types: append(numbers, tensor.Bool)},
	"Repeat each reuse": {shapes: [][]int{{3, 4}, {6, 4}}, f: func(a in) (tensor.Tensor, error) { return tensor.RepeatReuse(a[0], a[1], 0, 3, 1, 2) }},
	"Repeat each not":   {shapes: [][]int{{3, 4}}, f: func(a in) (tensor.Tensor, error) { return tensor.Repeat(a[0], 0, 0, 0, 0) }},
	"Repeat middle":     {shapes: [][]int{{3, 2, 2}}, f: func(a in) (tensor.Tensor, error) { return tensor.Repeat(a[0], 1, 2) }},
	"Repeat all":        {shapes: [][]int{{3, 4}}, f: func(a in) (tensor.Tensor, error) { return tensor.Repeat(a[0], tensor.AllAxes, 2) }},
	"Repeat scalar":     {shapes: [][]int{{}}, f: func(a in) (tensor.Tensor, error) { return tensor.Repeat(a[0], 0, 4) }},
	"Repeat vector":     {shapes: [][]int{{4}}, f: func(a in) (tensor.Tensor, error) { return tensor.Repeat(a[0], 0, 2) }},
	"Repeat T":          {shapes: [][]int{{3, 4}}, f: func(a in) (tensor.Tensor, error) { return tensor.Repeat(straight(transposed(a[0])), 0, 2) }},
	"Repeat wrong":      {shapes: [][]int{{3, 4}}, f: func(a in) (tensor.Tensor, error) { return tensor.Repeat(a[0], 0, 1, 2) }},
	"RepeatReuse":       {shapes: [][]int{{1, 4}, {3, 4}}, f: func(a in) (tensor.Tensor, error) { return tensor.RepeatReuse(a[0], a[1], 0, 3) }},
	"RepeatReuse wrong": {shapes: [][]int{{1, 4}, {3, 3}}, f: func(a in) (tensor.Tensor, error) { return tensor.RepeatReuse(a[0], a[1], 0, 3) }},
	"Diag":              {shapes: [][]int{{4, 4}}, f: func(a in) (tensor.Tensor, error) { return tensor.Diag(a[0]) }},
	"ByIndices 0":       {shapes: [][]int{{4, 3}}, f: func(a in) (tensor.Tensor, error) { return tensor.ByIndices(a[0], ints(a[0], 2, 0, 2), 0) }},
	"ByIndices 1":       {shapes: [][]int{{4, 3}}, f: func(a in) (tensor.Tensor, error) { return tensor.ByIndices(a[0], ints(a[0], 2, 0), 1) }},
	"ByIndices T": {shapes: [][]int{{4, 3}}, f: func(a in) (tensor.Tensor, error) {
		return tensor.ByIndices(straight(transposed(a[0])), ints(a[0], 1, 0), 0)
	}},
	"ByIndicesB": {shapes: [][]int{{4, 3}, {2, 3}}, f: func(a in) (tensor.Tensor, error) { return tensor.ByIndicesB(a[0], a[1], ints(a[0], 2, 2), 0) }},

	// SoftMax and its kin.
	"SoftMax":           {shapes: [][]int{{3, 4}}, f: func(a in) (tensor.Tensor, error) { return tensor.SoftMax(a[0], 1) }, finite: true},
	"SoftMax 0":         {shapes: [][]int{{3, 4}}, f: func(a in) (tensor.Tensor, error) { return tensor.SoftMax(a[0], 0) }},
	"SoftMax -1":        {shapes: [][]int{{3, 4, 2}}, f: func(a in) (tensor.Tensor, error) { return tensor.SoftMax(a[0], -1) }, finite: true},
	"SoftMax middle":    {shapes: [][]int{{3, 4, 2}}, f: func(a in) (tensor.Tensor, error) { return tensor.SoftMax(a[0], 1) }},
	"SoftMax one":       {shapes: [][]int{{1}}, f: func(a in) (tensor.Tensor, error) { return tensor.SoftMax(a[0], 0) }},
	"SoftMax ints":      {shapes: [][]int{{3, 4}}, f: func(a in) (tensor.Tensor, error) { return tensor.SoftMax(a[0], 1) }, types: []tensor.Dtype{tensor.Int}},
	"SoftMax T":         {shapes: [][]int{{4, 3}}, f: func(a in) (tensor.Tensor, error) { return tensor.SoftMax(straight(transposed(a[0])), 1) }, finite: true},
	"SoftMaxB":          {shapes: [][]int{{3, 4}, {3, 4}}, f: func(a in) (tensor.Tensor, error) { return tensor.SoftMaxB(a[0], a[1], 1) }},
	"LogSoftMax":        {shapes: [][]int{{3, 4}}, f: func(a in) (tensor.Tensor, error) { return tensor.LogSoftMax(a[0], 1) }, finite: true},
	"LogSoftMax 0":      {shapes: [][]int{{3, 4}}, f: func(a in) (tensor.Tensor, error) { return tensor.LogSoftMax(a[0], 0) }},
	"LogSoftMaxB":       {shapes: [][]int{{3, 4}, {3, 4}}, f: func(a in) (tensor.Tensor, error) { return tensor.LogSoftMaxB(a[0], a[1], 1) }},
	"LogSoftMaxB wrong": {shapes: [][]int{{3, 4}, {4, 3}}, f: func(a in) (tensor.Tensor, error) { return tensor.LogSoftMaxB(a[0], a[1], 1) }},

	// Operands that are results too, and results of another type.
	"Sub reuse a":        {shapes: [][]int{{3, 4}, {3, 4}}, f: func(a in) (tensor.Tensor, error) { return tensor.Sub(a[0], a[1], tensor.WithReuse(a[0])) }},
	"Sub reuse b":        {shapes: [][]int{{3, 4}, {3, 4}}, f: func(a in) (tensor.Tensor, error) { return tensor.Sub(a[0], a[1], tensor.WithReuse(a[1])) }},
	"Sub a a":            {shapes: [][]int{{3, 4}}, f: func(a in) (tensor.Tensor, error) { return tensor.Sub(a[0], a[0]) }},
	"Sub a a in place":   {shapes: [][]int{{3, 4}}, f: func(a in) (tensor.Tensor, error) { return tensor.Sub(a[0], a[0], tensor.UseUnsafe()) }},
	"Sub T reuse a":      {shapes: [][]int{{3, 4}, {4, 3}}, f: func(a in) (tensor.Tensor, error) { return tensor.Sub(transposed(a[0]), a[1], tensor.WithReuse(a[0])) }},
	"Mul incr a":         {shapes: [][]int{{3, 4}, {3, 4}}, f: func(a in) (tensor.Tensor, error) { return tensor.Mul(a[0], a[1], tensor.WithIncr(a[0])) }},
	"Exp reuse a":        {shapes: [][]int{{3, 4}}, f: func(a in) (tensor.Tensor, error) { return tensor.Exp(a[0], tensor.WithReuse(a[0])) }},
	"Add reuse reshaped": {shapes: [][]int{{3, 4}, {3, 4}, {2, 6}}, f: func(a in) (tensor.Tensor, error) { return tensor.Add(a[0], a[1], tensor.WithReuse(a[2])) }},
	"Add reuse T reshaped": {shapes: [][]int{{3, 4}, {3, 4}, {2, 6}}, far: impossible /* StdEng leaves its mark of a transposition there */, f: func(a in) (tensor.Tensor, error) {
		return tensor.Add(a[0], a[1], tensor.WithReuse(transposed(a[2])))
	}},
	"Gt reuse": {shapes: [][]int{{3, 4}, {3, 4}}, types: ordered, f: func(a in) (tensor.Tensor, error) {
		return tensor.Gt(a[0], a[1], tensor.WithReuse(tensor.New(tensor.Of(tensor.Bool), tensor.WithShape(3, 4), tensor.WithEngine(a[0].Engine()))))
	}},
	"Lt scalar reuse": {shapes: [][]int{{3, 4}}, types: ordered, f: func(a in) (tensor.Tensor, error) {
		return tensor.Lt(a[0], value(a[0].Dtype(), 1), tensor.WithReuse(tensor.New(tensor.Of(tensor.Bool), tensor.WithShape(3, 4), tensor.WithEngine(a[0].Engine()))))
	}},

	// No elements.
	"Clone empty":       {shapes: [][]int{{0, 3}}, f: func(a in) (tensor.Tensor, error) { return a[0].Clone().(tensor.Tensor), nil }},
	"Exp empty":         {shapes: [][]int{{0, 3}}, f: func(a in) (tensor.Tensor, error) { return tensor.Exp(a[0]) }},
	"Sum empty":         {shapes: [][]int{{0, 3}}, f: func(a in) (tensor.Tensor, error) { return tensor.Sum(a[0]) }},
	"Sum 0 empty":       {shapes: [][]int{{0, 3}}, f: func(a in) (tensor.Tensor, error) { return tensor.Sum(a[0], 1) }},
	"Max empty":         {shapes: [][]int{{0}}, f: func(a in) (tensor.Tensor, error) { return dense(a[0].Max()) }},
	"Concat empty":      {shapes: [][]int{{2, 3}, {0, 3}}, f: func(a in) (tensor.Tensor, error) { return tensor.Concat(0, a[0], a[1]) }},
	"Stack empty":       {shapes: [][]int{{0, 3}, {0, 3}}, f: func(a in) (tensor.Tensor, error) { return tensor.Stack(0, a[0], a[1]) }},
	"MatMul empty":      {shapes: [][]int{{0, 3}, {3, 2}}, f: func(a in) (tensor.Tensor, error) { return tensor.MatMul(a[0], a[1]) }},
	"Repeat to nothing": {shapes: [][]int{{2, 3}}, f: func(a in) (tensor.Tensor, error) { return tensor.Repeat(a[0], 0, 0) }},
	"T empty":           {shapes: [][]int{{0, 3}}, f: func(a in) (tensor.Tensor, error) { return tensor.Transpose(a[0]) }},
	"SoftMax empty":     {shapes: [][]int{{0, 3}}, f: func(a in) (tensor.Tensor, error) { return tensor.SoftMax(a[0], 1) }},
	"Gt empty":          {shapes: [][]int{{0, 3}, {0, 3}}, f: func(a in) (tensor.Tensor, error) { return tensor.Gt(a[0], a[1]) }},

	// Norms.
	"Norm":         {shapes: [][]int{{3, 4}}, f: func(a in) (tensor.Tensor, error) { return dense(a[0].Norm(tensor.UnorderedNorm())) }, far: impossible, lossy: true},
	"Norm 2 0":     {shapes: [][]int{{3, 4}}, f: func(a in) (tensor.Tensor, error) { return dense(a[0].Norm(tensor.Norm(2), 0)) }, lossy: true},
	"Norm 1 1":     {shapes: [][]int{{3, 4}}, f: func(a in) (tensor.Tensor, error) { return dense(a[0].Norm(tensor.Norm(1), 1)) }, lossy: true},
	"Norm inf":     {shapes: [][]int{{3, 4}}, f: func(a in) (tensor.Tensor, error) { return dense(a[0].Norm(tensor.InfNorm(), 0, 1)) }, lossy: true},
	"Norm nuclear": {shapes: [][]int{{3, 4}}, f: func(a in) (tensor.Tensor, error) { return dense(a[0].Norm(tensor.NuclearNorm(), 0, 1)) }, lossy: true, types: floats[:1], finite: true},
}

var isProduct = regexp.MustCompile("Mul|Dot|Contract|Inner|Outer")

// TestEngineOperations compares the rest of tensor's operations with StdEng.
func TestEngineOperations(t *testing.T) {
	for name, c := range opCases {
		t.Run(name, func(t *testing.T) {
			both(t, func(t *testing.T, e *bench) {
				types := c.types
				if types == nil {
					types = floats
				}
				for _, dt := range types {
					switch {
					case e.Far && c.far == impossible:
					case e.Far && c.far == fails:
						e.requireFails(dt, c)
					// cuBLAS multiplies zeros with infinities. tensor leaves them out where the first
					// matrix is multiplied by rows, as copies of transposed matrices are.
					case c.finite || e.GPU || e.Far && isProduct.MatchString(name):
						e.compareOn(nil, fmt.Sprint(name, dt), dt, c.shapes, c.lossy, c.f)
					default:
						e.compare(fmt.Sprint(name, dt), dt, c.shapes, c.lossy, c.f)
					}
				}
			})
		})
	}
}

// requireFails requires an error, and nothing else to change.
func (e *bench) requireFails(dt tensor.Dtype, c opCase) {
	var want, got []*tensor.Dense
	for _, s := range c.shapes {
		want = append(want, random(e.Rand, dt, s...))
		got = append(got, e.From(want[len(want)-1]))
	}
	_, err := c.f(got)
	require.Error(e.T, err)
	for i := range want {
		e.RequireSame(want[i], got[i], "operand")
		e.FreeAll(got[i])
	}
}

// TestEngineValues compares the operations that return no tensor.
func TestEngineValues(t *testing.T) {
	both(t, func(t *testing.T, e *bench) {
		for _, dt := range floats {
			a, b, m := random(e.Rand, dt, 5), random(e.Rand, dt, 5), random(e.Rand, dt, 3, 4)
			pa, pb, pm := e.From(a), e.From(b), e.From(m)
			require.Equal(t, must(a.Inner(b)), must(pa.Inner(pb)))
			require.Equal(t, must(m.Trace()), must(pm.Trace()))
			_, err := pa.Inner(pm)
			require.Error(t, err)
			_, err = pa.Trace()
			require.Error(t, err)
			for _, uv := range []bool{false, true} {
				live := e.Live()
				s, u, v, err := m.SVD(uv, false)
				require.NoError(t, err)
				ps, pu, pv, err := pm.SVD(uv, false)
				require.NoError(t, err)
				e.RequireSame(s, ps, "s")
				require.True(t, e.Owns(ps))
				require.Same(t, e.Engine, ps.Engine())
				e.FreeAll(ps)
				if uv {
					e.RequireSame(u, pu, "u")
					e.RequireSame(v, pv, "v")
					require.True(t, e.Owns(pu) && e.Owns(pv))
					e.FreeAll(pu, pv)
				}
				require.Equal(t, live, e.Live())
			}
			_, _, _, err = pm.SVD(false, true)
			require.Error(t, err)
			e.FreeAll(pa, pb, pm)
		}
	})
}

// Lifetimes change nothing of what operations compute.
func TestLifetimesOperations(t *testing.T) {
	e := newBench(t, false, cupool.WithLifetimes())
	for name, c := range opCases {
		dt := tensor.Float32
		if c.types != nil {
			dt = c.types[0]
		}
		e.compareOn(nil, name, dt, c.shapes, c.lossy, c.f)
	}
	e.Collect(0)
}
