// Package interleave runs two to four goroutines in every order in which their
// steps can follow each other, and says which order breaks them. A step is a load,
// a store or a compare-and-swap of one of the package's words, or the locking of one
// of its mutexes; what lies between two steps runs alone. It is to this program what
// loom is to Rust's.
//
// The words behave as sync/atomic's do on any processor, except for those stores
// that Delay: such a store goes to the goroutine's store buffer, and from there to
// memory at any later moment, in order, as plain stores do on amd64 (Owens, Sarkar
// and Sewell, "A Better x86 Memory Model: x86-TSO", 2009). The goroutine itself sees
// it at once. Atomic stores, other read-modify-writes and mutexes empty the buffer
// first, and Barrier empties those of others.
//
// Explore is stateless model checking (Godefroid, "Model Checking for Programming
// Languages using VeriSoft", 1997): each schedule begins with a fresh program, made
// by setup, and is played from its start. Orders that differ only in how independent
// steps follow each other are tried once, by dynamic partial-order reduction
// (Flanagan and Godefroid, 2005) with sleep sets (Godefroid, 1996). The steps of a
// store buffer are those of an actor of its own, as Zhang, Kusano and Wang do it
// ("Dynamic Partial Order Reduction for Relaxed Memory Models", 2015). Two steps
// depend on each other when they are at one word and one of them writes.
//
// Goroutines are coroutines (iter.Pull), so that a step costs some hundred
// nanoseconds at most. They are to do the same in every run but for the values that
// they read: no clock, no random numbers, no loops that wait for another goroutine
// other than by AwaitZero.
package interleave

import (
	"errors"
	"fmt"
	"strings"
	"sync"
)

// Options says how much is tried.
type Options struct {
	// Preemptions, if it is not 0, tries only schedules that leave a goroutine which
	// could go on at most so often, and no more stores that come late than that. Each
	// order of these is played, without a reduction.
	Preemptions int
	// Max ends the search after so many schedules. 0: 1 << 20.
	Max int

	every bool // tries every order, for tests of the reduction
}

// Result is what Explore found.
type Result struct {
	Schedules int      // that were played to their end
	Redundant int      // that turned out to be as one before
	Steps     int      // of all schedules
	Complete  bool     // there is no other schedule
	Failure   *Failure // nil: none failed
}

// String sums the search up in a line.
func (r Result) String() string {
	s := fmt.Sprintf("%d schedules (%d more were redundant), %d steps", r.Schedules, r.Redundant, r.Steps)
	if !r.Complete {
		s += ", not all"
	}
	return s
}

// Failure is a schedule that broke the program.
type Failure struct {
	Err      error
	Schedule string   // for Replay
	Steps    []string // who did what where
}

// Error says what broke, and by which steps.
func (f *Failure) Error() string {
	return fmt.Sprintf("%v\nin the schedule %s:\n%s", f.Err, f.Schedule, strings.Join(f.Steps, "\n"))
}

func (f *Failure) Unwrap() error { return f.Err }

// ErrDeadlock: each goroutine that is left waits.
var ErrDeadlock = errors.New("each goroutine waits for another one")

// ErrNotRepeatable: the goroutines could do something else than they could when the
// same schedule was played before.
var ErrNotRepeatable = errors.New("the program does not do the same in the same schedule")

// Run is a program in one schedule.
type Run struct{ x *explorer }

// Go adds a goroutine. It stays on a processor, which others may use too; only one
// goroutine at a time is pinned to it. A goroutine that panics fails the schedule.
func (r *Run) Go(processor int, f func()) { r.x.add(processor, f) }

// Finally has check called after all goroutines have ended. Its error fails the
// schedule.
func (r *Run) Finally(check func() error) { r.x.check = check }

// RefuseBarrier has Barrier fail after it worked so many times.
func (r *Run) RefuseBarrier(after int) { r.x.barriers, r.x.refuses = after, true }

// one is held by the exploration that runs.
var one sync.Mutex

// Explore plays the program that setup makes in all schedules, until one fails.
// setup and what it gives to Finally run outside of the schedule.
func Explore(o Options, setup func(*Run)) (r Result) {
	one.Lock()
	defer one.Unlock()
	if o.Max == 0 {
		o.Max = 1 << 20
	}
	x := &explorer{options: o}
	for {
		if r.Schedules+r.Redundant == o.Max {
			return r
		}
		err := x.play(setup)
		r.Steps += x.depth
		if x.coasting {
			r.Redundant++
		} else {
			r.Schedules++
		}
		switch {
		case err != nil:
			r.Failure = x.explain(err, setup)
			return r
		case x.restart: // what depends on what is known from now on
			r, x = Result{}, &explorer{options: o, drains: true}
		case !x.backtrack():
			r.Complete = true
			return r
		}
	}
}

// Replay plays the program in one schedule, as a Failure names it, and returns how
// it failed, or nil. A schedule that ends early goes on in any order.
func Replay(schedule string, setup func(*Run)) *Failure {
	one.Lock()
	defer one.Unlock()
	x := &explorer{}
	forced, err := parse(schedule)
	if err != nil {
		return &Failure{Err: err, Schedule: schedule}
	}
	return x.replay(forced, setup)
}

// Names of actors: a goroutine is a small letter, its store buffer the large one.
func name(a int) byte {
	if a >= maxThreads {
		return byte('A' + a - maxThreads)
	}
	return byte('a' + a)
}

// format writes a schedule: the actors in their order, with how many steps each
// takes in a row.
func format(actors []int8) string {
	var s strings.Builder
	for i := 0; i < len(actors); {
		n := i
		for n < len(actors) && actors[n] == actors[i] {
			n++
		}
		s.WriteByte(name(int(actors[i])))
		if n-i > 1 {
			fmt.Fprint(&s, n-i)
		}
		i = n
	}
	return s.String()
}

// parse reads what format wrote.
func parse(s string) (actors []int8, err error) {
	for i := 0; i < len(s); {
		a := -1
		switch c := s[i]; {
		case c >= 'a' && c < 'a'+maxThreads:
			a = int(c - 'a')
		case c >= 'A' && c < 'A'+maxThreads:
			a = int(c-'A') + maxThreads
		default:
			return nil, fmt.Errorf("no schedule: %q at %d", c, i)
		}
		i++
		n := 0
		for ; i < len(s) && s[i] >= '0' && s[i] <= '9'; i++ {
			if n = 10*n + int(s[i]-'0'); n > 1<<20 {
				return nil, fmt.Errorf("no schedule: too many steps before %d", i)
			}
		}
		for range max(n, 1) {
			actors = append(actors, int8(a))
		}
	}
	return actors, nil
}
