package conformance

import (
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
	blocks := []cupool.Block{r.alloc(w, s), r.alloc(w, s)}
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
