package conformance

import (
	"errors"
	"math"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
)

// oomOf checks that an error is an *OOMError whose numbers are those of the
// books.
func (r *rig) oomOf(err error, size int64) *cupool.OOMError {
	r.t.Helper()
	t := r.t
	var e *cupool.OOMError
	require.ErrorAs(t, err, &e)
	require.ErrorIs(t, err, cupool.ErrOutOfMemory)
	st := r.Stats()
	require.Equal(t, size, e.Requested)
	require.Equal(t, roundUp(size, r.cfg.MinBlock), e.Rounded)
	require.GreaterOrEqual(t, e.Segment, e.Rounded)
	require.Equal(t, st.LiveBytes, e.Live)
	require.Equal(t, st.PendingBytes, e.Pending)
	require.Equal(t, st.CachedBytes, e.Cached)
	require.Equal(t, st.LargestFree, e.LargestFree)
	require.Equal(t, st.All.ReservedBytes.Current, e.Reserved)
	require.Equal(t, st.Limit, e.Limit)
	require.InDelta(t, st.Fragmentation(), e.Fragmentation, 1e-9)
	require.Equal(t, r.device.Name(), e.Device)
	_, total, ierr := r.device.MemInfo()
	require.NoError(t, ierr)
	require.Equal(t, total, e.DeviceTotal)
	require.NotEmpty(t, e.Hint)
	require.Contains(t, e.Error(), "out of memory")
	require.Contains(t, e.Error(), e.Hint)
	require.NoError(t, r.Check())
	return e
}

// fill allocates n blocks of whole segments.
func (r *rig) fill(n int, s *cupool.Stream) []cupool.Block {
	r.t.Helper()
	blocks := make([]cupool.Block, n)
	for i := range blocks {
		blocks[i] = r.alloc(r.whole(), s)
	}
	return blocks
}

func testOOM(t *testing.T, e *env) {
	r := e.rig(t, limited(3))
	w := r.whole()
	blocks := r.fill(2, nil)
	ooms := r.Stats().OOMs
	for i, size := range []int64{w + 1, 2 * w, 3*w - 5, 3*w + 1, 100 * w} {
		before := r.blocks()
		_, err := r.Alloc(size, nil)
		oom := r.oomOf(err, size)
		require.Equal(t, before, r.blocks())
		require.Equal(t, 2*w, oom.Live)
		require.Equal(t, ooms+int64(i)+1, r.Stats().OOMs)
	}
	blocks = append(blocks, r.alloc(w, nil))
	_, err := r.Alloc(1, nil)
	r.oomOf(err, 1)
	require.Zero(t, r.Stats().Retries)
	if !e.opt.NoContents { // what was there before is untouched
		for i, b := range blocks {
			require.NoError(t, write(b, uint64(i), r.DefaultStream()))
		}
		_, err = r.Alloc(w, nil)
		r.oomOf(err, w)
		for i, b := range blocks {
			require.NoError(t, verify(b, uint64(i), r.DefaultStream()))
		}
	}
	r.free(blocks[1])
	blocks[1] = r.alloc(w, nil)
	r.free(blocks...)
}

// testOOMRetry: cached memory of the wrong size or kind is given back for a
// request that needs it.
func testOOMRetry(t *testing.T, e *env) {
	r := e.rig(t, limited(4))
	w := r.whole()
	blocks := r.fill(4, nil)
	_, err := r.Alloc(2*w, nil)
	r.oomOf(err, 2*w)
	r.free(blocks[1], blocks[2])
	big := r.alloc(2*w, nil)
	if !r.vmm() { // two segments went, one came
		require.EqualValues(t, 2, r.Stats().DriverFrees)
		require.EqualValues(t, 3, r.Stats().All.Segment.Current)
	}
	r.free(big, blocks[0])
	small := r.alloc(3, nil) // the small pool has nothing
	require.NotZero(t, r.Stats().Small.ReservedBytes.Current)
	r.free(small, blocks[3])
	all := r.alloc(4*w, nil)
	require.Zero(t, r.Stats().Small.ReservedBytes.Current)
	require.Equal(t, 4*w, r.Stats().All.ReservedBytes.Current)
	r.free(all)
	require.EqualValues(t, 1, r.Stats().OOMs)
}

// kept is what a GPU may report as free and yet not give, in bytes.
const kept = 4 << 20

// testDeviceFull fills the device itself, without a limit.
func testDeviceFull(t *testing.T, e *env) {
	if e.opt.Elastic {
		t.Skip("the device has no fixed size")
	}
	r := e.rig(t, unlimited)
	free, _, err := r.device.MemInfo()
	require.NoError(t, err)
	w := r.whole()
	chunk := max(free/8/w*w, w)
	var blocks []cupool.Block
	for range 10_000 {
		b, err := r.Alloc(chunk, nil)
		if err != nil {
			oom := r.oomOf(err, chunk)
			require.Less(t, oom.DeviceFree, chunk+kept)
			require.NotNil(t, oom.Cause)
			if chunk == w {
				break
			}
			chunk = w
			continue
		}
		blocks = append(blocks, b)
	}
	require.Greater(t, len(blocks), 3)
	r.free(blocks[0])
	_, err = r.Alloc(blocks[0].Size()+w, nil)
	require.ErrorIs(t, err, cupool.ErrOutOfMemory)
	blocks[0] = r.alloc(blocks[0].Size(), nil)
	r.free(blocks...)
	require.NoError(t, r.EmptyCache())
	require.Zero(t, r.Stats().All.ReservedBytes.Current)
	r.free(r.alloc(w, nil))
}

func testLimit(t *testing.T, e *env) {
	for _, off := range []int64{-1, 0, 1} {
		r := e.rig(t, limited(3), func(c *cupool.Config) { c.Limit += off })
		w := r.whole()
		limit := 3*w + off
		require.Equal(t, limit, r.Stats().Limit)
		blocks := r.fill(2, nil)
		b, err := r.Alloc(w, r.stream()) // the limit is for all streams together
		if off < 0 {
			require.Equal(t, limit, r.oomOf(err, w).Limit)
			require.Contains(t, err.Error(), "limit")
		} else {
			require.NoError(t, err)
			require.Equal(t, 3*w, r.Stats().All.ReservedBytes.Current)
			blocks = append(blocks, b)
		}
		r.free(blocks...)
	}
	// A segment of the usual size does not fit, but the request does.
	r := e.rig(t, unlimited, func(c *cupool.Config) { c.Limit = c.SmallLimit + 4*mib })
	if r.cfg.LargeSegment <= r.cfg.Limit {
		return
	}
	b := r.alloc(r.cfg.SmallLimit+1, nil)
	require.Less(t, r.Stats().All.ReservedBytes.Current, r.cfg.LargeSegment)
	r.free(b)
}

func testFraction(t *testing.T, e *env) {
	first := e.rig(t)
	_, total, err := first.device.MemInfo()
	require.NoError(t, err)
	w := first.whole()
	n := min(total/w, 3)
	exact := float64(n*w) / float64(total)
	for _, c := range []struct {
		fraction float64
		fits     int64
	}{{exact, n}, {exact - 1e-5, n - 1}, {min(exact+1e-5, 1), n}} {
		r := e.rig(t, unlimited, func(cfg *cupool.Config) { cfg.Fraction = c.fraction })
		require.Equal(t, int64(math.Round(c.fraction*float64(total))), r.Stats().Limit)
		b := r.alloc(c.fits*w, nil)
		_, err := r.Alloc(w, nil)
		r.oomOf(err, w)
		r.free(b)
	}
	both := e.rig(t, func(cfg *cupool.Config) { cfg.Fraction, cfg.Limit = exact, w })
	require.Equal(t, w, both.Stats().Limit, "the smaller one holds")
	both = e.rig(t, func(cfg *cupool.Config) { cfg.Fraction, cfg.Limit = exact, 2*n*w })
	require.Equal(t, n*w, both.Stats().Limit)
	for _, f := range []float64{-0.1, 1.1, math.Inf(1)} {
		_, err := cupool.New(cupool.Config{Driver: first.device, Fraction: f})
		var ce *cupool.ConfigError
		require.ErrorAs(t, err, &ce)
		require.Equal(t, "Fraction", ce.Field)
	}
}

// testCallback: the callback may use the allocator, and is asked only when
// nothing else helps.
func testCallback(t *testing.T, e *env) {
	var r *rig
	var asked []int64
	var spare []cupool.Block
	r = e.rig(t, limited(3), func(c *cupool.Config) {
		c.OnOutOfMemory = func(requested int64) bool {
			asked = append(asked, requested)
			require.NoError(t, r.Check()) // takes every lock
			require.NotEmpty(t, r.Snapshot().Layout())
			if len(spare) == 0 {
				return false
			}
			b := spare[0]
			spare = spare[1:]
			r.free(b)
			r.free(r.alloc(100, nil))
			return true
		}
	})
	w := r.whole()
	blocks := r.fill(3, nil)
	spare = blocks[1:2]
	b := r.alloc(w-5, nil)
	require.Equal(t, w-5, asked[0])
	require.NotZero(t, r.Stats().Retries)
	asked = nil
	_, err := r.Alloc(w, nil)
	r.oomOf(err, w)
	require.Equal(t, []int64{w}, asked)
	spare = []cupool.Block{blocks[0]} // too little
	_, err = r.Alloc(2*w, nil)
	r.oomOf(err, 2*w)
	asked = nil
	c := r.alloc(w, nil)
	require.Empty(t, asked, "what is cached does not need asking")
	r.free(b, c, blocks[2])
}

// owned is a value whose memory goes back when Go's collector finds it dead.
type owned struct{ _ [64]byte }

// testCleanup: memory that only garbage holds is recovered by collecting
// it.
func testCleanup(t *testing.T, e *env) {
	r := e.rig(t, limited(3))
	for range 10 {
		func() {
			for range 3 {
				o := new(owned)
				b := r.alloc(r.whole(), nil)
				runtime.AddCleanup(o, r.FreeLater, b)
				runtime.KeepAlive(o)
			}
		}()
	}
	require.Zero(t, r.Stats().OOMs)
	require.GreaterOrEqual(t, r.Stats().Retries, int64(1))
	deadline := time.Now().Add(time.Minute)
	for r.Stats().LiveBytes > 0 && time.Now().Before(deadline) {
		runtime.GC()
		_, err := r.ProcessDeferred()
		require.NoError(t, err)
	}
	require.Zero(t, r.Stats().LiveBytes)
}

// blocked starts an allocation that has to wait, and returns where its
// result will come, once it waits for an event of the device under f. Where
// waits make the device run it comes at once.
func (r *rig) blocked(f *Failing, size int64, s *cupool.Stream) <-chan cupool.Block {
	r.t.Helper()
	got := make(chan cupool.Block, 1)
	if r.env.opt.WaitsRun {
		got <- r.alloc(size, s)
		return got
	}
	before := f.Calls("SyncEvent")
	go func() {
		b, err := r.Alloc(size, s)
		check(r.t, err)
		got <- b
	}()
	for waits := false; !waits; {
		waits = f.Calls("SyncEvent") > before
		select {
		case b := <-got:
			r.t.Fatalf("%v was handed out while a stream still uses all memory", b)
		case <-time.After(10 * time.Millisecond):
		}
	}
	return got
}

// testPressure: a request that only a pending block can serve waits for it.
func testPressure(t *testing.T, e *env) {
	f := NewFailing(nil)
	r := e.rigOn(t, f.over, limited(2))
	w := r.whole()
	s, u := r.stream(), r.stream()
	blocks := r.fill(2, s)
	release := r.makeBusy(u)
	require.NoError(t, r.FreeOn(blocks[0], u))
	got := r.blocked(f, w, s)
	release()
	b := <-got
	require.Equal(t, blocks[0].Ptr(), b.Ptr())
	require.Zero(t, r.Stats().OOMs)
	require.EqualValues(t, 1, r.Stats().Retries)

	// Two blocks that wait, and serve only together.
	release = r.makeBusy(u)
	require.NoError(t, r.FreeOn(b, u))
	require.NoError(t, r.FreeOn(blocks[1], u))
	got = r.blocked(f, 2*w, s)
	release()
	b = <-got
	require.Equal(t, 2*w, b.Size())
	r.free(b)
}

// testPressureOne: of several pending blocks only the one that serves best
// is waited for.
func testPressureOne(t *testing.T, e *env) {
	if e.opt.WaitsRun {
		t.Skip("waits do not block on this device")
	}
	f := NewFailing(nil)
	r := e.rigOn(t, f.over, limited(6))
	w := r.whole()
	s, slow, fast := r.stream(), r.stream(), r.stream()
	big, mid, little := r.alloc(3*w, s), r.alloc(2*w, s), r.alloc(w, s)
	r.makeBusy(slow)
	release := r.makeBusy(fast)
	require.NoError(t, r.FreeOn(big, slow))
	require.NoError(t, r.FreeOn(mid, fast))
	require.NoError(t, r.FreeOn(little, slow))
	got := r.blocked(f, 2*w, s)
	release()
	b := <-got
	require.Equal(t, mid.Ptr(), b.Ptr())
	require.EqualValues(t, 2, r.Stats().BlocksPending)
	r.free(b)
}

// testPressureOtherStream: memory that another stream caches, in its pools
// and its magazines, is given back for a request that needs it.
func testPressureOtherStream(t *testing.T, e *env) {
	r := e.rig(t, limited(2))
	w := r.whole()
	s, u := r.stream(), r.stream()
	for range 3 {
		r.free(r.fill(2, s)...)
	}
	b := r.alloc(2*w, u)
	r.free(b)
	for range 3 {
		var small []cupool.Block
		for range 3 {
			small = append(small, r.alloc(r.cfg.SmallLimit, s))
		}
		r.free(small...)
	}
	b, err := r.Alloc(2*w, u)
	require.NoError(t, err)
	_, err = r.Alloc(1, s)
	require.True(t, errors.Is(err, cupool.ErrOutOfMemory))
	r.free(b)
}
