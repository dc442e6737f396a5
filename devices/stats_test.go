package devices_test

import (
	"math"
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/devices"
	"github.com/cupool/cupool/internal/testkit/pooltest"
)

func TestStats(t *testing.T) {
	limited := opened(t, devices.Config{Pool: cupool.Config{Limit: 32 * mib}}, 2, "host:64MiB")
	require.EqualValues(t, 64*mib, limited.Stats().Sum.Limit)
	large := opened(t, devices.Config{Pool: cupool.Config{Limit: math.MaxInt64 - 5}}, 3, "host:64MiB")
	require.EqualValues(t, math.MaxInt64, large.Stats().Sum.Limit)

	s := opened(t, devices.Config{Each: func(i int, pool *cupool.Config) {
		if i == 1 {
			pool.Limit = 32 * mib
		}
	}}, 2, "host:64MiB")
	a := pooltest.Alloc(t, s.Pool(0), 3*mib, nil)
	require.NoError(t, s.Free(a))
	b := pooltest.Alloc(t, s.Pool(1), 5*mib, nil)
	st := s.Stats()
	require.Len(t, st.Devices, 2)
	require.Empty(t, st.Shared)
	require.Equal(t, int64(5*mib), st.Sum.LiveBytes)
	require.Equal(t, int64(5*mib), st.Sum.All.AllocatedBytes.Current)
	require.Equal(t, int64(8*mib), st.Sum.All.AllocatedBytes.Peak, "of two moments")
	require.Equal(t, int64(8*mib), st.Sum.All.AllocatedBytes.Allocated)
	require.Equal(t, st.Sum.All.ReservedBytes.Current, st.Sum.LiveBytes+st.Sum.CachedBytes)
	require.Equal(t, max(st.Devices[0].LargestFree, st.Devices[1].LargestFree), st.Sum.LargestFree)
	require.Zero(t, st.Sum.Limit)
	require.NoError(t, s.Free(b))

	// Every number but these two is a sum.
	sum := s.Stats()
	total := reflect.ValueOf(sum.Sum)
	for i := range total.NumField() {
		name := total.Type().Field(i).Name
		if f := total.Field(i); f.Kind() == reflect.Int64 && name != "LargestFree" && name != "Limit" {
			want := reflect.ValueOf(sum.Devices[0]).Field(i).Int() + reflect.ValueOf(sum.Devices[1]).Field(i).Int()
			require.Equal(t, want, f.Int(), name)
		}
	}
}
