package pooltest

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
)

// Backings runs a test on an allocator for each way to get memory from a host
// device of capacity bytes: segments and, where the device has it, virtual
// memory. It verifies the allocator's rules afterwards and closes both.
func Backings(t *testing.T, capacity int64, f func(t *testing.T, c *cupool.Pool), change ...func(*cupool.Config)) {
	for _, b := range []cupool.Backing{cupool.BackingSegments, cupool.BackingVMM} {
		t.Run(b.String(), func(t *testing.T) {
			d, err := cupool.OpenHost(cupool.HostConfig{Capacity: capacity})
			require.NoError(t, err)
			cfg := cupool.Config{Driver: d, Backing: b}
			for _, f := range change {
				f(&cfg)
			}
			c, err := cupool.New(cfg)
			if errors.Is(err, cupool.ErrNotSupported) {
				t.Skip(err)
			}
			require.NoError(t, err)
			f(t, c)
			require.NoError(t, c.Check())
			if err := c.Close(); !errors.Is(err, cupool.ErrClosed) { // the test may have closed it
				require.NoError(t, err)
			}
			require.NoError(t, d.Close())
		})
	}
}
