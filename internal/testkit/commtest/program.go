package commtest

import (
	"fmt"
	"math/rand/v2"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/dist"
)

// A program is calls that all ranks make, the same in the same order, on streams
// of their own choice. Each rank works through it with a few buffers, and a
// model of those of all ranks in Go's memory.
type program struct {
	Member
	streams []*cupool.Stream
	last    *cupool.Stream
	random  *rand.Rand // the same on all ranks
	own     *rand.Rand
	places  []Place[int32]
	model   [][][]int32 // by rank, by place
}

const (
	programPlaces = 4
	programCount  = 30_000
)

// Program makes random calls.
func Program(r Member, seed uint64, steps int) error {
	p := &program{Member: r, streams: []*cupool.Stream{r.Stream}, last: r.Stream, random: rand.New(rand.NewPCG(seed, 0)), own: rand.New(rand.NewPCG(seed, uint64(r.Rank()+1)))}
	for range 2 {
		s, err := r.Pool.NewStream()
		if err != nil {
			return err
		}
		p.streams = append(p.streams, s)
	}
	for rank := range r.Size() {
		p.model = append(p.model, nil)
		for i := range programPlaces {
			v := make([]int32, programCount)
			for j := range v {
				v[j] = int32(rank*1000 + i*100 + j%50)
			}
			p.model[rank] = append(p.model[rank], v)
		}
	}
	for _, v := range p.model[r.Rank()] {
		place, err := NewPlace(r, v)
		if err != nil {
			return err
		}
		p.places = append(p.places, place)
	}
	for i := range steps {
		if err := p.step(); err != nil {
			return fmt.Errorf("step %d: %w", i, err)
		}
	}
	if err := p.last.Sync(); err != nil {
		return err
	}
	for i, place := range p.places {
		if err := place.Is(p.model[r.Rank()][i]); err != nil {
			return fmt.Errorf("buffer %d of rank %d: %w", i, r.Rank(), err)
		}
	}
	for _, s := range p.streams[1:] {
		if err := s.Close(); err != nil {
			return err
		}
	}
	return r.Err()
}

// part returns count elements of a place, from at on.
func (p *program) part(place, at, count int) dist.Memory {
	m := p.places[place].M
	m.Ptr += cupool.Ptr(4 * at)
	m.Count = count
	return m
}

// step makes one call, and has the model do the same. It waits for the last one,
// with which it may share memory, where that was on another stream.
func (p *program) step() error {
	s := p.streams[p.own.IntN(len(p.streams))]
	if p.last != s {
		if err := s.WaitStream(p.last); err != nil {
			return err
		}
	}
	p.last = s
	n, r := p.Size(), p.random
	src, dst := r.IntN(programPlaces), r.IntN(programPlaces)
	other := (src + 1) % programPlaces
	count := 1 + r.IntN(programCount/n)
	if r.IntN(2) == 0 {
		count = 1 + count%500
	}
	at := r.IntN(programCount/n - count + 1)
	switch r.IntN(5) {
	case 0:
		op := dist.Op(r.IntN(4))
		p.reduce(op, dst, src, at, count)
		return p.AllReduce(p.part(dst, at, count), p.part(src, at, count), op, s)
	case 1:
		root := r.IntN(n)
		for rank := range n {
			copy(p.model[rank][dst][at:at+count], p.model[root][src][at:at+count])
		}
		return p.Broadcast(p.part(dst, at, count), p.part(src, at, count), root, s)
	case 2:
		for rank := range n {
			for from := range n {
				copy(p.model[rank][other][from*count:(from+1)*count], p.model[from][src][at:at+count])
			}
		}
		return p.AllGather(p.part(other, 0, n*count), p.part(src, at, count), s)
	case 3:
		for rank := range n {
			for i := range count {
				sum := int32(0)
				for from := range n {
					sum += p.model[from][src][rank*count+i]
				}
				p.model[rank][other][at+i] = sum
			}
		}
		return p.ReduceScatter(p.part(other, at, count), p.part(src, 0, n*count), dist.Sum, s)
	}
	return p.shift(s, src, at, count, 1+r.IntN(max(1, n-1)))
}

// reduce has the model make an AllReduce.
func (p *program) reduce(op dist.Op, dst, src, at, count int) {
	for i := at; i < at+count; i++ {
		v := p.model[0][src][i]
		for rank := 1; rank < p.Size(); rank++ {
			v = combine(op, v, p.model[rank][src][i])
		}
		for rank := range p.Size() {
			p.model[rank][dst][i] = v
		}
	}
}

// shift sends to the rank that is by so far, in a Group with two small AllReduces.
func (p *program) shift(s *cupool.Stream, src, at, count, by int) error {
	n, dst, third, fourth := p.Size(), (src+1)%programPlaces, (src+2)%programPlaces, (src+3)%programPlaces
	if n == 1 {
		return nil
	}
	for rank := range n {
		copy(p.model[(rank+by)%n][dst][at:at+count], p.model[rank][src][at:at+count])
	}
	p.reduce(dist.Max, third, third, 0, 10)
	p.reduce(dist.Sum, fourth, fourth, 5, 7)
	return p.Group(func() error {
		return First(p.AllReduce(p.part(third, 0, 10), p.part(third, 0, 10), dist.Max, s), p.AllReduce(p.part(fourth, 5, 7), p.part(fourth, 5, 7), dist.Sum, s),
			p.Send(p.part(src, at, count), (p.Rank()+by)%n, s), p.Recv(p.part(dst, at, count), (p.Rank()+n-by)%n, s))
	})
}
