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

// Trust says whether a wait is worth trying that need not be. After one that was given up,
// twice as many are left out as the time before. The zero Trust is good.
type Trust struct{ out, last int }

// Try reports whether to wait.
func (t *Trust) Try() bool {
	if t.out > 0 {
		t.out--
		return false
	}
	return true
}

// Failed says that a wait was given up.
func (t *Trust) Failed() {
	t.last = max(1, 2*t.last)
	t.out = t.last
}
