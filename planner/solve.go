package planner

import (
	"context"
	"log/slog"
	"time"

	"github.com/cupool/cupool"
)

// solver makes plans in the background.
type solver struct {
	ctx    context.Context
	budget time.Duration
	unit   int64 // bytes
	log    *slog.Logger
}

// newSolver returns a solver for plans whose arenas c allocates.
func newSolver(ctx context.Context, c *cupool.Pool, budget time.Duration) *solver {
	cfg := c.Config()
	unit := cfg.SegmentRounding
	if vm, ok := cfg.Driver.(cupool.VirtualMemory); ok && cfg.Backing == cupool.BackingVMM {
		unit = vm.VMMGranularity()
	}
	return &solver{ctx, budget, unit, cfg.Logger}
}

// start begins to plan a recording when after is closed (nil: at once). It calls
// take with the plan, or with nil where planning failed, and with the channel that
// it returns. It closes the channel after that.
func (v *solver) start(r *recording, after <-chan struct{}, take func(pl *layout, done <-chan struct{})) (done <-chan struct{}) {
	end := make(chan struct{})
	go func() {
		defer close(end)
		if after != nil {
			<-after // one at a time
		}
		ctx, cancel := context.WithTimeout(v.ctx, v.budget)
		defer cancel()
		pl, err := newLayout(ctx, r, v.unit)
		if err != nil {
			v.log.Error("planning an iteration failed", "error", err)
		}
		take(pl, end)
	}()
	return end
}
