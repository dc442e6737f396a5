package devices_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/cuda"
	"github.com/cupool/cupool/devices"
	"github.com/cupool/cupool/internal/testkit/pooltest"
)

// TestPeers: work of every device touches the memory of every other one, unless
// the configuration says otherwise.
func TestPeers(t *testing.T) {
	for _, noPeers := range []bool{false, true} {
		s := opened(t, devices.Config{NoPeers: noPeers}, 3, "host:64MiB")
		require.Empty(t, s.Unreachable())
		for i, a := range s.Pools() {
			for j, b := range s.Pools() {
				x := pooltest.Alloc(t, b, 4096, nil)
				err := a.DefaultStream().Memset(x.Ptr(), 1, 4096)
				require.Equal(t, i == j || !noPeers, err == nil, "%d, %d: %v", i, j, err)
				require.NoError(t, s.FreeOn(x, a.DefaultStream()))
			}
		}
	}
}

// shareTest uses a pool of memory for all devices from a stream of each: blocks
// that are freed while a device still uses them wait for it.
func shareTest(t *testing.T, s *devices.Set, d cupool.Driver) {
	t.Helper()
	pool, err := s.Share(d, cupool.Config{})
	require.NoError(t, err)
	require.Contains(t, s.Shared(), pool)
	want := make([]byte, mib)
	for round := range 8 {
		for i, c := range s.Pools() {
			st := pooltest.NewStream(t, c)
			b := pooltest.Alloc(t, pool, mib, nil)
			at, err := s.Lookup(b.Ptr() + 1)
			require.NoError(t, err)
			require.Equal(t, devices.Found{Block: b, Pool: pool, Device: -1}, at)
			require.NoError(t, st.WaitStream(pool.DefaultStream()))
			far := pooltest.Alloc(t, c, mib, st)
			require.NoError(t, st.Memset(far.Ptr(), byte(round+i), mib))
			require.NoError(t, st.Copy(b.Ptr(), far.Ptr(), mib))
			require.NoError(t, s.Copy(far.Ptr(), b.Ptr(), mib, st, st))
			require.NoError(t, s.FreeOn(b, st))
			again := pooltest.Alloc(t, pool, mib, nil) // another one, unless st is done
			require.NoError(t, pool.DefaultStream().Memset(again.Ptr(), 99, mib))
			require.NoError(t, st.CopyOut(want, far.Ptr()))
			for k := 0; k < mib; k += 4093 {
				require.Equal(t, byte(round+i), want[k])
			}
			require.NoError(t, s.Free(again))
			require.NoError(t, s.Free(far))
		}
	}
	require.NoError(t, s.Sync())
}

func TestShare(t *testing.T) {
	s := hosts(t, 3)
	d, err := cupool.OpenHost(cupool.HostConfig{Capacity: 64 * mib})
	require.NoError(t, err)
	shareTest(t, s, d)
	pool := s.Shared()[0]

	st := pooltest.NewStream(t, s.Pool(1))
	release := hold(t, st)
	b := pooltest.Alloc(t, pool, mib, nil)
	require.NoError(t, s.FreeOn(b, st))
	require.Equal(t, int64(mib), pool.Stats().PendingBytes)
	require.Equal(t, int64(mib), s.Stats().Shared[0].PendingBytes)
	release()
	require.ErrorContains(t, s.Free(b), "shared memory, host (64 MiB)")

	require.NoError(t, s.Close())
	require.ErrorIs(t, pool.Err(), cupool.ErrClosed)
	requireClosedBut(t, s, d)
}

func TestShareErrors(t *testing.T) {
	f, all := faultyHosts(t, 3)
	s, err := devices.New(devices.Config{}, all[0], all[1])
	require.NoError(t, err)
	var wrong *cupool.ConfigError
	gpu := &faulty{Device: all[2].(*faulty).Device, faults: f, gpu: true}
	_, err = s.Share(gpu, cupool.Config{})
	require.ErrorAs(t, err, &wrong)
	_, err = s.Share(all[2], cupool.Config{Limit: -1})
	require.ErrorAs(t, err, &wrong)
	_, err = s.Share(all[1], cupool.Config{})
	require.ErrorAs(t, err, &wrong)
	require.ErrorContains(t, err, "has pool 1 of the set")
	f.left, f.err = map[string]int{"EnablePeer": 1}, cupool.ErrNotSupported
	_, err = s.Share(all[2], cupool.Config{})
	require.ErrorIs(t, err, cupool.ErrNotSupported)
	require.ErrorContains(t, err, "device 1")
	require.Empty(t, s.Shared())
	_, err = s.Share(all[2], cupool.Config{})
	require.NoError(t, err)
	require.NoError(t, s.Close())
}

// TestShareOnGPUs: pools of managed and of pinned memory serve streams of all GPUs.
func TestShareOnGPUs(t *testing.T) {
	for _, kind := range []cuda.MemoryKind{cuda.MemoryManaged, cuda.MemoryPinned} {
		t.Run(kind.String(), func(t *testing.T) {
			s := gpus(t, devices.Config{}, 1)
			d, err := cuda.Open(0, cuda.Memory(kind))
			require.NoError(t, err)
			shareTest(t, s, d)
			require.NoError(t, s.Close())
			require.NoError(t, d.Close())
		})
	}
	s := gpus(t, devices.Config{}, 1)
	var wrong *cupool.ConfigError
	_, err := s.Share(s.Pool(0).Driver(), cupool.Config{})
	require.ErrorAs(t, err, &wrong)
}
