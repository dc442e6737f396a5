package interleave

import (
	"fmt"
	"sync/atomic"
	"unsafe"
)

// maxThreads is how many goroutines a program may have. The actors are the
// goroutines and, that much further up, their store buffers.
const (
	maxThreads = 4
	actors     = 2 * maxThreads
)

// mask is a set of actors.
type mask uint8

func bit(a int) mask { return 1 << a }

func (m mask) has(a int) bool { return m&bit(a) != 0 }

// clock says, by actor, up to which of its steps, counted over the whole schedule
// from 1, came before.
type clock [actors]int32

func (c *clock) join(o *clock) {
	for a := range c {
		c[a] = max(c[a], o[a])
	}
}

// state is where a schedule stands before a step.
type state struct {
	enabled mask // who could take the step
	todo    mask // who has to, in one schedule or another
	done    mask // who did
	sleep   mask // who would only repeat what another schedule does
	chosen  int8
	spent   int // preemptions so far
}

// event is a step that was taken. before is the value that it found, of a word of
// 32 bits.
type event struct {
	op
	actor  int8
	before uint32
	clock  clock
}

// object is what was done to a word.
type object struct {
	events        []int32 // their numbers, from 1
	read, written clock   // what came before those that read, and that write
	by            mask    // who did
}

// explorer is one search. Its goroutines take turns: all its fields are the one's
// that runs.
type explorer struct {
	options Options
	stack   []state // the schedule, as far as it is decided
	check   func() error

	// of the schedule that is played
	threads  []*thread
	depth    int // steps so far
	events   []event
	objects  map[unsafe.Pointer]*object
	spare    []*object
	clocks   [actors]clock
	sleep    mask // of the next state
	last     int  // the thread that took the last step
	coasting bool // nothing is recorded any more
	forced   []int8
	tracing  bool
	trace    []string
	taken    []int8
	starting bool
	ended    bool
	next     *thread
	failed   error
	pins     [maxThreads]uint32
	drains   bool // goroutines have others empty their buffers
	restart  bool
	refuses  bool
	barriers int
}

// play runs the program once, along the stack and on from there.
func (x *explorer) play(setup func(*Run)) error {
	for p, o := range x.objects {
		*o = object{events: o.events[:0]}
		x.spare = append(x.spare, o)
		delete(x.objects, p)
	}
	if x.objects == nil {
		x.objects = map[unsafe.Pointer]*object{}
	}
	x.threads, x.check, x.failed, x.trace, x.taken = nil, nil, nil, nil, x.taken[:0]
	x.depth, x.events, x.clocks, x.sleep, x.last = 0, x.events[:0], [actors]clock{}, 0, 0
	x.coasting, x.ended, x.pins, x.refuses, x.barriers = false, false, [maxThreads]uint32{}, false, 0
	setup(&Run{x})
	x.starting = true
	for _, t := range x.threads {
		t.start()
	}
	x.starting = false
	x.next = x.step()
	for x.next != nil && x.failed == nil {
		t := x.next
		x.next = nil
		t.resume()
	}
	if x.failed == nil {
		for _, t := range x.threads {
			if !t.done {
				x.failed = ErrDeadlock
			}
		}
	}
	if !x.coasting && x.failed == nil {
		x.pendingRaces()
	}
	x.ended = true
	for _, t := range x.threads {
		t.stop()
	}
	if x.failed == nil && x.check != nil {
		x.failed = x.check()
	}
	return x.failed
}

// step decides who takes the next step, and returns the goroutine, or nil when none
// can. Steps of store buffers it takes itself.
func (x *explorer) step() *thread {
	for x.failed == nil {
		enabled := x.enabled()
		if enabled == 0 {
			return nil
		}
		a := x.choose(enabled)
		if a < 0 {
			return nil
		}
		x.taken = append(x.taken, int8(a))
		if !x.coasting {
			x.record(a)
		}
		x.depth++
		if x.tracing {
			x.trace = append(x.trace, x.describe(a))
		}
		if a < maxThreads {
			x.last = a
			return x.threads[a]
		}
		x.threads[a-maxThreads].flush()
	}
	return nil
}

// enabled returns who can take a step.
func (x *explorer) enabled() (m mask) {
	for i, t := range x.threads {
		if !t.done && x.ready(t, &t.op) {
			m |= bit(i)
		}
		if len(t.buffer) > 0 {
			m |= bit(maxThreads + i)
		}
	}
	return m
}

func (x *explorer) ready(t *thread, o *op) bool {
	switch {
	case o.fence && len(t.buffer) > 0,
		o.wanted && atomic.LoadUint32((*uint32)(o.addr)) != o.want,
		o.drains != nil && len(o.drains.buffer) > 0:
		return false
	}
	if o.pins { // whoever was on the processor before has left nothing in its buffer
		for _, u := range x.threads {
			if u != t && u.processor == t.processor && len(u.buffer) > 0 {
				return false
			}
		}
	}
	return true
}

// choose returns the actor of the next step, -1 after a failure.
func (x *explorer) choose(enabled mask) int {
	switch {
	case x.depth < len(x.forced):
		a := int(x.forced[x.depth])
		if !enabled.has(a) {
			x.failed = fmt.Errorf("%w: step %d", ErrNotRepeatable, x.depth)
			return -1
		}
		return a
	case x.forced != nil || x.coasting:
		return x.prefer(enabled)
	case x.depth < len(x.stack):
		s := &x.stack[x.depth]
		if s.enabled != enabled {
			x.failed = fmt.Errorf("%w: step %d", ErrNotRepeatable, x.depth)
			return -1
		}
		return int(s.chosen)
	}
	if enabled&^x.sleep == 0 {
		x.pendingRaces()
		x.coasting = true
		return x.prefer(enabled)
	}
	a := x.prefer(enabled &^ x.sleep)
	s := state{enabled: enabled, todo: bit(a), sleep: x.sleep, chosen: int8(a)}
	if n := len(x.stack); n > 0 {
		s.spent = x.stack[n-1].spent + x.cost(&x.stack[n-1], n-1)
	}
	if !x.reduces() {
		s.todo = enabled
	}
	x.stack = append(x.stack, s)
	return a
}

// reduces reports whether schedules that are as another are left out.
func (x *explorer) reduces() bool { return !x.options.every && x.options.Preemptions == 0 }

// cost returns 1 if the step that was chosen at a state was a preemption.
func (x *explorer) cost(s *state, at int) int {
	if last := x.lastThread(at); int(s.chosen) != last && s.enabled.has(last) {
		return 1
	}
	return 0
}

// lastThread returns the goroutine that ran before a state.
func (x *explorer) lastThread(at int) int {
	for at--; at >= 0; at-- {
		if a := int(x.stack[at].chosen); a < maxThreads {
			return a
		}
	}
	return 0
}

// prefer returns one of a set: the goroutine that ran last, its store buffer where
// the goroutine waits for that, or the first.
func (x *explorer) prefer(m mask) int {
	switch {
	case m.has(x.last):
		return x.last
	case m.has(maxThreads + x.last):
		return maxThreads + x.last
	}
	for a := range actors {
		if m.has(a) {
			return a
		}
	}
	panic("nobody can")
}

// pending returns what an actor does next.
func (x *explorer) pending(a int) op {
	if a < maxThreads {
		return x.threads[a].op
	}
	t := x.threads[a-maxThreads]
	o := op{kind: writes, addr: t.buffer[0].addr, short: t.buffer[0].short}
	if x.drains {
		o.also = unsafe.Pointer(&t.buffer)
	}
	return o
}

// depend reports whether the order of two steps matters.
func depend(a, b *op) bool {
	return (a.kind == writes || b.kind == writes) &&
		(a.addr != nil && (a.addr == b.addr || a.addr == b.also) || a.also != nil && (a.also == b.addr || a.also == b.also))
}

// before returns the steps that came before the next one of an actor, by the order
// of its own steps.
func (x *explorer) before(a int, o *op) clock {
	c := x.clocks[a]
	if a >= maxThreads {
		c.join(&x.threads[a-maxThreads].buffer[0].clock)
	} else if o.fence {
		c.join(&x.clocks[maxThreads+a])
	}
	return c
}

// waited adds the steps that the next one of an actor had to wait for.
func (x *explorer) waited(a int, o *op, c clock) clock {
	if o.drains != nil {
		c.join(&x.clocks[maxThreads+o.drains.number])
	}
	if o.pins {
		for _, u := range x.threads {
			if u.number != a && u.processor == x.threads[a].processor {
				c.join(&x.clocks[maxThreads+u.number])
			}
		}
	}
	return c
}

// record notes the step that an actor takes.
func (x *explorer) record(a int) {
	o := x.pending(a)
	c := x.before(a, &o)
	number := int32(x.depth) + 1
	e := event{op: o, actor: int8(a)}
	if x.reduces() && x.forced == nil {
		x.races(a, &o, c)
		s := &x.stack[x.depth]
		x.sleep = 0
		for q := range actors {
			if q != a && (s.sleep | s.done).has(q) {
				if p := x.pending(q); !depend(&p, &o) {
					x.sleep |= bit(q)
				}
			}
		}
	}
	c = x.waited(a, &o, c)
	switch {
	case o.pushes:
		e.before = uint32(len(x.threads[a].buffer))
	case o.short:
		e.before = atomic.LoadUint32((*uint32)(o.addr))
	}
	var words [2]*object
	for i, p := range [...]unsafe.Pointer{o.addr, o.also} {
		if p != nil {
			w := x.object(p)
			words[i] = w
			c.join(&w.written)
			if o.kind == writes {
				c.join(&w.read)
			}
		}
	}
	c[a] = number
	for _, w := range words {
		if w != nil {
			w.by |= bit(a)
			w.events = append(w.events, number)
			if o.kind == writes {
				w.written.join(&c)
			} else {
				w.read.join(&c)
			}
		}
	}
	e.clock = c
	x.clocks[a] = c
	x.events = append(x.events, e)
}

func (x *explorer) object(p unsafe.Pointer) *object {
	o := x.objects[p]
	if o == nil {
		if n := len(x.spare); n > 0 {
			o, x.spare = x.spare[n-1], x.spare[:n-1]
		} else {
			o = new(object)
		}
		x.objects[p] = o
	}
	return o
}

// races finds the steps that could have come after the next one of an actor instead
// of before, and sees to it that a schedule does it so.
func (x *explorer) races(a int, o *op, c clock) {
	for _, p := range [...]unsafe.Pointer{o.addr, o.also} {
		w := x.objects[p]
		if p == nil || w == nil || w.by&^bit(a) == 0 {
			continue
		}
		c := c
		for i := len(w.events) - 1; i >= 0; i-- {
			n := w.events[i]
			e := &x.events[n-1]
			if c[e.actor] < n && (e.kind == writes || o.kind == writes) && !o.waitedFor(e) {
				x.reverse(int(n), a, &c)
				c.join(&e.clock)
			}
		}
	}
}

// waitedFor reports whether an actor that stands before o had to wait when e was
// about to happen.
func (o *op) waitedFor(e *event) bool {
	switch {
	case o.drains != nil && !o.wanted:
		return !e.pushes || e.before != 0
	case o.wanted && e.kind == writes:
		return e.before != o.want
	}
	return false
}

// reverse sees to it that the step of a, which is the next one or pending, is taken
// before the n-th: one of the actors goes there that can begin with what leads to it.
// These are the initials of source sets (Abdulla, Aronis, Jonsson and Sagonas,
// "Optimal Dynamic Partial Order Reduction", 2014).
func (x *explorer) reverse(n, a int, c *clock) {
	s := &x.stack[n-1]
	after := x.events[n-1].actor
	var seen, lead mask
	begins := func(q int, c *clock) {
		for r := range c {
			if r != q && int(c[r]) > n {
				return // that comes first
			}
		}
		lead |= bit(q)
	}
	for i := n; i < len(x.events); i++ {
		e := &x.events[i]
		if q := int(e.actor); !seen.has(q) && int(e.clock[after]) < n {
			seen |= bit(q)
			begins(q, &e.clock)
		}
	}
	if !seen.has(a) {
		begins(a, c)
	}
	switch lead &= s.enabled; {
	case lead == 0:
		s.todo |= s.enabled
	case lead&s.todo != 0:
	case lead.has(a):
		s.todo |= bit(a)
	default:
		s.todo |= lead & -lead
	}
}

// pendingRaces is races for what the actors would do next.
func (x *explorer) pendingRaces() {
	if !x.reduces() || x.forced != nil {
		return
	}
	for i, t := range x.threads {
		if !t.done {
			x.races(i, &t.op, x.before(i, &t.op))
		}
		if len(t.buffer) > 0 {
			o := x.pending(maxThreads + i)
			x.races(maxThreads+i, &o, x.before(maxThreads+i, &o))
		}
	}
}

// backtrack sets the stack up for the next schedule and reports whether there is
// one.
func (x *explorer) backtrack() bool {
	for n := len(x.stack); n > 0; n-- {
		x.stack = x.stack[:n]
		s := &x.stack[n-1]
		s.done |= bit(int(s.chosen))
		for left := s.todo &^ s.done &^ s.sleep; left != 0; left = s.todo &^ s.done &^ s.sleep {
			a := 0
			for !left.has(a) {
				a++
			}
			s.chosen = int8(a)
			if x.options.Preemptions == 0 || s.spent+x.cost(s, n-1) <= x.options.Preemptions {
				return true
			}
			s.done |= bit(a)
		}
	}
	return false
}

// explain plays a schedule that failed again, and notes its steps.
func (x *explorer) explain(err error, setup func(*Run)) *Failure {
	taken := append([]int8{}, x.taken...)
	f := (&explorer{}).replay(taken, setup)
	if f == nil {
		f = &Failure{Err: fmt.Errorf("%w: %w", ErrNotRepeatable, err), Schedule: format(taken)}
	}
	return f
}

func (x *explorer) replay(forced []int8, setup func(*Run)) *Failure {
	x.forced, x.tracing = forced, true
	if forced == nil {
		x.forced = []int8{}
	}
	err := x.play(setup)
	if err == nil {
		return nil
	}
	return &Failure{Err: err, Schedule: format(x.taken), Steps: x.trace}
}
