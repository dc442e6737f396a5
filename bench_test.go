package cupool_test

import (
	"cmp"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/simdev"
)

// benchPool returns an allocator on the device that CUPOOL_DEVICE names (see
// Open), by default a host device that is larger than the host: nothing here
// touches the memory.
func benchPool(b *testing.B, change ...func(*cupool.Config)) *cupool.Caching {
	d, err := cupool.Open(cmp.Or(os.Getenv("CUPOOL_DEVICE"), "host:256GiB"))
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, d.Close()) })
	return poolOn(b, d, change...)
}

func poolOn(b *testing.B, d cupool.Driver, change ...func(*cupool.Config)) *cupool.Caching {
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
func pair(b *testing.B, c *cupool.Caching, size int64, s *cupool.Stream) {
	h, err := c.Alloc(size, s)
	if err == nil {
		err = c.Free(h)
	}
	if err != nil {
		b.Fatal(err)
	}
}

// warm makes a size recur, so that the magazines have it.
func warm(b *testing.B, c *cupool.Caching, size int64, s *cupool.Stream) {
	for range 32 {
		pair(b, c, size, s)
	}
}

var sizes = []struct {
	name  string
	bytes int64
}{{"512", 512}, {"1MiB", 1 << 20}, {"32MiB", 32 << 20}}

// An allocation and its free, of a size that recurs.
func BenchmarkHit(b *testing.B) {
	for _, size := range sizes {
		b.Run("size="+size.name, func(b *testing.B) {
			c := benchPool(b)
			warm(b, c, size.bytes, nil)
			b.ReportAllocs()
			for b.Loop() {
				pair(b, c, size.bytes, nil)
			}
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

// randomLive holds n blocks and replaces one a step: the workload of
// cuda_alloc.cu and torch_alloc.py.
type randomLive struct {
	c     *cupool.Caching
	live  []cupool.Block
	state uint64
	small bool // sizes up to 256 KiB, not 64 MiB
}

func newRandomLive(c *cupool.Caching, n int) *randomLive {
	return &randomLive{c: c, live: make([]cupool.Block, n), state: 88172645463325252}
}

// next is xorshift64.
func (r *randomLive) next() uint64 {
	r.state ^= r.state << 13
	r.state ^= r.state >> 7
	r.state ^= r.state << 17
	return r.state
}

func (r *randomLive) size() int64 {
	if r.small {
		base := uint64(1) << (9 + r.next()%9)
		return int64(base + r.next()%base)
	}
	base := uint64(1) << (8 + r.next()%18)
	return int64(base + r.next()%base)
}

func (r *randomLive) step(b *testing.B) {
	j := r.next() % uint64(len(r.live))
	err := r.c.Free(r.live[j]) // at first the empty block
	if err == nil {
		r.live[j], err = r.c.Alloc(r.size(), nil)
	}
	if err != nil {
		b.Fatal(err)
	}
}

// run measures steps, after some to come to rest.
func (r *randomLive) run(b *testing.B, before int) {
	for range before {
		r.step(b)
	}
	r.c.ResetAccumulated()
	b.ReportAllocs()
	for b.Loop() {
		r.step(b)
	}
	st := r.c.Stats()
	b.ReportMetric(100*st.HitRatio(), "%hit")
	b.ReportMetric(float64(st.LiveBytes)/float64(st.All.ReservedBytes.Current), "live/reserved")
	for _, h := range r.live {
		if err := r.c.Free(h); err != nil {
			b.Fatal(err)
		}
	}
}

// 1,000 live blocks of random sizes from 256 bytes to 64 MiB.
func BenchmarkRandomLive1000(b *testing.B) {
	for _, backing := range []cupool.Backing{cupool.BackingAuto, cupool.BackingSegments} {
		b.Run("backing="+backing.String(), func(b *testing.B) {
			c := benchPool(b, func(cfg *cupool.Config) { cfg.Backing = backing })
			newRandomLive(c, 1000).run(b, 20*1000)
		})
	}
}

// The cost of a step by the number of live blocks, on a simulated device.
func BenchmarkLive(b *testing.B) {
	for exp, n := range []int{3: 1e3, 1e4, 1e5, 1e6} {
		if n == 0 {
			continue
		}
		b.Run(fmt.Sprintf("blocks=1e%d", exp), func(b *testing.B) {
			d := simdev.New(simdev.Config{Capacity: 1 << 44})
			r := newRandomLive(poolOn(b, d), n)
			r.small = true
			var err error
			for i := range r.live {
				if r.live[i], err = r.c.Alloc(r.size(), nil); err != nil {
					b.Fatal(err)
				}
			}
			r.run(b, 100_000)
		})
	}
}

// Goroutines that allocate and free the same size, on one stream or each on
// its own.
func BenchmarkParallelHit(b *testing.B) {
	for _, own := range []bool{false, true} {
		name := "shared"
		if own {
			name = "own"
		}
		b.Run("stream="+name, func(b *testing.B) {
			c := benchPool(b)
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				s := c.DefaultStream()
				if own {
					var err error
					if s, err = c.NewStream(); err != nil {
						b.Error(err)
						return
					}
				}
				for pb.Next() {
					h, err := c.Alloc(1<<20, s)
					if err == nil {
						err = c.Free(h)
					}
					if err != nil {
						b.Error(err)
						return
					}
				}
			})
		})
	}
}

// A block of one stream that another one uses: recorded and freed.
func BenchmarkCrossStream(b *testing.B) {
	c := benchPool(b)
	s, err := c.NewStream()
	require.NoError(b, err)
	b.ReportAllocs()
	for b.Loop() {
		h, err := c.Alloc(1<<20, nil)
		if err == nil {
			err = c.FreeOn(h, s)
		}
		if err != nil {
			b.Fatal(err)
		}
	}
	st := c.Stats()
	b.ReportMetric(float64(st.EventsRecorded)/float64(st.All.Allocation.Allocated), "events/op")
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

// Giving 1,000 cached segments of 2 MiB back to the device.
func BenchmarkTrim1000(b *testing.B) {
	c := benchPool(b, func(cfg *cupool.Config) { cfg.Backing, cfg.MagazineBytes = cupool.BackingSegments, -1 })
	blocks := make([]cupool.Block, 2000) // two fill a segment
	for b.Loop() {
		b.StopTimer()
		var err error
		for i := range blocks {
			if blocks[i], err = c.Alloc(1<<20, nil); err != nil {
				b.Fatal(err)
			}
		}
		for _, h := range blocks {
			if err := c.Free(h); err != nil {
				b.Fatal(err)
			}
		}
		b.StartTimer()
		if n, err := c.Trim(0); err != nil || n != 1000*2<<20 {
			b.Fatal(n, err)
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
