package planner

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/blockerr"
	"github.com/cupool/cupool/internal/lock"
	"github.com/cupool/cupool/internal/poolaccess"
	"github.com/cupool/cupool/internal/sizeclass"
)

// lane is what a Planner has for one stream, or for all with Config.Joint: its plan,
// the arena that the plan fills, and how far the iteration has got. To the rules of the arena it adds:
//
//	P3  while serving, whatever is live or held is planned and has not come
//	    to its recorded death, or is listed in overdue
//
// P1 follows from P3: in the plan, blocks overlap in memory only when they do
// not overlap in time. So the memory of a request can only be taken by a block
// that lives beyond its time, and every hit first looks through these blocks.
//
// A lane allocates and frees no memory of the Pool. Its methods return which
// memory is wanted or left over.
type lane struct {
	c      *cupool.Pool
	access poolaccess.Access // to it
	cfg    Config
	s      *cupool.Stream // of the arena's memory
	log    *slog.Logger
	solver *solver

	recording atomic.Bool // rec != nil

	mu      sync.Mutex // taken before any lock of the Pool
	serving bool
	cursor  int32 // of the next request, in plan
	due     int32 // of the next death, in plan
	plan    *layout
	overdue []uint32 // slots that may live beyond their time
	arena   arena
	born    uint64           // Resets of the Pool when the arena got its memory
	streams []*cupool.Stream // that allocate; changed with Planner.mu held, too
	order   order

	rec      *recording // of the iteration in progress
	last     *recording // the last one that was complete
	seen     int        // how often last came in a row
	proven   bool       // the plan has served a whole iteration
	missed   int        // iterations in a row that deviated
	retire   bool       // the arena goes back as soon as nothing lives in it
	pressed  bool       // the Pool has had no memory in this iteration
	next     *layout    // to be installed
	refused  int        // times that there was no memory for next
	skip     int        // iterations before trying again
	solving  <-chan struct{}
	solvedOf *recording // the recording that is to be planned
	find     *detector  // nil: the program begins and ends iterations
	stats    Stats      // of what happened; the arena and the Planner have the rest
	closed   bool
}

// newLane returns the lane of a stream. The lane records if iterations are
// detected, or if an iteration is open.
func newLane(c *cupool.Pool, cfg Config, v *solver, s *cupool.Stream, open bool) *lane {
	l := &lane{c: c, access: poolaccess.Of(c), cfg: cfg, s: s, streams: []*cupool.Stream{s}, log: v.log, solver: v, arena: arena{s: s, mint: cupool.NewMint()}}
	if cfg.Detect {
		l.find = newDetector(cfg)
	}
	if cfg.Detect || open {
		l.record(newRecording(nil))
	}
	return l
}

// maker is the number of the blocks of the lane's arena.
func (l *lane) maker() uint32 { return l.arena.mint.Number() }

// serveLocked serves the next request of the iteration from its place. It
// returns false when the request is not planned, or not as planned.
func (l *lane) serveLocked(size int64, s *cupool.Stream) (cupool.Block, bool) {
	pl, i := l.plan, l.cursor
	if i == int32(len(pl.requests)) && l.find != nil {
		l.wrapLocked()
		i = 0
	}
	if !l.usable(s) {
		return cupool.Block{}, false
	}
	if i == int32(len(pl.requests)) {
		return l.deviateLocked(size, s, "the iteration had no more requests")
	}
	r := &pl.requests[i]
	if r.size != sizeclass.Round(size) {
		return l.deviateLocked(size, s, "another size was recorded")
	}
	if l.cfg.Joint && pl.of.requests[i].s != s {
		return l.deviateLocked(size, s, "another stream was recorded")
	}
	l.sweepLocked(i)
	if r.off == passedThrough {
		l.cursor++
		return cupool.Block{}, false
	}
	if len(l.overdue) > 0 && l.inUseLocked(r.off, r.off+r.size) {
		return l.deviateLocked(size, s, "its memory is still in use")
	}
	if l.arena.slots[i].state != slotIdle && !l.arena.release(uint32(i)) { // a block of the plan before
		return l.deviateLocked(size, s, "its memory is still in use")
	}
	if l.cfg.Joint && !l.orderLocked(i, s) {
		return l.deviateLocked(size, s, "its stream cannot wait for the others")
	}
	l.cursor++
	h := l.arena.serve(i, r, size, s)
	l.stats.PlannedHits++
	l.verifyLocked()
	return h, true
}

// wrapLocked begins the next iteration of a plan whose last request was served,
// where iterations are detected.
func (l *lane) wrapLocked() {
	l.sweepLocked(l.cursor)
	l.cursor, l.due = 0, 0
	l.find.served++
	l.stats.Planned++
}

// usable reports whether anything can be allocated on a stream of the lane. Reset of the
// Pool has ended an arena.
func (l *lane) usable(s *cupool.Stream) bool {
	return !l.closed && !s.Closed() && l.c.Err() == nil && l.access.Resets() == l.born
}

// sweepLocked lists the blocks that should have died before request i and are
// live.
func (l *lane) sweepLocked(i int32) {
	deaths := l.plan.deaths
	for ; int(l.due) < len(deaths) && deaths[l.due].at <= i; l.due++ {
		if k := deaths[l.due].request; l.arena.slots[k].state != slotIdle {
			l.overdue = append(l.overdue, uint32(k))
		}
	}
}

// maxOverdue bounds the list that every hit looks through.
const maxOverdue = 256

// inUseLocked reports whether a block that is overdue holds memory of the range.
func (l *lane) inUseLocked(off, end int64) bool {
	if len(l.overdue) > maxOverdue {
		return true
	}
	for k := 0; k < len(l.overdue); {
		id := l.overdue[k]
		sl := l.arena.slot(id)
		if sl.state != slotIdle && sl.off < end && off < sl.end && !l.arena.release(id) {
			return true
		}
		if sl.state != slotIdle {
			k++
			continue
		}
		n := len(l.overdue) - 1
		l.overdue[k] = l.overdue[n]
		l.overdue = l.overdue[:n]
	}
	return false
}

// deviateLocked ends the service by the plan for this iteration.
func (l *lane) deviateLocked(size int64, s *cupool.Stream, why string) (cupool.Block, bool) {
	l.stats.Deviations++
	l.stats.LastDeviation = Deviation{Stream: s.Handle(), Request: int(l.cursor), Size: size, Reason: why}
	if int(l.cursor) < len(l.plan.requests) {
		l.stats.LastDeviation.Recorded = l.plan.requests[l.cursor].size
	}
	l.log.Debug("planned iteration deviates", "deviation", l.stats.LastDeviation)
	l.serving = false
	l.record(l.resumeLocked())
	if l.find != nil {
		l.find.deviated(int64(len(l.plan.requests)))
		l.plan, l.retire = nil, true
	}
	return cupool.Block{}, false
}

// record makes r the recording in progress, or none.
func (l *lane) record(r *recording) {
	l.rec = r
	l.recording.Store(r != nil)
}

// resumeLocked returns a recording of the part of the iteration in progress that
// the plan has served. The lane does not know whether blocks that the plan passed
// through are live. They count as living on, as they do in the plan.
func (l *lane) resumeLocked() *recording {
	if l.find != nil {
		return newRecording(nil)
	}
	now := int64(l.cursor)
	r := newRecording(slices.Clone(l.plan.of.requests[:now]))
	for i := range r.requests {
		q := &r.requests[i]
		if l.plan.requests[i].off == passedThrough {
			continue
		}
		if l.arena.slots[i].state == slotIdle {
			q.death = min(q.death, now)
		} else {
			q.death = 0
		}
	}
	return r
}

// ticket is a request that is passed through.
type ticket struct {
	rec     *recording // nil: it is not recorded
	request int64      // its number in rec, or -1
	pressed bool
}

// missLocked notes a request that the plan does not serve.
func (l *lane) missLocked(size int64, s *cupool.Stream) ticket {
	l.stats.Passed++
	t := ticket{rec: l.rec, pressed: l.pressed}
	switch {
	case l.rec == nil:
	case l.find != nil:
		t.request = l.rec.add(sizeclass.Round(size), s, math.MaxInt)
		changed, iteration := l.find.note(l.rec, l.next == nil && l.solvedOf == nil)
		if changed {
			l.next, l.solvedOf = nil, nil
		}
		if iteration != nil {
			l.solveLocked(iteration)
		}
	default:
		t.request = l.rec.add(sizeclass.Round(size), s, l.cfg.MaxRequests)
	}
	return t
}

// served notes the block of a request that was passed through.
func (l *lane) served(t ticket, h cupool.Block, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.rec != t.rec || t.request < 0:
	case err == nil:
		l.rec.served(t.request, h)
	default:
		l.rec.failed(t.request)
	}
}

// freed notes that a block of the Pool was freed.
func (l *lane) freed(h cupool.Block) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.rec != nil {
		l.rec.freed(h)
	}
}

// used notes that another stream uses a block of the Pool.
func (l *lane) used(h cupool.Block) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.rec != nil {
		l.rec.used(h)
	}
}

// closedLocked reports whether the lane or the Pool is closed.
func (l *lane) closedLocked() bool {
	err := l.c.Err()
	return l.closed || err != nil && errors.Is(err, cupool.ErrClosed)
}

// findLocked returns the live slot of a handle of the arena.
func (l *lane) findLocked(op string, h cupool.Block, gone error) (uint32, *slot, error) {
	if (l.closed || l.c.Err() != nil) && l.closedLocked() {
		return 0, nil, blockerr.Of(op, h, nil, cupool.ErrClosed)
	}
	return l.arena.find(op, h, gone)
}

// free takes a block of the arena back. left reports whether the arena's memory
// may go back (leave).
func (l *lane) free(h cupool.Block) (left bool, err error) {
	l.mu.Lock()
	id, sl, err := l.findLocked("free", h, cupool.ErrDoubleFree)
	if err != nil {
		l.mu.Unlock()
		return false, err
	}
	if l.rec != nil {
		l.rec.slotFreed(id, h)
	}
	if l.cfg.Joint && !l.expectedLocked(id) {
		l.order.disturb()
	}
	l.arena.free(id, sl)
	l.verifyLocked()
	left = l.retire && l.arena.live == 0
	l.mu.Unlock()
	return left, nil
}

// leave takes the arena's memory away when it is to go and nothing lives in it.
func (l *lane) leave() leaving {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.retireLocked()
}

func (l *lane) retireLocked() (old leaving) {
	if l.retire && l.arena.live == 0 {
		old = l.leaveLocked()
	}
	return old
}

func (l *lane) leaveLocked() leaving {
	l.retire = false
	return l.arena.leave(l.streams)
}

// recordStream notes that another stream uses a block of the arena.
func (l *lane) recordStream(h cupool.Block, s *cupool.Stream) error {
	if s.Pool() != l.s.Pool() {
		return blockerr.Of("record stream", h, s, cupool.ErrForeignStream)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	id, sl, err := l.findLocked("record stream", h, cupool.ErrUseAfterFree)
	if err != nil || s == sl.s { // the block's own stream is in order already
		return err
	}
	l.arena.use(id, s)
	if l.serving {
		l.deviateLocked(0, s, fmt.Sprintf("request %d is used on %v", id, s.Handle()))
	}
	if l.rec != nil {
		l.rec.slotUsed(id, h)
	}
	return nil
}

// lookup finds the live block at an address of the arena or, unless exact,
// around it.
func (l *lane) lookup(op string, p cupool.Ptr, size int64, exact bool) (cupool.Block, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	at := l.arena.lookup(p)
	at.Closed = l.closedLocked()
	return at.Find(op, size, exact)
}

// stray serves an unplanned request from idle memory of the arena. Later
// requests of the plan that need the memory will find it in use.
func (l *lane) stray(size int64, s *cupool.Stream) (cupool.Block, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.arena.isEmpty() || !l.usable(s) || l.cfg.Joint && !l.waitForAllLocked(s) {
		return cupool.Block{}, false
	}
	id, ok := l.arena.stray(size, s)
	if !ok {
		return cupool.Block{}, false
	}
	l.stats.Strays++
	if l.serving {
		l.overdue = append(l.overdue, id)
	}
	return l.arena.handle(id, l.arena.slot(id)), true
}

// press notes that the Pool has no memory.
func (l *lane) press() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pressed = true
}

// check verifies P1 to P3.
func (l *lane) check() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.checkLocked()
}

func (l *lane) checkLocked() error {
	err := l.arena.check()
	if err != nil || !l.serving {
		return err
	}
	l.arena.used(func(id uint32, _ *slot) {
		if !l.expectedLocked(id) && !slices.Contains(l.overdue, id) {
			err = fmt.Errorf("P3: block %d lives beyond its time at request %d and is not overdue", id, l.cursor)
		}
	})
	return err
}

// expectedLocked reports whether a slot that is not idle is so according to the plan.
func (l *lane) expectedLocked(id uint32) bool {
	return l.serving && int64(id) < int64(l.cursor) && l.plan.of.requests[id].death >= int64(l.cursor)
}

// checkEvery bounds what checking after every step costs with large plans.
const checkEvery = 1024

// verifyLocked is called after every step, for builds with -tags invariants.
func (l *lane) verifyLocked() {
	if !lock.Invariants || len(l.arena.slots) > checkEvery && l.stats.PlannedHits%checkEvery != 0 {
		return
	}
	if err := l.checkLocked(); err != nil {
		panic(err)
	}
}

// addTo adds the lane's part to a snapshot.
func (l *lane) addTo(st *Stats) {
	l.mu.Lock()
	defer l.mu.Unlock()
	st.add(&l.stats)
	if !l.arena.isEmpty() {
		st.Arenas++
	}
	st.ArenaBytes += l.arena.size()
	st.LiveBlocks += int64(l.arena.live)
	st.LiveBytes += l.arena.liveBytes
	st.RequestedBytes += l.arena.requested
	st.HeldBlocks += int64(l.arena.heldBlocks())
	st.Height += l.stats.Height
	st.Bound += l.stats.Bound
	st.Rounds += l.stats.Rounds
	st.SolveTime += l.stats.SolveTime
}
