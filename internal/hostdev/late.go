package hostdev

import (
	"math/rand/v2"
	"time"

	"github.com/cupool/cupool/internal/lock"
	"github.com/cupool/cupool/internal/realtime"
)

// A GPU's work is done some time after it was submitted. Small work of this
// device is done at once, so that who forgets to wait would not notice. In the
// invariant-checking build some of it is late, at random.

// queued says that a job is to be queued for a worker, though its submitter
// could run it at once.
func queued() bool { return lock.Invariants && rand.IntN(3) == 0 }

// late waits a moment now and then, before and after a worker's job.
func late() {
	if lock.Invariants && rand.IntN(32) == 0 {
		realtime.Sleep(time.Duration(rand.IntN(500)) * time.Microsecond)
	}
}
