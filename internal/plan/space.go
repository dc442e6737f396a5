package plan

import "sort"

// span is a range of offsets.
type span struct{ lo, hi int64 }

// spans are ranges in ascending order that neither overlap nor touch.
type spans []span

// after returns the first span that ends above an offset, searching from i
// on: near i first, because that is where it mostly is.
func (s spans) after(i int, off int64) int {
	for n := 0; i < len(s) && s[i].hi <= off; n++ {
		if n == 4 {
			return i + sort.Search(len(s)-i, func(k int) bool { return s[i+k].hi > off })
		}
		i++
	}
	return i
}

// add enters a range, which may overlap others.
func (s *spans) add(lo, hi int64) {
	list := *s
	i := sort.Search(len(list), func(k int) bool { return list[k].hi >= lo })
	j := i
	for ; j < len(list) && list[j].lo <= hi; j++ {
		lo, hi = min(lo, list[j].lo), max(hi, list[j].hi)
	}
	if j == i { // touches none
		list = append(list, span{})
		copy(list[i+1:], list[i:])
		*s = list
	} else if j > i+1 {
		*s = append(list[:i+1], list[j:]...)
	}
	(*s)[i] = span{lo, hi}
}

// space is what is occupied, over time: a segment tree over the steps whose
// nodes hold the offsets that are taken at some time of the node's steps,
// and those that are taken at all of them by blocks filed there. What is
// taken during any lifetime is the union of a logarithmic number of nodes.
// Because blocks are placed upon each other, ranges merge: nodes hold few.
type space struct {
	leaves int32   // a power of two
	some   []spans // by node; children of n are 2n and 2n+1
	all    []spans
	views  []view // of the lifetime in question
}

// view is a list of spans, and where in it to look.
type view struct {
	spans spans
	at    int
}

func newSpace(steps int32) *space {
	leaves := int32(1)
	for leaves < steps {
		leaves *= 2
	}
	return &space{leaves: leaves, some: make([]spans, 2*leaves), all: make([]spans, 2*leaves)}
}

// clear empties the space and keeps its memory.
func (s *space) clear() {
	for i := range s.some {
		s.some[i], s.all[i] = s.some[i][:0], s.all[i][:0]
	}
}

// lowest returns the lowest offset at which size bytes are free throughout
// the steps from b up to d.
func (s *space) lowest(b, d int32, size int64) int64 {
	s.views = s.views[:0]
	s.collect(1, 0, s.leaves, b, d)
	off := int64(0)
	// Every view pushes the offset up until all agree, one after the other.
	for agree, i := 0, 0; agree < len(s.views); agree++ {
		v := &s.views[i]
		if i++; i == len(s.views) {
			i = 0
		}
		v.at = v.spans.after(v.at, off)
		for v.at < len(v.spans) && v.spans[v.at].lo < off+size {
			off = v.spans[v.at].hi
			v.at++
			agree = 0
		}
	}
	return off
}

// collect lists what is taken at some time from b up to d, for a node of the
// steps from lo up to hi.
func (s *space) collect(node, lo, hi, b, d int32) {
	if b <= lo && hi <= d {
		s.look(s.some[node])
		return
	}
	s.look(s.all[node])
	mid := (lo + hi) / 2
	if b < mid {
		s.collect(2*node, lo, mid, b, d)
	}
	if mid < d {
		s.collect(2*node+1, mid, hi, b, d)
	}
}

func (s *space) look(list spans) {
	if len(list) > 0 {
		s.views = append(s.views, view{spans: list})
	}
}

// fill takes the offsets from lo up to hi, throughout the steps from b up
// to d.
func (s *space) fill(b, d int32, lo, hi int64) { s.fillNode(1, 0, s.leaves, b, d, lo, hi) }

func (s *space) fillNode(node, from, to, b, d int32, lo, hi int64) {
	s.some[node].add(lo, hi)
	if b <= from && to <= d {
		s.all[node].add(lo, hi)
		return
	}
	mid := (from + to) / 2
	if b < mid {
		s.fillNode(2*node, from, mid, b, d, lo, hi)
	}
	if mid < d {
		s.fillNode(2*node+1, mid, to, b, d, lo, hi)
	}
}
