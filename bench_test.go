package cupool_test

import (
	"cmp"
	"math"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
)

// benchDevice opens the device that CUPOOL_DEVICE names (see Open), by default
// a host device that is larger than the host: next to nothing here touches the
// memory.
func benchDevice(b *testing.B) cupool.Driver {
	d, err := cupool.Open(cmp.Or(os.Getenv("CUPOOL_DEVICE"), "host:256GiB"))
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, d.Close()) })
	return d
}

// benchPool returns an allocator on that device.
func benchPool(b *testing.B, change ...func(*cupool.Config)) *cupool.Pool {
	return poolOn(b, benchDevice(b), change...)
}

func poolOn(b *testing.B, d cupool.Driver, change ...func(*cupool.Config)) *cupool.Pool {
	cfg := cupool.Config{Driver: d}
	for _, f := range change {
		f(&cfg)
	}
	c, err := cupool.New(cfg)
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, c.Close()) })
	return c
}

// pair allocates and frees a block.
func pair(b *testing.B, c *cupool.Pool, size int64, s *cupool.Stream) {
	h, err := c.Alloc(size, s)
	if err == nil {
		err = c.Free(h)
	}
	if err != nil {
		b.Fatal(err)
	}
}

// warm makes a size recur, so that the magazines have it.
func warm(b *testing.B, c *cupool.Pool, size int64, s *cupool.Stream) {
	for range 32 {
		pair(b, c, size, s)
	}
}

// perOp is a time that was spent over all b.N operations, in ns for one. As
// "ns/op" it takes the place of the time that testing took.
func perOp(b *testing.B, spent time.Duration, unit string) {
	b.ReportMetric(float64(spent.Nanoseconds())/float64(b.N), unit)
}

var sizes = []struct {
	name  string
	bytes int64
}{{"512", 512}, {"1MiB", 1 << 20}, {"32MiB", 32 << 20}}

// deviceCalls returns how often the allocator called the device so far.
func deviceCalls(c *cupool.Pool) int64 {
	st := c.Stats()
	return st.DriverAllocs + st.DriverFrees + st.EventsRecorded + st.EventQueries
}

// reportCalls reports the calls to the device since there were so many.
func reportCalls(b *testing.B, c *cupool.Pool, before int64) {
	b.ReportMetric(float64(deviceCalls(c)-before)/float64(b.N), "driver-calls/op")
}

// An allocation and its free, of a size that recurs.
func BenchmarkHit(b *testing.B) {
	for _, size := range sizes {
		b.Run("size="+size.name, func(b *testing.B) {
			c := benchPool(b)
			warm(b, c, size.bytes, nil)
			before := deviceCalls(c)
			b.ReportAllocs()
			for b.Loop() {
				pair(b, c, size.bytes, nil)
			}
			reportCalls(b, c, before)
		})
	}
}

// The same by address, as the tensor engine frees.
func BenchmarkHitByAddress(b *testing.B) {
	c := benchPool(b)
	warm(b, c, 1<<20, nil)
	b.ReportAllocs()
	for b.Loop() {
		h, err := c.Alloc(1<<20, nil)
		if err == nil {
			err = c.FreePtr(h.Ptr(), -1)
		}
		if err != nil {
			b.Fatal(err)
		}
	}
}

// A size that does not recur: a split, and a merge on free.
func BenchmarkMissSplit(b *testing.B) {
	c := benchPool(b, func(cfg *cupool.Config) { cfg.MagazineBytes = -1 })
	keep, err := c.Alloc(2<<20, nil)
	require.NoError(b, err)
	b.Cleanup(func() { _ = c.Free(keep) })
	require.NoError(b, c.Reserve(10<<20, nil))
	size := int64(0)
	b.ReportAllocs()
	for b.Loop() {
		size = (size + 512) % (4 << 20)
		pair(b, c, 2<<20+size, nil)
	}
}

// lateFrees is a Driver that notes what is freed and gives it back when
// settle is called.
type lateFrees struct {
	cupool.Driver
	freed []cupool.Ptr
}

func (d *lateFrees) MemFree(p cupool.Ptr) error {
	d.freed = append(d.freed, p)
	return nil
}

func (d *lateFrees) settle() error {
	for _, p := range d.freed {
		if err := d.Driver.MemFree(p); err != nil {
			return err
		}
	}
	d.freed = d.freed[:0]
	return nil
}

// Giving 1,000 cached segments of 2 MiB back to the device. ns/op is the
// allocator's part; driver-ns/op is the device's, which is called afterwards:
// a clock around each of the calls would cost as much as the allocator does.
func BenchmarkTrim1000(b *testing.B) {
	d := &lateFrees{Driver: benchDevice(b)}
	c := poolOn(b, d, func(cfg *cupool.Config) { cfg.Backing, cfg.MagazineBytes = cupool.BackingSegments, -1 })
	blocks := make([]cupool.Block, 2000) // two fill a segment
	var trimming, freeing time.Duration
	for b.Loop() {
		fillAndFree(b, c, blocks, 1<<20)
		start := time.Now()
		n, err := c.Trim(0)
		trimming += time.Since(start)
		if err != nil || n != 1000*2<<20 {
			b.Fatal(n, err)
		}
		start = time.Now()
		if err := d.settle(); err != nil {
			b.Fatal(err)
		}
		freeing += time.Since(start)
	}
	perOp(b, trimming, "ns/op")
	perOp(b, freeing, "driver-ns/op")
}

// fillAndFree allocates all blocks and then frees them.
func fillAndFree(b *testing.B, c *cupool.Pool, blocks []cupool.Block, size int64) {
	var err error
	for i := range blocks {
		if blocks[i], err = c.Alloc(size, nil); err != nil {
			b.Fatal(err)
		}
	}
	for _, h := range blocks {
		if err := c.Free(h); err != nil {
			b.Fatal(err)
		}
	}
}

// What the machine can do at all, to hold the others against.
func BenchmarkRuler(b *testing.B) {
	b.Run("mutex-pair", func(b *testing.B) {
		var mu sync.Mutex
		for b.Loop() {
			mu.Lock()
			//lint:ignore SA2001 the pair alone is measured
			mu.Unlock()
		}
	})
	b.Run("atomic-add", func(b *testing.B) {
		var n atomic.Int64
		for b.Loop() {
			n.Add(1)
		}
	})
}

// BenchmarkHistory is a run of 60 sizes of 512 B to 18 MiB, of which magazines serve
// a part, without a history and with samples.
func BenchmarkHistory(b *testing.B) {
	for _, x := range []struct {
		name string
		set  *cupool.History
	}{{"off", nil}, {"sampled", &cupool.History{}}} {
		b.Run(x.name, func(b *testing.B) {
			c := benchPool(b, func(cfg *cupool.Config) { cfg.History = x.set })
			random := rand.New(rand.NewPCG(1, 2))
			var sizes [60]int64
			for i := range sizes {
				sizes[i] = int64(512 * math.Exp2(15.2*random.Float64()))
			}
			var live [16]cupool.Block
			for i := range 10_000 + b.N {
				if i == 10_000 {
					b.ResetTimer()
				}
				at := random.IntN(len(live))
				_ = c.Free(live[at])
				live[at], _ = c.Alloc(sizes[random.IntN(len(sizes))], nil)
			}
			b.StopTimer()
			for _, x := range live {
				_ = c.Free(x)
			}
		})
	}
}
