package devices_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/cuda"
	"github.com/cupool/cupool/devices"
	"github.com/cupool/cupool/internal/testkit"
	"github.com/cupool/cupool/internal/testkit/pooltest"
)

// TestCopyOrder copies from a device whose stream is busy: the copy waits, and the
// source is not used for anything else before it is done.
func TestCopyOrder(t *testing.T) {
	for _, noPeers := range []bool{false, true} {
		s := opened(t, devices.Config{NoPeers: noPeers}, 2, "host:64MiB")
		from, to := pooltest.NewStream(t, s.Pool(0)), pooltest.NewStream(t, s.Pool(1))
		src, dst := pooltest.Alloc(t, s.Pool(0), mib, from), pooltest.Alloc(t, s.Pool(1), mib, to)
		release := hold(t, from)
		require.NoError(t, from.Memset(src.Ptr(), 5, mib))
		require.NoError(t, s.Copy(dst.Ptr()+100, src.Ptr()+50, 1000, to, from))
		require.NoError(t, s.Free(src))
		again := pooltest.Alloc(t, s.Pool(0), mib, from) // the same memory, for later work
		require.Equal(t, src.Ptr(), again.Ptr())
		require.NoError(t, from.Memset(again.Ptr(), 9, mib))
		release()
		got := make([]byte, 1000)
		require.NoError(t, to.CopyOut(got, dst.Ptr()+100))
		require.Equal(t, bytes.Repeat([]byte{5}, 1000), got)
		require.NoError(t, s.Free(dst))
		require.NoError(t, s.Free(again))
	}
}

// TestCopyStreams copies on streams other than those of the blocks, and frees at
// once.
func TestCopyStreams(t *testing.T) {
	s := hosts(t, 3)
	src, dst := pooltest.Alloc(t, s.Pool(0), mib, nil), pooltest.Alloc(t, s.Pool(1), mib, nil)
	require.NoError(t, s.Pool(0).DefaultStream().Memset(src.Ptr(), 3, mib))
	from, to := pooltest.NewStream(t, s.Pool(0)), pooltest.NewStream(t, s.Pool(2))
	require.NoError(t, from.WaitStream(nil))
	release := hold(t, to)
	require.NoError(t, s.Copy(dst.Ptr(), src.Ptr(), mib, to, from))
	require.NoError(t, s.Free(src))
	require.NoError(t, s.Free(dst))
	for i := range 2 {
		require.Equal(t, int64(mib), s.Pool(i).Stats().PendingBytes, "device %d", i)
	}
	release()
	require.NoError(t, s.Sync())
	st := s.Stats()
	require.Zero(t, st.Sum.PendingBytes)
	require.Zero(t, st.Sum.LiveBytes)
}

func TestCopyErrors(t *testing.T) {
	s, other := hosts(t, 2), hosts(t, 1)
	a, b, c := pooltest.Alloc(t, s.Pool(0), 4096, nil), pooltest.Alloc(t, s.Pool(1), 4096, nil), pooltest.Alloc(t, other.Pool(0), 4096, nil)
	closed := pooltest.NewStream(t, s.Pool(1))
	require.NoError(t, closed.Close())
	is := func(err, reason error) {
		t.Helper()
		require.ErrorIs(t, err, reason)
	}
	is(s.Copy(a.Ptr(), c.Ptr(), 1, nil, nil), cupool.ErrForeignPointer)
	is(s.Copy(c.Ptr(), a.Ptr(), 1, nil, nil), cupool.ErrForeignPointer)
	is(s.Copy(a.Ptr(), b.Ptr(), 1, other.Pool(0).DefaultStream(), nil), cupool.ErrForeignStream)
	is(s.Copy(a.Ptr(), b.Ptr(), 1, nil, other.Pool(0).DefaultStream()), cupool.ErrForeignStream)
	is(s.Copy(a.Ptr(), b.Ptr(), 4097, nil, nil), cupool.ErrInvalidRange)
	is(s.Copy(a.Ptr()+4095, b.Ptr(), 2, nil, nil), cupool.ErrInvalidRange)
	is(s.Copy(a.Ptr(), b.Ptr()+1, 4096, nil, nil), cupool.ErrInvalidRange)
	is(s.Copy(a.Ptr(), b.Ptr(), -1, nil, nil), cupool.ErrInvalidRange)
	is(s.Copy(a.Ptr()+1, b.Ptr()+1, 1<<63-1, nil, nil), cupool.ErrInvalidRange)
	is(s.Copy(a.Ptr(), b.Ptr(), 1, closed, nil), cupool.ErrClosed)
	is(s.Copy(a.Ptr(), b.Ptr(), 1, nil, closed), cupool.ErrClosed)
	require.NoError(t, s.Copy(0, 0, 0, nil, nil))
	require.NoError(t, s.Free(a))
	is(s.Copy(a.Ptr(), b.Ptr(), 1, nil, nil), cupool.ErrUseAfterFree)
	require.NoError(t, s.Free(b))
	require.NoError(t, other.Free(c))
}

// TestRandom sends data around devices from many goroutines, which share streams. Every
// block is freed as soon as it was copied. The data has to arrive. Where there is one
// GPU only, it has two pools.
func TestRandom(t *testing.T) {
	sets := map[string]func(t *testing.T) *devices.Set{"hosts": func(t *testing.T) *devices.Set { return hosts(t, 4) }}
	for name, pool := range backings {
		for _, noPeers := range []bool{false, true} {
			sets[fmt.Sprintf("GPUs, %s, no peers %v", name, noPeers)] = func(t *testing.T) *devices.Set {
				cfg := devices.Config{Pool: pool, NoPeers: noPeers}
				s := gpus(t, cfg, 1)
				if s.Len() == 1 {
					s = twice(t, cfg)
				}
				for _, p := range s.Unreachable() {
					t.Logf("%d does not reach %d: %v", p.From, p.To, p.Err)
				}
				return s
			}
		}
	}
	for name, open := range sets {
		t.Run(name, func(t *testing.T) {
			seed := uint64(time.Now().UnixNano())
			t.Logf("seed %d", seed)
			testRandom(t, open(t), seed, 8, testkit.Rounds(300))
		})
	}
}

// twice returns a set with two pools of a GPU.
func twice(t *testing.T, cfg devices.Config) *devices.Set {
	a, b := testkit.Must(cuda.Open(0)), testkit.Must(cuda.Open(0))
	s := testkit.Must(devices.New(cfg, a, b))
	t.Cleanup(func() { require.NoError(t, errors.Join(s.Close(), a.Close(), b.Close())) })
	return s
}

func testRandom(t *testing.T, s *devices.Set, seed uint64, goroutines, rounds int) {
	var streams [][]*cupool.Stream
	for _, c := range s.Pools() {
		streams = append(streams, []*cupool.Stream{c.DefaultStream(), pooltest.NewStream(t, c), pooltest.NewStream(t, c)})
	}
	var wg sync.WaitGroup
	errs := make(chan error, goroutines)
	for g := range goroutines {
		wg.Add(1)
		go func() {
			defer wg.Done()
			r := traveller{set: s, streams: streams, rng: rand.New(rand.NewPCG(seed, uint64(g)))}
			for range rounds {
				if err := r.round(); err != nil {
					errs <- err
					return
				}
			}
		}()
	}
	wg.Wait()
	close(errs)
	for err := range errs {
		require.NoError(t, err, "seed %d", seed)
	}
	require.NoError(t, s.Sync())
	for _, c := range s.Pools() {
		require.NoError(t, c.Check())
	}
	st := s.Stats()
	require.Zero(t, st.Sum.LiveBytes)
}
