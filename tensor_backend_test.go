package cupool_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"gorgonia.org/tensor"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/testkit"
	"github.com/cupool/cupool/internal/testkit/enginetest"
	"github.com/cupool/cupool/internal/testkit/pooltest"
)

// rawMemory is somebody else's tensor.Memory.
type rawMemory struct{ p, n uintptr }

func (m rawMemory) Uintptr() uintptr { return m.p }
func (m rawMemory) MemSize() uintptr { return m.n }

func TestNewEngine(t *testing.T) {
	c := pooltest.Open(t, cupool.Config{})
	other := pooltest.Open(t, cupool.Config{})
	defer other.Close()
	s := pooltest.NewStream(t, c)

	e, err := cupool.NewEngine(c)
	require.NoError(t, err)
	require.Same(t, c.DefaultStream(), e.Stream())
	require.Equal(t, cupool.Allocator(c), e.Allocator())
	require.True(t, e.AllocAccessible())
	require.True(t, e.WorksWith(tensor.ColMajor))
	require.Contains(t, e.String(), "host")
	e, err = cupool.NewEngine(c, cupool.WithStream(s), nil)
	require.NoError(t, err)
	require.Same(t, s, e.Stream())

	_, err = cupool.NewEngine(nil)
	require.ErrorIs(t, err, cupool.ErrInvalidConfig)
	_, err = cupool.NewEngine(new(cupool.Pool))
	require.EqualError(t, err, "cupool: invalid configuration: Allocator: an engine needs one")
	_, err = cupool.NewEngine(other, cupool.WithStream(s))
	require.ErrorIs(t, err, cupool.ErrForeignStream)
	require.NoError(t, c.Close())
}

func TestEngineAllocFree(t *testing.T) {
	both(t, func(t *testing.T, e *bench) {
		for _, size := range []int64{1, 511, 512, 513, 1 << 20, 4<<20 + 8} {
			m, err := e.Alloc(size)
			require.NoError(t, err)
			require.Equal(t, uintptr(size), m.MemSize())
			require.Contains(t, fmt.Sprint(m), fmt.Sprint(size))
			h := make([]byte, size)
			require.NoError(t, e.Memcpy(onHost(h), m))
			require.Equal(t, make([]byte, size), h, "Alloc zeroes")

			inside := rawMemory{m.Uintptr() + 256, m.MemSize()}
			for want, err := range map[error]error{
				cupool.ErrSizeMismatch:    e.Free(m, size+1),
				cupool.ErrInvalidSize:     e.Free(m, -1),
				cupool.ErrInteriorPointer: e.Free(inside, size),
				cupool.ErrForeignPointer:  e.Free(onHost(h), size),
			} {
				if size > 256 || want != cupool.ErrInteriorPointer {
					require.ErrorIs(t, err, want)
					var ee *cupool.EngineError
					require.ErrorAs(t, err, &ee)
				}
			}
			require.Equal(t, int64(1), e.Live(), "failed frees change nothing")
			p := m.Uintptr()
			require.NoError(t, e.Free(m, size))
			require.ErrorIs(t, e.Free(rawMemory{p, uintptr(size)}, size), cupool.ErrDoubleFree)
		}
		m, err := e.Alloc(0)
		require.NoError(t, err)
		require.Zero(t, m.MemSize())
		require.NoError(t, e.Free(m, 0))
		require.NoError(t, e.Free(nil, 0))
		require.ErrorIs(t, e.Free(m, 5), cupool.ErrSizeMismatch)
		_, err = e.Alloc(-1)
		require.ErrorIs(t, err, cupool.ErrInvalidSize)
	})
}

// TestEngineAllocNoGoAllocations: a cached Alloc makes no Go objects.
func TestEngineAllocNoGoAllocations(t *testing.T) {
	c := pooltest.Open(t, cupool.Config{})
	defer c.Close()
	e, err := cupool.NewEngine(c)
	require.NoError(t, err)
	require.Zero(t, testing.AllocsPerRun(100, func() {
		m, _ := e.Alloc(4096)
		_ = e.Free(m, 4096)
	}))
}

// onHost is a Go slice as a tensor.
func onHost(b []byte) *tensor.Dense {
	return tensor.New(tensor.WithShape(len(b)), tensor.WithBacking(b))
}

func TestEngineMemcpy(t *testing.T) {
	both(t, func(t *testing.T, e *bench) {
		want := []byte("the quick brown fox")
		n := uintptr(len(want))
		a, err := e.Alloc(int64(n))
		require.NoError(t, err)
		b, err := e.Alloc(int64(n))
		require.NoError(t, err)
		got := make([]byte, n)
		clean := func() { clear(got); e.Memclr(a); e.Memclr(b) }

		require.NoError(t, e.Memcpy(a, onHost(want)), "host to device")
		require.NoError(t, e.Memcpy(b, a), "device to device")
		require.NoError(t, e.Memcpy(onHost(got), b), "device to host")
		require.Equal(t, want, got)

		clean()
		require.NoError(t, e.Memcpy(onHost(got), a))
		require.Equal(t, make([]byte, n), got, "Memclr")

		require.NoError(t, e.Memcpy(onHost(got), onHost(want)), "host to host")
		require.Equal(t, want, got)

		clean()
		require.NoError(t, e.Memcpy(rawMemory{a.Uintptr() + 4, n - 4}, onHost(want[4:9])), "interior, shorter source")
		require.NoError(t, e.Memcpy(rawMemory{b.Uintptr() + 2, 5}, rawMemory{a.Uintptr() + 4, n - 4}), "interior, shorter destination")
		require.NoError(t, e.Memcpy(onHost(got[:7]), b))
		require.Equal(t, "\x00\x00quick", string(got[:7]))

		require.NoError(t, e.Memcpy(a, tensor.New(tensor.Of(tensor.Byte), tensor.WithShape(0))), "nothing")
		require.NoError(t, e.Memcpy(nil, a))

		beyond := rawMemory{a.Uintptr() + 4, n}
		require.ErrorIs(t, e.Memcpy(beyond, onHost(want)), cupool.ErrInvalidRange)
		require.ErrorIs(t, e.Memcpy(onHost(want), beyond), cupool.ErrInvalidRange)
		require.ErrorIs(t, e.Memcpy(b, beyond), cupool.ErrInvalidRange)
		freed := rawMemory{a.Uintptr(), n}
		require.NoError(t, e.Free(a, int64(n)))
		require.ErrorIs(t, e.Memcpy(freed, onHost(want)), cupool.ErrUseAfterFree)
		require.ErrorIs(t, e.Memcpy(onHost(want), freed), cupool.ErrUseAfterFree)
		e.Memclr(freed)
		require.ErrorIs(t, e.Sync(), cupool.ErrUseAfterFree, "Memclr's error")
		require.NoError(t, e.Sync())
		require.NoError(t, e.Free(b, int64(n)))
	})
}

// bytewise is a device that copies from the first byte to the last. A GPU promises nothing for ranges that overlap.
type bytewise struct{ pooltest.Far }

func (d bytewise) Copy(dst, src cupool.Ptr, n int64, s cupool.StreamHandle) error {
	for i := range cupool.Ptr(n) {
		if err := d.Far.Copy(dst+i, src+i, 1, s); err != nil {
			return err
		}
	}
	return nil
}

// Copies within a tensor are right on a device whose copies of overlapping ranges are not.
func TestEngineCopiesOverThemselves(t *testing.T) {
	c := pooltest.Open(t, cupool.Config{Driver: bytewise{pooltest.Far{Driver: pooltest.OpenHost(t)}}})
	e, err := cupool.NewEngine(c)
	require.NoError(t, err)
	for name, f := range map[string]func(dst, src *tensor.Dense) error{
		"Memcpy":      func(dst, src *tensor.Dense) error { return e.Memcpy(dst, src) },
		"Copy":        func(dst, src *tensor.Dense) error { return e.Copy(dst, src) },
		"tensor.Copy": func(dst, src *tensor.Dense) error { return tensor.Copy(dst, src) },
	} {
		x, err := e.FromHost(onHost([]byte("the quick")))
		require.NoError(t, err)
		part := func(from, to int) *tensor.Dense { return enginetest.View(x, tensor.S(from, to)) }
		require.NoError(t, f(part(2, 8), part(0, 6)), name)
		require.NoError(t, f(part(1, 8), part(2, 9)), name)
		require.NoError(t, f(part(0, 9), part(0, 9)), name)
		h, err := e.ToHost(x)
		require.NoError(t, err)
		require.Equal(t, "tthe qukk", string(h.Data().([]byte)), name)
		require.NoError(t, e.FreeTensor(x))
	}
	require.NoError(t, c.Close(), "leaks")
}

func TestEngineMemset(t *testing.T) {
	type pixel struct{ r, g, b uint8 }
	both(t, func(t *testing.T, e *bench) {
		for _, val := range []interface{}{float32(1.5), float64(-2), int(7), uint8(0xAB), true, complex64(1 + 2i), int32(-1), float64(0)} {
			for _, n := range []int{1, 3, 1 << 18} {
				dt := tensor.New(tensor.FromScalar(val)).Dtype()
				d, err := e.Empty(dt, n)
				require.NoError(t, err)
				require.NoError(t, e.Memset(d, val))
				h := e.Host(d)
				for _, i := range []int{0, n / 2, n - 1} {
					require.Equal(t, val, h.Get(i))
				}
				e.FreeAll(d)
			}
		}
		m, err := e.Alloc(9)
		require.NoError(t, err)
		got := make([]byte, 9)
		require.NoError(t, e.Memset(m, pixel{1, 2, 3}))
		require.NoError(t, e.Memcpy(onHost(got), m))
		require.Equal(t, []byte{1, 2, 3, 1, 2, 3, 1, 2, 3}, got)
		require.NoError(t, e.Memset(rawMemory{m.Uintptr() + 3, 3}, uint8(9)))
		require.NoError(t, e.Memcpy(onHost(got), m))
		require.Equal(t, []byte{1, 2, 3, 9, 9, 9, 1, 2, 3}, got)

		none, err := e.Alloc(0)
		require.NoError(t, err)
		e.Memclr(none)
		require.NoError(t, e.Sync())
		require.ErrorIs(t, e.Memset(m, float64(1)), cupool.ErrSizeMismatch)
		require.ErrorIs(t, e.Memset(m, "x"), cupool.ErrNotSupported)
		require.ErrorIs(t, e.Memset(m, nil), cupool.ErrNotSupported)
		require.ErrorIs(t, e.Memset(m, struct{}{}), cupool.ErrNotSupported)
		require.ErrorIs(t, e.Memset(onHost(got), float32(1)), cupool.ErrSizeMismatch, "not the elements' type")
		require.NoError(t, e.Memset(onHost(got), uint8(5)))
		require.Equal(t, uint8(5), got[8])
		require.NoError(t, e.Free(m, 9))
		require.ErrorIs(t, e.Memset(m, pixel{}), cupool.ErrUseAfterFree)
		require.ErrorIs(t, e.Memset(m, pixel{1, 1, 1}), cupool.ErrUseAfterFree)
		require.ErrorIs(t, e.Memset(m, pixel{1, 2, 1}), cupool.ErrUseAfterFree)
	})
}

func TestEngineAccessible(t *testing.T) {
	both(t, func(t *testing.T, e *bench) {
		m, err := e.Alloc(100)
		require.NoError(t, err)
		got, err := e.Accessible(m)
		if e.Far {
			require.ErrorIs(t, err, cupool.ErrNotSupported)
		} else {
			require.NoError(t, err)
			require.Equal(t, m, got)
		}
		h := onHost([]byte{1})
		got, err = e.Accessible(h)
		require.NoError(t, err)
		require.Equal(t, tensor.Memory(h), got)
		_, err = e.Accessible(tensor.New(tensor.Of(tensor.Byte), tensor.WithShape(0)))
		require.NoError(t, err)
		require.NoError(t, e.Free(m, 100))
		_, err = e.Accessible(m)
		require.ErrorIs(t, err, cupool.ErrUseAfterFree)
	})
}

// TestEngineOutOfMemory: running out inside of tensor is an error with Try,
// and everything works afterwards.
func TestEngineOutOfMemory(t *testing.T) {
	d, err := cupool.OpenHost(cupool.HostConfig{Capacity: 8 << 20})
	require.NoError(t, err)
	defer d.Close()
	c := pooltest.Open(t, cupool.Config{Driver: d})
	defer func() { require.NoError(t, c.Close()) }()
	e, err := cupool.NewEngine(c)
	require.NoError(t, err)
	a := tensor.New(tensor.Of(tensor.Float64), tensor.WithShape(1<<19), tensor.WithEngine(e))
	for name, f := range map[string]func() error{
		"New": func() error {
			tensor.New(tensor.Of(tensor.Float64), tensor.WithShape(1<<20), tensor.WithEngine(e))
			return nil
		},
		"Clone":  func() error { a.Clone(); a.Clone(); return nil },
		"Add":    func() error { b, err := a.Add(a); _ = b; _, err2 := a.Add(a); return errors.Join(err, err2) },
		"Sum T":  func() error { _, err := a.Stack(0, a, a); return err },
		"Empty":  func() error { _, err := e.Empty(tensor.Float64, 1<<20); return err },
		"Repeat": func() error { _, err := a.Repeat(0, 3); return err },
	} {
		sc := e.Scope()
		err := cupool.Try(f)
		var oom *cupool.OOMError
		require.ErrorAs(t, err, &oom, name)
		require.ErrorIs(t, err, cupool.ErrOutOfMemory, name)
		require.NoError(t, sc.Close())
		require.Equal(t, int64(1), c.Stats().All.Allocation.Current, name)
	}
	require.NoError(t, e.FreeTensor(a))
	require.NoError(t, cupool.Try(func() error {
		return e.FreeTensor(tensor.New(tensor.Of(tensor.Float64), tensor.WithShape(1<<19), tensor.WithEngine(e)))
	}))
}

func TestTry(t *testing.T) {
	require.NoError(t, cupool.Try(func() error { return nil }))
	require.Equal(t, cupool.ErrClosed, cupool.Try(func() error { return cupool.ErrClosed }))
	ours := &cupool.EngineError{Op: "x", Err: cupool.ErrOutOfMemory}
	require.ErrorIs(t, cupool.Try(func() error { panic(fmt.Errorf("wrapped: %w", ours)) }), ours)
	for _, p := range []any{"text", errors.New("other"), 5} {
		require.PanicsWithValue(t, p, func() { _ = cupool.Try(func() error { panic(p) }) })
	}
	require.Panics(t, func() { _ = cupool.Try(func() error { panic(nil) }) })
}

// TestEngineWaitsForStream: memory that work of the stream still uses is
// handed out again at once, so the CPU must wait before it touches it.
func TestEngineWaitsForStream(t *testing.T) {
	c := pooltest.Open(t, cupool.Config{MagazineBytes: -1})
	defer func() { require.NoError(t, c.Close()) }()
	e, err := cupool.NewEngine(c)
	require.NoError(t, err)
	const n = 1 << 16
	two := must(e.FromHost(onHost(make([]byte, 2))))
	for name, f := range map[string]func() tensor.Tensor{
		"New": func() tensor.Tensor {
			return tensor.New(tensor.Of(tensor.Byte), tensor.WithShape(n), tensor.WithEngine(e))
		},
		"Memclr": func() tensor.Tensor {
			d := must(e.Empty(tensor.Byte, n))
			e.Memclr(d)
			return d
		},
		"FromHost": func() tensor.Tensor { return must(e.FromHost(onHost(make([]byte, n)))) },
		"Repeat":   func() tensor.Tensor { return must(tensor.Repeat(two, 0, n/2)) },
	} {
		b := pooltest.Alloc(t, c, n, nil)
		v := bytesAt(b.Ptr(), n)
		require.NoError(t, c.DefaultStream().Launch(func() {
			time.Sleep(20 * time.Millisecond)
			for i := range v {
				v[i] = 0xFF
			}
		}))
		require.NoError(t, c.Free(b))
		d := f().(*tensor.Dense)
		require.Equal(t, uintptr(b.Ptr()), d.Uintptr(), "%s: the test needs the same block", name)
		require.Equal(t, make([]byte, n), d.Data(), name)
		require.NoError(t, e.FreeTensor(d))
	}
	require.NoError(t, e.FreeTensor(two))
}

// TestEngineConcurrent runs two engines on two streams and several goroutines
// on each.
func TestEngineConcurrent(t *testing.T) {
	c := pooltest.Open(t, cupool.Config{})
	defer func() { require.NoError(t, c.Close()) }()
	s := pooltest.NewStream(t, c)
	var wg sync.WaitGroup
	for _, opt := range []cupool.EngineOption{cupool.WithStream(nil), cupool.WithStream(s)} {
		e, err := cupool.NewEngine(c, opt)
		require.NoError(t, err)
		for g := range 3 {
			wg.Go(func() {
				for i := range 200 {
					v := float64(g*1000 + i)
					x := tensor.New(tensor.Of(tensor.Float64), tensor.WithShape(20, 1+i%7), tensor.WithEngine(e))
					_ = x.Memset(v)
					y := must(tensor.Add(x, x))
					z := must(tensor.Sum(y))
					if z.ScalarValue() != 2*v*float64(x.Size()) {
						panic(fmt.Sprint("got ", z.ScalarValue()))
					}
					must(0, e.FreeTensor(x, y, z))
				}
			})
		}
	}
	wg.Wait()
	require.Zero(t, c.Stats().All.Allocation.Current)
}

type bench = enginetest.Bench

// must returns v, and panics with err where that is not nil.
func must[T any](v T, err error) T { return testkit.Must(v, err) }

var (
	both       = enginetest.Both
	newBench   = enginetest.New
	random     = enginetest.Random
	bytesAt    = enginetest.BytesAt
	view       = enginetest.View
	transposed = enginetest.Transposed
)
