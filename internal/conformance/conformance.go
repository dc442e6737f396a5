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
	{"zero_size", testZeroSize},
	{"alignment", testAlignment},
	{"contents_survive_neighbours", testNeighbours},

	{"programs", testPrograms},
	{"lock_free_path", testLockFree},
	{"lock_free_path_and_everything", testLockFreeStorm},
	{"close_while_in_use", testCloseStorm},
	{"limit_shared_by_streams", testLimitStorm},

	{"steady_state", testSteady},
	{"steady_state_one_size", testSteadyOneSize},
	{"free_all_merges", testFreeAll},
	{"reserve_then_hit", testReserve},
	{"trim", testTrim},

	{"double_free", testDoubleFree},
	{"stale_handle", testStaleHandle},
	{"wrong_pointers", testWrongPointers},
	{"use_after_free", testUseAfterFree},
	{"another_allocators_things", testForeign},
	{"double_free_in_goroutines", testConcurrentDoubleFree},
	{"after_close", testAfterClose},
	{"leaks", testLeaks},

	{"early_free", testEarlyFree},
	{"free_waits_for_all_streams", testManyUses},
	{"own_stream_is_ordered", testOwnStream},
	{"event_wait_orders", testEventWait},
	{"event_wait_too_early", testEventWaitTooEarly},
	{"event_wait_transitive", testEventWaitTransitive},
	{"stream_closed", testStreamClosed},
	{"stream_closed_while_pending", testStreamClosedPending},
	{"closed_stream_gives_nothing", testClosedStreamMagazines},
	{"recycled_slots_stay_with_their_stream", testRecycledSlots},
	{"adopted_stream", testAdopted},
	{"process_deferred", testProcessDeferred},

	{"out_of_memory", testOOM},
	{"out_of_memory_then_retry", testOOMRetry},
	{"device_full", testDeviceFull},
	{"limit", testLimit},
	{"fraction", testFraction},
	{"callback", testCallback},
	{"cleanup_frees", testCleanup},
	{"pending_under_pressure", testPressure},
	{"pressure_waits_for_one", testPressureOne},
	{"other_streams_cache_under_pressure", testPressureOtherStream},

	{"stitched_block", testStitch},
	{"stitched_while_pending", testStitchPending},
	{"stitched_at_the_limit", testStitchLimit},
	{"stitched_stream_closed", testStitchStreamClosed},

	{"stranded_memory", testStranded},
	{"stranded_on_a_busy_stream", testStrandedBusy},
	{"stranded_by_turns", testStrandedTurns},
	{"stranded_does_not_wait", testStrandedNoWait},

	{"sleep", testSleep},
	{"sleep_not_supported", testSleepNotSupported},
	{"sleep_then_close", testSleepClose},
	{"sleep_in_goroutines", testSleepStorm},

	{"statistics", testStats},
	{"statistics_sums", testStatsSums},

	{"fault_walk", testFaults},
	{"failing_events_quarantine", testQuarantine},
	{"device_lost", testLost},
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
