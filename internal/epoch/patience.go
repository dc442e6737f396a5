package epoch

import (
	"context"
	"time"
)

// Patience is how long one call waits for work of the device; 0: without bounds.
type Patience time.Duration

// Bound returns what bounds the waits of one call.
func (p Patience) Bound(ctx context.Context) (context.Context, context.CancelFunc) {
	if p == 0 {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, time.Duration(p))
}

// AtOnce returns what ends every wait after one look, where waits are bounded.
func (p Patience) AtOnce() context.Context {
	if p == 0 {
		return context.Background()
	}
	return none
}

var none = func() context.Context {
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(context.DeadlineExceeded)
	return ctx
}()
