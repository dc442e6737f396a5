package cupool_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/conformance"
	"github.com/cupool/cupool/internal/simdev"
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
	{"record_stacks", cupool.Config{RecordStacks: true}},
}

func openHost(t *testing.T) cupool.Driver {
	d, err := cupool.OpenHost(cupool.HostConfig{Capacity: 8 << 30})
	require.NoError(t, err)
	return d
}

// notBusy is the Busy of a device that does everything at once.
func notBusy(cupool.Driver, *cupool.Stream) (func(), error) { return nil, cupool.ErrNotSupported }

func TestConformance(t *testing.T) {
	for _, c := range configs {
		t.Run("host/"+c.name, func(t *testing.T) { conformance.Run(t, openHost, c.cfg) })
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

// TestConformancePools runs the battery on a private pool.
func TestConformancePools(t *testing.T) {
	opt := conformance.Options{Wrap: func(c *cupool.Caching) (*cupool.Caching, error) {
		return c.NewPool(cupool.PoolConfig{})
	}}
	host := configs[5]
	t.Run("host/"+host.name, func(t *testing.T) { conformance.Run(t, openHost, host.cfg, opt) })
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

// FuzzCaching runs the program that the bytes make against an oracle that
// knows all live memory and what it holds.
func FuzzCaching(f *testing.F) {
	f.Add([]byte{0})
	f.Add([]byte("\x01 a short program without magazines, on the host device"))
	f.Add([]byte("\x06 another one, with a limit and small odd segments: 0123456789 ABCDEFGHIJKLMNOPQRSTUVWXYZ"))
	f.Add([]byte("\x0a\x00\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e\x0f\x10\x20\x30\x40\x50\x60\x70\x80\x90\xa0\xb0\xc0\xd0\xe0\xf0"))
	open := func(t *testing.T) cupool.Driver {
		d, err := cupool.OpenHost(cupool.HostConfig{Capacity: 1 << 30})
		require.NoError(t, err)
		return d
	}
	f.Fuzz(func(t *testing.T, data []byte) { conformance.Fuzz(t, open, conformance.Options{}, data) })
}
