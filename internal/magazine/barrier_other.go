//go:build !linux || !amd64 || race

package magazine

import "github.com/cupool/cupool/internal/atomic"

// hasBarrier: goroutines that go inside fence themselves, which but for amd64
// is what an atomic store does anyway.
func hasBarrier() bool { return false }

// barrier has nothing to do but in a schedule of internal/atomic/interleave.
func barrier() bool {
	done, ok := atomic.Barrier()
	return done || !ok
}
