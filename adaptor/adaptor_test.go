package adaptor_test

import (
	"bytes"
	"cmp"
	"errors"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/adaptor"
	"github.com/cupool/cupool/internal/simdev"
	"github.com/cupool/cupool/internal/testkit/pooltest"
	"github.com/cupool/cupool/internal/trace"
)

const mib = 1 << 20

func newPool(t *testing.T, change ...func(*cupool.Config)) *cupool.Pool {
	cfg := cupool.Config{Driver: simdev.New(simdev.Config{Capacity: 1 << 30})}
	for _, f := range change {
		f(&cfg)
	}
	c, err := cupool.New(cfg)
	require.NoError(t, err)
	return c
}

func alloc(t *testing.T, a cupool.Allocator, size int64) cupool.Block {
	t.Helper()
	return pooltest.Alloc(t, a, size, nil)
}

// failedFrees are frees that must not count.
func failedFrees(t *testing.T, a cupool.Allocator, live, freed cupool.Block) {
	t.Helper()
	require.ErrorIs(t, a.Free(freed), cupool.ErrDoubleFree)
	require.ErrorIs(t, a.FreePtr(live.Ptr()+1, -1), cupool.ErrInteriorPointer)
	require.ErrorIs(t, a.FreePtr(live.Ptr(), live.Size()+1), cupool.ErrSizeMismatch)
	require.ErrorIs(t, a.FreePtr(live.Ptr(), 0), cupool.ErrSizeMismatch)
	require.ErrorIs(t, a.FreePtr(1<<50, -1), cupool.ErrForeignPointer)
	require.NoError(t, a.Free(cupool.Block{}))
	require.NoError(t, a.FreePtr(0, -1))
}

func TestFind(t *testing.T) {
	c := newPool(t)
	s := adaptor.NewStatistics(c)
	a := adaptor.NewTracking(adaptor.NewFallback(s, c))
	got, ok := adaptor.Find[*cupool.Pool](a)
	require.True(t, ok)
	require.Same(t, c, got)
	stats, ok := adaptor.Find[*adaptor.Statistics](a)
	require.True(t, ok)
	require.Same(t, s, stats)
	_, ok = adaptor.Find[*adaptor.Recording](a)
	require.False(t, ok)
	got, ok = adaptor.Find[*cupool.Pool](adaptor.NewTracking(c.WithLabel("loader")))
	require.True(t, ok)
	require.Same(t, c, got)
	_, ok = adaptor.Find[*cupool.Pool]((*cupool.Pool)(nil).WithLabel("loader"))
	require.False(t, ok)
}

func TestLimiting(t *testing.T) {
	c := newPool(t)
	_, err := adaptor.NewLimiting(c, 1)
	require.NoError(t, err)
	l, err := adaptor.NewLimiting(c, 5*mib)
	require.NoError(t, err)
	b := alloc(t, l, 3*mib)
	alloc(t, l, 0)
	before := c.Stats()
	_, err = l.Alloc(2*mib+1, nil)
	var oom *cupool.OOMError
	require.ErrorAs(t, err, &oom)
	require.EqualValues(t, 5*mib, oom.Limit)
	require.EqualValues(t, 3*mib, oom.Live)
	require.EqualValues(t, -1, oom.DeviceFree)
	require.EqualValues(t, -1, oom.DeviceTotal)
	require.Equal(t, l.DefaultStream().Handle(), oom.Stream)
	s, err := l.NewStream()
	require.NoError(t, err)
	_, err = l.Alloc(3*mib, s)
	require.ErrorAs(t, err, &oom)
	require.Equal(t, s.Handle(), oom.Stream)
	before.Streams++
	require.Equal(t, before, c.Stats(), "the allocator was not asked")
	x := alloc(t, l, 2*mib)
	require.EqualValues(t, 5*mib, l.Used())
	require.EqualValues(t, 5*mib, l.Limit())
	require.NoError(t, l.Free(x))
	failedFrees(t, l, b, x)
	require.EqualValues(t, 3*mib, l.Used())
	require.NoError(t, l.FreePtr(b.Ptr(), b.Size()))
	require.Zero(t, l.Used())
	x = alloc(t, l, 1)
	require.EqualValues(t, 1, l.Used())
	require.NoError(t, l.Free(x))
	_, err = l.Alloc(-1, nil)
	require.ErrorIs(t, err, cupool.ErrInvalidSize)

	big, err := adaptor.NewLimiting(c, 1<<40)
	require.NoError(t, err)
	_, err = big.Alloc(2<<30, nil)
	require.ErrorIs(t, err, cupool.ErrOutOfMemory)
	require.Zero(t, big.Used(), "what failed does not count")
	_, err = adaptor.NewLimiting(c, 0)
	require.ErrorIs(t, err, cupool.ErrInvalidConfig)
}

// TestFreeOfDamaged: a block that Free finds damage of was freed, for every adaptor.
func TestFreeOfDamaged(t *testing.T) {
	c := pooltest.Open(t, cupool.Config{Sanitize: cupool.Sanitizers{Canaries: 64, Wait: true}})
	limiting, err := adaptor.NewLimiting(c, mib)
	require.NoError(t, err)
	statistics := adaptor.NewStatistics(limiting)
	tracking := adaptor.NewTracking(statistics)
	recording := adaptor.NewRecording(tracking, io.Discard)
	for name, free := range map[string]func(b cupool.Block) error{
		"Free":    recording.Free,
		"FreePtr": func(b cupool.Block) error { return recording.FreePtr(b.Ptr(), b.Size()) },
	} {
		b := alloc(t, recording, 1000)
		require.NoError(t, c.DefaultStream().Memset(b.Ptr(), 7, 1001))
		require.ErrorIs(t, free(b), cupool.ErrCorrupted, name)
		require.Zero(t, limiting.Used(), name)
		require.Zero(t, statistics.Counters().Blocks.Current, name)
		require.NoError(t, tracking.Check(), name)
		require.Zero(t, adaptor.Kept(recording), name)
	}
}

// Goroutines never have more together than the limit.
func TestLimitingInGoroutines(t *testing.T) {
	c := newPool(t)
	l, err := adaptor.NewLimiting(c, 10_000)
	require.NoError(t, err)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 2000 {
				b, err := l.Alloc(3000, nil)
				if used := l.Used(); used > 10_000 {
					t.Errorf("%d bytes used", used)
				}
				if err == nil {
					err = l.Free(b)
				}
				if err != nil && !errors.Is(err, cupool.ErrOutOfMemory) {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	require.Zero(t, l.Used())
}

func TestStatistics(t *testing.T) {
	s := adaptor.NewStatistics(newPool(t))
	stat := func(cur, peak, allocated, freed int64) cupool.Stat {
		return cupool.Stat{Current: cur, Peak: peak, Allocated: allocated, Freed: freed}
	}
	a := alloc(t, s, 1000)
	s.Push()
	b := alloc(t, s, 5000)
	require.Equal(t, adaptor.Counters{Blocks: stat(1, 1, 1, 0), Bytes: stat(5000, 5000, 5000, 0)}, s.Counters())
	s.Push()
	require.NoError(t, s.FreePtr(a.Ptr(), -1))
	require.NoError(t, s.Free(alloc(t, s, 300)))
	failedFrees(t, s, b, a)
	alloc(t, s, 0)
	require.Equal(t, adaptor.Counters{Blocks: stat(-1, 0, 1, 2), Bytes: stat(-1000, 0, 300, 1300)}, s.Counters())
	inner, ok := s.Pop()
	require.True(t, ok)
	require.Equal(t, stat(-1000, 0, 300, 1300), inner.Bytes)
	outer, ok := s.Pop()
	require.True(t, ok)
	require.Equal(t, adaptor.Counters{Blocks: stat(0, 1, 2, 2), Bytes: stat(4000, 5000, 5300, 1300)}, outer)
	all, ok := s.Pop()
	require.False(t, ok)
	require.Equal(t, s.Counters(), all)
	require.Equal(t, adaptor.Counters{Blocks: stat(1, 2, 3, 2), Bytes: stat(5000, 6000, 6300, 1300)}, all)
	_, err := s.Alloc(4<<30, nil)
	require.ErrorIs(t, err, cupool.ErrOutOfMemory)
	require.Equal(t, all, s.Counters())
}

//go:noinline
func forget(t *testing.T, a cupool.Allocator) cupool.Block { return alloc(t, a, 1000) }

func TestTracking(t *testing.T) {
	c := newPool(t)
	a := adaptor.NewTracking(c)
	require.NoError(t, a.Check())
	lost, freed := forget(t, a), alloc(t, a, 5*mib)
	alloc(t, a, 0)
	require.Len(t, a.Live(), 2)
	require.NoError(t, a.FreePtr(freed.Ptr(), -1))
	failedFrees(t, a, lost, freed)
	var leaks *cupool.LeakError
	require.ErrorAs(t, a.Check(), &leaks)
	require.Len(t, leaks.Leaks, 1)
	require.EqualValues(t, 1000, leaks.Bytes)
	require.Equal(t, lost.Ptr(), leaks.Leaks[0].Ptr)
	require.Equal(t, a.DefaultStream().Handle(), leaks.Leaks[0].Stream)
	require.Contains(t, leaks.Leaks[0].Stack, "adaptor_test.forget\n\t")
	require.NotContains(t, leaks.Leaks[0].Stack, "Tracking).Alloc", "the adaptor's own depths are left out")
	require.NoError(t, a.Free(lost))
	require.NoError(t, a.Check())
	var all []cupool.Block
	for range 20 {
		all = append(all, alloc(t, a, mib))
	}
	require.True(t, slices.IsSortedFunc(a.Live(), func(x, y cupool.Leak) int { return cmp.Compare(x.Ptr, y.Ptr) }))
	for _, b := range all {
		require.NoError(t, a.Free(b))
	}
	_, err := a.Alloc(4<<30, nil)
	require.ErrorIs(t, err, cupool.ErrOutOfMemory)
	require.NoError(t, a.Check())
}

func TestLogging(t *testing.T) {
	var text bytes.Buffer
	c := newPool(t)
	a := adaptor.NewLogging(c, slog.New(slog.NewTextHandler(&text, &slog.HandlerOptions{Level: slog.LevelDebug})))
	s, err := c.NewStream()
	require.NoError(t, err)
	b := alloc(t, a, 1000)
	require.NoError(t, a.RecordStream(b, s))
	require.NoError(t, a.Free(b))
	require.Error(t, a.Free(b))
	require.NoError(t, a.FreePtr(alloc(t, a, 2000).Ptr(), 2000))
	_, err = a.Alloc(4<<30, s)
	require.Error(t, err)
	lines := strings.Split(strings.TrimSpace(text.String()), "\n")
	for i, want := range []string{
		`level=DEBUG msg=alloc ptr=0x\w+ size=1000 stream=0 took=`, `level=DEBUG msg="record stream" ptr=0x\w+ size=1000 stream=[1-9]`,
		`level=DEBUG msg=free ptr=0x\w+ size=1000$`, `level=WARN msg=free .* error=.*double free`, `level=DEBUG msg=alloc .* size=2000`,
		`level=DEBUG msg=free .* size=2000$`, `level=WARN msg=alloc ptr=0x0 size=4294967296 stream=[1-9].* error=.*out of memory`,
	} {
		require.Regexp(t, want, lines[i])
	}

	silent := adaptor.NewLogging(c, slog.New(slog.DiscardHandler))
	require.Zero(t, testing.AllocsPerRun(100, func() {
		b, _ := silent.Alloc(1000, nil)
		_ = silent.Free(b)
	}))
}

// A recording replays: the trace is one that our reader takes, with the blocks
// and streams that were used.
func TestRecording(t *testing.T) {
	var text bytes.Buffer
	c := newPool(t)
	r := adaptor.NewRecording(c, &text)
	s, err := c.NewStream()
	require.NoError(t, err)
	a := alloc(t, r, 1000)
	b, err := r.Alloc(3*mib, s)
	require.NoError(t, err)
	require.NoError(t, r.RecordStream(a, s))
	require.NoError(t, r.RecordStream(b, nil))
	require.NoError(t, r.FreePtr(b.Ptr(), -1))
	failedFrees(t, r, a, b)
	alloc(t, r, 0)
	_, err = r.Alloc(4<<30, nil)
	require.Error(t, err)
	require.NoError(t, r.Free(a))
	require.Zero(t, adaptor.Kept(r))
	require.NoError(t, r.Flush())
	h := s.Handle()
	require.Equal(t, []string{"a 0 1000 0", "a 1 3145728 " + itoa(h), "r 0 " + itoa(h), "r 1 0", "f 1", "# out of memory: 4294967296 bytes on stream 0", "f 0"},
		strings.Split(strings.TrimSpace(text.String()), "\n"))
	got, err := trace.Read(&text, "recorded")
	require.NoError(t, err)
	require.Equal(t, 2, got.Blocks)
	require.EqualValues(t, 3*mib+1000, got.PeakRequested)

	full := adaptor.NewRecording(c, failingWriter{})
	require.NoError(t, full.Free(alloc(t, full, 1000)))
	require.ErrorContains(t, full.Flush(), "disk full")
	require.NoError(t, full.Free(alloc(t, full, 1000)), "the program goes on")
	require.ErrorContains(t, full.Flush(), "disk full")
}

func itoa(h cupool.StreamHandle) string { return slog.Uint64Value(uint64(h)).String() }

type failingWriter struct{}

func (failingWriter) Write([]byte) (int, error) { return 0, errors.New("disk full") }

func TestFailureCallback(t *testing.T) {
	c := newPool(t)
	cache := alloc(t, c, 800*mib)
	var asked []adaptor.Failure
	a := adaptor.NewFailureCallback(c, func(f adaptor.Failure) bool {
		require.ErrorIs(t, f.Err, cupool.ErrOutOfMemory)
		f.Err = nil
		asked = append(asked, f)
		if f.Attempt == 2 {
			require.NoError(t, c.Free(cache))
			cache = cupool.Block{}
		}
		return f.Attempt < 3
	})
	b := alloc(t, a, 500*mib)
	require.Equal(t, []adaptor.Failure{{Size: 500 * mib, Attempt: 1}, {Size: 500 * mib, Attempt: 2}}, asked)
	_, err := a.Alloc(900*mib, c.DefaultStream())
	require.ErrorIs(t, err, cupool.ErrOutOfMemory)
	require.Equal(t, 3, asked[len(asked)-1].Attempt)
	require.Same(t, c.DefaultStream(), asked[len(asked)-1].Stream)
	n := len(asked)
	_, err = a.Alloc(-1, nil)
	require.ErrorIs(t, err, cupool.ErrInvalidSize)
	require.Len(t, asked, n, "only when memory ran out")
	require.NoError(t, a.Free(b))
}
