package devices_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/devices"
	"github.com/cupool/cupool/internal/cudalibs"
	"github.com/cupool/cupool/internal/testkit"
	"github.com/cupool/cupool/internal/testkit/pooltest"
)

const mib = 1 << 20

// hosts opens a set of host devices, which the test closes at its end.
func hosts(t testing.TB, n int) *devices.Set {
	t.Helper()
	return opened(t, devices.Config{}, n, "host:64MiB")
}

func opened(t testing.TB, cfg devices.Config, n int, name string) *devices.Set {
	t.Helper()
	var names []string
	for range n {
		names = append(names, name)
	}
	s, err := devices.Open(cfg, names...)
	require.NoError(t, err)
	t.Cleanup(func() {
		for _, c := range append(s.Pools(), s.Shared()...) {
			if c.Err() == nil {
				require.NoError(t, c.Check())
			}
		}
		if err := s.Close(); !errors.Is(err, cupool.ErrClosed) {
			require.NoError(t, err)
		}
	})
	return s
}

// hold keeps a stream busy until the returned function is called.
func hold(t testing.TB, s *cupool.Stream) (release func()) {
	t.Helper()
	gate := make(chan struct{})
	require.NoError(t, s.Launch(func() { <-gate }))
	open := true
	release = func() {
		if open {
			open = false
			close(gate)
		}
	}
	t.Cleanup(release)
	return release
}

func TestOpen(t *testing.T) {
	s := opened(t, devices.Config{
		Pool: cupool.Config{Limit: 10 * mib},
		Each: func(i int, pool *cupool.Config) {
			pool.Limit += int64(i) * mib
			require.Equal(t, "host (64 MiB)", pool.Driver.Name())
			pool.Driver = nil // it stays
		},
	}, 3, "host:64MiB")
	require.Equal(t, 3, s.Len())
	require.Empty(t, s.Unreachable())
	require.Empty(t, s.Shared())
	for i, c := range s.Pools() {
		require.Same(t, s.Pool(i), c)
		require.Equal(t, "host (64 MiB)", c.Driver().Name())
		require.Equal(t, int64(10+i)*mib, c.Config().Limit)
	}
}

// TestOpenAllOfNone: without a GPU, or a driver, there is nothing to open.
func TestOpenAllOfNone(t *testing.T) {
	for name, env := range map[string]map[string]string{
		"GPU":    {"CUDA_VISIBLE_DEVICES": "-1", "FAKECUDA_DEVICES": "0"},
		"driver": {cudalibs.Driver: "/nowhere"},
	} {
		t.Run(name, func(t *testing.T) {
			for k, v := range env {
				t.Setenv(k, v)
			}
			if testkit.InChild(t) {
				_, err := devices.OpenAll(devices.Config{})
				require.ErrorIs(t, err, cupool.ErrNotSupported)
			}
		})
	}
}

func TestOpenErrors(t *testing.T) {
	d, err := cupool.OpenHost(cupool.HostConfig{Capacity: mib})
	require.NoError(t, err)
	second, err := cupool.OpenHost(cupool.HostConfig{Capacity: mib})
	require.NoError(t, err)
	var wrong *cupool.ConfigError
	for name, open := range map[string]func() (*devices.Set, error){
		"no device":   func() (*devices.Set, error) { return devices.Open(devices.Config{}) },
		"name":        func() (*devices.Set, error) { return devices.Open(devices.Config{}, "host:1MiB", "hose") },
		"pool":        func() (*devices.Set, error) { return devices.New(devices.Config{Pool: cupool.Config{Limit: -1}}, d) },
		"driver":      func() (*devices.Set, error) { return devices.New(devices.Config{Pool: cupool.Config{Driver: d}}, d) },
		"second pool": func() (*devices.Set, error) { return devices.New(devices.Config{Each: breakSecond}, d, second) },
		"twice":       func() (*devices.Set, error) { return devices.New(devices.Config{}, d, second, d) },
	} {
		s, err := open()
		require.ErrorAs(t, err, &wrong, name)
		require.Nil(t, s)
	}
	require.NoError(t, errors.Join(d.Close(), second.Close()))
	_, err = devices.New(devices.Config{Pool: cupool.Config{Fraction: 0.5}}, d)
	require.ErrorIs(t, err, cupool.ErrClosed)
}

func breakSecond(i int, pool *cupool.Config) {
	if i == 1 {
		pool.MinSplit = -1
	}
}

func TestClose(t *testing.T) {
	s := hosts(t, 2)
	b := pooltest.Alloc(t, s.Pool(1), mib, nil)
	err := s.Close()
	var leak *cupool.LeakError
	require.ErrorAs(t, err, &leak)
	require.Equal(t, b.Ptr(), leak.Leaks[0].Ptr)
	require.ErrorContains(t, err, "device 1, host (64 MiB)")
	require.ErrorIs(t, s.Close(), cupool.ErrClosed)
	for _, c := range s.Pools() {
		_, _, err := c.Driver().MemInfo()
		require.ErrorIs(t, err, cupool.ErrClosed)
	}
	_, err = s.Lookup(b.Ptr())
	require.ErrorIs(t, err, cupool.ErrClosed)

	d, err := cupool.OpenHost(cupool.HostConfig{Capacity: mib})
	require.NoError(t, err)
	s, err = devices.New(devices.Config{}, d)
	require.NoError(t, err)
	require.NoError(t, s.Close())
	require.ErrorIs(t, s.Close(), cupool.ErrClosed)
	requireClosedBut(t, s, d)
}

// requireClosedBut checks that a set is closed, and that a device of the program's is not.
func requireClosedBut(t *testing.T, s *devices.Set, d cupool.Driver) {
	t.Helper()
	_, _, err := d.MemInfo()
	require.NoError(t, err, "the device is the program's")
	_, err = s.Share(d, cupool.Config{})
	require.ErrorIs(t, err, cupool.ErrClosed)
	require.NoError(t, d.Close())
}

// TestCloseLate closes a set while work of one device is not done.
func TestCloseLate(t *testing.T) {
	s := opened(t, devices.Config{Pool: cupool.Config{WaitTimeout: 1}}, 3, "host:64MiB")
	st := pooltest.NewStream(t, s.Pool(1))
	release := hold(t, st)
	var late *cupool.WaitError
	require.ErrorAs(t, s.Sync(), &late)
	require.ErrorAs(t, s.Close(), &late)
	require.Equal(t, st.Handle(), late.Stream)
	for _, c := range s.Pools() {
		require.NoError(t, c.Err(), "no pool is closed before all work is done")
	}
	release()
	for errors.As(s.Sync(), &late) { // the timeout is shorter than any work
	}
	for err := s.Close(); err != nil; err = s.Close() {
		require.ErrorAs(t, err, &late)
	}
	require.ErrorIs(t, s.Close(), cupool.ErrClosed)
}

// TestCloseHeld: a set one of whose pools has a block that is held stays open until that is
// released.
func TestCloseHeld(t *testing.T) {
	s := hosts(t, 2)
	b := pooltest.Alloc(t, s.Pool(1), mib, nil)
	release, err := s.Pool(1).Hold(b)
	require.NoError(t, err)
	for range 2 {
		require.ErrorIs(t, s.Close(), cupool.ErrNotSupported)
		require.NoError(t, s.Pool(1).Err())
	}
	release()
	require.NoError(t, s.Free(b))
	require.NoError(t, s.Close())
	require.ErrorIs(t, s.Close(), cupool.ErrClosed)
}

// TestCloseOrder closes a set while one device works on another one's memory.
func TestCloseOrder(t *testing.T) {
	for i := range 2 {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			s := hosts(t, 2)
			a, st := s.Pool(i), pooltest.NewStream(t, s.Pool(1-i))
			b := pooltest.Alloc(t, a, 8*mib, nil)
			for range 16 {
				require.NoError(t, st.Memset(b.Ptr(), 7, 8*mib))
			}
			require.NoError(t, s.FreeOn(b, st))
			require.NoError(t, s.Close())
		})
	}
}
