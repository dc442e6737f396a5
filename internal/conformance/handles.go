package conformance

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/device"
)

// blockError checks that an error is a *BlockError of a reason that names
// the address, and what it prints.
func blockError(t *testing.T, err, reason error, p cupool.Ptr) *cupool.BlockError {
	t.Helper()
	var e *cupool.BlockError
	require.ErrorAs(t, err, &e)
	require.ErrorIs(t, err, reason)
	require.Equal(t, p, e.Ptr)
	require.Contains(t, err.Error(), p.String())
	require.Contains(t, err.Error(), reason.Error())
	return e
}

// warm makes a size recur, so that its blocks are homed where there are
// magazines.
func warm(r *rig, size int64) {
	for range 3 {
		r.free(r.alloc(size, nil))
	}
}

func testDoubleFree(t *testing.T, e *env) {
	r := e.rig(t)
	warm(r, 5000)
	guard := r.alloc(100, nil)
	for _, size := range []int64{5000, 6000, 3 * mib, 11 * mib} {
		b := r.alloc(size, nil)
		r.free(b)
		r.unchanged(func() {
			blockError(t, r.Free(b), cupool.ErrDoubleFree, b.Ptr())
			blockError(t, r.FreeOn(b, r.DefaultStream()), cupool.ErrUseAfterFree, b.Ptr())
			for _, n := range []int64{-1, size} {
				err := r.FreePtr(b.Ptr(), n)
				require.Condition(t, func() bool {
					return errors.Is(err, cupool.ErrDoubleFree) || errors.Is(err, cupool.ErrForeignPointer)
				}, "%v", err)
				blockError(t, err, err.(*cupool.BlockError).Err, b.Ptr())
			}
		})
	}
	s := r.stream()
	b := r.alloc(9000, nil)
	require.NoError(t, r.FreeOn(b, s))
	blockError(t, r.Free(b), cupool.ErrDoubleFree, b.Ptr())
	r.free(guard)
	require.NoError(t, r.EmptyCache())
	blockError(t, r.Free(b), cupool.ErrDoubleFree, b.Ptr())
	blockError(t, r.FreePtr(b.Ptr(), -1), cupool.ErrForeignPointer, b.Ptr())
}

// testStaleHandle frees with handles whose memory has long been somebody
// else's.
func testStaleHandle(t *testing.T, e *env) {
	for _, size := range []int64{4096, 3 * mib} {
		r := e.rig(t)
		old := map[cupool.Ptr][]cupool.Block{}
		for range 20 {
			b := r.alloc(size, nil)
			for _, o := range old[b.Ptr()] {
				require.NotEqual(t, o, b, "a fresh handle equals a stale one")
				r.unchanged(func() {
					err := r.Free(o)
					blockError(t, err, cupool.ErrStaleBlock, o.Ptr())
					require.ErrorIs(t, err, cupool.ErrDoubleFree)
					blockError(t, r.RecordStream(o, r.DefaultStream()), cupool.ErrUseAfterFree, o.Ptr())
				})
			}
			got, err := r.Lookup(b.Ptr())
			require.NoError(t, err)
			require.Equal(t, b, got)
			old[b.Ptr()] = append(old[b.Ptr()], b)
			r.free(b)
		}
		// The same memory in other cuts.
		a, b := r.alloc(size/4, nil), r.alloc(size/4, nil)
		for _, list := range old {
			for _, o := range list {
				r.unchanged(func() { require.ErrorIs(t, r.Free(o), cupool.ErrDoubleFree) })
			}
		}
		r.free(a, b)
	}
}

func testWrongPointers(t *testing.T, e *env) {
	r := e.rig(t)
	warm(r, 5000)
	for _, size := range []int64{5000, 70000, 4 * mib} {
		b, next := r.alloc(size, nil), r.alloc(size, nil)
		r.unchanged(func() {
			for _, off := range []int64{1, 8, 511, 512, 4096, size / 2, size - 1} {
				p := b.Ptr() + cupool.Ptr(off)
				for _, n := range []int64{-1, 0, size, size - off} {
					blockError(t, r.FreePtr(p, n), cupool.ErrInteriorPointer, p)
				}
			}
			for _, n := range []int64{0, 1, size - 1, size + 1, 512, 1 << 40} {
				e := blockError(t, r.FreePtr(b.Ptr(), n), cupool.ErrSizeMismatch, b.Ptr())
				require.Equal(t, n, e.Size)
				require.Contains(t, e.Error(), fmt.Sprint(size))
			}
			for _, p := range []cupool.Ptr{1, 512, 4096, ^cupool.Ptr(0), ^cupool.Ptr(511), 1 << 62} {
				blockError(t, r.FreePtr(p, -1), cupool.ErrForeignPointer, p)
				blockError(t, r.FreePtr(p, size), cupool.ErrForeignPointer, p)
				_, err := r.Lookup(p)
				blockError(t, err, cupool.ErrForeignPointer, p)
			}
			require.ErrorIs(t, r.FreePtr(0, 5), cupool.ErrForeignPointer)
		})
		require.NoError(t, r.FreePtr(b.Ptr(), size))
		require.NoError(t, r.FreePtr(next.Ptr(), -1))
	}
}

func testUseAfterFree(t *testing.T, e *env) {
	r := e.rig(t)
	s := r.stream()
	warm(r, 5000)
	for _, size := range []int64{5000, 4 * mib} {
		b := r.alloc(size, nil)
		r.free(b)
		r.unchanged(func() {
			for _, on := range []*cupool.Stream{s, r.DefaultStream(), nil} {
				blockError(t, r.RecordStream(b, on), cupool.ErrUseAfterFree, b.Ptr())
				blockError(t, r.FreeOn(b, on), cupool.ErrUseAfterFree, b.Ptr())
			}
			for _, off := range []cupool.Ptr{0, 1, 600} {
				_, err := r.Lookup(b.Ptr() + off)
				blockError(t, err, cupool.ErrUseAfterFree, b.Ptr()+off)
			}
		})
	}
}

// testForeign gives an allocator another one's blocks, streams and events.
func testForeign(t *testing.T, e *env) {
	r, o := e.rig(t), e.rig(t)
	warm(r, 5000)
	warm(o, 5000)
	mine, other := r.alloc(5000, nil), o.alloc(5000, nil)
	s := o.stream()
	ev, err := s.Record()
	require.NoError(t, err)
	o.unchanged(func() {
		r.unchanged(func() {
			blockError(t, r.Free(other), cupool.ErrForeignPointer, other.Ptr())
			blockError(t, r.RecordStream(other, r.DefaultStream()), cupool.ErrForeignPointer, other.Ptr())
			blockError(t, r.RecordStream(mine, s), cupool.ErrForeignStream, mine.Ptr())
			blockError(t, r.FreeOn(mine, s), cupool.ErrForeignStream, mine.Ptr())
			blockError(t, r.FreeOn(other, s), cupool.ErrForeignStream, other.Ptr())
			for _, n := range []int64{0, 1, 5000, -1} {
				_, err := r.Alloc(n, s)
				require.ErrorIs(t, err, cupool.ErrForeignStream)
				require.ErrorIs(t, r.Reserve(n, s), cupool.ErrForeignStream)
			}
			err := r.DefaultStream().Wait(ev)
			if _, peers := r.Driver().(device.Peers); peers { // the other allocator's device is another one
				require.NoError(t, err)
			} else {
				require.ErrorIs(t, err, cupool.ErrForeignStream)
			}
		})
	})
	r.FreeLater(other) // is passed over
	_, err = r.ProcessDeferred()
	require.NoError(t, err)
	require.Equal(t, int64(1), o.Stats().All.Allocation.Current)
	require.NoError(t, ev.Close())
	r.free(mine)
	o.free(other)
}

// testConcurrentDoubleFree frees the same block from several goroutines, by
// handle and by address: exactly one of them succeeds.
func testConcurrentDoubleFree(t *testing.T, e *env) {
	const n = 4
	for _, recurring := range []bool{true, false} {
		r := e.rig(t)
		for round := range scaled(1500) {
			size := int64(5000)
			if !recurring {
				size = 5000 + int64(round)*512%mib
			}
			b := r.alloc(size, nil)
			var done atomic.Int32
			var wg sync.WaitGroup
			for g := range n {
				wg.Go(func() {
					var err error
					switch g {
					case 0:
						err = r.FreePtr(b.Ptr(), -1)
					case 1:
						err = r.FreePtr(b.Ptr(), b.Size())
					default:
						err = r.Free(b)
					}
					if err == nil {
						done.Add(1)
					} else if !errors.Is(err, cupool.ErrDoubleFree) && !errors.Is(err, cupool.ErrForeignPointer) {
						t.Errorf("double free: %v", err)
					}
				})
			}
			wg.Wait()
			require.EqualValues(t, 1, done.Load(), "round %d", round)
			if round%64 == 0 {
				require.NoError(t, r.Check())
			}
		}
		require.Zero(t, r.Stats().LiveBytes)
		r.flush()
		r.requireAllFree()
	}
}
