package cupool_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
)

func TestOpen(t *testing.T) {
	for name, want := range map[string]string{
		"host":        "host (16 GiB)",
		"":            "host (16 GiB)",
		"host:64MiB":  "host (64 MiB)",
		"host:4G":     "host (4 GiB)",
		"host:123456": "host (123456 bytes)",
	} {
		d, err := cupool.Open(name)
		require.NoError(t, err, name)
		require.Equal(t, want, d.Name())
		require.True(t, d.HostAccessible())
		require.NoError(t, d.Close())
	}
	for _, name := range []string{"host:", "host:0", "host:-1", "host:x", "host:nan", "host:1e30", "host,managed", "cuda:x", "cuda:-1", "cuda:1.5", "gpu", "hosts", " host", "cpu:0"} {
		_, err := cupool.Open(name)
		var ce *cupool.ConfigError
		require.ErrorAs(t, err, &ce, "%q", name)
		require.Equal(t, name, ce.Value)
		require.ErrorIs(t, err, cupool.ErrInvalidConfig)
	}
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

func TestParseBytes(t *testing.T) {
	for s, want := range map[string]int64{
		"0": 0, "1": 1, "4096": 4096, "512K": 512 << 10, "512k": 512 << 10, "512KB": 512 << 10, "512KiB": 512 << 10, "512kib": 512 << 10,
		"1.5M": 3 << 19, "2G": 2 << 30, "80GiB": 80 << 30, "80 GiB": 80 << 30, "1T": 1 << 40, "7B": 7, "0.25K": 256, "1e3": 1000,
		"4611686018427387392": 1<<62 - 512, "1.5T": 3 << 39,
	} {
		got, err := cupool.ParseBytes(s)
		require.NoError(t, err, s)
		require.Equal(t, want, got, s)
	}
	for _, s := range []string{"", "K", "MiB", "-1", "-1K", "x", "1X", "1KK", "4E", "1K2", "5BiB", "nan", "NaN", "inf", "-inf", "1e30", "4611686018427387904", "9000000T", "1 2", "0x", "--1"} {
		_, err := cupool.ParseBytes(s)
		var ce *cupool.ConfigError
		require.ErrorAs(t, err, &ce, "%q", s)
		require.Equal(t, s, ce.Value)
	}
}
