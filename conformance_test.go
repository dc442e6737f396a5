package cupool_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/conformance"
	"github.com/cupool/cupool/internal/simdev"
	"github.com/cupool/cupool/internal/testkit/pooltest"
)

// configs are what the battery runs with. Where nothing is said, memory comes
// from virtual memory, which both devices have (the host on Linux).
var configs = []struct {
	name string
	cfg  cupool.Config
}{
	{"default", cupool.Config{}},
	{"no_magazines", cupool.Config{MagazineBytes: -1}},
	{"segments", cupool.Config{Backing: cupool.BackingSegments}},
	{"segments/no_magazines", cupool.Config{Backing: cupool.BackingSegments, MagazineBytes: -1}},
	{"segments/odd_sizes", cupool.Config{Backing: cupool.BackingSegments, SmallLimit: 70_000, SmallSegment: 300 * 512, LargeSegment: 3_000 * 1024, LargeLimit: 2_000_000, SegmentRounding: 1536, MinSplit: 512}},
	{"segments/small_limit", cupool.Config{Backing: cupool.BackingSegments, Limit: 96 << 20}},
	{"small_limit", cupool.Config{Limit: 96 << 20}},
	{"fraction", cupool.Config{Fraction: 0.5, MagazineBytes: 1 << 20}},
	{"odd_sizes", cupool.Config{SmallLimit: 70_000, SmallSegment: 300 * 512, LargeLimit: 2_000_000, MinSplit: 512, MagazineBytes: 64 << 10}},
	{"min_block", cupool.Config{MinBlock: 256, MinSplit: 256, MagazineBytes: 1 << 20}},
	{"segments/min_block", cupool.Config{MinBlock: 256, MagazineBytes: -1, Backing: cupool.BackingSegments}},
	{"history", cupool.Config{History: &cupool.History{SampleBytes: 1}, MagazineBytes: -1}},
}

// notBusy is the Busy of a device that does everything at once.
func notBusy(cupool.Driver, *cupool.Stream) (func(), error) { return nil, cupool.ErrNotSupported }

func TestConformance(t *testing.T) {
	for _, c := range configs {
		t.Run("host/"+c.name, func(t *testing.T) { conformance.Run(t, pooltest.OpenHost, c.cfg) })
	}
	for _, c := range append(configs[:5:5], configs[len(configs)-1]) {
		t.Run("sim/"+c.name, func(t *testing.T) {
			open := func(*testing.T) cupool.Driver { return simdev.New(simdev.Config{}) }
			conformance.Run(t, open, c.cfg, conformance.Options{NoContents: true, Busy: notBusy})
		})
	}
	// Here work is done when somebody waits for it and not before, memory
	// that was given back is never used again, and the device is lost when
	// queued work meets memory that was given back.
	for _, c := range configs[:4] {
		t.Run("sim_manual/"+c.name, func(t *testing.T) {
			open := func(*testing.T) cupool.Driver {
				return simdev.New(simdev.Config{ManualEvents: true, FreshAddresses: true})
			}
			conformance.Run(t, open, c.cfg, conformance.Options{NoContents: true, WaitsRun: true, Busy: simBusy})
		})
	}
}

// TestConformanceSanitized runs the tests of the battery that verify contents, on
// streams and goroutines, with every sanitizer: correct programs have no reports.
// Those that say where blocks have to be, or what is cached, do not apply, as
// freed blocks wait.
func TestConformanceSanitized(t *testing.T) {
	all := cupool.Sanitizers{Canaries: 100, Poison: true}
	opt := conformance.Options{Only: []string{
		"sizes", "programs", "close_while_in_use", "adopted_stream",
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
	opt := conformance.Options{Wrap: func(c *cupool.Pool) (*cupool.Pool, error) {
		return c.NewPool(cupool.PoolConfig{})
	}}
	host := configs[5]
	t.Run("host/"+host.name, func(t *testing.T) { conformance.Run(t, pooltest.OpenHost, host.cfg, opt) })
	opt.NoContents, opt.WaitsRun, opt.Busy = true, true, simBusy
	t.Run("sim_manual/default", func(t *testing.T) {
		open := func(*testing.T) cupool.Driver {
			return simdev.New(simdev.Config{ManualEvents: true, FreshAddresses: true})
		}
		conformance.Run(t, open, cupool.Config{}, opt)
	})
}

func simBusy(d cupool.Driver, s *cupool.Stream) (func(), error) {
	return func() { d.(*simdev.Device).CompleteStream(s.Handle()) }, nil
}

// TestConformanceAllocator runs the battery for any allocator on those that the
// whole one is for.
func TestConformanceAllocator(t *testing.T) {
	for _, private := range []bool{false, true} {
		conformance.RunAllocator(t, func(t *testing.T) cupool.Allocator {
			d := pooltest.OpenHost(t)
			c := pooltest.Open(t, cupool.Config{Driver: d})
			t.Cleanup(func() {
				require.NoError(t, c.Close())
				require.NoError(t, d.Close())
			})
			if private {
				return pooltest.NewPrivate(t, c, cupool.PoolConfig{})
			}
			return c
		})
	}
}
