package limits_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/simdev"
	"github.com/cupool/cupool/internal/testkit/pooltest"
)

// Whose memory serves a miss, before the device is asked.
func TestStranded(t *testing.T) {
	pooltest.RunScripts(t, map[string][2]string{
		"an idle stream's, beyond what ever was":  {"a=100M@1 free:a b=100M", "0 large: [Live 100M]"},
		"the smallest that serves":                {"a=100M@1 b=60M@1 c=80M@1 free:a free:b free:c d=59M", "1 large: [Free 100M]; 0 large: [Live 60M]; 1 large: [Free 80M]"},
		"none that is much larger than a new one": {"a=100M@1 free:a b=30M", "1 large: [Free 100M]; 0 large: [Live 30M]"},
		"not a stream's with work under way":      {"a=100M@1 busy:1 free:a b=100M", "1 large: [Free 100M]; 0 large: [Live 100M]"},
		"but when that is over":                   {"a=100M@1 busy:1 free:a idle:1 b=100M", "0 large: [Live 100M]"},
		"not while it is little":                  {"a=20M@1 free:a b=20M", "1 large: [Free 20M]; 0 large: [Live 20M]"},
		"not below what once was":                 {"a=100M@1 b=100M@2 free:a free:b trim:100M a=100M@3", "3 large: [Live 100M]; 2 large: [Free 100M]"},
		"not of the other sort":                   {"a=512@1 b=100M free:a c=2M@2", "1 small: [Free 2M]; 0 large: [Live 100M]; 2 large: [Live 2M][Free 18M]"},
		"not what is partly in use":               {"a=8M@1 b=2M@1 c=100M free:a d=8M@2", "1 large: [Free 8M][Live 2M][Free 10M]; 0 large: [Live 100M]; 2 large: [Live 8M][Free 12M]"},
		"nor what other streams still use":        {"a=100M@1 busy:2 free:a@2 b=100M", "1 large: [Pending 100M]; 0 large: [Live 100M]"},
		"a closed stream's, however little":       {"a=20M@1 free:a close:1 b=20M@2", "2 large: [Live 20M]"},
		"also when it is larger than a new one":   {"a=40M@1 free:a close:1 b=20M@2", "2 large: [Live 20M][Free 20M]"},
		"it does not wait for others' work":       {"a=20M@1 busy:2 free:a close:1 b=20M@3", "3 large: [Live 20M]"},
		"what it holds live goes to the default":  {"a=20M@1 b=20M@1 free:a close:1 c=20M@2 free:b", "2 large: [Live 20M]; 0 large: [Free 20M]"},
		"one segment to each that misses":         {"a=20M@1 b=20M@1 free:a free:b close:1 c=20M@2 d=20M@3", "2 large: [Live 20M]; 3 large: [Live 20M]"},
		"trimming gives back what nobody took":    {"a=20M@1 free:a close:1 trim:0 b=20M", "0 large: [Live 20M]"},
		"and so does emptying the cache":          {"a=20M@1 free:a close:1 empty", ""},
		"closing a stream that has nothing":       {"busy:1 idle:1 close:1 a=20M", "0 large: [Live 20M]"},
		"the estate of one that took over others": {"a=20M@1 free:a close:1 b=20M@2 free:b close:2 c=20M@3", "3 large: [Live 20M]"},
	}, 1<<30)
}

// The books of what changes hands.
func TestStrandedStats(t *testing.T) {
	c, d := pooltest.New(t, 1<<30)
	x := pooltest.NewScript(t, c, d).Run("a=100M@1 free:a b=100M@2 free:b c=100M@3")
	st := c.Stats()
	require.EqualValues(t, 2, st.Moves)
	require.EqualValues(t, 200*pooltest.MiB, st.MovedBytes)
	require.EqualValues(t, 1, st.DriverAllocs)
	require.EqualValues(t, 2, st.Hits)
	require.EqualValues(t, 100*pooltest.MiB, st.All.ReservedBytes.Allocated, "it came from the device once")
	x.Run("free:c")
}

// Peaks go on to rise after memory changed hands.
func TestPeaksAfterMoves(t *testing.T) {
	c, d := pooltest.New(t, 1<<30)
	x := pooltest.NewScript(t, c, d)
	for _, op := range strings.Fields("a=100M@1 free:a b=100M@2 c=2M@1 close:1") { // the first to the second, then to the default
		require.NoError(t, x.Do(op))
	}
	require.EqualValues(t, 1, c.Stats().Moves)
	c.ResetPeak()
	for _, op := range strings.Fields("d=40M e=40M@2 free:d free:e") { // nobody looks in between
		require.NoError(t, x.Do(op))
	}
	require.EqualValues(t, 182*pooltest.MiB, c.Stats().All.RequestedBytes.Peak)
}

// While chunks go from one stream to another, no peak is of what both seem to have.
func TestPeaksWhileChunksMove(t *testing.T) {
	c := pooltest.Open(t, cupool.Config{Driver: simdev.New(simdev.Config{}), Backing: cupool.BackingVMM, MagazineBytes: -1})
	s := pooltest.NewStream(t, c)
	kept := []cupool.Block{pooltest.Alloc(t, c, 2*pooltest.MiB, s), pooltest.Alloc(t, c, 2*pooltest.MiB, nil)} // so that what is free beside them counts
	require.NoError(t, c.Free(pooltest.Alloc(t, c, 60*pooltest.MiB, s)))
	require.NoError(t, c.Free(pooltest.Alloc(t, c, 20*pooltest.MiB, nil)))
	require.EqualValues(t, 60*pooltest.MiB, c.Stats().All.InactiveSplitBytes.Peak, "20 MiB were taken")
	require.NoError(t, c.Free(pooltest.Alloc(t, c, 24*pooltest.MiB, nil)))
	require.EqualValues(t, 6, c.Stats().Moves, "chunks of 4 MiB")
	require.EqualValues(t, 60*pooltest.MiB, c.Stats().All.InactiveSplitBytes.Peak)
	for _, b := range kept {
		require.NoError(t, c.Free(b))
	}
	require.NoError(t, c.Close())
}

// An event that cannot be had proves nothing; the device is asked instead.
func TestStrandedWithoutEvents(t *testing.T) {
	for _, call := range []string{"NewEvent", "RecordEvent", "QueryEvent"} {
		t.Run(call, func(t *testing.T) {
			c, d := pooltest.New(t, 1<<30)
			x := pooltest.NewScript(t, c, d).Run("a=100M@1 free:a")
			d.Fail(call, errors.New("no luck"))
			x.Run("b=100M")
			require.Equal(t, "1 large: [Free 100M]; 0 large: [Live 100M]", x.Layout())
			require.NotZero(t, c.Stats().EventFailures)
		})
	}
}

// TestPrivatePoolTakesWhatOthersCache: a limit that leaves no room for a whole
// segment keeps no request from what other pools cache, where less would do.
func TestPrivatePoolTakesWhatOthersCache(t *testing.T) {
	pooltest.Backings(t, 24<<20, func(t *testing.T, c *cupool.Pool) {
		idle, p := pooltest.NewPrivate(t, c, cupool.PoolConfig{}), pooltest.NewPrivate(t, c, cupool.PoolConfig{})
		require.NoError(t, idle.Free(pooltest.Alloc(t, idle, 8<<20, nil)))
		small := pooltest.Alloc(t, p, 5000, nil)
		b := pooltest.Alloc(t, p, 3<<20, nil) // 20 MiB are a segment, 4 MiB suffice
		require.Zero(t, c.Stats().OOMs+p.Stats().OOMs)
		require.NoError(t, p.Free(b))
		require.NoError(t, p.Free(small))
	}, func(cfg *cupool.Config) { cfg.Limit = 12 << 20 })
}
