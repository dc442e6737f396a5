package tensorop_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
	"gorgonia.org/tensor"

	"github.com/cupool/cupool"
)

// An optional is an interface that package tensor looks for in an engine.
type optional struct {
	of     reflect.Type
	copies bool // a GPU's engine computes it on copies in host memory
	do     func(e *bench, x, y *tensor.Dense) (any, error)
}

func optionalOf[T any](do func(e *bench, x, y *tensor.Dense) (any, error)) optional {
	return optional{of: reflect.TypeFor[T](), do: do}
}

func onCopies(o optional) optional {
	o.copies = true
	return o
}

// ofOne, ofTwo and ofAxis are operations in tensor's forms.
func ofOne(f unaryFunc) func(*bench, *tensor.Dense, *tensor.Dense) (any, error) {
	return func(_ *bench, x, _ *tensor.Dense) (any, error) { return f(x) }
}

func ofTwo(f binaryFunc) func(*bench, *tensor.Dense, *tensor.Dense) (any, error) {
	return func(_ *bench, x, y *tensor.Dense) (any, error) { return f(x, y) }
}

func ofAxis(f func(x *tensor.Dense, along ...int) (*tensor.Dense, error)) func(*bench, *tensor.Dense, *tensor.Dense) (any, error) {
	return func(_ *bench, x, _ *tensor.Dense) (any, error) { return f(x, 1) }
}

var optionals = map[string]optional{
	"Adder": optionalOf[tensor.Adder](ofTwo(tensor.Add)), "Suber": optionalOf[tensor.Suber](ofTwo(tensor.Sub)), "Muler": optionalOf[tensor.Muler](ofTwo(tensor.Mul)),
	"Diver": optionalOf[tensor.Diver](ofTwo(tensor.Div)), "Power": optionalOf[tensor.Power](ofTwo(tensor.Pow)), "Moder": optionalOf[tensor.Moder](ofTwo(tensor.Mod)),
	"MinBetweener": optionalOf[tensor.MinBetweener](ofTwo(tensor.MinBetween)), "MaxBetweener": optionalOf[tensor.MaxBetweener](ofTwo(tensor.MaxBetween)),
	"Lter": optionalOf[tensor.Lter](ofTwo(tensor.Lt)), "Lteer": optionalOf[tensor.Lteer](ofTwo(tensor.Lte)), "Gter": optionalOf[tensor.Gter](ofTwo(tensor.Gt)),
	"Gteer": optionalOf[tensor.Gteer](ofTwo(tensor.Gte)), "ElEqer": optionalOf[tensor.ElEqer](ofTwo(tensor.ElEq)),
	"FMAer": optionalOf[tensor.FMAer](func(e *bench, x, y *tensor.Dense) (any, error) { return tensor.FMA(x, y, must(e.FromHost(e.Host(x)))) }),
	"Neger": optionalOf[tensor.Neger](ofOne(tensor.Neg)), "Inver": optionalOf[tensor.Inver](ofOne(tensor.Inv)), "Squarer": optionalOf[tensor.Squarer](ofOne(tensor.Square)),
	"Cuber": optionalOf[tensor.Cuber](ofOne(tensor.Cube)), "Exper": optionalOf[tensor.Exper](ofOne(tensor.Exp)), "Tanher": optionalOf[tensor.Tanher](ofOne(tensor.Tanh)),
	"Loger": optionalOf[tensor.Loger](ofOne(tensor.Log)), "Log2er": optionalOf[tensor.Log2er](ofOne(tensor.Log2)), "Log10er": optionalOf[tensor.Log10er](ofOne(tensor.Log10)),
	"Sqrter": optionalOf[tensor.Sqrter](ofOne(tensor.Sqrt)), "Cbrter": optionalOf[tensor.Cbrter](ofOne(tensor.Cbrt)), "InvSqrter": optionalOf[tensor.InvSqrter](ofOne(tensor.InvSqrt)),
	"Signer": optionalOf[tensor.Signer](ofOne(tensor.Sign)), "Abser": optionalOf[tensor.Abser](ofOne(tensor.Abs)), "Clamper": optionalOf[tensor.Clamper](ofOne(unaryFuncs["Clamp"])),
	"Mapper":    onCopies(optionalOf[tensor.Mapper](ofOne(unaryFuncs["Apply"]))),
	"SoftMaxer": optionalOf[tensor.SoftMaxer](func(_ *bench, x, _ *tensor.Dense) (any, error) { return tensor.SoftMax(x, 1) }),
	"Sumer":     optionalOf[tensor.Sumer](ofAxis((*tensor.Dense).Sum)), "Maxer": optionalOf[tensor.Maxer](ofAxis((*tensor.Dense).Max)), "Miner": optionalOf[tensor.Miner](ofAxis((*tensor.Dense).Min)),
	"Argmaxer": optionalOf[tensor.Argmaxer](func(_ *bench, x, _ *tensor.Dense) (any, error) { return x.Argmax(1) }),
	"Argminer": optionalOf[tensor.Argminer](func(_ *bench, x, _ *tensor.Dense) (any, error) { return x.Argmin(1) }),
	"Reducer": onCopies(optionalOf[tensor.Reducer](func(_ *bench, x, _ *tensor.Dense) (any, error) {
		return x.Reduce(func(x, y float64) float64 { return x + y }, 1, 0.0)
	})),
	"OptimizedReducer": onCopies(optionalOf[tensor.OptimizedReducer](func(e *bench, x, _ *tensor.Dense) (any, error) {
		add := func(x, y float64) float64 { return x + y }
		return e.OptimizedReduce(x, 1, func(xs, ys []float64) {}, func(xs []float64) float64 { return xs[0] }, add, 0.0)
	})),
	"Tracer": optionalOf[tensor.Tracer](func(_ *bench, x, _ *tensor.Dense) (any, error) { return x.Trace() }),
	"MatMuler": optionalOf[tensor.MatMuler](ofTwo(func(a, b interface{}, opts ...tensor.FuncOpt) (tensor.Tensor, error) {
		return tensor.MatMul(a.(tensor.Tensor), b.(tensor.Tensor), opts...)
	})),
	"MatVecMuler": optionalOf[tensor.MatVecMuler](func(_ *bench, x, y *tensor.Dense) (any, error) { return tensor.MatVecMul(x, row(y)) }),
	"InnerProder": optionalOf[tensor.InnerProder](func(_ *bench, x, y *tensor.Dense) (any, error) { return row(x).Inner(row(y)) }),
	"OuterProder": optionalOf[tensor.OuterProder](func(_ *bench, x, y *tensor.Dense) (any, error) { return tensor.Outer(row(x), row(y)) }),
	"Dotter": optionalOf[tensor.Dotter](ofTwo(func(a, b interface{}, opts ...tensor.FuncOpt) (tensor.Tensor, error) {
		return tensor.Dot(a.(tensor.Tensor), b.(tensor.Tensor), opts...)
	})),
	"SVDer": onCopies(optionalOf[tensor.SVDer](func(_ *bench, x, _ *tensor.Dense) (any, error) {
		s, _, _, err := x.SVD(false, false)
		return s, err
	})),
	"Transposer": optionalOf[tensor.Transposer](func(e *bench, x, _ *tensor.Dense) (any, error) {
		c := must(e.FromHost(e.Host(x)))
		must(0, c.T())
		return c, c.Transpose()
	}),
	"Concater":     optionalOf[tensor.Concater](func(_ *bench, x, y *tensor.Dense) (any, error) { return tensor.Concat(0, x, y) }),
	"DenseStacker": optionalOf[tensor.DenseStacker](func(_ *bench, x, y *tensor.Dense) (any, error) { return tensor.Stack(0, x, y) }),
	"Repeater":     optionalOf[tensor.Repeater](func(_ *bench, x, _ *tensor.Dense) (any, error) { return tensor.Repeat(x, 0, 2) }),
	"Diager":       onCopies(optionalOf[tensor.Diager](func(_ *bench, x, _ *tensor.Dense) (any, error) { return tensor.Diag(x) })),
	"ByIndiceser": optionalOf[tensor.ByIndiceser](func(e *bench, x, _ *tensor.Dense) (any, error) {
		return tensor.ByIndices(x, e.From(tensor.New(tensor.WithBacking([]int{2, 0}))), 0)
	}),
}

// row is the first row of a matrix.
func row(x *tensor.Dense) *tensor.Dense { return must(x.Slice(tensor.S(0))).(*tensor.Dense) }

// TestOptionalInterfaces: an engine has all of package tensor's optional interfaces that StdEng has, and a GPU computes
// the operations without copies in host memory, but for those that are named here.
func TestOptionalInterfaces(t *testing.T) {
	both(t, func(t *testing.T, e *bench) {
		for name, o := range optionals {
			require.True(t, reflect.TypeFor[tensor.StdEng]().Implements(o.of), name)
			require.True(t, reflect.TypeFor[*cupool.Engine]().Implements(o.of), name)
			all := e.Scope()
			x := e.From(tensor.New(tensor.WithShape(3, 3), tensor.WithBacking([]float64{1, 2, 3, 4, 5, 6, 7, 8, 10})))
			y := e.From(tensor.New(tensor.WithShape(3, 3), tensor.WithBacking([]float64{3, 1, 4, 1, 5, 9, 2, 6, 5})))
			before := e.Stats().Fallbacks
			_, err := o.do(e, x, y)
			require.NoError(t, err, name)
			require.True(t, !e.GPU || o.copies == (e.Stats().Fallbacks > before), "%s is computed on copies, or not", name)
			require.NoError(t, all.Close())
		}
	})
}

// TestEveryOptionalInterfaceIsTried finds the interfaces in tensor's source.
func TestEveryOptionalInterfaceIsTried(t *testing.T) {
	file, _ := runtime.FuncForPC(reflect.ValueOf(tensor.Add).Pointer()).FileLine(reflect.ValueOf(tensor.Add).Pointer())
	parsed, err := parser.ParseFile(token.NewFileSet(), filepath.Join(filepath.Dir(file), "engine.go"), nil, parser.SkipObjectResolution)
	if err != nil {
		t.Skip("tensor's source is not there: the test was built with -trimpath")
	}
	ast.Inspect(parsed, func(n ast.Node) bool {
		spec, ok := n.(*ast.TypeSpec)
		if !ok || !spec.Name.IsExported() {
			return true
		}
		switch spec.Name.Name {
		case "Memory", "Engine", "NonStdEngine": // which every engine is
		case "Stacker", "Proder", "NaNChecker", "InfChecker", "InnerProderF32", "InnerProderF64": // which StdEng is not
		default:
			require.Contains(t, optionals, spec.Name.Name)
		}
		return true
	})
}
