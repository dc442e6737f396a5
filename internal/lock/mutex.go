package lock

import "sync"

// A Mutex is a sync.Mutex with a rank. The zero one is a Leaf.
type Mutex struct {
	place
	mu sync.Mutex
}

// Lock waits for the lock and takes it.
func (m *Mutex) Lock() {
	m.wait(alone)
	m.mu.Lock()
	m.took(alone)
}

// TryLock takes the lock if nobody holds it, and reports whether it did.
func (m *Mutex) TryLock() bool {
	m.try(alone)
	if !m.mu.TryLock() {
		return false
	}
	m.took(alone)
	return true
}

// Unlock gives the lock back.
func (m *Mutex) Unlock() {
	m.gave(alone)
	m.mu.Unlock()
}

// An RWMutex is a sync.RWMutex with a rank. The zero one is a Leaf.
type RWMutex struct {
	place
	mu sync.RWMutex
}

// Lock waits for the lock and takes it for writing.
func (m *RWMutex) Lock() {
	m.wait(alone)
	m.mu.Lock()
	m.took(alone)
}

// Unlock gives back what Lock took.
func (m *RWMutex) Unlock() {
	m.gave(alone)
	m.mu.Unlock()
}

// RLock waits for the lock and takes it for reading.
func (m *RWMutex) RLock() {
	m.wait(shared)
	m.mu.RLock()
	m.took(shared)
}

// TryRLock takes the lock for reading if nobody holds it for writing, or waits to, and
// reports whether it did.
func (m *RWMutex) TryRLock() bool {
	m.try(shared)
	if !m.mu.TryRLock() {
		return false
	}
	m.took(shared)
	return true
}

// RUnlock gives back what RLock or TryRLock took.
func (m *RWMutex) RUnlock() {
	m.gave(shared)
	m.mu.RUnlock()
}

// mode is how a lock is taken.
type mode bool

const (
	alone  mode = false
	shared mode = true // with others that take it so
)
