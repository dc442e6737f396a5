package replay

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/simdev"
	"github.com/cupool/cupool/internal/testkit"
	"github.com/cupool/cupool/internal/trace"
)

// parse reads a trace from text.
func parse(t testing.TB, text string) *trace.Trace {
	t.Helper()
	tr, err := trace.Read(strings.NewReader(text), t.Name())
	require.NoError(t, err)
	return tr
}

// random makes a trace of so many events on three streams, with blocks that
// are used on others and streams that wait for one another.
func random(t testing.TB, seed uint64, events int) *trace.Trace {
	r := rand.New(rand.NewPCG(seed, 0))
	var text strings.Builder
	write := func(letter byte, numbers ...int) {
		text.WriteByte(letter)
		for _, n := range numbers {
			fmt.Fprint(&text, " ", n)
		}
		text.WriteByte('\n')
	}
	var live []int
	blocks, marks := 0, 0
	for range events {
		switch k := r.IntN(20); {
		case k < 9 || len(live) == 0:
			write('a', blocks, r.IntN(1<<(9+r.IntN(16))), r.IntN(3))
			live = append(live, blocks)
			blocks++
		case k < 17:
			i := r.IntN(len(live))
			write('f', live[i])
			live[i] = live[len(live)-1]
			live = live[:len(live)-1]
		case k < 18:
			write('r', live[r.IntN(len(live))], r.IntN(3))
		case k < 19 || marks == 0:
			write('e', marks%5, r.IntN(3))
			marks++
		default:
			write('w', r.IntN(min(marks, 5)), r.IntN(3))
		}
	}
	return parse(t, text.String())
}

func TestRun(t *testing.T) {
	tr := parse(t, "a 0 1000 0\na 1 3000000 0\nf 1\na 2 2500000 4\nf 0\n")
	seen := 0
	r, err := Run(context.Background(), tr, Options{Backing: "segments", Repeat: 3, Progress: func(n int) { seen += n }})
	require.NoError(t, err)
	require.Equal(t, 3*5, seen)
	require.EqualValues(t, 3001000, r.PeakRequestedBytes)
	require.EqualValues(t, 3, r.DriverAllocs)
	require.InDelta(t, float64(r.PeakReservedBytes)/3001000, r.Ratio, 1e-9)
	require.Positive(t, r.NsPerEvent)
	require.Positive(t, r.DriverUsModelled)
	require.Zero(t, r.FailedAllocs)
}

func TestNothingRequested(t *testing.T) {
	for _, text := range []string{"# nothing\n", "a 0 0 0\nf 0\n"} {
		r, err := Run(context.Background(), parse(t, text), Options{Samples: 10})
		require.NoError(t, err)
		require.EqualValues(t, 1, r.Ratio)
		require.Zero(t, r.PeakReservedBytes)
	}
}

// A device that is too small makes allocations fail and the replay go on.
func TestFailedAllocs(t *testing.T) {
	tr := parse(t, "a 0 4194304 0\na 1 8388608 0\nr 1 3\nf 1\na 2 1099511627776 0\nf 0\na 3 8388608 0\n")
	for _, device := range []string{"sim", "host"} {
		for _, backing := range []string{"segments", "vmm"} {
			r, err := Run(context.Background(), tr, Options{Device: device, Backing: backing, Capacity: 20 << 20, Repeat: 5})
			require.NoError(t, err)
			require.EqualValues(t, 1, r.FailedAllocs)
			require.EqualValues(t, 1, r.OOMs)
			require.Equal(t, 5, r.FirstFailed)
			var oom *cupool.OOMError
			require.ErrorAs(t, r.Failure, &oom)
			require.EqualValues(t, 1<<40, oom.Requested)
		}
	}
}

// A device that is behind holds up memory of the streams whose work is not done: of those
// that had it, or in the device's order of any.
func TestLag(t *testing.T) {
	tr := parse(t, "a 0 67108864 0\na 1 4096 2\nf 0\na 2 67108864 1\n")
	for _, tc := range []struct {
		lag      int
		order    cupool.IdleOrder
		reserved int64 // MiB
	}{
		{0, cupool.OwnerOrder, 66}, {1, cupool.OwnerOrder, 66}, {2, cupool.OwnerOrder, 130},
		{0, cupool.DeviceOrder, 66}, {1, cupool.DeviceOrder, 130}, {2, cupool.DeviceOrder, 130},
	} {
		for _, backing := range []string{"segments", "vmm"} {
			r, err := Run(context.Background(), tr, Options{Backing: backing, Lag: tc.lag, Config: cupool.Config{IdleOrder: tc.order}})
			require.NoError(t, err)
			require.Equal(t, tc.reserved<<20, r.PeakReservedBytes, "%s %+v", backing, tc)
		}
	}
}

// A device that is behind goes on while the program waits for it.
func TestLagWaits(t *testing.T) {
	tr := parse(t, "a 0 134217728 0\na 1 134217728 1\nf 0\n"+strings.Repeat("a 2 4096 0\nf 2\n", 20)+"a 3 268435456 1\nr 3 0\nf 3\n"+
		strings.Repeat("a 2 67108864 0\nf 2\n", 20)+"a 4 268435456 1\n")
	o := Options{Backing: "vmm", Lag: 500}
	r, err := Run(context.Background(), tr, o)
	require.NoError(t, err)
	o.Config.GrowWait = time.Minute
	waited, err := Run(context.Background(), tr, o)
	require.NoError(t, err)
	require.Less(t, waited.PeakReservedBytes, r.PeakReservedBytes)
}

// The same trace gives the same result every time.
func TestDeterministic(t *testing.T) {
	tr := random(t, 1, 5000)
	for _, backing := range []string{"segments", "vmm"} {
		var first Result
		for i := range 3 {
			r, err := Run(context.Background(), tr, Options{Backing: backing, Samples: 20})
			require.NoError(t, err)
			r.NsPerEvent = 0
			if i == 0 {
				first = r
			}
			require.Equal(t, first, r)
		}
	}
}

// On the host, contents are verified, with streams that really run beside
// one another; in virtual memory the peak does not depend on the device.
func TestHost(t *testing.T) {
	for seed := range testkit.Choose[uint64](4, 1) {
		tr := random(t, seed, 3000)
		for _, backing := range []string{"segments", "vmm"} {
			if backing == "vmm" && runtime.GOOS != "linux" {
				continue
			}
			r, err := Run(context.Background(), tr, Options{Device: "host:64GiB", Backing: backing, Verify: true})
			require.NoError(t, err)
			require.Positive(t, r.Checked)
		}
	}
}

// The samples of a plot hold the peaks, and the reserved bytes every change.
func TestSamples(t *testing.T) {
	tr := random(t, 7, 4000)
	for _, backing := range []string{"segments", "vmm"} {
		r, err := Run(context.Background(), tr, Options{Backing: backing, Samples: 30})
		require.NoError(t, err)
		var requested, reserved int64
		last := 0
		for _, s := range r.Samples {
			require.Greater(t, s.Event, last)
			require.GreaterOrEqual(t, s.Live, s.Requested)
			requested, last = max(requested, s.Requested), s.Event
		}
		require.Equal(t, tr.PeakRequested, requested)
		require.Equal(t, len(tr.Events), last)
		last = 0
		for _, p := range r.Reserved {
			require.Greater(t, p.Event, last)
			reserved, last = max(reserved, p.Bytes), p.Event
		}
		require.Equal(t, r.PeakReservedBytes, reserved)
	}
}

func TestAtPeak(t *testing.T) {
	for text, want := range map[string]int64{"a 1 3000000 0\na 2 5000000 0\nf 1\na 3 1000 0\nf 2\nf 3\n": 8000000, "# nothing\n": 0} {
		p, err := AtPeak(t.Context(), parse(t, text), Options{})
		require.NoError(t, err)
		var requested int64
		for _, seg := range p.Segments {
			requested += seg.Requested
		}
		require.Equal(t, want, requested)
	}
}

func TestCancel(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	_, err := Run(ctx, random(t, 3, 3*chunk), Options{Progress: func(int) { cancel() }})
	require.ErrorIs(t, err, context.Canceled)
}

func TestOptions(t *testing.T) {
	tr := parse(t, "a 0 1 0\n")
	for want, o := range map[string]Options{
		"unknown backing \"x\": it is one of segments, vmm, planned":           {Backing: "x"},
		"unknown strategy \"x\": it is one of best-fit, first-fit, segregated": {Strategy: "x"},
		"unknown device \"gpu\": it is sim, host or cuda":                      {Device: "gpu"},
		"negative capacity -1": {Capacity: -1},
		"lag -1":               {Lag: -1},
		"lag 1000001":          {Lag: 1_000_001},
		"lag 1":                {Lag: 1, Device: "host"},
		"the simulated device has no memory whose contents could be verified": {Verify: true},
		"must not be negative": {Config: cupool.Config{Limit: -1}},
		`device = host:x: the capacity of the host device is a size such as 4GiB`: {Device: "host:x"},
	} {
		_, err := Run(context.Background(), tr, o)
		require.ErrorContains(t, err, want)
	}
}

// TestSmallerBoundHolds: of the device's bytes and the allocator's limit, in either order.
func TestSmallerBoundHolds(t *testing.T) {
	tr := parse(t, "a 0 8388608 0\n")
	for _, device := range []string{"sim", "host"} {
		for _, capacity := range []int64{1 << 20, 1 << 30} {
			r, err := Run(context.Background(), tr, Options{Device: device, Capacity: capacity, Config: cupool.Config{Limit: 1<<20 + 1<<30 - capacity}})
			require.NoError(t, err)
			require.EqualValues(t, 1, r.FailedAllocs, "%s, capacity %d", device, capacity)
		}
	}
	_, err := Run(context.Background(), tr, Options{Device: "host", Capacity: 1 << 30, Config: cupool.Config{Limit: -1}})
	require.ErrorContains(t, err, "must not be negative")
}

// TestMagazines: they are off unless they are asked for, and then as the settings say.
func TestMagazines(t *testing.T) {
	const rounds = 20
	var text strings.Builder
	for i := range rounds {
		fmt.Fprintf(&text, "a %d 4096 0\nf %d\n", i, i)
	}
	tr := parse(t, text.String())
	hits := func(o Options) (n int64) {
		require.NoError(t, After(context.Background(), tr, o, len(tr.Events), func(c *cupool.Pool) error {
			n = c.Stats().MagazineHits
			return nil
		}))
		return n
	}
	require.Zero(t, hits(Options{}))
	require.Zero(t, hits(Options{Config: cupool.Config{MagazineBytes: 1 << 20}}))
	require.Greater(t, hits(Options{Magazines: true}), int64(rounds/2))
	require.Zero(t, hits(Options{Magazines: true, Config: cupool.Config{MagazineBytes: -1}}))
}

// The meter counts what the simulated device counts.
func TestMeter(t *testing.T) {
	tr := random(t, 5, 4000)
	for _, backing := range []cupool.Backing{cupool.BackingSegments, cupool.BackingVMM} {
		d := simdev.New(simdev.Config{Capacity: 200 << 20})
		driver, m := newMeter(d)
		pool, err := cupool.New(cupool.Config{Driver: driver, Backing: backing, MagazineBytes: -1})
		require.NoError(t, err)
		r := &run{t: tr, pool: pool, alloc: pool, blocks: make([]cupool.Block, tr.Blocks), marks: make([]*cupool.Event, tr.Marks)}
		r.streams = []*cupool.Stream{pool.DefaultStream()}
		for range tr.Streams[1:] {
			s, err := pool.NewStream()
			require.NoError(t, err)
			r.streams = append(r.streams, s)
		}
		require.NoError(t, r.replay(0, len(tr.Events)))
		require.Positive(t, r.result.FailedAllocs) // so that memory was given back too
		require.NoError(t, pool.EmptyCache())
		require.Equal(t, d.ModelledTotal(), m.calls().cost)
		require.Equal(t, d.Stats().UsedBytes, m.used)
		require.Positive(t, m.calls().frees)
		if backing == cupool.BackingVMM {
			handles, sum := map[uintptr]bool{}, int64(0)
			for _, x := range m.mapped() {
				if !handles[x.handle] {
					sum += x.size
				}
				handles[x.handle] = true
			}
			require.Equal(t, m.used, sum, "what is held is mapped, and nothing else")
		}
	}
}

// Two blocks at the same address are noticed, wherever they overlap.
func TestCheckerFindsOverlaps(t *testing.T) {
	d, err := cupool.Open("host:1GiB")
	require.NoError(t, err)
	defer d.Close()
	pool, err := cupool.New(cupool.Config{Driver: d})
	require.NoError(t, err)
	defer pool.Close()
	b, err := pool.Alloc(9<<20, nil)
	require.NoError(t, err)
	c := newChecker(d, &trace.Trace{Blocks: 2})
	for name, write := range map[string]struct {
		at cupool.Ptr
		n  int64
	}{
		"the start":  {b.Ptr(), 1},
		"the end":    {b.Ptr() + 9<<20 - 1, 1},
		"the middle": {b.Ptr() + 3<<20, 2 << 20},
	} {
		require.NoError(t, c.fill(1, b, pool.DefaultStream()), name)
		require.NoError(t, c.verify(1, b), name)
		require.NoError(t, pool.DefaultStream().Memset(write.at, pattern(0), write.n), name)
		require.ErrorContains(t, c.verify(1, b), "its memory was written by another", name)
	}
	require.NoError(t, pool.Free(b))
	require.EqualValues(t, 6, c.checked)
}

func TestPatterns(t *testing.T) {
	for id := range uint32(1000) {
		require.NotZero(t, pattern(id))
		require.NotEqual(t, pattern(id), pattern(id+1))
	}
}

// BenchmarkRun reports the time of an event with everything around it.
func BenchmarkRun(b *testing.B) {
	tr := recorded(b, "gpt2")
	for _, backing := range []string{"segments", "vmm"} {
		b.Run("backing="+backing, func(b *testing.B) {
			least := 1e9
			for b.Loop() {
				r, err := Run(context.Background(), tr, Options{Backing: backing})
				require.NoError(b, err)
				least = min(least, r.NsPerEvent)
			}
			b.ReportMetric(least, "ns/event")
		})
	}
}
