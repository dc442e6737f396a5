package dist_test

import (
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

func TestNames(t *testing.T) {
	require.Equal(t, "float32 int64 Type(0) sum avg Op(-1) Op(5)", dist.Float32.String()+" "+dist.Int64.String()+" "+dist.Type(0).String()+" "+dist.Sum.String()+" "+dist.Avg.String()+" "+dist.Op(-1).String()+" "+dist.Op(5).String())
}
