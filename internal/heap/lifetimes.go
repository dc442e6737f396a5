package heap

import "math/bits"

// A segment goes back to the device, and serves a request of its size, only while it
// is wholly free. One small block that lives long keeps a large segment from both, and
// a program of such blocks soon has one in each. A heap of segments is fragmented when
// it grows to more than a wastedFraction beyond the most that was ever in use. From
// then on it spares large segments: a block that is expected to live while the heap
// serves more than that lies in a segment of at most spareFactor times its size, or in
// one of the size that small blocks share. Where there is none, the heap grows, and
// idle segments go back for it (releaseIdle in the root package).
//
// That costs calls to the driver. Blocks that die soon do no harm wherever they lie,
// and go where they fit best.
const (
	fragmentedFrom = 256 << 20 // bytes; what a smaller heap wastes is little
	wastedFraction = 3
	spareFactor    = 2
)

// lifetimes is what a heap of segments knows about how long its large blocks live:
// by size class, how many are out and how many ever were.
type lifetimes struct {
	out    int64 // bytes of the blocks that are out
	most   int64 // of those at once when the heap grew, with what it grew by
	served int64 // of all that ever were out
	sizes  [bits.UintSize]struct{ out, served int64 }

	fragmented bool
}

// began counts a block that went out.
func (l *lifetimes) began(size int64) {
	l.sizes[bits.Len64(uint64(size))].out++
	l.out += size
	l.hits(size, 1)
}

// hits counts that a block went out and back n times.
func (l *lifetimes) hits(size, n int64) {
	l.sizes[bits.Len64(uint64(size))].served += n
	l.served += n * size
}

// ended counts a block that came back.
func (l *lifetimes) ended(size int64) {
	l.sizes[bits.Len64(uint64(size))].out--
	l.out -= size
}

// join adds what another heap knows, whose blocks become this one's.
func (l *lifetimes) join(o *lifetimes) {
	l.out += o.out
	l.served += o.served
	for i := range l.sizes {
		l.sizes[i].out += o.sizes[i].out
		l.sizes[i].served += o.sizes[i].served
	}
	*o = lifetimes{}
}

// grew looks at whether a heap is fragmented that grew by a segment of size bytes and
// holds so many of large segments.
func (l *lifetimes) grew(size, held int64) {
	l.most = max(l.most, l.out+size)
	if held > max(fragmentedFrom, l.most+l.most/wastedFraction) {
		l.fragmented = true
	}
}

// spares reports whether a request has to leave large segments alone. The bytes that
// are served while a block lives are, on average, those that are served for each block
// of its size times the number of these that are out, as in any queue.
func (l *lifetimes) spares(size int64) bool {
	c := &l.sizes[bits.Len64(uint64(size))]
	return l.fragmented && float64(l.served)*float64(c.out) > float64(l.most)*float64(c.served)
}
