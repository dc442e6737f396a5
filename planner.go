package cupool

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cupool/cupool/internal/sizeclass"
)

// Planned iterations.
//
// A training run asks for the same memory in every iteration. So a Planner
// records one (planner_record.go), works out offline where each block has to
// be for all of them to fit into as little memory as possible (internal/plan),
// takes one arena of that size for each stream, and serves the following
// iterations by index: the i-th request gets the i-th place, without a search
// (planner_lane.go). What is not as recorded goes to the Caching underneath.

// ErrIteration: BeginIteration within an iteration, EndIteration outside of
// one, or either of them where iterations are detected.
var ErrIteration = errors.New("not at this point of the iteration")

// PlannerConfig sets up a Planner. The zero value is a good one.
type PlannerConfig struct {
	// Confirm is how many iterations in a row have to make the same
	// requests before one is planned. 0: 2, because programs often make
	// some of their state in the first one. 1 plans after the first.
	Confirm int

	// Detect finds the iterations: where the requests on a stream repeat,
	// they are planned. BeginIteration and EndIteration are not used then.
	Detect bool

	// Budget bounds the time in which a plan is made, in the background.
	// Most take far less. 0: 5 s.
	Budget time.Duration

	// MaxRequests bounds the requests of an iteration on one stream; longer
	// ones are not planned. Recording takes about 50 bytes for each, a plan
	// about 100. 0: 1,048,576.
	MaxRequests int
}

const (
	defaultConfirm     = 2
	defaultBudget      = 5 * time.Second
	defaultMaxRequests = 1 << 20
)

// Planner is an Allocator that serves repeating iterations of a program by a
// plan, and everything else through a Caching. Planned blocks have the same
// addresses in every iteration, and together they take hardly more memory
// than the most that the iteration holds at once.
//
// An iteration is what lies between BeginIteration and EndIteration, or is
// found (PlannerConfig.Detect). Of what it allocates, blocks that outlive it
// and those that other streams use (RecordStream) are not planned but passed
// through. Requests on a stream come in the recorded order, whichever
// goroutines make them; streams are independent of each other.
//
// The plan is guarded. A request that is not the one recorded, or whose
// place is still in use because a block lives longer than it did or because
// another stream still uses it, is a deviation: this and all later requests
// of the iteration on the stream go through the Caching. No memory is ever
// handed out that is in use. Iterations that deviate are recorded, and the
// plan is made again from them.
//
// All methods are safe from several goroutines, but for BeginIteration and
// EndIteration, which the program orders with what it calls within.
type Planner struct {
	c   *Caching
	cfg PlannerConfig

	ctx    context.Context // of making plans
	cancel context.CancelFunc
	closed atomic.Bool

	iteration sync.Mutex // of BeginIteration, EndIteration and Close
	open      atomic.Bool
	counted   atomic.Int64 // iterations, explicit ones

	mu       sync.Mutex              // taken to change lanes, before theirs
	byStream atomic.Pointer[[]*lane] // by Stream.index; nil for none
	lanes    atomic.Pointer[[]*lane] // by id, ascending
	past     laneStats               // of lanes that were taken out; guarded by mu
}

var _ Allocator = (*Planner)(nil)

// NewPlanner returns a Planner over an allocator, which stays the caller's
// to close, after the Planner. It fails with a *ConfigError.
func NewPlanner(c *Caching, cfg PlannerConfig) (*Planner, error) {
	for _, f := range []struct {
		name   string
		value  any
		ok     bool
		reason string
	}{
		{"Caching", c, c != nil, "a planner needs one"},
		{"Confirm", cfg.Confirm, cfg.Confirm >= 0, "must not be negative; 0 means 2"},
		{"Budget", cfg.Budget, cfg.Budget >= 0, "must not be negative; 0 means 5s"},
		{"MaxRequests", cfg.MaxRequests, cfg.MaxRequests >= 0 && cfg.MaxRequests <= math.MaxInt32/2, "must not be negative or above 1,073,741,823; 0 means 1,048,576"},
	} {
		if !f.ok {
			return nil, &ConfigError{Field: f.name, Value: f.value, Reason: f.reason}
		}
	}
	if cfg.Confirm == 0 {
		cfg.Confirm = defaultConfirm
	}
	if cfg.Budget == 0 {
		cfg.Budget = defaultBudget
	}
	if cfg.MaxRequests == 0 {
		cfg.MaxRequests = defaultMaxRequests
	}
	p := &Planner{c: c, cfg: cfg}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.byStream.Store(new([]*lane))
	p.lanes.Store(new([]*lane))
	return p, nil
}

// Caching returns the allocator underneath.
func (p *Planner) Caching() *Caching { return p.c }

// Driver returns the device.
func (p *Planner) Driver() Driver { return p.c.Driver() }

// DefaultStream returns the device's default stream.
func (p *Planner) DefaultStream() *Stream { return p.c.DefaultStream() }

// NewStream makes a stream of the device.
func (p *Planner) NewStream() (*Stream, error) { return p.c.NewStream() }

// lane returns a stream's lane, or nil where there is nothing to plan.
func (p *Planner) lane(s *Stream) *lane {
	if s = p.c.own(s); s == nil {
		return nil
	}
	if list := *p.byStream.Load(); int(s.index) < len(list) && list[s.index].isOf(s) {
		return list[s.index]
	}
	return p.addLane(s)
}

// isOf reports whether a lane is a stream's. A closed stream's may be in the
// place of another's.
func (l *lane) isOf(s *Stream) bool { return l != nil && l.s == s }

func (p *Planner) addLane(s *Stream) *lane {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.retireLanesLocked()
	list := slices.Clone(*p.byStream.Load())
	for int(s.index) >= len(list) {
		list = append(list, nil)
	}
	if l := list[s.index]; l.isOf(s) {
		return l
	}
	l := &lane{p: p, s: s, id: pools.Add(1)}
	if p.cfg.Detect {
		l.find = newDetector(p.cfg)
	}
	if p.cfg.Detect || p.open.Load() {
		l.record(newRecording(nil))
	}
	list[s.index] = l
	lanes := append(slices.Clone(*p.lanes.Load()), l)
	p.lanes.Store(&lanes)
	p.byStream.Store(&list)
	return l
}

// retireLanesLocked takes the lanes of closed streams out in which nothing lives,
// so that a program may make streams without end.
func (p *Planner) retireLanesLocked() {
	list := slices.DeleteFunc(slices.Clone(*p.lanes.Load()), func(l *lane) bool {
		old, ok := l.retireIdle(&p.past)
		if ok {
			_ = p.giveBack(old) // fails if the Caching is closed or the device is lost
		}
		return ok
	})
	p.lanes.Store(&list)
}

// laneOf returns the lane whose handles carry a pool's number, or nil.
func (p *Planner) laneOf(pool uint32) *lane {
	lanes := *p.lanes.Load()
	if len(lanes) > 0 && lanes[0].id == pool {
		return lanes[0]
	}
	i, ok := slices.BinarySearchFunc(lanes, pool, func(l *lane, id uint32) int { return int(int64(l.id) - int64(id)) })
	if !ok {
		return nil
	}
	return lanes[i]
}

func (p *Planner) closedError(op string) error {
	return fmt.Errorf("cupool: planner on %s: %s: %w", p.c.driver.Name(), op, ErrClosed)
}

// Alloc implements Allocator. A request that is as planned is served by its
// place in the iteration, without a search.
func (p *Planner) Alloc(size int64, s *Stream) (Block, error) {
	if s == nil {
		s = p.c.def
	}
	l := p.lane(s)
	if l == nil || size <= 0 || size > sizeclass.MaxRequest {
		if p.closed.Load() {
			return Block{}, p.closedError("allocation")
		}
		return p.c.Alloc(size, s)
	}
	l.mu.Lock()
	if l.find != nil && !l.serving {
		l.betweenLocked()
	}
	if l.serving {
		if h, ok := l.serveLocked(size); ok {
			l.mu.Unlock()
			return h, nil
		}
	}
	t := l.missLocked(size)
	l.mu.Unlock()
	return l.pass(size, t)
}

// Free implements Allocator.
func (p *Planner) Free(h Block) error {
	if h.pool() == p.c.id {
		l := p.recordingLane(h)
		err := p.c.Free(h)
		if l != nil && err == nil {
			l.noteFree(h)
		}
		return err
	}
	if l := p.laneOf(h.pool()); l != nil {
		return l.free(h)
	}
	return p.c.Free(h) // the empty Block, or a foreign one
}

// recordingLane returns the lane that has to hear of what happens to a block
// of the Caching, or nil.
func (p *Planner) recordingLane(h Block) *lane {
	if !p.c.blocks.Known(h.id()) {
		return nil
	}
	list := *p.byStream.Load()
	if i := p.c.blocks.At(h.id()).Owner(); int(i) < len(list) && list[i].isOf(p.c.stream(i)) && list[i].recording.Load() {
		return list[i]
	}
	return nil
}

// RecordStream implements Allocator. The memory of a planned block is not
// used again before the stream is done with it, and the iteration goes on
// without the plan, which is made again without the block.
func (p *Planner) RecordStream(h Block, s *Stream) error {
	if s == nil {
		s = p.c.DefaultStream()
	}
	if l := p.laneOf(h.pool()); l != nil {
		return l.recordStream(h, s)
	}
	err := p.c.RecordStream(h, s)
	if err == nil && h.pool() == p.c.id {
		if l := p.recordingLane(h); l != nil && l.s.base != s {
			l.noteUse(h)
		}
	}
	return err
}

// BeginIteration says that an iteration begins. When a plan was made for it,
// its memory is taken now, idle memory of the Caching is given back to the
// device, which may wait for its work, and the iteration is served by the
// plan. When there is no memory for the plan, the iteration goes through the
// Caching and it is tried again later. It fails with ErrIteration, ErrClosed
// or what the device says; the iteration has not begun then.
func (p *Planner) BeginIteration() error {
	p.iteration.Lock()
	defer p.iteration.Unlock()
	switch {
	case p.closed.Load():
		return p.closedError("begin iteration")
	case p.cfg.Detect:
		return fmt.Errorf("cupool: begin iteration: %w: they are detected", ErrIteration)
	case p.open.Load():
		return fmt.Errorf("cupool: begin iteration: %w: the last one has not ended", ErrIteration)
	}
	if err := p.install(*p.lanes.Load()); err != nil {
		return err
	}
	p.open.Store(true)
	for _, l := range *p.lanes.Load() {
		l.begin()
	}
	return nil
}

// EndIteration says that an iteration ends. When enough was recorded, a plan
// is made in the background. It fails with ErrIteration or ErrClosed.
func (p *Planner) EndIteration() error {
	p.iteration.Lock()
	defer p.iteration.Unlock()
	switch {
	case p.closed.Load():
		return p.closedError("end iteration")
	case p.cfg.Detect:
		return fmt.Errorf("cupool: end iteration: %w: they are detected", ErrIteration)
	case !p.open.Load():
		return fmt.Errorf("cupool: end iteration: %w: none has begun", ErrIteration)
	}
	p.open.Store(false)
	p.counted.Add(1)
	for _, l := range *p.lanes.Load() {
		l.end()
	}
	return nil
}

// Wait waits until no plan is being made, or for the context, whose error it
// then returns. Plans are used from the next iteration on.
func (p *Planner) Wait(ctx context.Context) error {
	for _, l := range *p.lanes.Load() {
		l.mu.Lock()
		done := l.solving
		l.mu.Unlock()
		if done == nil {
			continue
		}
		select {
		case <-done:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// Close gives the arenas back to the Caching. It returns a *LeakError when
// planned blocks were live. Blocks that were passed through stay as they
// are. Calls after Close fail with ErrClosed, but for those blocks.
func (p *Planner) Close() error {
	if !p.closed.CompareAndSwap(false, true) {
		return p.closedError("close")
	}
	p.cancel()
	_ = p.Wait(context.Background())
	p.iteration.Lock()
	defer p.iteration.Unlock()
	var errs []error
	var leaks []Leak
	for _, l := range *p.lanes.Load() {
		lost, a := l.shutDown()
		leaks = append(leaks, lost...)
		errs = append(errs, p.giveBack(a))
	}
	if len(leaks) > 0 {
		errs = append(errs, newLeakError(leaks))
	}
	return errors.Join(errs...)
}
