package cupool_test

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/simdev"
	"github.com/cupool/cupool/internal/testkit/pooltest"
	"github.com/cupool/cupool/snapshot"
)

func TestLayout(t *testing.T) {
	c, d := pooltest.New(t, 1<<30, pooltest.WithMagazines)
	x := pooltest.NewScript(t, c, d)
	require.Empty(t, c.Snapshot().Layout())
	x.Run("b=2M c=3M@1 p=4M a=1K free:a a=1K free:a a=1K free:a busy:1 free:p@1 free:b")
	require.Equal(t, `0 large: [Free 2M][Pending 4M][Free 14M]
1 large: [Live 3M][Free 17M]
0 small: [Cached 1K][Free 2047K]
`, c.Snapshot().Layout())
}

// A snapshot as JSON, by the names that PyTorch's have.
func TestSnapshotJSON(t *testing.T) {
	c, d := pooltest.New(t, 1<<30)
	require.JSONEq(t, `{"device": "counting", "segments": []}`, snapshotJSON(t, c))
	x := pooltest.NewScript(t, c, d).Run("a=2M+1 p=4M free:a busy:1 free:p@1")
	b, err := c.WithLabel("weights").Alloc(1000, nil)
	require.NoError(t, err)
	require.JSONEq(t, `{"device": "counting", "segments": [{
		"address": 1099511627776, "total_size": 20971520, "stream": 0, "stream_number": 0, "segment_type": "large", "is_expandable": false, "is_stitched": false,
		"allocated_size": 0, "active_size": 4194304, "requested_size": 4194304,
		"blocks": [
			{"address": 1099511627776, "size": 2097664, "requested_size": 0, "state": "free"},
			{"address": 1099513725440, "size": 4194304, "requested_size": 4194304, "state": "pending"},
			{"address": 1099517919744, "size": 14679552, "requested_size": 0, "state": "free"}
		]}, {
		"address": 1099532599296, "total_size": 2097152, "stream": 0, "stream_number": 0, "segment_type": "small", "is_expandable": false, "is_stitched": false,
		"allocated_size": 1024, "active_size": 1024, "requested_size": 1000,
		"blocks": [
			{"address": 1099532599296, "size": 1024, "requested_size": 1000, "state": "live", "label": "weights"},
			{"address": 1099532600320, "size": 2096128, "requested_size": 0, "state": "free"}
		]}]}`, snapshotJSON(t, c))
	x.Run("idle:1")
	require.NoError(t, c.Free(b))
	require.NoError(t, c.Close())
	require.JSONEq(t, `{"device": "counting", "segments": []}`, snapshotJSON(t, c))
}

func snapshotJSON(t *testing.T, c *cupool.Pool) string {
	text, err := json.Marshal(c.Snapshot())
	require.NoError(t, err)
	return string(text)
}

// Memory that is mapped twice counts once, and the snapshot agrees with Stats.
func TestSnapshotOfStitchedMemory(t *testing.T) {
	c := stitchedPool(t)
	states, stitched := map[snapshot.State]int64{}, 0
	for _, seg := range c.Snapshot().Segments {
		require.True(t, seg.Virtual)
		if seg.Stitched {
			stitched++
			require.EqualValues(t, 24*mib, seg.Allocated)
		}
		at := seg.Address
		for _, b := range seg.Blocks {
			require.Equal(t, at, b.Address, "blocks tile their segment")
			at += cupool.Ptr(b.Size)
			states[b.State] += b.Size
		}
		require.Equal(t, seg.Address+cupool.Ptr(seg.Size), at)
	}
	require.Equal(t, 1, stitched)
	st := c.Stats()
	require.Equal(t, map[snapshot.State]int64{"live": 32 * mib, "part": 24 * mib}, states)
	require.Equal(t, st.LiveBytes, states["live"])
	require.Equal(t, st.All.ReservedBytes.Current, states["live"]+states["free"])
}

func TestSnapshotStacks(t *testing.T) {
	c, _ := pooltest.New(t, 1<<30, func(cfg *cupool.Config) { cfg.History = &cupool.History{SampleBytes: 1} })
	forgetABlock(t, c, 3*mib)
	blocks := c.Snapshot().Segments[0].Blocks
	require.Contains(t, blocks[0].Stack.String(), "cupool_test.forgetABlock\n\t")
	require.Empty(t, blocks[1].Stack)
}

// A private pool has a snapshot of its own.
func TestSnapshotOfAPool(t *testing.T) {
	c, _ := pooltest.New(t, 1<<30)
	p, err := c.NewPool(cupool.PoolConfig{Name: "tenant"})
	require.NoError(t, err)
	forgetABlock(t, p, 3*mib)
	require.Empty(t, c.Snapshot().Segments)
	s := p.Snapshot()
	require.Equal(t, "tenant", s.Pool)
	require.Len(t, s.Segments, 1)
}

// What is written is read back, but for the states that PyTorch does not know.
func TestWriteSnapshot(t *testing.T) {
	c, d := pooltest.New(t, 1<<30)
	p, err := c.NewPool(cupool.PoolConfig{Name: "tenant"})
	require.NoError(t, err)
	pooltest.NewScript(t, c, d).Run("a=2M+1 p=4M free:a busy:1 free:p@1")
	_, err = c.WithLabel("weights").Alloc(1000, nil)
	require.NoError(t, err)
	forgetABlock(t, p, 3*mib)
	require.Equal(t, c.Snapshot().Flat(), readBack(t, c))
	require.Equal(t, []cupool.Snapshot{p.Snapshot()}, readBack(t, p), "a private pool writes its own alone")
}

func readBack(t *testing.T, c *cupool.Pool) []cupool.Snapshot {
	var out bytes.Buffer
	require.NoError(t, snapshot.WriteTorch(&out, c.Snapshot()))
	list, err := snapshot.Read(&out)
	require.NoError(t, err)
	return list
}

// stitchedPool returns an allocator on virtual memory with 24 MiB that are
// live on two pieces of 12 MiB.
func stitchedPool(t *testing.T) *cupool.Pool {
	c, err := cupool.New(cupool.Config{Driver: simdev.New(simdev.Config{}), Backing: cupool.BackingVMM, Limit: 40 * mib, MagazineBytes: -1})
	require.NoError(t, err)
	alloc := func(size int64) cupool.Block {
		b, err := c.Alloc(size, nil)
		require.NoError(t, err)
		return b
	}
	left, _, right := alloc(12*mib), alloc(8*mib), alloc(12*mib)
	require.NoError(t, c.Free(left))
	require.NoError(t, c.Free(right))
	alloc(24 * mib)
	require.Contains(t, c.Snapshot().Layout(), "large: [Live 24M]\n")
	return c
}
