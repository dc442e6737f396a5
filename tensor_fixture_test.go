package cupool_test

import (
	"fmt"
	"math"
	"math/cmplx"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"strconv"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
	"gorgonia.org/tensor"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/fardev"
)

// poisoned fills memory with 0xFF, a NaN in every float type, when it is
// handed out and when it is taken back.
type poisoned struct{ *cupool.Caching }

func (a poisoned) poison(b cupool.Block, s *cupool.Stream) error {
	if b.IsEmpty() {
		return nil
	}
	if s == nil {
		s = a.DefaultStream()
	}
	return s.Memset(b.Ptr(), 0xFF, b.Size())
}

func (a poisoned) Alloc(n int64, s *cupool.Stream) (cupool.Block, error) {
	b, err := a.Caching.Alloc(n, s)
	if err == nil {
		err = a.poison(b, s)
	}
	return b, err
}

func (a poisoned) Free(b cupool.Block) error {
	if now, err := a.Lookup(b.Ptr()); err == nil && now == b {
		if err := a.poison(b, nil); err != nil {
			return err
		}
	}
	return a.Caching.Free(b)
}

func (a poisoned) FreePtr(p cupool.Ptr, n int64) error {
	if b, err := a.Lookup(p); err == nil && b.Ptr() == p && b.Size() == n {
		if err := a.poison(b, nil); err != nil {
			return err
		}
	}
	return a.Caching.FreePtr(p, n)
}

// bench is an engine to be tested and its allocator.
type bench struct {
	*cupool.Engine
	c   *cupool.Caching
	t   testing.TB
	r   *rand.Rand
	far bool // the CPU cannot touch the memory
	gpu bool // the device computes
}

// newBench returns an engine over poisoned memory of the host device, far
// away or not. At the end of the test nothing may be live.
func newBench(t testing.TB, far bool, opts ...cupool.EngineOption) *bench {
	d, err := cupool.OpenHost(cupool.HostConfig{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	if far {
		d = fardev.Driver{Driver: d}
	}
	c, err := cupool.New(cupool.Config{Driver: d})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close(), "leaks") })
	e, err := cupool.NewEngine(poisoned{c}, opts...)
	require.NoError(t, err)
	return &bench{Engine: e, c: c, t: t, r: newSeeded(t), far: far}
}

// gpuBench, of builds with the tag gpu, returns an engine that computes on a
// GPU.
var gpuBench func(t testing.TB, opts ...cupool.EngineOption) *bench

// both runs a test over memory that the CPU can touch and over other memory,
// which a GPU computes on or none.
func both(t *testing.T, f func(t *testing.T, e *bench)) {
	t.Run("near", func(t *testing.T) { f(t, newBench(t, false)) })
	t.Run("far", func(t *testing.T) { f(t, newBench(t, true)) })
	if gpuBench != nil {
		t.Run("gpu", func(t *testing.T) { f(t, gpuBench(t)) })
	}
}

func (e *bench) live() int64 { return e.c.Stats().All.Allocation.Current }

func (e *bench) from(t tensor.Tensor) *tensor.Dense {
	d, err := e.FromHost(t)
	require.NoError(e.t, err)
	return d
}

func (e *bench) host(t tensor.Tensor) *tensor.Dense {
	d, err := e.ToHost(t)
	require.NoError(e.t, err)
	return d
}

func (e *bench) free(ts ...tensor.Tensor) { require.NoError(e.t, e.FreeTensor(ts...)) }

// newSeeded returns a generator whose seed is printed when the test fails, and
// may be given in CUPOOL_SEED.
func newSeeded(t testing.TB) *rand.Rand {
	seed, err := strconv.ParseUint(os.Getenv("CUPOOL_SEED"), 10, 64)
	if err != nil {
		seed = uint64(time.Now().UnixNano())
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("seed %d", seed)
		}
	})
	return rand.New(rand.NewPCG(seed, 0))
}

// special are values that operations treat in ways of their own.
var special = []float64{0, math.Copysign(0, -1), math.NaN(), math.Inf(1), math.Inf(-1), 1, -1}

// random returns a tensor of StdEng with small random values.
func random(r *rand.Rand, dt tensor.Dtype, shape ...int) *tensor.Dense {
	return randomOf(r, dt, nil, shape)
}

// randomOf returns a tensor of StdEng with small random values, or of others
// now and then where it is of floats.
func randomOf(r *rand.Rand, dt tensor.Dtype, others []float64, shape []int) *tensor.Dense {
	n := tensor.Shape(shape).TotalSize()
	s := reflect.MakeSlice(reflect.SliceOf(dt.Type), n, n)
	for i := range n {
		v := float64(r.IntN(65)-24) / 8
		if (dt == tensor.Float32 || dt == tensor.Float64) && len(others) > 0 && r.IntN(8) == 0 {
			v = others[r.IntN(len(others))]
		}
		s.Index(i).Set(reflect.ValueOf(value(dt, v)))
	}
	if len(shape) == 0 {
		return tensor.New(tensor.FromScalar(s.Index(0).Interface()))
	}
	return tensor.New(tensor.WithShape(shape...), tensor.WithBacking(s.Interface()))
}

// value returns v in a type.
func value(dt tensor.Dtype, v float64) interface{} {
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

// single returns a host tensor of one element.
func single(dt tensor.Dtype, v float64) *tensor.Dense {
	d := tensor.New(tensor.Of(dt), tensor.WithShape(1))
	d.Set(0, value(dt, v))
	return d
}

// elements returns the elements of a host tensor in memory order, all NaNs as
// the same.
func elements(t *tensor.Dense) []interface{} {
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

// requireSame requires that two tensors have the same type, shape and bits. A
// GPU may round in other ways.
func (e *bench) requireSame(want, got tensor.Tensor, what string) {
	e.t.Helper()
	w, g := e.host(want), e.host(got)
	require.Equal(e.t, w.Dtype(), g.Dtype(), what)
	require.Equal(e.t, []int(w.Shape()), []int(g.Shape()), what)
	if e.gpu && isFloat(w.Dtype()) && w.MemSize() > 0 {
		e.requireClose(floatsOf(w), floatsOf(g), bounds[w.Dtype()], what)
		return
	}
	require.Equal(e.t, w.DataOrder(), g.DataOrder(), what)
	require.Equal(e.t, w.Mask(), g.Mask(), what)
	if we, ge := elements(w), elements(g); !slices.Equal(we, ge) {
		require.Equal(e.t, fmt.Sprintf("%v", w), fmt.Sprintf("%v", g), what)
		require.Equal(e.t, we, ge, what)
	}
}

// bytesAt is memory of the host device as a slice.
func bytesAt(p cupool.Ptr, n int) []byte {
	return unsafe.Slice((*byte)(unsafe.Add(unsafe.Pointer(nil), p)), n)
}

func isFloat(dt tensor.Dtype) bool { return dt == tensor.Float32 || dt == tensor.Float64 }

// bounds are on ‖got-want‖/‖want‖ of operations that round once or twice.
var bounds = map[tensor.Dtype]float64{tensor.Float32: 1e-6, tensor.Float64: 1e-13}

// requireClose requires that elements are the same but for rounding:
// ‖got-want‖ ≤ bound·‖want‖, with infinities and NaNs in the same places.
// Which of them is which does not matter: in StdEng 0/0 and -1/0 depend on
// where the result goes. TestGPUSpecialValues looks closely.
func (e *bench) requireClose(w, g []float64, bound float64, what string) {
	e.t.Helper()
	require.Len(e.t, g, len(w), what)
	var diff, norm float64
	for i := range w {
		if !isFinite(w[i]) {
			require.False(e.t, isFinite(g[i]), "%s: element %d is %v, want %v", what, i, g[i], w[i])
			continue
		}
		diff += (g[i] - w[i]) * (g[i] - w[i])
		norm += w[i] * w[i]
	}
	require.LessOrEqual(e.t, math.Sqrt(diff), bound*math.Sqrt(norm), "%s: want %v, got %v", what, w, g)
}

func isFinite(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }

// floatsOf returns the elements of a host tensor in row-major order.
func floatsOf(t *tensor.Dense) []float64 {
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
