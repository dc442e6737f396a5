package tensors_test

import (
	"bytes"
	"encoding/gob"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"gorgonia.org/tensor"
	tnative "gorgonia.org/tensor/native"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/testkit/enginetest"
)

// What becomes of a call of package tensor on memory that the CPU cannot touch.
const (
	works    = "works"    // it returns what it does in Go's heap
	fails    = "fails"    // with an *EngineError
	declines = "declines" // with an error of tensor's own
	faults   = "faults"   // ends the process; in Try it fails with an *EngineError
)

// newTensor makes a tensor on the device, or in Go's heap.
type newTensor func(shape tensor.Shape, values ...float64) *tensor.Dense

func (m newTensor) matrix() *tensor.Dense { return m(tensor.Shape{2, 3}, 1, 2, 3, 4, 5, 6) }
func (m newTensor) square() *tensor.Dense { return m(tensor.Shape{2, 2}, 7, 8, 9, 10) }
func (m newTensor) vector() *tensor.Dense { return m(tensor.Shape{3}, 3, 1, 2) }
func (m newTensor) column() tensor.View   { return view(m.matrix(), nil, tensor.S(1)) }
func (m newTensor) row() tensor.View      { return view(m.matrix(), tensor.S(1)) }

func (m newTensor) transposed() *tensor.Dense {
	d := m.matrix()
	if err := d.T(); err != nil {
		panic(err)
	}
	return d
}

// inHeap makes tensors in Go's heap.
func inHeap(shape tensor.Shape, values ...float64) *tensor.Dense {
	return tensor.New(tensor.WithShape(shape...), tensor.WithBacking(values))
}

var heap newTensor = inHeap

// farCalls are what programs call of package tensor.
var farCalls = []struct {
	name, outcome string
	call          func(m newTensor) (any, error)
}{
	// Making and moving.
	{"FromHost", works, func(m newTensor) (any, error) { return m.matrix(), nil }},
	{"New like another", works, func(m newTensor) (any, error) {
		d := m.matrix()
		return tensor.New(tensor.WithShape(2, 2), tensor.Of(tensor.Float64), tensor.WithEngine(d.Engine())), nil
	}},
	{"Clone", works, func(m newTensor) (any, error) { return m.matrix().Clone(), nil }},
	{"Clone of a column", works, func(m newTensor) (any, error) { return m.column().Clone(), nil }},
	{"ShallowClone", works, func(m newTensor) (any, error) { return m.matrix().ShallowClone(), nil }},
	{"Copy to the host", works, func(m newTensor) (any, error) { d := heap.square(); return d, tensor.Copy(d, m.square()) }},
	{"Copy within the device", works, func(m newTensor) (any, error) {
		d := m(tensor.Shape{2, 2}, 0, 0, 0, 0)
		return d, tensor.Copy(d, m.square())
	}},
	{"Copy from the host", faults, func(m newTensor) (any, error) { d := m.square(); return d, tensor.Copy(d, heap.square()) }},
	{"Copy of a column", declines, func(m newTensor) (any, error) {
		d := heap(tensor.Shape{2}, 0, 0)
		return d, tensor.Copy(d, m.column())
	}},
	{"Copy to a column", declines, func(m newTensor) (any, error) {
		d := m.matrix()
		return d, tensor.Copy(view(d, nil, tensor.S(1)), heap(tensor.Shape{2}, 8, 9))
	}},
	{"CopyTo", works, func(m newTensor) (any, error) { d := heap.matrix(); return d, m.matrix().CopyTo(d) }},

	// Shapes.
	{"Slice of a row", works, func(m newTensor) (any, error) { return m.row(), nil }},
	{"Slice of a column", works, func(m newTensor) (any, error) { return m.column(), nil }},
	{"SliceInto", works, func(m newTensor) (any, error) { return m.matrix().SliceInto(new(tensor.Dense), tensor.S(1)) }},
	{"Narrow to rows", works, func(m newTensor) (any, error) { return m.matrix().Narrow(0, 1, 1) }},
	{"Narrow to columns", works, func(m newTensor) (any, error) { return m.matrix().Narrow(1, 1, 2) }},
	{"Materialize a row", works, func(m newTensor) (any, error) { return m.row().Materialize(), nil }},
	{"Materialize a column", fails, func(m newTensor) (any, error) { return m.column().Materialize(), nil }},
	{"Materialize a column and add", fails, func(m newTensor) (any, error) {
		c := m.column().Materialize()
		return tensor.Add(c, c)
	}},
	{"Materialize a column and copy", fails, func(m newTensor) (any, error) {
		d := heap(tensor.Shape{2}, 0, 0)
		return d, tensor.Copy(d, m.column().Materialize())
	}},
	{"Materialize a column and clone", fails, func(m newTensor) (any, error) { return m.column().Materialize().(*tensor.Dense).Clone(), nil }},
	{"Materialize a transposed", fails, func(m newTensor) (any, error) { return m.transposed().Materialize(), nil }},
	{"T", works, func(m newTensor) (any, error) { return m.transposed(), nil }},
	{"T and Transpose", works, func(m newTensor) (any, error) { d := m.transposed(); return d, d.Transpose() }},
	{"SafeT", works, func(m newTensor) (any, error) { return m.matrix().SafeT() }},
	{"tensor.T", works, func(m newTensor) (any, error) { return tensor.T(m.matrix()) }},
	{"tensor.Transpose", works, func(m newTensor) (any, error) { return tensor.Transpose(m.matrix()) }},
	{"UT", works, func(m newTensor) (any, error) { d := m.transposed(); d.UT(); return d, nil }},
	{"Reshape", works, func(m newTensor) (any, error) { d := m.matrix(); return d, d.Reshape(3, 2) }},
	{"Reshape of a transposed", works, func(m newTensor) (any, error) { d := m.transposed(); return d, d.Reshape(2, 3) }},
	{"RollAxis", works, func(m newTensor) (any, error) { return m.matrix().RollAxis(1, 0, true) }},
	{"Concat", works, func(m newTensor) (any, error) { return m.matrix().Concat(1, m.square()) }},
	{"Hstack", works, func(m newTensor) (any, error) { return m.matrix().Hstack(m.square()) }},
	{"Vstack", works, func(m newTensor) (any, error) { return m.matrix().Vstack(m.matrix()) }},
	{"Stack", works, func(m newTensor) (any, error) { return m.matrix().Stack(0, m.matrix()) }},
	{"tensor.Stack", works, func(m newTensor) (any, error) { return tensor.Stack(1, m.matrix(), m.matrix()) }},
	{"Repeat", works, func(m newTensor) (any, error) { return tensor.Repeat(m.matrix(), 1, 2) }},
	{"Diag", works, func(m newTensor) (any, error) { return tensor.Diag(m.square()) }},
	{"ByIndices", works, func(m newTensor) (any, error) {
		return tensor.ByIndices(m.matrix(), tensor.New(tensor.WithBacking([]int{1, 0, 1})), 0)
	}},

	// Computing.
	{"Add", works, func(m newTensor) (any, error) { return tensor.Add(m.matrix(), m.matrix()) }},
	{"Add of columns", works, func(m newTensor) (any, error) { return tensor.Add(m.column(), m.column()) }},
	{"Add to a host tensor", works, func(m newTensor) (any, error) { return tensor.Add(m.matrix(), heap.matrix()) }},
	{"Add of a host tensor", declines, func(m newTensor) (any, error) { return tensor.Add(heap.matrix(), m.matrix()) }},
	{"Sub", works, func(m newTensor) (any, error) { return m.matrix().Sub(m.matrix()) }},
	{"Mul", works, func(m newTensor) (any, error) { return m.matrix().Mul(m.matrix()) }},
	{"Div", works, func(m newTensor) (any, error) { return tensor.Div(m.matrix(), m.matrix(), tensor.UseUnsafe()) }},
	{"Pow", works, func(m newTensor) (any, error) { return tensor.Pow(m.matrix(), 2.0) }},
	{"AddScalar", works, func(m newTensor) (any, error) { return m.matrix().AddScalar(2.0, true) }},
	{"MulScalar", works, func(m newTensor) (any, error) { return tensor.Mul(2.0, m.matrix()) }},
	{"Gt", works, func(m newTensor) (any, error) { return tensor.Gt(m.matrix(), 2.0) }},
	{"ElEq", works, func(m newTensor) (any, error) { return tensor.ElEq(m.matrix(), m.matrix(), tensor.AsSameType()) }},
	{"Sqrt", works, func(m newTensor) (any, error) { return tensor.Sqrt(m.matrix()) }},
	{"Exp", works, func(m newTensor) (any, error) { return tensor.Exp(m.matrix()) }},
	{"Neg", works, func(m newTensor) (any, error) { return tensor.Neg(m.matrix(), tensor.UseUnsafe()) }},
	{"Clamp", works, func(m newTensor) (any, error) { return tensor.Clamp(m.matrix(), 2.0, 4.0) }},
	{"Apply", works, func(m newTensor) (any, error) {
		return m.matrix().Apply(func(x float64) float64 { return x * x })
	}},
	{"SoftMax", works, func(m newTensor) (any, error) { return tensor.SoftMax(m.matrix(), 1) }},
	{"Sum", works, func(m newTensor) (any, error) { return m.matrix().Sum() }},
	{"Sum of rows", works, func(m newTensor) (any, error) { return tensor.Sum(m.matrix(), 1) }},
	{"Max", works, func(m newTensor) (any, error) { return m.matrix().Max(0) }},
	{"Argmax", works, func(m newTensor) (any, error) { return tensor.Argmax(m.matrix(), 1) }},
	{"Reduce", works, func(m newTensor) (any, error) {
		return m.matrix().Reduce(func(a, b float64) float64 { return a * b }, 0, 1.0)
	}},
	{"MatMul", works, func(m newTensor) (any, error) { return m.square().MatMul(m.matrix()) }},
	{"tensor.MatMul", works, func(m newTensor) (any, error) { return tensor.MatMul(m.transposed(), m.square()) }},
	{"MatVecMul", works, func(m newTensor) (any, error) { return m.matrix().MatVecMul(m.vector()) }},
	{"Dot", works, func(m newTensor) (any, error) { return tensor.Dot(m.square(), m.matrix()) }},
	{"Inner", works, func(m newTensor) (any, error) { return tensor.Inner(m.vector(), m.vector()) }},
	{"Outer", works, func(m newTensor) (any, error) { return tensor.Outer(m.vector(), m.vector()) }},
	{"Outer with WithReuse", faults, func(m newTensor) (any, error) {
		return m.vector().Outer(m.vector(), tensor.WithReuse(m(tensor.Shape{3, 3}, make([]float64, 9)...)))
	}},
	{"TensorMul", works, func(m newTensor) (any, error) { return m.matrix().TensorMul(m.square(), []int{0}, []int{0}) }},
	{"Contract", works, func(m newTensor) (any, error) {
		return tensor.Contract(m.matrix(), m.matrix(), []int{0, 1}, []int{0, 1})
	}},
	{"Trace", works, func(m newTensor) (any, error) { return m.square().Trace() }},
	{"Norm", faults, func(m newTensor) (any, error) { return m.vector().Norm(tensor.Norm(2)) }},
	{"SVD", works, func(m newTensor) (any, error) {
		s, u, v, err := m.square().SVD(true, true)
		_, _ = u, v
		return s, err
	}},
	{"FMA", works, func(m newTensor) (any, error) { return tensor.FMA(m.matrix(), 2.0, m.matrix()) }},

	// Elements.
	{"At", declines, func(m newTensor) (any, error) { return m.matrix().At(1, 2) }},
	{"SetAt", declines, func(m newTensor) (any, error) { d := m.matrix(); return d, d.SetAt(9.0, 1, 2) }},
	{"Memset", declines, func(m newTensor) (any, error) { d := m.matrix(); return d, d.Memset(9.0) }},
	{"Zero", faults, func(m newTensor) (any, error) { d := m.matrix(); d.Zero(); return d, nil }},
	{"Get", faults, func(m newTensor) (any, error) { return m.matrix().Get(1), nil }},
	{"Set", faults, func(m newTensor) (any, error) { d := m.matrix(); d.Set(1, 9.0); return d, nil }},
	{"Data", faults, func(m newTensor) (any, error) { return append([]float64(nil), m.matrix().Data().([]float64)...), nil }},
	{"Float64s", faults, func(m newTensor) (any, error) { return m.matrix().Float64s()[2], nil }},
	{"ScalarValue", faults, func(m newTensor) (any, error) {
		d, err := m.matrix().Sum()
		if err != nil {
			return nil, err
		}
		return d.ScalarValue(), nil
	}},
	{"Eq", faults, func(m newTensor) (any, error) { return m.matrix().Eq(m.matrix()), nil }},
	{"Eq of shapes that differ", works, func(m newTensor) (any, error) { return m.matrix().Eq(m.square()), nil }},
	{"Iterator", works, func(m newTensor) (any, error) {
		var at []int
		it := m.column().(*tensor.Dense).Iterator()
		for i, err := it.Next(); err == nil; i, err = it.Next() {
			at = append(at, i)
		}
		return at, nil
	}},
	{"MaskedEqual", faults, func(m newTensor) (any, error) {
		d := m.matrix()
		err := d.MaskedEqual(3.0)
		return d.Mask(), err
	}},
	{"native.MatrixF64", declines, func(m newTensor) (any, error) {
		x, err := tnative.MatrixF64(m.matrix())
		if err != nil {
			return nil, err
		}
		return x[1][2], nil
	}},
	{"native.Matrix", declines, func(m newTensor) (any, error) {
		x, err := tnative.Matrix(m.matrix())
		if err != nil {
			return nil, err
		}
		return x.([][]float64)[1][2], nil
	}},
	{"native.SelectF64", declines, func(m newTensor) (any, error) {
		x, err := tnative.SelectF64(m.matrix(), 0)
		if err != nil {
			return nil, err
		}
		return x[1][2], nil
	}},
	{"ToMat64", declines, func(m newTensor) (any, error) {
		x, err := tensor.ToMat64(m.matrix())
		if err != nil {
			return nil, err
		}
		return x.At(1, 2), nil
	}},

	// Printing and writing.
	{"%v", faults, func(m newTensor) (any, error) { return fmt.Sprintf("%v", m.matrix()), nil }},
	{"%s", faults, func(m newTensor) (any, error) { return fmt.Sprintf("%s", m.matrix()), nil }},
	{"%+v", faults, func(m newTensor) (any, error) { return fmt.Sprintf("%+v", m.matrix()), nil }},
	{"%p", works, func(m newTensor) (any, error) { return len(fmt.Sprintf("%p", m.matrix())) > 2, nil }},
	{"%v of the shape", works, func(m newTensor) (any, error) { return fmt.Sprintf("%v", m.matrix().Shape()), nil }},
	{"String", works, func(m newTensor) (any, error) { return m.matrix().String(), nil }},
	{"gob", faults, func(m newTensor) (any, error) {
		var b bytes.Buffer
		err := gob.NewEncoder(&b).Encode(m.matrix())
		return b.Bytes(), err
	}},
	{"JSON", works, func(m newTensor) (any, error) { return json.Marshal(m.matrix().Shape()) }},
	{"npy", faults, func(m newTensor) (any, error) {
		var b bytes.Buffer
		err := m.matrix().WriteNpy(&b)
		return b.Bytes(), err
	}},
	{"CSV", faults, func(m newTensor) (any, error) {
		var b bytes.Buffer
		err := m.matrix().WriteCSV(&b)
		return b.String(), err
	}},
	{"PBEncode", faults, func(m newTensor) (any, error) { return m.matrix().PBEncode() }},
	{"FBEncode", faults, func(m newTensor) (any, error) { return m.matrix().FBEncode() }},
}

// TestTensorsFarAway: what a program calls of package tensor, on memory that the
// CPU cannot touch, does what it does in Go's heap, or fails with an error. In
// Try nothing ends the process, and nothing gives wrong values in silence.
func TestTensorsFarAway(t *testing.T) {
	for _, c := range farCalls {
		t.Run(c.name, func(t *testing.T) {
			e := enginetest.New(t, true)
			s := e.Scope()
			defer func() { require.NoError(t, s.Close()) }()
			want, err := c.call(inHeap)
			require.NoError(t, err)
			want, err = atHome(e, want)
			require.NoError(t, err)
			var got any
			err = cupool.Try(func() error {
				var err error
				got, err = c.call(func(shape tensor.Shape, values ...float64) *tensor.Dense { return e.From(inHeap(shape, values...)) })
				if err == nil {
					got, err = atHome(e, got)
				}
				return err
			})
			outcome := outcomeOf(err)
			if s, ok := got.(string); ok && strings.Contains(s, "PANIC=Format method") {
				outcome = faults // which fmt catches in Try
			}
			assert.Equal(t, c.outcome, outcome, "%v", err)
			if outcome == works {
				assert.Equal(t, want, got)
			}
		})
	}
}

// outcomeOf says what an error of Try means.
func outcomeOf(err error) string {
	var ours *cupool.EngineError
	switch {
	case err == nil:
		return works
	case errors.As(err, &ours) && strings.Contains(err.Error(), "the CPU cannot touch address 0x"):
		return faults
	case errors.As(err, &ours):
		return fails
	}
	return declines
}

// atHome returns what is to be compared of a result: the shape and the values of
// a tensor.
func atHome(e *bench, r any) (any, error) {
	t, ok := r.(tensor.Tensor)
	if !ok {
		return r, nil
	}
	h, err := e.ToHost(t)
	if err != nil {
		return nil, err
	}
	return []any{h.Shape().Clone(), h.Data()}, nil
}
