// Package enginetest has what the tests of a cupool.Engine, and of what computes
// with one, have in common.
package enginetest

import (
	"fmt"
	"math"
	"math/cmplx"
	"math/rand/v2"
	"reflect"
	"runtime"
	"slices"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
	"gorgonia.org/tensor"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/testkit"
	"github.com/cupool/cupool/internal/testkit/pooltest"
)

// Poisoned is a Pool that fills memory with 0xFF, a NaN in every float type,
// when it is handed out and when it is taken back.
type Poisoned struct{ *cupool.Pool }

func (a Poisoned) poison(b cupool.Block, s *cupool.Stream) error {
	if b.IsEmpty() {
		return nil
	}
	if s == nil {
		s = a.DefaultStream()
	}
	return s.Memset(b.Ptr(), 0xFF, b.Size())
}

// Alloc implements cupool.Allocator.
func (a Poisoned) Alloc(n int64, s *cupool.Stream) (cupool.Block, error) {
	b, err := a.Pool.Alloc(n, s)
	if err == nil {
		err = a.poison(b, s)
	}
	return b, err
}

// Free implements cupool.Allocator.
func (a Poisoned) Free(b cupool.Block) error {
	if now, err := a.Lookup(b.Ptr()); err == nil && now == b {
		if err := a.poison(b, nil); err != nil {
			return err
		}
	}
	return a.Pool.Free(b)
}

// FreePtr implements cupool.Allocator.
func (a Poisoned) FreePtr(p cupool.Ptr, n int64) error {
	if b, err := a.Lookup(p); err == nil && b.Ptr() == p && b.Size() == n {
		if err := a.poison(b, nil); err != nil {
			return err
		}
	}
	return a.Pool.FreePtr(p, n)
}

// Bench is an engine to be tested and its allocator.
type Bench struct {
	*cupool.Engine
	Pool *cupool.Pool
	T    testing.TB
	Rand *rand.Rand
	Far  bool // the CPU cannot touch the memory
	GPU  bool // the device computes
}

// New returns an engine over poisoned memory of the host device, far
// away or not. At the end of the test nothing may be live.
func New(t testing.TB, far bool, opts ...cupool.EngineOption) *Bench {
	d, err := cupool.OpenHost(cupool.HostConfig{})
	require.NoError(t, err)
	if far {
		d = pooltest.Far{Driver: d}
	}
	e := newOn(t, d, opts)
	e.Far = far
	return e
}

func newOn(t testing.TB, d cupool.Driver, opts []cupool.EngineOption) *Bench {
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	c := pooltest.Open(t, cupool.Config{Driver: d})
	t.Cleanup(func() { require.NoError(t, c.Close(), "leaks") })
	e, err := cupool.NewEngine(Poisoned{c}, opts...)
	require.NoError(t, err)
	return &Bench{Engine: e, Pool: c, T: t, Rand: testkit.Rand(t)}
}

// Both runs a test over memory that the CPU can touch and over other memory,
// which a GPU computes on or none.
func Both(t *testing.T, f func(t *testing.T, e *Bench), opts ...cupool.EngineOption) {
	t.Run("near", func(t *testing.T) { f(t, New(t, false, opts...)) })
	t.Run("far", func(t *testing.T) { f(t, New(t, true, opts...)) })
	t.Run("gpu", func(t *testing.T) { f(t, NewGPU(t, opts...)) })
}

// Live returns the number of live blocks.
func (e *Bench) Live() int64 { return e.Pool.Stats().All.Allocation.Current }

// From returns a copy of t in the pool.
func (e *Bench) From(t tensor.Tensor) *tensor.Dense {
	d, err := e.FromHost(t)
	require.NoError(e.T, err)
	return d
}

// Host returns a copy of t in Go's heap.
func (e *Bench) Host(t tensor.Tensor) *tensor.Dense {
	d, err := e.ToHost(t)
	require.NoError(e.T, err)
	return d
}

// FreeAll frees tensors.
func (e *Bench) FreeAll(ts ...tensor.Tensor) { require.NoError(e.T, e.FreeTensor(ts...)) }

// Special are values that operations treat in ways of their own.
var Special = []float64{0, math.Copysign(0, -1), math.NaN(), math.Inf(1), math.Inf(-1), 1, -1}

// Random returns a tensor of StdEng with small random values.
func Random(r *rand.Rand, dt tensor.Dtype, shape ...int) *tensor.Dense {
	return RandomOf(r, dt, nil, shape)
}

// RandomOf returns a tensor of StdEng with small random values, or of others
// now and then where it is of floats.
func RandomOf(r *rand.Rand, dt tensor.Dtype, others []float64, shape []int) *tensor.Dense {
	n := tensor.Shape(shape).TotalSize()
	s := reflect.MakeSlice(reflect.SliceOf(dt.Type), n, n)
	for i := range n {
		v := float64(r.IntN(65)-24) / 8
		if (dt == tensor.Float32 || dt == tensor.Float64) && len(others) > 0 && r.IntN(8) == 0 {
			v = others[r.IntN(len(others))]
		}
		s.Index(i).Set(reflect.ValueOf(Value(dt, v)))
	}
	if len(shape) == 0 {
		return tensor.New(tensor.FromScalar(s.Index(0).Interface()))
	}
	return tensor.New(tensor.WithShape(shape...), tensor.WithBacking(s.Interface()))
}

// Value returns v in a type.
func Value(dt tensor.Dtype, v float64) interface{} {
	switch dt {
	case tensor.Bool:
		return v > 0
	case tensor.Complex64:
		return complex(float32(v), 1)
	case tensor.Complex128:
		return complex(v, 1)
	}
	return reflect.ValueOf(v).Convert(dt.Type).Interface()
}

// Single returns a host tensor of one element.
func Single(dt tensor.Dtype, v float64) *tensor.Dense {
	d := tensor.New(tensor.Of(dt), tensor.WithShape(1))
	d.Set(0, Value(dt, v))
	return d
}

// Elements returns the elements of a host tensor in memory order, all NaNs as
// the same.
func Elements(t *tensor.Dense) []interface{} {
	es := make([]interface{}, int(t.MemSize())/int(t.Dtype().Size()))
	for i := range es {
		es[i] = t.Get(i)
		switch v := es[i].(type) {
		case float64:
			es[i] = math.Float64bits(v)
			if math.IsNaN(v) {
				es[i] = "NaN"
			}
		case float32:
			es[i] = math.Float32bits(v)
			if math.IsNaN(float64(v)) {
				es[i] = "NaN"
			}
		case complex128:
			if cmplx.IsNaN(v) {
				es[i] = "NaN"
			}
		}
	}
	return es
}

// RequireSame requires that two tensors have the same type, shape and bits. A
// GPU may round in other ways.
func (e *Bench) RequireSame(want, got tensor.Tensor, what string) {
	e.T.Helper()
	w, g := e.Host(want), e.Host(got)
	require.Equal(e.T, w.Dtype(), g.Dtype(), what)
	require.Equal(e.T, []int(w.Shape()), []int(g.Shape()), what)
	if e.GPU && IsFloat(w.Dtype()) && w.MemSize() > 0 {
		e.RequireClose(FloatsOf(w), FloatsOf(g), Bounds[w.Dtype()], what)
		return
	}
	require.Equal(e.T, w.DataOrder(), g.DataOrder(), what)
	require.Equal(e.T, w.Mask(), g.Mask(), what)
	if we, ge := Elements(w), Elements(g); !slices.Equal(we, ge) {
		require.Equal(e.T, fmt.Sprintf("%v", w), fmt.Sprintf("%v", g), what)
		require.Equal(e.T, we, ge, what)
	}
}

// BytesAt is memory of the host device as a slice.
func BytesAt(p cupool.Ptr, n int) []byte {
	return unsafe.Slice((*byte)(unsafe.Add(unsafe.Pointer(nil), p)), n)
}

// IsFloat reports whether elements are float32 or float64.
func IsFloat(dt tensor.Dtype) bool { return dt == tensor.Float32 || dt == tensor.Float64 }

// Bounds are on ‖got-want‖/‖want‖ of operations that round once or twice.
var Bounds = map[tensor.Dtype]float64{tensor.Float32: 1e-6, tensor.Float64: 1e-13}

// RequireClose requires that elements are the same but for rounding:
// ‖got-want‖ ≤ bound·‖want‖, with infinities and NaNs in the same places.
// Which of them is which does not matter: in StdEng 0/0 and -1/0 depend on
// where the result goes. TestGPUSpecialValues looks closely.
func (e *Bench) RequireClose(w, g []float64, bound float64, what string) {
	e.T.Helper()
	require.Len(e.T, g, len(w), what)
	var diff, norm float64
	for i := range w {
		if !IsFinite(w[i]) {
			require.False(e.T, IsFinite(g[i]), "%s: element %d is %v, want %v", what, i, g[i], w[i])
			continue
		}
		diff += (g[i] - w[i]) * (g[i] - w[i])
		norm += w[i] * w[i]
	}
	require.LessOrEqual(e.T, math.Sqrt(diff), bound*math.Sqrt(norm), "%s: want %v, got %v", what, w, g)
}

// IsFinite reports whether x is neither an infinity nor NaN.
func IsFinite(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }

// FloatsOf returns the elements of a host tensor in row-major order.
func FloatsOf(t *tensor.Dense) []float64 {
	var fs []float64
	if t.MemSize() == 0 {
		return fs
	}
	it := t.Iterator()
	for i, err := it.Start(); err == nil; i, err = it.Next() {
		fs = append(fs, reflect.ValueOf(t.Get(i)).Float())
	}
	return fs
}

// As64 returns the elements of a tensor as float64.
func (e *Bench) As64(t tensor.Tensor) []float64 { return FloatsOf(e.Host(t)) }

// RequireNear requires t's elements to be want but for the rounding of several
// operations on numbers around 1, which is appended lest small results count.
func (e *Bench) RequireNear(want []float64, t tensor.Tensor, what string) {
	e.T.Helper()
	e.RequireClose(append(want, 1), append(e.As64(t), 1), 10*Bounds[t.Dtype()], what)
}

// Collect runs the garbage collector until so many blocks are live.
func (e *Bench) Collect(live int64) {
	e.T.Helper()
	require.Eventually(e.T, func() bool {
		runtime.GC()
		_, err := e.Pool.ProcessDeferred()
		require.NoError(e.T, err)
		return e.Live() == live
	}, time.Minute, time.Millisecond, "never %d blocks live", live)
}

// Floats are the types that a GPU computes with.
var Floats = []tensor.Dtype{tensor.Float64, tensor.Float32}

// ProductsOf multiplies n pairs of matrices.
func ProductsOf(a, b []float64, n, rows, inner, cols int) []float64 {
	c := make([]float64, n*rows*cols)
	for at := range c {
		i, j := at/cols, at%cols // i counts the rows of all matrices
		for k := range inner {
			c[at] += a[i*inner+k] * b[(i/rows*inner+k)*cols+j]
		}
	}
	return c
}

// View returns a slice of d.
func View(d *tensor.Dense, s ...tensor.Slice) *tensor.Dense {
	return testkit.Must(d.Slice(s...)).(*tensor.Dense)
}

// Transposed marks d as transposed and returns it.
func Transposed(d *tensor.Dense, axes ...int) *tensor.Dense {
	testkit.Must(0, d.T(axes...))
	return d
}
