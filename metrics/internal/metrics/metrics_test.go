package metrics_test

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/simdev"
	"github.com/cupool/cupool/metrics/internal/metrics"
)

func newPool(t testing.TB, cfg cupool.Config) *cupool.Pool {
	if cfg.Driver == nil {
		cfg.Driver = simdev.New(simdev.Config{Name: "gpu"})
	}
	c, err := cupool.New(cfg)
	require.NoError(t, err)
	return c
}

func alloc(t testing.TB, a cupool.Allocator, size int64) cupool.Block {
	b, err := a.Alloc(size, nil)
	require.NoError(t, err)
	return b
}

// values returns what Read gives by name, pool and part.
func values(c ...*cupool.Pool) map[string]int64 {
	got := map[string]int64{}
	for _, s := range metrics.Read(c...) {
		got[strings.TrimSuffix(s.Metric.Name+" "+s.Pool+" "+s.Part, " ")] = s.Value
	}
	return got
}

// Every figure of Stats is a metric, or follows from others.
func TestEveryFigure(t *testing.T) {
	c := newPool(t, cupool.Config{Limit: 1 << 30})
	small, large := alloc(t, c, 1000), alloc(t, c, 3<<20)
	alloc(t, c, 5<<20)
	require.NoError(t, c.Free(small))
	require.NoError(t, c.Free(large))
	alloc(t, c, 1000)
	got, st := values(c), reflect.ValueOf(c.Stats())

	of := map[string]string{
		"LargestFree": "largest_free_bytes", "FreeBlocks": "free_blocks", "BlocksPending": "pending_blocks", "OOMs": "out_of_memory_total",
		"DriverAllocs": "driver_allocations_total", "Streams": "streams",
		"Allocation": "live_blocks", "Segment": "segments", "Active": "active_blocks", "InactiveSplit": "inactive_split_blocks",
		"AllocatedBytes": "live_bytes",
	}
	for i := range st.NumField() {
		field := st.Type().Field(i).Name
		name := of[field]
		switch {
		case field == "Device" || field == "Pool" || field == "Labels": // of all metrics, and metrics of their own
			continue
		case field == "All": // but for peaks the sum of the kinds
			stat(t, got, of, st.Field(i), "", "peak_")
			continue
		case field == "Small" || field == "Large":
			stat(t, got, of, st.Field(i), " "+strings.ToLower(field), "", "added_", "removed_")
			continue
		case field == "LiveBytes":
			assert.Equal(t, st.Field(i).Int(), got["live_bytes default small"]+got["live_bytes default large"])
			continue
		case name == "" && strings.HasSuffix(field, "Bytes") && field != "MovedBytes" && field != "DecayedBytes":
			name = snake(strings.TrimSuffix(field, "Bytes")) + "_bytes"
		case field == "Limit":
			name = "limit_bytes"
		case name == "":
			name = snake(field) + "_total"
		}
		value, ok := got[name+" default"]
		assert.True(t, ok, name)
		assert.Equal(t, st.Field(i).Int(), value, name)
	}
}

// stat compares a PoolStats with metrics that have the prefixes.
func stat(t *testing.T, got map[string]int64, of map[string]string, p reflect.Value, kind string, prefixes ...string) {
	fields := map[string]string{"": "Current", "peak_": "Peak", "added_": "Allocated", "removed_": "Freed"}
	for i := range p.NumField() {
		name := of[p.Type().Field(i).Name]
		if name == "" {
			name = snake(p.Type().Field(i).Name)
		}
		for _, prefix := range prefixes {
			full := prefix + name
			if prefix == "added_" || prefix == "removed_" {
				full += "_total"
			}
			value, ok := got[full+" default"+kind]
			assert.True(t, ok, full)
			assert.Equal(t, p.Field(i).FieldByName(fields[prefix]).Int(), value, full)
		}
	}
}

func snake(name string) string {
	var b strings.Builder
	for i, r := range name {
		if i > 0 && r >= 'A' && r <= 'Z' {
			b.WriteByte('_')
		}
		b.WriteRune(r)
	}
	return strings.ToLower(b.String())
}

func TestPools(t *testing.T) {
	c := newPool(t, cupool.Config{Backing: cupool.BackingSegments})
	p, err := c.NewPool(cupool.PoolConfig{Name: "tenant", Limit: 1 << 30})
	require.NoError(t, err)
	alloc(t, c, 3<<20)
	alloc(t, p, 12<<20)

	got := values(c)
	require.EqualValues(t, 3<<20, got["live_bytes default large"])
	require.EqualValues(t, 12<<20, got["live_bytes tenant large"])
	require.EqualValues(t, 1<<30, got["limit_bytes tenant"])
	require.NotContains(t, got, "limit_bytes default", "there is no limit")
	require.EqualValues(t, 1, got["streams default"])
	require.NotContains(t, got, "streams tenant", "streams are those of the device")
	require.Equal(t, got, values(c, p, c), "a pool counts once")

	alone := values(p)
	require.EqualValues(t, 12<<20, alone["live_bytes tenant large"])
	require.NotContains(t, alone, "live_bytes default large")

	same, err := c.NewPool(cupool.PoolConfig{Name: "tenant", Limit: 2 << 30})
	require.NoError(t, err)
	alloc(t, same, 14<<20)
	got = values(c)
	require.EqualValues(t, 26<<20, got["live_bytes tenant large"], "pools of one name are one")
	require.EqualValues(t, 14<<20, got["peak_live_bytes tenant"])
	require.EqualValues(t, 2<<30, got["limit_bytes tenant"])

	require.Error(t, p.Close(), "a leak")
	require.Error(t, same.Close(), "a leak")
	require.NotContains(t, values(c, p), "live_bytes tenant large")
	require.Error(t, c.Close(), "a leak")
	require.Empty(t, metrics.Read(c, p))
	require.Empty(t, metrics.Read())
}

// The device's memory is told once, whoever holds it, and peaks have no parts beside them that
// are their sum.
func TestDevice(t *testing.T) {
	c := newPool(t, cupool.Config{Driver: simdev.New(simdev.Config{Name: "gpu", Capacity: 1 << 30}), Backing: cupool.BackingSegments})
	_, err := c.NewPool(cupool.PoolConfig{Name: "tenant"})
	require.NoError(t, err)
	alloc(t, c, 24<<20)
	alloc(t, c, 1000)
	got := values(c)
	require.EqualValues(t, 1<<30, got["device_size_bytes default"])
	require.EqualValues(t, 1<<30-26<<20, got["device_free_bytes default"])
	require.NotContains(t, got, "device_size_bytes tenant")
	require.EqualValues(t, 26<<20, got["peak_reserved_bytes default"])
	for name := range got {
		require.False(t, strings.HasPrefix(name, "peak_") && (strings.HasSuffix(name, " small") || strings.HasSuffix(name, " large")), name)
	}
}

func TestLabels(t *testing.T) {
	c := newPool(t, cupool.Config{})
	b := alloc(t, c.WithLabel("encoder"), 1000)
	alloc(t, c.WithLabel("a\xffb"), 500)
	require.NoError(t, c.Free(b))
	got := values(c)
	require.EqualValues(t, 0, got["label_bytes default encoder"])
	require.EqualValues(t, 1000, got["peak_label_bytes default encoder"])
	require.EqualValues(t, 1000, got["added_label_bytes_total default encoder"])
	require.EqualValues(t, 1, got["removed_label_blocks_total default encoder"])
	require.EqualValues(t, 500, got["label_bytes default a\uFFFDb"], "names are valid UTF-8")
}

// Counters never fall, in whichever order blocks come and go; the samples come by
// metric.
func TestCountersGrow(t *testing.T) {
	seed := rand.Uint64()
	t.Log("seed", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	for _, backing := range []cupool.Backing{cupool.BackingSegments, cupool.BackingVMM} {
		t.Run(fmt.Sprint(backing), func(t *testing.T) {
			c := newPool(t, cupool.Config{Backing: backing})
			other, err := c.NewStream()
			require.NoError(t, err)
			streams := []*cupool.Stream{nil, other}
			views := []cupool.Allocator{c, c.WithLabel("a")}
			last := map[metrics.Sample]int64{}
			var live []cupool.Block
			for range 400 {
				for range r.IntN(20) {
					if len(live) > 30 || len(live) > 0 && r.IntN(2) == 0 {
						i := r.IntN(len(live))
						if r.IntN(3) == 0 {
							require.NoError(t, c.RecordStream(live[i], other))
						}
						require.NoError(t, c.Free(live[i]))
						live = append(live[:i], live[i+1:]...)
						continue
					}
					b, err := views[r.IntN(2)].Alloc([]int64{512, 5000, 2 << 20, 30 << 20}[r.IntN(4)], streams[r.IntN(2)])
					require.NoError(t, err)
					live = append(live, b)
				}
				if r.IntN(50) == 0 {
					require.NoError(t, c.EmptyCache())
				}
				for _, s := range metrics.Read(c) {
					if s.Metric.Kind == metrics.Counter {
						now := s.Value
						s.Value = 0
						require.GreaterOrEqual(t, now, last[s], s.Metric.Name)
						last[s] = now
					}
				}
			}
			require.NotEmpty(t, last)
		})
	}
}

func TestOrder(t *testing.T) {
	c := newPool(t, cupool.Config{Limit: 1 << 30})
	_, err := c.NewPool(cupool.PoolConfig{})
	require.NoError(t, err)
	alloc(t, c.WithLabel("a"), 1)
	all, next := metrics.All(), 0
	for _, s := range metrics.Read(c) {
		for all[next] != s.Metric {
			next++
			require.Less(t, next, len(all), "%s comes twice", s.Metric.Name)
		}
	}
	require.Equal(t, len(all)-1, next)
}

// Reading goes on beside the program's calls and its Close.
func TestReadInGoroutines(t *testing.T) {
	c := newPool(t, cupool.Config{})
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for range 300 {
				metrics.Read(c)
			}
		})
		wg.Go(func() {
			a := c.WithLabel("worker")
			for range 300 {
				p, err := c.NewPool(cupool.PoolConfig{Name: "short"})
				if err != nil {
					t.Error(err)
					return
				}
				for _, from := range []cupool.Allocator{c, a, p} {
					b, err := from.Alloc(1000, nil)
					if err != nil {
						t.Error(err)
						return
					}
					if err := from.Free(b); err != nil {
						t.Error(err)
					}
				}
				if err := p.Close(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	require.NoError(t, c.Close())
}

func BenchmarkRead(b *testing.B) {
	for _, blocks := range []int{100, 10_000, 100_000} {
		b.Run(fmt.Sprint(blocks), func(b *testing.B) {
			c := newPool(b, cupool.Config{})
			for range blocks {
				alloc(b, c, 512)
			}
			for b.Loop() {
				metrics.Read(c)
			}
		})
	}
}

// A pool that is none has no metrics, and does not end a program that is asked for them.
func TestNoPools(t *testing.T) {
	require.Empty(t, metrics.Read())
	require.Empty(t, metrics.Read(nil, new(cupool.Pool)))
}
