package cuda

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool/internal/cudadrv"
	"github.com/cupool/cupool/internal/testkit/gputest"
)

// BenchmarkCalls is what a call of the driver costs from Go. Work is waited for outside
// of the measured time, every 64 calls.
func BenchmarkCalls(b *testing.B) {
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
		name  string
		drain bool
		call  func() cudadrv.Result
	}{
		{"record", true, func() cudadrv.Result { return cudadrv.EventRecord(ctx, events[0], stream) }},
		{"query", false, func() cudadrv.Result { return cudadrv.EventQuery(ctx, events[0]) }},
		{"query=64", false, func() cudadrv.Result { _, r := cudadrv.EventQueryAll(ctx, events); return r }},
		{"wait", true, func() cudadrv.Result { return cudadrv.StreamWaitEvent(ctx, stream, events[0]) }},
		{"memset", true, func() cudadrv.Result { return cudadrv.Memset(ctx, uintptr(p), 1, 4096, stream) }},
		{"launch", true, func() cudadrv.Result {
			if k.Spin(stream, 0) != nil {
				return cudadrv.InvalidValue
			}
			return cudadrv.Success
		}},
		{"copyin", true, func() cudadrv.Result { return cudadrv.CopyIn(ctx, uintptr(p), host, stream, false) }},
		{"copyout", false, func() cudadrv.Result { return cudadrv.CopyOut(ctx, host, uintptr(p), stream) }},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for i := range b.N {
				if r := c.call(); r != cudadrv.Success {
					b.Fatal(r)
				}
				if c.drain && i%64 == 63 {
					b.StopTimer()
					require.Equal(b, cudadrv.Success, cudadrv.StreamSync(ctx, stream))
					b.StartTimer()
				}
			}
			require.Equal(b, cudadrv.Success, cudadrv.StreamSync(ctx, stream))
		})
	}
	require.NoError(b, d.MemFree(p))
}
