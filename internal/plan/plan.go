// Package plan places blocks whose sizes and lifetimes are known beforehand
// into as little memory as possible: offline dynamic storage allocation. It
// knows offsets only: no driver, no lock, no clock but the context's.
//
// The problem is NP-hard (Garey and Johnson 1979, SR2), but no plan can be
// smaller than the most bytes that live at once, and on the traces of real
// programs the way taken here gets there: a greedy placement, repeated in an
// order that learns from its failures.
//
//   - greedy: one block after the other goes to the lowest offset at which
//     nothing is that lives at the same time. What matters is the order.
//     Size, lifetime and area are the usual ones (Pisarchyk and Lee 2020,
//     Sekiyama et al. 2018); the height of contention that a block lives
//     through comes first in the better ones (TelaMalloc, Maas et al.,
//     ASPLOS 2022; MiniMalloc, Moffitt, ASPLOS 2023).
//   - learning: blocks that end up above the target are moved forward in the
//     order, and everything is placed again: squeaky wheel optimization
//     (Joslin and Clements, JAIR 1999). Several orders take turns, so that
//     none has to be right for all programs.
//
// Files: plan.go is the search, order.go the orders, space.go answers where
// a block fits, steps.go makes time small, online.go is what to fall back on,
// check.go proves a plan right.
package plan

import (
	"context"
	"fmt"
	"math"
)

// Interval is a block: Size bytes that are in use from Birth up to, not
// including, Death. Times are any numbers.
type Interval struct {
	Size         int64
	Birth, Death int32
}

// Options bound the search. The zero value is a good one.
type Options struct {
	// Target is the height, in bytes, at which to stop. 0, and anything
	// below it, is the lower bound.
	Target int64
	// Rounds is how often to place everything, over all orders. 0: 200.
	Rounds int
	// Seed starts the random numbers that shake an order which is stuck.
	Seed uint64
}

const defaultRounds = 200

// Result is a plan.
type Result struct {
	Offsets []int64 // by interval, in bytes
	Height  int64   // the end of the highest block
	Bound   int64   // the most bytes that live at once; no plan is lower
	Rounds  int     // how often everything was placed
}

// Solve returns the lowest plan that it finds before the context is done;
// but one is always made. The same intervals and options give the same plan,
// unless the context cut the search short. It fails for a size that is not
// positive, a death that is not after the birth, and for sizes whose sum has
// no 63 bits.
func Solve(ctx context.Context, blocks []Interval, o Options) (Result, error) {
	if err := validate(blocks); err != nil {
		return Result{}, err
	}
	if o.Rounds <= 0 {
		o.Rounds = defaultRounds
	}
	s := newSearch(blocks, o)
	for round := 0; round < o.Rounds && s.best.Height > s.target; round++ {
		if !s.round(ctx, round) {
			break
		}
		s.best.Rounds++
	}
	return s.best, nil
}

func validate(blocks []Interval) error {
	sum := int64(0)
	for i, b := range blocks {
		switch {
		case b.Size <= 0:
			return fmt.Errorf("plan: block %d has %d bytes", i, b.Size)
		case b.Death <= b.Birth:
			return fmt.Errorf("plan: block %d lives from %d to %d", i, b.Birth, b.Death)
		case sum > math.MaxInt64-b.Size:
			return fmt.Errorf("plan: the sizes up to block %d add up to more than can be counted", i)
		}
		sum += b.Size
	}
	return nil
}

// search is a Solve on its way.
type search struct {
	blocks []Interval // with times as steps
	target int64
	lanes  []*lane
	space  *space
	offs   []int64 // of the round in progress
	best   Result
}

func newSearch(blocks []Interval, o Options) *search {
	steps, count := toSteps(blocks)
	load := loads(steps, count)
	bound := load.max(0, count)
	s := &search{
		blocks: steps,
		target: max(o.Target, bound),
		space:  newSpace(count),
		offs:   make([]int64, len(blocks)),
		best:   Result{Offsets: make([]int64, len(blocks)), Height: math.MaxInt64, Bound: bound},
	}
	if h, ok := online(steps, s.best.Offsets); ok {
		s.best.Height = h
	} else {
		s.best.Height = stack(steps, s.best.Offsets)
	}
	if s.best.Height > s.target {
		s.lanes = newLanes(steps, load, o.Seed)
	}
	return s
}

// round places everything in the order of one lane, and has the lane learn.
// It reports false when the context ended it before.
func (s *search) round(ctx context.Context, n int) bool {
	const look = 1 << 8 // placements between two looks at the context
	l := s.lanes[n%len(s.lanes)]
	s.space.clear()
	height := int64(0)
	for k, i := range l.order() {
		if k%look == 0 && ctx.Err() != nil {
			return false
		}
		b := &s.blocks[i]
		off := s.space.lowest(b.Birth, b.Death, b.Size)
		s.space.fill(b.Birth, b.Death, off, off+b.Size)
		s.offs[i] = off
		height = max(height, off+b.Size)
	}
	if height < s.best.Height {
		s.best.Height = height
		copy(s.best.Offsets, s.offs)
	}
	l.learn(height, func(i int32) bool { return s.offs[i]+s.blocks[i].Size > s.target })
	return true
}
