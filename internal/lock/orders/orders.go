//go:build invariants

package orders

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/cupool/cupool/internal/lock"
)

// Options bound what is played.
type Options struct {
	Switches int // away from a goroutine that could go on, in one order
	Max      int // orders, 0: all
}

// Program is what is played from its start in each order.
type Program struct {
	Calls []func()     // each in a goroutine of its own, by one at a time
	Check func() error // called after they have ended
}

// ErrDeadlock: each goroutine that is left waits for a lock.
var ErrDeadlock = errors.New("deadlock")

// patience is how long a goroutine may be away from locks, as it waits for something else,
// before another one goes on, and lastPatience until it is taken for stuck.
const (
	patience     = 200 * time.Millisecond
	lastPatience = 10 * time.Second
)

var one sync.Mutex // held by Explore

// Explore plays the programs that setup makes, one goroutine at a time. Which one goes on
// is chosen anew before each lock that one of them waits for or tries; every choice within the
// options is made once (stateless search, Godefroid 1997, with a bound on switches, Musuvathi and
// Qadeer 2007). It ends with the first order that fails: a call panics, all wait, or Check
// returns an error. It returns how many orders were played.
func Explore(o Options, setup func() Program) (played int, err error) {
	one.Lock()
	defer one.Unlock()
	var path []choice
	for {
		r := &run{path: path, switches: o.Switches, arrived: make(chan *thread)}
		p := setup()
		err := r.play(p.Calls)
		if err == nil {
			err = p.Check()
		}
		played++
		if err != nil {
			return played, fmt.Errorf("%w\nin this order:\n%s", err, strings.Join(r.steps, "\n"))
		}
		path = r.path
		for len(path) > 0 && len(path[len(path)-1].others) == 0 {
			path = path[:len(path)-1]
		}
		if len(path) == 0 || played == o.Max {
			return played, nil
		}
		last := &path[len(path)-1]
		last.took, last.others = last.others[0], last.others[1:]
	}
}

// choice is the goroutine that went on at a point, and those that are to be tried there.
type choice struct {
	took   int
	others []int
}

type thread struct {
	number int
	step   lock.Step // before which it stands
	begun  bool
	parked bool
	ended  bool
	failed error
	resume chan struct{}
}

func (t *thread) ready() bool { return t.parked && (!t.begun || t.step.Ready()) }

// run is one order.
type run struct {
	threads  []*thread
	known    sync.Map // the threads by goroutine
	arrived  chan *thread
	path     []choice
	at       int // in path
	switches int // that are left
	steps    []string
}

// start adds a goroutine, which stands before its first step.
func (r *run) start(call func()) {
	t := &thread{number: len(r.threads), parked: true, resume: make(chan struct{})}
	r.threads = append(r.threads, t)
	go func() {
		<-t.resume
		self := lock.Self()
		r.known.Store(self, t)
		defer func() {
			if p := recover(); p != nil {
				var stack [8 << 10]byte
				t.failed = fmt.Errorf("goroutine %d: %v\n%s", t.number, p, stack[:runtime.Stack(stack[:], false)])
			}
			r.known.Delete(self)
			t.ended = true
			r.arrived <- t
		}()
		call()
	}()
}

// before is called by each goroutine before each step with a lock.
func (r *run) before(goroutine uintptr, s lock.Step) {
	if t, ok := r.known.Load(goroutine); ok {
		t := t.(*thread)
		t.step, t.begun = s, true
		r.arrived <- t
		<-t.resume
	}
}

func (r *run) play(calls []func()) error {
	for _, call := range calls {
		r.start(call)
	}
	lock.Hook(r.before)
	defer lock.Hook(nil)
	for now := -1; ; {
		next, err := r.next(now)
		if err != nil || next < 0 {
			return err
		}
		t := r.threads[next]
		what := "begins"
		if t.begun {
			what = t.step.String()
		}
		r.steps = append(r.steps, fmt.Sprintf("%d %s", next, what))
		t.parked = false
		t.resume <- struct{}{}
		if r.await(patience) {
			now = next
		} else {
			now = -1 // it waits for something other than a lock
		}
		for _, t := range r.threads {
			if t.failed != nil {
				return t.failed
			}
		}
	}
}

// await waits for a goroutine to stand before a step, or to end.
func (r *run) await(d time.Duration) bool {
	select {
	case t := <-r.arrived:
		t.parked = !t.ended
		return true
	case <-time.After(d):
		return false
	}
}

// next returns the goroutine that goes on, where now was the last one, or -1 when all have
// ended.
func (r *run) next(now int) (int, error) {
	for tries := 0; ; tries++ {
		var ready []int
		left := 0
		for i, t := range r.threads {
			if !t.ended {
				left++
			}
			if t.ready() {
				ready = append(ready, i)
			}
		}
		switch {
		case left == 0:
			return -1, nil
		case len(ready) > 0:
			return r.choose(now, ready), nil
		case tries > int(lastPatience/patience):
			return -1, r.deadlock()
		case r.parked() == left && tries > 1: // one that is not played may hold the lock
			return -1, r.deadlock()
		}
		r.await(patience)
	}
}

func (r *run) parked() (n int) {
	for _, t := range r.threads {
		if t.parked {
			n++
		}
	}
	return n
}

func (r *run) deadlock() error {
	err := ErrDeadlock
	for _, t := range r.threads {
		switch {
		case t.parked:
			err = fmt.Errorf("%w; %d %v", err, t.number, t.step)
		case !t.ended:
			err = fmt.Errorf("%w; %d waits for something else", err, t.number)
		}
	}
	return err
}

// choose returns what the path says or, beyond its end, the goroutine that went on last, if
// it can, and notes the others.
func (r *run) choose(now int, ready []int) int {
	goesOn := false
	took := ready[0]
	for _, i := range ready {
		if i == now {
			took, goesOn = i, true
		}
	}
	if r.at == len(r.path) {
		c := choice{took: took}
		for _, i := range ready {
			if i != took && (!goesOn || r.switches > 0) {
				c.others = append(c.others, i)
			}
		}
		r.path = append(r.path, c)
	} else if i := r.path[r.at].took; r.threads[i].ready() {
		took = i
	}
	r.at++
	if goesOn && took != now {
		r.switches--
	}
	return took
}
