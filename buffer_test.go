package cupool_test

import (
	"errors"
	"math"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/testkit"
	"github.com/cupool/cupool/internal/testkit/pooltest"
)

// vec is a plain struct with padding.
type vec struct {
	X, Y float64
	Tag  uint8
	_    [3]bool
}

func roundTrip[T any](t *testing.T, c *cupool.Pool, values ...T) {
	t.Helper()
	b, err := cupool.BufferFrom(c, values, nil)
	require.NoError(t, err)
	require.Equal(t, len(values), b.Len())
	require.Equal(t, int64(len(values))*int64(unsafe.Sizeof(values[0])), b.Bytes())
	require.Equal(t, b.Bytes(), b.Block().Size())
	require.Zero(t, b.Ptr()%512)
	got, err := b.ToHost()
	require.NoError(t, err)
	require.Equal(t, values, got)
	require.NoError(t, b.Free())
}

func TestBufferElements(t *testing.T) {
	c := pooltest.Open(t, cupool.Config{})
	roundTrip[int8](t, c, -1, 2, 3)
	roundTrip(t, c, true, false, true)
	roundTrip[uint64](t, c, 0, math.MaxUint64)
	roundTrip[float32](t, c, 1.5, float32(math.Inf(1)))
	roundTrip(t, c, 1+2i, -3i)
	roundTrip(t, c, [3]int16{1, 2, 3}, [3]int16{4, 5, 6})
	roundTrip(t, c, vec{X: 1, Y: 2, Tag: 3}, vec{X: 4, Tag: 5})
	require.NoError(t, c.Close())
}

func refused[T any](t *testing.T, c *cupool.Pool) {
	t.Helper()
	_, err := cupool.NewBuffer[T](c, 1, nil)
	require.ErrorIs(t, err, cupool.ErrNotSupported)
	require.ErrorContains(t, err, "must not hold Go pointers")
}

func TestBufferRefusesPointers(t *testing.T) {
	c := pooltest.Open(t, cupool.Config{})
	refused[*int](t, c)
	refused[string](t, c)
	refused[[]byte](t, c)
	refused[any](t, c)
	refused[error](t, c)
	refused[map[int]int](t, c)
	refused[chan int](t, c)
	refused[func()](t, c)
	refused[unsafe.Pointer](t, c)
	refused[uintptr](t, c)
	refused[[0]*int](t, c)
	refused[[2]string](t, c)
	refused[struct {
		N int
		P struct{ S []int }
	}](t, c)
	require.NoError(t, c.Close())
}

func TestBufferSizes(t *testing.T) {
	c := pooltest.Open(t, cupool.Config{})
	for _, n := range []int{-1, math.MinInt, math.MaxInt, math.MaxInt/8 + 1, 1 << 60} {
		_, err := cupool.NewBuffer[float64](c, n, nil)
		require.ErrorIs(t, err, cupool.ErrInvalidSize, "%d elements", n)
		_, err = cupool.NewBuffer[[1 << 20]vec](c, n, nil)
		require.ErrorIs(t, err, cupool.ErrInvalidSize, "%d elements", n)
	}
	_, err := cupool.NewBuffer[float64](c, 1<<40, nil)
	require.ErrorIs(t, err, cupool.ErrOutOfMemory)
	require.ErrorContains(t, err, "buffer of 1099511627776 elements of float64")
	require.NoError(t, c.Close())
}

// No elements, and elements of no size: legal, and all calls work.
func TestEmptyBuffers(t *testing.T) {
	c := pooltest.Open(t, cupool.Config{})
	empty[float32](t, c, 0)
	empty[struct{}](t, c, 0)
	empty[struct{}](t, c, 1000)
	empty[[0]int](t, c, math.MaxInt)
	require.Zero(t, c.Stats().All.Allocation.Allocated, "nothing was allocated")
	require.NoError(t, c.Close())
}

func empty[T any](t *testing.T, c *cupool.Pool, n int) {
	t.Helper()
	b, err := cupool.NewBuffer[T](c, n, nil)
	require.NoError(t, err)
	require.Equal(t, n, b.Len())
	require.Zero(t, b.Bytes())
	require.Zero(t, b.Ptr())
	require.True(t, b.Block().IsEmpty())
	if n <= 1000 {
		require.NoError(t, b.CopyFrom(make([]T, n)))
		s, err := b.ToHost()
		require.NoError(t, err)
		require.Len(t, s, n)
		require.NoError(t, b.CopyBuffer(b))
	}
	require.NoError(t, b.Memset(1))
	v, err := b.View(0, n)
	require.NoError(t, err)
	require.Equal(t, n, v.Len())
	on, err := b.On(nil)
	require.NoError(t, err)
	require.NoError(t, on.Memset(1))
	require.NoError(t, b.Free())
}

func TestBufferOfOneByte(t *testing.T) {
	b, err := cupool.BufferFrom(pooltest.Open(t, cupool.Config{}), []byte{1}, nil)
	require.NoError(t, err)
	require.NoError(t, b.Memset(7))
	got, err := b.ToHost()
	require.NoError(t, err)
	require.Equal(t, []byte{7}, got)
}

func TestBufferMemsetAndCopies(t *testing.T) {
	c := pooltest.Open(t, cupool.Config{})
	s := pooltest.NewStream(t, c)
	a, err := cupool.NewBuffer[uint16](c, 100, s)
	require.NoError(t, err)
	require.Same(t, s, a.Stream())
	require.NoError(t, a.Memset(0xAB))
	b, err := cupool.NewBuffer[uint16](c, 100, s)
	require.NoError(t, err)
	require.NoError(t, b.CopyBuffer(a))
	got, err := b.ToHost()
	require.NoError(t, err)
	for _, v := range got {
		require.EqualValues(t, 0xABAB, v)
	}

	for name, err := range map[string]error{
		"from too few":  a.CopyFrom(make([]uint16, 99)),
		"from too many": a.CopyFrom(make([]uint16, 101)),
		"to none":       a.CopyTo(nil),
		"to too many":   a.CopyTo(make([]uint16, 101)),
	} {
		require.ErrorIs(t, err, cupool.ErrSizeMismatch, name)
		require.ErrorContains(t, err, "the buffer 100", name)
	}
	short, err := a.View(0, 50)
	require.NoError(t, err)
	require.ErrorIs(t, b.CopyBuffer(short), cupool.ErrSizeMismatch)
	require.NoError(t, a.Free())
	require.NoError(t, b.Free())
	require.NoError(t, c.Close())
}

func TestBufferViews(t *testing.T) {
	c := pooltest.Open(t, cupool.Config{})
	b, err := cupool.BufferFrom(c, []int32{0, 1, 2, 3, 4, 5, 6, 7}, nil)
	require.NoError(t, err)
	v, err := b.View(2, 6)
	require.NoError(t, err)
	require.Equal(t, b.Ptr()+8, v.Ptr())
	require.Equal(t, b.Block(), v.Block())
	vv, err := v.View(1, 3) // a view of a view
	require.NoError(t, err)
	got, err := vv.ToHost()
	require.NoError(t, err)
	require.Equal(t, []int32{3, 4}, got)

	require.NoError(t, vv.CopyFrom([]int32{30, 40}))
	got, err = b.ToHost()
	require.NoError(t, err)
	require.Equal(t, []int32{0, 1, 2, 30, 40, 5, 6, 7}, got, "the memory is shared")
	none, err := b.View(8, 8)
	require.NoError(t, err)
	require.Zero(t, none.Len())

	for _, r := range [][2]int{{-1, 2}, {3, 2}, {0, 9}, {9, 9}, {math.MinInt, math.MaxInt}} {
		_, err := b.View(r[0], r[1])
		require.ErrorIs(t, err, cupool.ErrInvalidRange, "%v", r)
	}
	_, err = v.View(0, 5)
	require.ErrorIs(t, err, cupool.ErrInvalidRange, "beyond the view, though inside its parent")
	require.ErrorIs(t, v.Free(), cupool.ErrInteriorPointer)
	require.NoError(t, b.Free())
	require.NoError(t, c.Close())
}

// Every method notices that the memory is gone, through whatever handle it
// was freed, also when other blocks live there again.
// What waits for the stream that a copy has waited for is free then, and there is nothing
// pending that a Sync would free.
func TestToHostLeavesNothingPending(t *testing.T) {
	c := pooltest.Open(t, cupool.Config{})
	user := pooltest.NewStream(t, c)
	x := pooltest.Alloc(t, c, 4<<20, nil)
	b, err := cupool.BufferFrom(c, []int32{1, 2, 3}, user)
	require.NoError(t, err)
	release := make(chan struct{})
	require.NoError(t, user.Launch(func() { <-release }))
	require.NoError(t, c.FreeOn(x, user))
	require.NoError(t, user.CopyOut(nil, b.Ptr()))
	require.Positive(t, c.Stats().PendingBytes, "a copy of nothing waits for nothing")
	close(release)
	got, err := b.ToHost()
	require.NoError(t, err)
	require.Equal(t, []int32{1, 2, 3}, got)
	require.Zero(t, c.Stats().PendingBytes)
	require.NoError(t, b.Free())
}

func TestBufferUseAfterFree(t *testing.T) {
	for name, free := range map[string]func(c *cupool.Pool, b *cupool.Buffer[int32]) error{
		"by Free":    func(_ *cupool.Pool, b *cupool.Buffer[int32]) error { return b.Free() },
		"by handle":  func(c *cupool.Pool, b *cupool.Buffer[int32]) error { return c.Free(b.Block()) },
		"by address": func(c *cupool.Pool, b *cupool.Buffer[int32]) error { return c.FreePtr(b.Ptr(), b.Bytes()) },
		"and reused": func(c *cupool.Pool, b *cupool.Buffer[int32]) error {
			if err := b.Free(); err != nil {
				return err
			}
			again, err := cupool.NewBuffer[int32](c, b.Len(), nil)
			if err == nil && again.Ptr() != b.Ptr() {
				err = errors.New("not the same address")
			}
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := pooltest.Open(t, cupool.Config{})
			b, err := cupool.NewBuffer[int32](c, 8, nil)
			require.NoError(t, err)
			v, err := b.View(2, 4)
			require.NoError(t, err)
			on, err := b.On(c.DefaultStream())
			require.NoError(t, err)
			require.NoError(t, free(c, b))

			other, err := cupool.NewBuffer[int32](c, 8, nil)
			require.NoError(t, err)
			for name, err := range map[string]error{
				"CopyFrom":        b.CopyFrom(make([]int32, 8)),
				"CopyTo":          b.CopyTo(make([]int32, 8)),
				"Memset":          b.Memset(0),
				"CopyBuffer to":   b.CopyBuffer(other),
				"CopyBuffer from": other.CopyBuffer(b),
				"ToHost":          testkit.Second(b.ToHost()),
				"View":            testkit.Second(b.View(0, 1)),
				"On":              testkit.Second(b.On(nil)),
				"view.CopyTo":     v.CopyTo(make([]int32, 2)),
				"view.Memset":     v.Memset(0),
				"on.CopyFrom":     on.CopyFrom(make([]int32, 8)),
			} {
				require.ErrorIs(t, err, cupool.ErrUseAfterFree, name)
			}
			require.ErrorIs(t, b.Free(), cupool.ErrDoubleFree)
		})
	}
}

func TestBufferAfterClose(t *testing.T) {
	c := pooltest.Open(t, cupool.Config{})
	b, err := cupool.NewBuffer[int32](c, 8, nil)
	require.NoError(t, err)
	require.Error(t, c.Close(), "a leak")
	require.ErrorIs(t, b.Memset(0), cupool.ErrClosed)
	require.ErrorIs(t, b.Free(), cupool.ErrClosed)
	_, err = cupool.NewBuffer[int32](c, 8, nil)
	require.ErrorIs(t, err, cupool.ErrClosed)
}

// On records the stream: the memory waits for what the other stream does.
func TestBufferOn(t *testing.T) {
	c, d := pooltest.New(t, 1<<30)
	x := pooltest.NewScript(t, c, d)
	s := x.Stream("1")
	b, err := cupool.NewBuffer[byte](c, 2<<20, nil)
	require.NoError(t, err)
	on, err := b.On(s)
	require.NoError(t, err)
	require.Same(t, s, on.Stream())
	require.Equal(t, b.Ptr(), on.Ptr())
	d.Busy(s)
	require.NoError(t, on.Memset(1))
	require.ErrorIs(t, on.Free(), cupool.ErrInteriorPointer, "its parent is freed")
	require.NoError(t, b.Free())
	require.Equal(t, "0 large: [Pending 2M][Free 18M]", x.Layout())
	x.Run("idle:1 process")
	require.Equal(t, "0 large: [Free 20M]", x.Layout())

	b, err = cupool.NewBuffer[byte](c, 8, s)
	require.NoError(t, err)
	def, err := b.On(nil)
	require.NoError(t, err)
	require.Same(t, c.DefaultStream(), def.Stream())
	other, _ := pooltest.New(t, 1<<30)
	_, err = b.On(other.DefaultStream())
	require.ErrorIs(t, err, cupool.ErrForeignStream)
}

func TestWithBuffer(t *testing.T) {
	c := pooltest.Open(t, cupool.Config{})
	var kept *cupool.Buffer[float32]
	require.NoError(t, cupool.WithBuffer(c, 10, nil, func(b *cupool.Buffer[float32]) error {
		kept = b
		return b.Memset(0)
	}))
	require.ErrorIs(t, kept.Memset(0), cupool.ErrUseAfterFree)

	noLuck := errors.New("no luck")
	require.ErrorIs(t, cupool.WithBuffer(c, 10, nil, func(*cupool.Buffer[float32]) error { return noLuck }), noLuck)
	require.PanicsWithValue(t, "oh", func() {
		_ = cupool.WithBuffer(c, 10, nil, func(*cupool.Buffer[float32]) error { panic("oh") })
	})
	require.ErrorIs(t, cupool.WithBuffer(c, 10, nil, func(b *cupool.Buffer[float32]) error { return b.Free() }), cupool.ErrDoubleFree)
	require.ErrorIs(t, cupool.WithBuffer(c, -1, nil, func(*cupool.Buffer[float32]) error { panic("not called") }), cupool.ErrInvalidSize)
	require.ErrorIs(t, cupool.WithBuffer[float32](c, 10, nil, nil), cupool.ErrInvalidHandle)
	require.Zero(t, c.Stats().LiveBytes, "freed, however it ended")
	require.NoError(t, c.Close())
}

// A BufferFrom that cannot copy gives its memory back.
func TestBufferFromFailure(t *testing.T) {
	c, d := pooltest.New(t, 1<<30)
	d.Fail("CopyIn", errors.New("no luck"))
	_, err := cupool.BufferFrom(c, []int{1, 2, 3}, nil)
	require.ErrorContains(t, err, "no luck")
	require.Zero(t, c.Stats().LiveBytes)
	_, err = cupool.BufferFrom(c, []string{"a"}, nil)
	require.ErrorIs(t, err, cupool.ErrNotSupported)
}
