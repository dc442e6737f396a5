package planner

import (
	"slices"

	"github.com/cupool/cupool"
)

// hold keeps the memory of a block from being used again: it knows the other
// streams that use the block.
type hold struct {
	streams []*cupool.Stream // the streams on which no event was recorded yet
	events  []mark
}

// mark is the point up to which a stream may use a block.
type mark struct {
	*cupool.Event
	s *cupool.Stream
}

func (k *hold) add(s *cupool.Stream) {
	if !slices.Contains(k.streams, s) {
		k.streams = append(slices.DeleteFunc(k.streams, (*cupool.Stream).Closed), s)
	}
}

// over reports whether all streams are done. A stream whose event cannot be
// recorded or queried is not done. An event of a stream that is captured would be
// the graph's, and nobody can ask for it: one is recorded after the capture.
func (k *hold) over() bool {
	k.streams = slices.DeleteFunc(k.streams, func(s *cupool.Stream) bool {
		if s.Closed() {
			return true // Close has waited for its work
		}
		if s.Captured() {
			return false
		}
		e, err := s.Record()
		if err != nil || s.Captured() {
			_ = e.Close()
			return false
		}
		k.events = append(k.events, mark{e, s})
		return true
	})
	k.events = slices.DeleteFunc(k.events, func(e mark) bool {
		done := e.s.Closed()
		if !done {
			done, _ = e.Done()
		}
		return done && e.Close() == nil
	})
	return len(k.streams) == 0 && len(k.events) == 0
}

// leave closes the events and returns the streams that may still use the block.
func (k *hold) leave() (users []*cupool.Stream) {
	users = k.streams
	for _, e := range k.events {
		users = append(users, e.s)
		_ = e.Close()
	}
	return users
}
