package arena_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/arena"
	"github.com/cupool/cupool/cuda"
	"github.com/cupool/cupool/internal/conformance"
	"github.com/cupool/cupool/internal/hook"
	"github.com/cupool/cupool/internal/simdev"
	"github.com/cupool/cupool/internal/sizeclass"
	"github.com/cupool/cupool/internal/testkit"
	"github.com/cupool/cupool/internal/testkit/gputest"
	"github.com/cupool/cupool/internal/testkit/pooltest"
)

const mib = 1 << 20

// newPool returns an allocator over a simulated device. What is submitted to a
// stream is done when the test says so.
func newPool(t testing.TB, capacity int64) (*cupool.Pool, *simdev.Device) {
	d := simdev.New(simdev.Config{Capacity: capacity, ManualEvents: true})
	c, err := cupool.New(cupool.Config{Driver: d, Backing: cupool.BackingSegments})
	require.NoError(t, err)
	return c, d
}

func newArena(t *testing.T, size int64, change ...func(*arena.Config)) (*arena.Arena, *cupool.Pool, *simdev.Device) {
	c, d := newPool(t, 1<<30)
	cfg := arena.Config{Size: size}
	for _, f := range change {
		f(&cfg)
	}
	a, err := arena.New(c, cfg)
	require.NoError(t, err)
	return a, c, d
}

// total returns the calls that the device has had.
func total(d *simdev.Device) (n int64) {
	for call := range simdev.NumCalls {
		n += d.Calls(call)
	}
	return n
}

func overflowing(cfg *arena.Config) { cfg.Overflow = true }

func alloc(t *testing.T, a cupool.Allocator, size int64) cupool.Block {
	t.Helper()
	return pooltest.Alloc(t, a, size, nil)
}

// TestArenaAsleep: while the allocator sleeps there is no memory, in an arena either.
func TestArenaAsleep(t *testing.T) {
	c := pooltest.Open(t, cupool.Config{Driver: simdev.New(simdev.Config{}), Backing: cupool.BackingVMM})
	p := pooltest.NewPrivate(t, c, cupool.PoolConfig{})
	for name, below := range map[string]cupool.Allocator{"pool": p, "label": p.WithLabel("phase")} {
		a, err := arena.New(below, arena.Config{Size: mib})
		require.NoError(t, err)
		b := alloc(t, a, 1000)
		require.NoError(t, p.Sleep(nil))
		_, err = a.Alloc(1000, nil)
		require.ErrorIs(t, err, cupool.ErrAsleep, name)
		require.NoError(t, a.Free(b))
		require.NoError(t, p.Wake())
		require.NoError(t, a.Free(alloc(t, a, 1000)))
		require.NoError(t, a.Close())
	}
}

// TestArenaReset: Reset of the pool ends the arena's memory, which is not handed out any more.
func TestArenaReset(t *testing.T) {
	c := pooltest.Open(t, cupool.Config{})
	p := pooltest.NewPrivate(t, c, cupool.PoolConfig{})
	require.NoError(t, p.Reset())
	a, err := arena.New(p, arena.Config{Size: mib, Overflow: true})
	require.NoError(t, err)
	require.NoError(t, c.Reset())
	require.NoError(t, a.Free(alloc(t, a, 1000)), "another pool's blocks stay")
	require.NoError(t, p.Reset())
	_, err = a.Alloc(1000, nil)
	require.ErrorIs(t, err, cupool.ErrUseAfterFree)
	require.ErrorContains(t, err, "Reset of the pool")
	require.ErrorIs(t, a.Close(), cupool.ErrDoubleFree)
	require.NoError(t, c.Close())
}

// TestFreeOfDamaged: a block beside the arena that Free finds damage of was freed.
func TestFreeOfDamaged(t *testing.T) {
	c := pooltest.Open(t, cupool.Config{Sanitize: cupool.Sanitizers{Canaries: 64, Wait: true}})
	a, err := arena.New(c, arena.Config{Size: 512, Overflow: true})
	require.NoError(t, err)
	b := alloc(t, a, 1000)
	require.NoError(t, c.DefaultStream().Memset(b.Ptr(), 7, 1001))
	require.ErrorIs(t, a.Free(b), cupool.ErrCorrupted)
	require.Zero(t, a.Stats().Blocks)
	require.Zero(t, a.Stats().Overflow)
	require.NoError(t, a.Close())
}

func TestArena(t *testing.T) {
	a, c, d := newArena(t, 10_000)
	x, y := alloc(t, a, 1000), alloc(t, a, 1)
	require.Equal(t, x.Ptr()+1024, y.Ptr())
	require.EqualValues(t, 1000, x.Size())
	require.True(t, alloc(t, a, 0).IsEmpty())
	require.Equal(t, arena.Stats{Size: 10_000, Used: 1536, Peak: 1536, Blocks: 2}, a.Stats())
	aligned, err := a.AllocAligned(100, 4096, nil)
	require.NoError(t, err)
	require.Zero(t, uint64(aligned.Ptr())%4096)
	rest := alloc(t, a, 10_000-a.Stats().Used)
	require.EqualValues(t, 10_000, a.Stats().Used, "to the last byte")

	_, err = a.Alloc(1, nil)
	var oom *cupool.OOMError
	require.ErrorAs(t, err, &oom)
	require.EqualValues(t, 10_000, oom.Limit)
	require.ErrorIs(t, err, cupool.ErrOutOfMemory)
	require.Contains(t, oom.Hint, "Reset the arena")
	require.Equal(t, []int64{-1, -1}, []int64{oom.DeviceFree, oom.DeviceTotal}, "nobody asked the device")

	before, driver := c.Stats(), total(d)
	require.NoError(t, a.Free(y))
	require.EqualValues(t, 3, a.Stats().Blocks)
	require.NoError(t, a.Reset())
	require.Equal(t, x.Ptr(), alloc(t, a, 10_000).Ptr())
	require.Equal(t, before, c.Stats(), "the allocator was not asked")
	require.Equal(t, driver, total(d), "nor the device")
	require.ErrorIs(t, a.Free(rest), cupool.ErrStaleBlock)
	require.Equal(t, arena.Stats{Size: 10_000, Used: 10_000, Peak: 10_000, Blocks: 1, Resets: 1}, a.Stats())

	require.Same(t, c.DefaultStream(), a.Stream())
	require.Same(t, c.DefaultStream(), a.DefaultStream())
	require.Equal(t, c.Driver(), a.Driver())
	require.NoError(t, a.Close())
	require.Zero(t, c.Stats().LiveBytes)
	require.Equal(t, arena.Stats{Size: 10_000, Peak: 10_000, Resets: 1}, a.Stats())
	for _, err := range []error{
		a.Close(), a.Reset(), a.Release(a.Mark()), a.Free(rest), a.FreePtr(rest.Ptr(), -1), a.RecordStream(rest, nil),
		testkit.Second(a.Lookup(rest.Ptr())), testkit.Second(a.Alloc(1, nil)), testkit.Second(a.Alloc(0, nil)), testkit.Second(a.NewStream()),
	} {
		require.ErrorIs(t, err, cupool.ErrClosed)
	}
}

func TestConfigErrors(t *testing.T) {
	c, _ := newPool(t, 1<<20)
	_, err := arena.New(c, arena.Config{})
	require.ErrorIs(t, err, cupool.ErrInvalidConfig)
	_, err = arena.New(c, arena.Config{Size: 2 << 20})
	require.ErrorIs(t, err, cupool.ErrOutOfMemory)
	other, _ := newPool(t, 1<<20)
	_, err = arena.New(c, arena.Config{Size: 1, Stream: other.DefaultStream()})
	require.ErrorIs(t, err, cupool.ErrForeignStream)
}

// Mistakes that the battery cannot make: with blocks of the allocator below,
// with alignments, and after a Reset. They change nothing.
func TestMistakes(t *testing.T) {
	for name, change := range map[string]func(*arena.Config){"in the arena": func(*arena.Config) {}, "beside it": func(cfg *arena.Config) { cfg.Size, cfg.Overflow = 1, true }} {
		t.Run(name, func(t *testing.T) {
			a, c, _ := newArena(t, 1<<20, change)
			plain, b := alloc(t, c, 100), alloc(t, a, 1000)
			before := a.Stats()
			other, _ := newPool(t, 1<<20)
			for _, tc := range []struct {
				err  error
				want error
			}{
				{a.Free(plain), cupool.ErrForeignPointer},
				{c.Free(b), cupool.ErrForeignPointer},
				{a.FreePtr(plain.Ptr(), -1), cupool.ErrForeignPointer},
				{a.RecordStream(plain, nil), cupool.ErrForeignPointer},
				{testkit.Second(a.Lookup(plain.Ptr())), cupool.ErrForeignPointer},
				{testkit.Second(a.AllocAligned(1, 1000, nil)), cupool.ErrInvalidSize},
				{testkit.Second(a.AllocAligned(1, 0, nil)), cupool.ErrInvalidSize},
				{testkit.Second(a.AllocAligned(1, 1<<62, nil)), cupool.ErrInvalidSize},
				{testkit.Second(a.AllocAligned(sizeclass.MaxRequest-512+1, 512, nil)), cupool.ErrInvalidSize},
				{testkit.Second(a.Alloc(1, other.DefaultStream())), cupool.ErrForeignStream},
			} {
				require.ErrorIs(t, tc.err, tc.want)
				var be *cupool.BlockError
				require.ErrorAs(t, tc.err, &be)
				if be.Op == "allocation" {
					require.Zero(t, be.Ptr, "there is no block")
				}
			}
			require.Equal(t, before, a.Stats())
			got, err := a.Lookup(b.Ptr() + 999)
			require.NoError(t, err)
			require.Equal(t, b, got)
			require.NoError(t, a.Reset())
			require.Error(t, testkit.Second(a.Lookup(b.Ptr())))
			require.ErrorIs(t, a.RecordStream(b, nil), cupool.ErrUseAfterFree)
			require.Error(t, a.FreePtr(b.Ptr(), -1))
			require.NoError(t, a.Close())
		})
	}
}

func TestOverflow(t *testing.T) {
	a, c, _ := newArena(t, 2048, overflowing)
	alloc(t, a, 1024)
	big := alloc(t, a, 3*mib)
	fits := alloc(t, a, 512)
	require.EqualValues(t, 2048-512, a.Stats().Used)
	require.Equal(t, arena.Stats{Size: 2048, Used: 1536, Overflow: 3 * mib, Peak: 3*mib + 1536, Blocks: 3}, a.Stats())
	aligned, err := a.AllocAligned(5000, 1<<16, nil)
	require.NoError(t, err)
	require.Zero(t, uint64(aligned.Ptr())%(1<<16))
	same, err := a.Lookup(aligned.Ptr() + 4999)
	require.NoError(t, err)
	require.Equal(t, aligned, same)
	require.NoError(t, a.Free(big), "its memory goes back at once")
	require.EqualValues(t, 2048+5120+1<<16-512, c.Stats().LiveBytes)
	require.NoError(t, a.Reset())
	require.EqualValues(t, 2048, c.Stats().LiveBytes)
	require.Zero(t, a.Stats().Overflow)
	require.ErrorIs(t, a.Free(aligned), cupool.ErrDoubleFree)
	require.ErrorIs(t, a.Free(fits), cupool.ErrDoubleFree)
	_, err = a.Alloc(2<<30, nil)
	require.ErrorIs(t, err, cupool.ErrOutOfMemory, "the allocator's own answer")
	require.NoError(t, a.Close())
	require.Zero(t, c.Stats().LiveBytes)
}

// An arena with the Size that Peak was serves the same calls from its own memory.
func TestPeak(t *testing.T) {
	type phase struct {
		peak int64
		do   func(t *testing.T, a *arena.Arena)
	}
	for name, phase := range map[string]phase{
		"a block that overflowed is freed": {2 * mib, func(t *testing.T, a *arena.Arena) {
			require.NoError(t, a.Free(alloc(t, a, mib)))
			alloc(t, a, mib)
			require.NoError(t, a.Reset())
		}},
		"and after a mark": {4 * mib, func(t *testing.T, a *arena.Arena) {
			alloc(t, a, mib)
			m := a.Mark()
			require.NoError(t, a.Free(alloc(t, a, 3*mib)))
			require.NoError(t, a.Release(m))
			alloc(t, a, 2*mib)
		}},
		"behind the last byte": {1536, func(t *testing.T, a *arena.Arena) {
			alloc(t, a, 600)
			alloc(t, a, 512)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			a, c, _ := newArena(t, 600, overflowing)
			phase.do(t, a)
			require.Equal(t, phase.peak, a.Stats().Peak)
			b, err := arena.New(c, arena.Config{Size: phase.peak})
			require.NoError(t, err)
			phase.do(t, b)
			require.NoError(t, errors.Join(a.Close(), b.Close(), c.Close()))
		})
	}
}

// What an OOMError says would help, helps wherever the larger arena begins.
func TestHelpsAnywhere(t *testing.T) {
	c, _ := newPool(t, 8<<30)
	for range 16 {
		_, err := c.Alloc(5*mib, nil) // so that each arena begins elsewhere
		require.NoError(t, err)
		a, err := arena.New(c, arena.Config{Size: 2 * mib})
		require.NoError(t, err)
		var oom *cupool.OOMError
		if _, err = a.AllocAligned(4096, 64*mib, nil); err == nil {
			continue
		}
		require.ErrorAs(t, err, &oom)
		var size int64
		_, err = fmt.Sscanf(oom.Settings[1], "Size: %d<<20", &size)
		require.NoError(t, err)
		_, err = c.Alloc(min(size, 50)*mib, nil) // up to behind the place that was too far for the first
		require.NoError(t, err)
		larger, err := arena.New(c, arena.Config{Size: size * mib})
		require.NoError(t, err)
		_, err = larger.AllocAligned(4096, 64*mib, nil)
		require.NoError(t, err, size)
		require.NoError(t, larger.Close())
	}
	require.NoError(t, c.Reset())
	require.NoError(t, c.Close())
}

// What an OOMError says would help, helps.
func TestHelpsWhenAligned(t *testing.T) {
	a, c, _ := newArena(t, 4096)
	alloc(t, a, 1)
	_, err := a.AllocAligned(mib, 2*mib, nil)
	var oom *cupool.OOMError
	require.ErrorAs(t, err, &oom)
	require.Equal(t, []string{"Overflow: true", "Size: 3<<20"}, oom.Settings)
	larger, err := arena.New(c, arena.Config{Size: 3 * mib})
	require.NoError(t, err)
	alloc(t, larger, 1)
	_, err = larger.AllocAligned(mib, 2*mib, nil)
	require.NoError(t, err)
	require.NoError(t, errors.Join(a.Close(), larger.Close(), c.Close()))
}

// Over a pool of finer blocks than the arena's alignment, what overflows is aligned all the
// same, is the arena's alone, and goes back.
func TestFineOverflow(t *testing.T) {
	c, err := cupool.New(cupool.Config{Driver: simdev.New(simdev.Config{Capacity: 1 << 30}), MinBlock: 256})
	require.NoError(t, err)
	a, err := arena.New(c, arena.Config{Size: 512, Overflow: true})
	require.NoError(t, err)
	alloc(t, a, 512)
	var all []cupool.Block
	for i := range 60 {
		b := alloc(t, []cupool.Allocator{a, c, c}[i%3], int64(1+i*97%600))
		require.True(t, i%3 > 0 || b.Ptr()%512 == 0)
		for _, o := range all {
			require.False(t, b.Ptr() < o.Ptr()+cupool.Ptr(o.Size()) && o.Ptr() < b.Ptr()+cupool.Ptr(b.Size()), "%v overlaps %v", b, o)
		}
		all = append(all, b)
	}
	for i, b := range all {
		if i%3 > 0 {
			require.NoError(t, c.Free(b))
		}
	}
	require.NoError(t, a.Close())
	require.Zero(t, c.Stats().LiveBytes)
}

// A block that the allocator below does not take back stays the arena's.
func TestFreeFails(t *testing.T) {
	c, _ := newPool(t, 1<<30)
	below := &refusing{Pool: c}
	a, err := arena.New(below, arena.Config{Size: 512, Overflow: true})
	require.NoError(t, err)
	b := alloc(t, a, 1000)
	before := a.Stats()
	below.refuse = true
	require.ErrorIs(t, a.Free(b), errRefused)
	require.Equal(t, before, a.Stats())
	below.refuse = false
	require.NoError(t, a.Free(b))
	require.Zero(t, a.Stats().Overflow)

	for name, goBack := range map[string]func(arena.Mark) error{"reset": func(arena.Mark) error { return a.Reset() }, "release": a.Release} {
		outer := a.Mark()
		b = alloc(t, a, 1000)
		inner := a.Mark()
		below.refuse = true
		require.ErrorIs(t, goBack(outer), errRefused, name)
		below.refuse = false
		require.Zero(t, a.Stats().Blocks+a.Stats().Overflow)
		for _, m := range []arena.Mark{inner, outer} {
			require.ErrorIs(t, a.Release(m), cupool.ErrUseAfterFree, "the marks went, too")
		}
		require.NoError(t, c.FreePtr(b.Ptr(), -1), "the allocator has it yet")
	}
	require.NoError(t, a.Close())
	require.Zero(t, c.Stats().LiveBytes)
}

// The handle of a block that overflowed is stale once the address is another's, and is freed
// twice else.
func TestOverflowAgain(t *testing.T) {
	a, _, _ := newArena(t, 512, overflowing)
	first := alloc(t, a, 3*mib)
	require.NoError(t, a.Free(first))
	again := alloc(t, a, 3*mib)
	require.Equal(t, first.Ptr(), again.Ptr())
	require.ErrorIs(t, a.Free(first), cupool.ErrStaleBlock)
	require.NoError(t, a.Free(again))
	require.ErrorIs(t, a.Free(first), cupool.ErrDoubleFree)
	require.NotErrorIs(t, a.Free(first), cupool.ErrStaleBlock)
	require.NoError(t, a.Close())
}

var errRefused = errors.New("refused")

// refusing is a pool that takes no block back while it refuses.
type refusing struct {
	*cupool.Pool
	refuse bool
}

func (r *refusing) Free(b cupool.Block) error {
	if r.refuse {
		return errRefused
	}
	return r.Pool.Free(b)
}

func TestMarks(t *testing.T) {
	a, c, _ := newArena(t, 1<<20, overflowing)
	keep := alloc(t, a, 1000)
	outer := a.Mark()
	first := alloc(t, a, 2000)
	inner := a.Mark()
	second := alloc(t, a, 3000)
	alloc(t, a, 2<<20)
	require.NoError(t, a.Release(inner))
	require.EqualValues(t, 1<<20, c.Stats().LiveBytes, "what overflowed since is gone")
	require.ErrorIs(t, a.Free(second), cupool.ErrStaleBlock)
	require.Equal(t, second.Ptr(), alloc(t, a, 1).Ptr())
	require.ErrorIs(t, a.Free(second), cupool.ErrStaleBlock, "the place is another block's")
	require.ErrorIs(t, a.Release(inner), cupool.ErrUseAfterFree)

	inner = a.Mark()
	require.NoError(t, a.Release(outer))
	require.ErrorIs(t, a.Release(inner), cupool.ErrUseAfterFree, "it went with the outer one")
	require.ErrorIs(t, a.Release(outer), cupool.ErrUseAfterFree)
	again := a.Mark() // in the place of outer
	require.ErrorIs(t, a.Release(outer), cupool.ErrUseAfterFree)
	require.NoError(t, a.Release(again))
	require.Equal(t, first.Ptr(), alloc(t, a, 1).Ptr())
	require.NoError(t, a.Free(keep), "it came before the marks")

	early := a.Mark()
	require.NoError(t, a.Reset())
	require.ErrorIs(t, a.Release(early), cupool.ErrUseAfterFree)
	other, _, _ := newArena(t, 1<<20)
	require.ErrorIs(t, a.Release(other.Mark()), cupool.ErrForeignPointer)
	require.ErrorIs(t, a.Release(arena.Mark{}), cupool.ErrForeignPointer)
}

// Reset and Release order the arena's stream after the others that used its
// blocks, and other streams after the arena's, with no wait on the host.
func TestStreams(t *testing.T) {
	a, c, d := newArena(t, 1<<20)
	var one, two *cupool.Stream
	for _, s := range []**cupool.Stream{&one, &two} {
		var err error
		*s, err = c.NewStream()
		require.NoError(t, err)
	}
	waits := func() int64 { return d.Calls(simdev.StreamWaitEvent) }
	b, err := a.Alloc(100, one)
	require.NoError(t, err)
	require.EqualValues(t, 1, waits(), "stream 1 waits for what used the memory before")
	_, err = a.Alloc(100, one)
	require.NoError(t, err)
	require.NoError(t, a.RecordStream(b, two))
	require.NoError(t, a.RecordStream(b, two))
	require.NoError(t, a.RecordStream(b, nil))
	require.EqualValues(t, 1, waits())
	require.NoError(t, two.Launch(func() {}))
	require.NoError(t, a.Reset())
	require.EqualValues(t, 3, waits(), "the arena's stream waits for 1 and 2")
	require.NoError(t, a.Reset())
	require.EqualValues(t, 3, waits(), "once")
	_, err = a.Alloc(100, one)
	require.NoError(t, err)
	require.EqualValues(t, 4, waits(), "and 1 for that")

	mark := a.Mark()
	require.NoError(t, a.Release(mark))
	require.EqualValues(t, 5, waits())
	require.NoError(t, a.Reset())
	require.EqualValues(t, 6, waits(), "the block before the mark may have been used since")

	require.Zero(t, d.Calls(simdev.SyncStream)+d.Calls(simdev.SyncEvent))
	_, err = a.Alloc(100, one)
	require.NoError(t, err)
	require.NoError(t, one.Close())
	require.NoError(t, a.Reset(), "a closed stream has nothing left to do")
	_, err = a.Alloc(100, one)
	require.ErrorIs(t, err, cupool.ErrClosed)

	b, err = a.Alloc(100, two)
	require.NoError(t, err)
	d.FailAlways(simdev.StreamWaitEvent, cupool.ErrNotSupported)
	before := a.Stats()
	outer, inner := a.Mark(), a.Mark()
	require.ErrorIs(t, a.Reset(), cupool.ErrNotSupported)
	require.ErrorIs(t, a.Release(outer), cupool.ErrNotSupported)
	require.Equal(t, before, a.Stats(), "nothing changed")
	d.FailAlways(simdev.StreamWaitEvent, nil)
	require.NoError(t, a.Release(inner))
	require.NoError(t, a.Release(outer))
	require.NoError(t, two.Launch(func() {}))
	require.NoError(t, a.Free(b))
	require.NoError(t, a.Close())
	require.EqualValues(t, 1<<20, c.Stats().PendingBytes, "stream 2 is still at work")
	require.NoError(t, two.Sync())
	require.Zero(t, c.Stats().PendingBytes)
	require.NoError(t, c.Check())
}

// A stream that is closed while a Reset puts streams in order has nothing left to do.
func TestClosedMeanwhile(t *testing.T) {
	var closes *cupool.Stream
	c, err := cupool.New(cupool.Config{Driver: &hook.Driver{Driver: simdev.New(simdev.Config{}), Around: func(call *hook.Call, do func() error) error {
		if s := closes; s != nil && call.Name == "StreamWaitEvent" {
			closes = nil
			require.NoError(t, s.Close())
		}
		return do()
	}}})
	require.NoError(t, err)
	a, err := arena.New(c, arena.Config{Size: mib})
	require.NoError(t, err)
	var last *cupool.Stream
	for range 2 {
		last, err = c.NewStream()
		require.NoError(t, err)
		_, err = a.Alloc(100, last)
		require.NoError(t, err)
	}
	closes = last
	require.NoError(t, a.Reset())
	require.True(t, last.Closed())
	require.NoError(t, errors.Join(a.Close(), c.Close()))
}

// No stream becomes part of a capture, and no capture ends, as the arena's is put in order.
func TestCapture(t *testing.T) {
	gputest.Need(t)
	d, err := cuda.Open(0)
	require.NoError(t, err)
	c, err := cupool.New(cupool.Config{Driver: d})
	require.NoError(t, err)
	a, err := arena.New(c, arena.Config{Size: mib})
	require.NoError(t, err)
	s, err := c.NewStream()
	require.NoError(t, err)
	e, err := cupool.NewEngine(c, cupool.WithStream(s))
	require.NoError(t, err)
	capture := func(f func()) {
		g, err := e.Capture(func() error { f(); return nil })
		require.NoError(t, err)
		require.NoError(t, g.Close())
	}
	capture(func() {
		_, err := a.Alloc(100, s)
		require.ErrorIs(t, err, cupool.ErrNotSupported)
	})
	b, err := a.Alloc(100, s)
	require.NoError(t, err)
	capture(func() {
		_, err := a.Alloc(100, s)
		require.NoError(t, err, "it is in order already")
		require.ErrorIs(t, a.Reset(), cupool.ErrNotSupported)
		require.NoError(t, a.Free(b), "nothing has changed")
	})
	require.NoError(t, errors.Join(a.Reset(), a.Close(), c.Close(), d.Close()))
}

// The memory of a Reset arena is not written before its last reader is done.
func TestOrder(t *testing.T) {
	c, err := cupool.New(cupool.Config{})
	require.NoError(t, err)
	defer c.Close()
	side, err := c.NewStream()
	require.NoError(t, err)
	a, err := arena.New(c, arena.Config{Size: 1 << 20})
	require.NoError(t, err)
	out, err := cupool.NewBuffer[byte](c, 1<<20, side)
	require.NoError(t, err)
	release := make(chan struct{})
	b, err := a.Alloc(1<<20, nil)
	require.NoError(t, err)
	require.NoError(t, c.DefaultStream().Memset(b.Ptr(), 1, b.Size()))
	require.NoError(t, side.WaitStream(c.DefaultStream()))
	require.NoError(t, a.RecordStream(b, side))
	require.NoError(t, side.Launch(func() { <-release }))
	require.NoError(t, side.Copy(out.Ptr(), b.Ptr(), b.Size()))
	require.NoError(t, a.Reset()) // returns while side is stuck
	b, err = a.Alloc(1<<20, nil)
	require.NoError(t, err)
	require.NoError(t, c.DefaultStream().Memset(b.Ptr(), 2, b.Size()))
	close(release)
	got, err := out.ToHost()
	require.NoError(t, err)
	require.EqualValues(t, 1, got[0])
	require.EqualValues(t, 1, got[1<<20-1])
	require.NoError(t, out.Free())
	require.NoError(t, a.Close())
}

// Random programs against a list of what is live.
func TestRandom(t *testing.T) {
	seed := rand.Uint64()
	t.Log("seed", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	a, c, _ := newArena(t, 1<<16, overflowing)
	type level struct {
		mark arena.Mark
		n    int
		used int64
	}
	var all []cupool.Block // in the order of allocation, freed ones empty
	var gone []cupool.Block
	var marks []level
	live := func(i int) bool { return !all[i].IsEmpty() }
	for range 20_000 {
		switch n := r.IntN(100); {
		case n < 60:
			b, err := a.AllocAligned(1+r.Int64N(1<<(1+r.IntN(15))), 1<<r.IntN(13), nil)
			require.NoError(t, err)
			for i, o := range all {
				require.False(t, live(i) && b.Ptr() < o.Ptr()+cupool.Ptr(o.Size()) && o.Ptr() < b.Ptr()+cupool.Ptr(b.Size()), "%v overlaps %v", b, o)
			}
			all = append(all, b)
		case n < 75 && len(all) > 0:
			i := r.IntN(len(all))
			require.NoError(t, a.Free(all[i]))
			all[i] = cupool.Block{}
		case n < 85 && len(all) > 0:
			if i := r.IntN(len(all)); live(i) {
				got, err := a.Lookup(all[i].Ptr() + cupool.Ptr(r.Int64N(all[i].Size())))
				require.NoError(t, err)
				require.Equal(t, all[i], got)
			}
		case n < 92:
			marks = append(marks, level{a.Mark(), len(all), a.Stats().Used})
		case n < 98 && len(marks) > 0:
			i := r.IntN(len(marks))
			require.NoError(t, a.Release(marks[i].mark))
			require.Equal(t, marks[i].used, a.Stats().Used)
			gone = append(gone, all[marks[i].n:]...)
			all, marks = all[:marks[i].n], marks[:i]
		case n == 99:
			require.NoError(t, a.Reset())
			require.Zero(t, a.Stats().Used+a.Stats().Overflow)
			gone, all, marks = append(gone, all...), nil, nil
		}
		if len(gone) > 0 { // also when others have its place
			b := gone[r.IntN(len(gone))]
			require.True(t, b.IsEmpty() || a.Free(b) != nil)
		}
		count := int64(0)
		for i := range all {
			if live(i) {
				count++
			}
		}
		require.Equal(t, count, a.Stats().Blocks)
	}
	require.NoError(t, a.Close())
	require.Zero(t, c.Stats().LiveBytes)
	require.NoError(t, c.Check())
}

func TestInGoroutines(t *testing.T) {
	a, c, _ := newArena(t, 1<<16, overflowing)
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for i := range 2000 {
				b, err := a.Alloc(int64(100*(g+1)), nil)
				if err != nil {
					t.Error(err)
				}
				_, _ = a.Lookup(b.Ptr())
				if i%2 == 0 {
					_ = a.Free(b) // or it went with a Reset
				}
				if g == 0 && i%100 == 0 {
					if err := a.Reset(); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	wg.Wait()
	require.NoError(t, a.Close())
	require.Zero(t, c.Stats().LiveBytes)
}

// A phase without other streams costs no Go memory and no call to the device.
func TestSteadyState(t *testing.T) {
	a, _, d := newArena(t, 1<<20)
	phase := func() {
		m := a.Mark()
		for range 100 {
			_, _ = a.Alloc(1000, nil)
		}
		_ = a.Release(m)
		_ = a.Reset()
	}
	phase()
	before := total(d)
	require.Zero(t, testing.AllocsPerRun(100, phase))
	require.Equal(t, before, total(d))
}

// The battery for any Allocator, in the arena and, where blocks are not small, beside it.
func TestConformance(t *testing.T) {
	for name, size := range map[string]int64{"large": 1 << 30, "small": 4096} {
		t.Run(name, func(t *testing.T) {
			conformance.RunAllocator(t, func(t *testing.T) cupool.Allocator {
				d, err := cupool.OpenHost(cupool.HostConfig{})
				require.NoError(t, err)
				c, err := cupool.New(cupool.Config{Driver: d})
				require.NoError(t, err)
				a, err := arena.New(c, arena.Config{Size: size, Overflow: true})
				require.NoError(t, err)
				t.Cleanup(func() {
					require.NoError(t, a.Close())
					require.NoError(t, c.Close())
					require.NoError(t, d.Close())
				})
				return a
			})
		})
	}
}

func BenchmarkArena(b *testing.B) {
	c, _ := newPool(b, 1<<30)
	a, err := arena.New(c, arena.Config{Size: 1 << 20})
	require.NoError(b, err)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if _, err := a.Alloc(1000, nil); err != nil {
			b.Fatal(err)
		}
		if i%1000 == 999 {
			_ = a.Reset()
		}
	}
}

// TestOverflowWaits: an allocation that overflows may wait for work that frees a block of the
// arena, and the arena may be closed meanwhile.
func TestOverflowWaits(t *testing.T) {
	for name, meanwhile := range map[string]func(a *arena.Arena, b cupool.Block) error{
		"free":  func(a *arena.Arena, b cupool.Block) error { return a.Free(b) },
		"close": func(a *arena.Arena, _ cupool.Block) error { return a.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			host, err := cupool.OpenHost(cupool.HostConfig{Capacity: 64 * mib})
			require.NoError(t, err)
			var a *arena.Arena
			waits := make(chan struct{})
			refused := sync.OnceFunc(func() { close(waits) })
			c, err := cupool.New(cupool.Config{Driver: &hook.Driver{Driver: host, Around: func(call *hook.Call, do func() error) error {
				err := do()
				if call.Name == "MemAlloc" && err != nil {
					refused()
				}
				return err
			}}, Backing: cupool.BackingSegments})
			require.NoError(t, err)
			a, err = arena.New(c, arena.Config{Size: mib, Overflow: true})
			require.NoError(t, err)
			b := alloc(t, a, 4096)
			other, err := c.NewStream()
			require.NoError(t, err)
			last := alloc(t, c, 40*mib)
			var freed error
			require.NoError(t, other.Launch(func() { <-waits; freed = meanwhile(a, b) }))
			require.NoError(t, c.FreeOn(last, other))
			testkit.Finishes(t, "Alloc", func() {
				_, err := a.Alloc(40*mib, nil)
				if name == "close" {
					require.ErrorIs(t, err, cupool.ErrClosed)
				} else {
					require.NoError(t, err)
					require.NoError(t, a.Close())
				}
			})
			require.NoError(t, freed)
			require.NoError(t, c.Close())
			require.NoError(t, host.Close())
		})
	}
}
