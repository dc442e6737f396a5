package nccl_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"gorgonia.org/tensor"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/cuda"
	"github.com/cupool/cupool/dist"
	"github.com/cupool/cupool/internal/fakecuda"
	"github.com/cupool/cupool/internal/ncclapi"
	"github.com/cupool/cupool/internal/testkit/commtest"
	"github.com/cupool/cupool/nccl"
)

// batch is how many calls a benchmark queues before it waits for the GPU, off the
// clock, so that the queue is never full.
const batch = 256

// queueing times f, which queues one call.
func queueing(b *testing.B, s *cupool.Stream, f func() error) {
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if i%batch == batch-1 {
			b.StopTimer()
			require.NoError(b, s.Sync())
			b.StartTimer()
		}
		if err := f(); err != nil {
			b.Fatal(err)
		}
	}
	require.NoError(b, s.Sync())
}

// TestAllocs counts what the host allocates for a call.
func TestAllocs(t *testing.T) {
	r := newRanks(t, 1, nccl.Config{})[0]
	e, err := cupool.NewEngine(r.Pool)
	require.NoError(t, err)
	x := tensor.New(tensor.WithEngine(e), tensor.WithShape(256), tensor.Of(tensor.Float32))
	m, err := dist.OfTensor(x)
	require.NoError(t, err)
	call := func() {
		if err := r.AllReduce(m, m, dist.Sum, nil); err != nil {
			t.Error(err)
		}
	}
	require.Zero(t, testing.AllocsPerRun(100, call), "a call")
	require.Zero(t, testing.AllocsPerRun(100, func() {
		if err := r.Group(func() error { call(); call(); return nil }); err != nil {
			t.Error(err)
		}
	}), "a group")
	require.NoError(t, e.FreeTensor(x))
}

// BenchmarkAllReduce is what the host pays for queueing a sum over one rank: of a
// tensor, of a Buffer, of memory that needs no record, and by NCCL itself.
func BenchmarkAllReduce(b *testing.B) {
	r := newRanks(b, 1, nccl.Config{})[0]
	s := r.Stream
	e, err := cupool.NewEngine(r.Pool, cupool.WithStream(s))
	require.NoError(b, err)
	x := tensor.New(tensor.WithEngine(e), tensor.WithShape(256), tensor.Of(tensor.Float32))
	ofTensor, err := dist.OfTensor(x)
	require.NoError(b, err)
	p, err := commtest.NewPlace(r.Member, make([]float32, 256))
	require.NoError(b, err)
	bare := dist.Memory{Ptr: p.M.Ptr, Count: p.M.Count, Type: p.M.Type}
	for name, m := range map[string]dist.Memory{"tensor": ofTensor, "buffer": p.M, "memory": bare} {
		b.Run(name, func(b *testing.B) { queueing(b, s, func() error { return r.AllReduce(m, m, dist.Sum, s) }) })
	}
	b.Run("group of 8", func(b *testing.B) {
		queueing(b, s, func() error {
			return r.Group(func() error {
				for range 8 {
					if err := r.AllReduce(ofTensor, ofTensor, dist.Sum, s); err != nil {
						return err
					}
				}
				return nil
			})
		})
	})
	b.Run("captured", func(b *testing.B) {
		g, err := e.Capture(func() error { return r.AllReduce(ofTensor, ofTensor, dist.Sum, s) })
		require.NoError(b, err)
		queueing(b, s, g.Launch)
		require.NoError(b, g.Close())
	})
	b.Run("NCCL", func(b *testing.B) { nothing(b, r.Pool, s, p) })
	require.NoError(b, commtest.First(p.Free(), e.FreeTensor(x)))
}

// nothing makes the same calls without a Comm.
func nothing(b *testing.B, pool *cupool.Pool, s *cupool.Stream, p commtest.Place[float32]) {
	l, err := ncclapi.Load("libnccl.so.2")
	require.NoError(b, err)
	id, res := l.NewID()
	require.Equal(b, ncclapi.Success, res)
	c, res := l.Init(pool.Driver().(cuda.Driver).Context(), 1, &id, 0)
	for res == ncclapi.InProgress {
		res = c.State()
	}
	require.Equal(b, ncclapi.Success, res)
	at := uintptr(p.M.Ptr)
	tasks := []ncclapi.Task{{Kind: ncclapi.AllReduce, Dst: at, Src: at, Count: int64(p.M.Count), Type: ncclapi.Float32, Stream: uintptr(s.Handle())}}
	queueing(b, s, func() error {
		if res := c.Run(tasks); res != ncclapi.Success {
			return fmt.Errorf("%s", res.Name())
		}
		return nil
	})
	require.Equal(b, ncclapi.Success, c.Abort())
}

// BenchmarkBandwidth sums memory of a pool over all GPUs, a rank each: a call at a time
// or by a graph of ten, registered or not. GB/s is the bandwidth of the busiest link
// ("bus bandwidth").
func BenchmarkBandwidth(b *testing.B) {
	n, most := upTo(b, 8), 1024
	if fakecuda.Loaded() {
		most = 4
	}
	for name, backing := range map[string]cupool.Backing{"segments": cupool.BackingSegments, "virtual": cupool.BackingVMM} {
		b.Run(fmt.Sprintf("ranks=%d/%s", n, name), func(b *testing.B) {
			ranks := newRanks(b, n, nccl.Config{Timeout: time.Minute}, cupool.Config{Backing: backing})
			for mib := 1; mib <= most; mib *= 4 {
				for _, registered := range []bool{false, true} {
					b.Run(fmt.Sprintf("MiB=%d/registered=%v", mib, registered), func(b *testing.B) { bandwidth(b, ranks, mib, registered) })
				}
			}
		})
	}
}

func bandwidth(b *testing.B, ranks []rank, mib int, registered bool) {
	const inGraph = 10
	n := len(ranks)
	sums, graphs, frees := make([]func() error, n), make([]*cupool.Graph, n), make([]func() error, n)
	require.NoError(b, each(ranks, func(r rank) error {
		block, err := r.Pool.Alloc(int64(mib)<<20, r.Stream)
		if err == nil && registered {
			err = r.Register(block)
		}
		if err := commtest.First(err, r.Stream.Memset(block.Ptr(), 0, block.Size())); err != nil {
			return err
		}
		m := dist.Memory{Ptr: block.Ptr(), Count: mib << 18, Type: dist.Float32}
		sum := func() error { return r.AllReduce(m, m, dist.Sum, r.Stream) }
		e, err := cupool.NewEngine(r.Pool, cupool.WithStream(r.Stream))
		if err := commtest.First(err, sum(), r.Stream.Sync()); err != nil {
			return err
		}
		g, err := e.Capture(func() error {
			for range inGraph {
				if err := sum(); err != nil {
					return err
				}
			}
			return nil
		})
		sums[r.Rank()], graphs[r.Rank()] = sum, g
		frees[r.Rank()] = func() error {
			err := g.Close()
			if registered {
				err = commtest.First(err, r.Deregister(block))
			}
			return commtest.First(err, r.Pool.Free(block))
		}
		return err
	}))
	for _, captured := range []bool{false, true} {
		call, of := func(r rank) error { return sums[r.Rank()]() }, 1
		if captured {
			call, of = func(r rank) error { return graphs[r.Rank()].Launch() }, inGraph
		}
		b.Run(fmt.Sprintf("captured=%v", captured), func(b *testing.B) {
			require.NoError(b, each(ranks, func(r rank) error { return commtest.First(call(r), r.Stream.Sync()) }))
			b.ResetTimer()
			require.NoError(b, each(ranks, func(r rank) error {
				for range b.N {
					if err := call(r); err != nil {
						return err
					}
				}
				return r.Stream.Sync()
			}))
			us := b.Elapsed().Seconds() * 1e6 / float64(b.N*of)
			b.ReportMetric(us, "µs/sum")
			b.ReportMetric(float64(mib<<20)/1e3/us*2*float64(n-1)/float64(n), "GB/s")
		})
	}
	require.NoError(b, each(ranks, func(r rank) error { return frees[r.Rank()]() }))
}
