package history

import (
	"math"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/cupool/cupool/internal/lock"
)

// sampler says which allocations are samples.
type sampler struct {
	current atomic.Pointer[clock] // nil: off
}

// clock is the sampling of one history.
//
// A sample costs some microseconds, an allocation that is none 20 ns. So that
// samples take a small part of the time whatever the sizes are, there are some MaxRate
// a second: while there would be more, the mean distance doubles, and it halves again
// when there are few. Each sample has the weight of the mean that it was drawn with.
type clock struct {
	mean   int64         // bytes
	factor atomic.Uint32 // the mean distance is mean << factor

	mu    lock.Mutex
	begun time.Time // of the batch
	taken int       // samples in it
}

// MaxRate is how many samples a second are sought at most. Tests change it.
var MaxRate = 2048.0

const (
	batch     = 256 // samples between two looks at their rate: so many come before it is bounded
	maxFactor = 40
)

// Tests replace these.
var (
	now    = time.Now
	random = rand.ExpFloat64
)

// On reports whether the history is on.
func (s *sampler) On() bool { return s.current.Load() != nil }

// All reports whether every allocation and free is recorded.
func (s *sampler) All() bool {
	c := s.current.Load()
	return c != nil && c.mean == 1
}

// Distance is how far away the next sample is of those who share one, under a lock
// of theirs.
type Distance struct {
	of     *clock // that it was drawn by
	factor uint32
	left   float64 // bytes
}

// Sample returns the weight of an allocation of size bytes, or 0 where it is no
// sample.
func (s *sampler) Sample(d *Distance, size int64) float64 {
	if c := s.current.Load(); c != nil {
		return c.sample(d, size)
	}
	return 0
}

func (c *clock) sample(d *Distance, size int64) float64 {
	if c.mean == 1 {
		return 1
	}
	if d.of != c {
		c.draw(d)
	}
	if d.left -= float64(size); d.left > 0 {
		return 0
	}
	c.note(now())
	weight := c.weight(size, d.factor)
	c.draw(d)
	return weight
}

func (c *clock) draw(d *Distance) {
	d.of, d.factor = c, c.factor.Load()
	d.left = random() * c.distance(d.factor)
}

// Never is the factor of draws that end in no sample.
const Never = math.MaxUint8

// Draw returns how many allocations of size bytes are no samples before one is, and
// the factor by which Drawn finds its weight; Never where that is further away
// than can be counted. ok is false where every allocation is recorded.
func (s *sampler) Draw(size int64) (free uint32, factor uint8, ok bool) {
	c := s.current.Load()
	switch {
	case c == nil:
		return math.MaxUint32, Never, true
	case c.mean == 1:
		return 0, 0, false
	}
	f := c.factor.Load()
	n := random() * c.distance(f) / float64(size)
	if n >= math.MaxUint32 {
		return math.MaxUint32, Never, true
	}
	return uint32(n), uint8(f), true
}

// Drawn returns the weight of the allocation of size bytes that a Draw ended in, or
// 0 where it is no sample.
func (s *sampler) Drawn(size int64, factor uint8) float64 {
	c := s.current.Load()
	switch {
	case c == nil:
		return 0
	case c.mean == 1:
		return 1
	case factor == Never:
		return 0
	}
	c.note(now())
	return c.weight(size, uint32(factor))
}

// Freed returns the weight of the free of a block that was allocated with a weight, 0
// for none, or 0 where the free is not recorded.
func (s *sampler) Freed(weight float64) float64 {
	switch c := s.current.Load(); {
	case c == nil:
		return 0
	case c.mean == 1:
		return 1
	}
	return weight
}

// distance returns the mean distance between samples in bytes.
func (c *clock) distance(factor uint32) float64 { return float64(c.mean) * float64(uint64(1)<<factor) }

// weight returns how many allocations a sample stands for.
func (c *clock) weight(size int64, factor uint32) float64 {
	return -1 / math.Expm1(-float64(size)/c.distance(factor))
}

// note counts a sample and keeps the rate.
func (c *clock) note(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.taken++
	f, took := c.factor.Load(), now.Sub(c.begun)
	batchTime := time.Duration(batch / MaxRate * float64(time.Second))
	switch {
	case took > 4*batchTime: // few, for long
		for ; f > 0 && took > 2*batchTime; took /= 2 {
			f--
		}
	case c.taken < batch:
		return
	case took < batchTime:
		f = min(f+1, maxFactor)
	}
	c.factor.Store(f)
	c.begun, c.taken = now, 0
}
