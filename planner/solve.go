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

// plan returns a plan of a recording, or nil where planning failed.
func (v *solver) plan(r *recording) *layout {
	ctx, cancel := context.WithTimeout(v.ctx, v.budget)
	defer cancel()
	pl, err := newLayout(ctx, r, v.unit)
	if err != nil {
		v.log.Error("planning an iteration failed", "error", err)
	}
	return pl
}
