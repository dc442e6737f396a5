package adaptor_test

import (
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/adaptor"
	"github.com/cupool/cupool/internal/testkit/handletest"
	"github.com/cupool/cupool/internal/testkit/pooltest"
)

// Adaptors of no allocator, and methods with handles of nobody, fail.
func TestHandlesOfNothing(t *testing.T) {
	c := pooltest.Open(t, cupool.Config{Driver: pooltest.OpenHost(t)})
	for _, a := range []cupool.Allocator{nil, (*cupool.Pool)(nil), new(cupool.Pool), (*adaptor.Tracking)(nil), new(adaptor.Tracking), c} {
		limiting, err := adaptor.NewLimiting(a, 1<<20)
		require.NoError(t, err)
		for _, x := range []cupool.Allocator{
			limiting, adaptor.NewLogging(a, nil), adaptor.NewRecording(a, nil), adaptor.NewStatistics(a), adaptor.NewTracking(a),
			adaptor.NewFallback(a, a), adaptor.NewFailureCallback(a, nil),
		} {
			handletest.Arguments(t, func() any { return x })
			_, ok := adaptor.Find[*adaptor.Fallback](x)
			require.Equal(t, reflect.TypeOf(x) == reflect.TypeFor[*adaptor.Fallback](), ok)
			if a != cupool.Allocator(c) {
				for _, size := range []int64{0, 100, 2 << 20, 1 << 62} {
					_, err := x.Alloc(size, nil)
					require.ErrorIs(t, err, cupool.ErrInvalidHandle, "%T", x)
				}
			}
		}
	}
	handletest.Receivers(t, new(adaptor.BySize), new(adaptor.FailureCallback), new(adaptor.Fallback), new(adaptor.Limiting),
		new(adaptor.Logging), new(adaptor.Recording), new(adaptor.Statistics), new(adaptor.Tracking))
	r := adaptor.NewRecording(c, nil)
	require.NoError(t, r.Free(alloc(t, r, 100)))
	require.NoError(t, r.Flush())
	for _, a := range []cupool.Allocator{nil, (*cupool.Pool)(nil), (*adaptor.Tracking)(nil)} {
		_, err := adaptor.NewBySize(adaptor.SizePool{Allocator: a})
		require.ErrorIs(t, err, cupool.ErrInvalidConfig)
	}
}
