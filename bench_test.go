package cupool_test

import (
	"cmp"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/hook"
	"github.com/cupool/cupool/internal/lock"
	"github.com/cupool/cupool/internal/simdev"
	"github.com/cupool/cupool/internal/testkit/pooltest"
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

// clockedDevice is a device whose calls a clock runs around. The clock costs as much as a
// hit, so it is for benchmarks that call the device seldom.
type clockedDevice struct {
	hook.Driver
	spent time.Duration // in calls
}

func newClockedDevice(d cupool.Driver) *clockedDevice {
	c := &clockedDevice{}
	c.Driver = hook.Driver{Driver: d, Around: func(_ *hook.Call, do func() error) error {
		start := time.Now()
		defer func() { c.spent += time.Since(start) }()
		return do()
	}}
	return c
}

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
	b.Run("mutex-pairs", func(b *testing.B) { // of goroutines with a mutex each
		parallel(b, runtime.GOMAXPROCS(0), func(_, n int) error {
			var mu sync.Mutex
			for range n {
				mu.Lock()
				//lint:ignore SA2001 the pair alone is measured
				mu.Unlock()
			}
			return nil
		})
	})
	b.Run("atomic-add", func(b *testing.B) {
		var n atomic.Int64
		for b.Loop() {
			n.Add(1)
		}
	})
	b.Run("memset", func(b *testing.B) {
		memory := make([]byte, 1<<20)
		for b.Loop() {
			clear(memory)
		}
	})
}

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

// rest makes steps until the pool has come to rest.
func (r *liveBlocks) rest(b *testing.B, steps int) {
	for range steps {
		r.step(b)
	}
}

// run measures steps.
func (r *liveBlocks) run(b *testing.B) {
	start := r.c.Stats()
	b.ReportAllocs()
	for b.Loop() {
		r.step(b)
	}
	st := r.c.Stats()
	hits, misses := st.Hits-start.Hits, st.Mapped+st.Grown-start.Mapped-start.Grown
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

// 1,000 live blocks of random sizes from 256 bytes to 64 MiB. driver-ns/op is the device's
// part of ns/op. Virtual memory stitches most while the pool grows, in the first hundred thousand
// steps; rested is what it takes behind these.
func BenchmarkRandomLive1000(b *testing.B) {
	for _, of := range []struct {
		name    string
		backing cupool.Backing
		rest    int // steps before the clock starts
	}{
		{"backing=auto", cupool.BackingAuto, 20_000},
		{"rested", cupool.BackingAuto, 1_000_000},
		{"backing=segments", cupool.BackingSegments, 20_000},
	} {
		b.Run(of.name, func(b *testing.B) {
			d := newClockedDevice(benchDevice(b))
			c := poolOn(b, d, func(cfg *cupool.Config) { cfg.Backing = of.backing })
			free, _, err := d.MemInfo()
			require.NoError(b, err)
			if free < 16<<30 {
				b.Skip("the blocks take up to 16 GiB")
			}
			r := newLiveBlocks(c, randomSizes(1000))
			r.rest(b, of.rest)
			d.spent = 0
			r.run(b)
			perOp(b, d.spent, "driver-ns/op")
		})
	}
}

// What the allocator knows about small live blocks takes at most a twentieth of
// 4 KiB for each.
func TestBooksOfSmallBlocks(t *testing.T) {
	pooltest.EachBacking(t, func(t *testing.T, backing cupool.Backing) {
		for _, size := range []int64{512, 4096} {
			n := int64(100_000)
			if lock.Invariants { // which look at every block after every step
				n = 4000
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
		r.rest(b, max(100_000, n))
		r.run(b)
	})
}

// byBlocks runs a benchmark with 10³ to 10⁶ blocks.
func byBlocks(b *testing.B, run func(b *testing.B, n int)) {
	for exp, n := 3, 1000; exp <= 6; exp, n = exp+1, 10*n {
		b.Run(fmt.Sprintf("blocks=1e%d", exp), func(b *testing.B) { run(b, n) })
	}
}

// What looks at a pool of a million live blocks, and what it costs the program beside it:
// ns/op is a call, longest-wait-ns the longest pair of Alloc and Free that takes the
// pool's lock, in another goroutine meanwhile, and 99th-wait-ns the pair that one of a
// hundred is longer than. "nothing" is what that goroutine sees when none of them is called.
func BenchmarkLargePool(b *testing.B) {
	const blocks, streams = 1 << 20, 8
	d := simdev.New(simdev.Config{Capacity: 1 << 40})
	c := poolOn(b, d, func(cfg *cupool.Config) { cfg.Backing, cfg.Limit = cupool.BackingSegments, 1<<34 })
	var on [streams]*cupool.Stream
	for i := range on {
		var err error
		on[i], err = c.NewStream()
		require.NoError(b, err)
	}
	labelled := c.WithLabel("weights")
	live := make([]cupool.Block, blocks)
	for i := range live {
		var err error
		live[i], err = labelled.Alloc(512, on[i%streams])
		require.NoError(b, err)
	}
	defer func() {
		for _, blk := range live {
			require.NoError(b, c.Free(blk))
		}
	}()
	for _, look := range []struct {
		name string
		call func()
	}{
		{"nothing", func() { time.Sleep(time.Millisecond) }},
		{"Stats", func() { c.Stats() }},
		{"Snapshot", func() { c.Snapshot() }},
		{"ForgetLabels", func() { c.ForgetLabels() }},
		{"OutOfMemory", func() {
			_, err := c.Alloc(1<<35, nil)
			require.ErrorIs(b, err, cupool.ErrOutOfMemory)
		}},
	} {
		b.Run(look.name, func(b *testing.B) {
			waits := make([]time.Duration, 0, 1<<24) // what grows helps the garbage collector
			var stop atomic.Bool
			var ended sync.WaitGroup
			ended.Go(func() {
				for i := 0; !stop.Load() && len(waits) < cap(waits); i++ {
					began := time.Now()
					blk, err := c.Alloc(3*mib+int64(i%1000)*4096, on[0])
					if err == nil {
						err = c.Free(blk)
					}
					waits = append(waits, time.Since(began))
					if err != nil {
						b.Error(err)
					}
				}
			})
			for b.Loop() {
				look.call()
			}
			stop.Store(true)
			ended.Wait()
			slices.Sort(waits)
			b.ReportMetric(float64(waits[len(waits)-1]), "longest-wait-ns")
			b.ReportMetric(float64(waits[len(waits)*99/100]), "99th-wait-ns")
		})
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
// enough for each goroutine's magazine.
const warmPairs = 1000

// parallelPairs measures b.N pairs of 1 MiB, shared among a goroutine for
// each of the streams.
func parallelPairs(b *testing.B, c *cupool.Pool, streams []*cupool.Stream) {
	parallel(b, len(streams), func(i, n int) error { return pairs(c, streams[i], n) })
}

// parallel measures b.N pairs, shared among goroutines. do makes n of them as the i-th.
func parallel(b *testing.B, goroutines int, do func(i, n int) error) {
	each := (b.N + goroutines - 1) / goroutines
	var warm, done sync.WaitGroup
	start := make(chan struct{})
	warm.Add(goroutines)
	for i := range goroutines {
		done.Go(func() {
			err := do(i, warmPairs)
			warm.Done()
			<-start
			if err == nil {
				err = do(i, each)
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
	times int // that the block is set in a batch
}

// newBusyWork takes memory that takes longer to set than a batch takes, of some
// ten microseconds: a few hundred on a GPU, some seventy on a processor. That
// one sets a small block many times, which leaves the rest of its caches alone,
// as a GPU's work does.
func newBusyWork(b *testing.B, c *cupool.Pool, s *cupool.Stream) *busyWork {
	size, times := int64(64<<10), 64
	if strings.HasPrefix(os.Getenv("CUPOOL_DEVICE"), "cuda") {
		size, times = 1<<30, 1
	}
	block, err := c.Alloc(size, s)
	require.NoError(b, err)
	return &busyWork{c, s, block, times}
}

// next waits until the work of the last batch is done and submits that of the
// next one. It waits behind the allocator's back: to find out and to collect
// what has waited is part of what is measured.
func (w *busyWork) next(b *testing.B) {
	err := w.c.Driver().SyncStream(w.s.Handle())
	for range w.times {
		if err == nil {
			err = w.s.Memset(w.block.Ptr(), 0, w.block.Size())
		}
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

// noZeroing is a Driver whose memory the CPU cannot touch, so that the engine
// has the device zero it, which this one leaves undone.
type noZeroing struct{ cupool.Driver }

func (noZeroing) HostAccessible() bool { return false }

func (noZeroing) Memset(cupool.Ptr, byte, int64, cupool.StreamHandle) error { return nil }

// Alloc, which zeroes, and Free. With zeroing=off everything happens as on
// device memory but for the driver's memset itself, whose time would hide the
// engine's: to measure the zeroing alone and take it off does not work, as at
// 1 MiB it varies by more than all the rest takes.
func BenchmarkEngineAllocFree(b *testing.B) {
	for _, zeroing := range []string{"off", "on"} {
		for _, size := range []int64{64, 4 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20} {
			b.Run(fmt.Sprintf("zeroing=%s/bytes=%d", zeroing, size), func(b *testing.B) {
				d := benchDevice(b)
				if zeroing == "off" {
					d = noZeroing{d}
				}
				e, err := cupool.NewEngine(poolOn(b, d))
				require.NoError(b, err)
				engineAllocFree(b, e, size)
			})
		}
	}
}

func engineAllocFree(b *testing.B, e *cupool.Engine, size int64) {
	b.ReportAllocs()
	for b.Loop() {
		m, err := e.Alloc(size)
		if err == nil {
			err = e.Free(m, size)
		}
		if err != nil {
			b.Fatal(err)
		}
	}
}
