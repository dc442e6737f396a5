package replay

import (
	"context"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/trace"
)

// AtPeak replays a trace up to the first event at which it requests most, and
// returns what the allocator holds then. It fails as Run does.
func AtPeak(ctx context.Context, t *trace.Trace, o Options) (p cupool.Snapshot, err error) {
	part := *t
	part.Events = t.Events[:requestedPeak(t)]
	o.Inspect = func(c *cupool.Pool) error {
		p = c.Snapshot()
		return nil
	}
	_, err = Run(ctx, &part, o)
	return p, err
}
