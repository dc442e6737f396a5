package hostdev_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/hostdev"
	"github.com/cupool/cupool/internal/testkit/drivertest"
)

var _ cupool.Driver = (*hostdev.Device)(nil)

// TestDriver runs the tests that are for every device.
func TestDriver(t *testing.T) {
	const capacity = 64 * mib
	drivertest.Run(t, drivertest.Options{Capacity: capacity, Open: func(t testing.TB) cupool.Driver {
		d, err := hostdev.Open(hostdev.Config{Capacity: capacity})
		require.NoError(t, err)
		return d
	}})
}
