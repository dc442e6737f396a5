package lock

import "context"

// A Chan is a mutex that a goroutine can stop waiting for. It is a Leaf until Init.
type Chan struct {
	place
	held chan struct{} // full while the lock is held
}

// Init sets up a lock that nobody holds.
func (l *Chan) Init(r Rank, number uint64) {
	l.place.Init(r, number)
	l.held = make(chan struct{}, 1)
}

// Lock waits for the lock and takes it.
func (l *Chan) Lock() {
	l.wait(alone)
	l.held <- struct{}{}
	l.took(alone)
}

// TryLock takes the lock if nobody holds it, and reports whether it did.
func (l *Chan) TryLock() bool {
	l.try(alone)
	select {
	case l.held <- struct{}{}:
		l.took(alone)
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
	l.wait(alone)
	select {
	case l.held <- struct{}{}:
		l.took(alone)
		return true
	case <-ctx.Done():
		return false
	}
}

// Unlock gives the lock back.
func (l *Chan) Unlock() {
	l.gave(alone)
	<-l.held
}
