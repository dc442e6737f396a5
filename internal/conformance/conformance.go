// Package conformance is the battery of tests that every pair of a Driver
// and a Config has to pass. It sees the allocator as programs do, through
// its exported methods.
//
// Files: conformance.go runs the battery, rig.go sets up one allocator with
// its device, shadow.go knows which memory is live and what it must hold,
// programs.go runs the random programs of internal/model, failing.go is a Driver
// whose calls fail on demand, and walk.go has each of them fail in turn. The other
// files hold the tests, by concern.
package conformance

import (
	"slices"
	"testing"

	"github.com/cupool/cupool"
)

// Options say what a device can do and what not.
type Options struct {
	// Busy keeps a stream from finishing what it is given from now on, until
	// release is called. nil: by Stream.Launch of a function that waits, and
	// where that is not supported the tests that need it are skipped; so are
	// they when Busy returns an error.
	Busy func(d cupool.Driver, s *cupool.Stream) (release func(), err error)
	// WaitsRun: waits on the host make a busy stream run instead of waiting
	// for release (simdev with ManualEvents).
	WaitsRun bool
	// Elastic: how much the device has depends on what else the computer
	// does (pinned memory), so that it cannot be filled to the last byte.
	Elastic bool
	// Wrap makes the allocator under test of one with the Config, whose streams
	// it shares: a private pool. nil: it is that one itself.
	Wrap func(*cupool.Pool) (*cupool.Pool, error)
	// Only names the tests to run. nil: all.
	Only []string
	// NoContents: there is no memory behind the device.
	NoContents bool
}

// env is what is the same for all tests of a battery.
type env struct {
	open func(*testing.T) cupool.Driver
	cfg  cupool.Config
	opt  Options
}

var battery = []struct {
	name string
	test func(*testing.T, *env)
}{
	{"sizes", testSizes},
	{"sizes_no_device_has", testImpossibleSizes},
	{"programs", testPrograms},

	{"storm", testStorm},
	{"close_while_in_use", testCloseStorm},
	{"limit_shared_by_streams", testLimitStorm},
	{"sleep_in_goroutines", testSleepStorm},

	{"steady_state", testSteady},
	{"reserve_then_hit", testReserve},
	{"trim", testTrim},

	{"early_free", testEarlyFree},
	{"event_wait_orders", testEventWait},
	{"process_deferred", testProcessDeferred},
	{"another_allocators_things", testForeign},
	{"recycled_slots_stay_with_their_stream", testRecycledSlots},
	{"adopted_stream", testAdopted},

	{"device_full", testDeviceFull},
	{"pending_under_pressure", testPressure},

	{"stitched_block", testStitch},
	{"stitched_while_pending", testStitchPending},
	{"stranded_memory", testStranded},
	{"sleep", testSleep},

	{"fault_walk", testFaults},
}

// Run runs the battery on devices that open makes, each closed again after
// its test. cfg.Driver is not looked at.
func Run(t *testing.T, open func(*testing.T) cupool.Driver, cfg cupool.Config, opts ...Options) {
	e := &env{open: open, cfg: cfg}
	for _, o := range opts {
		e.opt = o
	}
	for _, b := range battery {
		if len(e.opt.Only) > 0 && !slices.Contains(e.opt.Only, b.name) {
			continue
		}
		t.Run(b.name, func(t *testing.T) { b.test(t, e) })
	}
}
