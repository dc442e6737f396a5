//go:build invariants

package lock

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
)

// Invariants says whether this build checks the order of locks, and the allocator's other rules
// after every change of its books (-tags invariants).
const Invariants = true

// place is where a lock stands in the order.
type place struct {
	rank    Rank
	number  uint64
	held    atomic.Bool  // alone
	readers atomic.Int32 // that hold it shared
}

// Init sets the lock's rank, and its number within the rank.
func (p *place) Init(r Rank, number uint64) { p.rank, p.number = r, number }

func (p *place) String() string { return fmt.Sprintf("%v %d", p.rank, p.number) }

// holder is a goroutine with the locks that it holds. A later one may be known by the same
// number: the mutex orders the two.
type holder struct {
	mu    sync.Mutex
	holds []*place
}

// holders has them by what self returns.
var holders sync.Map

func me() *holder {
	g := self()
	h, ok := holders.Load(g)
	if !ok {
		h, _ = holders.LoadOrStore(g, new(holder))
	}
	return h.(*holder)
}

// notAfter returns a lock that the goroutine holds and that p may not be taken after, or nil.
func (g *holder) notAfter(p *place) *place {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, h := range g.holds {
		if p.rank < h.rank || p.rank == h.rank && p.number <= h.number {
			return h
		}
	}
	return nil
}

func (g *holder) add(p *place) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.holds = append(g.holds, p)
}

// remove reports whether the goroutine held the lock.
func (g *holder) remove(p *place) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	i := slices.Index(g.holds, p)
	if i >= 0 {
		g.holds = slices.Delete(g.holds, i, i+1)
	}
	return i >= 0
}

// wait is called before the lock is waited for.
func (p *place) wait(m mode) {
	if h := me().notAfter(p); h != nil {
		panic(fmt.Sprintf("lock: %v is taken after %v", p, h))
	}
	call(Step{at: p, mode: m})
}

// try is called before the lock is tried.
func (p *place) try(m mode) { call(Step{at: p, mode: m, tries: true}) }

// took is called when the goroutine has the lock.
func (p *place) took(m mode) {
	me().add(p)
	if m == shared {
		p.readers.Add(1)
	} else {
		p.held.Store(true)
	}
}

// gave is called before the lock is given back.
func (p *place) gave(m mode) {
	if !me().remove(p) {
		panic(fmt.Sprintf("lock: %v is given back by a goroutine that does not hold it", p))
	}
	if m == shared {
		p.readers.Add(-1)
	} else {
		p.held.Store(false)
	}
}

// A Step is what a goroutine is about to do with a lock.
type Step struct {
	at    *place
	mode  mode
	tries bool
}

// Ready reports whether the goroutine would not have to wait now.
func (s Step) Ready() bool {
	return s.tries || !s.at.held.Load() && (s.mode == shared || s.at.readers.Load() == 0)
}

// String says what the step is.
func (s Step) String() string {
	what := "locks"
	switch {
	case s.tries:
		what = "tries"
	case s.mode == shared:
		what = "shares"
	}
	return fmt.Sprintf("%s %v", what, s.at)
}

var hook atomic.Pointer[func(goroutine uintptr, s Step)]

// Hook has a function called in each goroutine before each step, until it is nil.
func Hook(f func(goroutine uintptr, s Step)) {
	if f == nil {
		hook.Store(nil)
	} else {
		hook.Store(&f)
	}
}

func call(s Step) {
	if f := hook.Load(); f != nil {
		(*f)(self(), s)
	}
}

// Self returns what Hook's function knows the calling goroutine by.
func Self() uintptr { return self() }
