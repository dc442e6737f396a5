package conformance

import (
	"bytes"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
)

// testModel runs a random program on the allocator and on the model, and
// compares every placement, the layout and every statistic after each step.
func testModel(t *testing.T, e *env) {
	s := seed(t)
	for i := range 3 {
		r := e.rig(t, noMagazines, unlimited, segments)
		p := &modelProgram{r: r, large: i == 2, maxLive: 40, c: choices(s, i), m: newModel(&r.cfg, !e.opt.WaitsRun)}
		p.streams = []*cupool.Stream{r.DefaultStream(), r.stream()}
		p.index = []int{0, 1}
		p.reader, p.next = r.stream(), 3
		if p.large {
			p.maxLive = 100
		}
		for range scaled(1500) {
			p.step()
			p.compare()
		}
		p.settle()
		r.free(p.live...)
	}
}

type modelProgram struct {
	r       *rig
	m       *model
	c       chooser
	streams []*cupool.Stream
	index   []int // of the streams in the allocator's layout
	next    int
	reader  *cupool.Stream
	idle    func() // ends what keeps the reader busy; nil: it is not
	live    []cupool.Block
	large   bool // beyond what is reserved without a second thought
	maxLive int
}

func (p *modelProgram) step() {
	t := p.r.t
	switch n := p.c.IntN(100); {
	case n < 50 && len(p.live) < p.maxLive || len(p.live) == 0:
		i := p.c.IntN(len(p.streams))
		size := int64(anySize(p.c))
		if p.c.IntN(16) == 0 || p.large && p.c.IntN(3) > 0 {
			size = 1 + int64(p.c.IntN(24<<20))
		}
		if p.m.grows(size, p.index[i]) && p.m.idleSegments() {
			p.settle()
		}
		b := p.r.alloc(size, p.streams[i])
		p.m.takeIdle(b.Size(), p.index[i])
		p.m.releaseIdle(b.Size(), p.index[i])
		require.NoError(t, p.m.alloc(b, p.index[i]))
		p.live = append(p.live, b)
	case n < 80:
		p.free()
	case n < 84:
		p.m.resetPeak()
		p.r.ResetPeak()
	case n < 86:
		p.m.resetAccumulated()
		p.r.ResetAccumulated()
	case n < 90:
		p.toggle()
	case n < 92:
		p.settle()
		require.NoError(t, p.r.EmptyCache())
		p.m.trim(0)
	case n < 96:
		p.settle()
		keep := int64(p.c.IntN(64)) * mib
		released, err := p.r.Trim(keep)
		require.NoError(t, err)
		require.Equal(t, p.m.trim(keep), released)
	case n < 98:
		p.settle()
		require.NoError(t, p.streams[1].Close())
		p.m.close(p.index[1])
		p.streams[1], p.index[1] = p.r.stream(), p.next
		p.m.open = append(p.m.open, p.next)
		p.next++
	default:
		p.r.unchanged(func() {
			_, err := p.r.Alloc(-1, nil)
			require.Error(t, err)
			require.Error(t, p.r.FreePtr(p.live[0].Ptr(), p.live[0].Size()+1))
		})
	}
}

func (p *modelProgram) free() {
	i := p.c.IntN(len(p.live))
	b := p.live[i]
	p.live[i] = p.live[len(p.live)-1]
	p.live = p.live[:len(p.live)-1]
	if p.idle != nil && p.c.IntN(3) == 0 {
		require.NoError(p.r.t, p.r.FreeOn(b, p.reader))
		p.m.free(b.Ptr(), true)
		return
	}
	p.r.free(b)
	p.m.free(b.Ptr(), false)
}

// toggle makes the reader busy, or lets it go on and finish.
func (p *modelProgram) toggle() {
	if p.idle != nil {
		p.settle()
		return
	}
	hook := p.r.env.opt.Busy
	if hook == nil {
		hook = launchBusy
	}
	if f, err := hook(p.r.device, p.reader); err == nil {
		p.idle = f
		p.r.busy = append(p.r.busy, p.settle)
	}
}

func (p *modelProgram) settle() {
	if p.idle == nil {
		return
	}
	p.idle()
	p.idle = nil
	require.NoError(p.r.t, p.reader.Sync())
	p.m.retire()
}

func (p *modelProgram) compare() {
	t := p.r.t
	if want, got := p.m.layout(), p.r.Layout(); want != got {
		require.Equal(t, want, got)
	}
	got := p.r.Stats()
	want := p.m.expect(got)
	if want != got {
		require.Equal(t, want, got)
	}
	require.Equal(t, got.All.ReservedBytes.Current, got.LiveBytes+got.PendingBytes+got.CachedBytes)
	if err := p.r.Check(); err != nil {
		require.NoError(t, err)
	}
}

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
	c := choices(seed(t), 0)
	u := r.stream()
	var live []cupool.Block
	var bytes, peak int64
	var allocs int64
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
	}
	st := r.Stats()
	slack := max(r.cfg.MagazineBytes, 0)
	require.GreaterOrEqual(t, st.All.RequestedBytes.Peak, peak)
	require.LessOrEqual(t, st.All.RequestedBytes.Peak, peak+slack)
	if slack == 0 {
		require.Equal(t, peak, st.All.RequestedBytes.Peak)
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
	sums := parseLayout(r.Layout())
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

// testStatsReset: after a reset everything counts from zero, also for what
// lies in magazines at that moment.
func testStatsReset(t *testing.T, e *env) {
	r := e.rig(t)
	r.free(r.alloc(5000, nil), r.alloc(3*mib, nil)) // both pools have what they need
	warm(r, 5000)
	warm(r, 3*mib)
	keep := r.alloc(5000, nil)
	r.ResetAccumulated()
	st := r.Stats()
	for _, p := range []*cupool.PoolStats{&st.All, &st.Small, &st.Large} {
		for i, s := range statsOf(p) {
			require.Zero(t, s.Allocated, "statistic %d", i)
			require.Zero(t, s.Freed, "statistic %d", i)
		}
	}
	require.EqualValues(t, 5000, st.All.RequestedBytes.Current)
	require.Zero(t, st.Hits+st.Misses+st.MagazineHits+st.DriverAllocs+st.DriverFrees+st.OOMs+st.Retries)
	for range 5 {
		r.free(r.alloc(5000, nil), r.alloc(3*mib, nil))
	}
	st = r.Stats()
	require.EqualValues(t, 10, st.All.Allocation.Allocated)
	require.EqualValues(t, 10, st.All.Allocation.Freed)
	require.EqualValues(t, 5*5000+5*3*mib, st.All.RequestedBytes.Allocated)
	require.EqualValues(t, 5*5000+5*3*mib, st.All.RequestedBytes.Freed)
	require.EqualValues(t, 10, st.Hits)
	r.flush()
	st = r.Stats()
	require.EqualValues(t, 10, st.All.Allocation.Freed)
	r.ResetPeak()
	st = r.Stats()
	for i, s := range statsOf(&st.All) {
		require.Equal(t, s.Current, s.Peak, "statistic %d", i)
	}
	r.free(keep)

	var buf bytes.Buffer
	require.NoError(t, r.WriteStats(&buf))
	for _, want := range []string{r.device.Name(), "allocations", "inactive split", "small: ", "large: ", "fragmentation", "reserved", fmt.Sprintf("hits %d", r.Stats().Hits)} {
		require.Contains(t, buf.String(), want)
	}
}
