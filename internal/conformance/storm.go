package conformance

import (
	"errors"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/testkit"
)

// A storm hammers a few sizes from many goroutines, which pass blocks to each
// other, as fast as they can: no model looks on but for who holds an address.
type storm struct {
	r       *rig
	streams []*cupool.Stream
	excuse  error    // what calls may fail with, as the allocator sleeps or is closed; nil: nothing
	held    sync.Map // by address: the goroutine
	allocs  atomic.Int64
	pass    chan cupool.Block
}

func newStorm(r *rig, streams ...*cupool.Stream) *storm {
	return &storm{r: r, streams: streams, pass: make(chan cupool.Block, 32)}
}

// run has eight goroutines allocate n times each, or until the excuse is that the
// allocator is closed. meanwhile runs beside them again and again.
func (m *storm) run(n int, meanwhile func(i int)) {
	t := m.r.t
	base := testkit.Seed(t)
	var wg, side sync.WaitGroup
	for g := range 8 {
		wg.Go(func() { m.work(rand.New(rand.NewPCG(base, uint64(g))), g, n) })
	}
	done := make(chan struct{})
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
	m.drain()
	for _, s := range m.streams {
		check(t, m.excused(s.Sync()))
	}
	_, err := m.r.ProcessDeferred()
	check(t, m.excused(err))
}

func (m *storm) work(c *rand.Rand, g, n int) {
	sizes := []int64{512, 1024, 5000, 70000, 2 * mib}
	for range n {
		switch err := m.alloc(m.streams[c.IntN(len(m.streams))], sizes[c.IntN(len(sizes))], c.IntN(16), g); {
		case errors.Is(err, cupool.ErrClosed):
			return
		case err != nil && !errors.Is(err, cupool.ErrAsleep):
			return // it was told
		}
	}
}

// alloc allocates a block, and frees or passes it on.
func (m *storm) alloc(s *cupool.Stream, size int64, how, g int) error {
	b, err := m.r.Alloc(size, s)
	if err != nil {
		check(m.r.t, m.excused(err))
		return err
	}
	m.allocs.Add(1)
	if other, ok := m.held.LoadOrStore(b.Ptr(), g); ok {
		m.r.t.Errorf("%v was handed to goroutine %d while %v holds it", b, g, other)
	}
	if b.Size() != size {
		m.r.t.Errorf("%d bytes asked for, %v got", size, b)
	}
	switch {
	case how < 10:
		m.free(b, how)
	case how == 10:
		check(m.r.t, m.excused(m.r.RecordStream(b, m.streams[0])))
		m.free(b, 2)
	default:
		select {
		case m.pass <- b:
		case o := <-m.pass:
			m.free(o, 2)
			m.free(b, 2)
		}
	}
	return nil
}

func (m *storm) free(b cupool.Block, how int) {
	m.held.Delete(b.Ptr())
	var err error
	switch how {
	case 0:
		err = m.r.FreePtr(b.Ptr(), -1)
	case 1:
		err = m.r.FreePtr(b.Ptr(), b.Size())
	default:
		err = m.r.Free(b)
	}
	check(m.r.t, m.excused(err))
}

// drain frees what was passed on.
func (m *storm) drain() {
	for {
		select {
		case b := <-m.pass:
			m.free(b, 2)
		default:
			return
		}
	}
}

// excused lets the excuse pass.
func (m *storm) excused(err error) error {
	if m.excuse != nil && errors.Is(err, m.excuse) {
		return nil
	}
	return err
}

// over checks the books after all is freed.
func (m *storm) over() {
	t, st := m.r.t, m.r.Stats()
	require.Equal(t, m.allocs.Load(), st.All.Allocation.Allocated)
	require.Equal(t, m.allocs.Load(), st.All.Allocation.Freed)
	require.Equal(t, m.allocs.Load(), st.Hits+st.Mapped+st.Grown)
	require.Zero(t, st.LiveBytes)
	m.r.flush()
	m.r.requireAllFree()
}

// testStorm hammers two streams while others flush, trim, read statistics
// and check, and open and close streams with live blocks.
func testStorm(t *testing.T, e *env) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(8))
	r := e.rig(t, unlimited)
	m := newStorm(r, r.stream(), r.stream())
	m.run(scaled(4000), func(i int) {
		switch i % 8 {
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
		default:
			s, err := r.NewStream()
			check(t, err)
			for k := range 30 { // which others free when the stream is closed
				check(t, m.alloc(s, []int64{5000, 512, 2 * mib}[k%3], 11, -1))
			}
			check(t, s.Close())
		}
	})
	m.over()
}

// testSleepStorm: goroutines find the allocator asleep, or memory that nobody else
// has.
func testSleepStorm(t *testing.T, e *env) {
	r := e.rig(t, unlimited)
	if !r.vmm() {
		t.Skip("no virtual memory")
	}
	m := newStorm(r, r.stream(), r.stream(), r.stream())
	m.excuse = cupool.ErrAsleep
	m.run(scaled(8000), func(int) {
		check(t, r.Sleep(nil))
		check(t, r.Check())
		check(t, r.Wake())
	})
	m.over()
}

// testCloseStorm closes the allocator while goroutines use it. They get ErrClosed,
// nothing worse, and all memory goes back.
func testCloseStorm(t *testing.T, e *env) {
	for round := range scaled(24) {
		f := NewFailing(nil)
		r := e.rigOn(t, f.over, unlimited)
		m := newStorm(r, r.DefaultStream(), r.stream(), r.stream())
		m.excuse = cupool.ErrClosed
		m.run(1<<30, func(i int) {
			if i > 0 {
				return
			}
			time.Sleep(time.Duration(round%8) * 200 * time.Microsecond)
			var leaks *cupool.LeakError
			if err := r.Close(); err != nil && !errors.As(err, &leaks) {
				t.Error(err)
			}
		})
		require.Zero(t, f.Held())
	}
}

// testLimitStorm: goroutines on different streams whose needs fit the limit
// together never run out, however their requests interleave, also while
// another one asks for more than there can be.
func testLimitStorm(t *testing.T, e *env) {
	const goroutines = 4
	r := e.rig(t, limited(goroutines))
	var wg, greedy sync.WaitGroup
	done := make(chan struct{})
	greedy.Go(func() {
		defer close(done)
		for range scaled(20) {
			if _, err := r.Alloc(goroutines*r.whole()+1, nil); !errors.Is(err, cupool.ErrOutOfMemory) {
				t.Errorf("more than the limit: %v", err)
			}
		}
	})
	for range goroutines {
		s := r.stream()
		wg.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-done:
					return
				default:
				}
				b, err := r.Alloc(r.whole()-int64(i%3)*100, s)
				if err != nil {
					t.Error(err)
					return
				}
				check(t, r.Free(b))
				if i%2 == 0 {
					_, err := r.Trim(0)
					check(t, err)
				}
			}
		})
	}
	wg.Wait()
	greedy.Wait()
	require.NoError(t, r.Check())
}
