package tensorop_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"gorgonia.org/tensor"

	"github.com/cupool/cupool/internal/testkit"
)

// stepped is a slice with steps.
type stepped struct{ start, end, step int }

func (s stepped) Start() int { return s.start }
func (s stepped) End() int   { return s.end }
func (s stepped) Step() int  { return s.step }

// reshaping is what tensor lets a program do to how a tensor is laid out.
type reshaping func(d *tensor.Dense) (*tensor.Dense, error)

// randomLayout returns a tensor of random elements, and how to get a view of it by
// a few transpositions and slices.
func randomLayout(r *rand.Rand, dt tensor.Dtype) (base *tensor.Dense, how []reshaping, name string) {
	var shape tensor.Shape
	for range 1 + r.IntN(4) {
		shape = append(shape, 1+r.IntN(4))
	}
	base = random(r, dt, shape...)
	if r.IntN(4) == 0 {
		base = tensor.New(tensor.WithShape(shape...), tensor.AsFortran(base.Data()))
	}
	name = fmt.Sprint(dt, base.DataOrder(), shape)
	dims := base.Clone().(*tensor.Dense) // as the view will be
	for range r.IntN(4) {
		var f reshaping
		switch axes := r.Perm(dims.Dims()); r.IntN(4) {
		case 0:
			if dims.DataOrder().IsColMajor() && len(how) > 0 {
				continue // StdEng may move elements for it, in that order to wrong places
			}
			name += fmt.Sprint(" T", axes)
			f = func(d *tensor.Dense) (*tensor.Dense, error) { return d, d.T(slices.Clone(axes)...) } // it keeps and recycles them
		case 1:
			name += fmt.Sprint(" SafeT", axes)
			f = func(d *tensor.Dense) (*tensor.Dense, error) { return d.SafeT(slices.Clone(axes)...) }
		default:
			var cuts []tensor.Slice
			for _, n := range dims.Shape()[:r.IntN(dims.Dims()+1)] {
				from := r.IntN(n)
				cuts = append(cuts, []tensor.Slice{nil, tensor.S(from), stepped{from, from + 1 + r.IntN(n-from), 1 + r.IntN(2)*r.IntN(3)}}[r.IntN(3)])
			}
			name += fmt.Sprint(" slice", cuts)
			f = func(d *tensor.Dense) (*tensor.Dense, error) { return sliced(d, cuts...) }
		}
		done := attempt(func([]*tensor.Dense) (tensor.Tensor, error) { return f(dims) }, nil)
		if done.err != nil || done.panic != nil || done.result.Dims() == 0 {
			break
		}
		dims, how = done.result.(*tensor.Dense), append(how, f)
	}
	return base, how, name
}

func sliced(d *tensor.Dense, cuts ...tensor.Slice) (*tensor.Dense, error) {
	v, err := d.Slice(cuts...)
	if err != nil {
		return nil, err
	}
	return v.(*tensor.Dense), nil
}

// laidOut is a tensor of StdEng and a copy of it in the pool, both laid out in the
// same way.
type laidOut struct{ host, pool *tensor.Dense }

func (e *bench) layOut(base *tensor.Dense, how []reshaping) laidOut {
	l := laidOut{host: base, pool: e.From(base)}
	for _, f := range how {
		l.host, l.pool = must(f(l.host)), must(f(l.pool))
	}
	return l
}

// byIndices returns the elements of a tensor that the CPU can touch in row-major
// order, one by one as its strides say.
func byIndices(d *tensor.Dense) (all []any) {
	if d.Shape().TotalSize() == 1 {
		return []any{d.Get(0)}
	}
	strides := d.Strides()
	var walk func(axis, at int)
	walk = func(axis, at int) {
		if axis == d.Dims() {
			all = append(all, d.Get(at))
			return
		}
		step := strides[min(axis, len(strides)-1)] // column-major vectors have one
		for i := range d.Shape()[axis] {
			walk(axis+1, at+i*step)
		}
	}
	walk(0, 0)
	return all
}

// Copies have the elements that strides say, however a tensor is laid out, and so
// do the results of operations.
func TestEveryLayout(t *testing.T) {
	both(t, func(t *testing.T, e *bench) {
		for range testkit.Choose(3000, 30) {
			for _, dt := range []tensor.Dtype{tensor.Float64, tensor.Float32, tensor.Int, tensor.Bool, tensor.Complex128} {
				base, how, name := randomLayout(e.Rand, dt)
				scope := e.Scope()
				l := e.layOut(base, how)
				want := byIndices(l.host)
				same := func(got tensor.Tensor, err error) {
					t.Helper()
					require.NoError(t, err, name)
					require.Equal(t, want, byIndices(e.Host(got)), name)
				}
				h, err := e.ToHost(l.pool)
				require.NoError(t, err, name)
				require.Equal(t, want, byIndices(h), name)
				require.False(t, h.IsMaterializable(), name)
				same(e.FromHost(l.host))
				same(e.FromHost(l.pool))
				same(e.Materialize(l.pool))
				same(e.Compute(func(ts []*tensor.Dense) (*tensor.Dense, error) {
					require.Equal(t, want, byIndices(ts[0]), name)
					return ts[0].Clone().(*tensor.Dense), nil
				}, l.pool))

				// Into and out of another layout of this shape.
				plain := must(e.Empty(dt, l.host.Shape()...))
				require.NoError(t, e.Copy(plain, l.pool), name)
				same(plain, nil)
				other := must(e.Empty(dt, l.host.Shape()...))
				require.NoError(t, e.Zero(other), name)
				require.NoError(t, e.Copy(other, l.host), name)
				same(other, nil)
				src := random(e.Rand, dt, l.host.Shape()...)
				want = byIndices(src)
				require.NoError(t, e.Copy(l.pool, src), name)
				same(l.pool, nil)
				require.NoError(t, e.Copy(l.pool, plain), name)
				require.NoError(t, e.Copy(l.pool, e.From(src)), name)
				same(l.pool, nil)
				v := value(dt, 1)
				require.NoError(t, e.Memset(l.pool, v), name)
				for i := range want {
					want[i] = v
				}
				same(l.pool, nil)
				require.NoError(t, scope.Close())
			}
		}
	})
}

// Transpose moves elements to where the shape says, in both orders.
func TestTransposeMoves(t *testing.T) {
	both(t, func(t *testing.T, e *bench) {
		for _, dt := range []tensor.Dtype{tensor.Float64, tensor.Float32, tensor.Int, tensor.Bool, tensor.Complex128} {
			for dims := 2; dims < 5; dims++ {
				shape := make([]int, dims)
				for i := range shape {
					shape[i] = 2 + e.Rand.IntN(3) // tensor panics for column-major vectors
				}
				base := random(e.Rand, dt, shape...)
				for _, h := range []*tensor.Dense{base, tensor.New(tensor.WithShape(base.Shape()...), tensor.AsFortran(base.Data()))} {
					axes := e.Rand.Perm(dims)
					d := e.From(h)
					transposed(d, slices.Clone(axes)...)
					want := byIndices(transposed(h.ShallowClone(), slices.Clone(axes)...))
					require.NoError(t, d.Transpose())
					require.Equal(t, want, byIndices(e.Host(d)), "%v %v %v", dt, h.DataOrder(), axes)
					e.FreeAll(d)
				}
			}
		}
	})
}

// What operations compute of a view is what they compute of a copy of it.
// Elementwise ones, which StdEng computes in any order, are not among them.
func TestOperationsOnEveryLayout(t *testing.T) {
	type operation func(x, y, dst *tensor.Dense) (tensor.Tensor, error)
	operations := map[string]operation{
		"sum":       func(x, _, _ *tensor.Dense) (tensor.Tensor, error) { return tensor.Sum(x) },
		"sum first": func(x, _, _ *tensor.Dense) (tensor.Tensor, error) { return tensor.Sum(x, 0) },
		"max last":  func(x, _, _ *tensor.Dense) (tensor.Tensor, error) { return dense(x.Max(x.Dims() - 1)) },
		"argmax":    func(x, _, _ *tensor.Dense) (tensor.Tensor, error) { return tensor.Argmax(x, 0) },
		"concat":    func(x, y, _ *tensor.Dense) (tensor.Tensor, error) { return tensor.Concat(0, x, y) },
		"stack":     func(x, y, _ *tensor.Dense) (tensor.Tensor, error) { return tensor.Stack(0, x, y) },
		"repeat":    func(x, _, _ *tensor.Dense) (tensor.Tensor, error) { return tensor.Repeat(x, 0, 2) },
		"softmax":   func(x, _, _ *tensor.Dense) (tensor.Tensor, error) { return tensor.SoftMax(x, 0) },
		"matmul": func(x, y, _ *tensor.Dense) (tensor.Tensor, error) {
			if x.Dims() != 2 {
				return x, nil
			}
			y = y.ShallowClone()
			if err := y.T(); err != nil {
				return nil, err
			}
			return tensor.MatMul(x, y)
		},
	}
	both(t, func(t *testing.T, e *bench) {
		for range testkit.Choose(1000, 15) {
			for op, f := range operations {
				base, how, name := randomLayout(e.Rand, tensor.Float64)
				name = op + " " + name
				scope := e.Scope()
				into, l := e.layOut(base.Clone().(*tensor.Dense), how), e.layOut(base, how)
				y := random(e.Rand, tensor.Float64, l.host.Shape()...)
				plain := func(d *tensor.Dense) *tensor.Dense {
					return tensor.New(tensor.WithShape(d.Shape()...), tensor.WithBacking(numbersOf(byIndices(d))))
				}
				x, dst := plain(l.host), plain(into.host)
				w := attempt(func([]*tensor.Dense) (tensor.Tensor, error) { return f(x, y, dst) }, nil)
				if w.panic != nil || w.err != nil || l.host.MemSize() == 8 { // StdEng writes to operands of one element
					require.NoError(t, scope.Close())
					continue
				}
				got, err := f(l.pool, e.From(y), into.pool)
				require.NoError(t, err, name)
				require.InDeltaSlice(t, numbersOf(byIndices(w.result.(*tensor.Dense))), numbersOf(byIndices(e.Host(got))), 1e-12, name)
				require.InDeltaSlice(t, numbersOf(byIndices(dst)), numbersOf(byIndices(e.Host(into.pool))), 1e-12, name)
				require.Equal(t, byIndices(l.host), byIndices(e.Host(l.pool)), name)
				require.NoError(t, scope.Close())
			}
		}
	})
}

func numbersOf(all []any) (fs []float64) {
	for _, x := range all {
		switch x := x.(type) {
		case float64:
			fs = append(fs, x)
		case int:
			fs = append(fs, float64(x))
		case bool:
			fs = append(fs, pick(x, 1.0, 0))
		}
	}
	return fs
}
