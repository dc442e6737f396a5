package cupool_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/testkit/pooltest"
)

//go:noinline
func forgetABlock(t *testing.T, c *cupool.Pool, size int64) {
	_, err := c.Alloc(size, nil)
	require.NoError(t, err)
}

//go:noinline
func forgetABuffer(t *testing.T, c *cupool.Pool) {
	_, err := cupool.NewBuffer[float32](c, 10, nil)
	require.NoError(t, err)
}

func TestRecordStacks(t *testing.T) {
	c, d := pooltest.New(t, 1<<30, func(cfg *cupool.Config) { cfg.History, cfg.MagazineBytes = &cupool.History{SampleBytes: 1}, 0 })
	x := pooltest.NewScript(t, c, d)
	for range 5 {
		x.Run("a=512 free:a b=2M free:b") // their stacks are dropped again
	}
	require.Zero(t, c.Stats().MagazineHits, "no lock-free path")
	forgetABlock(t, c, 1000)
	forgetABlock(t, c, 30<<20) // through a miss
	forgetABuffer(t, c)

	err := c.Close()
	var leak *cupool.LeakError
	require.ErrorAs(t, err, &leak)
	require.Len(t, leak.Leaks, 3)
	for _, l := range leak.Leaks {
		culprit := "cupool_test.forgetABlock"
		if l.Size == 40 {
			culprit = "cupool_test.forgetABuffer"
		}
		require.Contains(t, l.Stack, culprit+"\n\t")
		require.Contains(t, l.Stack, "stacks_test.go:")
		require.Contains(t, l.Stack, "cupool_test.TestRecordStacks")
		require.NotContains(t, l.Stack, "cupool/cupool.", "the allocator's own functions are left out")
	}
	require.Equal(t, 3, strings.Count(err.Error(), "block, "))
	require.Contains(t, err.Error(), "leaked 3 blocks, 30 MiB")
}

func TestNoStacks(t *testing.T) {
	c, _ := pooltest.New(t, 1<<30)
	forgetABlock(t, c, 1000)
	var leak *cupool.LeakError
	require.ErrorAs(t, c.Close(), &leak)
	require.Empty(t, leak.Leaks[0].Stack)
}
