package drivertest

import (
	"bytes"
	"errors"
	"math"
	"runtime"
	"sync"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/testkit"
)

// testSizes allocates two blocks of a size, which do not overlap, and copies
// between them.
func testSizes(f *fixture) {
	t, s := f.t, f.stream()
	for _, n := range []int64{1, 511, 512, 4097, 2*mib - 1, 2*mib + 1, 3 * mib} {
		p, q := f.alloc(n), f.alloc(n)
		require.True(t, p+cupool.Ptr(n) <= q || q+cupool.Ptr(n) <= p)
		want, got := testkit.Pattern(n), make([]byte, n)
		require.NoError(t, f.CopyIn(p, want, s))
		require.NoError(t, f.Memset(q, 0xA5, n, s))
		require.NoError(t, f.CopyOut(got, q, s))
		if !f.o.NoContents {
			require.True(t, bytes.Equal(bytes.Repeat([]byte{0xA5}, int(n)), got), "%d bytes", n)
		}
		require.NoError(t, f.Copy(q, p, n, s))
		require.NoError(t, f.CopyOut(got, q, s))
		if !f.o.NoContents {
			require.True(t, bytes.Equal(want, got), "%d bytes", n)
		}
		require.NoError(t, f.MemFree(p))
		require.NoError(t, f.MemFree(q))
	}
	for _, n := range []int64{0, -1, math.MinInt64} {
		require.ErrorIs(t, testkit.Second(f.MemAlloc(n)), cupool.ErrInvalidRange, "%d bytes", n)
	}
}

// testCapacity uses all memory that there is.
func testCapacity(f *fixture) {
	t := f.t
	free, total, err := f.MemInfo()
	require.NoError(t, err)
	require.Positive(t, free)
	require.GreaterOrEqual(t, total, free)
	if f.o.Capacity == 0 {
		return
	}
	require.Equal(t, []int64{f.o.Capacity, f.o.Capacity}, []int64{free, total})
	most := f.o.Capacity - 4*mib
	p := f.alloc(most)
	free, _, err = f.MemInfo()
	require.NoError(t, err)
	require.EqualValues(t, 4*mib, free)
	for _, n := range []int64{4*mib + 1, total, math.MaxInt64 - 4096, math.MaxInt64} {
		require.ErrorIs(t, testkit.Second(f.MemAlloc(n)), cupool.ErrOutOfMemory, "%d bytes", n)
	}
	q := f.alloc(4 * mib)
	require.NoError(t, f.MemFree(p))
	require.NoError(t, f.MemFree(q))
	require.NoError(t, f.MemFree(f.alloc(f.o.Capacity)))
}

func testFrees(f *fixture) {
	t, p := f.t, f.alloc(mib)
	for name, at := range map[string]cupool.Ptr{"nil": 0, "foreign": 0x1000, "interior": p + 512, "end": p + mib, "last": ^cupool.Ptr(0)} {
		require.ErrorIs(t, f.MemFree(at), cupool.ErrInvalidRange, name)
	}
	require.NoError(t, f.MemFree(p))
	require.ErrorIs(t, f.MemFree(p), cupool.ErrInvalidRange, "a second time")
	require.ErrorIs(t, f.Memset(p, 0, 1, 0), cupool.ErrInvalidRange, "after that")
}

func testRanges(f *fixture) {
	const n = 4096
	p, q, b := f.alloc(n), f.alloc(n), make([]byte, n+1)
	for name, x := range map[string]struct {
		err error
		ok  bool
	}{
		"inside":              {f.Copy(p+1, q, n-1, 0), true},
		"the last byte":       {f.Memset(p+n-1, 1, 1, 0), true},
		"none":                {f.Copy(p, q, 0, 0), true},
		"none in":             {f.CopyIn(p, nil, 0), true},
		"none out":            {f.CopyOut(nil, p, 0), true},
		"set none":            {f.Memset(p, 1, 0, 0), true},
		"negative":            {f.Copy(p, q, -1, 0), false},
		"set negative":        {f.Memset(p, 0, -1, 0), false},
		"source past the end": {f.Copy(p, q+1, n, 0), false},
		"target past the end": {f.Copy(p+1, q, n, 0), false},
		"in past the end":     {f.CopyIn(p, b, 0), false},
		"out past the end":    {f.CopyOut(b, p, 0), false},
		"set past the end":    {f.Memset(p, 0, n+1, 0), false},
		"begins past the end": {f.Memset(p+n+4096*mib, 0, 1, 0), false},
		"foreign":             {f.Memset(0x1000, 0, 1, 0), false},
		"nil":                 {f.Memset(0, 0, 1, 0), false},
		"wraps":               {f.Memset(p, 0, math.MaxInt64, 0), false},
		"wraps from the top":  {f.Memset(^cupool.Ptr(0), 0, 2, 0), false},
	} {
		if x.ok {
			require.NoError(f.t, x.err, name)
		} else {
			require.ErrorIs(f.t, x.err, cupool.ErrInvalidRange, name)
		}
	}
}

// testFills sets ranges of many lengths and leaves what is around them alone.
func testFills(f *fixture) {
	f.contents()
	t, p := f.t, f.alloc(mib)
	for _, n := range []int{1, 2, 3, 511, 16 << 10, 16<<10 + 1, 32 << 10, 100_003, mib - 2} {
		for _, v := range []byte{0, 1, 255} {
			require.NoError(t, f.Memset(p, 7, mib, 0))
			require.NoError(t, f.Memset(p+1, v, int64(n), 0))
			want := bytes.Repeat([]byte{7}, mib)
			copy(want[1:], bytes.Repeat([]byte{v}, n))
			require.True(t, bytes.Equal(want, f.read(p, mib, 0)), "%d bytes of %d", n, v)
		}
	}
}

// testSource overwrites the source of a CopyIn that has returned, while the copy may
// not have happened yet.
func testSource(f *fixture) {
	f.contents()
	t, s := f.t, f.stream()
	for _, n := range []int64{1, 4096, 64 << 10, 64<<10 + 1, mib, 4 * mib} {
		p, src := f.alloc(n), testkit.Pattern(n)
		release := f.busy(s)
		time.AfterFunc(5*time.Millisecond, release) // a large copy may wait for its stream
		require.NoError(t, f.CopyIn(p, src, s))
		clear(src)
		require.True(t, bytes.Equal(testkit.Pattern(n), f.read(p, int(n), s)), "%d bytes: the copy read its source after CopyIn returned", n)
		release()
		require.NoError(t, f.MemFree(p))
	}
}

// testRandomWork: work on several streams, chained by events, leaves what the same
// work done in order leaves.
func testRandomWork(f *fixture) {
	f.contents()
	const size = 300_000
	t, rnd := f.t, testkit.Rand(f.t)
	p, shadow := f.alloc(size), make([]byte, size)
	require.NoError(t, f.Memset(p, 0, size, 0))
	streams := []cupool.StreamHandle{0, f.stream(), f.stream()}
	event := f.event()
	require.NoError(t, f.RecordEvent(event, 0))
	at := func(n int) int { return rnd.IntN(size - n + 1) }
	for range 2000 {
		s := streams[rnd.IntN(len(streams))]
		require.NoError(t, f.StreamWaitEvent(s, event))
		n := 1 + rnd.IntN(1<<rnd.IntN(18))
		dst, src, v := at(n), at(n), byte(rnd.Uint32())
		switch rnd.IntN(5) {
		case 0:
			require.NoError(t, f.Memset(p+cupool.Ptr(dst), v, int64(n), s))
			copy(shadow[dst:], bytes.Repeat([]byte{v}, n))
		case 1:
			if max(dst, src)-min(dst, src) < n {
				continue // ranges that overlap are not promised
			}
			require.NoError(t, f.Copy(p+cupool.Ptr(dst), p+cupool.Ptr(src), int64(n), s))
			copy(shadow[dst:dst+n], shadow[src:src+n])
		case 2:
			b := bytes.Repeat([]byte{v, v + 1}, n)[:n]
			require.NoError(t, f.CopyIn(p+cupool.Ptr(dst), b, s))
			copy(shadow[dst:], b)
			clear(b)
		case 3:
			if rnd.IntN(20) == 0 { // seldom: it empties the queues
				require.True(t, bytes.Equal(shadow[src:src+n], f.read(p+cupool.Ptr(src), n, s)))
			}
		case 4:
			if l, ok := f.Driver.(cupool.Launcher); ok {
				if err := l.Launch(s, func() { time.Sleep(20 * time.Microsecond) }); !errors.Is(err, cupool.ErrNotSupported) {
					require.NoError(t, err)
				}
			}
		}
		require.NoError(t, f.RecordEvent(event, s))
	}
	require.NoError(t, f.SyncEvent(event))
	require.True(t, bytes.Equal(shadow, f.read(p, size, 0)))
}

// testGoroutines makes calls of all kinds at once, also from threads of their own, and
// leaves nothing.
func testGoroutines(f *fixture) {
	t := f.t
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			if g%4 == 0 {
				runtime.LockOSThread()
				defer runtime.UnlockOSThread()
			}
			want, got := testkit.Pattern(5000 + int64(g))[:5000], make([]byte, 5000)
			for range 30 {
				p, err := f.MemAlloc(5000)
				assert.NoError(t, err)
				s, err := f.NewStream()
				assert.NoError(t, err)
				e, err := f.NewEvent()
				assert.NoError(t, err)
				assert.NoError(t, f.CopyIn(p, want, s))
				assert.NoError(t, f.RecordEvent(e, s))
				assert.NoError(t, f.StreamWaitEvent(0, e))
				runtime.Gosched()
				assert.NoError(t, f.SyncEvent(e))
				done, err := f.QueryEvent(e)
				assert.NoError(t, err)
				assert.True(t, done)
				assert.NoError(t, f.CopyOut(got, p, 0))
				assert.True(t, f.o.NoContents || bytes.Equal(want, got))
				assert.NoError(t, f.DestroyEvent(e))
				assert.NoError(t, f.DestroyStream(s))
				assert.NoError(t, f.MemFree(p))
			}
		})
	}
	wg.Wait()
	if f.o.Capacity > 0 {
		free, _, err := f.MemInfo()
		require.NoError(t, err)
		require.Equal(t, f.o.Capacity, free)
	}
}
