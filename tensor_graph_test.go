package cupool_test

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"gorgonia.org/tensor"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/cuda"
	"github.com/cupool/cupool/internal/cublas"
	"github.com/cupool/cupool/internal/fakecuda"
	"github.com/cupool/cupool/internal/graphmem"
	"github.com/cupool/cupool/internal/kernels"
	"github.com/cupool/cupool/internal/tensorop/gpu"
	"github.com/cupool/cupool/internal/tensorop/operand"
	"github.com/cupool/cupool/internal/testkit"
	"github.com/cupool/cupool/internal/testkit/enginetest"
	"github.com/cupool/cupool/internal/testkit/gputest"
	"github.com/cupool/cupool/internal/testkit/pooltest"
	"github.com/cupool/cupool/nn"
)

// TestHeldMemory: what a graph allocates is used again within it, and by nobody
// else until it is released.
func TestHeldMemory(t *testing.T) {
	c := pooltest.Open(t, cupool.Config{})
	defer func() { require.NoError(t, c.Close()) }()
	h, release := cupool.HoldMemory(c)
	outside := pooltest.Alloc(t, c, 4096, nil)
	a := must(h.Alloc(4096, nil))
	require.NoError(t, h.Free(a))
	require.ErrorIs(t, h.Free(a), cupool.ErrDoubleFree)
	other := pooltest.Alloc(t, c, 4096, nil)
	require.NotEqual(t, a.Ptr(), other.Ptr(), "it is the graph's")
	require.ErrorIs(t, h.RecordStream(a, nil), cupool.ErrUseAfterFree)
	_, err := h.Lookup(a.Ptr() + 7)
	require.ErrorIs(t, err, cupool.ErrUseAfterFree)
	again := must(h.Alloc(4096, nil))
	require.Equal(t, a.Ptr(), again.Ptr())
	require.Equal(t, again, must(h.Lookup(again.Ptr()+7)))
	require.NoError(t, h.RecordStream(again, nil))
	require.ErrorIs(t, h.RecordStream(a, nil), cupool.ErrUseAfterFree, "another use of the block")
	require.ErrorIs(t, h.Free(a), cupool.ErrDoubleFree)
	require.ErrorIs(t, h.FreePtr(again.Ptr(), 8), cupool.ErrSizeMismatch)
	require.NoError(t, h.FreePtr(again.Ptr(), 4096))
	require.NoError(t, h.FreePtr(outside.Ptr(), 4096), "memory from before goes back at once")
	require.NoError(t, h.Free(other))
	require.Equal(t, int64(1), c.Stats().All.Allocation.Current)
	require.NoError(t, release())
	require.Zero(t, c.Stats().All.Allocation.Current)
}

// TestCaptureNeedsAGPU: the host device has no graphs.
func TestCaptureNeedsAGPU(t *testing.T) {
	_, err := newBench(t, false).Capture(func() error { return errors.New("must not be called") })
	require.ErrorIs(t, err, cupool.ErrNotSupported)
}

// newGraphBench is an engine of a GPU on a stream that can be captured, without
// poison, which goes to the default stream.
func newGraphBench(t *testing.T) *bench {
	e := enginetest.NewGPU(t)
	e.Engine = must(cupool.NewEngine(e.Pool, cupool.WithStream(pooltest.NewStream(t, e.Pool))))
	return e
}

// newGraphBenchOf is newGraphBench with a tensor whose exponential has been computed, so that a
// capture of that loads nothing.
func newGraphBenchOf(t *testing.T, dt tensor.Dtype, shape ...int) (e *bench, x tensor.Tensor) {
	e = newGraphBench(t)
	x = e.From(random(e.Rand, dt, shape...))
	e.FreeAll(must(tensor.Exp(x)))
	return e, x
}

// TestGraph launches a captured computation on changing data and compares it
// with the same done eagerly.
func TestGraph(t *testing.T) {
	e := newGraphBench(t)
	for _, dt := range enginetest.Floats {
		x, w, b := e.From(random(e.Rand, dt, 9, 7)), e.From(random(e.Rand, dt, 7, 5)), e.From(random(e.Rand, dt, 5))
		sum := e.From(random(e.Rand, dt, 9, 5))
		compute := func() (tensor.Tensor, error) {
			sc := e.Scope()
			defer sc.Close()
			y, err := tensor.MatMul(x, w)
			if err != nil {
				return nil, err
			}
			if err := nn.BiasActivate(e.Engine, y, b, nn.ReLU); err != nil {
				return nil, err
			}
			z, err := tensor.Mul(y, y)
			if err != nil {
				return nil, err
			}
			if _, err := tensor.Add(sum, z, tensor.UseUnsafe()); err != nil {
				return nil, err
			}
			return z, sc.Keep(z)
		}
		e.FreeAll(must(compute())) // what a capture cannot hold is made
		before, live := e.As64(sum), e.Live()
		var result tensor.Tensor
		g, err := e.Capture(func() (err error) {
			result, err = compute()
			return err
		})
		require.NoError(t, err)
		require.Equal(t, before, e.As64(sum), "nothing runs during Capture")
		require.Greater(t, e.Live(), live, "the graph has memory")
		for range 3 {
			next := e.From(random(e.Rand, dt, 9, 7))
			require.NoError(t, e.Copy(x, next))
			wantSum := e.As64(sum)
			require.NoError(t, g.Launch())
			gotSum := e.As64(sum)
			want := must(compute())
			for i, v := range e.As64(want) {
				wantSum[i] += v
			}
			e.RequireClose(e.As64(want), e.As64(result), enginetest.Bounds[dt], "the result")
			e.RequireClose(wantSum, gotSum, 10*enginetest.Bounds[dt], "the sum")
			e.FreeAll(next, want)
		}
		require.NoError(t, g.Close())
		require.NoError(t, g.Close(), "again")
		require.ErrorIs(t, g.Launch(), cupool.ErrClosed)
		e.FreeAll(x, w, b, sum)
	}
	require.Zero(t, e.Live())
}

// TestGraphBesideOthers has other goroutines' work come to the captured stream
// meanwhile: blocks that wait for it, and memory that is looked for on it. No
// event of a capture can be asked, and waiting for the stream would break it.
func TestGraphBesideOthers(t *testing.T) {
	e, x := newGraphBenchOf(t, tensor.Float32, 64)
	require.NoError(t, e.Sync())
	other := pooltest.NewStream(t, e.Pool)
	const size = 64 << 20
	used := must(e.Pool.Alloc(size, other))
	require.NoError(t, e.Pool.RecordStream(used, e.Stream()))
	require.NoError(t, e.Pool.Free(must(e.Pool.Alloc(size, e.Stream())))) // idle memory
	before := e.Pool.Stats()
	g, err := e.Capture(func() error {
		y, err := tensor.Exp(x)
		if err != nil {
			return err
		}
		failed := make(chan error)
		go func() {
			err := e.Pool.Free(used)
			_, waited := e.Pool.ProcessDeferred()
			_, full := e.Pool.Alloc(1<<50, other) // tries everything
			_, trimmed := e.Pool.Trim(0)
			if !errors.Is(full, cupool.ErrOutOfMemory) {
				err = errors.Join(err, full, errors.New("memory without end"))
			}
			failed <- errors.Join(err, waited, trimmed)
		}()
		if err := <-failed; err != nil {
			return err
		}
		_, err = tensor.Add(y, x, tensor.UseUnsafe())
		return err
	})
	require.NoError(t, err)
	st := e.Pool.Stats()
	require.Equal(t, before.EventFailures, st.EventFailures)
	require.Positive(t, st.PendingBytes, "the block waits for what is captured")
	require.NoError(t, g.Launch())
	require.NoError(t, e.Sync())
	must(e.Pool.ProcessDeferred())
	require.Zero(t, e.Pool.Stats().PendingBytes, "it waits no more")
	require.NoError(t, g.Close())
	e.FreeAll(x)
}

// fillingGraphs is a GPU that calls a function before it fills memory.
type fillingGraphs struct {
	graphDevice
	earlier func()
}

func (d *fillingGraphs) Memset(p cupool.Ptr, value byte, n int64, s cupool.StreamHandle) error {
	d.earlier()
	return d.graphDevice.Memset(p, value, n, s)
}

// TestGraphBesideFill: no capture begins between a pool's look whether the stream is captured and
// what that gives to the stream: it would be a part of the graph.
func TestGraphBesideFill(t *testing.T) {
	opened, err := cuda.Open(0)
	gputest.NoError(t, err)
	d := &fillingGraphs{graphDevice: opened.(graphDevice), earlier: func() {}}
	c := pooltest.Open(t, cupool.Config{Driver: d})
	p := pooltest.NewPrivate(t, c, cupool.PoolConfig{ZeroOnFree: true})
	e := must(cupool.NewEngine(c, cupool.WithStream(pooltest.NewStream(t, c))))
	enginetest.NeedKernels(t, e)
	b := pooltest.Alloc(t, p, 1000, e.Stream())
	var g *cupool.Graph
	var captured <-chan error
	d.earlier = func() {
		d.earlier = func() {}
		captured = pooltest.Start(func() (err error) {
			g, err = e.Capture(func() error { return nil })
			return err
		})
		early, _ := pooltest.Returns(captured)
		require.False(t, early)
	}
	require.NoError(t, p.Free(b))
	require.NoError(t, <-captured)
	require.NoError(t, errors.Join(g.Close(), c.Close(), d.Close()))
}

// TestGraphBesideWake: with fills, no Wake succeeds while a stream is captured. One that comes after
// the capture does, and leaves no copy to the graph.
func TestGraphBesideWake(t *testing.T) {
	d, err := cuda.Open(0)
	gputest.NoError(t, err)
	c := pooltest.Open(t, cupool.Config{Driver: d, ZeroOnFree: true})
	e := must(cupool.NewEngine(c, cupool.WithStream(pooltest.NewStream(t, c))))
	enginetest.NeedKernels(t, e)
	s := e.Stream()
	b := pooltest.Alloc(t, c, 4096, s)
	holds := func(what byte) {
		t.Helper()
		got := make([]byte, 4096)
		require.NoError(t, s.CopyOut(got, b.Ptr()))
		require.Equal(t, 4096, bytes.Count(got, []byte{what}))
	}
	require.NoError(t, s.Memset(b.Ptr(), 0xAA, b.Size()))
	require.NoError(t, c.Sleep(func(cupool.Block) bool { return true }))
	g, err := e.Capture(func() error {
		require.ErrorIs(t, c.Wake(), cupool.ErrNotSupported)
		return nil
	})
	require.NoError(t, err)
	require.NoError(t, c.Wake())
	holds(0xAA)
	require.NoError(t, s.Memset(b.Ptr(), 1, b.Size()))
	require.NoError(t, errors.Join(g.Launch(), e.Sync()))
	holds(1)
	require.NoError(t, errors.Join(c.Free(b), g.Close(), c.Close(), d.Close()))
}

// TestGraphBesideClosedPool: the zeros of a pool that is closed while its stream is captured are
// no part of the graph, which would write them to memory that is gone or somebody else's.
func TestGraphBesideClosedPool(t *testing.T) {
	pooltest.EachBacking(t, func(t *testing.T, backing cupool.Backing) {
		e, x := newGraphBenchOf(t, tensor.Float32, 64)
		p := must(e.Pool.NewPool(cupool.PoolConfig{ZeroOnFree: true, NoSplit: backing == cupool.BackingSegments}))
		b := pooltest.Alloc(t, p, 4*mib, e.Stream())
		g, err := e.Capture(func() error {
			_, err := tensor.Exp(x)
			return errors.Join(err, p.Free(b), p.Close())
		})
		require.NoError(t, err)
		require.NoError(t, g.Launch())
		require.NoError(t, e.Sync())
		require.NoError(t, g.Close())
		e.FreeAll(x)
	})
}

// graphDevice is a GPU as an engine uses it.
type graphDevice interface {
	cuda.Driver
	gpu.Device
	graphmem.Device
}

// lateGraphs is a GPU that calls a function before it begins a capture or launches a graph.
type lateGraphs struct {
	graphDevice
	earlier func()
}

func (d *lateGraphs) BeginCapture(s cupool.StreamHandle) error {
	d.earlier()
	return d.graphDevice.BeginCapture(s)
}

func (d *lateGraphs) LaunchGraph(graph uintptr, s cupool.StreamHandle) error {
	d.earlier()
	return d.graphDevice.LaunchGraph(graph, s)
}

// lateKernels is a GPU that calls a function before it launches a kernel or a product.
type lateKernels struct {
	graphDevice
	earlier func()
}

func (d *lateKernels) LaunchKernel(l kernels.Launch, s cupool.StreamHandle) error {
	d.earlier()
	return d.graphDevice.LaunchKernel(l, s)
}

func (d *lateKernels) Multiply(p *cublas.Product, own, work cupool.StreamHandle) error {
	d.earlier()
	return d.graphDevice.Multiply(p, own, work)
}

// TestCloseWaitsForKernels: a stream that another goroutine closes meanwhile is not closed before
// a kernel and a product were given to it.
func TestCloseWaitsForKernels(t *testing.T) {
	opened, err := cuda.Open(0)
	gputest.NoError(t, err)
	d := &lateKernels{graphDevice: opened.(graphDevice), earlier: func() {}}
	c := pooltest.Open(t, cupool.Config{Driver: d})
	for what, compute := range map[string]func(e *cupool.Engine, x, y tensor.Tensor) error{
		"a kernel": func(e *cupool.Engine, x, y tensor.Tensor) error {
			_, err := e.Exp(x, tensor.WithReuse(y))
			return err
		},
		"a product": func(e *cupool.Engine, x, y tensor.Tensor) error { return e.MatMul(x, x, y) },
	} {
		s := pooltest.NewStream(t, c)
		e := must(cupool.NewEngine(c, cupool.WithStream(s)))
		enginetest.NeedKernels(t, e)
		x := must(e.FromHost(tensor.Ones(tensor.Float64, 8, 8)))
		y := must(e.Empty(tensor.Float64, 8, 8))
		require.NoError(t, compute(e, x, y))
		var closed <-chan error
		d.earlier = func() {
			d.earlier = func() {}
			closed = pooltest.Start(s.Close)
			early, _ := pooltest.Returns(closed)
			require.False(t, early, what)
		}
		require.NoError(t, compute(e, x, y))
		require.NoError(t, <-closed)
		require.ErrorIs(t, compute(e, x, y), cupool.ErrClosed, what)
		require.NoError(t, e.FreeTensor(x, y))
	}
	require.NoError(t, c.Close())
	require.NoError(t, d.Close())
}

// TestCloseWaitsForGraphs: a stream that another goroutine closes meanwhile is not closed before
// a capture of it has begun, which keeps it open, and is closed after a graph was launched on it.
func TestCloseWaitsForGraphs(t *testing.T) {
	opened, err := cuda.Open(0)
	gputest.NoError(t, err)
	var closed <-chan error
	d := &lateGraphs{graphDevice: opened.(graphDevice)}
	c := pooltest.Open(t, cupool.Config{Driver: d})
	s := pooltest.NewStream(t, c)
	e := must(cupool.NewEngine(c, cupool.WithStream(s)))
	enginetest.NeedKernels(t, e)
	x := must(e.Empty(tensor.Float32, 8))
	require.NoError(t, e.Zero(x))
	d.earlier = func() {
		closed = pooltest.Start(s.Close)
		early, _ := pooltest.Returns(closed)
		require.False(t, early)
	}
	g := must(e.Capture(func() error {
		require.ErrorIs(t, <-closed, cupool.ErrNotSupported)
		return e.Memset(x, float32(3))
	}))
	require.NoError(t, g.Launch())
	require.NoError(t, <-closed)
	require.ErrorIs(t, g.Launch(), cupool.ErrClosed)
	_, err = e.Capture(func() error { return nil })
	require.ErrorIs(t, err, cupool.ErrClosed)
	require.NoError(t, g.Close())
	require.NoError(t, e.FreeTensor(x))
	require.NoError(t, c.Close())
	require.NoError(t, d.Close())
}

func TestGraphFailures(t *testing.T) {
	e := newGraphBench(t)
	x := e.From(random(e.Rand, tensor.Float64, 4, 4))
	mine := errors.New("mine")
	for what, f := range map[string]func() error{
		"own error":  func() error { _ = must(tensor.Exp(x)); return mine },
		"copy out":   func() error { _, err := e.ToHost(must(tensor.Exp(x))); return err },
		"copy in":    func() error { _, err := e.FromHost(random(e.Rand, tensor.Float64, 3)); return err },
		"a fallback": func() error { _, err := x.Trace(); return err },
		"waiting":    e.Sync,
		"double free": func() error {
			y := must(tensor.Exp(x)).(*tensor.Dense)
			z := y.ShallowClone()
			return errors.Join(e.FreeTensor(y), e.FreeTensor(z))
		},
		"an error that tensor drops": func() error {
			e.Memclr(&operand.Memory{Ptr: cupool.Ptr(x.Uintptr()), Size: 1 << 20})
			return nil
		},
		"out of memory": func() error {
			return cupool.Try(func() error { _, err := e.Empty(tensor.Float64, 1<<40); return err })
		},
	} {
		live := e.Live()
		_, err := e.Capture(f)
		require.Error(t, err, what)
		var ours *cupool.EngineError
		require.ErrorAs(t, err, &ours, what)
		require.Equal(t, live, e.Live(), what)
		y := must(tensor.Exp(x)) // the engine is as before
		require.Len(t, e.As64(y), 16, what)
		e.FreeAll(y)
	}
	require.Panics(t, func() { _, _ = e.Capture(func() error { _ = must(tensor.Exp(x)); panic("mine") }) })
	e.FreeAll(x)
	require.Zero(t, e.Live())

	byDefault := must(cupool.NewEngine(e.Pool))
	_, err := byDefault.Capture(func() error { return nil })
	require.ErrorIs(t, err, cupool.ErrNotSupported)
}

// TestGraphKept: what f keeps in a scope around Capture stays with the graph when that and the
// next one are closed.
func TestGraphKept(t *testing.T) {
	e, x := newGraphBenchOf(t, tensor.Float64, 4, 4)
	around := e.Scope()
	sc := e.Scope()
	live := e.Live()
	g := must(e.Capture(func() error { return sc.Keep(must(tensor.Exp(x))) }))
	require.NoError(t, errors.Join(sc.Close(), around.Close()))
	require.Equal(t, live+1, e.Live())
	require.NoError(t, g.Close())
	require.Equal(t, live, e.Live())
	e.FreeAll(x)
}

// TestGraphLeftScope: what f allocated in a scope that it left stays with the graph when the scope
// is closed later, also in another capture, and is used again in the graph when f closes it.
func TestGraphLeftScope(t *testing.T) {
	e, x := newGraphBenchOf(t, tensor.Float64, 4, 4)
	live := e.Live()
	var scopes []*cupool.Scope
	exp := func() error {
		sc := e.Scope()
		defer sc.Leave()
		scopes = append(scopes, sc)
		return testkit.Second(tensor.Exp(x))
	}
	g := must(e.Capture(func() error {
		return errors.Join(exp(), scopes[0].Close(), exp(), exp())
	}))
	require.Equal(t, live+2, e.Live())
	require.NoError(t, scopes[1].Close())
	other := must(e.Capture(func() error { return scopes[2].Close() }))
	require.Equal(t, live+2, e.Live())
	require.NoError(t, errors.Join(g.Close(), other.Close()))
	require.Equal(t, live, e.Live())
	e.FreeAll(x)
}

// TestGraphOuterScope: what f allocates stays with the graph where f ends a scope from before Capture,
// too, and with that the one that Capture opened.
func TestGraphOuterScope(t *testing.T) {
	e, x := newGraphBenchOf(t, tensor.Float64, 4, 4)
	exp := func() error { return testkit.Second(tensor.Exp(x)) }
	for what, end := range map[string]func(sc *cupool.Scope) error{
		"left":   func(sc *cupool.Scope) error { sc.Leave(); return nil },
		"closed": (*cupool.Scope).Close,
	} {
		live := e.Live()
		around, sc := e.Scope(), e.Scope()
		require.NoError(t, exp(), what)
		g := must(e.Capture(func() error {
			errs := errors.Join(exp(), end(sc), exp())
			in := e.Scope()
			return errors.Join(errs, in.Keep(must(tensor.Exp(x))), in.Close())
		}))
		require.NoError(t, errors.Join(sc.Close(), around.Close()), what)
		require.Equal(t, live+3, e.Live(), what)
		require.NoError(t, g.Close(), what)
		require.Equal(t, live, e.Live(), what)
	}
	e.FreeAll(x)
}

// TestGraphLabeled: a scope with a label works in a capture too, whose memory has the label of the
// scope around it.
// TestGraphScopeOfReused: a scope that was left frees nothing that was freed and handed out again
// since, and what was freed is an error to use.
func TestGraphScopeOfReused(t *testing.T) {
	e, x := newGraphBenchOf(t, tensor.Float32, 64)
	e.FreeAll(must(tensor.Square(x)), must(tensor.Neg(x)))
	var squares tensor.Tensor
	g, err := e.Capture(func() error {
		sc := e.Scope()
		a := must(tensor.Exp(x)).(*tensor.Dense)
		clone := a.ShallowClone()
		e.FreeAll(a)
		_, err := tensor.Neg(clone)
		require.ErrorIs(t, err, cupool.ErrUseAfterFree)
		require.False(t, e.Owns(clone))
		require.ErrorIs(t, sc.Keep(clone), cupool.ErrUseAfterFree)
		sc.Leave()
		squares = must(tensor.Square(x))
		require.Equal(t, clone.Uintptr(), squares.Uintptr())
		require.NoError(t, sc.Close())
		require.NotEqual(t, squares.Uintptr(), must(tensor.Neg(x)).Uintptr())
		return nil
	})
	require.NoError(t, err)
	require.NoError(t, g.Launch())
	want := must(tensor.Square(x))
	require.Equal(t, e.As64(want), e.As64(squares))
	require.NoError(t, g.Close())
	e.FreeAll(x, want)
}

// TestGraphAfterReset: a graph whose memory Reset of its pool has ended is not launched.
func TestGraphAfterReset(t *testing.T) {
	e, x := newGraphBenchOf(t, tensor.Float32, 64)
	p := pooltest.NewPrivate(t, e.Pool, cupool.PoolConfig{})
	sc := must(e.ScopeIn(p))
	g := must(e.Capture(func() error {
		_, err := tensor.Exp(x)
		return err
	}))
	require.NoError(t, sc.Close())
	require.NoError(t, g.Launch())
	require.NoError(t, p.Reset())
	require.ErrorIs(t, g.Launch(), cupool.ErrUseAfterFree)
	require.NoError(t, p.Close())
	require.ErrorIs(t, g.Launch(), cupool.ErrClosed)
	require.ErrorIs(t, g.Close(), cupool.ErrClosed)
	e.FreeAll(x)
}

func TestGraphLabeled(t *testing.T) {
	e, x := newGraphBenchOf(t, tensor.Float64, 4, 4)
	sc := must(e.ScopeLabeled("step"))
	g := must(e.Capture(func() error {
		in, err := e.ScopeLabeled("forward")
		if err != nil {
			return err
		}
		return errors.Join(testkit.Second(tensor.Exp(x)), in.Close())
	}))
	require.NoError(t, sc.Close())
	labels := e.Pool.Stats().Labels
	require.Len(t, labels, 1)
	require.Equal(t, "step", labels[0].Label)
	require.EqualValues(t, 1, labels[0].Blocks.Current)
	require.NoError(t, g.Close())
	e.FreeAll(x)
}

// TestGraphInPool captures in a scope of a private pool, which the graph then
// has its memory from.
func TestGraphInPool(t *testing.T) {
	e := newGraphBench(t)
	p := pooltest.NewPrivate(t, e.Pool, cupool.PoolConfig{Name: "graphs", Isolated: true})
	x := e.From(random(e.Rand, tensor.Float32, 9, 7))
	e.FreeAll(must(tensor.Add(x, x)))
	live := e.Live()
	var y tensor.Tensor
	sc := must(e.ScopeIn(p))
	g, err := e.Capture(func() (err error) {
		y, err = tensor.Add(x, x)
		return err
	})
	require.NoError(t, err)
	require.NoError(t, sc.Close())
	require.Equal(t, live, e.Live())
	require.EqualValues(t, 1, p.Stats().All.Allocation.Current)
	require.True(t, e.Owns(y))
	require.NoError(t, g.Launch())
	want := must(tensor.Add(x, x))
	e.RequireClose(e.As64(want), e.As64(y), 0, "the result")
	e.FreeAll(x, want)
	require.NoError(t, g.Close())
	require.Zero(t, p.Stats().All.Allocation.Current)
}

// Streams that are gone leave their cuBLAS handle to others, and what a capture
// forks uses the engine's, as none can be made then.
func TestGPUBlasHandles(t *testing.T) {
	e := enginetest.NewGPU(t)
	a, b := random(e.Rand, tensor.Float32, 4, 3), random(e.Rand, tensor.Float32, 5, 4)
	want := must(tensor.MatMul(flipped(a), flipped(b))).Data().([]float32)
	for range 3 {
		s := must(e.Pool.NewStream())
		mine := must(cupool.NewEngine(e.Pool, cupool.WithStream(s)))
		x, y := must(mine.FromHost(a)), must(mine.FromHost(b))
		multiply := func() *tensor.Dense {
			z := must(mine.Empty(tensor.Float32, 3, 5))
			require.NoError(t, mine.MatMul(flipped(x), flipped(y), z))
			return z
		}
		z := multiply()
		var forked *tensor.Dense
		g, err := mine.Capture(func() error {
			return mine.Fork(func() error { forked = multiply(); return nil })
		})
		require.NoError(t, err)
		require.NoError(t, g.Launch())
		require.Equal(t, want, must(mine.ToHost(z)).Data(), "alone")
		require.Equal(t, want, must(mine.ToHost(forked)).Data(), "forked")
		all, _ := blasHandles(e.Pool)
		require.Equal(t, 1, all)
		require.NoError(t, errors.Join(g.Close(), mine.FreeTensor(x, y, z), s.Close()))
		_, idle := blasHandles(e.Pool)
		require.Equal(t, 1, idle)
	}
}

// flipped returns the transpose of a matrix, which lies where that does. A product of two
// is one of cuBLAS's, of any size.
func flipped(t tensor.Tensor) *tensor.Dense {
	return enginetest.Transposed(t.(*tensor.Dense).ShallowClone())
}

// blasHandles returns how many cuBLAS handles the device has, and how many of
// them serve no stream.
func blasHandles(c *cupool.Pool) (all, idle int) {
	return c.Driver().(interface{ BlasHandles() (all, idle int) }).BlasHandles()
}

// forkProgram is work on matrices, some of it in Forks, by Fork's rules.
type forkProgram struct {
	e  *bench
	ts []tensor.Tensor // n×n
	// Of those: what Forks read and wrote since the last Join.
	read, written []bool
}

const forkSize = 4

// newForkProgram makes the tensors from the values.
func newForkProgram(e *bench, values []*tensor.Dense) *forkProgram {
	p := &forkProgram{e: e, read: make([]bool, len(values)), written: make([]bool, len(values))}
	for _, v := range values {
		p.ts = append(p.ts, e.From(v))
	}
	return p
}

// run does a number of steps that the seed chooses; the same for any program of
// as many tensors.
func (p *forkProgram) run(steps int, seed uint64) error {
	r := rand.New(rand.NewPCG(seed, 0))
	clear(p.read)
	clear(p.written)
	for range steps {
		a, b, dst := r.IntN(len(p.ts)), r.IntN(len(p.ts)), r.IntN(len(p.ts))
		var err error
		switch kind := r.IntN(8); {
		case kind == 0:
			clear(p.read)
			clear(p.written)
			err = p.e.Join()
		case a == dst || b == dst:
		case kind <= 3:
			p.read[a], p.read[b], p.written[dst] = true, true, true
			err = p.e.Fork(func() error { return p.op(kind, a, b, dst) })
		case p.written[a] || p.written[b]:
		case kind == 4:
			p.read[a], p.read[b], p.written[dst] = true, true, true
			err = p.opAcross(a, b, dst, r.IntN(2) == 0)
		case !p.written[dst] && !p.read[dst]:
			err = p.op(kind, a, b, dst)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// op sets dst to something of a, b and itself, by way of a temporary.
func (p *forkProgram) op(kind, a, b, dst int) error {
	var t tensor.Tensor
	var err error
	if kind%2 == 0 {
		t, err = tensor.MatMul(flipped(p.ts[a]), flipped(p.ts[b])) // with a workspace
	} else {
		t, err = tensor.Add(p.ts[a], p.ts[b])
	}
	if err != nil {
		return err
	}
	if _, err = tensor.Add(p.ts[dst], t, tensor.UseUnsafe()); err == nil {
		_, err = tensor.Tanh(p.ts[dst], tensor.UseUnsafe())
	}
	return errors.Join(err, p.e.FreeTensor(t))
}

// opAcross has a temporary that a Fork uses, and makes too if inside, and that
// is freed outside.
func (p *forkProgram) opAcross(a, b, dst int, inside bool) error {
	var t tensor.Tensor
	sum := func() (err error) {
		t, err = tensor.Add(p.ts[a], p.ts[b])
		return err
	}
	use := func() error { return testkit.Second(tensor.Sub(p.ts[dst], t, tensor.UseUnsafe())) }
	var err error
	if inside {
		err = p.e.Fork(func() error { return errors.Join(sum(), use()) })
	} else {
		err = errors.Join(sum(), p.e.Fork(use))
	}
	return errors.Join(err, p.e.FreeTensor(t))
}

// values are those of all tensors.
func (p *forkProgram) values() (all [][]float64) {
	for _, t := range p.ts {
		all = append(all, p.e.As64(t))
	}
	return all
}

// TestGraphFork captures random programs with Forks, and launches them. They
// compute what they do without graphs; the stand-in runs a graph's nodes in
// orders that only its dependencies hold.
func TestGraphFork(t *testing.T) {
	e := newGraphBench(t)
	for _, dt := range enginetest.Floats {
		for range 20 {
			var start []*tensor.Dense
			for range 5 {
				start = append(start, random(e.Rand, dt, forkSize, forkSize))
			}
			eager, captured := newForkProgram(e, start), newForkProgram(e, start)
			seed := e.Rand.Uint64()
			require.NoError(t, eager.run(60, seed))
			g, err := e.Capture(func() error { return captured.run(60, seed) })
			require.NoError(t, err)
			for i := range 4 {
				if i > 0 {
					require.NoError(t, eager.run(60, seed))
				}
				require.NoError(t, g.Launch())
				require.Equal(t, eager.values(), captured.values(), "launch %d", i)
			}
			require.NoError(t, g.Close())
			e.FreeAll(eager.ts...)
			e.FreeAll(captured.ts...)
		}
	}
	require.Zero(t, e.Live())
}

// TestGraphForkZeroes: what a Fork computes comes after the zeros of ZeroOnAlloc, which the
// allocator gives to the engine's stream.
func TestGraphForkZeroes(t *testing.T) {
	d, err := cuda.Open(0)
	gputest.NoError(t, err)
	c := pooltest.Open(t, cupool.Config{Driver: d, ZeroOnAlloc: true})
	e := must(cupool.NewEngine(c, cupool.WithStream(pooltest.NewStream(t, c))))
	enginetest.NeedKernels(t, e)
	x := must(e.FromHost(tensor.New(tensor.WithBacking([]float64{1, 2, 3, 4}))))
	require.NoError(t, e.FreeTensor(must(tensor.Add(x, x))))
	var y tensor.Tensor
	g := must(e.Capture(func() error {
		return e.Fork(func() (err error) {
			y, err = tensor.Add(x, x)
			return err
		})
	}))
	for range 8 {
		require.NoError(t, g.Launch())
		require.Equal(t, []float64{2, 4, 6, 8}, must(e.ToHost(y)).Data())
	}
	require.NoError(t, errors.Join(g.Close(), e.FreeTensor(x), c.Close(), d.Close()))
}

// TestGraphForkFailures: whatever goes wrong in a Fork or a Join, Capture fails,
// gives the memory back, and the engine is as before.
func TestGraphForkFailures(t *testing.T) {
	e, x := newGraphBenchOf(t, tensor.Float64, 4, 4)
	mine := errors.New("mine")
	exp := func() error { return testkit.Second(tensor.Exp(x)) }
	forked := func() error { return errors.Join(e.Fork(exp), exp(), e.Join(), e.Fork(exp)) }
	sc := e.Scope()
	require.NoError(t, forked(), "without a capture")
	require.NoError(t, sc.Close())
	for what, f := range map[string]func() error{
		"own error":      func() error { return e.Fork(func() error { return errors.Join(exp(), mine) }) },
		"tensor's panic": func() error { return e.Fork(func() error { return testkit.Second(e.Empty(tensor.Float64, 1<<40)) }) },
		"later":          func() error { return errors.Join(forked(), mine) },
		"copy in": func() error {
			return e.Fork(func() error { return testkit.Second(e.FromHost(random(e.Rand, tensor.Float64, 3))) })
		},
	} {
		requireCaptureFails(e, f, what)
	}
	require.Panics(t, func() { _, _ = e.Capture(func() error { return e.Fork(func() error { panic("mine") }) }) })
	if fakecuda.Loaded() {
		defer fakecuda.Reset()
		for call, times := range map[string][2]int{ // a capture begins without the event before it, too
			"cuStreamCreate": {1, 1}, "cuEventCreate": {2, 2}, "cuEventRecord": {2, 5}, "cuStreamWaitEvent": {1, 4},
		} {
			for nth := times[0]; nth <= times[1]; nth++ {
				fakecuda.Fail(call, nth, 1, 1)
				requireCaptureFails(e, forked, call+" "+strconv.Itoa(nth))
				fakecuda.Reset()
			}
		}
	}
	g, err := e.Capture(forked)
	require.NoError(t, err)
	require.NoError(t, g.Launch())
	require.NoError(t, g.Close())
	e.FreeAll(x)
}

// requireCaptureFails: and nothing is left of it.
func requireCaptureFails(e *bench, f func() error, what string) {
	e.T.Helper()
	live := e.Live()
	_, err := e.Capture(f)
	var ours *cupool.EngineError
	require.ErrorAs(e.T, err, &ours, what)
	require.Equal(e.T, live, e.Live(), what)
	g, err := e.Capture(func() error { return e.Fork(func() error { return nil }) })
	require.NoError(e.T, err, what)
	require.NoError(e.T, g.Close(), what)
}
