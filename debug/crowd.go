package debug

import (
	"net/http"
	"sync"
	"time"

	"github.com/cupool/cupool/internal/gate"
)

const (
	// maxRequests are under way at once, those that wait included.
	maxRequests = 256
	// maxDear are the answers that are under way at once for which a snapshot is gone through:
	// they take the time and the memory that this takes.
	maxDear = 8
	// maxInLine requests wait for one of them to end.
	maxInLine = 128
	// maxURL is the length of what is asked for, in bytes.
	maxURL = 4 << 10
)

// A crowd bounds how many answers are under way. While somebody waits, an answer has only
// gate.Patience from its begin on: who does not read it holds up no one for longer.
// All methods are safe from several goroutines.
type crowd struct {
	places   chan struct{} // has an element for each answer that is under way
	line     int           // how many may wait
	patience time.Duration

	mu      sync.Mutex
	under   map[*answer]struct{}
	waiting int
}

// An answer is one that is under way.
type answer struct {
	to    *http.ResponseController
	began time.Time
}

// within has the answer end so long after its begin.
func (a *answer) within(d time.Duration) { _ = a.to.SetWriteDeadline(a.began.Add(d)) } // a test's writer has none

func newCrowd(room, line int) *crowd {
	return &crowd{places: make(chan struct{}, room), line: line, patience: gate.Patience, under: map[*answer]struct{}{}}
}

// enter waits until there is room for an answer, which leave ends. It refuses one where too
// many wait, and after gate.Answer.
func (c *crowd) enter(w http.ResponseWriter, r *http.Request) (leave func(), err error) {
	if !c.wait(r) {
		w.Header().Set("Retry-After", "1")
		w.Header().Set("Connection", "close")
		return nil, refuse(http.StatusServiceUnavailable, "too many answers are under way: try again later")
	}
	a := &answer{to: http.NewResponseController(w), began: time.Now()}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.under[a] = struct{}{}
	if a.within(gate.Answer); c.waiting > 0 {
		a.within(c.patience)
	}
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.under, a)
		<-c.places
	}, nil
}

// wait takes a place.
func (c *crowd) wait(r *http.Request) bool {
	select {
	case c.places <- struct{}{}:
		return true
	default:
	}
	if !c.join() {
		return false
	}
	defer c.quit()
	late := time.NewTimer(gate.Answer)
	defer late.Stop()
	select {
	case c.places <- struct{}{}:
		return true
	case <-late.C:
	case <-r.Context().Done(): // the reader is gone
	}
	return false
}

// join begins to wait, where that is allowed.
func (c *crowd) join() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.waiting == c.line {
		return false
	}
	c.waiting++
	for a := range c.under {
		a.within(c.patience)
	}
	return true
}

func (c *crowd) quit() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waiting--
}
