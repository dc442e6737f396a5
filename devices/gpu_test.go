package devices_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/cuda"
	"github.com/cupool/cupool/devices"
	"github.com/cupool/cupool/internal/fakecuda"
	"github.com/cupool/cupool/internal/testkit"
	"github.com/cupool/cupool/internal/testkit/gputest"
	"github.com/cupool/cupool/internal/testkit/pooltest"
)

// These tests run on whatever CUDA driver is loaded: the stand-in of
// internal/fakecuda or a computer's GPUs, as many as there are.

var backings = map[string]cupool.Config{
	"segments": {Backing: cupool.BackingSegments},
	"virtual":  {Backing: cupool.BackingVMM},
}

// gpus opens all GPUs, of which there have to be some.
func gpus(t *testing.T, cfg devices.Config, atLeast int) *devices.Set {
	t.Helper()
	s, err := devices.OpenAll(cfg)
	gputest.NoError(t, err)
	t.Cleanup(func() {
		if s.Pool(0).Err() == nil {
			require.NoError(t, s.Close())
		}
	})
	if s.Len() < atLeast {
		t.Skipf("needs %d GPUs", atLeast)
	}
	return s
}

// TestOpenTwice: Open takes a GPU once, whatever it is called.
func TestOpenTwice(t *testing.T) {
	gpus(t, devices.Config{}, 1)
	var wrong *cupool.ConfigError
	for _, names := range [][]string{{"cuda:0", "cuda:0"}, {"cuda", "host:1MiB", "cuda:0"}, {"cuda:0,pinned", "cuda:0", "cuda:0,pinned"}} {
		_, err := devices.Open(devices.Config{}, names...)
		require.ErrorAs(t, err, &wrong, names)
		require.ErrorContains(t, err, "is names[0] again", names)
	}
}

// kernels loads the test's kernels on every device of a set.
func kernels(t *testing.T, s *devices.Set) (all []*gputest.Kernels) {
	t.Helper()
	for _, c := range s.Pools() {
		k, err := gputest.Load(c.Driver().(cuda.Driver).Context())
		require.NoError(t, err)
		t.Cleanup(func() { _ = k.Close() })
		all = append(all, k)
	}
	return all
}

// TestGPUKernels: kernels of every GPU fill and check blocks of every other one,
// whose memory is freed behind them and used again.
func TestGPUKernels(t *testing.T) {
	for name, pool := range backings {
		t.Run(name, func(t *testing.T) {
			s := gpus(t, devices.Config{Pool: pool}, 2)
			if len(s.Unreachable()) > 0 {
				t.Skip(s.Unreachable()[0].Err)
			}
			ks := kernels(t, s)
			const size = 4 * mib
			value, checks := uint32(0), 0
			wrong := make([]cupool.Block, s.Len()) // counts of wrong words, by device
			for i, c := range s.Pools() {
				wrong[i] = pooltest.Alloc(t, c, 512, nil)
				require.NoError(t, c.DefaultStream().Memset(wrong[i].Ptr(), 0, 512))
			}
			for range testkit.Rounds(32) {
				for i, c := range s.Pools() {
					for j, k := range ks {
						value++
						checks++
						own, far := c.DefaultStream(), s.Pool(j).DefaultStream()
						b := pooltest.Alloc(t, c, size, own)
						require.NoError(t, ks[i].Fill(uintptr(own.Handle()), uintptr(b.Ptr()), size, value))
						if i != j {
							require.NoError(t, far.WaitStream(own))
						}
						require.NoError(t, k.Check(uintptr(far.Handle()), uintptr(b.Ptr()), size, value, uintptr(wrong[j].Ptr())))
						require.NoError(t, k.Fill(uintptr(far.Handle()), uintptr(b.Ptr()), size, value+1))
						require.NoError(t, s.FreeOn(b, far))
					}
				}
			}
			for i, c := range s.Pools() {
				got := make([]byte, 4)
				require.NoError(t, c.DefaultStream().CopyOut(got, wrong[i].Ptr()))
				require.Equal(t, make([]byte, 4), got, "device %d, %d checks in all", i, checks)
				require.NoError(t, s.Free(wrong[i]))
			}
		})
	}
}

// TestGPUReach: kernels of every GPU reach what a pool of another one maps before the
// set is opened and later, as it grows, is trimmed, and sleeps and wakes.
func TestGPUReach(t *testing.T) {
	unit := int64(16 * mib)
	if fakecuda.Loaded() { // its kernels run on the CPU
		unit = mib
	}
	for name, pool := range backings {
		t.Run(name, func(t *testing.T) {
			s := gpus(t, devices.Config{Pool: withInitial(pool)}, 2)
			if len(s.Unreachable()) > 0 {
				t.Skip(s.Unreachable()[0].Err)
			}
			ks := kernels(t, s)
			value := uint32(0)
			// reached fills blocks of a GPU by kernels of another, and checks them by its own.
			reached := func(i, j int, when string, blocks ...cupool.Block) {
				t.Helper()
				own, far := s.Pool(i).DefaultStream(), s.Pool(j).DefaultStream()
				wrong := pooltest.Alloc(t, s.Pool(i), 512, own)
				require.NoError(t, own.Memset(wrong.Ptr(), 0, 512))
				require.NoError(t, far.WaitStream(own))
				for _, b := range blocks {
					value++
					require.NoError(t, ks[j].Fill(uintptr(far.Handle()), uintptr(b.Ptr()), b.Size(), value), when)
					require.NoError(t, own.WaitStream(far))
					require.NoError(t, ks[i].Check(uintptr(own.Handle()), uintptr(b.Ptr()), b.Size(), value, uintptr(wrong.Ptr())))
				}
				got := make([]byte, 4)
				require.NoError(t, own.CopyOut(got, wrong.Ptr()), when)
				require.Equal(t, make([]byte, 4), got, "device %d on memory of %d, %s", j, i, when)
				require.NoError(t, s.Free(wrong))
			}
			for i, c := range s.Pools() {
				for j := range ks {
					if i == j {
						continue
					}
					first := pooltest.Alloc(t, c, mib/2, nil)
					reached(i, j, "mapped before", first)
					var grown []cupool.Block
					for size := 2 * unit; size <= 16*unit; size *= 2 {
						grown = append(grown, pooltest.Alloc(t, c, size, nil))
					}
					reached(i, j, "grown", append(grown, first)...)
					for k, b := range grown {
						if k%2 == 0 {
							require.NoError(t, s.FreeOn(b, s.Pool(j).DefaultStream()))
						}
					}
					require.NoError(t, s.Sync())
					_, err := c.Trim(0)
					require.NoError(t, err)
					reached(i, j, "trimmed", grown[1], grown[3], first)
					again := pooltest.Alloc(t, c, 12*unit, nil)
					reached(i, j, "grown again", again, grown[1])
					if err := c.Sleep(nil); pool.Backing == cupool.BackingVMM {
						require.NoError(t, err)
						require.NoError(t, c.Wake())
						reached(i, j, "woken", again, grown[1], grown[3], first)
					} else {
						require.ErrorIs(t, err, cupool.ErrNotSupported)
					}
					for _, b := range []cupool.Block{again, grown[1], grown[3], first} {
						require.NoError(t, s.Free(b))
					}
					require.NoError(t, c.EmptyCache())
				}
			}
		})
	}
}

// TestGPUEight sends data around eight GPUs, of which some do not reach each other.
func TestGPUEight(t *testing.T) {
	if !fakecuda.Loaded() {
		t.Skip("needs the stand-in driver")
	}
	t.Setenv("FAKECUDA_DEVICES", "8")
	t.Setenv("FAKECUDA_NO_PEER", "0-7,3-4")
	s := gpus(t, devices.Config{}, 8)
	require.Len(t, s.Unreachable(), 4)
	for _, p := range s.Unreachable() {
		require.ErrorIs(t, p.Err, cupool.ErrNotSupported)
		require.ErrorContains(t, p.Err, fmt.Sprintf("work of cuda:%d on memory of cuda:%d", p.From, p.To))
	}
	testRandom(t, s, uint64(time.Now().UnixNano()), 8, testkit.Rounds(80))
}

// TestGPUCapture: nothing of another device becomes part of a capture, where it would stay
// and take what comes after it along.
func TestGPUCapture(t *testing.T) {
	s := gpus(t, devices.Config{}, 2)
	captured, other := pooltest.NewStream(t, s.Pool(0)), pooltest.NewStream(t, s.Pool(0))
	e, err := cupool.NewEngine(s.Pool(0), cupool.WithStream(captured))
	require.NoError(t, err)
	mine, theirs := pooltest.Alloc(t, s.Pool(0), 1000, nil), pooltest.Alloc(t, s.Pool(1), 1000, nil)
	g, err := e.Capture(func() error {
		require.ErrorIs(t, s.RecordStream(theirs, captured), cupool.ErrNotSupported)
		require.ErrorIs(t, s.FreeOn(theirs, captured), cupool.ErrNotSupported)
		require.NoError(t, s.RecordStream(theirs, other))
		require.NoError(t, s.RecordStream(mine, captured), "of its own device")
		require.ErrorIs(t, s.Copy(theirs.Ptr(), mine.Ptr(), 1000, nil, captured), cupool.ErrNotSupported)
		require.ErrorIs(t, s.Copy(mine.Ptr(), theirs.Ptr(), 1000, captured, nil), cupool.ErrNotSupported)
		return nil
	})
	require.NoError(t, err)
	require.NoError(t, g.Close())
	require.NoError(t, s.FreeOn(theirs, captured))
	require.NoError(t, s.Free(mine))
	require.NoError(t, s.Sync())
	require.Zero(t, s.Stats().Sum.PendingBytes)
}

// TestGPUFailures makes calls of CUDA fail while a set is opened and while it
// copies: nothing stays behind.
func TestGPUFailures(t *testing.T) {
	if !fakecuda.Loaded() {
		t.Skip("needs the stand-in driver")
	}
	t.Cleanup(fakecuda.Reset)
	for name, pool := range backings {
		for _, call := range []string{"cuCtxEnablePeerAccess", "cuMemSetAccess"} {
			if name == "segments" && call == "cuMemSetAccess" {
				continue
			}
			fakecuda.Reset()
			fakecuda.Fail(call, 1, 999, 1)
			_, err := devices.OpenAll(devices.Config{Pool: withInitial(pool)})
			require.ErrorContains(t, err, call, name)
		}
		for _, call := range []string{"cuMemcpyPeerAsync", "cuEventRecord", "cuStreamWaitEvent"} {
			fakecuda.Reset()
			s := gpus(t, devices.Config{Pool: pool}, 2)
			src, dst := pooltest.Alloc(t, s.Pool(0), mib, nil), pooltest.Alloc(t, s.Pool(1), mib, nil)
			fakecuda.Fail(call, 1, 999, 1)
			require.ErrorContains(t, s.Copy(dst.Ptr(), src.Ptr(), mib, nil, nil), call, name)
			require.NoError(t, s.Copy(dst.Ptr(), src.Ptr(), mib, nil, nil))
			require.NoError(t, s.Free(src))
			require.NoError(t, s.Free(dst))
			require.NoError(t, s.Close())
		}
	}
}

func withInitial(c cupool.Config) cupool.Config {
	c.InitialSize = mib
	return c
}

// TestGPUAndHost: devices of different kinds cannot wait for each other.
func TestGPUAndHost(t *testing.T) {
	gputest.Need(t)
	s, err := devices.Open(devices.Config{}, "cuda:0", "host:64MiB")
	require.NoError(t, err)
	require.Len(t, s.Unreachable(), 2)
	a, b := pooltest.Alloc(t, s.Pool(0), 1000, nil), pooltest.Alloc(t, s.Pool(1), 1000, nil)
	require.ErrorIs(t, s.Copy(a.Ptr(), b.Ptr(), 1000, nil, nil), cupool.ErrNotSupported)
	require.ErrorIs(t, s.FreeOn(a, s.Pool(1).DefaultStream()), cupool.ErrNotSupported)
	require.NoError(t, s.Free(a))
	require.NoError(t, s.Free(b))
	require.NoError(t, s.Close())
}
