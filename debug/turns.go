package debug

import (
	"sync"

	"github.com/cupool/cupool/snapshot"
)

// turns has snapshots made one at a time. Who asks before a turn begins gets its
// snapshot, which nobody writes to: however many ask, the allocator stops for one
// after the other, and there are few of them in memory.
type turns struct {
	one  sync.Mutex // held by the turn
	mu   sync.Mutex
	next *turn // that has not begun
}

type turn struct {
	once sync.Once
	made snapshot.Snapshot
}

// take returns a snapshot that is made after the call.
func (t *turns) take(make func() snapshot.Snapshot) snapshot.Snapshot {
	x := t.wait()
	x.once.Do(func() {
		t.one.Lock()
		defer t.one.Unlock()
		t.begin()
		x.made = make()
	})
	return x.made
}

// begin ends the waiting for a turn: who calls from now on waits for the next one.
func (t *turns) begin() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.next = nil
}

func (t *turns) wait() *turn {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.next == nil {
		t.next = new(turn)
	}
	return t.next
}
