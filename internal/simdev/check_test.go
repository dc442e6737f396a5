package simdev_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool/device"
	"github.com/cupool/cupool/internal/simdev"
)

// TestCheck breaks the rule on purpose: Check reports its number.
func TestCheck(t *testing.T) {
	for name, corrupt := range simdev.Corruptions {
		t.Run(name, func(t *testing.T) {
			d := simdev.New(simdev.Config{ManualEvents: true})
			first := newEvent(t, d)
			for _, e := range []device.Event{first, newEvent(t, d), newEvent(t, d)} {
				require.NoError(t, d.RecordEvent(e, 0))
			}
			d.CompleteEvent(first)
			require.NoError(t, d.Check())
			corrupt(d)
			require.ErrorContains(t, d.Check(), "W1")
		})
	}
}
