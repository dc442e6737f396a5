package cuda_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"gorgonia.org/tensor"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/cuda"
	"github.com/cupool/cupool/internal/testkit/gputest"
)

// sample is a Go object with a pointer beside the memory that is copied.
type sample struct {
	name *string
	px   [1024]float32
	raw  [4096]byte
}

// heap keeps what tests allocate off the stack.
var heap []*sample

func newSample(value float32) *sample {
	s := &sample{name: new(string)}
	for i := range s.px {
		s.px[i] = value + float32(i)
		s.raw[i] = byte(value) + byte(i)
	}
	heap = append(heap, s)
	return s
}

// TestCopySliceOfObject copies slices that lie in Go objects which also hold
// pointers, in both directions, by every way to the device.
func TestCopySliceOfObject(t *testing.T) {
	defer func() { heap = nil }()
	gputest.Need(t)
	d, err := cuda.Open(0)
	require.NoError(t, err)
	defer d.Close()
	from, to := newSample(3), newSample(100)

	t.Run("driver", func(t *testing.T) {
		p, err := d.MemAlloc(int64(len(from.raw)))
		require.NoError(t, err)
		require.NoError(t, d.CopyIn(p, from.raw[:], 0))
		require.NoError(t, d.CopyOut(to.raw[:], p, 0))
		require.Equal(t, from.raw, to.raw)
		require.NoError(t, d.MemFree(p))
	})
	t.Run("registered", func(t *testing.T) {
		b := newSample(7).raw[:]
		p, err := d.HostRegister(b)
		require.NoError(t, err)
		require.NoError(t, errors.Join(d.Memset(p, 9, int64(len(b)), 0), d.SyncStream(0)))
		require.Equal(t, byte(9), b[len(b)-1])
		require.NoError(t, d.HostUnregister(b))
	})

	c, err := cupool.New(cupool.Config{Driver: d})
	require.NoError(t, err)
	defer c.Close()
	t.Run("buffer", func(t *testing.T) {
		x, err := cupool.BufferFrom(c, from.px[:], nil)
		require.NoError(t, err)
		require.NoError(t, x.CopyTo(to.px[:]))
		require.Equal(t, from.px, to.px)
		require.NoError(t, x.CopyFrom(newSample(50).px[:]))
		require.NoError(t, x.CopyTo(to.px[:]))
		require.EqualValues(t, 51, to.px[1])
		require.NoError(t, x.Free())
	})
	t.Run("records", func(t *testing.T) {
		all := make([]sample, 3) // the last elements of a record, between others
		all[1] = *from
		x, err := cupool.BufferFrom(c, all[1].px[1000:], nil)
		require.NoError(t, err)
		clear(to.px[:])
		require.NoError(t, x.CopyTo(to.px[1000:]))
		require.Equal(t, from.px[1000:], to.px[1000:])
		require.Zero(t, to.px[999])
		require.NoError(t, x.Free())
	})
	t.Run("engine", func(t *testing.T) {
		e, err := cupool.NewEngine(c)
		require.NoError(t, err)
		x, err := e.FromHost(tensor.New(tensor.WithBacking(from.px[:])))
		require.NoError(t, err)
		y, err := e.Empty(tensor.Float32, len(from.px))
		require.NoError(t, err)
		require.NoError(t, tensor.Copy(y, x))
		require.NoError(t, tensor.Copy(tensor.New(tensor.WithBacking(to.px[:])), y))
		require.Equal(t, from.px, to.px)
		require.NoError(t, e.Copy(y, tensor.New(tensor.WithBacking(newSample(20).px[:]))))
		require.NoError(t, tensor.Copy(tensor.New(tensor.WithBacking(to.px[:])), y))
		require.EqualValues(t, 21, to.px[1])
		require.NoError(t, e.FreeTensor(x, y))
	})
}
