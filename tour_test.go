package cupool_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/block"
	"github.com/cupool/cupool/internal/lock"
	"github.com/cupool/cupool/internal/testkit"
	"github.com/cupool/cupool/internal/testkit/pooltest"
	"github.com/cupool/cupool/snapshot"
)

// While a pool is looked at in portions, its program goes on: what is listed tiles the
// segments, no memory is listed twice, and what is live all the time is there once.
func TestSnapshotInPortions(t *testing.T) {
	for _, backing := range []cupool.Backing{cupool.BackingSegments, cupool.BackingVMM} {
		t.Run(fmt.Sprint(backing), func(t *testing.T) {
			w := newWalk(t, cupool.Config{Backing: backing, Limit: 192 * mib})
			require.NoError(t, w.pools[0].StartHistory(cupool.History{SampleBytes: 1 << 20}))
			for range 1500 {
				w.step()
			}
			portioned := 0
			for range testkit.Choose(150, 40) {
				p := pick(w, w.pools)
				still := map[cupool.Ptr]cupool.Block{}
				for _, b := range w.held {
					still[b.Ptr()] = b.Block
				}
				portion := 1 + w.IntN(12)
				s, portions := p.SnapshotBetween(portion, func() {
					for range w.IntN(12) {
						w.step()
					}
					held := map[cupool.Block]bool{}
					for _, b := range w.held {
						held[b.Block] = true
					}
					for at, b := range still {
						if !held[b] {
							delete(still, at)
						}
					}
				})
				if len(portions) > 1 {
					portioned++
				}
				for _, n := range portions {
					require.LessOrEqual(t, n, portion, "blocks that are looked at while a lock is held")
				}
				requireTiled(t, s)
				listed := map[cupool.Ptr]int64{}
				for _, seg := range s.Segments {
					for _, b := range seg.Blocks {
						if b.State == snapshot.Live {
							listed[b.Address] = b.Requested
						}
					}
				}
				for at, b := range still {
					if seg := segmentAt(s, at); seg != nil {
						require.Equal(t, b.Size(), listed[at], "%v is live all the time", b)
					} else {
						require.NotEqual(t, p, ownerOf(w, b), "%v is of the pool, and not listed", b)
					}
				}
			}
			require.NotZero(t, portioned)
			require.NoError(t, w.pools[0].Check())
			requireTiled(t, w.pools[0].Snapshot())
		})
	}
}

// What is listed of a segment that goes back to the device meanwhile is not in the snapshot,
// whatever comes next.
func TestSnapshotBesideOne(t *testing.T) {
	for name, tc := range map[string]struct {
		before, between string
		portions        []int // before the end of the segment
	}{
		"the only segment goes":    {"a=2M b=2M", "free:a free:b empty", []int{1, 2}},
		"before one of the stream": {"a=2M b=2M c=20M", "free:a free:b empty", []int{1, 2}},
		"before one of another":    {"a=2M b=2M c=20M@1", "free:a free:b empty", []int{1, 2}},
		"before small ones":        {"a=2M b=2M c=512@1", "free:a free:b empty", []int{1, 2}},
		"before both":              {"a=2M b=2M c=512 d=20M", "free:a free:b empty", []int{1, 2}},
		"after small ones":         {"a=512 b=512", "free:a free:b empty", []int{1, 2}},
		"nothing changes":          {"a=2M b=2M c=20M@1 d=512@1 e=512 f=20M@2", "", []int{1, 2, 3, 4}},
	} {
		for _, n := range tc.portions {
			t.Run(fmt.Sprint(name, " by ", n), func(t *testing.T) {
				c, d := pooltest.New(t, 1<<30)
				x, first := pooltest.NewScript(t, c, d).Run(tc.before), true
				s, _ := c.SnapshotBetween(n, func() {
					if first {
						first = false
						x.Run(tc.between)
					}
				})
				require.Equal(t, c.Snapshot().Segments, s.Segments)
			})
		}
	}
}

// What is listed of a block makes way for one that begins inside of it, and is free before that.
func TestSnapshotOfBlockThatIsCut(t *testing.T) {
	c, d := pooltest.New(t, 1<<30)
	x := pooltest.NewScript(t, c, d).Run("a=4M")
	s, _ := c.SnapshotBetween(1, func() {
		if c.Stats().LiveBytes == 4*mib {
			x.Run("free:a c=2M")
		}
	})
	requireTiled(t, s)
	require.Len(t, s.Segments[0].Blocks, 2)
	require.EqualValues(t, 2*mib, s.Segments[0].Blocks[0].Size)
}

// A portion but the first looks at blocks of one heap, whose lock it holds.
func TestPortionsOfOneHeap(t *testing.T) {
	c, d := pooltest.New(t, 1<<30)
	pooltest.NewScript(t, c, d).Run("a=2M b=2M c=20M@1 d=20M@1 e=20M")
	_, portions := c.SnapshotBetween(2, nil)
	require.Equal(t, []int{2, 1, 2, 1}, slices.DeleteFunc(portions, func(n int) bool { return n == 0 }))
}

// requireTiled looks whether the segments of a pool do not overlap and their blocks tile them.
func requireTiled(t *testing.T, s cupool.Snapshot) {
	t.Helper()
	end := cupool.Ptr(0)
	for _, seg := range s.Segments {
		require.GreaterOrEqual(t, seg.Address, end, "segments overlap")
		end = seg.Address
		var live, active int64
		for _, b := range seg.Blocks {
			require.Equal(t, end, b.Address, "blocks tile the segment")
			require.Positive(t, b.Size)
			end += cupool.Ptr(b.Size)
			if b.State == snapshot.Live {
				live += b.Size
			}
			if b.State == snapshot.Live || b.State == snapshot.Pending {
				active += b.Size
			} else {
				require.Empty(t, b.Stack)
				require.Empty(t, b.Label)
				require.Zero(t, b.Requested)
			}
		}
		require.Equal(t, seg.Address+cupool.Ptr(seg.Size), end)
		require.Equal(t, []int64{live, active}, []int64{seg.Allocated, seg.Active})
	}
}

func segmentAt(s cupool.Snapshot, at cupool.Ptr) *snapshot.Segment {
	for i := range s.Segments {
		if seg := &s.Segments[i]; at-seg.Address < cupool.Ptr(seg.Size) {
			return seg
		}
	}
	return nil
}

// ownerOf returns the pool of a walk that a live block is of.
func ownerOf(w *walk, b cupool.Block) *cupool.Pool {
	for _, p := range w.pools {
		if p.StreamOf(b) != nil {
			return p
		}
	}
	return nil
}

// A pool of many blocks: a portion has a bounded number of them, the statistics look at none,
// the report of an out of memory at a bounded number of them, and the first look-up at all.
func TestLargePool(t *testing.T) {
	const portion, reported = 2048, 1 << 14
	n := reported + portion + 100
	if lock.Invariants {
		n = 300 // every step looks at all blocks
	}
	c, _ := pooltest.New(t, 1<<30, func(cfg *cupool.Config) { cfg.Limit = 512 * mib })
	s := pooltest.NewStream(t, c)
	blocks := make([]cupool.Block, n)
	for i := range blocks {
		blocks[i] = pooltest.Alloc(t, c, 512, []*cupool.Stream{nil, s}[i%2])
	}
	pic, portions := c.SnapshotBetween(0, nil)
	requireTiled(t, pic)
	require.GreaterOrEqual(t, len(portions), n/portion)
	for _, size := range portions {
		require.LessOrEqual(t, size, portion)
	}
	looked := 0
	block.Hook = func(at block.Step) {
		if at == block.Looking {
			looked++
		}
	}
	defer func() { block.Hook = nil }()
	require.EqualValues(t, n, c.Stats().All.Allocation.Current)
	require.Zero(t, looked, "blocks that the statistics look at")
	_, err := c.Alloc(1<<40, nil)
	var oom *cupool.OOMError
	require.ErrorAs(t, err, &oom)
	require.Equal(t, lock.Invariants, looked > 0)
	listed := 0
	for _, seg := range oom.Snapshot.Segments {
		listed += len(seg.Blocks)
	}
	require.Positive(t, listed)
	require.LessOrEqual(t, listed, reported)
	counted, rest := int64(0), int64(0)
	for _, h := range oom.Table {
		if counted += h.Blocks; h.Rest {
			rest += h.Blocks
		}
	}
	require.EqualValues(t, n, counted)
	require.LessOrEqual(t, counted-rest, int64(reported))
	require.Equal(t, n > reported, counted-rest > reported-2*portion && rest > 0)

	require.Zero(t, c.Mapped(blocks))
	_, err = c.Lookup(blocks[0].Ptr())
	require.NoError(t, err)
	require.Equal(t, n, c.Mapped(blocks), "the first look-up enters all of them")
}

// A report that looks at few blocks has the segments of large blocks first, and its sums are
// those of the statistics.
func TestBoundedReport(t *testing.T) {
	c, _ := pooltest.New(t, 1<<30)
	p := pooltest.NewPrivate(t, c, cupool.PoolConfig{Name: "tenant"})
	for range 40 {
		pooltest.Alloc(t, c, 1000, nil)
		pooltest.Alloc(t, p, 2000, nil)
	}
	for range 3 {
		pooltest.Alloc(t, c.WithLabel("weights"), 3*mib, nil)
	}
	for _, most := range []int{0, 1, 10, 30, 60, 1000} {
		holders, lines, pic := c.ReportUpTo(most)
		requireTiled(t, pic)
		rests := 0
		sums := map[string]snapshot.Holder{}
		for _, h := range holders {
			sum := sums[h.Pool]
			sums[h.Pool] = snapshot.Holder{Blocks: sum.Blocks + h.Blocks, Live: sum.Live + h.Live, Pending: sum.Pending + h.Pending, Cached: sum.Cached + h.Cached}
			if h.Rest {
				rests++
			}
		}
		var lined int64
		for _, l := range lines {
			lined += l.Bytes
		}
		for _, of := range []*cupool.Pool{c, p} {
			st := of.Stats()
			require.Equal(t, snapshot.Holder{Blocks: st.All.Allocation.Current, Live: st.LiveBytes, Pending: st.PendingBytes, Cached: st.CachedBytes}, sums[of.Name()])
		}
		require.Equal(t, c.Stats().All.RequestedBytes.Current+p.Stats().All.RequestedBytes.Current, lined)
		listed := 0
		for _, seg := range pic.Segments {
			listed += len(seg.Blocks)
		}
		require.LessOrEqual(t, listed, most)
		switch most {
		case 0:
			require.Equal(t, 2, rests)
			require.Empty(t, pic.Segments)
		case 10:
			require.Equal(t, 2, rests)
			require.Len(t, pic.Segments, 1)
			require.Equal(t, "large", pic.Segments[0].Type)
		case 1000:
			require.Zero(t, rests)
			require.Equal(t, c.Snapshot().Segments, pic.Segments)
		}
	}
	e := &cupool.OOMError{}
	e.Table, _, _ = c.ReportUpTo(10)
	require.Contains(t, e.Error(), "more live blocks of any stream")
	require.Contains(t, e.Error(), `pool "tenant", `)
}

// A line of the report has its pool, its label and where the memory was allocated.
func TestReportedLines(t *testing.T) {
	c, _ := pooltest.New(t, 1<<30, func(cfg *cupool.Config) { cfg.History = &cupool.History{SampleBytes: 1} })
	p := pooltest.NewPrivate(t, c, cupool.PoolConfig{Name: "tenant"})
	pooltest.Alloc(t, p.WithLabel("weights"), 3*mib, nil)
	_, lines, _ := c.ReportUpTo(1000)
	require.Len(t, lines, 1)
	require.Equal(t, []any{"tenant", "weights", int64(3 * mib)}, []any{lines[0].Pool, lines[0].Label, lines[0].Bytes})
	require.NotEmpty(t, lines[0].Stack)
}

// Of segments at the same addresses, the one that was seen last is there.
func TestInPlace(t *testing.T) {
	for name, tc := range map[string]struct{ seen, want [][2]int64 }{
		"none":              {nil, [][2]int64{}},
		"apart":             {[][2]int64{{20, 10}, {0, 20}}, [][2]int64{{0, 20}, {20, 10}}},
		"in one":            {[][2]int64{{0, 20}, {5, 5}, {12, 4}}, [][2]int64{{5, 5}, {12, 4}}},
		"around two":        {[][2]int64{{5, 5}, {12, 4}, {0, 20}}, [][2]int64{{0, 20}}},
		"at the same place": {[][2]int64{{0, 20}, {0, 10}, {20, 1}}, [][2]int64{{0, 10}, {20, 1}}},
		"in a row":          {[][2]int64{{0, 10}, {5, 10}, {10, 10}}, [][2]int64{{10, 10}}},
	} {
		var seen []snapshot.Segment
		for _, s := range tc.seen {
			seen = append(seen, snapshot.Segment{Address: cupool.Ptr(s[0]), Size: s[1]})
		}
		got := [][2]int64{}
		for _, s := range cupool.InPlace(seen) {
			got = append(got, [2]int64{int64(s.Address), s.Size})
		}
		require.Equal(t, tc.want, got, name)
	}
}
