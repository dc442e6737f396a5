package cuda

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool/internal/cudadrv"
	"github.com/cupool/cupool/internal/testkit/gputest"
)

// BenchmarkCalls is what a call of the driver costs from Go: the least of b.N rounds of
// 32 calls, after each of which the stream is waited for.
func BenchmarkCalls(b *testing.B) {
	const calls = 32
	d := openTest(b)
	ctx := d.ctx.handle
	k, err := gputest.Load(ctx)
	require.NoError(b, err)
	defer func() { require.NoError(b, k.Close()) }()
	s, err := d.NewStream()
	require.NoError(b, err)
	p, err := d.MemAlloc(1 << 20)
	require.NoError(b, err)
	events := make([]uintptr, 64)
	for i := range events {
		e, err := d.NewEvent()
		require.NoError(b, err)
		events[i] = uintptr(e)
	}
	stream, host := uintptr(s), make([]byte, 4096)
	for _, c := range []struct {
		name string
		call func() cudadrv.Result
	}{
		{"record", func() cudadrv.Result { return cudadrv.EventRecord(ctx, events[0], stream) }},
		{"query", func() cudadrv.Result { return cudadrv.EventQuery(ctx, events[0]) }},
		{"query=64", func() cudadrv.Result { _, r := cudadrv.EventQueryAll(ctx, events); return r }},
		{"wait", func() cudadrv.Result { return cudadrv.StreamWaitEvent(ctx, stream, events[0]) }},
		{"memset", func() cudadrv.Result { return cudadrv.Memset(ctx, uintptr(p), 1, 4096, stream) }},
		{"launch", func() cudadrv.Result {
			if k.Spin(stream, 0) != nil {
				return cudadrv.InvalidValue
			}
			return cudadrv.Success
		}},
		{"copyin", func() cudadrv.Result { return cudadrv.CopyIn(ctx, uintptr(p), host, stream, false) }},
		{"copyout", func() cudadrv.Result { return cudadrv.CopyOut(ctx, host, uintptr(p), stream) }},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			least := time.Duration(math.MaxInt64)
			for range b.N {
				begin := time.Now()
				for range calls {
					if r := c.call(); r != cudadrv.Success {
						b.Fatal(r)
					}
				}
				least = min(least, time.Since(begin))
				require.Equal(b, cudadrv.Success, cudadrv.StreamSync(ctx, stream))
			}
			b.ReportMetric(float64(least.Nanoseconds())/calls, "least-ns/call")
		})
	}
	require.NoError(b, d.MemFree(p))
}
