package replay

import (
	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/simdev"
)

// late is a device that is behind the program by so many pieces of work as it has events.
// Each is recorded after one of them.
type late struct {
	d      *simdev.Device
	events []cupool.EventHandle
	oldest int
}

func newLate(d *simdev.Device, lag int) (*late, error) {
	l := &late{d: d, events: make([]cupool.EventHandle, lag)}
	for i := range l.events {
		var err error
		if l.events[i], err = d.NewEvent(); err != nil {
			return nil, err
		}
	}
	return l, nil
}

// work gives a stream a piece of work and has the device do the oldest one.
func (l *late) work(s *cupool.Stream) error {
	e := l.events[l.oldest]
	l.oldest = (l.oldest + 1) % len(l.events)
	l.d.CompleteEvent(e)
	if err := l.d.Launch(s.Handle(), func() {}); err != nil {
		return err
	}
	return l.d.RecordEvent(e, s.Handle())
}
