package plan

import (
	"cmp"
	"math/rand/v2"
	"slices"
)

// lane is one order of placing, as it learns.
type lane struct {
	ids  []int32   // the blocks in order
	key  []float64 // by block, what they are ordered by
	jump float64   // what the key of a block that squeaks is multiplied with

	sorted bool // ids is in the order of key
	low    int64
	stuck  int // rounds since low was lowered
	random *rand.Rand
}

// Patience is how many rounds a lane may go on without getting lower before
// its order is shaken, and by how much keys are then multiplied at most.
const (
	patience = 12
	shake    = 1.25
)

// A rule compares two blocks by what is known of them.
type rule func(a, b *traits) int

// traits of a block that orders go by.
type traits struct {
	size, life, contention int64
}

func bySize(a, b *traits) int { return cmp.Compare(b.size, a.size) }
func byLife(a, b *traits) int { return cmp.Compare(b.life, a.life) }
func byArea(a, b *traits) int {
	return cmp.Compare(float64(b.size)*float64(b.life), float64(a.size)*float64(a.life))
}
func byContention(a, b *traits) int { return cmp.Compare(b.contention, a.contention) }

// lanes are the orders that take turns, the most promising first, each with
// how far a block jumps ahead: 0 is to the very front, which finds what has
// to come first in few rounds; a small step keeps more of a good order.
var lanes = []struct {
	rules []rule
	jump  float64
}{
	{[]rule{byContention, bySize}, 0.9},
	{[]rule{byContention, byLife}, 0.9},
	{[]rule{byLife, bySize}, 0},
	{[]rule{bySize, byLife}, 0.5},
	{[]rule{byContention, byLife}, 0},
	{[]rule{byArea}, 0},
}

func newLanes(blocks []Interval, load maxima, seed uint64) []*lane {
	known := make([]traits, len(blocks))
	for i, b := range blocks {
		known[i] = traits{size: b.Size, life: int64(b.Death) - int64(b.Birth), contention: load.max(b.Birth, b.Death)}
	}
	var all []*lane
	for n, spec := range lanes {
		l := &lane{jump: spec.jump, random: rand.New(rand.NewPCG(seed, uint64(n))), key: make([]float64, len(blocks))}
		for i := range blocks {
			l.ids = append(l.ids, int32(i))
		}
		slices.SortFunc(l.ids, func(a, b int32) int {
			for _, r := range spec.rules {
				if c := r(&known[a], &known[b]); c != 0 {
					return c
				}
			}
			return cmp.Or(cmp.Compare(blocks[a].Birth, blocks[b].Birth), cmp.Compare(a, b))
		})
		for rank, id := range l.ids {
			l.key[id] = float64(rank + 1)
		}
		l.sorted = true
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

// learn moves the blocks that squeak forward. An order that has not got
// lower for long is shaken.
func (l *lane) learn(height int64, squeaks func(int32) bool) {
	for _, id := range l.ids {
		if squeaks(id) {
			l.key[id] *= l.jump
		}
	}
	l.sorted = false
	if l.low == 0 || height < l.low {
		l.low, l.stuck = height, 0
		return
	}
	if l.stuck++; l.stuck < patience {
		return
	}
	l.stuck = 0
	for rank, id := range l.order() {
		l.key[id] = float64(rank+1) * (1 + l.random.Float64()*(shake-1))
	}
	l.sorted = false
}
