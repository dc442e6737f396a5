package plan

import (
	"cmp"
	"context"
	"math"
	"math/rand/v2"
	"slices"
)

// repair lowers a plan: it takes out what ends above a limit and puts it back
// below. A block for which there is no gap takes the place of others, which
// are to be placed again. It takes the place where these are worth least. A
// block is worth more each time that there was no gap for it, so that blocks
// do not push each other out for ever.
//
// This is guided ejection search (Nagata and Bräysy, Operations Research
// Letters 37, 2009), which was made for the routes of vehicles. What a place
// of a route is there, a gap in memory and time is here.
type repair struct {
	blocks []Interval // with times as steps
	stays  []bool
	offs   []int64   // of the attempt in progress; out: the block is not placed
	worth  []float64 // by block
	out    []int32   // the blocks to be placed, the next one last
	alive  stabs

	limit  int64
	byLow  []neighbour // the blocks that live at the same time as one, by their beginnings
	byHigh []neighbour // the same, by their ends
	spare  []neighbour // for sorting

	part  float64 // of the height above the target, that an attempt leaves
	looks int64   // neighbours that were looked at

	// Beside blocks that stay, a few large ones can push each other out for ever. So
	// a place may by chance be taken that is up to twice as dear as the best. It is the
	// same chance in each search. nil: no block stays.
	random *rand.Rand
}

// out is the offset of a block that is not placed.
const out = -1

// neighbour is a placed block.
type neighbour struct {
	span
	id    int32
	worth float64
}

func newRepair(blocks []Interval, steps int32, stays []bool) *repair {
	r := &repair{blocks: blocks, stays: stays, offs: make([]int64, len(blocks)), worth: make([]float64, len(blocks)), alive: newStabs(blocks, steps), part: boldest}
	if slices.Contains(stays, true) {
		r.random = rand.New(rand.NewPCG(1, 2))
	}
	for i := range blocks {
		r.worth[i] = r.base(int32(i))
	}
	return r
}

// base is what a block is worth at first. A larger block is harder to place
// again, and so is one that lives longer, but less so: it has more neighbours
// and a long gap is as good as a short one. Blocks that stay are only moved
// where nothing else helps.
func (r *repair) base(i int32) float64 {
	b := &r.blocks[i]
	worth := float64(b.Size) * math.Sqrt(float64(b.Death-b.Birth))
	if r.stays[i] {
		worth *= stayWorth
	}
	return worth
}

// stayWorth is what blocks that stay are worth as a multiple of others of their size
// and lifetime.
const stayWorth = 100

// The first attempt takes a quarter off what is above the target. An attempt
// that fails has the next ones ask for less; one that succeeds has them ask
// for more.
const boldest = 0.75

// attempt tries to lower a plan of a height towards the target, and looks at
// no more neighbours than it may. It reports whether offs is a lower plan.
func (r *repair) attempt(ctx context.Context, plan []int64, height, target, looks int64) bool {
	r.limit = min(height-1, target+int64(float64(height-target)*r.part))
	if r.lower(ctx, plan, r.looks+looks) {
		r.part = (r.part + boldest) / 2
		return true
	}
	r.part = (r.part + 1) / 2
	return false
}

// lower places everything below the limit, if it can before it has looked at
// so many neighbours.
func (r *repair) lower(ctx context.Context, plan []int64, until int64) bool {
	r.out = r.out[:0]
	for i := range plan {
		r.offs[i] = plan[i]
		if plan[i]+r.blocks[i].Size > r.limit {
			r.eject(int32(i))
		}
	}
	r.valuableLast(0)
	for len(r.out) > 0 {
		if r.looks >= until || ctx.Err() != nil {
			return false
		}
		next := len(r.out) - 1
		i := r.out[next]
		r.out = r.out[:next]
		r.place(i)
	}
	return true
}

func (r *repair) eject(i int32) {
	r.offs[i] = out
	r.out = append(r.out, i)
}

// valuableLast sorts the blocks to be placed from one on, so that what is
// hardest to place comes first.
func (r *repair) valuableLast(from int) {
	slices.SortFunc(r.out[from:], func(a, b int32) int { return cmp.Or(cmp.Compare(r.base(a), r.base(b)), cmp.Compare(a, b)) })
}

// place puts a block into the smallest gap that is large enough, or in the
// place of others.
func (r *repair) place(i int32) {
	size := r.blocks[i].Size
	r.meet(i)
	off, ok := r.gap(size)
	if !ok {
		r.worth[i] += r.base(i)
		off = r.cheapest(size)
		from := len(r.out)
		for k := range r.byLow {
			if n := &r.byLow[k]; n.lo < off+size && off < n.hi {
				r.eject(n.id)
			}
		}
		r.valuableLast(from)
	}
	r.offs[i] = off
}

// meet lists the placed blocks that live at the same time as a block.
func (r *repair) meet(i int32) {
	r.byLow = r.byLow[:0]
	birth, death := r.blocks[i].Birth, r.blocks[i].Death
	before, born := r.alive.during(birth, death)
	for _, list := range [...][]int32{before, born} {
		for _, k := range list {
			if off := r.offs[k]; off != out && r.blocks[k].Death > birth {
				r.byLow = append(r.byLow, neighbour{span{off, off + r.blocks[k].Size}, k, r.worth[k]})
			}
		}
		r.looks += int64(len(list))
	}
	r.sort(&r.byLow, func(n neighbour) int64 { return n.lo })
}

// sort sorts neighbours by a key that is not negative and at most the limit.
// Long lists, of blocks that live long, are what repair spends its time on:
// they are sorted digit by digit, which takes a quarter of the time.
func (r *repair) sort(list *[]neighbour, key func(neighbour) int64) {
	const long, digit = 1024, 11 // neighbours, bits
	if len(*list) < long {
		slices.SortFunc(*list, func(a, b neighbour) int { return cmp.Compare(key(a), key(b)) })
		return
	}
	from, to := *list, slices.Grow(r.spare[:0], len(*list))[:len(*list)]
	for shift := 0; r.limit>>shift > 0; shift += digit {
		var next [1 << digit]int32 // by digit, where in to its next neighbour goes
		for k := range from {
			next[key(from[k])>>shift&(1<<digit-1)]++
		}
		sum := int32(0)
		for d, n := range next {
			next[d], sum = sum, sum+n
		}
		for k := range from {
			d := key(from[k]) >> shift & (1<<digit - 1)
			to[next[d]] = from[k]
			next[d]++
		}
		from, to = to, from
	}
	*list, r.spare = from, to
}

// gap returns the beginning of the smallest gap between neighbours that is
// large enough: the lowest among equals.
func (r *repair) gap(size int64) (off int64, ok bool) {
	least, end := int64(math.MaxInt64), int64(0)
	consider := func(to int64) {
		if to-end >= size && to-end < least {
			off, least, ok = end, to-end, true
		}
	}
	for k := range r.byLow {
		consider(r.byLow[k].lo)
		end = max(end, r.byLow[k].hi)
	}
	consider(r.limit)
	return off, ok
}

// cheapest returns the offset for a block of a size at which the neighbours
// that are in its way are worth least. It is one at which the block begins
// where a neighbour ends, or ends where one begins, or at an end of the
// memory: at all others as much is in the way.
func (r *repair) cheapest(size int64) (best int64) {
	r.byHigh = append(r.byHigh[:0], r.byLow...)
	r.sort(&r.byHigh, func(n neighbour) int64 { return n.hi })
	last, least := r.limit-size, math.Inf(1)
	// What is in the way at an offset begins before the block's end, less what
	// ends before its beginning. Both grow with the offset.
	var begun, ended float64
	var nextBegun, nextEnded int
	consider := func(off int64) {
		for ; nextBegun < len(r.byLow) && r.byLow[nextBegun].lo < off+size; nextBegun++ {
			begun += r.byLow[nextBegun].worth
		}
		for ; nextEnded < len(r.byHigh) && r.byHigh[nextEnded].hi <= off; nextEnded++ {
			ended += r.byHigh[nextEnded].worth
		}
		cost := begun - ended
		if r.random != nil {
			cost *= 1 + r.random.Float64()
		}
		if cost < least {
			best, least = off, cost
		}
	}
	consider(0)
	for k := range r.byHigh {
		if off := r.byHigh[k].hi; off <= last {
			consider(off)
		}
	}
	begun, ended, nextBegun, nextEnded = 0, 0, 0, 0
	for k := range r.byLow {
		if off := r.byLow[k].lo - size; off >= 0 && off <= last {
			consider(off)
		}
	}
	consider(last)
	return best
}

// stabs finds the blocks that live during some steps.
type stabs struct {
	births []int32   // the blocks in the order of their births
	first  []int32   // by step: the index in births of the first that is born then or later
	sample []int32   // by step: the index in lists of the last sample up to then
	steps  []int32   // by sample: its step
	lists  [][]int32 // by sample: the blocks that live at its step and were born before
}

// newStabs takes a sample as soon as there are as many births as the last one
// has blocks. So all samples together take no more than a word or two a block.
func newStabs(blocks []Interval, steps int32) stabs {
	const least = 64
	s := stabs{births: make([]int32, len(blocks)), first: make([]int32, steps+1), sample: make([]int32, steps)}
	for i := range s.births {
		s.births[i] = int32(i)
	}
	slices.SortFunc(s.births, func(a, b int32) int { return cmp.Or(cmp.Compare(blocks[a].Birth, blocks[b].Birth), cmp.Compare(a, b)) })
	born := 0
	for step := range s.first {
		for born < len(blocks) && blocks[s.births[born]].Birth < int32(step) {
			born++
		}
		s.first[step] = int32(born)
	}
	s.steps, s.lists = []int32{0}, [][]int32{nil}
	for step := range steps {
		n := len(s.lists) - 1
		if since := s.births[s.first[s.steps[n]]:s.first[step]]; len(since) >= max(least, len(s.lists[n])) {
			living := slices.Concat(s.lists[n], since)
			living = slices.DeleteFunc(living, func(i int32) bool { return blocks[i].Death <= step })
			s.steps, s.lists = append(s.steps, step), append(s.lists, living)
			n++
		}
		s.sample[step] = int32(n)
	}
	return s
}

// during returns all blocks that live at some step from b up to d, in two
// lists, which may have blocks that died before b.
func (s *stabs) during(b, d int32) (before, born []int32) {
	n := s.sample[b]
	return s.lists[n], s.births[s.first[s.steps[n]]:s.first[d]]
}
