package plan

import (
	"cmp"
	"math/bits"
	"slices"
)

// toSteps returns the intervals with their times as steps, and the number
// of steps. A step is a time at which something is born after something
// died; blocks overlap in steps exactly when they do in time, and there are
// far fewer of them.
func toSteps(blocks []Interval) ([]Interval, int32) {
	type event struct {
		at    int32
		birth bool
		id    int32
	}
	events := make([]event, 0, 2*len(blocks))
	for i, b := range blocks {
		events = append(events, event{b.Birth, true, int32(i)}, event{b.Death, false, int32(i)})
	}
	slices.SortFunc(events, func(a, b event) int {
		if a.at == b.at && a.birth != b.birth { // deaths come before births
			if b.birth {
				return -1
			}
			return 1
		}
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.id, b.id))
	})
	out := slices.Clone(blocks)
	step, died := int32(0), false
	for _, e := range events {
		if !e.birth {
			out[e.id].Death, died = step+1, true
			continue
		}
		if died {
			step, died = step+1, false
		}
		out[e.id].Birth = step
	}
	return out, step + 1
}

// maxima answers what the most of a range of steps is: a sparse table, by
// the logarithm of a range's length and its beginning.
type maxima [][]int64

// loads returns the bytes that live at each step.
func loads(blocks []Interval, steps int32) maxima {
	at := make([]int64, steps+1)
	for _, b := range blocks {
		at[b.Birth] += b.Size
		at[b.Death] -= b.Size
	}
	for i := 1; i < len(at); i++ {
		at[i] += at[i-1]
	}
	m := maxima{at[:steps]}
	for half := 1; 2*half <= int(steps); half *= 2 {
		last := m[len(m)-1]
		next := make([]int64, int(steps)-2*half+1)
		for i := range next {
			next[i] = max(last[i], last[i+half])
		}
		m = append(m, next)
	}
	return m
}

// max returns the most of the steps from b up to d, b < d.
func (m maxima) max(b, d int32) int64 {
	k := bits.Len32(uint32(d-b)) - 1
	return max(m[k][b], m[k][d-1<<k])
}

// Bound returns the most bytes that live at once.
func Bound(blocks []Interval) int64 {
	if len(blocks) == 0 {
		return 0
	}
	steps, count := toSteps(blocks)
	return loads(steps, count).max(0, count)
}
