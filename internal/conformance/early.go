package conformance

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/testkit"
)

// scene is a block whose contents a busy stream has yet to copy away.
type scene struct {
	r             *rig
	owner, reader *cupool.Stream
	block         cupool.Block
	copied        cupool.Block // where the reader copies it
	release       func()
	more          []cupool.Block
}

const sceneSeed = 4711

// newScene allocates a block on one stream, fills it, and has another stream
// copy it after all that keeps it busy. recurring makes its size recur first.
func newScene(r *rig, size int64, recurring bool) *scene {
	t := r.t
	s := &scene{r: r, owner: r.stream(), reader: r.stream()}
	s.copied = r.alloc(size, s.reader)
	for range 3 {
		if recurring {
			r.free(r.alloc(size, s.owner))
		}
	}
	s.block = r.alloc(size, s.owner)
	require.NoError(t, write(s.block, sceneSeed, s.owner))
	require.NoError(t, s.owner.Sync())
	s.release = r.makeBusy(s.reader)
	require.NoError(t, copyTo(s.copied, s.block, s.reader))
	return s
}

// fewTries is how many allocations show whether a block comes back.
const fewTries = 24

// reuse allocates on the owner's stream until the block's memory is handed
// out again, overwrites what it gets, and reports whether that happened.
func (s *scene) reuse(tries int) bool {
	t, size := s.r.t, s.block.Size()
	for range tries {
		b := s.r.alloc(size, s.owner)
		s.more = append(s.more, b)
		require.NoError(t, s.owner.Memset(b.Ptr(), 0xEE, size))
		if b.Ptr() < s.block.Ptr()+cupool.Ptr(size) && s.block.Ptr() < b.Ptr()+cupool.Ptr(size) {
			return true
		}
	}
	return false
}

// outcome lets the reader go on and reports whether it copied what was in
// the block. Without memory behind the device it did.
func (s *scene) outcome() (intact bool) {
	t := s.r.t
	s.release()
	require.NoError(t, s.owner.Sync())
	require.NoError(t, s.reader.Sync())
	return s.r.env.opt.NoContents || verify(s.copied, sceneSeed, s.reader) == nil
}

func (s *scene) end() {
	s.r.free(s.more...)
	s.r.free(s.copied)
	require.NoError(s.r.t, s.r.Check())
}

var sceneSizes = []int64{5000, 1500 * kib}

// forScenes runs f over sizes, on one processor: a goroutine that moved to
// another would not find at once what lies in the magazines of the last.
func forScenes(t *testing.T, e *env, f func(*testing.T, *scene)) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	for _, size := range sceneSizes {
		for _, recurring := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d/recurring=%v", size, recurring), func(t *testing.T) {
				f(t, newScene(e.rig(t, unlimited), size, recurring))
			})
		}
	}
}

// testEarlyFree frees a block that a slow job on another stream still reads.
// Without RecordStream the same calls hand the memory out and the job reads
// garbage, which shows that the test can fail.
func testEarlyFree(t *testing.T, e *env) {
	t.Run("recorded", func(t *testing.T) {
		forScenes(t, e, func(t *testing.T, s *scene) {
			require.NoError(t, s.r.RecordStream(s.block, s.reader))
			s.r.free(s.block)
			assert.EqualValues(t, 1, s.r.Stats().BlocksPending)
			assert.False(t, s.reuse(fewTries), "memory in use was handed out")
			assert.True(t, s.outcome(), "memory in use was overwritten")
			s.r.free(s.more...)
			s.more = nil
			assert.True(t, s.reuse(fewTries+1), "memory that is not in use any more stays away")
			s.end()
		})
	})
	t.Run("free_on", func(t *testing.T) {
		forScenes(t, e, func(t *testing.T, s *scene) {
			require.NoError(t, s.r.FreeOn(s.block, s.reader))
			assert.False(t, s.reuse(fewTries), "memory in use was handed out")
			assert.True(t, s.outcome(), "memory in use was overwritten")
			s.end()
		})
	})
	t.Run("not_recorded", func(t *testing.T) {
		forScenes(t, e, func(t *testing.T, s *scene) {
			s.r.free(s.block)
			assert.True(t, s.reuse(fewTries), "this test cannot see memory handed out too early")
			// The owner's work must be done before the reader goes on, or
			// nothing would go wrong.
			require.NoError(t, s.owner.Sync())
			if intact := s.outcome(); !e.opt.NoContents {
				assert.False(t, intact, "this test cannot see contents overwritten too early")
			}
			s.end()
		})
	})
}

// testEventWait: once the owner's stream waits for the reader on the device,
// the memory is its again, though the reader has not even begun.
func testEventWait(t *testing.T, e *env) {
	forScenes(t, e, func(t *testing.T, s *scene) {
		require.NoError(t, s.r.FreeOn(s.block, s.reader))
		ev, err := s.reader.Record()
		require.NoError(t, err)
		require.EqualValues(t, 1, s.r.Stats().BlocksPending)
		third := s.r.stream()
		require.NoError(t, third.Wait(ev))
		require.EqualValues(t, 1, s.r.Stats().BlocksPending, "another stream's wait proves nothing for the owner")
		require.NoError(t, s.owner.Wait(ev))
		require.Zero(t, s.r.Stats().BlocksPending)
		done, err := ev.Done()
		require.NoError(t, err)
		require.False(t, done)
		assert.True(t, s.reuse(fewTries), "the memory is ready for reuse")
		assert.True(t, s.outcome(), "the owner's work has to wait for the reader's")
		done, err = ev.Done()
		require.NoError(t, err)
		require.True(t, done)
		require.NoError(t, ev.Close())
		require.ErrorIs(t, ev.Close(), cupool.ErrClosed)
		require.ErrorIs(t, s.owner.Wait(ev), cupool.ErrClosed)
		_, err = ev.Done()
		require.ErrorIs(t, err, cupool.ErrClosed)
		require.ErrorIs(t, ev.Sync(), cupool.ErrClosed)
		s.end()
	})
}

// testProcessDeferred: blocks that wait for a busy stream come free when its events are
// done, without a wait for the stream.
func testProcessDeferred(t *testing.T, e *env) {
	r := e.rig(t)
	s := r.stream()
	blocks := make([]cupool.Block, 100)
	for i := range blocks {
		blocks[i] = r.alloc(int64(1+i*100), nil)
	}
	release := r.makeBusy(s)
	for _, b := range blocks {
		require.NoError(t, r.FreeOn(b, s))
	}
	require.EqualValues(t, len(blocks), r.Stats().BlocksPending)
	n, err := r.ProcessDeferred()
	require.NoError(t, err)
	require.Zero(t, n)
	release()
	require.NoError(t, r.device.SyncStream(s.Handle()))
	total := 0
	for range 10 {
		n, err := r.ProcessDeferred()
		require.NoError(t, err)
		total += n
		if e.opt.WaitsRun { // records are work of their own there
			require.NoError(t, r.device.SyncStream(s.Handle()))
		}
	}
	require.Equal(t, len(blocks), total)

	// What cleanups queued, once and twice.
	b := r.alloc(100, nil)
	r.FreeLater(b)
	r.FreeLater(b)
	require.NoError(t, testkit.Second(r.ProcessDeferred()))
	require.Zero(t, r.Stats().LiveBytes)
	require.ErrorIs(t, r.Free(b), cupool.ErrDoubleFree)
}
