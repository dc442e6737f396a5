// Package lock has the allocator's locks.
package lock

import "context"

// A Chan is a mutex that a goroutine can stop waiting for. NewChan makes one.
type Chan struct {
	held chan struct{} // full while the lock is held
}

// NewChan returns a lock that nobody holds.
func NewChan() Chan { return Chan{make(chan struct{}, 1)} }

// Lock waits for the lock and takes it.
func (l *Chan) Lock() { l.held <- struct{}{} }

// TryLock takes the lock if nobody holds it, and reports whether it did.
func (l *Chan) TryLock() bool {
	select {
	case l.held <- struct{}{}:
		return true
	default:
		return false
	}
}

// LockUntil is Lock that gives up when ctx is done. It reports whether it took the lock,
// which it does whatever ctx says if nobody holds it.
func (l *Chan) LockUntil(ctx context.Context) bool {
	if l.TryLock() {
		return true
	}
	select {
	case l.held <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

// Unlock gives the lock back.
func (l *Chan) Unlock() { <-l.held }
