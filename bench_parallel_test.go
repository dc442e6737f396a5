package cupool_test

import (
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
)

// Goroutines, one for each processor (-cpu), that allocate and free the same
// size, on one stream or each on its own. ns/op is the wall time divided by
// all pairs.
//
// They are plain loops that begin together, as the threads of the peers do,
// and not RunParallel: that would make the streams within the measured time,
// and its loop is a call per pair. On two cores both give the same.
func BenchmarkParallelHit(b *testing.B) {
	for _, own := range []bool{false, true} {
		name := "shared"
		if own {
			name = "own"
		}
		b.Run("stream="+name, func(b *testing.B) {
			c := benchPool(b)
			streams := make([]*cupool.Stream, runtime.GOMAXPROCS(0))
			for i := range streams {
				streams[i] = c.DefaultStream()
				if own {
					var err error
					streams[i], err = c.NewStream()
					require.NoError(b, err)
				}
			}
			b.ReportAllocs()
			parallelPairs(b, c, streams)
		})
	}
}

// warmPairs is how many pairs every goroutine runs before the clock starts:
// enough for each processor's magazine.
const warmPairs = 1000

// parallelPairs measures b.N pairs of 1 MiB, shared among a goroutine for
// each of the streams.
func parallelPairs(b *testing.B, c *cupool.Pool, streams []*cupool.Stream) {
	each := (b.N + len(streams) - 1) / len(streams)
	var warm, done sync.WaitGroup
	start := make(chan struct{})
	warm.Add(len(streams))
	for _, s := range streams {
		done.Go(func() {
			err := pairs(c, s, warmPairs)
			warm.Done()
			<-start
			if err == nil {
				err = pairs(c, s, each)
			}
			if err != nil {
				b.Error(err)
			}
		})
	}
	warm.Wait()
	b.ResetTimer()
	close(start)
	done.Wait()
	b.StopTimer()
}

func pairs(c *cupool.Pool, s *cupool.Stream, n int) error {
	for range n {
		h, err := c.Alloc(1<<20, s)
		if err == nil {
			err = c.Free(h)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// A block of one stream that another one uses: allocated, recorded and freed.
func BenchmarkCrossStream(b *testing.B) {
	b.Run("device=idle", func(b *testing.B) {
		c, s := crossPool(b)
		b.ReportAllocs()
		for b.Loop() {
			crossOnce(b, c, s)
		}
		reportEvents(b, c, cupool.Stats{})
	})
	b.Run("device=busy", func(b *testing.B) {
		c, s := crossPool(b)
		work := newBusyWork(b, c, s)
		for range 8 { // the pool grows by what a batch leaves waiting
			work.next(b)
			for range crossBatch {
				crossOnce(b, c, s)
			}
		}
		before := c.Stats()
		var spent time.Duration
		start := time.Now()
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			if i%crossBatch == 0 {
				spent += time.Since(start)
				work.next(b)
				start = time.Now()
			}
			crossOnce(b, c, s)
		}
		perOp(b, spent+time.Since(start), "ns/op")
		reportEvents(b, c, before)
		work.free(b)
	})
}

// crossBatch is how many blocks a batch of BenchmarkCrossStream frees behind
// the device.
const crossBatch = 64

func crossPool(b *testing.B) (*cupool.Pool, *cupool.Stream) {
	c := benchPool(b)
	s, err := c.NewStream()
	require.NoError(b, err)
	return c, s
}

func crossOnce(b *testing.B, c *cupool.Pool, s *cupool.Stream) {
	h, err := c.Alloc(1<<20, nil)
	if err == nil {
		err = c.RecordStream(h, s)
	}
	if err == nil {
		err = c.Free(h)
	}
	if err != nil {
		b.Fatal(err)
	}
}

func reportEvents(b *testing.B, c *cupool.Pool, before cupool.Stats) {
	st := c.Stats()
	n := float64(st.All.Allocation.Allocated - before.All.Allocation.Allocated)
	b.ReportMetric(float64(st.EventsRecorded-before.EventsRecorded)/n, "events/op")
	b.ReportMetric(float64(st.EventQueries-before.EventQueries)/n, "queries/op")
}

// busyWork keeps a stream working during a batch, so that what is freed in it
// has to wait, and is collected in the batch after it. The peers do the same.
type busyWork struct {
	c     *cupool.Pool
	s     *cupool.Stream
	block cupool.Block
}

// newBusyWork takes memory that takes a while to set: a few hundred
// microseconds at a GPU's bandwidth, as many and more at a processor's.
func newBusyWork(b *testing.B, c *cupool.Pool, s *cupool.Stream) *busyWork {
	size := int64(4 << 20)
	if strings.HasPrefix(os.Getenv("CUPOOL_DEVICE"), "cuda") {
		size = 1 << 30
	}
	block, err := c.Alloc(size, s)
	require.NoError(b, err)
	return &busyWork{c, s, block}
}

// next waits until the work of the last batch is done and submits that of the
// next one. It waits behind the allocator's back: to find out and to collect
// what has waited is part of what is measured.
func (w *busyWork) next(b *testing.B) {
	err := w.c.Driver().SyncStream(w.s.Handle())
	if err == nil {
		err = w.s.Memset(w.block.Ptr(), 0, w.block.Size())
	}
	if err != nil {
		b.Fatal(err)
	}
}

func (w *busyWork) free(b *testing.B) {
	if err := w.c.Free(w.block); err != nil {
		b.Fatal(err)
	}
}
