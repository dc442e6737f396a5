package plan

import (
	"cmp"
	"math"
	"math/bits"
	"slices"
)

// lane is one order of placing, as it learns.
type lane struct {
	ids    []int32   // the blocks in order
	key    []float64 // by block, what they are ordered by
	sorted bool      // ids is in the order of key
}

// jump is what the key of a block that squeaks is multiplied with. A small
// step keeps most of a good order.
const jump = 0.9

// A rule compares two blocks by what is known of them.
type rule func(a, b *traits) int

// traits of a block that orders go by.
type traits struct {
	size, life, contention int64
	stays                  int64 // the birth of a block that stays, else the most that there is
}

func bySize(a, b *traits) int       { return cmp.Compare(b.size, a.size) }
func byLife(a, b *traits) int       { return cmp.Compare(b.life, a.life) }
func byContention(a, b *traits) int { return cmp.Compare(b.contention, a.contention) }

// byMagnitude compares sizes as powers of two, so that among blocks of about
// the same size another rule decides.
func byMagnitude(a, b *traits) int {
	return cmp.Compare(bits.Len64(uint64(b.size)), bits.Len64(uint64(a.size)))
}

// byStay has blocks that stay come first, in the order of their births.
func byStay(a, b *traits) int { return cmp.Compare(a.stays, b.stays) }

// A block lives long from this part of all steps on. Blocks that do stay, if what they
// waste in the order of their births is at most a looseFraction of the bound: as in a ring
// buffer, where what is born fills what has died.
const (
	longFraction  = 16
	looseFraction = 32
)

// staying returns which blocks stay.
func staying(blocks []Interval, steps int32, bound int64) []bool {
	stays := make([]bool, len(blocks))
	var long []Interval
	for i, b := range blocks {
		if (int64(b.Death)-int64(b.Birth))*longFraction >= int64(steps) {
			stays[i] = true
			long = append(long, b)
		}
	}
	if height, ok := online(long, make([]int64, len(long))); !ok || height-Bound(long) > bound/looseFraction {
		clear(stays)
	}
	return stays
}

// lanes are the orders that take turns. The first is for programs whose blocks
// die within an iteration. The second is for those that keep blocks, or whose
// layers are of many sizes.
var lanes = [][]rule{
	{byContention, bySize},
	{byStay, byMagnitude, byLife},
}

func newLanes(blocks []Interval, load maxima, stays []bool) []*lane {
	known := make([]traits, len(blocks))
	for i, b := range blocks {
		known[i] = traits{size: b.Size, life: int64(b.Death) - int64(b.Birth), contention: load.max(b.Birth, b.Death), stays: math.MaxInt64}
		if stays[i] {
			known[i].stays = int64(b.Birth)
		}
	}
	var all []*lane
	for _, rules := range lanes {
		l := &lane{ids: make([]int32, len(blocks)), key: make([]float64, len(blocks)), sorted: true}
		for i := range l.ids {
			l.ids[i] = int32(i)
		}
		slices.SortFunc(l.ids, func(a, b int32) int {
			for _, r := range rules {
				if c := r(&known[a], &known[b]); c != 0 {
					return c
				}
			}
			return cmp.Or(cmp.Compare(blocks[a].Birth, blocks[b].Birth), cmp.Compare(a, b))
		})
		for rank, id := range l.ids {
			l.key[id] = float64(rank + 1)
		}
		all = append(all, l)
	}
	return all
}

// order returns the blocks in the order in which to place them.
func (l *lane) order() []int32 {
	if !l.sorted {
		slices.SortStableFunc(l.ids, func(a, b int32) int { return cmp.Compare(l.key[a], l.key[b]) })
		l.sorted = true
	}
	return l.ids
}

// learn moves the blocks that squeak forward.
func (l *lane) learn(squeaks func(int32) bool) {
	for _, id := range l.ids {
		if squeaks(id) {
			l.key[id] *= jump
		}
	}
	l.sorted = false
}
