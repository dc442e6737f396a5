package cupool_test

import (
	"cmp"
	"errors"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/testkit"
	"github.com/cupool/cupool/internal/testkit/pooltest"
)

func TestTrim(t *testing.T) {
	// Cached: 10, 30 and 20 MiB; in use: 12 MiB and a small segment.
	const before = "a=10M b=30M c=20M@1 d=12M e=512 free:a free:b free:c"
	for name, tc := range map[string]struct {
		keep     string
		released int64
		sizes    []int64 // in the order in which they go, where some stay
		want     string
	}{
		"enough":         {"80M", 0, nil, "0 large: [Free 10M]; 0 large: [Free 30M]; 1 large: [Free 20M]; 0 large: [Live 12M]; 0 small: [Live 512][Free 2096640]"},
		"as much":        {"74M", 0, nil, "0 large: [Free 10M]; 0 large: [Free 30M]; 1 large: [Free 20M]; 0 large: [Live 12M]; 0 small: [Live 512][Free 2096640]"},
		"a byte less":    {"73M+1023K", 30 << 20, []int64{30 << 20}, "0 large: [Free 10M]; 1 large: [Free 20M]; 0 large: [Live 12M]; 0 small: [Live 512][Free 2096640]"},
		"two":            {"43M", 50 << 20, []int64{30 << 20, 20 << 20}, "0 large: [Free 10M]; 0 large: [Live 12M]; 0 small: [Live 512][Free 2096640]"},
		"all":            {"0", 60 << 20, []int64{30 << 20, 20 << 20, 10 << 20}, "0 large: [Live 12M]; 0 small: [Live 512][Free 2096640]"},
		"more than ever": {"1T", 0, nil, "0 large: [Free 10M]; 0 large: [Free 30M]; 1 large: [Free 20M]; 0 large: [Live 12M]; 0 small: [Live 512][Free 2096640]"},
	} {
		t.Run(name, func(t *testing.T) {
			c, d := pooltest.New(t, 1<<30)
			x := pooltest.NewScript(t, c, d).Run(before)
			n, err := c.Trim(pooltest.Size(t, tc.keep))
			require.NoError(t, err)
			require.Equal(t, tc.released, n)
			if tc.keep == "0" {
				slices.SortFunc(d.Freed, func(a, b int64) int { return cmp.Compare(b, a) })
			}
			require.Equal(t, tc.sizes, d.Freed)
			require.Equal(t, tc.want, x.Layout())
			require.NoError(t, c.Check())
		})
	}
}

// The free of a large block that had a place in the magazines is seen, too.
func TestSoftLimitOfMagazines(t *testing.T) {
	pooltest.Backings(t, 256*mib, func(t *testing.T, c *cupool.Pool) {
		b := pooltest.Alloc(t, c, 2*mib, nil)
		for range 40 {
			require.NoError(t, c.Free(b))
			b = pooltest.Alloc(t, c, 2*mib, nil)
		}
		require.NotZero(t, c.Stats().MagazineHits)
		require.NoError(t, c.SetSoftLimit(1))
		for range 40 {
			require.NoError(t, c.Free(b))
			require.Zero(t, c.Stats().All.ReservedBytes.Current)
			b = pooltest.Alloc(t, c, 2*mib, nil)
		}
		require.NoError(t, c.Free(b))
		p := pooltest.NewPrivate(t, c, cupool.PoolConfig{})
		require.NoError(t, p.SetSoftLimit(1))
		require.NoError(t, c.Free(pooltest.Alloc(t, p, 2*mib, nil)))
		require.Zero(t, p.Stats().All.ReservedBytes.Current, "whichever pool is asked to")
	})
}

// TestSoftLimitAfterWaits: what a call for all streams finds free goes back, too.
func TestSoftLimitAfterWaits(t *testing.T) {
	for name, wait := range map[string]func(c *cupool.Pool) error{
		"Sync":            (*cupool.Pool).Sync,
		"ProcessDeferred": func(c *cupool.Pool) error { return testkit.Second(c.ProcessDeferred()) },
	} {
		t.Run(name, func(t *testing.T) {
			c, d := pooltest.New(t, 1<<30)
			require.NoError(t, c.SetSoftLimit(1))
			pooltest.NewScript(t, c, d).Run("a=20M busy:1 free:a@1 idle:1")
			require.NotZero(t, c.Stats().PendingBytes)
			require.NoError(t, wait(c))
			require.Zero(t, c.Stats().All.ReservedBytes.Current)
		})
	}
}

// TestSoftLimitsAtOnce: of two soft limits that are set at once one holds, wholly.
func TestSoftLimitsAtOnce(t *testing.T) {
	c, _ := pooltest.New(t, 1<<30)
	for range testkit.Rounds(20000) {
		done := pooltest.Start(func() error { return c.SetSoftLimit(1) })
		require.NoError(t, c.SetSoftLimit(0))
		require.NoError(t, <-done)
		require.NoError(t, c.Free(pooltest.Alloc(t, c, 2*mib, nil)))
		require.Equal(t, c.Config().SoftLimit == 0, c.Stats().All.ReservedBytes.Current > 0)
	}
}

func TestTrimScripts(t *testing.T) {
	pooltest.RunScripts(t, map[string][2]string{
		"only wholly free segments":  {"a=2M b=2M free:a trim:0", "0 large: [Free 2M][Live 2M][Free 16M]"},
		"does not wait":              {"a=20M busy:1 free:a@1 trim:0", "0 large: [Pending 20M]"},
		"but sees what is done":      {"a=20M busy:1 free:a@1 idle:1 trim:0", ""},
		"empty cache waits":          {"a=20M busy:1 free:a@1 empty", ""},
		"and leaves what is live":    {"a=20M b=30M free:a empty", "0 large: [Live 30M]"},
		"the reserve goes on":        {"a=20M free:a empty b=20M", "0 large: [Live 20M]"},
		"reserve":                    {"reserve:30M a=30M", "0 large: [Live 30M]"},
		"reserve on a stream":        {"reserve:30M@1", "1 large: [Free 30M]"},
		"reserve what is there":      {"a=30M free:a reserve:30M", "0 large: [Free 30M]"},
		"reserve nothing":            {"reserve:0", ""},
		"reserved memory is trimmed": {"reserve:30M trim:0", ""},
	}, 1<<30)
	pooltest.RunScripts(t, map[string][2]string{
		"magazines are flushed":    {"a=1M free:a a=1M free:a a=1M free:a trim:0", ""},
		"also those of others":     {"a=1M@1 free:a a=1M@1 free:a a=1M@1 free:a empty", ""},
		"live ones do not go":      {"a=1M free:a a=1M free:a a=1M b=1M free:b trim:0", "0 small: [Live 1M][Free 1M]"},
		"and come home afterwards": {"a=1M free:a a=1M free:a a=1M trim:0 free:a a=1M free:a", "0 small: [Cached 1M][Free 1M]"},
	}, 1<<30, pooltest.WithMagazines)
}

// A device that is found to be lost while blocks wait is an error of Trim.
func TestTrimOfALostDevice(t *testing.T) {
	c, d := pooltest.New(t, 1<<30)
	s := pooltest.NewStream(t, c)
	d.Busy(s)
	require.NoError(t, c.FreeOn(pooltest.Alloc(t, c, 4*mib, nil), s))
	d.Fail("QueryEvent", cupool.ErrDeviceLost)
	_, err := c.Trim(0)
	require.ErrorIs(t, err, cupool.ErrDeviceLost)
}

func TestTrimErrors(t *testing.T) {
	c, d := pooltest.New(t, 1<<30)
	n, err := c.Trim(-1)
	require.ErrorIs(t, err, cupool.ErrInvalidSize)
	require.Zero(t, n)

	x := pooltest.NewScript(t, c, d).Run("a=20M b=30M free:a free:b")
	before := x.Layout()
	noLuck := errors.New("no luck")
	d.Fail("MemFree", noLuck)
	n, err = c.Trim(0)
	require.ErrorIs(t, err, noLuck)
	require.Zero(t, n)
	require.ErrorIs(t, c.EmptyCache(), noLuck)
	require.Equal(t, before, x.Layout(), "what the device refuses stays in the books")
	require.NoError(t, c.Check())
	x.Run("a=20M free:a")
	d.Fail("MemFree", nil)
	x.Run("empty")
	require.Empty(t, d.Mem)

	x.Run("a=20M busy:1 use:a@1 free:a")
	d.Fail("SyncEvent", noLuck)
	require.ErrorIs(t, c.EmptyCache(), noLuck)
	d.Fail("SyncEvent", nil)
	require.NoError(t, c.EmptyCache())

	require.NoError(t, c.Close())
	n, err = c.Trim(0)
	require.ErrorIs(t, err, cupool.ErrClosed)
	require.Zero(t, n)
	require.ErrorIs(t, c.EmptyCache(), cupool.ErrClosed)
	require.ErrorIs(t, c.Reserve(1, nil), cupool.ErrClosed)
}

func TestClose(t *testing.T) {
	c, d := pooltest.New(t, 1<<30, pooltest.WithMagazines)
	x := pooltest.NewScript(t, c, d)
	x.Run("a=512 free:a a=512 free:a a=512 free:a b=2M c=3M@1 busy:1 use:b@1 free:b free:c d=4M@2 close:2 free:d")
	require.NoError(t, c.Close())
	require.Empty(t, d.Mem, "all memory went back")
	require.Zero(t, d.Handles(), "and the streams and events")
	require.False(t, d.IsBusy(x.Stream("0")))
	require.Zero(t, d.Count("Close"), "the device is the caller's")
	require.Zero(t, c.Stats().All.ReservedBytes.Current)

	require.ErrorIs(t, c.Close(), cupool.ErrClosed)
	_, err := c.Alloc(512, nil)
	require.ErrorIs(t, err, cupool.ErrClosed)
	require.ErrorIs(t, c.Free(x.Block("a")), cupool.ErrClosed)
	require.ErrorIs(t, c.RecordStream(x.Block("a"), nil), cupool.ErrClosed)
	require.ErrorIs(t, x.Stream("1").Close(), cupool.ErrClosed)
	_, err = c.NewStream()
	require.ErrorIs(t, err, cupool.ErrClosed)
	_, err = c.AdoptStream(1)
	require.ErrorIs(t, err, cupool.ErrClosed)
}

func TestCloseReportsLeaks(t *testing.T) {
	c, d := pooltest.New(t, 1<<30, pooltest.WithMagazines)
	x := pooltest.NewScript(t, c, d).Run("a=1000 free:a a=1000 free:a a=1000 b=2M c=3M@1 d=4M free:d e=1000")
	err := c.Close()
	var leak *cupool.LeakError
	require.ErrorAs(t, err, &leak)
	require.Len(t, leak.Leaks, 4)
	require.EqualValues(t, 2000+5<<20, leak.Bytes)
	for i, name := range []string{"a", "e", "b", "c"} { // by address
		b := x.Block(name)
		require.Equal(t, b.Ptr(), leak.Leaks[i].Ptr)
		require.Equal(t, b.Size(), leak.Leaks[i].Size)
		require.Empty(t, leak.Leaks[i].Stack)
		require.ErrorIs(t, c.Free(b), cupool.ErrClosed)
	}
	require.Equal(t, x.Stream("1").Handle(), leak.Leaks[3].Stream)
	require.Empty(t, d.Mem, "their memory went back too")
}

func TestCloseJoinsErrors(t *testing.T) {
	c, d := pooltest.New(t, 1<<30)
	pooltest.NewScript(t, c, d).Run("a=2M b=512@1")
	calls := []string{"SyncStream", "MemFree", "DestroyStream"}
	for _, call := range calls {
		d.Fail(call, errors.New("no "+call))
	}
	err := c.Close()
	for _, call := range calls {
		require.ErrorContains(t, err, "no "+call)
	}
	var leak *cupool.LeakError
	require.ErrorAs(t, err, &leak)
}

// Close of an allocator that opened its own device closes that too.
func TestCloseOwnDevice(t *testing.T) {
	c := pooltest.Open(t, cupool.Config{})
	require.NoError(t, c.Close())
	_, _, err := c.Driver().MemInfo()
	require.ErrorIs(t, err, cupool.ErrClosed)
}

// A sampled block has its place in the magazines again when the program frees it, but not
// when Reset ends it: its memory goes.
func TestResetSamples(t *testing.T) {
	pooltest.Backings(t, 256*mib, func(t *testing.T, c *cupool.Pool) {
		for range 50 {
			for range 8 { // the size recurs
				b, err := c.Alloc(64<<10, nil)
				require.NoError(t, err)
				require.NoError(t, c.Free(b))
			}
			_, err := c.Alloc(64<<10, nil)
			require.NoError(t, err)
			require.NoError(t, c.Reset())
			require.NoError(t, c.Check())
			require.Zero(t, c.Stats().All.ReservedBytes.Current)
		}
	}, pooltest.WithMagazines, func(cfg *cupool.Config) { cfg.History = &cupool.History{SampleBytes: 256 << 10} })
}
