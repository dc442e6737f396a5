package cupool_test

import (
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"gorgonia.org/tensor"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/testkit/pooltest"
)

// settle runs it often enough to give back whatever it will.
func settle(e *bench) {
	for range 5 {
		runtime.GC()
		time.Sleep(time.Millisecond) // for cleanups
		_, err := e.Pool.ProcessDeferred()
		require.NoError(e.T, err)
	}
}

// usurp takes the memory that tensors like d had, if it is free, and spoils it.
func usurp(e *bench, d tensor.Tensor) {
	var blocks []cupool.Block
	for range 20 {
		b, err := e.Pool.Alloc(int64(d.MemSize()), nil)
		require.NoError(e.T, err)
		require.NoError(e.T, e.Pool.DefaultStream().Memset(b.Ptr(), 0xFF, b.Size()))
		blocks = append(blocks, b)
	}
	for _, b := range blocks {
		require.NoError(e.T, e.Pool.Free(b))
	}
}

// mortals runs a test on engines with lifetimes.
func mortals(t *testing.T, f func(t *testing.T, e *bench)) { both(t, f, cupool.WithLifetimes()) }

// Results that nobody has any more go back.
func TestLifetimesDropped(t *testing.T) {
	mortals(t, func(t *testing.T, e *bench) {
		x := e.From(random(e.Rand, tensor.Float32, 4, 5))
		for range 50 {
			y := must(tensor.Add(x, x))
			must(tensor.Exp(must(tensor.Sum(y, 0))))
			must(e.Empty(tensor.Int, 3))
		}
		require.Equal(t, e.Engine, cupool.EngineOf(x))
		e.Collect(1)
		runtime.KeepAlive(x)
		x = nil
		e.Collect(0)
	})
}

// Memory lives as long as anything that was made from the tensor, which itself
// need not.
func TestLifetimesOfViews(t *testing.T) {
	mortals(t, func(t *testing.T, e *bench) {
		for name, make := range map[string]func(d *tensor.Dense) *tensor.Dense{
			"slice":            func(d *tensor.Dense) *tensor.Dense { return view(d, tensor.S(1, 3)) },
			"slice of slice":   func(d *tensor.Dense) *tensor.Dense { return view(view(d, tensor.S(0, 3)), nil, tensor.S(1)) },
			"shallow clone":    func(d *tensor.Dense) *tensor.Dense { return d.ShallowClone() },
			"transposed":       func(d *tensor.Dense) *tensor.Dense { return transposed(d.ShallowClone()) },
			"reshaped":         func(d *tensor.Dense) *tensor.Dense { c := d.ShallowClone(); must(0, c.Reshape(20)); return c },
			"another engine's": func(d *tensor.Dense) *tensor.Dense { tensor.WithEngine(e.Engine)(d); return d },
		} {
			d := e.From(random(e.Rand, tensor.Float64, 4, 5))
			v := make(d)
			want := must(e.ToHost(v)).String()
			d = nil
			settle(e)
			require.Equal(t, int64(1), e.Live(), name)
			usurp(e, v)
			require.Equal(t, want, must(e.ToHost(v)).String(), name)
			runtime.KeepAlive(v)
			v = nil
			e.Collect(0)
		}
	})
}

// A late cleanup does not free what was freed already, nor whoever has the
// memory now.
func TestLifetimesAfterFree(t *testing.T) {
	e := newBench(t, false, cupool.WithLifetimes())
	func() {
		d := must(e.Empty(tensor.Float64, 64))
		e.FreeAll(d)
	}()
	b := pooltest.Alloc(t, e.Pool, 512, nil)
	settle(e)
	require.Equal(t, int64(1), e.Live())
	now, err := e.Pool.Lookup(b.Ptr())
	require.NoError(t, err)
	require.Equal(t, b, now)
	require.NoError(t, e.Pool.Free(b))

	scope := e.Scope()
	must(e.Empty(tensor.Float64, 64))
	require.NoError(t, scope.Close())
	settle(e)
	require.Zero(t, e.Live())
}

// Recycling a tensor does not tie it to what it was before.
func TestLifetimesReturnTensor(t *testing.T) {
	e := newBench(t, false, cupool.WithLifetimes())
	for range 100 {
		tensor.ReturnTensor(must(e.Empty(tensor.Float64, 64)))
	}
	e.Collect(0)
}

// TestLifetimesBesideTensors makes engines while another goroutine works with tensors. The race detector tells.
func TestLifetimesBesideTensors(t *testing.T) {
	e := newBench(t, false, cupool.WithLifetimes())
	var others sync.WaitGroup
	others.Go(func() {
		for range 100 {
			tensor.ReturnTensor(tensor.New(tensor.WithBacking([]float64{1, 2})))
		}
	})
	for range 100 {
		_, err := cupool.NewEngine(e.Pool, cupool.WithLifetimes())
		require.NoError(t, err)
	}
	others.Wait()
}

func TestTrack(t *testing.T) {
	mortals(t, func(t *testing.T, e *bench) {
		x := must(e.Empty(tensor.Float32, 3, 3)).Clone().(*tensor.Dense)
		require.NoError(t, e.Track(x, nil, tensor.New(tensor.Of(tensor.Int), tensor.WithShape(0), tensor.WithEngine(e.Engine))))
		require.NoError(t, e.Track(x), "again")
		y := must(tensor.MatMul(x, x)).(*tensor.Dense) // tensor makes it
		require.NoError(t, e.Track(y))
		settle(e)
		require.Equal(t, int64(2), e.Live())
		runtime.KeepAlive(y)
		y = nil
		e.Collect(1)
		runtime.KeepAlive(x)
		x = nil
		e.Collect(0)
	})
}

func TestTrackErrors(t *testing.T) {
	e := newBench(t, false, cupool.WithLifetimes())
	of := must(e.Empty(tensor.Float32, 300))
	d := of.Clone().(*tensor.Dense)
	freed := must(e.Empty(tensor.Float32, 3))
	e.FreeAll(freed)
	for name, c := range map[string]struct {
		t    tensor.Tensor
		want error
	}{
		"end of a block":   {view(d, tensor.S(1, 300)), cupool.ErrInteriorPointer},
		"start of a block": {view(d, tensor.S(0, 10)), cupool.ErrSizeMismatch},
		"Go's heap":        {random(e.Rand, tensor.Float32, 3), cupool.ErrForeignPointer},
		"freed":            {freed, cupool.ErrUseAfterFree},
		"sparse":           {tensor.CSRFromCoord(tensor.Shape{2, 2}, []int{0}, []int{0}, []float64{1}), cupool.ErrNotSupported},
	} {
		err := e.Track(c.t)
		require.ErrorIs(t, err, c.want, name)
		require.ErrorAs(t, err, new(*cupool.EngineError), name)
	}
	e.FreeAll(of, d)
	require.ErrorIs(t, newBench(t, false).Track(d), cupool.ErrNotSupported)
}

// tensor.New, whose tensors the engine does not see, works where a scope frees them.
func TestLifetimesOfNew(t *testing.T) {
	mortals(t, func(t *testing.T, e *bench) {
		x := must(e.Empty(tensor.Float32, 3))
		for name, make := range map[string]func(engine tensor.Engine) *tensor.Dense{
			"New": func(engine tensor.Engine) *tensor.Dense {
				return tensor.New(tensor.Of(tensor.Float32), tensor.WithShape(2, 2), tensor.WithEngine(engine))
			},
			"NewDense": func(engine tensor.Engine) *tensor.Dense {
				return tensor.NewDense(tensor.Float32, tensor.Shape{2, 2}, tensor.WithEngine(engine))
			},
		} {
			for _, engine := range []tensor.Engine{e.Engine, x.Engine()} {
				err := cupool.Try(func() error { make(engine); return nil })
				require.ErrorIs(t, err, cupool.ErrNotSupported, name)
				require.ErrorContains(t, err, "tensor."+name+" of 16 bytes")
				s := e.Scope()
				make(engine)
				require.NoError(t, s.Close())
			}
		}
		require.Equal(t, int64(1), e.Live())
		e.FreeAll(x)
	})
}

// plainAllocator has no FreeLater.
type plainAllocator struct{ cupool.Allocator }

func TestLifetimesNeedFreeLater(t *testing.T) {
	e := newBench(t, false)
	_, err := cupool.NewEngine(plainAllocator{e.Pool}, cupool.WithLifetimes())
	require.ErrorIs(t, err, cupool.ErrNotSupported)
}

// A program that frees nothing runs in a device far smaller than all it takes.
func TestLifetimesOnASmallDevice(t *testing.T) {
	c := pooltest.Open(t, cupool.Config{Limit: 64 << 20})
	e, err := cupool.NewEngine(c, cupool.WithLifetimes())
	require.NoError(t, err)
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			x, err := e.Empty(tensor.Float32, 1<<16)
			require.NoError(t, err)
			require.NoError(t, e.Memset(x, float32(1)))
			for range 500 {
				y, err := tensor.Add(x, x)
				require.NoError(t, err)
				require.Equal(t, float32(2), y.(*tensor.Dense).Float32s()[1000])
				runtime.KeepAlive(y)
			}
			require.Equal(t, float32(1), x.Float32s()[1000])
			runtime.KeepAlive(x)
		})
	}
	wg.Wait()
	require.Zero(t, c.Stats().OOMs)
	(&bench{Engine: e, Pool: c, T: t}).Collect(0)
	require.NoError(t, c.Close())
}

// A result that tensor makes with the engine of a freed operand, in its memory,
// is no freed tensor.
func TestLifetimesResultsInOperandsMemory(t *testing.T) {
	e := newBench(t, false, cupool.WithLifetimes())
	x := e.From(tensor.New(tensor.WithShape(2, 2), tensor.WithBacking([]float64{1, 1, 0, 1})))
	y := must(tensor.MatMul(x, x)).(*tensor.Dense)
	require.Equal(t, x.Engine(), y.Engine(), "tensor.MatMul takes the engine of its operand")
	at := x.Uintptr()
	e.FreeAll(x)
	z := must(tensor.MatMul(y, y)).(*tensor.Dense)
	require.Equal(t, at, z.Uintptr())
	require.Equal(t, []float64{1, 4, 0, 1}, e.Host(z).Data())
	require.Equal(t, []float64{2, 8, 0, 2}, e.Host(must(tensor.Add(z, z))).Data())
	e.FreeAll(y, z)
	e.Collect(0)
}
