// Package plan places blocks whose sizes and lifetimes are known beforehand
// into as little memory as possible: offline dynamic storage allocation. It
// knows offsets only: no driver, no lock, no clock but the context's.
//
// The problem is NP-hard (Garey and Johnson 1979, SR2), but no plan can be
// smaller than the most bytes that live at once. On the traces of real programs
// three things get there, or within a few percent:
//
//   - greedy: one block after the other goes to the lowest offset at which
//     nothing is that lives at the same time. What matters is the order.
//     Size and lifetime are the usual ones (Pisarchyk and Lee 2020, Sekiyama
//     et al. 2018); the height of contention that a block lives through comes
//     first in the better ones (TelaMalloc, Maas et al., ASPLOS 2022;
//     MiniMalloc, Moffitt, ASPLOS 2023).
//   - learning: blocks that end up above the target are moved forward in the
//     order, and everything is placed again: squeaky wheel optimization
//     (Joslin and Clements, JAIR 1999). Several orders take turns, so that
//     none has to be right for all programs.
//   - repair: what ends too high in the best plan goes below, in the place of
//     blocks that are easier to place again: guided ejection search (Nagata
//     and Bräysy 2009). It is for programs that keep blocks while others come
//     and go, where no order is right.
//
// Files: plan.go is the search, order.go the orders, space.go answers where
// a block fits, repair.go mends a plan, steps.go makes time small, online.go
// is what to fall back on, check.go proves a plan right.
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
	// Rounds is how much work to do, in placements of everything; repair
	// counts as so many as take as long. 0: 200, or more for fewer than
	// 5,000 blocks and fewer for more than 40,000, so that a search that does
	// not reach its target takes some 2 to 20 s.
	Rounds int
}

const (
	defaultRounds = 200
	looksAPlace   = 40          // neighbours that repair looks at while a round places a block
	mostLooks     = 320_000_000 // of a search, unless Options.Rounds allows more
	leastLooks    = 40_000_000  // of one that does not reach its target before
	attemptRounds = 2           // work of an attempt of repair, at most
	attemptLooks  = 2_000_000   // likewise
	repairShare   = 3           // work of repair, as a multiple of that of rounds
)

// Result is a plan.
type Result struct {
	Offsets []int64 // by interval, in bytes
	Height  int64   // the end of the highest block
	Bound   int64   // the most bytes that live at once; no plan is lower
	Rounds  int     // the work that it took, as in Options
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
	s := newSearch(blocks, o)
	s.run(ctx)
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
	steps  int32
	target int64
	looks  int64  // that may be spent
	stays  []bool // by block
	lanes  []*lane
	space  *space
	offs   []int64 // of the round in progress
	rounds int     // that are over
	repair *repair // nil: there was no attempt yet
	best   Result
}

func newSearch(blocks []Interval, o Options) *search {
	steps, count := toSteps(blocks)
	load := loads(steps, count)
	bound := load.max(0, count)
	s := &search{
		blocks: steps,
		steps:  count,
		target: max(o.Target, bound),
		looks:  int64(o.Rounds) * roundLooks(blocks),
		best:   Result{Offsets: make([]int64, len(blocks)), Height: math.MaxInt64, Bound: bound},
	}
	if o.Rounds <= 0 {
		s.looks = max(leastLooks, min(defaultRounds*roundLooks(blocks), mostLooks))
	}
	if h, ok := online(steps, s.best.Offsets); ok {
		s.best.Height = h
	} else {
		s.best.Height = stack(steps, s.best.Offsets)
	}
	if s.best.Height > s.target {
		s.stays = staying(steps, count, bound)
		s.lanes, s.space, s.offs = newLanes(steps, load, s.stays), newSpace(count), make([]int64, len(blocks))
	}
	return s
}

// roundLooks is the work of a round.
func roundLooks(blocks []Interval) int64 { return looksAPlace * int64(len(blocks)) }

// run searches until the plan is low enough or the work is done. After a round
// of each lane, rounds and attempts of repair take turns.
func (s *search) run(ctx context.Context) {
	round := roundLooks(s.blocks)
	for s.best.Height > s.target && ctx.Err() == nil {
		placed, repaired := int64(s.rounds)*round, int64(0)
		if s.repair != nil {
			repaired = s.repair.looks
		}
		if placed+repaired >= s.looks && s.rounds > 0 {
			break
		}
		if s.rounds < len(s.lanes) || placed*repairShare <= repaired {
			s.round(ctx)
		} else {
			s.attempt(ctx, min(attemptRounds*round, attemptLooks, s.looks-placed-repaired))
		}
		if s.repair != nil {
			repaired = s.repair.looks
		}
		s.best.Rounds = int(min(s.looks, int64(s.rounds)*round+repaired) / round)
	}
}

// round places everything in the order of one lane, and has the lane learn.
func (s *search) round(ctx context.Context) {
	const look = 1 << 8 // placements between two looks at the context
	l := s.lanes[s.rounds%len(s.lanes)]
	s.space.clear()
	height := int64(0)
	for k, i := range l.order() {
		if k%look == 0 && ctx.Err() != nil {
			return
		}
		b := &s.blocks[i]
		off := s.space.lowest(b.Birth, b.Death, b.Size)
		s.space.fill(b.Birth, b.Death, off, off+b.Size)
		s.offs[i] = off
		height = max(height, off+b.Size)
	}
	s.rounds++
	s.keep(s.offs, height)
	l.learn(func(i int32) bool { return s.offs[i]+s.blocks[i].Size > s.target })
}

// attempt tries to lower the best plan.
func (s *search) attempt(ctx context.Context, looks int64) {
	if s.repair == nil {
		s.repair = newRepair(s.blocks, s.steps, s.stays)
	}
	if !s.repair.attempt(ctx, s.best.Offsets, s.best.Height, s.target, looks) {
		return
	}
	height := int64(0)
	for i, off := range s.repair.offs {
		height = max(height, off+s.blocks[i].Size)
	}
	s.keep(s.repair.offs, height)
}

// keep makes a plan the best one if it is.
func (s *search) keep(offs []int64, height int64) {
	if height < s.best.Height {
		s.best.Height = height
		copy(s.best.Offsets, offs)
	}
}
