package cuda_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/cuda"
	"github.com/cupool/cupool/internal/fakecuda"
	"github.com/cupool/cupool/internal/testkit/drivertest"
	"github.com/cupool/cupool/internal/testkit/gputest"
)

// TestDriver runs the tests that are for every device, on each kind of memory.
func TestDriver(t *testing.T) {
	h := newHolder(t)
	for _, k := range []cuda.MemoryKind{cuda.MemoryDevice, cuda.MemoryManaged, cuda.MemoryPinned} {
		t.Run(k.String(), func(t *testing.T) {
			drivertest.Run(t, drivertest.Options{
				Adopts: true,
				Open: func(t testing.TB) cupool.Driver {
					gputest.Need(t)
					d, err := cuda.Open(0, cuda.Memory(k))
					require.NoError(t, err)
					return d
				},
				Busy: func(_ cupool.Driver, s cupool.StreamHandle) (func(), error) {
					if k == cuda.MemoryPinned && !fakecuda.Loaded() { // page-locking waits for all that runs
						return nil, cupool.ErrNotSupported
					}
					return h.Busy(uintptr(s))
				},
			})
		})
	}
}
