package replay

import (
	"sync"
	"time"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/simdev"
)

// pace is how long a piece of work takes while the program waits and gives the device no more.
const pace = 20 * time.Microsecond

// mostLag is more than any GPU is behind: each piece takes an event.
const mostLag = 1_000_000

// late is a device that is behind the program by so many pieces of work as it has events.
// Each is recorded after one of them.
type late struct {
	d      *simdev.Device
	events []cupool.EventHandle
	ends   chan struct{} // closed when it is to do no more by itself
	ended  sync.WaitGroup

	mu     sync.Mutex
	oldest int
	done   int  // of the oldest, how many were done while the program waited
	given  bool // a piece since the last look
}

// newLate returns one that, with waits, goes on while the program waits.
func newLate(d *simdev.Device, lag int, waits bool) (*late, error) {
	l := &late{d: d, events: make([]cupool.EventHandle, lag), ends: make(chan struct{})}
	for i := range l.events {
		var err error
		if l.events[i], err = d.NewEvent(); err != nil {
			return nil, err
		}
	}
	if waits {
		l.ended.Go(l.goOn)
	}
	return l, nil
}

// goOn does a piece of work whenever the program gave none for so long.
func (l *late) goOn() {
	t := time.NewTicker(pace)
	defer t.Stop()
	for {
		select {
		case <-l.ends:
			return
		case <-t.C:
			l.next()
		}
	}
}

func (l *late) next() {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.given:
		l.given = false
	case l.done < len(l.events):
		l.d.CompleteEvent(l.events[(l.oldest+l.done)%len(l.events)])
		l.done++
	default:
		l.d.CompleteAll() // the allocator's events behind the last piece, too
	}
}

// work gives a stream a piece of work and has the device do the oldest one, unless it is done.
func (l *late) work(s *cupool.Stream) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.given = true
	e := l.events[l.oldest]
	l.oldest = (l.oldest + 1) % len(l.events)
	if l.done > 0 {
		l.done--
	} else {
		l.d.CompleteEvent(e)
	}
	if err := l.d.Launch(s.Handle(), func() {}); err != nil {
		return err
	}
	return l.d.RecordEvent(e, s.Handle())
}

// close ends what newLate began.
func (l *late) close() {
	close(l.ends)
	l.ended.Wait()
}
