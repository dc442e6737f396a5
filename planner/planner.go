// Package planner serves a program that repeats itself by a plan.
//
// A training run asks for the same memory in every iteration. So a Planner
// records an iteration (record.go), or finds where iterations begin (detect.go).
// It works out offline the place of each block, such that all fit into as little
// memory as possible (layout.go, and internal/plan, which names its sources). Then it takes one range of
// memory of that size for each stream, its arena (arena.go). It serves the
// following iterations by index: the i-th request gets the i-th place, without a
// search (lane.go). Requests that are not as recorded go to the Pool
// underneath.
package planner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/sanitize"
	"github.com/cupool/cupool/internal/sizeclass"
)

// ErrIteration is the error of BeginIteration within an iteration, of
// EndIteration outside of one, and of both where iterations are detected.
var ErrIteration = errors.New("not at this point of the iteration")

// Config sets up a Planner. The zero value is a good one.
type Config struct {
	// Confirm is the number of iterations in a row that have to make the same
	// requests before one is planned. 0: 2, because programs often make some
	// of their state in the first iteration. 1 plans after the first, or, with
	// Detect, for which one iteration alone is none, after the second. At most
	// 1,048,576.
	Confirm int

	// Detect has the Planner find the iterations: it plans the requests on a
	// stream where they repeat. BeginIteration and EndIteration then fail.
	Detect bool

	// Budget bounds the time in which a plan is made, in the background. Most
	// plans take less than a second. Those of programs that keep blocks of many
	// sizes get a little lower with up to 20 s. 0: 5 s.
	Budget time.Duration

	// Joint makes one plan for all streams, so that their blocks share memory. That
	// takes less where the streams' peaks come at different times. A stream that
	// takes memory over waits on the device for the stream that had it, and all
	// streams wait for each other when they make their first request of an
	// iteration. The requests on all streams have to come in one recorded order, as
	// those of one goroutine do. Joint cannot be combined with Detect.
	Joint bool

	// MaxRequests bounds the requests of an iteration on one stream. Longer
	// iterations are not planned. With Joint it bounds those on all streams. A recording
	// takes about 60 bytes a request, a plan about 110. At most
	// 1,073,741,823. 0: 1,048,576.
	MaxRequests int
}

const (
	defaultConfirm     = 2
	defaultBudget      = 5 * time.Second
	defaultMaxRequests = 1 << 20
	mostConfirm        = 1 << 20 // of MaxRequests each: their product is a number of requests
)

// Planner is a cupool.Allocator that serves repeating iterations of a program by
// a plan, and all other requests through a Pool. Planned blocks have the same
// addresses in every iteration. Together they take hardly more memory than the
// most that the iteration holds at once.
//
// An iteration begins with BeginIteration and ends with EndIteration, or the
// Planner finds it (Config.Detect). Two kinds of its blocks are not planned but
// passed through to the Pool: blocks that outlive the iteration, and blocks
// that other streams use (RecordStream). Requests on a stream come in the recorded
// order; any goroutine may make them. Streams are independent of each other, unless
// Config.Joint has them share memory.
//
// A request deviates from the plan when it is not the recorded one. It also
// deviates when its place is in use, because a block lives longer than in the
// recording or another stream still uses it. This and all later requests of the
// iteration on the stream then go through the Pool. No memory is ever handed
// out that is in use. Iterations that deviate are recorded, and a plan is made
// from them.
//
// For the Pool the planned blocks of a stream are one: Config.Sanitize looks at its end
// alone, and ZeroOnAlloc and ZeroOnFree do not fill its parts between two users.
//
// All methods are safe from several goroutines, but for BeginIteration and
// EndIteration. The program orders these two with its calls within the iteration.
type Planner struct {
	c      *cupool.Pool
	def    *cupool.Stream
	cfg    Config
	solver *solver
	cancel context.CancelFunc // of making plans
	closed atomic.Bool

	iteration sync.Mutex // of BeginIteration, EndIteration and Close
	open      atomic.Bool
	counted   atomic.Int64 // iterations between BeginIteration and EndIteration

	mu    sync.Mutex // taken to change lanes, before theirs
	lanes atomic.Pointer[lanes]
	past  Stats // of lanes that were taken out; guarded by mu
}

var _ cupool.Allocator = (*Planner)(nil)

// New returns a Planner over c. The caller closes the Planner and then c. New
// fails with a *cupool.ConfigError.
func New(c *cupool.Pool, cfg Config) (*Planner, error) {
	for _, f := range []struct {
		name   string
		value  any
		ok     bool
		reason string
	}{
		{"Pool", nil, c.Driver() != nil, "a planner needs one"},
		{"Confirm", cfg.Confirm, cfg.Confirm >= 0 && cfg.Confirm <= mostConfirm, "must not be negative or above 1,048,576; 0 means 2"},
		{"Budget", cfg.Budget, cfg.Budget >= 0, "must not be negative; 0 means 5s"},
		{"Joint", cfg.Joint, !cfg.Joint || !cfg.Detect, "iterations are detected on each stream by itself"},
		{"MaxRequests", cfg.MaxRequests, cfg.MaxRequests >= 0 && cfg.MaxRequests <= math.MaxInt32/2, "must not be negative or above 1,073,741,823; 0 means 1,048,576"},
	} {
		if !f.ok {
			return nil, &cupool.ConfigError{Field: f.name, Value: f.value, Reason: f.reason}
		}
	}
	cfg.Confirm = cmp.Or(cfg.Confirm, defaultConfirm)
	cfg.Budget = cmp.Or(cfg.Budget, defaultBudget)
	cfg.MaxRequests = cmp.Or(cfg.MaxRequests, defaultMaxRequests)
	ctx, cancel := context.WithCancel(context.Background())
	p := &Planner{c: c, def: c.DefaultStream(), cfg: cfg, solver: newSolver(ctx, c, cfg.Budget), cancel: cancel}
	p.lanes.Store(newLanes(nil))
	return p, nil
}

// Pool returns the allocator underneath.
func (p *Planner) Pool() *cupool.Pool {
	if p == nil {
		return nil
	}
	return p.c
}

// made fails for a Planner that is nil, or that New did not make.
func (p *Planner) made(op string) error {
	if p == nil || p.c == nil {
		return fmt.Errorf("cupool: planner: %s: the Planner is nil, or New did not make it: %w", op, cupool.ErrInvalidHandle)
	}
	return nil
}

// Driver returns the device.
func (p *Planner) Driver() cupool.Driver { return p.Pool().Driver() }

// DefaultStream returns the device's default stream.
func (p *Planner) DefaultStream() *cupool.Stream { return p.Pool().DefaultStream() }

// NewStream makes a stream of the device. It fails with ErrClosed or the device's
// error.
func (p *Planner) NewStream() (*cupool.Stream, error) {
	if err := p.made("new stream"); err != nil {
		return nil, err
	}
	if p.closed.Load() {
		return nil, p.closedError("new stream")
	}
	return p.c.NewStream()
}

// addLane makes a stream's lane. It returns nil for a stream on which nothing
// can be allocated.
func (p *Planner) addLane(s *cupool.Stream) *lane {
	if s.Closed() || s.Pool() != p.def.Pool() {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.retireLanesLocked()
	if l := p.lanes.Load().of(s); l != nil {
		return l
	}
	list := p.lanes.Load().list
	if p.cfg.Joint {
		if len(list) == 0 {
			list = []*lane{newLane(p.c, p.cfg, p.solver, p.def, p.open.Load())}
		}
		list[0].join(s)
		p.lanes.Store(newLanes(list))
		return list[0]
	}
	l := newLane(p.c, p.cfg, p.solver, s, p.open.Load())
	p.lanes.Store(newLanes(append(slices.Clone(list), l)))
	return l
}

// retireLanesLocked takes out the lanes of closed streams in which no block lives,
// so that a program may make any number of streams.
func (p *Planner) retireLanesLocked() {
	p.lanes.Store(newLanes(slices.DeleteFunc(slices.Clone(p.lanes.Load().list), func(l *lane) bool {
		old, ok := l.retireIdle(&p.past)
		_ = giveBack(p.c, old) // fails if the Pool is closed or the device is lost
		return ok
	})))
}

func (p *Planner) closedError(op string) error {
	return fmt.Errorf("cupool: planner on %s: %s: %w", p.Driver().Name(), op, cupool.ErrClosed)
}

// Alloc implements cupool.Allocator. A request that is as planned gets its place
// in the plan, without a search.
func (p *Planner) Alloc(size int64, s *cupool.Stream) (cupool.Block, error) {
	if err := p.made("allocation"); err != nil {
		return cupool.Block{}, err
	}
	if s == nil {
		s = p.def
	}
	l := p.lanes.Load().of(s)
	if l == nil {
		l = p.addLane(s)
	}
	if l == nil || size <= 0 || size > sizeclass.MaxRequest {
		if p.closed.Load() {
			return cupool.Block{}, p.closedError("allocation")
		}
		return p.c.Alloc(size, s)
	}
	l.mu.Lock()
	if l.find != nil && !l.serving && l.dueLocked() {
		l.mu.Unlock()
		p.between(l)
		l.mu.Lock()
	}
	if l.serving {
		if h, ok := l.serveLocked(size, s); ok {
			l.mu.Unlock()
			return h, nil
		}
	}
	t := l.missLocked(size, s)
	l.mu.Unlock()
	return p.pass(l, size, s, t)
}

// between is for detected iterations. It lets a plan that is ready take over when
// the next request is the first of an iteration.
func (p *Planner) between(l *lane) {
	_ = giveBack(p.c, l.leave()) // fails if the device is lost
	if !p.iteration.TryLock() {
		return
	}
	defer p.iteration.Unlock()
	rec, at := l.boundary()
	if at == 0 {
		return
	}
	if err := install(p.c, []*lane{l}); err != nil {
		p.solver.log.Warn("making room for a plan failed", "error", err)
	}
	l.startAt(rec, at)
}

// pass serves a request through the Pool. When that has no memory, pass serves
// it from idle memory of the arenas.
func (p *Planner) pass(l *lane, size int64, s *cupool.Stream, t ticket) (h cupool.Block, err error) {
	ok := false
	if t.pressed {
		h, ok = l.stray(size, s)
	}
	if !ok {
		if p.closed.Load() {
			return cupool.Block{}, p.closedError("allocation")
		}
		h, err = p.c.Alloc(size, s)
	}
	if errors.Is(err, cupool.ErrOutOfMemory) {
		h, err = rescue(p.c, p.lanes.Load().list, l, size, s, err)
	}
	if t.rec != nil {
		l.served(t, h, err)
	}
	return h, err
}

// Free implements cupool.Allocator.
func (p *Planner) Free(h cupool.Block) error {
	if err := p.made("free"); err != nil {
		return err
	}
	if l := p.lanes.Load().by(h.Maker()); l != nil {
		left, err := l.free(h)
		if left {
			err = giveBack(p.c, l.leave())
		}
		return err
	}
	l := p.recordingLane(h)
	err := p.c.Free(h)
	if l != nil && sanitize.WasFreed(err) {
		l.freed(h)
	}
	return err
}

// recordingLane returns the lane that records frees and uses of a block of the
// Pool, or nil.
func (p *Planner) recordingLane(h cupool.Block) *lane {
	s := p.c.StreamOf(h)
	if s == nil {
		return nil
	}
	if l := p.lanes.Load().of(s); l != nil && l.recording.Load() {
		return l
	}
	return nil
}

// RecordStream implements cupool.Allocator. The memory of a planned block is not
// used again before the stream is done with it. The iteration goes on without the
// plan, and the next plan does not have the block.
func (p *Planner) RecordStream(h cupool.Block, s *cupool.Stream) error {
	if err := p.made("record stream"); err != nil {
		return err
	}
	if s == nil {
		s = p.DefaultStream()
	}
	if l := p.lanes.Load().by(h.Maker()); l != nil {
		return l.recordStream(h, s)
	}
	if err := p.c.RecordStream(h, s); err != nil {
		return err
	}
	if l := p.recordingLane(h); l != nil && p.c.StreamOf(h) != s {
		l.used(h)
	}
	return nil
}

// FreePtr implements cupool.Allocator.
func (p *Planner) FreePtr(ptr cupool.Ptr, size int64) error {
	if err := p.made("free"); err != nil {
		return err
	}
	all := p.lanes.Load()
	if l := all.at(ptr); l != nil {
		h, err := l.lookup("free", ptr, size, true)
		if err != nil {
			return err
		}
		return p.Free(h)
	}
	if ptr != 0 && all.isRecording() {
		if h, err := p.c.Lookup(ptr); err == nil && h.Ptr() == ptr && (size < 0 || size == h.Size()) {
			return p.Free(h)
		}
	}
	return p.c.FreePtr(ptr, size)
}

// Lookup implements cupool.Allocator.
func (p *Planner) Lookup(ptr cupool.Ptr) (cupool.Block, error) {
	if err := p.made("look-up"); err != nil {
		return cupool.Block{}, err
	}
	if l := p.lanes.Load().at(ptr); l != nil {
		return l.lookup("look-up", ptr, -1, false)
	}
	return p.c.Lookup(ptr)
}

// BeginIteration begins an iteration. When a plan is ready, the plan serves the
// iteration. BeginIteration takes the memory of a new plan and gives idle memory
// of the Pool back to the device, which may wait for the device's work. When
// there is no memory for the plan, the iteration goes through the Pool, and a
// later one tries again. BeginIteration fails with ErrIteration, ErrClosed or the
// device's error, and then the iteration has not begun.
func (p *Planner) BeginIteration() error {
	if err := p.made("begin iteration"); err != nil {
		return err
	}
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
	if err := install(p.c, p.lanes.Load().list); err != nil {
		return err
	}
	p.open.Store(true)
	for _, l := range p.lanes.Load().list {
		l.begin()
	}
	return nil
}

// EndIteration ends an iteration. When enough iterations were recorded, a plan is
// made in the background. EndIteration fails with ErrIteration or ErrClosed.
func (p *Planner) EndIteration() error {
	if err := p.made("end iteration"); err != nil {
		return err
	}
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
	for _, l := range p.lanes.Load().list {
		_ = giveBack(p.c, l.end()) // fails if the device is lost
	}
	return nil
}

// Wait waits until no plan is being made. It returns the context's error when the
// context ends first, and fails with ErrInvalidHandle for a nil ctx. Plans are used
// from the next iteration on.
func (p *Planner) Wait(ctx context.Context) error {
	if err := p.made("wait"); err != nil {
		return err
	}
	if ctx == nil {
		return fmt.Errorf("cupool: planner: wait: the context is nil: %w", cupool.ErrInvalidHandle)
	}
	for _, l := range p.lanes.Load().list {
		done := l.pending()
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

// Stats returns a snapshot.
func (p *Planner) Stats() Stats {
	if p.made("statistics") != nil {
		return Stats{}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	st := p.past
	for _, l := range p.lanes.Load().list {
		l.addTo(&st)
	}
	if st.Iterations = p.counted.Load(); p.cfg.Detect {
		st.Iterations += st.Planned
	}
	return st
}

// Check verifies the rules of all plans (P1 to P3) and returns the first that
// is broken, by its number.
func (p *Planner) Check() error {
	if err := p.made("check"); err != nil {
		return err
	}
	for _, l := range p.lanes.Load().list {
		if err := l.check(); err != nil {
			return err
		}
	}
	return nil
}

// Close gives the arenas back to the Pool. It returns a *cupool.LeakError when
// planned blocks were live. Blocks that were passed through stay live: after Close
// they can be looked up, recorded on streams and freed. Alloc, NewStream, Close and
// calls for iterations or planned blocks then fail with ErrClosed.
func (p *Planner) Close() error {
	if err := p.made("close"); err != nil {
		return err
	}
	if !p.closed.CompareAndSwap(false, true) {
		return p.closedError("close")
	}
	p.cancel()
	_ = p.Wait(context.Background())
	p.iteration.Lock()
	defer p.iteration.Unlock()
	var errs []error
	leaks := &cupool.LeakError{}
	for _, l := range p.lanes.Load().list {
		lost, old := l.shutDown()
		leaks.Leaks = append(leaks.Leaks, lost...)
		errs = append(errs, giveBack(p.c, old))
	}
	if len(leaks.Leaks) > 0 {
		slices.SortFunc(leaks.Leaks, func(a, b cupool.Leak) int { return cmp.Compare(a.Ptr, b.Ptr) })
		for _, l := range leaks.Leaks {
			leaks.Bytes += l.Size
		}
		errs = append(errs, leaks)
	}
	return errors.Join(errs...)
}
