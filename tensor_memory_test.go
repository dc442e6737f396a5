package cupool_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"gorgonia.org/tensor"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/testkit/pooltest"
)

func TestEngineFreeTensor(t *testing.T) {
	both(t, func(t *testing.T, e *bench) {
		d := e.From(random(e.Rand, tensor.Float32, 4, 4))
		clone := d.ShallowClone()
		rows, columns := view(d, tensor.S(1, 3)), view(d, nil, tensor.S(1, 3))
		first := view(d, tensor.S(0, 2))
		heap := random(e.Rand, tensor.Float32, 3)

		require.ErrorIs(t, e.FreeTensor(rows), cupool.ErrInteriorPointer)
		require.ErrorIs(t, e.FreeTensor(columns), cupool.ErrInteriorPointer)
		require.ErrorIs(t, e.FreeTensor(first), cupool.ErrSizeMismatch)
		require.ErrorIs(t, e.FreeTensor(heap), cupool.ErrForeignPointer)
		require.NoError(t, e.FreeTensor(nil, (*tensor.Dense)(nil), tensor.New(tensor.Of(tensor.Int), tensor.WithShape(0), tensor.WithEngine(e))))
		require.Equal(t, int64(1), e.Live())

		require.ErrorIs(t, e.FreeTensor(heap, d), cupool.ErrForeignPointer, "frees what it can")
		require.Zero(t, e.Live())
		require.ErrorIs(t, e.FreeTensor(d), cupool.ErrDoubleFree)
		require.ErrorIs(t, e.FreeTensor(clone), cupool.ErrDoubleFree)
		require.False(t, e.Owns(d))
		require.False(t, e.Owns(clone))
	})
}

// TestEngineFreesDamaged: a tensor whose free finds damage of its memory is left without data, too.
func TestEngineFreesDamaged(t *testing.T) {
	c := pooltest.Open(t, cupool.Config{Sanitize: cupool.Sanitizers{Canaries: 64, Wait: true}})
	e := must(cupool.NewEngine(c))
	var step *cupool.Scope
	for name, free := range map[string]func(*tensor.Dense) error{
		"FreeTensor": func(d *tensor.Dense) error { return e.FreeTensor(d) },
		"Close":      func(*tensor.Dense) error { return step.Close() },
	} {
		step = e.Scope()
		d := must(e.Empty(tensor.Float32, 100))
		require.NoError(t, c.DefaultStream().Memset(cupool.Ptr(d.Uintptr()), 7, 401))
		require.ErrorIs(t, free(d), cupool.ErrCorrupted, name)
		require.Zero(t, d.MemSize(), name)
		require.NoError(t, step.Close(), name)
	}
}

// TestEngineStrangers: memory that only another engine's device can touch is left to that, or refused.
func TestEngineStrangers(t *testing.T) {
	e, other := newBench(t, true), newBench(t, true)
	d := other.From(random(e.Rand, tensor.Float32, 4, 4))
	own := e.From(random(e.Rand, tensor.Float32, 4, 4))
	require.NoError(t, e.Memset(d, float32(3)))
	require.Equal(t, float32(3), other.Host(d).Get(5))
	require.NoError(t, e.Zero(view(d, nil, tensor.S(1, 3))))
	require.Equal(t, []float32{3, 0, 0, 3}, other.Host(d).Data().([]float32)[:4])
	require.NoError(t, e.Zero(d))
	require.Zero(t, other.Host(d).Get(0))

	require.ErrorIs(t, e.Memcpy(own, d), cupool.ErrNotSupported)
	require.ErrorIs(t, e.Memcpy(d, own), cupool.ErrNotSupported)
	_, err := e.Accessible(d)
	require.ErrorIs(t, err, cupool.ErrNotSupported)
	require.NoError(t, e.Copy(own, d))
	e.FreeAll(own)
	other.FreeAll(d)
}

func TestEngineOwns(t *testing.T) {
	both(t, func(t *testing.T, e *bench) {
		d := e.From(random(e.Rand, tensor.Float32, 4, 4))
		for name, tc := range map[string]struct {
			t    tensor.Tensor
			want bool
		}{
			"result":       {d, true},
			"view":         {view(d, tensor.S(1, 3)), true},
			"shallow":      {d.ShallowClone(), true},
			"heap":         {random(e.Rand, tensor.Int, 2), false},
			"with backing": {tensor.New(tensor.WithBacking([]int{1}), tensor.WithEngine(e)), false},
			"empty":        {tensor.New(tensor.Of(tensor.Int), tensor.WithShape(0), tensor.WithEngine(e)), false},
			"nil":          {nil, false},
			"nil pointer":  {(*tensor.Dense)(nil), false},
		} {
			require.Equal(t, tc.want, e.Owns(tc.t), name)
		}
		e.FreeAll(d)
	})
}

func TestEngineEmpty(t *testing.T) {
	both(t, func(t *testing.T, e *bench) {
		for _, shape := range [][]int{{}, {1}, {3, 4}, {0, 3}} {
			d, err := e.Empty(tensor.Float32, shape...)
			require.NoError(t, err)
			require.Equal(t, tensor.Shape(shape).TotalSize()*4, int(d.MemSize()))
			require.Same(t, e.Engine, d.Engine())
			if d.MemSize() > 0 {
				require.NotZero(t, e.Host(d).Get(0), "not zeroed: the memory is poisoned")
			}
			e.FreeAll(d)
		}
		_, err := e.Empty(tensor.String, 3)
		require.ErrorIs(t, err, cupool.ErrNotSupported)
		for _, shape := range [][]int{{-1}, {1 << 62, 4}, {1 << 40, 1 << 40}} {
			_, err = e.Empty(tensor.Float32, shape...)
			require.ErrorIs(t, err, cupool.ErrInvalidSize)
		}
	})
}

// TestEngineStats: what is computed where is counted.
func TestEngineStats(t *testing.T) {
	both(t, func(t *testing.T, e *bench) {
		a := e.From(random(e.Rand, tensor.Float64, 4))
		b := must(tensor.Add(a, a))
		c := must(tensor.Exp(a))
		st := e.Stats()
		if e.GPU {
			require.Equal(t, cupool.EngineStats{Bytes: 32}, st, "FromHost; the rest was computed there")
		} else if e.Far {
			require.Equal(t, int64(2), st.Fallbacks)
			require.Equal(t, map[string]int64{"Add": 1, "Exp": 1}, st.ByOp)
			require.Equal(t, int64(32+64+64), st.Bytes, "FromHost; an operand, used twice, and a result; the same")
		} else {
			require.Zero(t, st)
		}
		e.FreeAll(a, b, c)
	})
}

// TestOneByte: a tensor of one byte is in the pool, too.
func TestOneByte(t *testing.T) {
	both(t, func(t *testing.T, e *bench) {
		x := must(e.FromHost(onHost([]byte{7})))
		require.True(t, e.Owns(x))
		require.Equal(t, []byte{7}, must(e.ToHost(x)).Uint8s())
		require.NoError(t, e.FreeTensor(x))
	})
}

// TestOuterFails: an outer product whose result has no memory on the device, or cannot be
// zeroed there, leaves nothing behind.
func TestOuterFails(t *testing.T) {
	d := &noMemset{Far: pooltest.Far{Driver: pooltest.Open(t, cupool.Config{}).Driver()}}
	c := pooltest.Open(t, cupool.Config{Driver: d, Limit: 8 * mib})
	e := must(cupool.NewEngine(c))
	x := must(e.FromHost(tensor.New(tensor.WithBacking(tensor.Range(tensor.Float64, 0, 500)))))
	for want, fails := range map[error]func(){
		cupool.ErrOutOfMemory: func() { d.wide = pooltest.Alloc(t, c, 5*mib+mib/2, nil) },
		errNoMemset:           func() { d.fails = true },
	} {
		fails()
		before := c.Stats().LiveBytes
		_, err := x.Outer(x)
		require.ErrorIs(t, err, want)
		require.Equal(t, before, c.Stats().LiveBytes)
		require.NoError(t, c.Free(d.wide))
		d.wide, d.fails = cupool.Block{}, false
		r, err := x.Outer(x)
		require.NoError(t, err)
		require.True(t, e.Owns(r))
		require.NoError(t, e.FreeTensor(r))
	}
}

var errNoMemset = errors.New("no memset")

// noMemset is a device that sets no memory while it fails.
type noMemset struct {
	pooltest.Far
	wide  cupool.Block
	fails bool
}

func (d *noMemset) Memset(dst cupool.Ptr, value byte, n int64, s cupool.StreamHandle) error {
	if d.fails {
		return errNoMemset
	}
	return d.Far.Memset(dst, value, n, s)
}

// Sync fails with what its stream says.
func TestEngineSyncOfClosedPool(t *testing.T) {
	c := pooltest.Open(t, cupool.Config{})
	e, err := cupool.NewEngine(c)
	require.NoError(t, err)
	require.NoError(t, e.Sync())
	require.NoError(t, c.Close())
	require.ErrorIs(t, e.Sync(), cupool.ErrClosed)
}

// An engine whose stream was closed fails with ErrClosed, and does not ask the device for
// a stream that it does not have any more.
func TestEngineOnAClosedStream(t *testing.T) {
	c := pooltest.Open(t, cupool.Config{})
	s, err := c.NewStream()
	require.NoError(t, err)
	e, err := cupool.NewEngine(c, cupool.WithStream(s))
	require.NoError(t, err)
	x, err := e.Empty(tensor.Float64, 2)
	require.NoError(t, err)
	require.NoError(t, s.Close())
	for _, f := range []func() error{
		e.Sync,
		func() error { _, err := e.ToHost(x); return err },
		func() error { _, err := e.FromHost(x); return err },
		func() error { _, err := e.Accessible(x); return err },
		func() error { _, err := e.Square(x, tensor.UseUnsafe()); return err },
		func() error { return e.Memset(x, 1.0) },
		func() error { return e.Zero(x) },
	} {
		require.ErrorIs(t, f(), cupool.ErrClosed)
	}
	require.NoError(t, e.FreeTensor(x))
	require.NoError(t, c.Close())
}
