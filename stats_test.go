package cupool_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/testkit/pooltest"
)

func TestStats(t *testing.T) {
	c, d := pooltest.New(t, 1<<30, func(cfg *cupool.Config) { cfg.Limit = 512 * mib })
	x := pooltest.NewScript(t, c, d).Run("a=2M b=3M+1 s=1000 p=4M free:a busy:1 free:p@1")
	st := c.Stats()
	stat := func(cur, peak, allocated, freed int64) cupool.Stat {
		return cupool.Stat{Current: cur, Peak: peak, Allocated: allocated, Freed: freed}
	}
	const bBlock = 3*mib + 512
	require.Equal(t, cupool.PoolStats{
		Allocation:           stat(1, 3, 3, 2),
		Segment:              stat(1, 1, 1, 0),
		Active:               stat(2, 3, 3, 1),
		InactiveSplit:        stat(2, 2, 4, 2),
		RequestedBytes:       stat(3*mib+1, 9*mib+1, 9*mib+1, 6*mib),
		AllocatedBytes:       stat(bBlock, bBlock+6*mib, bBlock+6*mib, 6*mib),
		ActiveRequestedBytes: stat(7*mib+1, 9*mib+1, 9*mib+1, 2*mib),
		ActiveBytes:          stat(bBlock+4*mib, bBlock+6*mib, bBlock+6*mib, 2*mib),
		ReservedBytes:        stat(20*mib, 20*mib, 20*mib, 0),
		InactiveSplitBytes:   stat(16*mib-bBlock, 18*mib, 18*mib+18*mib-bBlock+14*mib-bBlock+2*mib, 18*mib+18*mib-bBlock),
	}, st.Large)
	require.Equal(t, stat(1000, 1000, 1000, 0), st.Small.RequestedBytes)
	require.Equal(t, stat(1024, 1024, 1024, 0), st.Small.AllocatedBytes)
	require.Equal(t, stat(2, 4, 4, 2), st.All.Allocation)
	require.Equal(t, stat(22*mib, 22*mib, 22*mib, 0), st.All.ReservedBytes)

	require.EqualValues(t, bBlock+1024, st.LiveBytes)
	require.EqualValues(t, 4*mib, st.PendingBytes)
	require.EqualValues(t, 22*mib-bBlock-1024-4*mib, st.CachedBytes)
	require.Equal(t, st.All.ReservedBytes.Current, st.LiveBytes+st.PendingBytes+st.CachedBytes)
	require.EqualValues(t, 14*mib-bBlock, st.LargestFree)
	require.EqualValues(t, 512*mib, st.Limit)
	require.EqualValues(t, 2, st.Hits)
	require.EqualValues(t, 2, st.Grown)
	require.Zero(t, st.Mapped)
	require.InDelta(t, 0.5, st.HitRatio(), 0)
	require.Zero(t, st.MagazineHits)
	require.EqualValues(t, 2, st.DriverAllocs)
	require.Zero(t, st.DriverFrees)
	require.EqualValues(t, 1, st.EventsRecorded)
	require.EqualValues(t, 1, st.BlocksPending)
	require.EqualValues(t, 2, st.Streams)
	require.Positive(t, st.MetadataBytes)
	require.InDelta(t, float64(st.CachedBytes-st.LargestFree)/float64(st.All.ReservedBytes.Current), st.Fragmentation(), 1e-9)

	_, err := c.Alloc(600*mib, nil)
	require.ErrorIs(t, err, cupool.ErrOutOfMemory)
	require.EqualValues(t, 1, c.Stats().OOMs)
	x.Run("idle:1 free:b free:s empty")
	st = c.Stats()
	require.EqualValues(t, 2, st.DriverFrees)
	require.Zero(t, st.CachedBytes)
	require.Zero(t, st.Fragmentation(), "of nothing")
	require.InDelta(t, 1, cupool.Stats{}.HitRatio(), 0, "of nothing")
}

func TestResetPeak(t *testing.T) {
	c, d := pooltest.New(t, 1<<30)
	x := pooltest.NewScript(t, c, d).Run("a=2M b=3M free:a")
	require.EqualValues(t, 5*mib, c.Stats().All.AllocatedBytes.Peak)
	c.ResetPeak()
	require.EqualValues(t, 3*mib, c.Stats().All.AllocatedBytes.Peak)
	require.EqualValues(t, 3*mib, c.Stats().Large.AllocatedBytes.Peak)
	x.Run("a=1M+512")
	require.EqualValues(t, 5*mib, c.Stats().All.AllocatedBytes.Peak, "too little is left of the 2M to split")
	require.EqualValues(t, 3, c.Stats().All.Allocation.Allocated, "the sums stay")
}

// TestActiveStats: where no block waits for a stream, as many are active as are allocated,
// those of the magazines, too.
func TestActiveStats(t *testing.T) {
	c, _ := pooltest.New(t, 1<<30, pooltest.WithMagazines)
	for range 20 {
		require.NoError(t, c.Free(pooltest.Alloc(t, c, 4096, nil)))
	}
	pooltest.Alloc(t, c, 4096, nil)
	all := c.Stats().All
	require.Positive(t, c.Stats().MagazineHits)
	all.Active.Peak, all.ActiveBytes.Peak = all.Allocation.Peak, all.AllocatedBytes.Peak
	require.Equal(t, all.Allocation, all.Active)
	require.Equal(t, all.AllocatedBytes, all.ActiveBytes)
}

// TestStatsCounts: each number of the text has its place.
func TestStatsCounts(t *testing.T) {
	text := cupool.Stats{
		FreeBlocks: 1, Hits: 2, MagazineHits: 3, Mapped: 4, Grown: 5, Retries: 6, OOMs: 7, DriverAllocs: 8, DriverFrees: 9,
		Stitches: 10, StitchReuses: 11, Moves: 12, EventsRecorded: 13, EventQueries: 14, EventFailures: 15, BlocksPending: 16, Streams: 17,
	}.String()
	for _, part := range []string{
		"free blocks 1;", "hits 2 (", "of them without a lock 3; mapped 4, grown 5, retries 6, out of memory 7\n",
		"driver: 8 allocations, 9 frees; stitches: 10, reused 11; moves between streams: 12; events: 13 recorded, 14 queries, 15 failures\n",
		"blocks pending 16, streams 17,",
	} {
		require.Contains(t, text, part)
	}
}

func TestStatsString(t *testing.T) {
	c, d := pooltest.New(t, 1<<30)
	pooltest.NewScript(t, c, d).Run("a=2M b=3M s=1000 free:a")
	text := c.Stats().String()
	for _, line := range []string{
		"cupool on counting\n",
		"                            current       peak  allocated   freed\n",
		"             allocations          2          3          3       1\n",
		"                reserved     22 MiB     22 MiB     22 MiB     0 B\n",
		"      small: allocations          1          1          1       0\n",
		"        large: allocated      3 MiB      5 MiB      5 MiB   2 MiB\n",
		"reserved 22 MiB = live 3.001 MiB + pending 0 B + cached 19 MiB; limit none\n",
		"largest free 15 MiB, fragmentation 18.2 %\n",
		"hits 1 (33.33 %), of them without a lock 0; mapped 0, grown 2, retries 0, out of memory 0\n",
		"driver: 2 allocations, 0 frees; ",
		"events: 0 recorded, 0 queries, 0 failures\n",
		"blocks pending 0, streams 1, books ",
	} {
		require.Contains(t, text, line)
	}
	require.Len(t, strings.Split(strings.TrimSpace(text), "\n"), 2+3*9+5)
}

// A free range that grows does not count as split for a moment.
func TestGrowingRangeIsNoSplit(t *testing.T) {
	c, _ := virtual(t, 0)
	for _, size := range []int64{2 * mib, 4 * mib} {
		require.NoError(t, c.Free(pooltest.Alloc(t, c, size, nil)))
	}
	require.Zero(t, c.Stats().All.InactiveSplit)
	require.Zero(t, c.Stats().All.InactiveSplitBytes)
}

// Labels of no block are forgotten, and others stay.
func TestForgetLabels(t *testing.T) {
	c, _ := pooltest.New(t, 1<<30)
	p := pooltest.NewPrivate(t, c, cupool.PoolConfig{Name: "private"})
	p.WithLabel("other pool")
	kept := c.WithLabel("kept")
	b := pooltest.Alloc(t, kept, 1000, nil)
	for i := range 1000 {
		x := c.WithLabel(fmt.Sprint("request ", i))
		require.NoError(t, c.Free(pooltest.Alloc(t, x, 1000, nil)))
	}
	require.Len(t, c.Stats().Labels, 1001)
	require.Equal(t, 1000, c.ForgetLabels())
	require.Zero(t, c.ForgetLabels())
	require.Len(t, p.Stats().Labels, 1)
	require.Equal(t, []cupool.LabelStats{{Label: "kept", Blocks: cupool.Stat{Current: 1, Peak: 1, Allocated: 1}, Bytes: cupool.Stat{Current: 1000, Peak: 1000, Allocated: 1000}}}, c.Stats().Labels)
	require.NoError(t, c.Free(b))
	require.Equal(t, 1, c.ForgetLabels())
	require.Empty(t, c.Stats().Labels)
	b = pooltest.Alloc(t, kept, 10, nil)
	require.EqualValues(t, 10, c.Stats().Labels[0].Bytes.Allocated, "it begins anew")
	require.NoError(t, c.Free(b))
	require.Zero(t, (*cupool.Pool)(nil).ForgetLabels())
}

func TestLabels(t *testing.T) {
	c, d := pooltest.New(t, 1<<30, pooltest.WithMagazines)
	x := pooltest.NewScript(t, c, d)
	enc, dec := c.WithLabel("encoder"), c.WithLabel("decoder")
	alloc := func(a cupool.Allocator, size int64) cupool.Block { return pooltest.Alloc(t, a, size, nil) }
	a, b := alloc(enc, 1000), alloc(enc, 3*mib)
	alloc(dec, 0)
	x.Run("plain=5M")
	stat := func(cur, peak, allocated, freed int64) cupool.Stat {
		return cupool.Stat{Current: cur, Peak: peak, Allocated: allocated, Freed: freed}
	}
	require.Equal(t, []cupool.LabelStats{
		{Label: "decoder"},
		{Label: "encoder", Blocks: stat(2, 2, 2, 0), Bytes: stat(3*mib+1000, 3*mib+1000, 3*mib+1000, 0)},
	}, c.Stats().Labels)

	require.Regexp(t, `^0 small: \[Live 1K encoder\].*\[Live 3M encoder\]\[Live 5M\]`, strings.ReplaceAll(c.Snapshot().Layout(), "\n", ""))
	require.NoError(t, dec.Free(a), "who frees it does not matter")
	require.NoError(t, c.FreePtr(b.Ptr(), b.Size()))
	require.ErrorIs(t, enc.Free(b), cupool.ErrDoubleFree)
	require.Equal(t, cupool.LabelStats{Label: "encoder", Blocks: stat(0, 2, 2, 2), Bytes: stat(0, 3*mib+1000, 3*mib+1000, 3*mib+1000)}, c.Stats().Labels[1])

	// A block that others use counts until they are done.
	p := alloc(c.WithLabel("decoder"), 2*mib)
	x.Run("busy:1")
	require.NoError(t, c.FreeOn(p, x.Stream("1")))
	require.EqualValues(t, 2*mib, c.Stats().Labels[0].Bytes.Current)
	x.Run("idle:1 process")
	require.Zero(t, c.Stats().Labels[0].Bytes.Current)

	c.ResetPeak()
	require.Equal(t, stat(0, 0, 2*mib, 2*mib), c.Stats().Labels[0].Bytes)

	alloc(dec, 512)
	require.Contains(t, c.Stats().String(), "\nfor decoder: 1 blocks, 512 B; at most 1, 512 B\n")
	err := c.Close()
	require.ErrorContains(t, err, "1 block, 512 B, for decoder")
	require.Zero(t, c.Stats().Labels[0].Bytes.Current)
	_, err = dec.Alloc(1, nil)
	require.ErrorIs(t, err, cupool.ErrClosed)
}

// A request that maps free memory side by side is no hit; one that finds the range again
// is.
func TestMappingIsNoHit(t *testing.T) {
	c, _ := virtual(t, 0)
	blocks := fill(t, c, 12, 10*mib)
	for i := 0; i < len(blocks); i += 2 {
		require.NoError(t, c.Free(blocks[i]))
	}
	for _, mapped := range []int64{1, 0} {
		before := c.Stats()
		require.NoError(t, c.Free(pooltest.Alloc(t, c, 50*mib, nil)))
		after := c.Stats()
		require.Equal(t, mapped, after.Stitches-before.Stitches)
		require.Equal(t, mapped, after.Mapped-before.Mapped)
		require.Equal(t, before.Grown, after.Grown)
		require.Equal(t, 1-mapped, after.Hits-before.Hits)
		require.Equal(t, before.DriverAllocs, after.DriverAllocs)
	}
}

// A request that moves the chunks of an idle stream maps them, and is no hit; one that finds
// them in its heap is, and so is one that takes over the ranges of a closed stream.
func TestMovingIsNoHit(t *testing.T) {
	c, _ := virtual(t, 400*mib)
	a, b := pooltest.NewStream(t, c), pooltest.NewStream(t, c)
	require.NoError(t, c.Free(pooltest.Alloc(t, c, 300*mib, a)))
	require.NoError(t, c.Sync())
	alloc := func(s *cupool.Stream) (mapped, grown, hits int64) {
		before := c.Stats()
		require.NoError(t, c.Free(pooltest.Alloc(t, c, 200*mib, s)))
		after := c.Stats()
		require.Equal(t, before.All.ReservedBytes.Current, after.All.ReservedBytes.Current)
		return after.Mapped - before.Mapped, after.Grown - before.Grown, after.Hits - before.Hits
	}
	for _, want := range [][3]int64{{1, 0, 0}, {0, 0, 1}} {
		mapped, grown, hits := alloc(b)
		require.Equal(t, want, [3]int64{mapped, grown, hits})
	}
	require.NoError(t, b.Close())
	mapped, grown, hits := alloc(nil)
	require.Equal(t, [3]int64{0, 0, 1}, [3]int64{mapped, grown, hits})
	require.NoError(t, c.Check())
}
