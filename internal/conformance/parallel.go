package conformance

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/testkit"
)

// testProducerConsumer: producers allocate and fill blocks on their streams,
// consumers copy them on theirs and free them at once.
func testProducerConsumer(t *testing.T, e *env) {
	r := e.rig(t, unlimited)
	type item struct {
		piece
		ready *cupool.Event
	}
	sh := r.shadow()
	ch := make(chan item, 8)
	var producers, consumers sync.WaitGroup
	for g := range 2 {
		s := r.stream()
		producers.Go(func() {
			for i := range scaled(1500) {
				size := []int64{5000, 300 * kib, 5000, 2*mib + 1}[i%4]
				p := piece{s: s, seed: uint64(g)<<32 + uint64(i)}
				var err error
				if p.Block, err = r.Alloc(size, s); err != nil {
					t.Error(err)
					return
				}
				check(t, sh.add(p.Block, p.seed))
				if !e.opt.NoContents {
					check(t, write(p.Block, p.seed, s))
				}
				ev, err := s.Record()
				check(t, err)
				ch <- item{p, ev}
			}
		})
	}
	for range 2 {
		s := r.stream()
		consumers.Go(func() {
			for it := range ch {
				check(t, s.Wait(it.ready))
				check(t, it.ready.Close())
				to, err := r.Alloc(it.Size(), s)
				check(t, err)
				check(t, copyTo(to, it.Block, s))
				check(t, sh.remove(it.Block))
				check(t, r.FreeOn(it.Block, s))
				if !e.opt.NoContents {
					check(t, verify(to, it.seed, s))
				}
				check(t, r.Free(to))
			}
		})
	}
	producers.Wait()
	close(ch)
	consumers.Wait()
	require.NoError(t, r.Check())
	require.NoError(t, r.EmptyCache())
	require.Zero(t, r.Stats().All.ReservedBytes.Current)
	require.Zero(t, r.Stats().OOMs)
}

// testPipeline passes data down a chain of streams without the host ever
// waiting, each stage freeing what it got while the stage may not have begun.
func testPipeline(t *testing.T, e *env) {
	r := e.rig(t, unlimited)
	var stages []*cupool.Stream
	for range 4 {
		stages = append(stages, r.stream())
	}
	for round := range scaled(300) {
		size := []int64{5000, 70000, 2 * mib}[round%3]
		b := r.alloc(size, stages[0])
		if !e.opt.NoContents {
			require.NoError(t, write(b, uint64(round), stages[0]))
		}
		for i, s := range stages[1:] {
			require.NoError(t, s.WaitStream(stages[i]))
			next := r.alloc(size, s)
			require.NoError(t, copyTo(next, b, s))
			require.NoError(t, r.FreeOn(b, s))
			b = next
		}
		if !e.opt.NoContents {
			require.NoError(t, verify(b, uint64(round), stages[3]))
		}
		r.free(b)
	}
	require.NoError(t, r.Check())
}

// claims finds blocks that two goroutines hold at once, cheaply: by address.
type claims [64]struct {
	mu   sync.Mutex
	held map[cupool.Ptr]int
	_    [48]byte
}

func (c *claims) take(p cupool.Ptr, g int) error {
	s := &c[uint64(p)>>9%64]
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held == nil {
		s.held = map[cupool.Ptr]int{}
	}
	if other, ok := s.held[p]; ok {
		return fmt.Errorf("%v was handed to goroutine %d while %d holds it", p, g, other)
	}
	s.held[p] = g
	return nil
}

func (c *claims) give(p cupool.Ptr) {
	s := &c[uint64(p)>>9%64]
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.held, p)
}

// withProcs runs f with 2 and with 8 Ps.
func withProcs(t *testing.T, f func(*testing.T)) {
	for _, n := range []int{2, 8} {
		t.Run(fmt.Sprintf("procs=%d", n), func(t *testing.T) {
			defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(n))
			f(t)
		})
	}
}

// testLockFree hammers a few sizes of one stream from many goroutines, with
// blocks going from one to another.
func testLockFree(t *testing.T, e *env) {
	withProcs(t, func(t *testing.T) {
		r := e.rig(t, unlimited)
		total := hammer(t, r, []*cupool.Stream{r.DefaultStream()}, scaled(20000), nil)
		st := r.Stats()
		require.Equal(t, total, st.All.Allocation.Allocated)
		require.Equal(t, total, st.All.Allocation.Freed)
		require.Equal(t, total, st.Hits+st.Misses)
		require.Zero(t, st.LiveBytes)
		r.flush()
		r.requireAllFree()
	})
}

// testLockFreeStorm is testLockFree on two streams while others flush, trim,
// read statistics and check.
func testLockFreeStorm(t *testing.T, e *env) {
	withProcs(t, func(t *testing.T) {
		r := e.rig(t, unlimited)
		streams := []*cupool.Stream{r.stream(), r.stream()}
		var events atomic.Int64
		total := hammer(t, r, streams, scaled(4000), func(i int) {
			events.Add(1)
			switch i % 6 {
			case 0:
				_, err := r.Trim(1 << 62)
				check(t, err)
			case 1:
				check(t, r.Check())
			case 2:
				st := r.Stats()
				if st.All.ReservedBytes.Current != st.LiveBytes+st.PendingBytes+st.CachedBytes {
					t.Errorf("reserved is not live + pending + cached: %+v", st)
				}
			case 3:
				check(t, r.EmptyCache())
			case 4:
				_, err := r.ProcessDeferred()
				check(t, err)
			case 5:
				r.ResetPeak()
				_ = r.Snapshot().Layout()
			}
		})
		require.NotZero(t, events.Load())
		st := r.Stats()
		require.Equal(t, total, st.All.Allocation.Allocated)
		require.Equal(t, total, st.Hits+st.Misses)
		require.Zero(t, st.LiveBytes)
		r.flush()
		r.requireAllFree()
	})
}

// hammer allocates and frees in eight goroutines, n times each, and returns
// the number of allocations. meanwhile runs in a goroutine of its own.
func hammer(t *testing.T, r *rig, streams []*cupool.Stream, n int, meanwhile func(i int)) int64 {
	const goroutines = 8
	sizes := []int64{512, 1024, 5000, 70000, 2 * mib}
	var held claims
	var total atomic.Int64
	pass := make(chan cupool.Block, 32)
	base := testkit.Seed(t)
	var wg sync.WaitGroup
	free := func(b cupool.Block, how int) {
		held.give(b.Ptr())
		switch how {
		case 0:
			check(t, r.FreePtr(b.Ptr(), -1))
		case 1:
			check(t, r.FreePtr(b.Ptr(), b.Size()))
		default:
			check(t, r.Free(b))
		}
	}
	for g := range goroutines {
		wg.Go(func() {
			c := rand.New(rand.NewPCG(base, uint64(g)))
			for range n {
				s := streams[c.IntN(len(streams))]
				size := sizes[c.IntN(len(sizes))]
				b, err := r.Alloc(size, s)
				if err != nil {
					t.Error(err)
					return
				}
				total.Add(1)
				check(t, held.take(b.Ptr(), g))
				if b.Size() != size {
					t.Errorf("%d bytes asked for, %v got", size, b)
				}
				how := c.IntN(16)
				switch {
				case how < 10:
					free(b, how)
				case how == 10:
					check(t, r.RecordStream(b, streams[0]))
					free(b, 2)
				default:
					select {
					case pass <- b:
					case o := <-pass:
						free(o, 2)
						free(b, 2)
					}
				}
			}
		})
	}
	done := make(chan struct{})
	var side sync.WaitGroup
	if meanwhile != nil {
		side.Go(func() {
			for i := 0; ; i++ {
				meanwhile(i) // once at the least, however late this comes
				select {
				case <-done:
					return
				default:
				}
			}
		})
	}
	wg.Wait()
	close(done)
	side.Wait()
	close(pass)
	for b := range pass {
		free(b, 2)
	}
	for _, s := range streams {
		check(t, s.Sync())
	}
	_, err := r.ProcessDeferred()
	check(t, err)
	return total.Load()
}
