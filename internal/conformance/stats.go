package conformance

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/testkit"
)

// layoutSums is what a Layout says of one kind of pool.
type layoutSums struct {
	segments, reserved          int64
	live, liveBytes             int64
	pending, pendingBytes       int64
	freeBytes, magazine, splits int64
	splitBytes                  int64
}

var blockText = regexp.MustCompile(`\[(\w+) (\d+)([KMG]?)\]`)

func parseLayout(text string) map[string]layoutSums {
	sums := map[string]layoutSums{}
	for line := range strings.Lines(text) {
		kind := "small"
		if strings.Contains(line, " large:") {
			kind = "large"
		}
		s := sums[kind]
		s.segments++
		blocks := blockText.FindAllStringSubmatch(line, -1)
		for _, b := range blocks {
			n, _ := strconv.ParseInt(b[2], 10, 64)
			n <<= 10 * (1 + strings.Index("KMG", b[3]))
			if b[3] == "" {
				n, _ = strconv.ParseInt(b[2], 10, 64)
			}
			if b[1] != "Part" && b[1] != "Gap" {
				s.reserved += n
			}
			switch b[1] {
			case "Free":
				s.freeBytes += n
				if len(blocks) > 1 {
					s.splits++
					s.splitBytes += n
				}
			case "Cached":
				s.magazine += n
			case "Pending":
				s.pending++
				s.pendingBytes += n
			case "Live":
				s.live++
				s.liveBytes += n
			}
		}
		sums[kind] = s
	}
	return sums
}

// testStats recomputes the statistics from the layout during a program that
// goes through magazines, where peaks are only bounds.
func testStats(t *testing.T, e *env) {
	r := e.rig(t)
	c := choices(testkit.Seed(t), 0)
	u := r.stream()
	var live []cupool.Block
	var bytes, peak int64
	var allocs int64
	var peaks [9]int64 // of what statsOf lists
	for i := range scaled(3000) {
		if len(live) > 0 && c.IntN(2) == 0 {
			j := c.IntN(len(live))
			bytes -= live[j].Size()
			if c.IntN(8) == 0 {
				require.NoError(t, r.FreeOn(live[j], u))
			} else {
				r.free(live[j])
			}
			live[j] = live[len(live)-1]
			live = live[:len(live)-1]
		} else if len(live) < 50 {
			b := r.alloc([]int64{512, 4096, 65536, 2 * mib, int64(1 + c.IntN(70000))}[c.IntN(5)], nil)
			live = append(live, b)
			bytes += b.Size()
			allocs++
			peak = max(peak, bytes)
		}
		if i%8 == 0 {
			compareLayout(t, r, live, bytes, allocs)
		}
		st := r.Stats()
		for i, s := range statsOf(&st.All) {
			peaks[i] = max(peaks[i], s.Current)
		}
	}
	st := r.Stats()
	slack := max(r.cfg.MagazineBytes, 0)
	require.GreaterOrEqual(t, st.All.RequestedBytes.Peak, peak)
	require.LessOrEqual(t, st.All.RequestedBytes.Peak, peak+slack)
	if slack == 0 {
		require.Equal(t, peak, st.All.RequestedBytes.Peak)
		for i, s := range statsOf(&st.All) {
			if s != &st.All.InactiveSplit && s != &st.All.InactiveSplitBytes { // which rise and fall within a call
				require.Equal(t, peaks[i], s.Peak, "statistic %d", i)
			}
		}
		require.Zero(t, st.MagazineHits)
	} else {
		before := st.MagazineHits
		warm(r, 5000)
		for range 200 { // blocks that had to wait may keep sizes out of magazines for a while
			r.free(r.alloc(5000, nil))
		}
		require.Greater(t, r.Stats().MagazineHits, before)
	}
	r.free(live...)
}

func compareLayout(t *testing.T, r *rig, live []cupool.Block, liveBytes, allocs int64) {
	t.Helper()
	st := r.Stats()
	sums := parseLayout(r.Snapshot().Layout())
	var all layoutSums
	var count int64
	for _, k := range []struct {
		name string
		p    cupool.PoolStats
	}{{"small", st.Small}, {"large", st.Large}} {
		s := sums[k.name]
		if !r.vmm() {
			require.Equal(t, s.segments, k.p.Segment.Current)
		}
		require.Equal(t, s.reserved, k.p.ReservedBytes.Current)
		require.Equal(t, s.live, k.p.Allocation.Current)
		require.Equal(t, s.liveBytes, k.p.AllocatedBytes.Current)
		require.Equal(t, s.live+s.pending, k.p.Active.Current)
		require.Equal(t, s.liveBytes+s.pendingBytes, k.p.ActiveBytes.Current)
		require.Equal(t, s.splits, k.p.InactiveSplit.Current)
		require.Equal(t, s.splitBytes, k.p.InactiveSplitBytes.Current)
		all.liveBytes += s.liveBytes
		all.pendingBytes += s.pendingBytes
		all.pending += s.pending
		all.freeBytes += s.freeBytes + s.magazine
		count += s.live
	}
	require.Equal(t, int64(len(live)), count)
	require.Equal(t, count, st.All.Allocation.Current)
	require.Equal(t, allocs, st.All.Allocation.Allocated)
	require.Equal(t, allocs-count, st.All.Allocation.Freed)
	require.Equal(t, liveBytes, st.All.RequestedBytes.Current)
	require.Equal(t, all.liveBytes, st.LiveBytes)
	require.Equal(t, all.pendingBytes, st.PendingBytes)
	require.Equal(t, all.pending, st.BlocksPending)
	require.Equal(t, all.freeBytes, st.CachedBytes)
	require.Equal(t, allocs, st.Hits+st.Misses)
	sum, small, large := st.All, st.Small, st.Large
	for i, s := range statsOf(&sum) {
		a, b := statsOf(&small)[i], statsOf(&large)[i]
		require.Equal(t, s.Current, a.Current+b.Current)
		require.Equal(t, s.Allocated, a.Allocated+b.Allocated)
		require.Equal(t, s.Freed, a.Freed+b.Freed)
		require.Equal(t, s.Current, s.Allocated-s.Freed)
		require.LessOrEqual(t, s.Current, s.Peak)
	}
}

// statsOf lists the figures of a PoolStats.
func statsOf(p *cupool.PoolStats) []*cupool.Stat {
	return []*cupool.Stat{&p.Allocation, &p.Segment, &p.Active, &p.InactiveSplit, &p.RequestedBytes, &p.AllocatedBytes, &p.ActiveBytes, &p.ReservedBytes, &p.InactiveSplitBytes}
}

// testStatsSums: sums grow by what came and went, also by what lies in magazines, and
// ResetPeak leaves them alone.
func testStatsSums(t *testing.T, e *env) {
	r := e.rig(t)
	r.free(r.alloc(5000, nil), r.alloc(3*mib, nil)) // both pools have what they need
	warm(r, 5000)
	warm(r, 3*mib)
	keep := r.alloc(5000, nil)
	was := r.Stats()
	require.EqualValues(t, 5000, was.All.RequestedBytes.Current)
	for range 5 {
		r.free(r.alloc(5000, nil), r.alloc(3*mib, nil))
	}
	st := r.Stats()
	require.EqualValues(t, 10, st.All.Allocation.Allocated-was.All.Allocation.Allocated)
	require.EqualValues(t, 10, st.All.Allocation.Freed-was.All.Allocation.Freed)
	require.EqualValues(t, 5*5000+5*3*mib, st.All.RequestedBytes.Allocated-was.All.RequestedBytes.Allocated)
	require.EqualValues(t, 5*5000+5*3*mib, st.All.RequestedBytes.Freed-was.All.RequestedBytes.Freed)
	require.EqualValues(t, 10, st.Hits-was.Hits)
	r.flush()
	r.ResetPeak()
	st = r.Stats()
	require.EqualValues(t, 10, st.All.Allocation.Freed-was.All.Allocation.Freed)
	for i, s := range statsOf(&st.All) {
		require.Equal(t, s.Current, s.Peak, "statistic %d", i)
	}
	r.free(keep)

	text := r.Stats().String()
	for _, want := range []string{r.device.Name(), "allocations", "inactive split", "small: ", "large: ", "fragmentation", "reserved", fmt.Sprintf("hits %d", r.Stats().Hits)} {
		require.Contains(t, text, want)
	}
}
