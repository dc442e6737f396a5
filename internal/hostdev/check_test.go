package hostdev_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool/internal/testkit"

	"github.com/cupool/cupool/internal/hostdev"
)

// TestCheck breaks every rule on purpose: Check reports its number.
func TestCheck(t *testing.T) {
	for rule, ways := range hostdev.Corruptions {
		for name, corrupt := range ways {
			t.Run(rule+"/"+name, func(t *testing.T) {
				d, err := hostdev.Open(hostdev.Config{Capacity: mib})
				require.NoError(t, err) // it cannot be closed once its books are wrong
				for range 2 {
					require.NoError(t, d.Launch(0, func() {}))
				}
				settle(t, d)
				require.NoError(t, d.Check())
				corrupt(d)
				require.ErrorContains(t, d.Check(), rule)
			})
		}
	}
}

// settle waits until no stream has a runner: a worker goes a moment after its
// last job is over.
func settle(t *testing.T, d *hostdev.Device) {
	t.Helper()
	require.NoError(t, d.SyncStream(0))
	require.Eventually(t, d.Idle, testkit.Patience, time.Millisecond)
}
