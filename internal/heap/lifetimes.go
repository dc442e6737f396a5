package heap

import "math/bits"

// A segment goes back to the device, and serves a request of its size, only while it
// is wholly free. One small block that lives long keeps a large segment from both, and
// a program of such blocks soon has one in each. A heap of segments is fragmented when
// it grows to more than a wastedFraction beyond the most that was ever in use. From
// then on it spares large segments: a block that is expected to live while the heap
// serves longLived times that lies in a segment of at most spareFactor times its size,
// or in one of the size that small blocks share. Where there is none, the heap grows,
// and idle segments go back for it (releaseIdle in the root package).
//
// That costs calls to the driver. Blocks that die soon do no harm wherever they lie,
// and go where they fit best.
const (
	wastedFraction = 2
	longLived      = 2
	spareFactor    = 3
)

// lifetimes is what a heap of segments knows about how long its large blocks live. Its
// clock is what it served.
type lifetimes struct {
	out    int64 // bytes of the blocks that are out
	most   int64 // of those at once when the heap grew, with what it grew by
	served int64 // of all that ever were out
	sizes  [bits.UintSize]lives

	fragmented bool
}

// lives are those of the blocks of a size class.
type lives struct {
	out, served int64   // blocks that are out, and that ever were
	lived       float64 // when blocks came back, less when blocks went out
}

// until returns for how long blocks of the class were out up to a time, all together.
func (c *lives) until(now int64) float64 { return c.lived + float64(c.out)*float64(now) }

// began counts a block that went out.
func (l *lifetimes) began(size int64) {
	c := &l.sizes[bits.Len64(uint64(size))]
	c.out++
	c.lived -= float64(l.served)
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
	c := &l.sizes[bits.Len64(uint64(size))]
	c.out--
	c.lived += float64(l.served)
	l.out -= size
}

// join adds what another heap knows, whose blocks become this one's.
func (l *lifetimes) join(o *lifetimes) {
	now := l.served + o.served
	for i := range l.sizes {
		a, b := &l.sizes[i], &o.sizes[i]
		lived := a.until(l.served) + b.until(o.served)
		a.out += b.out
		a.served += b.served
		a.lived = lived - float64(a.out)*float64(now)
	}
	l.out += o.out
	l.served = now
	*o = lifetimes{}
}

// grew looks at whether a heap is fragmented that grew by a segment of size bytes and
// holds so many of large segments.
func (l *lifetimes) grew(size, held int64) {
	l.most = max(l.most, l.out+size)
	if held > l.most+l.most/wastedFraction {
		l.fragmented = true
	}
}

// spares reports whether a request has to leave large segments alone, as blocks of its
// size live long on average. Those that are out count with how long they have been: of a
// size that is rare, none that just went out is taken for one that stays.
func (l *lifetimes) spares(size int64) bool {
	c := &l.sizes[bits.Len64(uint64(size))]
	return l.fragmented && c.until(l.served) > longLived*float64(l.most)*float64(c.served)
}
