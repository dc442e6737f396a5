package cupool_test

import (
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/conformance"
	"github.com/cupool/cupool/internal/simdev"
	"github.com/cupool/cupool/internal/testkit"
	"github.com/cupool/cupool/internal/testkit/pooltest"
)

// configs are what the battery runs with. Where nothing is said, memory comes
// from virtual memory, which both devices have (the host on Linux).
var configs = map[string]cupool.Config{
	"default":               {},
	"no_magazines":          {MagazineBytes: -1},
	"segments":              {Backing: cupool.BackingSegments},
	"segments/no_magazines": {Backing: cupool.BackingSegments, MagazineBytes: -1},
	"segments/odd_sizes":    {Backing: cupool.BackingSegments, SmallLimit: 70_000, SmallSegment: 300 * 512, LargeSegment: 3_000 * 1024, LargeLimit: 2_000_000, SegmentRounding: 1536, MinSplit: 512},
	"segments/small_limit":  {Backing: cupool.BackingSegments, Limit: 96 << 20},
	"small_limit":           {Limit: 96 << 20},
	"fraction":              {Fraction: 0.5, MagazineBytes: 1 << 20},
	"odd_sizes":             {SmallLimit: 70_000, SmallSegment: 300 * 512, LargeLimit: 2_000_000, MinSplit: 512, MagazineBytes: 64 << 10},
	"min_block":             {MinBlock: 256, MinSplit: 256, MagazineBytes: 1 << 20},
	"segments/min_block":    {MinBlock: 256, MagazineBytes: -1, Backing: cupool.BackingSegments},
	"history":               {History: &cupool.History{SampleBytes: 1}, MagazineBytes: -1},
}

// sim opens simulated devices.
func sim(cfg simdev.Config) func(*testing.T) cupool.Driver {
	return func(*testing.T) cupool.Driver { return simdev.New(cfg) }
}

// manual is a device on which work is done when somebody waits for it and not before.
// Memory that was given back is never used again, and the device is lost when queued
// work meets memory that was given back.
var (
	manual        = sim(simdev.Config{ManualEvents: true, FreshAddresses: true})
	manualOptions = conformance.Options{NoContents: true, WaitsRun: true, Busy: func(d cupool.Driver, s *cupool.Stream) (func(), error) {
		return func() { d.(*simdev.Device).CompleteStream(s.Handle()) }, nil
	}}
)

// The long form has more configurations.
func TestConformance(t *testing.T) {
	atOnce := conformance.Options{NoContents: true, Busy: func(cupool.Driver, *cupool.Stream) (func(), error) { return nil, cupool.ErrNotSupported }}
	for _, d := range []struct {
		name       string
		open       func(*testing.T) cupool.Driver
		opt        conformance.Options
		quick, all []string
	}{
		{"host", pooltest.OpenHost, conformance.Options{}, []string{"default", "segments", "small_limit", "odd_sizes", "min_block", "history"}, slices.Sorted(maps.Keys(configs))},
		{"sim", sim(simdev.Config{}), atOnce, []string{"no_magazines", "segments/odd_sizes"},
			[]string{"default", "no_magazines", "segments", "segments/no_magazines", "segments/odd_sizes", "history"}},
		{"sim_manual", manual, manualOptions, []string{"default", "segments/no_magazines"}, []string{"default", "no_magazines", "segments", "segments/no_magazines"}},
	} {
		for _, name := range testkit.Choose(d.all, d.quick) {
			t.Run(d.name+"/"+name, func(t *testing.T) { conformance.Run(t, d.open, configs[name], d.opt) })
		}
	}
}

// TestConformanceSanitized runs the tests of the battery that verify contents, on
// streams and goroutines, with every sanitizer: correct programs have no reports.
// Those that say where blocks have to be, or what is cached, do not apply, as
// freed blocks wait.
func TestConformanceSanitized(t *testing.T) {
	all := cupool.Sanitizers{Canaries: 100, Poison: true}
	opt := conformance.Options{Only: []string{
		"sizes", "programs", "close_while_in_use", "adopted_stream", "another_allocators_things",
		"sleep_in_goroutines", // not the last one with guards, which unmap at Free and exclude Sleep
	}}
	for _, c := range []struct {
		name string
		cfg  cupool.Config
	}{
		{"segments", cupool.Config{Sanitize: all, Backing: cupool.BackingSegments}},
		{"vmm", cupool.Config{Sanitize: all, ZeroOnFree: true}},
		{"no_quarantine", cupool.Config{Sanitize: cupool.Sanitizers{Canaries: 100, Poison: true, Quarantine: -1}, ZeroOnAlloc: true}},
		{"guard", cupool.Config{Sanitize: cupool.Sanitizers{Canaries: 1, Guard: true}}},
	} {
		opt := opt
		if c.cfg.Sanitize.Guard {
			opt.Only = opt.Only[:len(opt.Only)-1]
		}
		t.Run(c.name, func(t *testing.T) { conformance.Run(t, pooltest.OpenHost, c.cfg, opt) })
	}
}

// TestConformancePools runs the battery on a private pool.
func TestConformancePools(t *testing.T) {
	private := func(c *cupool.Pool) (*cupool.Pool, error) { return c.NewPool(cupool.PoolConfig{}) }
	t.Run("host/segments/small_limit", func(t *testing.T) {
		conformance.Run(t, pooltest.OpenHost, configs["segments/small_limit"], conformance.Options{Wrap: private})
	})
	t.Run("sim_manual/default", func(t *testing.T) {
		opt := manualOptions
		opt.Wrap = private
		conformance.Run(t, manual, cupool.Config{}, opt)
	})
}

// TestConformanceAllocator runs the battery for any allocator on those that the
// whole one is for, and on one with a label.
func TestConformanceAllocator(t *testing.T) {
	for name, of := range map[string]func(t *testing.T, c *cupool.Pool) cupool.Allocator{
		"allocator": func(_ *testing.T, c *cupool.Pool) cupool.Allocator { return c },
		"private pool": func(t *testing.T, c *cupool.Pool) cupool.Allocator {
			return pooltest.NewPrivate(t, c, cupool.PoolConfig{})
		},
		"label": func(_ *testing.T, c *cupool.Pool) cupool.Allocator { return c.WithLabel("tested") },
	} {
		t.Run(name, func(t *testing.T) {
			conformance.RunAllocator(t, func(t *testing.T) cupool.Allocator {
				d := pooltest.OpenHost(t)
				c := pooltest.Open(t, cupool.Config{Driver: d})
				t.Cleanup(func() {
					require.NoError(t, c.Close())
					require.NoError(t, d.Close())
				})
				return of(t, c)
			})
		})
	}
}
