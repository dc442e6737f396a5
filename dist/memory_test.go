package dist_test

import (
	"math"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
	"gorgonia.org/tensor"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/dist"
)

func TestMemoryOfTensors(t *testing.T) {
	pool := newPool(t)
	eng, err := cupool.NewEngine(pool)
	require.NoError(t, err)
	for _, shape := range [][]int{{1}, {}, {7}, {2, 3}, {1, 1}} {
		for dt, typ := range map[tensor.Dtype]dist.Type{tensor.Float32: dist.Float32, tensor.Float64: dist.Float64, tensor.Int: dist.Int64, tensor.Int32: dist.Int32, tensor.Int64: dist.Int64, tensor.Uint8: dist.Uint8} {
			x, err := eng.Empty(dt, shape...)
			require.NoError(t, err)
			m, err := dist.OfTensor(x)
			require.NoError(t, err)
			require.Equal(t, tensor.Shape(shape).TotalSize(), m.Count, "%v", shape)
			require.Equal(t, typ, m.Type)
			require.EqualValues(t, x.Uintptr(), m.Ptr)
			require.NoError(t, eng.FreeTensor(x))
		}
	}
	x, err := eng.Empty(tensor.Float32, 4, 6)
	require.NoError(t, err)
	rows, err := x.Slice(tensor.S(1, 3))
	require.NoError(t, err)
	m, err := dist.OfTensor(rows)
	require.NoError(t, err)
	require.Equal(t, 12, m.Count)
	require.NoError(t, m.Record(pool.DefaultStream()))
	columns, err := x.Slice(nil, tensor.S(1, 3))
	require.NoError(t, err)
	_, err = dist.OfTensor(columns)
	require.ErrorIs(t, err, cupool.ErrNotSupported)
	require.NoError(t, eng.FreeTensor(x))
	_, err = dist.OfTensor(x)
	require.ErrorIs(t, err, cupool.ErrUseAfterFree)

	odd, err := cupool.NewBuffer[complex64](pool, 3, nil)
	require.NoError(t, err)
	_, err = dist.Of(odd)
	require.ErrorIs(t, err, cupool.ErrNotSupported)
	require.NoError(t, odd.Free())
	b, err := cupool.NewBuffer[int](pool, 3, nil)
	require.NoError(t, err)
	m, err = dist.Of(b)
	require.NoError(t, err)
	require.EqualValues(t, 24, m.Bytes())
	require.NoError(t, b.Free())
	s, err := pool.NewStream()
	require.NoError(t, err)
	require.ErrorIs(t, m.Record(s), cupool.ErrUseAfterFree)
	require.NoError(t, dist.Memory{}.Record(s))
}

// A tensor's memory is recorded while it is there.
func TestMemoryOfTensorIsRecorded(t *testing.T) {
	pool := newPool(t)
	eng, err := cupool.NewEngine(pool)
	require.NoError(t, err)
	x, err := eng.Empty(tensor.Float32, 1<<18)
	require.NoError(t, err)
	m, err := dist.OfTensor(x)
	require.NoError(t, err)
	require.ErrorIs(t, m.Record(nil), cupool.ErrInvalidHandle)
	s, err := pool.NewStream()
	require.NoError(t, err)
	gate := make(chan struct{})
	require.NoError(t, s.Launch(func() { <-gate }))
	require.NoError(t, m.Record(s))
	require.NoError(t, eng.FreeTensor(x))
	require.EqualValues(t, 1<<20, pool.Stats().PendingBytes)
	require.Error(t, m.Record(s))
	close(gate)
	require.NoError(t, s.Close())
}

func TestNames(t *testing.T) {
	for range 100 { // two kinds of Go have the name
		require.Equal(t, "int64", dist.Int64.String())
	}
	require.Equal(t, "float32 int64 Type(0) sum avg Op(-1) Op(5)", dist.Float32.String()+" "+dist.Int64.String()+" "+dist.Type(0).String()+" "+dist.Sum.String()+" "+dist.Avg.String()+" "+dist.Op(-1).String()+" "+dist.Op(5).String())
}

// Of and OfTensor take what is there alone, and a part of it is still theirs.
func TestMemoryOfNothing(t *testing.T) {
	pool := newPool(t)
	b, err := cupool.NewBuffer[float32](pool, 8, nil)
	require.NoError(t, err)
	m, err := dist.Of(b)
	require.NoError(t, err)
	m.Ptr, m.Count = m.Ptr+16, 4
	require.NoError(t, m.Record(pool.DefaultStream()))
	for name, bad := range map[string]dist.Memory{
		"too many": {Ptr: m.Ptr, Count: 5}, "before": {Ptr: m.Ptr - 32, Count: 4}, "nearly before": {Ptr: m.Ptr - 17, Count: 1}, "behind": {Ptr: m.Ptr + 16, Count: 1},
		"far behind": {Ptr: m.Ptr + 1<<63 + 1<<40, Count: 1}, "farther": {Ptr: m.Ptr - 1<<40, Count: 1}, "all there is": {Ptr: m.Ptr, Count: math.MaxInt}, "fewer than none": {Ptr: m.Ptr, Count: -1},
	} {
		x := m
		x.Ptr, x.Count = bad.Ptr, bad.Count
		require.ErrorIs(t, x.Record(pool.DefaultStream()), cupool.ErrInvalidRange, name)
	}
	hand := dist.Memory{Ptr: m.Ptr, Count: 4, Type: dist.Float32}
	require.NoError(t, hand.Record(pool.DefaultStream()))
	for _, s := range []*cupool.Stream{nil, new(cupool.Stream)} {
		require.ErrorIs(t, hand.Record(s), cupool.ErrInvalidHandle)
		require.ErrorIs(t, m.Record(s), cupool.ErrInvalidHandle)
	}
	require.NoError(t, b.Free())
	_, err = dist.Of(b)
	require.ErrorIs(t, err, cupool.ErrUseAfterFree)
	for _, b := range []*cupool.Buffer[float32]{nil, new(cupool.Buffer[float32])} {
		_, err = dist.Of(b)
		require.ErrorIs(t, err, cupool.ErrInvalidHandle)
	}
	for _, x := range []tensor.Tensor{nil, (*tensor.Dense)(nil)} {
		_, err = dist.OfTensor(x)
		require.ErrorIs(t, err, cupool.ErrInvalidHandle)
	}
	_, err = dist.OfTensor(tensor.New(tensor.WithShape(2), tensor.Of(tensor.Float32)))
	require.ErrorIs(t, err, cupool.ErrForeignPointer)
}

// Memory by hand is recorded, too: it may be freed while another stream uses it.
func TestMemoryByHandIsRecorded(t *testing.T) {
	pool := newPool(t)
	private, err := pool.NewPool(cupool.PoolConfig{})
	require.NoError(t, err)
	s, err := pool.NewStream()
	require.NoError(t, err)
	for _, of := range []*cupool.Pool{pool, private} {
		b, err := of.Alloc(1<<20, nil)
		require.NoError(t, err)
		gate := make(chan struct{})
		require.NoError(t, s.Launch(func() { <-gate }))
		require.NoError(t, dist.Memory{Ptr: b.Ptr(), Count: 1 << 18, Type: dist.Float32}.Record(s))
		require.NoError(t, of.Free(b))
		require.EqualValues(t, 1<<20, of.Stats().PendingBytes)
		close(gate)
		require.NoError(t, s.Sync())
	}
	require.NoError(t, private.Close())
	require.NoError(t, s.Close())
}

// Both memories of a call are recorded: they may be freed at once.
func TestMemoryOfCallsIsRecorded(t *testing.T) {
	r := group(t, 1, newPool)[0]
	for name, call := range map[string]func(dst, src dist.Memory) error{
		"AllReduce":     func(dst, src dist.Memory) error { return r.AllReduce(dst, src, dist.Sum, r.Stream) },
		"Broadcast":     func(dst, src dist.Memory) error { return r.Broadcast(dst, src, 0, r.Stream) },
		"AllGather":     func(dst, src dist.Memory) error { return r.AllGather(dst, src, r.Stream) },
		"ReduceScatter": func(dst, src dist.Memory) error { return r.ReduceScatter(dst, src, dist.Sum, r.Stream) },
	} {
		gate := make(chan struct{})
		require.NoError(t, r.Stream.Launch(func() { <-gate }))
		dst, err := cupool.NewBuffer[float32](r.Pool, 1<<18, nil)
		require.NoError(t, err)
		src, err := cupool.NewBuffer[float32](r.Pool, 1<<18, nil)
		require.NoError(t, err)
		to, err := dist.Of(dst)
		require.NoError(t, err)
		from, err := dist.Of(src)
		require.NoError(t, err)
		require.NoError(t, call(to, from))
		require.NoError(t, dst.Free())
		require.NoError(t, src.Free())
		pending := r.Pool.Stats().PendingBytes
		close(gate)
		require.EqualValues(t, 2<<20, pending, name)
		require.NoError(t, r.Stream.Sync())
	}
}

// A Memory keeps its tensor, where the garbage collector gives memory back that no tensor
// has, until a call has recorded it.
func TestMemoryOfTensorWithLifetimes(t *testing.T) {
	r := group(t, 1, newPool)[0]
	e, err := cupool.NewEngine(r.Pool, cupool.WithLifetimes())
	require.NoError(t, err)
	x, err := e.FromHost(tensor.New(tensor.WithBacking([]float32{1, 2})))
	require.NoError(t, err)
	m, err := dist.OfTensor(x)
	require.NoError(t, err)
	for range 3 { // x is not used any more; cleanups take a while
		runtime.GC()
		_, err := r.Pool.ProcessDeferred()
		require.NoError(t, err)
	}
	require.NoError(t, r.AllReduce(m, m, dist.Sum, r.Stream))
	require.NoError(t, r.Stream.Sync())
	require.NoError(t, r.Pool.FreePtr(m.Ptr, m.Bytes()))
}
