package conformance

import (
	"math"
	"math/bits"
)

// modelLives is what the model knows about how long the large blocks of a stream
// live, as heap.lifetimes has it.
type modelLives struct {
	live, most, served int64 // bytes
	sizes              [64]struct{ live, served int64 }
	fragmented         bool
}

func (m *model) livesOf(stream int) *modelLives {
	if m.lives[stream] == nil {
		m.lives[stream] = &modelLives{}
	}
	return m.lives[stream]
}

// count counts a block that goes out, or comes back where n is -1.
func (l *modelLives) count(size, n int64) {
	c := &l.sizes[bits.Len64(uint64(size))]
	c.live += n
	l.live += n * size
	if n > 0 {
		c.served++
		l.served += size
	}
}

func (l *modelLives) join(o *modelLives) {
	l.live += o.live
	l.served += o.served
	for i, c := range o.sizes {
		l.sizes[i].live += c.live
		l.sizes[i].served += c.served
	}
}

// noteSegment notes that a stream's memory grew by a large segment.
func (m *model) noteSegment(size int64, stream int) {
	held := int64(0)
	for _, seg := range m.segs {
		if seg.stream == stream && seg.large == 1 {
			held += seg.size
		}
	}
	l := m.livesOf(stream)
	l.most = max(l.most, l.live+size)
	l.fragmented = l.fragmented || held > max(256*mib, l.most+l.most/3)
}

// largest returns the largest segment that a request may be served from.
func (m *model) largest(rounded int64, stream int) int64 {
	l := m.livesOf(stream)
	c := l.sizes[bits.Len64(uint64(rounded))]
	if rounded > m.cfg.SmallLimit && l.fragmented && float64(c.live)/float64(max(c.served, 1))*float64(l.served) > float64(l.most) {
		return max(2*rounded, m.cfg.LargeSegment)
	}
	return math.MaxInt64
}
