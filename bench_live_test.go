package cupool_test

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/atomic"
	"github.com/cupool/cupool/internal/simdev"
)

// workload is what the peers in bench/peers do too, bit for bit: of a number
// of live blocks, one at random is freed and one of a random size allocated.
type workload struct {
	state   uint64 // of xorshift64
	live    uint64 // blocks
	minExp  uint64 // the smallest size, as a power of two
	octaves uint64 // sizes are log-uniform over so many powers of two from there
}

// randomSizes is the workload over sizes from 256 bytes to 64 MiB.
func randomSizes(live int) workload {
	return workload{state: 88172645463325252, live: uint64(live), minExp: 8, octaves: 18}
}

// smallSizes is the workload over sizes from 512 bytes to 256 KiB.
func smallSizes(live int) workload {
	return workload{state: 88172645463325252, live: uint64(live), minExp: 9, octaves: 9}
}

func (w *workload) random() uint64 {
	w.state ^= w.state << 13
	w.state ^= w.state >> 7
	w.state ^= w.state << 17
	return w.state
}

// slot returns which block is replaced next.
func (w *workload) slot() uint64 { return w.random() % w.live }

// size returns the bytes of the block that takes its place.
func (w *workload) size() int64 {
	base := uint64(1) << (w.minExp + w.random()%w.octaves)
	return int64(base + w.random()%base)
}

// The workload is the peers': these values are what the C++ in bench/peers
// computes, and sum stands for the 20,000 steps of its warm-up.
func TestWorkloadIsThePeers(t *testing.T) {
	type step struct {
		slot uint64
		size int64
	}
	var got []step
	sum := uint64(0)
	w := randomSizes(1000)
	for range 20 * 1000 {
		s := step{w.slot(), w.size()}
		got = append(got, s)
		sum = (sum*31+s.slot)*31 + uint64(s.size)
	}
	require.Equal(t, []step{{512, 39632}, {853, 5693}, {201, 737166}, {545, 3028}, {435, 174494}, {653, 11785831}}, got[:6])
	require.Equal(t, uint64(15735172683151887918), sum)
}

// liveBlocks are the blocks of a workload.
type liveBlocks struct {
	workload
	c      *cupool.Pool
	blocks []cupool.Block
}

func newLiveBlocks(c *cupool.Pool, w workload) *liveBlocks {
	return &liveBlocks{workload: w, c: c, blocks: make([]cupool.Block, w.live)}
}

func (r *liveBlocks) step(b *testing.B) {
	j := r.slot()
	err := r.c.Free(r.blocks[j]) // at first the empty block
	if err == nil {
		r.blocks[j], err = r.c.Alloc(r.size(), nil)
	}
	if err != nil {
		b.Fatal(err)
	}
}

// fill makes all blocks live.
func (r *liveBlocks) fill(b *testing.B) {
	var err error
	for i := range r.blocks {
		if r.blocks[i], err = r.c.Alloc(r.size(), nil); err != nil {
			b.Fatal(err)
		}
	}
}

// run measures steps, after some to come to rest.
func (r *liveBlocks) run(b *testing.B, before int) {
	for range before {
		r.step(b)
	}
	start := r.c.Stats()
	b.ReportAllocs()
	for b.Loop() {
		r.step(b)
	}
	st := r.c.Stats()
	hits, misses := st.Hits-start.Hits, st.Misses-start.Misses
	b.ReportMetric(100*float64(hits)/float64(max(hits+misses, 1)), "%hit")
	b.ReportMetric(float64(st.LiveBytes)/float64(st.All.ReservedBytes.Current), "live/reserved")
	// Free blocks that share a segment have books like live ones.
	blocks := st.All.Active.Current + st.All.InactiveSplit.Current
	b.ReportMetric(float64(st.MetadataBytes)/float64(blocks), "books-B/block")
	b.ReportMetric(100*float64(st.MetadataBytes)/float64(st.All.ReservedBytes.Current), "books-%reserved")
	for _, h := range r.blocks {
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
			free, _, err := c.Driver().MemInfo()
			require.NoError(b, err)
			if free < 16<<30 {
				b.Skip("the blocks take up to 16 GiB")
			}
			newLiveBlocks(c, randomSizes(1000)).run(b, 20*1000)
		})
	}
}

// What each strategy costs where blocks of random sizes come and go, and how much
// of what is reserved it uses.
func BenchmarkStrategies(b *testing.B) {
	for _, s := range []cupool.Strategy{cupool.BestFit, cupool.FirstFit, cupool.Segregated, cupool.PowerOfTwo} {
		for _, live := range []int{1000, 10_000} {
			b.Run(fmt.Sprintf("%v/blocks=%d", s, live), func(b *testing.B) {
				c := poolOn(b, simdev.New(simdev.Config{Capacity: 1 << 44}), withStrategy(s))
				newLiveBlocks(c, randomSizes(live)).run(b, 20*live)
			})
		}
	}
}

// What the allocator knows about small live blocks takes at most a twentieth of
// 4 KiB for each.
func TestBooksOfSmallBlocks(t *testing.T) {
	bothBackings(t, func(t *testing.T, backing cupool.Backing) {
		for _, size := range []int64{512, 4096} {
			n := int64(100_000)
			if atomic.Invariants { // which look at every block after every step
				n = 2000
			}
			c, err := cupool.New(cupool.Config{Driver: simdev.New(simdev.Config{Capacity: 1 << 34}), Backing: backing})
			require.NoError(t, err)
			runtime.GC()
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			for range n {
				_, err := c.Alloc(size, nil)
				require.NoError(t, err)
			}
			runtime.GC()
			runtime.ReadMemStats(&after)
			books, heap := c.Stats().MetadataBytes/n, (int64(after.HeapAlloc)-int64(before.HeapAlloc))/n
			t.Logf("blocks of %d bytes: %d bytes each in Stats, %d in Go's heap", size, books, heap)
			require.LessOrEqual(t, books, int64(4096/20))
			require.LessOrEqual(t, heap, int64(4096/20))
			runtime.KeepAlive(c)
		}
	})
}

// The cost of a step, and the memory of the books, by the number of live
// blocks. The device is simulated, as no GPU holds that many; the sizes are
// small because the books weigh most there.
func BenchmarkLive(b *testing.B) {
	byBlocks(b, func(b *testing.B, n int) {
		d := simdev.New(simdev.Config{Capacity: 1 << 44})
		r := newLiveBlocks(poolOn(b, d), smallSizes(n))
		r.fill(b)
		r.run(b, max(100_000, n))
	})
}

// byBlocks runs a benchmark with 10³ to 10⁶ blocks.
func byBlocks(b *testing.B, run func(b *testing.B, n int)) {
	for exp, n := 3, 1000; exp <= 6; exp, n = exp+1, 10*n {
		b.Run(fmt.Sprintf("blocks=1e%d", exp), func(b *testing.B) { run(b, n) })
	}
}

// What the machine needs for the two looks that no step of BenchmarkLive can do
// without, one after the other: at the program's handle of a block picked at
// random, and at the 64 bytes that the allocator has of the block.
func BenchmarkLiveLooks(b *testing.B) {
	type record struct {
		zero uint64
		_    [7]uint64
	}
	byBlocks(b, func(b *testing.B, n int) {
		handles, records := make([][4]uint64, n), make([]record, n)
		w := smallSizes(n)
		for i := range handles {
			handles[i][3] = w.slot()
		}
		zero := uint64(0) // the next slot waits for it
		for b.Loop() {
			zero = records[handles[w.slot()+zero][3]].zero
		}
	})
}
