package cupool_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/google/pprof/profile"
	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/simdev"
	"github.com/cupool/cupool/internal/testkit"
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

// What is written is read back, but for the states that PyTorch does not know.
func TestWriteSnapshot(t *testing.T) {
	c, d := pooltest.New(t, 1<<30)
	p := pooltest.NewPrivate(t, c, cupool.PoolConfig{Name: "tenant"})
	pooltest.NewScript(t, c, d).Run("a=2M+1 p=4M free:a busy:1 free:p@1")
	_, err := c.WithLabel("weights").Alloc(1000, nil)
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

// walk does what programs do, at random.
type walk struct {
	*rand.Rand
	t       *testing.T
	d       *simdev.Device
	pools   []*cupool.Pool // the allocator is the first
	labeled []cupool.Allocator
	streams []*cupool.Stream
	held    []held
}

type held struct {
	cupool.Block
	from cupool.Allocator
}

func newWalk(t *testing.T, cfg cupool.Config) *walk {
	w := &walk{Rand: testkit.Rand(t), t: t, d: simdev.New(simdev.Config{Capacity: 1 << 30, ManualEvents: true, IdleEvents: true})}
	cfg.Driver = w.d
	c := pooltest.Open(t, cfg)
	w.pools = []*cupool.Pool{c, pooltest.NewPrivate(t, c, cupool.PoolConfig{Name: "a"}), pooltest.NewPrivate(t, c, cupool.PoolConfig{Name: "b", UseOnOOM: true})}
	w.labeled = []cupool.Allocator{c.WithLabel("weights"), w.pools[1].WithLabel("batches")}
	for range 3 {
		s := pooltest.NewStream(t, c)
		w.streams = append(w.streams, s)
	}
	return w
}

func pick[T any](w *walk, list []T) T { return list[w.IntN(len(list))] }

func (w *walk) step() {
	switch n := w.IntN(100); {
	case n < 45:
		w.alloc()
	case n < 80:
		w.free()
	case n < 86 && len(w.held) > 0:
		s := pick(w, w.streams)
		require.NoError(w.t, w.d.Launch(s.Handle(), func() {}))
		b := pick(w, w.held)
		require.NoError(w.t, b.from.RecordStream(b.Block, s))
	case n < 90:
		w.d.CompleteStream(pick(w, w.streams).Handle())
	case n < 94:
		_, err := pick(w, w.pools).ProcessDeferred()
		require.NoError(w.t, err)
	case n < 97:
		_, err := pick(w, w.pools).Trim(w.Int64N(64 * mib))
		require.NoError(w.t, err)
	case n < 98:
		require.NoError(w.t, pick(w, w.pools).EmptyCache())
	}
}

func (w *walk) alloc() {
	var from cupool.Allocator = pick(w, w.pools)
	if w.IntN(4) == 0 {
		from = pick(w, w.labeled)
	}
	size := 1 + w.Int64N(1<<(9+w.IntN(17))) // to 32 MiB
	b, err := from.Alloc(size, pick(w, w.streams))
	switch {
	case err == nil:
		w.held = append(w.held, held{b, from})
		return
	case !errors.Is(err, cupool.ErrOutOfMemory):
		require.NoError(w.t, err)
	}
	for range len(w.held) / 2 {
		w.free()
	}
}

func (w *walk) free() {
	if len(w.held) == 0 {
		return
	}
	i := w.IntN(len(w.held))
	b := w.held[i]
	w.held[i] = w.held[len(w.held)-1]
	w.held = w.held[:len(w.held)-1]
	if w.IntN(3) == 0 {
		s := pick(w, w.streams)
		require.NoError(w.t, w.d.Launch(s.Handle(), func() {}))
		require.NoError(w.t, w.pools[0].FreeOn(b.Block, s))
		return
	}
	require.NoError(w.t, b.from.Free(b.Block))
}

// TestStatsAreTheSnapshots is PyTorch's test_memory_stats: after each of 10,000
// random operations (fewer in the quick form), the present statistics are computed
// from the snapshot and are equal in every field. The one figure that no snapshot has
// is how many pieces virtual memory is made of.
func TestStatsAreTheSnapshots(t *testing.T) {
	for _, backing := range []cupool.Backing{cupool.BackingSegments, cupool.BackingVMM} {
		for _, magazines := range []int64{-1, 0} {
			t.Run(fmt.Sprintf("%v, magazines %v", backing, magazines == 0), func(t *testing.T) {
				w := newWalk(t, cupool.Config{Backing: backing, Limit: 192 * mib, MagazineBytes: magazines})
				for range testkit.Choose(10_000, 2000) {
					w.step()
					for _, p := range w.pools {
						st, s := p.Stats(), p.Snapshot()
						small, large := counted(s, "small"), counted(s, "large")
						all := small
						for i, n := range large {
							all[i] += n
						}
						got := [][10]int64{present(st.Small), present(st.Large), present(st.All)}
						if backing == cupool.BackingVMM {
							got[0][0], got[1][0], got[2][0] = 0, 0, 0
						}
						require.Equal(t, [][10]int64{small, large, all}, got)
						require.Equal(t, spare(s), [3]int64{st.FreeBlocks, st.CachedBytes, st.LargestFree})
					}
				}
				require.Equal(t, backing == cupool.BackingVMM, w.pools[0].Stats().Stitches > 0)
			})
		}
	}
}

// spare returns how many blocks of a snapshot are ready for reuse, their bytes, and those of
// the largest.
func spare(s cupool.Snapshot) (n [3]int64) {
	for _, seg := range s.Segments {
		for _, b := range seg.Blocks {
			if b.State == snapshot.Free || b.State == snapshot.Cached {
				n = [...]int64{n[0] + 1, n[1] + b.Size, max(n[2], b.Size)}
			}
		}
	}
	return n
}

// present returns the present figures of statistics.
func present(p cupool.PoolStats) [10]int64 {
	return [...]int64{
		p.Segment.Current, p.Allocation.Current, p.Active.Current, p.InactiveSplit.Current,
		p.RequestedBytes.Current, p.AllocatedBytes.Current, p.ActiveBytes.Current, p.InactiveSplitBytes.Current, p.ReservedBytes.Current,
		p.ActiveRequestedBytes.Current,
	}
}

// counted returns the same figures of a snapshot's segments of a type.
func counted(s cupool.Snapshot, of string) (n [10]int64) {
	for _, seg := range s.Segments {
		if seg.Type != of {
			continue
		}
		if !seg.Virtual {
			n[0]++
		}
		for _, b := range seg.Blocks {
			if !seg.Stitched && b.State != snapshot.Gap { // what is stitched is parts elsewhere
				n[8] += b.Size
			}
			switch b.State {
			case snapshot.Live:
				n[1], n[4], n[5] = n[1]+1, n[4]+b.Requested, n[5]+b.Size
				fallthrough
			case snapshot.Pending:
				n[2], n[6], n[9] = n[2]+1, n[6]+b.Size, n[9]+b.Requested
			case snapshot.Free:
				if len(seg.Blocks) > 1 {
					n[3], n[7] = n[3]+1, n[7]+b.Size
				}
			}
		}
	}
	return n
}

// A history of everything is written whole, and of one with samples all of the
// samples; blocks that are live and no samples are allocated with their segments.
func TestWriteTorchWithHistory(t *testing.T) {
	for _, bytes := range []int64{1, 1 << 20} {
		w := newWalk(t, cupool.Config{Backing: cupool.BackingSegments, Limit: 192 * mib})
		require.NoError(t, w.pools[0].StartHistory(cupool.History{SampleBytes: bytes}))
		for range 2000 {
			w.step()
		}
		written, live := map[snapshot.Kind]int{}, 0
		for _, s := range readBack(t, w.pools[0]) {
			count(written, s.Events)
			for _, seg := range s.Segments {
				for _, b := range seg.Blocks {
					if b.State == snapshot.Live || b.State == snapshot.Pending {
						live++
					}
				}
			}
		}
		recorded := map[snapshot.Kind]int{}
		count(recorded, cupool.AllEvents(w.pools[0], 0))
		require.Greater(t, recorded[snapshot.FreeCompleted], 10)
		recorded[snapshot.Alloc] = recorded[snapshot.FreeCompleted] + live // as every block is of a segment that came later
		require.Equal(t, recorded, written)
	}
}

func count(kinds map[snapshot.Kind]int, events []snapshot.Event) {
	for _, e := range events {
		kinds[e.Kind]++
	}
}

// The sums of a profile of recorded allocations are those of the statistics, and a
// private pool's are in that of its allocator.
func TestWriteProfile(t *testing.T) {
	seed := rand.Uint64()
	t.Log("seed", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	c, _ := pooltest.New(t, 1<<30, func(cfg *cupool.Config) { cfg.History = &cupool.History{SampleBytes: 1} })
	p := pooltest.NewPrivate(t, c, cupool.PoolConfig{Name: "private"})
	s := pooltest.NewStream(t, c)
	var live []cupool.Block
	for range 500 {
		a := []cupool.Allocator{c, p, c.WithLabel("x")}[r.IntN(3)]
		b, err := a.Alloc(1+r.Int64N(100_000), []*cupool.Stream{nil, s}[r.IntN(2)])
		require.NoError(t, err)
		live = append(live, b)
		if i := r.IntN(len(live)); r.IntN(2) == 0 {
			require.NoError(t, c.Free(live[i]))
			live = append(live[:i], live[i+1:]...)
		}
	}
	of := func(c *cupool.Pool) [4]int64 {
		st := c.Stats().All
		return [...]int64{st.Allocation.Allocated, st.RequestedBytes.Allocated, st.Allocation.Current, st.RequestedBytes.Current}
	}
	sums, pool := profiled(t, c)
	want, private := of(c), of(p)
	for i := range want {
		want[i] += private[i]
	}
	require.Equal(t, want, sums)
	require.Equal(t, private[3], pool)

	sums, pool = profiled(t, p)
	require.Equal(t, private, sums)
	require.Equal(t, private[3], pool)
}

// profiled returns the sums of a profile, and that of its live bytes with a pool's name.
func profiled(t *testing.T, c *cupool.Pool) (sums [4]int64, named int64) {
	var file bytes.Buffer
	require.NoError(t, snapshot.WriteProfile(&file, c.Snapshot()))
	p, err := profile.Parse(&file)
	require.NoError(t, err)
	for _, s := range p.Sample {
		for i, v := range s.Value {
			sums[i] += v
		}
		if len(s.Label["pool"]) > 0 {
			named += s.Value[3]
		}
		require.Regexp(t, `^github.com/cupool/cupool_test\.`, s.Location[0].Line[0].Function.Name)
	}
	return sums, named
}

// TestLabelOfNoPool: an allocator of no pool fails as that does.
func TestLabelOfNoPool(t *testing.T) {
	for _, c := range []*cupool.Pool{nil, {}} {
		for _, size := range []int64{-1, 0, 1} {
			_, err := c.WithLabel("weights").Alloc(size, nil)
			require.ErrorIs(t, err, cupool.ErrInvalidHandle)
		}
	}
}
