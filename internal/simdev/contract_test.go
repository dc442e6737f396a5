package simdev_test

import (
	"testing"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/simdev"
	"github.com/cupool/cupool/internal/testkit/drivertest"
)

// TestDriver runs the tests that are for every device: work is done at once, or
// not before somebody waits for it.
func TestDriver(t *testing.T) {
	const capacity = 64 * mib
	o := drivertest.Options{NoContents: true, WaitsRun: true, Capacity: capacity}
	o.Open = func(testing.TB) cupool.Driver { return simdev.New(simdev.Config{Capacity: capacity}) }
	o.Busy = func(cupool.Driver, cupool.StreamHandle) (func(), error) { return nil, cupool.ErrNotSupported }
	t.Run("at once", func(t *testing.T) { drivertest.Run(t, o) })

	o.Open = func(testing.TB) cupool.Driver {
		return simdev.New(simdev.Config{Capacity: capacity, ManualEvents: true})
	}
	o.Busy = func(d cupool.Driver, s cupool.StreamHandle) (func(), error) {
		return func() { d.(*simdev.Device).CompleteStream(s) }, nil
	}
	t.Run("manual", func(t *testing.T) { drivertest.Run(t, o) })
}
