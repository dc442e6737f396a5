package debug

import (
	"errors"
	"fmt"
	"time"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/poolaccess"
	"github.com/cupool/cupool/snapshot"
)

// A source is what the page shows: an allocator, or a snapshot of one.
type source interface {
	info() info
	stats() cupool.Stats
	settings() []cupool.Setting    // none of a snapshot
	snapshot() snapshot.Snapshot   // of the pool alone
	whole() snapshot.Snapshot      // with the private pools of an allocator
	failure(which string) *failure // the first or the last allocation that failed; nil: none
	events(after uint64) []snapshot.Event
	series(now time.Time) *series
}

// info is what the list of pools says of one.
type info struct {
	ID      string `json:"id"`
	Name    string `json:"name"`
	Private bool   `json:"private"` // a private pool of the last allocator before it
	Device  string `json:"device"`
	Live    bool   `json:"live"`    // no snapshot: it goes on, and can be trimmed
	History bool   `json:"history"` // events are recorded
	Record  bool   `json:"record"`  // history can be switched
}

// A failure is an allocation that failed, and the moment at which it did.
type failure struct {
	Time     time.Time          `json:"time"`
	Text     string             `json:"text"`
	Why      []string           `json:"why"`    // the cause, and who held most
	Asked    int64              `json:"asked"`  // bytes
	Moment   bool               `json:"moment"` // there is a snapshot of it
	First    *failure           `json:"first"`  // the first one, where that is another
	snapshot *snapshot.Snapshot // nil: failures before were too near
}

// The moments that can be looked at beside the present one.
const (
	lastOOM  = "oom"
	firstOOM = "first-oom"
)

// live is an allocator.
type live struct {
	*cupool.Pool
	in   info
	ring *ring
}

func isClosed(c *cupool.Pool) bool { return c.Driver() == nil || errors.Is(c.Err(), cupool.ErrClosed) }

func (l *live) info() info {
	in := l.in
	in.Device, in.Live, in.Record, in.History = l.Driver().Name(), true, true, l.Config().History != nil
	return in
}

func (l *live) stats() cupool.Stats         { return l.Stats() }
func (l *live) settings() []cupool.Setting  { return l.Settings() }
func (l *live) snapshot() snapshot.Snapshot { return l.ring.own.take(poolaccess.Of(l.Pool).Snapshot) }
func (l *live) whole() snapshot.Snapshot    { return l.ring.whole.take(l.Snapshot) }

func (l *live) series(now time.Time) *series { return l.ring.sample(now, l.Stats) }

func (l *live) failure(which string) *failure {
	first, last := l.FirstOOM(), l.LastOOM()
	switch {
	case last == nil:
		return nil
	case which == firstOOM:
		return failureOf(first)
	}
	f := failureOf(last)
	if first != last {
		f.First = failureOf(first)
	}
	return f
}

func failureOf(e *cupool.OOMError) *failure {
	if e == nil {
		return nil
	}
	return &failure{Time: e.Time, Text: e.Error(), Why: e.Why(), Asked: e.Requested, Moment: e.Snapshot != nil, snapshot: e.Snapshot}
}

// events returns those of this pool alone.
func (l *live) events(after uint64) []snapshot.Event { return poolaccess.Of(l.Pool).Events(after) }

// live returns the sources of an allocator and of its private pools, or of a private pool.
func (s *server) live(e entry, taken map[string]int) (all []source) {
	name := e.name
	if name == "" {
		name = "allocator"
	}
	pools := []*cupool.Pool{e.caching}
	if e.caching.Name() == "" { // else it is a private pool, whose Pools are those of its allocator
		pools = append(pools, e.caching.Pools()...)
	}
	for i, c := range pools {
		id := name
		if i > 0 {
			id = name + "/" + c.Name()
		}
		id = unique(id, taken)
		in := info{ID: id, Name: id, Private: i > 0}
		if i > 0 {
			in.Name = c.Name()
		} else {
			name = id
		}
		all = append(all, &live{Pool: c, in: in, ring: s.rings.of(c)})
	}
	return all
}

// unique adds a number to an ID that is taken.
func unique(id string, taken map[string]int) string {
	for {
		if taken[id]++; taken[id] == 1 {
			return id
		}
		id = fmt.Sprintf("%s (%d)", id, taken[id])
	}
}
