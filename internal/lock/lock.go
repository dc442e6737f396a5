// Package lock has a mutex for critical sections of a hundred nanoseconds,
// most of which nobody else wants to enter. sync.Mutex takes an atomic
// exchange to be given back, since there may be sleepers to wake; this one is
// given back by a plain store, which on amd64 is half of the price of the
// pair. So nobody is woken: who has to wait looks again and again, and sleeps by
// the computer's own clock in between, not by that of a testing/synctest bubble.
package lock

import (
	"runtime"
	"sync"
	"time"

	"github.com/cupool/cupool/internal/realtime"
	"github.com/cupool/cupool/internal/relaxed"
)

const (
	// looks is how often a waiter looks before it stands in line: for as long
	// as the usual holder takes, so that it stays on its processor.
	looks = 256
	// tries is how often the first in line lets other goroutines run before
	// it sleeps.
	tries = 256
	// A waiter sleeps from shortest to longest, while a holder waits for the
	// device, say: it loses no more than as much as it has waited already,
	// and no more than longest.
	shortest = 2 * time.Microsecond
	longest  = 100 * time.Microsecond
)

// Mutex is a mutual exclusion lock. The zero value is unlocked. It must not
// be copied after first use.
type Mutex struct {
	held  relaxed.Uint64
	queue sync.Mutex // of those who wait; the first one looks
}

// Lock locks m and waits until it can.
func (m *Mutex) Lock() {
	if !m.held.CompareAndSwap(0, 1) {
		m.wait()
	}
}

// Unlock unlocks m, which is locked.
func (m *Mutex) Unlock() { m.held.SetOwned(0) }

func (m *Mutex) wait() {
	for range looks {
		if m.held.Load() == 0 && m.held.CompareAndSwap(0, 1) {
			return
		}
	}
	m.queue.Lock()
	defer m.queue.Unlock()
	for range tries {
		if m.held.CompareAndSwap(0, 1) {
			return
		}
		runtime.Gosched()
	}
	for pause := shortest; !m.held.CompareAndSwap(0, 1); pause = min(2*pause, longest) {
		realtime.Sleep(pause)
		runtime.Gosched() // the holder may stand in line behind this goroutine
	}
}
