package cupool_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"gorgonia.org/tensor"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/testkit/nvtxtest"
	"github.com/cupool/cupool/internal/testkit/pooltest"
)

// spans returns the names of ranges in order, each with those inside of it, as
// "name(inner inner)".
func spans(t *testing.T, events []nvtxtest.Event) (text string) {
	var open []string
	for _, e := range events {
		require.Equal(t, "cupool", e.Domain)
		if e.End {
			require.Equal(t, open[len(open)-1], e.Name, "ranges of one goroutine nest")
			open = open[:len(open)-1]
			text += ")"
			continue
		}
		open = append(open, e.Name)
		text += "(" + e.Name
	}
	require.Empty(t, open, "every range ends")
	return text
}

// A tool sees the calls that are not served from the cache, with what they did,
// and labels by name. Those that are served are not slowed.
func TestToolSeesNames(t *testing.T) {
	got, ok := nvtxtest.Record(t, func(t *testing.T) {
		d, err := cupool.OpenHost(cupool.HostConfig{})
		require.NoError(t, err)
		c, err := cupool.New(cupool.Config{Driver: d, Limit: 64 * mib})
		require.NoError(t, err)
		b := pooltest.Alloc(t, c, 30*mib, nil)
		require.NoError(t, c.Free(b))
		for range 10 { // hits
			require.NoError(t, c.Free(pooltest.Alloc(t, c, 30*mib, nil)))
		}
		b, err = c.WithLabel("encoder").Alloc(30*mib, nil)
		require.NoError(t, err)
		require.NoError(t, c.Free(b))
		require.NoError(t, c.EmptyCache())
		left, middle, right := pooltest.Alloc(t, c, 20*mib, nil), pooltest.Alloc(t, c, 20*mib, nil), pooltest.Alloc(t, c, 20*mib, nil)
		require.NoError(t, c.Free(left))
		require.NoError(t, c.Free(right))
		both := pooltest.Alloc(t, c, 40*mib, nil)
		require.NoError(t, c.Free(both))
		require.NoError(t, c.Free(middle))
		_, err = c.Alloc(100*mib, nil)
		require.ErrorIs(t, err, cupool.ErrOutOfMemory)
		require.NoError(t, c.EmptyCache()) // or large memory serves the engine

		eng, err := cupool.NewEngine(c)
		require.NoError(t, err)
		outer, err := eng.ScopeLabeled("step")
		require.NoError(t, err)
		_, err = eng.ScopeLabeled("inner")
		require.NoError(t, err)
		_, err = eng.Empty(tensor.Float32, 1000)
		require.NoError(t, err)
		require.NoError(t, outer.Close(), "which closes the inner one")
		require.NoError(t, c.Close())
		require.NoError(t, d.Close())
	})
	if !ok {
		return
	}
	text := spans(t, got)
	for _, part := range []string{
		"(alloc miss(take a spared segment)(collect what streams are done with)", "(grow the pool))", "(stitch)", "(encoder)", "(empty cache(give memory back))",
		"(wait for all pending blocks)", "(step(inner(inner(alloc miss",
	} {
		require.Contains(t, text, part)
	}
	require.Equal(t, 7, strings.Count(text, "(alloc miss"), "of 30 MiB, of 20 thrice, of 40 (joined), of 100 and the engine's: %s", text)
	require.Equal(t, 1, strings.Count(text, "(encoder"), text)
	require.Equal(t, nvtxtest.Event{Domain: "cupool", Name: "alloc miss", Bytes: 30 * mib}, got[0])
	require.Contains(t, got, nvtxtest.Event{Domain: "cupool", Name: "encoder", Bytes: 30 * mib})
	require.Contains(t, got, nvtxtest.Event{Domain: "cupool", Name: "stitch", Bytes: 40 * mib})
}
