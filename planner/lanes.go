package planner

import (
	"slices"

	"github.com/cupool/cupool"
)

// lanes are the lanes of a Planner. A set of lanes does not change: a change makes
// another set.
type lanes struct {
	list     []*lane // by maker
	byStream map[*cupool.Stream]*lane
}

// of returns the lane of a stream, or nil.
func (ls *lanes) of(s *cupool.Stream) *lane {
	if len(ls.list) > 0 && ls.list[0].s == s {
		return ls.list[0]
	}
	return ls.byStream[s]
}

// by returns the lane whose arena made a block, or nil.
func (ls *lanes) by(maker uint32) *lane {
	if len(ls.list) > 0 && ls.list[0].maker() == maker {
		return ls.list[0]
	}
	i, ok := slices.BinarySearchFunc(ls.list, maker, func(l *lane, maker uint32) int { return int(int64(l.maker()) - int64(maker)) })
	if !ok {
		return nil
	}
	return ls.list[i]
}

// at returns the lane in whose arena an address lies, or nil.
func (ls *lanes) at(p cupool.Ptr) *lane {
	for _, l := range ls.list {
		if l.arena.holds(p) {
			return l
		}
	}
	return nil
}

// isRecording reports whether any lane is.
func (ls *lanes) isRecording() bool {
	return slices.ContainsFunc(ls.list, func(l *lane) bool { return l.recording.Load() })
}

// newLanes returns the set of lanes, which were made in this order.
func newLanes(list []*lane) *lanes {
	ls := &lanes{list: list, byStream: make(map[*cupool.Stream]*lane, len(list))}
	for _, l := range list {
		for _, s := range l.streams {
			ls.byStream[s] = l
		}
	}
	return ls
}
