// Package gate bounds what strangers may take of a listener before they have proven
// anything: how many connections they hold, for how long, and how much they send.
//
// Whoever connects waits at the gate until it is let in. When too many wait, the one
// that has waited longest is sent away: who has something to prove does so in a moment,
// and who has not makes room for the next.
package gate

import (
	"cmp"
	"container/list"
	"errors"
	"io"
	"sync"
	"syscall"
	"time"
)

const (
	// Waiting is how many connections wait at once.
	Waiting = 1024
	// Grace is how long a connection may wait before it is sent away for another one.
	// A listener takes no new one meanwhile.
	Grace = 50 * time.Millisecond
)

// A Gate is where the connections of a listener wait. All methods are safe from several
// goroutines.
type Gate struct {
	Room int // how many wait at once; 0: Waiting

	mu    sync.Mutex
	queue list.List // of *Guest; the one that has waited longest is first
}

// A Guest is a connection that has come to a Gate.
type Guest struct {
	gate  *Gate
	conn  io.Closer
	since time.Time
	at    *list.Element // nil: it does not wait
}

// Come has a connection wait. Where there is no room, it closes the connection that
// has waited longest, after its Grace. When stop is closed it does not wait for that.
func (g *Gate) Come(conn io.Closer, stop <-chan struct{}) *Guest {
	for rest := g.makeRoom(); rest > 0 && pause(rest, stop); rest = g.makeRoom() {
	}
	guest := &Guest{gate: g, conn: conn}
	guest.Wait()
	return guest
}

// makeRoom sends the first guest away where there is no room, or returns what that has
// left of its Grace.
func (g *Gate) makeRoom() (rest time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.queue.Len() < cmp.Or(g.Room, Waiting) {
		return 0
	}
	if rest = Grace - time.Since(g.first().since); rest <= 0 {
		g.sendAway(g.first())
	}
	return rest
}

// Thin sends away one half of those who wait. Accept calls it where the process or
// the system has no descriptors left.
func (g *Gate) Thin() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for range (g.queue.Len() + 1) / 2 {
		g.sendAway(g.first())
	}
}

func (g *Gate) first() *Guest { return g.queue.Front().Value.(*Guest) }

func (g *Gate) sendAway(x *Guest) {
	x.leave()
	_ = x.conn.Close() // who reads from it is told
}

// Wait has a connection wait again, as if it had just come.
func (x *Guest) Wait() {
	x.gate.mu.Lock()
	defer x.gate.mu.Unlock()
	x.leave()
	x.since, x.at = time.Now(), x.gate.queue.PushBack(x)
}

// Leave ends the wait of a connection that is let in, or that is closed.
func (x *Guest) Leave() {
	x.gate.mu.Lock()
	defer x.gate.mu.Unlock()
	x.leave()
}

func (x *Guest) leave() {
	if x.at != nil {
		x.gate.queue.Remove(x.at)
		x.at = nil
	}
}

// The time between two tries of Accept, as net/http has it.
const (
	firstPause = 5 * time.Millisecond
	lastPause  = time.Second
)

// Accept calls accept until that succeeds, or fails in a way that does not pass. It
// goes on, after a pause that grows, when descriptors or memory are short: failed is
// told why, and one half of those who wait is sent away. It returns what passes, too,
// when stop is closed.
func Accept[C any](g *Gate, stop <-chan struct{}, failed func(err error, pause time.Duration), accept func() (C, error)) (C, error) {
	for wait := firstPause; ; wait = min(2*wait, lastPause) {
		c, err := accept()
		if err == nil || !passes(err) {
			return c, err
		}
		g.Thin()
		failed(err, wait)
		if !pause(wait, stop) {
			return c, err
		}
	}
}

// passes reports whether another call may succeed.
func passes(err error) bool {
	var no syscall.Errno
	if !errors.As(err, &no) || no.Timeout() {
		return false
	}
	return no.Temporary() || no == syscall.ENOBUFS || no == syscall.ENOMEM
}

// pause waits, and reports whether stop was not closed meanwhile.
func pause(d time.Duration, stop <-chan struct{}) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-stop:
		return false
	}
}
