package cupool_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/cuda"
	"github.com/cupool/cupool/internal/graphmem"
	"github.com/cupool/cupool/internal/tensorop/gpu"
	"github.com/cupool/cupool/internal/testkit"
	"github.com/cupool/cupool/internal/testkit/gputest"
)

func TestOpen(t *testing.T) {
	for name, want := range map[string]string{
		"host":        "host (16 GiB)",
		"":            "host (16 GiB)",
		"host:64MiB":  "host (64 MiB)",
		"host:4G":     "host (4 GiB)",
		"host:123456": "host (120.6 KiB)",
	} {
		d, err := cupool.Open(name)
		require.NoError(t, err, name)
		require.Equal(t, want, d.Name())
		require.True(t, d.HostAccessible())
		require.NoError(t, d.Close())
	}
	for _, name := range []string{"host:", "host:0", "host:-1", "host:x", "host:nan", "host:1e30", "host,managed", "cuda:x", "cuda:-1", "cuda:1.5", "cuda,shiny", "cuda:0,managed,pinned", "gpu", "hosts", " host", "cpu:0"} {
		_, err := cupool.Open(name)
		var ce *cupool.ConfigError
		require.ErrorAs(t, err, &ce, "%q", name)
		require.Equal(t, name, ce.Value)
		require.ErrorIs(t, err, cupool.ErrInvalidConfig)
	}
}

// TestOpenCUDA opens GPUs by name.
func TestOpenCUDA(t *testing.T) {
	gputest.Need(t)
	for name, want := range map[string]string{"cuda": "device memory", "cuda:0,managed": "managed memory", "cuda:0,pinned": "pinned memory"} {
		d, err := cupool.Open(name)
		require.NoError(t, err)
		require.Contains(t, d.Name(), want)
		require.NoError(t, d.Close())
	}
}

// TestCUDAComputes: a GPU with device memory has what Engine asks of it.
func TestCUDAComputes(t *testing.T) {
	gputest.Need(t)
	d, err := cuda.Open(0)
	require.NoError(t, err)
	defer d.Close()
	require.Implements(t, (*gpu.Device)(nil), d)
	require.Implements(t, (*graphmem.Device)(nil), d)
}

func TestOpenHost(t *testing.T) {
	_, err := cupool.OpenHost(cupool.HostConfig{Capacity: -1})
	require.ErrorIs(t, err, cupool.ErrInvalidConfig)
	d, err := cupool.OpenHost(cupool.HostConfig{Capacity: 1 << 20})
	require.NoError(t, err)
	free, total, err := d.MemInfo()
	require.NoError(t, err)
	require.EqualValues(t, 1<<20, free)
	require.EqualValues(t, 1<<20, total)
	require.NoError(t, d.Close())
	require.ErrorIs(t, d.Close(), cupool.ErrClosed)
}

// Package bytesize tests the grammar.
func TestParseBytes(t *testing.T) {
	got, err := cupool.ParseBytes("1.5 MiB")
	require.NoError(t, err)
	require.EqualValues(t, 3<<19, got)
	for s, reason := range map[string]string{"": "is not a number of bytes such as 4096", "-1": "is not a number", "1X": "is not a number", "9000000T": "is too large"} {
		_, err := cupool.ParseBytes(s)
		var ce *cupool.ConfigError
		require.ErrorAs(t, err, &ce, "%q", s)
		require.Equal(t, s, ce.Value)
		require.Contains(t, ce.Reason, reason)
	}
}

// FuzzOpen: whatever the name, the device opens or the error says what is wrong
// with it.
func FuzzOpen(f *testing.F) {
	for _, name := range []string{
		"", "host", "host:64MiB", "host:4611686018427387903", "host:9007199254740993", "host:", "host:0", "host:-1", "host,", "host,managed", "host:1,",
		"cuda:x", "cuda:-1", "cuda:99999999999999999999", "cuda,pinned,x", "gpu", " host", "host:1:2", "\x00", ":1K", ",",
	} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		var d cupool.Driver
		var err error
		if kind, _, _ := strings.Cut(name, ":"); strings.HasPrefix(kind, "cuda") {
			t.Skip("there may be one")
		}
		testkit.RequireAllocates(t, 1<<20, 16, len(name), func() {
			if d != nil { // a second measurement
				require.NoError(t, d.Close())
			}
			d, err = cupool.Open(name)
		})
		if err != nil {
			var ce *cupool.ConfigError
			require.ErrorAs(t, err, &ce)
			require.Equal(t, name, ce.Value)
			return
		}
		free, total, err := d.MemInfo()
		require.NoError(t, err)
		require.True(t, total > 0 && free == total)
		require.NoError(t, d.Close())
	})
}
