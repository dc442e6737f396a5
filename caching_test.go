package cupool_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/simdev"
	"github.com/cupool/cupool/internal/testkit"
	"github.com/cupool/cupool/internal/testkit/pooltest"
)

func TestPool(t *testing.T) {
	pooltest.RunScripts(t, map[string][2]string{
		"nothing":    {"", ""},
		"empty size": {"a=0 free:a", ""},

		// Segments are PyTorch's.
		"one byte takes 512 of 2M":             {"a=1", "0 small: [Live 512][Free 2096640]"},
		"small up to 1M":                       {"a=1M", "0 small: [Live 1M][Free 1M]"},
		"rounded up to 1M":                     {"a=1023K+513", "0 small: [Live 1M][Free 1M]"},
		"large beyond 1M":                      {"a=1M+1", "0 large: [Live 1049088][Free 19922432]"},
		"20M up to 10M":                        {"a=9M", "0 large: [Live 9M][Free 11M]"},
		"20M just below 10M":                   {"a=9M+1023K", "0 large: [Live 10239K][Free 10241K]"},
		"its own segment from 10M":             {"a=10M", "0 large: [Live 10M]"},
		"rounded to 2M, rest below 1M stays":   {"a=11M+1", "0 large: [Live 12M]"},
		"rounded to 2M, rest of 1M stays":      {"a=11M", "0 large: [Live 12M]"},
		"rounded to 2M, rest beyond 1M splits": {"a=10M+1", "0 large: [Live 10486272][Free 2096640]"},
		"a segment each":                       {"a=10M b=2M c=1", "0 large: [Live 10M]; 0 large: [Live 2M][Free 18M]; 0 small: [Live 512][Free 2096640]"},

		// Splitting.
		"the next comes from the rest":     {"a=2M b=3M", "0 large: [Live 2M][Live 3M][Free 15M]"},
		"small rests of 512 split":         {"a=1M b=1023K+512", "0 small: [Live 1M][Live 1048064][Free 512]"},
		"no rest, no split":                {"a=1M b=1M", "0 small: [Live 1M][Live 1M]"},
		"large rests of 1M do not split":   {"a=2M b=8M c=9M", "0 large: [Live 2M][Live 8M][Live 10M]"},
		"large rests beyond 1M do":         {"a=2M b=8M c=8M+1023K", "0 large: [Live 2M][Live 8M][Live 9215K][Free 1025K]"},
		"the rest of an unsplit is reused": {"a=2M b=8M c=9M free:c d=10M", "0 large: [Live 2M][Live 8M][Live 10M]"},

		// Coalescing.
		"freed alone":       {"a=2M b=3M free:a", "0 large: [Free 2M][Live 3M][Free 15M]"},
		"with the right":    {"a=2M b=3M c=4M free:c", "0 large: [Live 2M][Live 3M][Free 15M]"},
		"with the left":     {"a=2M b=3M c=4M d=11M free:a free:b", "0 large: [Free 5M][Live 4M][Live 11M]"},
		"with both":         {"a=2M b=3M c=4M d=11M free:a free:c free:b", "0 large: [Free 9M][Live 11M]"},
		"frees coalesce":    {"a=2M b=3M free:a free:b", "0 large: [Free 20M]"},
		"backwards":         {"a=2M b=3M c=4M free:c free:b free:a", "0 large: [Free 20M]"},
		"not over segments": {"a=10M b=10M free:a free:b", "0 large: [Free 10M]; 0 large: [Free 10M]"},

		// Best fit: the smallest, then the lowest address.
		"the smallest hole": {"a=6M b=2M c=3M d=2M e=7M free:a free:c f=3M", "0 large: [Free 6M][Live 2M][Live 3M][Live 2M][Live 7M]"},
		"the smallest that fits": {
			"a=3M b=2M c=6M d=2M e=7M free:a free:c f=4M",
			"0 large: [Free 3M][Live 2M][Live 4M][Free 2M][Live 2M][Live 7M]",
		},
		"the lowest of equals":        {"a=3M b=2M c=3M d=12M free:c free:a e=3M", "0 large: [Live 3M][Live 2M][Free 3M][Live 12M]"},
		"a hole before a new segment": {"a=10M b=10M free:a c=9M", "0 large: [Live 10M]; 0 large: [Live 10M]"},

		// The two pools do not mix.
		"small does not take large": {"a=2M b=2M free:a c=512", "0 large: [Free 2M][Live 2M][Free 16M]; 0 small: [Live 512][Free 2096640]"},
		"large does not take small": {"a=1M b=1M free:a c=1M+512", "0 small: [Free 1M][Live 1M]; 0 large: [Live 1049088][Free 19922432]"},

		"the first address comes back": {"a=3M b=2M free:a c=3M", "0 large: [Live 3M][Live 2M][Free 15M]"},
	}, 1<<30)
}

// The device refuses the 20 MiB that the configuration wants, but has what
// the request needs.
func TestPoolGrowsByWhatIsNeeded(t *testing.T) {
	pooltest.RunScripts(t, map[string][2]string{
		"20M fit":        {"a=2M", "0 large: [Live 2M][Free 18M]"},
		"2M fit":         {"x=10M a=2M", "0 large: [Live 10M]; 0 large: [Live 2M]"},
		"rounded to 2M":  {"x=10M a=3M", "0 large: [Live 10M]; 0 large: [Live 4M]"},
		"nothing fits":   {"x=20M a=4M oom=2M", "0 large: [Live 20M]; 0 large: [Live 4M]"},
		"then it serves": {"x=20M a=4M oom=2M free:a b=2M", "0 large: [Live 20M]; 0 large: [Live 2M][Free 2M]"},
	}, 24<<20)
}

func TestPoolConfiguredSizes(t *testing.T) {
	pooltest.RunScripts(t, map[string][2]string{
		"small segment":  {"a=4K", "0 small: [Live 4K][Free 12K]"},
		"small limit":    {"a=8K b=8K+1", "0 small: [Live 8K][Free 8K]; 0 large: [Live 8704][Free 56K]"},
		"large limit":    {"a=33K b=31K", "0 large: [Live 33K]; 0 large: [Live 31K][Free 34304]"},
		"rounding to 3K": {"a=64K", "0 large: [Live 64K][Free 2K]"},
		"min split":      {"a=62K+512 b=1K", "0 large: [Live 63K]; 0 small: [Live 1K][Free 15K]"},
	}, 1<<30, func(cfg *cupool.Config) {
		cfg.SmallLimit, cfg.SmallSegment = 8<<10, 16<<10
		cfg.LargeLimit, cfg.LargeSegment = 32<<10, 64<<10+512
		cfg.SegmentRounding, cfg.MinSplit = 3<<10, 1<<10
	})
}

// What goes wrong in a Free names itself and changes nothing.
func TestFreeErrors(t *testing.T) {
	other, _ := pooltest.New(t, 1<<30)
	foreign := pooltest.Alloc(t, other, 512, nil)

	for _, magazines := range []bool{false, true} {
		c, d := pooltest.New(t, 1<<30, func(cfg *cupool.Config) {
			if magazines {
				cfg.MagazineBytes = 0
			}
		})
		x := pooltest.NewScript(t, c, d)
		x.Run("a=512 free:a a=512 free:a a=512 free:a a=512 b=2M")
		a, before := x.Block("a"), x.Layout()
		require.Equal(t, "0x10000000000 (512 bytes)", a.String())

		require.ErrorIs(t, c.Free(foreign), cupool.ErrForeignPointer)
		require.ErrorIs(t, c.RecordStream(foreign, nil), cupool.ErrForeignPointer)
		require.Equal(t, before, x.Layout())

		require.NoError(t, c.Free(a))
		err := c.Free(a)
		require.ErrorIs(t, err, cupool.ErrDoubleFree)
		require.ErrorContains(t, err, a.Ptr().String())
		require.ErrorIs(t, c.RecordStream(a, nil), cupool.ErrUseAfterFree)

		again := pooltest.Alloc(t, c, 512, nil)
		require.Equal(t, a.Ptr(), again.Ptr())
		require.NotEqual(t, a, again, "generations tell them apart")
		err = c.Free(a)
		require.ErrorIs(t, err, cupool.ErrStaleBlock)
		require.ErrorIs(t, err, cupool.ErrDoubleFree)
		require.ErrorIs(t, c.RecordStream(a, nil), cupool.ErrUseAfterFree)
		require.NoError(t, c.Free(again), "the new block was left alone")

		// The slot in the books now belongs to other memory.
		x.Run("empty c=1K")
		require.ErrorIs(t, c.Free(a), cupool.ErrDoubleFree)
		x.Run("free:c")

		leak, alone := c.Close().(*cupool.LeakError)
		require.True(t, alone, "nothing else failed")
		require.Equal(t, []cupool.Leak{{Ptr: x.Block("b").Ptr(), Size: 2 << 20}}, leak.Leaks)
		require.ErrorIs(t, c.Free(x.Block("b")), cupool.ErrClosed)
	}
}

// A block of a stream whose heap is gone with it was freed all the same.
func TestFreeOfAHeapThatIsGone(t *testing.T) {
	c := pooltest.Open(t, cupool.Config{})
	p := pooltest.NewPrivate(t, c, cupool.PoolConfig{})
	for _, from := range []*cupool.Pool{c, p} {
		s := pooltest.NewStream(t, c)
		b := pooltest.Alloc(t, from, 3*mib, s)
		require.NoError(t, from.Free(b))
		require.NoError(t, from.EmptyCache())
		require.NoError(t, s.Close())
		require.NoError(t, from.EmptyCache())
		require.ErrorIs(t, from.Free(b), cupool.ErrDoubleFree)
	}
	require.NoError(t, c.Close())
}

// A size that recurs is served by the magazines: no driver call, no Go
// memory, the same address.
func TestHitPath(t *testing.T) {
	c, d := pooltest.New(t, 1<<30, pooltest.WithMagazines)
	for _, size := range []int64{512, 1000, 1 << 20, 32 << 20} {
		for range 20 {
			b := pooltest.Alloc(t, c, size, nil)
			require.NoError(t, c.Free(b))
		}
		first := pooltest.Alloc(t, c, size, nil)
		require.NoError(t, c.Free(first))

		before, hits := d.Total(), c.Stats().MagazineHits
		require.Zero(t, testing.AllocsPerRun(100, func() {
			b, err := c.Alloc(size, nil)
			if err != nil || b.Ptr() != first.Ptr() || c.Free(b) != nil {
				t.Error("no hit")
			}
		}), "Alloc and Free of %d bytes", size)
		require.Zero(t, testing.AllocsPerRun(100, func() {
			b, err := c.Alloc(size, nil)
			if err != nil || c.FreePtr(b.Ptr(), -1) != nil {
				t.Error("no hit")
			}
		}), "Alloc and FreePtr of %d bytes", size)
		require.Zero(t, testing.AllocsPerRun(100, func() {
			b, err := c.Alloc(size, nil)
			if err != nil || c.FreePtr(b.Ptr(), size) != nil {
				t.Error("no hit")
			}
		}), "Alloc and FreePtr with the size of %d bytes", size)
		require.Equal(t, before, d.Total(), "driver calls")
		require.GreaterOrEqual(t, c.Stats().MagazineHits-hits, int64(200))
	}
}

// The pools serve without the Go heap too, when the sizes do not recur.
func TestPoolPathAllocatesNothing(t *testing.T) {
	c, d := pooltest.New(t, 1<<30)
	pooltest.NewScript(t, c, d).Run("a=512 b=3M free:a free:b")
	before, size := d.Total(), int64(0)
	require.Zero(t, testing.AllocsPerRun(1000, func() {
		size = (size + 4711) % (3 << 20)
		b, err := c.Alloc(size+1, nil)
		if err != nil || c.Free(b) != nil {
			t.Error("no hit")
		}
	}))
	require.Equal(t, before, d.Total(), "driver calls")
}

// Magazines are bounded in bytes, and blocks beyond half of the bound
// go to the pool.
func TestMagazineBound(t *testing.T) {
	c, d := pooltest.New(t, 1<<30, func(cfg *cupool.Config) { cfg.MagazineBytes = 1 << 20 })
	x := pooltest.NewScript(t, c, d)
	for range 4 {
		x.Run("a=513K free:a")
	}
	require.Zero(t, c.Stats().MagazineHits, "more than half")
	_, err := c.Trim(2 << 20) // else that block serves the others
	require.NoError(t, err)
	for range 4 {
		x.Run("a=512K free:a")
	}
	require.EqualValues(t, 2, c.Stats().MagazineHits)
	for range 4 {
		x.Run("a=512K b=512K c=512K d=512K e=512K f=512K free:a free:b free:c free:d free:e free:f")
	}
	require.Equal(t, int64(1<<20), c.HomedBytes(), "1M in all")
	require.NoError(t, c.Check())
}

// A large block is kept from its neighbours only for a program that does
// nothing else.
func TestLargeSizesNeedAStreak(t *testing.T) {
	c, d := pooltest.New(t, 1<<30, pooltest.WithMagazines)
	x := pooltest.NewScript(t, c, d)
	for range 20 {
		x.Run("a=2M free:a b=3M free:b")
	}
	require.Equal(t, "0 large: [Free 20M]", x.Layout())
	for range 20 {
		x.Run("a=2M free:a")
	}
	require.Equal(t, "0 large: [Cached 2M][Free 18M]", x.Layout())
}

// sizesOfOneSet returns n larger sizes that share a set of the magazines
// with a size, as internal/magazine hashes them; a set has seven slots.
func sizesOfOneSet(n int, with int64) (sizes []int64) {
	set := func(size int64) uint64 { return uint64(size) * 0x9E3779B97F4A7C15 >> 58 }
	for size := with + 1; len(sizes) < n; size++ {
		if set(size) == set(with) {
			sizes = append(sizes, size)
		}
	}
	return sizes
}

// An evicted block merges with the rest of the very split that evicted it.
func TestEvictionBesideSplit(t *testing.T) {
	c, d := pooltest.New(t, 1<<30, pooltest.WithMagazines)
	x := pooltest.NewScript(t, c, d)
	sizes := sizesOfOneSet(9, 64<<10)
	for round := range 200 {
		r := rand.New(rand.NewPCG(uint64(round), 1))
		var live []cupool.Block
		for range 40 {
			if n := len(live); n > 0 && r.IntN(2) == 0 {
				i := r.IntN(n)
				require.NoError(t, c.Free(live[i]))
				live[i] = live[n-1]
				live = live[:n-1]
				continue
			}
			size := sizes[r.IntN(len(sizes))]
			for range 2 { // twice in a row, so that it gets a home
				b := pooltest.Alloc(t, c, size, nil)
				require.NoError(t, c.Check())
				live = append(live, b)
			}
		}
		freeAll(t, c, live)
		require.NoError(t, c.Check())
		x.Run("empty")
	}
}

// A block of the default stream has a home in its magazines and then waits
// for stream 1, merges with its neighbour, and its place in the books goes to
// stream 1 with those of many others. What stream 1 caches there must not
// serve the default stream, nor be evicted by it.
func TestHomeOfAnotherStreamsBlock(t *testing.T) {
	for before := 600; before < 650; before++ {
		c, d := pooltest.New(t, 1<<30, pooltest.WithMagazines)
		x := pooltest.NewScript(t, c, d)
		s1 := x.Stream("1")
		var filler []cupool.Block
		alloc := func(size int64, s *cupool.Stream) cupool.Block { return pooltest.Alloc(t, c, size, s) }
		for i := range 700 {
			filler = append(filler, alloc(2048+512*int64(i%2), nil)) // never twice in a row: no home
		}
		left := alloc(1024, nil)
		require.NoError(t, c.Free(alloc(512, nil)))
		homed := alloc(512, nil)
		require.Less(t, left.Ptr(), homed.Ptr())
		require.NoError(t, c.RecordStream(homed, s1))
		require.NoError(t, c.Free(left))
		freeAll(t, c, filler[:before])
		require.NoError(t, c.Free(homed))
		_, err := c.ProcessDeferred()
		require.NoError(t, err)
		_, err = c.ProcessDeferred()
		require.NoError(t, err)
		freeAll(t, c, filler[before:])
		var theirs []cupool.Block
		for range 64 {
			theirs = append(theirs, alloc(512, s1))
		}
		freeAll(t, c, theirs)
		mine := alloc(512, nil)
		for _, b := range theirs {
			require.NotEqual(t, b.Ptr(), mine.Ptr(), "%d frees before: memory that is cached for stream 1", before)
		}
		for i := range 100 { // until the stream gives homes again
			require.NoError(t, c.Free(alloc(4096+int64(i), nil)))
		}
		for _, size := range sizesOfOneSet(16, 512) {
			alloc(size, nil)
			alloc(size, nil)
		}
		require.NoError(t, c.Check(), "%d frees before", before)
	}
}

// A slot that a block left behind leads to it when it is of another size: it
// is not handed out, and not counted either.
func TestHomeOfAnotherSize(t *testing.T) {
	c, d := pooltest.New(t, 1<<30, pooltest.WithMagazines)
	x := pooltest.NewScript(t, c, d).Run("a=512 free:a a=512 use:a@1 free:a process")
	_, err := c.Trim(2 << 20) // merges the block with its neighbour
	require.NoError(t, err)
	a, n := x.Block("a"), int64(2)
	for ; c.Stats().MagazineHits == 0; n++ {
		require.Less(t, n, int64(1000), "never gets a home")
		x.Run("b=1K free:b")
	}
	require.Equal(t, a.Ptr(), x.Block("b").Ptr())
	require.Equal(t, "0 small: [Cached 1K][Free 2047K]", x.Layout())
	x.Run("c=512 free:c")
	st := c.Stats().All
	n++
	require.Equal(t, cupool.Stat{Peak: st.Allocation.Peak, Allocated: n, Freed: n}, st.Allocation)
	for name, s := range map[string]cupool.Stat{"requested": st.RequestedBytes, "allocated": st.AllocatedBytes, "active": st.ActiveBytes} {
		require.EqualValues(t, 3*512+(n-3)*1024, s.Allocated, name)
	}
}

// TestFreedTwiceAtOnce: of two goroutines that free a block at the same time one is
// told so. Both find it live and wait for a request that holds the heap.
func TestFreedTwiceAtOnce(t *testing.T) {
	c, d := pooltest.New(t, 1<<30)
	b := pooltest.Alloc(t, c, 4096, nil)
	var frees []<-chan error
	d.Hook = func(call string) {
		if call == "MemAlloc" && frees == nil {
			for range 2 {
				frees = append(frees, pooltest.Start(func() error { return c.Free(b) }))
			}
			time.Sleep(pooltest.Patience) // until both wait
		}
	}
	x := pooltest.Alloc(t, c, 40<<20, nil)
	require.Len(t, frees, 2)
	first, second := <-frees[0], <-frees[1]
	if first != nil {
		first, second = second, first
	}
	require.NoError(t, first)
	require.ErrorIs(t, second, cupool.ErrDoubleFree)
	require.NoError(t, c.Free(x))
	require.NoError(t, c.Check())
	require.NoError(t, c.Close())
}

// A magazine that is emptied again and again for a block of a size that it
// holds is that of another goroutine: it stays, and the stream grows.
func TestCrowd(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	synctest.Test(t, func(t *testing.T) { // no time passes
		c := pooltest.Open(t, cupool.Config{Driver: simdev.New(simdev.Config{})})
		const size = 64 << 10
		lie := func() { // in a magazine
			for range 3 {
				b := pooltest.Alloc(t, c, size, nil)
				require.NoError(t, c.Free(b))
			}
		}
		for i := range 16 {
			lie()
			require.True(t, c.FlushOwn(size), "time %d", i+1)
		}
		lie()
		require.False(t, c.FlushOwn(size))
		require.NotZero(t, c.HomedBytes())
		require.True(t, c.FlushOwn(2*size), "another size")
		lie()
		time.Sleep(11 * time.Millisecond)
		require.True(t, c.FlushOwn(size), "once in a while")
		require.NoError(t, c.Check())
		require.NoError(t, c.Close())
	})
}

// A hit takes no lock: it goes through while another goroutine has all of them.
func TestHitTakesNoLock(t *testing.T) {
	c, _ := pooltest.New(t, 1<<30, pooltest.WithMagazines)
	s := pooltest.NewStream(t, c)
	pairs := func() error {
		for _, on := range []*cupool.Stream{nil, c.DefaultStream(), s} {
			for range 20 {
				b, err := c.Alloc(512, on)
				if err = errors.Join(err, c.Free(b)); err != nil {
					return err
				}
				b, err = c.AllocContext(t.Context(), 512, on)
				if err = errors.Join(err, c.FreePtr(b.Ptr(), 512)); err != nil {
					return err
				}
			}
		}
		return nil
	}
	for range 2 { // the second stream's first miss empties the magazines of the first
		require.NoError(t, pairs())
	}
	unlock := c.LockEverything()
	defer unlock()
	done := make(chan error, 1)
	go func() { done <- pairs() }()
	select {
	case err := <-done:
		require.NoError(t, err)
	case <-time.After(testkit.Patience):
		t.Error("it waits for a lock")
	}
}

var errEnough = errors.New("enough")

// A wait that is cancelled ends with the cause, and the stream's work goes on.
func TestSyncContext(t *testing.T) {
	c := pooltest.Open(t, cupool.Config{})
	s := pooltest.NewStream(t, c)
	gate := make(chan struct{})
	require.NoError(t, s.Launch(func() { <-gate }))
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errEnough)
	b := pooltest.Alloc(t, c, 512, nil)
	require.NoError(t, c.FreeOn(b, s)) // an event of s is recorded
	err := s.SyncContext(ctx)
	require.ErrorIs(t, err, errEnough)
	var late *cupool.WaitError
	require.ErrorAs(t, err, &late)
	require.Zero(t, late.Age, "of the event, is not known without WaitTimeout")
	close(gate)
	require.NoError(t, s.SyncContext(t.Context()))
	require.NoError(t, s.Close())
	require.ErrorIs(t, s.SyncContext(t.Context()), cupool.ErrClosed)
	require.NoError(t, c.Close())
}

// A request that waits for memory of a busy stream can be cancelled, and later
// requests are served.
func TestAllocContext(t *testing.T) {
	c := pooltest.Open(t, cupool.Config{Limit: 64 * mib})
	s := pooltest.NewStream(t, c)
	b, err := c.AllocContext(t.Context(), 60*mib, nil)
	require.NoError(t, err)
	gate := make(chan struct{})
	require.NoError(t, s.Launch(func() { <-gate }))
	require.NoError(t, c.FreeOn(b, s))
	ctx, cancel := context.WithCancelCause(t.Context())
	failed := make(chan error)
	go func() {
		_, err := c.AllocContext(ctx, 50*mib, nil)
		failed <- err
	}()
	cancel(errEnough)
	require.ErrorIs(t, <-failed, errEnough)
	close(gate)
	b, err = c.AllocContext(t.Context(), 50*mib, nil)
	require.NoError(t, err)
	require.NoError(t, c.Free(b))
	require.NoError(t, c.Check())
	require.NoError(t, c.Close())
}

// A request that is cancelled on its way up the ladder asks for nothing more.
func TestAllocContextEndsTheLadder(t *testing.T) {
	var cancel context.CancelCauseFunc
	c, d := pooltest.New(t, 64*mib, func(cfg *cupool.Config) {
		cfg.BeforeGrow = func(int64) { cancel(errEnough) }
	})
	ctx, end := context.WithCancelCause(t.Context())
	cancel = end
	_, err := c.AllocContext(ctx, 50*mib, nil)
	require.ErrorIs(t, err, errEnough)
	require.Empty(t, d.Mem)
	require.NoError(t, c.Close())
}

// record has a Logger, and returns what it was told since the last call, a line each.
func record() (*slog.Logger, func() []string) {
	var log bytes.Buffer
	untimed := func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}
	return slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug, ReplaceAttr: untimed})), func() []string {
		defer log.Reset()
		return strings.Split(strings.TrimSuffix(log.String(), "\n"), "\n")
	}
}

// Rare events are logged with what they concern, and a pool with its name.
func TestLogRareEvents(t *testing.T) {
	log, told := record()
	c, d := pooltest.New(t, 40*mib, func(cfg *cupool.Config) { cfg.Logger = log })
	x := pooltest.NewScript(t, c, d).Run("a=20M b=20M free:a a=20M busy:1 busy:2 free:b@2")
	require.Equal(t, []string{""}, told(), "what is not rare")

	x.Run("c=20M")
	require.Equal(t, []string{`level=INFO msg="allocated after memory was reclaimed" device=counting stream=0 bytes=20971520 after="wait for one pending block"`}, told())

	p := pooltest.NewPrivate(t, c, cupool.PoolConfig{Name: "tenant"})
	for range 100 {
		x.Run("oom=10M")
		_, err := p.Alloc(5000, nil)
		require.ErrorIs(t, err, cupool.ErrOutOfMemory)
	}
	got := told()
	require.Less(t, len(got), 100, "a storm is left out")
	for i, want := range []string{"device=counting stream=0 bytes=10485760 reserved=41943040", "device=counting pool=tenant stream=0 bytes=5000 reserved=0"} {
		require.Contains(t, got[i], `level=WARN msg="out of memory" `+want+` error="cupool: allocating a segment of `)
	}

	x.Run("free:a trim:0")
	require.Equal(t, []string{`level=DEBUG msg="memory went back to the device" device=counting bytes=20971520`}, told())

	require.NoError(t, c.StartHistory(cupool.History{Events: 10, SampleBytes: 1}))
	c.StopHistory()
	require.Equal(t, []string{
		`level=INFO msg="history started" device=counting events=10 sample_bytes=1`,
		`level=INFO msg="history stopped" device=counting`,
	}, told())
	require.Same(t, log, c.Config().Logger, "the program's own")
}

// Where memory is only given back so that less is kept, work that is not done yet is no matter.
func TestLateWorkOfWhatMayStay(t *testing.T) {
	log, told := record()
	c := pooltest.Open(t, cupool.Config{
		Backing: cupool.BackingSegments, Limit: 128 * mib, GarbageCollectionThreshold: 0.3, WaitTimeout: time.Minute, Logger: log,
	})
	require.NoError(t, c.Free(pooltest.Alloc(t, c, 40*mib, nil)))
	g := pooltest.HoldStream(t, c.DefaultStream())
	told()
	pooltest.Alloc(t, c, 60*mib, nil)
	require.Equal(t, []string{""}, told())
	g.Open()
	var leaks *cupool.LeakError
	require.ErrorAs(t, c.Close(), &leaks)
}

// Work that is late is logged when an allocation gives up waiting for it, whether
// or not it finds memory elsewhere.
func TestLogLateWork(t *testing.T) {
	log, told := record()
	c := pooltest.Open(t, cupool.Config{Backing: cupool.BackingSegments, Limit: 64 * mib, WaitTimeout: time.Millisecond, Logger: log})
	u := pooltest.NewStream(t, c)
	g := pooltest.HoldStream(t, u)
	require.NoError(t, c.FreeOn(pooltest.Alloc(t, c, 40*mib, nil), u))
	_, err := c.Alloc(60*mib, nil)
	require.ErrorIs(t, err, cupool.ErrOutOfMemory)
	g.Open()
	require.NoError(t, pooltest.Patiently(u.Sync))
	late := told()[0]
	require.Contains(t, late, `level=WARN msg="work was late; an allocation looks elsewhere"`)
	require.Contains(t, late, u.Handle().String())
	require.NoError(t, pooltest.Patiently(c.Close))
}
