package cupool_test

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/history"
	"github.com/cupool/cupool/internal/simdev"
	"github.com/cupool/cupool/internal/testkit"
	"github.com/cupool/cupool/internal/testkit/pooltest"
	"github.com/cupool/cupool/snapshot"
)

// place is an address in the memory of a pool.
type place struct {
	pool    string
	address cupool.Ptr
}

// replayed is what events say that there is.
type replayed struct {
	t             *testing.T
	live, pending map[place]snapshot.Event // as they were allocated
	segments      map[cupool.Ptr]int64
	pages         map[cupool.Ptr]bool // of virtual memory
	page          int64
	seen          uint64
	met           map[snapshot.Kind]int
}

// newReplayed begins with what there is.
func newReplayed(t *testing.T, page int64, pools []*cupool.Pool) *replayed {
	r := &replayed{t: t, page: page, live: map[place]snapshot.Event{}, pending: map[place]snapshot.Event{}, segments: map[cupool.Ptr]int64{}, pages: map[cupool.Ptr]bool{}, met: map[snapshot.Kind]int{}}
	for _, p := range pools {
		r.picture(p.Snapshot())
	}
	return r
}

// picture adds what a snapshot says.
func (r *replayed) picture(s cupool.Snapshot) {
	for _, seg := range s.Segments {
		if !seg.Virtual {
			r.segments[seg.Address] = seg.Size
		}
		for _, b := range seg.Blocks {
			e := snapshot.Event{Size: b.Requested, Label: b.Label, Stack: b.Stack}
			switch b.State {
			case snapshot.Live:
				r.live[place{s.Pool, b.Address}] = e
			case snapshot.Pending:
				r.pending[place{s.Pool, b.Address}] = e
			}
			if seg.Virtual && !seg.Stitched && b.State != snapshot.Gap {
				r.mapped(b.Address, b.Size)
			}
		}
	}
}

func (r *replayed) mapped(at cupool.Ptr, size int64) {
	for p := at / cupool.Ptr(r.page) * cupool.Ptr(r.page); p < at+cupool.Ptr(size); p += cupool.Ptr(r.page) {
		r.pages[p] = true
	}
}

// apply follows the events since the last call.
func (r *replayed) apply(events []snapshot.Event) {
	for _, e := range events {
		require.Equal(r.t, r.seen+1, e.Number)
		require.EqualValues(r.t, 1, e.Weight)
		r.seen = e.Number
		r.met[e.Kind]++
		at := place{e.Pool, e.Address}
		switch e.Kind {
		case snapshot.Alloc:
			require.NotContains(r.t, r.live, at)
			require.NotContains(r.t, r.pending, at)
			require.Contains(r.t, e.Stack.String(), "cupool_test.(*walk).")
			r.live[at] = e
		case snapshot.FreeRequested:
			require.Contains(r.t, r.live, at)
			require.Equal(r.t, r.live[at].Size, e.Size)
			require.Equal(r.t, r.live[at].Label, e.Label)
			r.pending[at] = r.live[at]
			delete(r.live, at)
		case snapshot.FreeCompleted:
			require.Contains(r.t, r.pending, at)
			delete(r.pending, at)
		case snapshot.SegmentAlloc:
			require.NotContains(r.t, r.segments, e.Address)
			r.segments[e.Address] = e.Size
		case snapshot.SegmentFree:
			require.Equal(r.t, r.segments[e.Address], e.Size)
			delete(r.segments, e.Address)
		case snapshot.SegmentMap:
			require.NotContains(r.t, r.pages, e.Address)
			r.mapped(e.Address, e.Size)
		case snapshot.SegmentUnmap:
			for p := e.Address; p < e.Address+cupool.Ptr(e.Size); p += cupool.Ptr(r.page) {
				require.Contains(r.t, r.pages, p)
				delete(r.pages, p)
			}
		}
	}
}

// summary returns the sizes and labels of blocks.
func summary(blocks map[place]snapshot.Event) map[place]string {
	out := map[place]string{}
	for at, e := range blocks {
		out[at] = fmt.Sprintf("%d bytes %s", e.Size, e.Label)
	}
	return out
}

// With SampleBytes 1, what there was and the events give what there is, after every
// of 10,000 random operations, and fewer in the quick form.
func TestHistoryReplays(t *testing.T) {
	for _, backing := range []cupool.Backing{cupool.BackingSegments, cupool.BackingVMM} {
		t.Run(backing.String(), func(t *testing.T) {
			w := newWalk(t, cupool.Config{Backing: backing, Limit: 192 * mib})
			for range 1000 {
				w.step()
			}
			c := w.pools[0]
			require.NoError(t, c.StartHistory(cupool.History{Events: 2000, SampleBytes: 1}))
			r := newReplayed(t, w.d.VMMGranularity(), w.pools)
			hits := c.Stats().MagazineHits
			for i := range testkit.Choose(10_000, 2500) {
				w.step()
				r.apply(cupool.AllEvents(c, r.seen))
				if i%20 == 0 {
					now := newReplayed(t, r.page, w.pools)
					require.Equal(t, summary(now.live), summary(r.live))
					require.Equal(t, summary(now.pending), summary(r.pending))
					require.Equal(t, now.segments, r.segments)
					require.Equal(t, now.pages, r.pages)
				}
			}
			require.Equal(t, hits, c.Stats().MagazineHits, "no lock-free path")
			for _, k := range []snapshot.Kind{snapshot.Trim, snapshot.Taken, snapshot.OutOfMemory} {
				require.NotZero(t, r.met[k], k)
			}
			if backing == cupool.BackingVMM {
				require.NotZero(t, r.met[snapshot.Stitch])
				require.NotZero(t, r.met[snapshot.SegmentUnmap])
			} else {
				require.NotZero(t, r.met[snapshot.SegmentFree])
			}
			for _, b := range w.held {
				require.NoError(t, c.Free(b.Block))
			}
			for _, p := range w.pools {
				require.NoError(t, p.EmptyCache())
			}
			r.apply(cupool.AllEvents(c, r.seen))
			require.Empty(t, r.live)
			require.Empty(t, r.segments)
			require.Empty(t, r.pages)
			require.NoError(t, c.Close())
		})
	}
}

// Trim and EmptyCache are recorded with what went back.
func TestHistoryOfTrims(t *testing.T) {
	for name, giveBack := range map[string]func(c *cupool.Pool) error{
		"trim":  func(c *cupool.Pool) error { return testkit.Second(c.Trim(0)) },
		"empty": (*cupool.Pool).EmptyCache,
	} {
		c, _ := pooltest.New(t, 1<<30, func(cfg *cupool.Config) { cfg.History = &cupool.History{} })
		require.NoError(t, c.Free(pooltest.Alloc(t, c, 40*mib, nil)))
		require.NoError(t, giveBack(c))
		events := cupool.AllEvents(c, 0)
		last := events[len(events)-1]
		require.Equal(t, snapshot.Trim, last.Kind, name)
		require.EqualValues(t, 40*mib, last.Size)
	}
}

// A sample that had no place in the magazines has none when it is freed: its size may not come
// again.
func TestSampleWithoutHome(t *testing.T) {
	pooltest.Backings(t, 256*mib, func(t *testing.T, c *cupool.Pool) {
		b := pooltest.Alloc(t, c, mib, nil)
		require.False(t, c.IsHomed(b))
		require.NoError(t, c.Free(b))
		require.Zero(t, c.HomedBytes())
	}, pooltest.WithMagazines, func(cfg *cupool.Config) { cfg.History = &cupool.History{SampleBytes: 1024} })
}

// Samples stand for what is not recorded: of allocations that hit or miss, of all
// sizes, in events, totals and live blocks.
func TestHistorySamples(t *testing.T) {
	defer func(rate float64) { history.MaxRate = rate }(history.MaxRate)
	history.MaxRate = math.Inf(1)
	c := pooltest.Open(t, cupool.Config{Driver: simdev.New(simdev.Config{Capacity: 1 << 40}), History: &cupool.History{SampleBytes: 64 << 10}})
	r := testkit.Rand(t)
	const rounds = 20_000
	for range rounds {
		b := pooltest.Alloc(t, c, sampledSizes[r.IntN(len(sampledSizes))], nil)
		require.NoError(t, c.Free(b))
	}
	s := c.Snapshot()
	events := estimate{}
	for _, e := range s.Events {
		if e.Kind == snapshot.Alloc {
			events.add(e.Weight)
			require.Contains(t, e.Stack.String(), "TestHistorySamples")
		}
	}
	events.require(t, rounds)
	totals := 0.0
	for _, x := range s.Totals {
		totals += x.Allocations
	}
	require.InDelta(t, events.sum, totals, 1e-3)
	st := c.Stats()
	require.Greater(t, st.MagazineHits, int64(rounds/2), "samples go back to the magazines")

	var blocks []cupool.Block
	live := estimate{}
	for range 5000 {
		b := pooltest.Alloc(t, c, sampledSizes[r.IntN(len(sampledSizes))], nil)
		blocks = append(blocks, b)
	}
	for _, seg := range c.Snapshot().Segments {
		for _, b := range seg.Blocks {
			require.Equal(t, b.Weight > 0, b.Stack != nil)
			if b.Weight > 0 {
				require.Equal(t, snapshot.Live, b.State)
				require.Contains(t, b.Stack.String(), "TestHistorySamples")
				live.add(b.Weight)
			}
		}
	}
	live.require(t, 5000)
	freeAll(t, c, blocks)
	require.NoError(t, c.Check())
	require.NoError(t, c.Close())
}

// Where a sanitizer knows the stack of every block, none stands for others, also if it is a sample.
func TestHistorySamplesOfSanitizedPools(t *testing.T) {
	c := pooltest.Open(t, cupool.Config{
		Driver:  simdev.New(simdev.Config{Capacity: 64 * mib}),
		History: &cupool.History{SampleBytes: 64 << 10}, Sanitize: cupool.Sanitizers{Quarantine: mib},
	})
	for range 2000 {
		pooltest.Alloc(t, c, 4<<10, nil)
	}
	require.Equal(t, []int64{2000, 2000 * 4 << 10}, linesOf(snapshot.LinesOf(c.Snapshot())))
	_, err := c.Alloc(64*mib, nil)
	var oom *cupool.OOMError
	require.ErrorAs(t, err, &oom)
	require.Equal(t, []int64{2000, 2000 * 4 << 10}, linesOf(oom.Lines))
}

// linesOf returns the sums of blocks and bytes.
func linesOf(lines []snapshot.Line) []int64 {
	sums := make([]int64, 2)
	for _, l := range lines {
		sums[0] += l.Blocks
		sums[1] += l.Bytes
	}
	return sums
}

var sampledSizes = []int64{4 << 10, 10_000, 64 << 10, 1 << 20, 3 << 20}

// estimate adds up weights.
type estimate struct{ sum, squares float64 }

func (e *estimate) add(weight float64) {
	e.sum += weight
	e.squares += weight * (weight - 1) // the variance of a sample's weight
}

// require compares the sum with what it estimates, which it misses by more once in a
// billion times.
func (e *estimate) require(t *testing.T, n float64) {
	t.Helper()
	require.Less(t, math.Abs(e.sum-n), 7*math.Sqrt(e.squares)+10, "%v of %v", e.sum, n)
}

// With a history on, a hit makes no Go memory but where it is a sample; and off, it
// never does.
func TestHistoryMakesNothing(t *testing.T) {
	c, _ := pooltest.New(t, 1<<30, pooltest.WithMagazines)
	pair := func() {
		b, err := c.Alloc(4096, nil)
		if err == nil {
			err = c.Free(b)
		}
		require.NoError(t, err)
	}
	require.NoError(t, c.StartHistory(cupool.History{SampleBytes: math.MaxInt64}))
	for range 100 {
		pair()
	}
	require.Zero(t, testing.AllocsPerRun(1000, pair))
	c.StopHistory()
	for range 100 {
		pair()
	}
	hits := c.Stats().MagazineHits
	require.Zero(t, testing.AllocsPerRun(1000, pair))
	require.Greater(t, c.Stats().MagazineHits, hits+1000)
}

// Settings that make no sense are refused; what was recorded stays until the history
// begins anew; numbers go on.
func TestHistoryLifetime(t *testing.T) {
	c, _ := pooltest.New(t, 1<<30, pooltest.WithMagazines)
	for _, bad := range []cupool.History{{Events: -1}, {Events: 1<<24 + 1}, {SampleBytes: -1}} {
		var field *cupool.ConfigError
		require.ErrorAs(t, c.StartHistory(bad), &field)
		_, err := cupool.New(cupool.Config{History: &bad})
		require.ErrorAs(t, err, &field)
		require.Contains(t, field.Field, "History.")
	}
	require.Empty(t, cupool.AllEvents(c, 0))
	for range 3 {
		forgetABlock(t, c, 1000)
	}
	require.NoError(t, c.StartHistory(cupool.History{Events: 4, SampleBytes: 1}))
	forgetABlock(t, c, 1<<20)
	c.StopHistory()
	forgetABlock(t, c, 2<<20)
	events := cupool.AllEvents(c, 0)
	require.Equal(t, snapshot.Alloc, events[len(events)-1].Kind)
	require.EqualValues(t, 1<<20, events[len(events)-1].Size)
	last := events[len(events)-1].Number
	require.Empty(t, cupool.AllEvents(c, last))
	require.NoError(t, c.StartHistory(cupool.History{Events: 4, SampleBytes: 1}))
	require.Empty(t, cupool.AllEvents(c, 0))
	for range 10 {
		forgetABlock(t, c, 1000)
	}
	events = cupool.AllEvents(c, last+2)
	require.Len(t, events, 4, "the last ones")
	require.Equal(t, last+10, events[3].Number)
	require.Len(t, cupool.AllEvents(c, last+9), 1)
	var leaks *cupool.LeakError
	require.ErrorAs(t, c.Close(), &leaks)
	require.ErrorIs(t, c.StartHistory(cupool.History{}), cupool.ErrClosed)
	c.StopHistory()
}

// Blocks of a retired pool, and of one that sleeps, do not come back to the magazines.
func TestHistorySamplesOfEndingPools(t *testing.T) {
	d := simdev.New(simdev.Config{})
	c := pooltest.Open(t, cupool.Config{Driver: d, History: &cupool.History{SampleBytes: 2}}) // nearly all
	p := pooltest.NewPrivate(t, c, cupool.PoolConfig{Name: "tenant"})
	hold := func(a *cupool.Pool) cupool.Block {
		for range 200 {
			require.NoError(t, a.Free(pooltest.Alloc(t, a, 4096, nil)))
		}
		return pooltest.Alloc(t, a, 4096, nil)
	}
	x, y := hold(p), hold(c)
	require.NoError(t, p.Retire())
	require.NoError(t, c.Free(x))
	_, err := p.Alloc(4096, nil)
	require.ErrorIs(t, err, cupool.ErrClosed)
	require.NoError(t, c.Sleep(nil))
	require.NoError(t, c.FreePtr(y.Ptr(), 4096))
	_, err = c.Alloc(4096, nil)
	require.ErrorIs(t, err, cupool.ErrAsleep)
	require.NoError(t, c.Wake())
	require.NoError(t, c.Free(hold(c)))
	require.NoError(t, c.Check())
	require.NoError(t, c.Close())
}

// Histories begin and end while 16 goroutines use the allocator and look at it.
func TestHistoryStorm(t *testing.T) {
	c := pooltest.Open(t, cupool.Config{Driver: simdev.New(simdev.Config{Capacity: 1 << 40, IdleEvents: true})})
	p := pooltest.NewPrivate(t, c, cupool.PoolConfig{Name: "tenant"})
	s := pooltest.NewStream(t, c)
	seed := testkit.Seed(t)
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(seed, uint64(i)))
			var held []cupool.Block
			for n := range 1000 {
				if err := stormStep(r, c, p, s, &held, n%100 == i); err != nil {
					t.Errorf("goroutine %d: %v", i, err)
					return
				}
			}
			for _, b := range held {
				if err := c.Free(b); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	c.StopHistory()
	require.NoError(t, c.Sync())
	require.NoError(t, c.Check())
	require.Empty(t, c.Leaks())
	for _, l := range c.Stats().Labels {
		require.Equal(t, l.Blocks.Allocated, l.Blocks.Freed)
		require.Equal(t, l.Bytes.Allocated, l.Bytes.Freed)
		require.Zero(t, l.Blocks.Current+l.Bytes.Current)
	}
	require.NoError(t, c.Close())
}

// stormStep allocates or frees, and does something with the history now and then.
func stormStep(r *rand.Rand, c, p *cupool.Pool, s *cupool.Stream, held *[]cupool.Block, look bool) error {
	if look {
		switch r.IntN(6) {
		case 0:
			c.StopHistory()
		case 1:
			_ = len(cupool.AllEvents(c, r.Uint64N(1000)))
		case 2:
			_ = c.Snapshot()
		case 3:
			return errors.Join(c.EmptyCache(), p.EmptyCache())
		default:
			return p.StartHistory(cupool.History{Events: 1 + r.IntN(1000), SampleBytes: []int64{0, 1, 4096}[r.IntN(3)]})
		}
		return nil
	}
	if n := len(*held); n > 8 || n > 0 && r.IntN(2) == 0 {
		b := (*held)[n-1]
		*held = (*held)[:n-1]
		switch r.IntN(4) {
		case 0:
			return c.FreeOn(b, s)
		case 1:
			return c.FreePtr(b.Ptr(), b.Size())
		}
		return p.Free(b)
	}
	var from cupool.Allocator = []*cupool.Pool{c, p}[r.IntN(2)]
	if r.IntN(8) == 0 {
		from = c.WithLabel("storm")
	}
	b, err := from.Alloc(sampledSizes[r.IntN(len(sampledSizes))], []*cupool.Stream{nil, s}[r.IntN(2)])
	if err == nil {
		*held = append(*held, b)
	}
	return err
}

//go:noinline
func forgetABlock(t *testing.T, c *cupool.Pool, size int64) {
	_, err := c.Alloc(size, nil)
	require.NoError(t, err)
}

//go:noinline
func forgetABuffer(t *testing.T, c *cupool.Pool) {
	_, err := cupool.NewBuffer[float32](c, 10, nil)
	require.NoError(t, err)
}

func TestRecordStacks(t *testing.T) {
	c, d := pooltest.New(t, 1<<30, func(cfg *cupool.Config) { cfg.History, cfg.MagazineBytes = &cupool.History{SampleBytes: 1}, 0 })
	x := pooltest.NewScript(t, c, d)
	for range 5 {
		x.Run("a=512 free:a b=2M free:b") // their stacks are dropped again
	}
	require.Zero(t, c.Stats().MagazineHits, "no lock-free path")
	forgetABlock(t, c, 1000)
	forgetABlock(t, c, 30<<20) // through a miss
	forgetABuffer(t, c)

	err := c.Close()
	var leak *cupool.LeakError
	require.ErrorAs(t, err, &leak)
	require.Len(t, leak.Leaks, 3)
	for _, l := range leak.Leaks {
		culprit := "cupool_test.forgetABlock"
		if l.Size == 40 {
			culprit = "cupool_test.forgetABuffer"
		}
		require.Contains(t, l.Stack, culprit+"\n\t")
		require.Contains(t, l.Stack, "history_test.go:")
		require.Contains(t, l.Stack, "cupool_test.TestRecordStacks")
		require.NotContains(t, l.Stack, "cupool/cupool.", "the allocator's own functions are left out")
	}
	require.Equal(t, 3, strings.Count(err.Error(), "block, "))
	require.Contains(t, err.Error(), "leaked 3 blocks, 30 MiB")
}

// TestHistoryOfPoolsOfOneName: a snapshot has the events and totals of its own pool, not those of
// others of its name, open or closed.
func TestHistoryOfPoolsOfOneName(t *testing.T) {
	c := pooltest.Open(t, cupool.Config{History: &cupool.History{SampleBytes: 1}})
	add := func(n int) *cupool.Pool {
		p := pooltest.NewPrivate(t, c, cupool.PoolConfig{Name: "twin"})
		for range n {
			require.NoError(t, p.Free(pooltest.Alloc(t, p, 5000, nil)))
		}
		return p
	}
	gone := add(100)
	require.NoError(t, gone.Close())
	require.Empty(t, gone.Snapshot().Totals, "they would take the place of others")
	for n, p := range map[int]*cupool.Pool{3: add(3), 5: add(5)} {
		s, allocs, total := p.Snapshot(), 0, 0.0
		for _, e := range s.Events {
			require.Equal(t, "twin", e.Pool)
			if e.Kind == snapshot.Alloc {
				allocs++
			}
		}
		for _, x := range s.Totals {
			total += x.Allocations
		}
		require.Equal(t, []any{n, float64(n)}, []any{allocs, total})
	}
	require.NoError(t, c.Close())
}
