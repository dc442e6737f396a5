package adaptor_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/adaptor"
	"github.com/cupool/cupool/arena"
	"github.com/cupool/cupool/internal/simdev"
	"github.com/cupool/cupool/internal/testkit"
)

// onOneDevice returns two allocators of the same device that know nothing of
// each other.
func onOneDevice(t *testing.T, limit int64) (first, second *cupool.Pool) {
	d := simdev.New(simdev.Config{Capacity: 1 << 30})
	set := func(cfg *cupool.Config) { cfg.Driver = d }
	return newPool(t, set, func(cfg *cupool.Config) { cfg.Limit = limit }), newPool(t, set)
}

func TestFallback(t *testing.T) {
	first, second := onOneDevice(t, 100*mib)
	f := adaptor.NewFallback(first, adaptor.NewStatistics(second))
	a, b := alloc(t, f, 80*mib), alloc(t, f, 80*mib)
	require.EqualValues(t, 80*mib, first.Stats().LiveBytes)
	require.EqualValues(t, 80*mib, second.Stats().LiveBytes)
	for _, x := range []cupool.Block{a, b} {
		got, err := f.Lookup(x.Ptr() + mib)
		require.NoError(t, err)
		require.Equal(t, x, got)
	}
	_, err := f.Alloc(2<<30, nil)
	require.ErrorIs(t, err, cupool.ErrOutOfMemory)
	require.ErrorContains(t, err, "limit of 100 MiB")
	require.ErrorContains(t, err, "larger than the device", "what both say")
	_, err = f.Alloc(-1, nil)
	require.ErrorIs(t, err, cupool.ErrInvalidSize)

	require.NoError(t, f.Free(b))
	failedFrees(t, f, a, b)
	require.ErrorIs(t, f.Free(alloc(t, newPool(t), 1)), cupool.ErrForeignPointer)
	require.NoError(t, f.FreePtr(a.Ptr(), a.Size()))
	require.Zero(t, first.Stats().LiveBytes+second.Stats().LiveBytes)
	require.Same(t, first.DefaultStream(), f.DefaultStream())
	require.Equal(t, first.Driver(), f.Driver())
}

// A stream that another allocator cannot close yet stays open for the next call.
func TestCloseStreamLate(t *testing.T) {
	d := simdev.New(simdev.Config{Capacity: 1 << 30, ManualEvents: true, IdleEvents: true})
	set := func(cfg *cupool.Config) { cfg.Driver = d }
	first := newPool(t, set, func(cfg *cupool.Config) { cfg.Limit = mib })
	second := newPool(t, set, func(cfg *cupool.Config) { cfg.WaitTimeout = time.Millisecond })
	f := adaptor.NewFallback(first, second)
	s, err := f.NewStream()
	require.NoError(t, err)
	b, err := f.Alloc(5*mib, s)
	require.NoError(t, err)
	require.NoError(t, s.Memset(b.Ptr(), 1, 1))
	require.NoError(t, f.Free(b))
	var late *cupool.WaitError
	require.ErrorAs(t, f.CloseStream(s), &late)
	require.False(t, s.Closed(), "else the device may give its handle to another stream")
	d.CompleteAll()
	require.NoError(t, f.CloseStream(s))
	require.EqualValues(t, 1, second.Stats().Streams)
	require.EqualValues(t, 1, first.Stats().Streams)
}

// The second allocator adopts the first one's streams.
func TestFallbackStreams(t *testing.T) {
	first, second := onOneDevice(t, 1*mib)
	f := adaptor.NewFallback(first, second)
	s, err := f.NewStream()
	require.NoError(t, err)
	u, err := f.NewStream()
	require.NoError(t, err)
	b, err := f.Alloc(5*mib, s)
	require.NoError(t, err)
	require.EqualValues(t, 2, second.Stats().Streams)
	require.NoError(t, f.RecordStream(b, u))
	require.EqualValues(t, 3, second.Stats().Streams)
	require.NoError(t, f.RecordStream(b, f.DefaultStream()))
	require.NoError(t, f.Free(b))
	b, err = f.Alloc(5*mib, s)
	require.NoError(t, err)
	require.NoError(t, f.Free(b))
	require.EqualValues(t, 3, second.Stats().Streams, "the same ones")

	require.NoError(t, f.CloseStream(s))
	require.NoError(t, f.CloseStream(u))
	require.Zero(t, adaptor.Adopted(f))
	require.EqualValues(t, 1, first.Stats().Streams)
	require.EqualValues(t, 1, second.Stats().Streams)
	require.ErrorIs(t, f.CloseStream(s), cupool.ErrClosed)
	_, err = f.Alloc(5*mib, s)
	require.ErrorIs(t, err, cupool.ErrClosed)

	arena, err := arena.New(second, arena.Config{Size: 5 * mib})
	require.NoError(t, err)
	f = adaptor.NewFallback(first, arena)
	s, err = f.NewStream()
	require.NoError(t, err)
	_, err = f.Alloc(2*mib, s)
	require.ErrorIs(t, err, cupool.ErrForeignStream, "an arena adopts none")
	require.ErrorIs(t, err, cupool.ErrOutOfMemory)
	b, err = f.Alloc(2*mib, nil)
	require.NoError(t, err)
	require.ErrorIs(t, f.RecordStream(b, s), cupool.ErrForeignStream)
}

// A pool of the same family shares the streams.
func TestFallbackInAFamily(t *testing.T) {
	c := newPool(t)
	tenant, err := c.NewPool(cupool.PoolConfig{Limit: 10 * mib})
	require.NoError(t, err)
	f := adaptor.NewFallback(tenant, c)
	s, err := f.NewStream()
	require.NoError(t, err)
	b, err := f.Alloc(50*mib, s)
	require.NoError(t, err)
	require.EqualValues(t, 50*mib, c.Stats().LiveBytes)
	require.NoError(t, f.RecordStream(b, nil))
	require.NoError(t, f.Free(b))
	require.EqualValues(t, 2, c.Stats().Streams)
	require.NoError(t, f.CloseStream(s))
}

func TestBySize(t *testing.T) {
	c := newPool(t)
	a, err := bySize(c)
	require.NoError(t, err)
	pools := append([]*cupool.Pool{c}, c.Pools()...)
	for size, want := range map[int64]int{1: 0, 64 << 10: 0, 64<<10 + 1: 1, 1 << 20: 1, 1<<20 + 1: 2, 50 << 20: 2} {
		b := alloc(t, a, size)
		for i, p := range pools {
			require.Equal(t, i == want, p.Stats().LiveBytes > 0, "%d bytes in pool %d", size, i)
		}
		got, err := a.Lookup(b.Ptr())
		require.NoError(t, err)
		require.Equal(t, b, got)
		require.NoError(t, a.RecordStream(b, a.DefaultStream()))
		require.NoError(t, a.FreePtr(b.Ptr(), size))
	}
	require.True(t, alloc(t, a, 0).IsEmpty())
	_, err = a.Alloc(-1, nil)
	require.ErrorIs(t, err, cupool.ErrInvalidSize)

	one, err := adaptor.NewBySize(adaptor.SizePool{Allocator: c})
	require.NoError(t, err)
	require.ErrorIs(t, one.Free(alloc(t, newPool(t), 1)), cupool.ErrForeignPointer)
	behind, err := arena.New(c, arena.Config{Size: mib})
	require.NoError(t, err)
	two, err := adaptor.NewBySize(adaptor.SizePool{Max: 1, Allocator: newPool(t)}, adaptor.SizePool{Allocator: behind})
	require.NoError(t, err)
	s, err := two.NewStream()
	require.NoError(t, err)
	_, err = two.Alloc(2, s)
	require.ErrorIs(t, err, cupool.ErrForeignStream, "an arena adopts none")
	require.NoError(t, two.CloseStream(s))

	for name, pools := range map[string][]adaptor.SizePool{
		"none":         nil,
		"no allocator": {{}},
		"bounded":      {{Max: 5, Allocator: c}},
		"unbounded":    {{Allocator: c}, {Allocator: c}},
		"descending":   {{Max: 5, Allocator: c}, {Max: 5, Allocator: c}, {Allocator: c}},
	} {
		_, err := adaptor.NewBySize(pools...)
		require.ErrorIs(t, err, cupool.ErrInvalidConfig, name)
	}
}

// Pools of a family take each other's blocks, and still each block is freed through
// the adaptor that allocated it.
func TestFreesThroughItsOwn(t *testing.T) {
	for name, free := range map[string]func(cupool.Allocator, cupool.Block) error{
		"Free":    cupool.Allocator.Free,
		"FreePtr": func(a cupool.Allocator, b cupool.Block) error { return a.FreePtr(b.Ptr(), b.Size()) },
	} {
		t.Run(name, func(t *testing.T) {
			p := newPool(t)
			q, err := p.NewPool(cupool.PoolConfig{})
			require.NoError(t, err)
			lim, err := adaptor.NewLimiting(p, mib)
			require.NoError(t, err)
			f := adaptor.NewFallback(lim, q)
			a, b := alloc(t, f, mib), alloc(t, f, mib)
			require.EqualValues(t, mib, q.Stats().LiveBytes)
			require.NoError(t, free(f, b))
			require.Zero(t, q.Stats().LiveBytes)
			require.EqualValues(t, mib, lim.Used())
			failedFrees(t, f, a, b)
			require.EqualValues(t, mib, lim.Used())
			require.NoError(t, free(f, a))
			require.Zero(t, lim.Used())
			require.Zero(t, adaptor.Given(f))

			s, l := adaptor.NewStatistics(p), adaptor.NewTracking(q)
			by, err := adaptor.NewBySize(adaptor.SizePool{Max: 1024, Allocator: s}, adaptor.SizePool{Allocator: l})
			require.NoError(t, err)
			a, b = alloc(t, by, 1), alloc(t, by, mib)
			require.NoError(t, free(by, b))
			require.NoError(t, l.Check())
			require.EqualValues(t, 1, s.Counters().Blocks.Current)
			require.NoError(t, free(by, a))
			require.Zero(t, s.Counters().Blocks.Current)
		})
	}
}

// Blocks that end with a Reset of their arena are not kept for ever.
func TestFallbackToAnArena(t *testing.T) {
	c := newPool(t)
	lim, err := adaptor.NewLimiting(c, 1)
	require.NoError(t, err)
	behind, err := arena.New(c, arena.Config{Size: 5 * mib})
	require.NoError(t, err)
	f := adaptor.NewFallback(lim, behind)
	for range 10 {
		alloc(t, f, mib)
		require.NoError(t, behind.Reset())
	}
	require.Equal(t, 1, adaptor.Given(f))
	b := alloc(t, f, mib)
	require.NoError(t, f.Free(b))
	require.ErrorIs(t, f.Free(b), cupool.ErrDoubleFree)
}

// The allocators behind the first take no stream that the first would refuse, and never the
// handle of a closed one, which may be another stream's by then.
func TestStreamsThatAreNone(t *testing.T) {
	first, second := onOneDevice(t, 100*mib)
	f, err := adaptor.NewBySize(adaptor.SizePool{Max: mib, Allocator: first}, adaptor.SizePool{Allocator: second})
	require.NoError(t, err)
	used, unused := testkit.Must(f.NewStream()), testkit.Must(f.NewStream())
	large := testkit.Must(f.Alloc(2*mib, used))
	require.NoError(t, used.Close())
	require.NoError(t, unused.Close())
	for want, streams := range map[error][]*cupool.Stream{
		cupool.ErrClosed:        {used, unused},
		cupool.ErrForeignStream: {new(cupool.Stream), testkit.Must(newPool(t).NewStream()), testkit.Must(second.NewStream())},
	} {
		for _, s := range streams {
			for _, size := range []int64{mib, 2 * mib} {
				_, err := f.Alloc(size, s)
				require.ErrorIs(t, err, want)
			}
			if want == cupool.ErrForeignStream {
				require.ErrorIs(t, f.RecordStream(large, s), want)
			} else {
				require.NoError(t, f.RecordStream(large, s), "its work is done, as with the first")
			}
		}
	}
	require.NoError(t, f.Free(large))
	require.ErrorIs(t, f.RecordStream(large, unused), cupool.ErrUseAfterFree)
	require.EqualValues(t, 3, second.Stats().Streams, "its default one, its own, and the one that it adopted")
}

// A first allocator that is closed leaves the others their blocks.
func TestFirstIsClosed(t *testing.T) {
	first, second := onOneDevice(t, mib)
	f := adaptor.NewFallback(first, second)
	a, b := alloc(t, f, 5*mib), alloc(t, f, 5*mib)
	other := alloc(t, second, mib)
	require.NoError(t, first.Close())
	require.NoError(t, f.RecordStream(a, nil))
	require.NoError(t, f.Free(a))
	require.NoError(t, f.FreePtr(b.Ptr(), b.Size()))
	got, err := f.Lookup(other.Ptr())
	require.NoError(t, err)
	require.Equal(t, other, got)
	require.NoError(t, f.Free(other))
	require.ErrorIs(t, f.FreePtr(1<<50, -1), cupool.ErrClosed, "it could be of the first")
	require.Zero(t, second.Stats().LiveBytes)
}
