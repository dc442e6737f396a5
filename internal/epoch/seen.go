package epoch

import (
	"slices"

	"github.com/cupool/cupool/internal/lock"
)

// A Point is an epoch of a stream, to wait for or that is over.
type Point struct {
	Clock *Clock
	Epoch uint64
}

// Past is an epoch of a stream that is over for whatever comes later on another
// stream.
type Past struct {
	Stream, Epoch uint64 // the stream by its number, which no other stream ever has
}

// Seen is what the later work of a stream comes after. It is safe for use from
// several goroutines.
type Seen struct {
	mu     lock.Mutex
	bySlot []Past
}

// Now returns what the stream's work comes after at present, by slot.
func (s *Seen) Now() []Past {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.bySlot)
}

// Learn adds what an event proves to what the stream with the number own comes
// after: what the event's stream had seen, by slot, and the point in that stream,
// which has a slot, too. It returns what is new. at returns the number and the
// clock of the stream that has a slot by now.
func (s *Seen) Learn(own uint64, seen []Past, slot uint32, point Past, at func(slot uint32) (number uint64, k *Clock)) (news []Point) {
	s.mu.Lock()
	defer s.mu.Unlock()
	note := func(slot uint32, x Past) {
		for int(slot) >= len(s.bySlot) {
			s.bySlot = append(s.bySlot, Past{})
		}
		was := &s.bySlot[slot]
		if x.Stream == own || x.Stream < was.Stream || x.Stream == was.Stream && x.Epoch <= was.Epoch {
			return
		}
		*was = x
		if number, k := at(slot); number == x.Stream {
			news = append(news, Point{k, x.Epoch})
		}
	}
	for slot, x := range seen {
		note(uint32(slot), x)
	}
	note(slot, point)
	return news
}
