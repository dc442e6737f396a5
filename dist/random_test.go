package dist

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/testkit"
)

// A program is calls that all ranks make, the same in the same order, on streams
// of their own choice. Each rank works through it with a few buffers, and a
// model of them in Go's memory.
type program struct {
	*rig
	streams []*cupool.Stream
	random  *rand.Rand // the same on all ranks
	own     *rand.Rand
	bufs    []*cupool.Buffer[int32]
	model   [][][]int32 // by rank, by buffer
}

const (
	programBufs  = 4
	programCount = 30_000
)

func newProgram(r *rig, seed uint64) (*program, error) {
	p := &program{rig: r, random: rand.New(rand.NewPCG(seed, 0)), own: rand.New(rand.NewPCG(seed, uint64(r.Rank()+1)))}
	for range 3 {
		s, err := r.pool.NewStream()
		if err != nil {
			return nil, err
		}
		p.streams = append(p.streams, s)
	}
	for rank := range r.Size() {
		var bufs [][]int32
		for i := range programBufs {
			v := make([]int32, programCount)
			for j := range v {
				v[j] = int32(rank*1000 + i*100 + j%50)
			}
			bufs = append(bufs, v)
		}
		p.model = append(p.model, bufs)
	}
	for i := range programBufs {
		b, err := cupool.BufferFrom(r.pool, p.model[r.Rank()][i], p.streams[0])
		if err != nil {
			return nil, err
		}
		p.bufs = append(p.bufs, b)
	}
	return p, p.streams[0].Sync()
}

// part returns the elements of a buffer from at on.
func (p *program) part(buf, at, count int) Memory {
	m, _ := Of(p.bufs[buf])
	m.Ptr += cupool.Ptr(4 * at)
	m.Count = count
	return m
}

// step makes one call, and has the model do the same. Calls on different streams
// wait for each other where they share memory: here always.
func (p *program) step(last *cupool.Stream) (*cupool.Stream, error) {
	s := p.streams[p.own.IntN(len(p.streams))]
	if last != nil && last != s {
		if err := s.WaitStream(last); err != nil {
			return s, err
		}
	}
	n, r := p.Size(), p.random
	src, dst := r.IntN(programBufs), r.IntN(programBufs)
	count := 1 + r.IntN(programCount/n)
	if r.IntN(2) == 0 {
		count = 1 + count%500
	}
	at := r.IntN(programCount/n - count + 1)
	switch r.IntN(5) {
	case 0:
		op := Op(r.IntN(4))
		p.modelReduce(op, dst, src, at, count)
		return s, p.AllReduce(p.part(dst, at, count), p.part(src, at, count), op, s)
	case 1:
		root := r.IntN(n)
		for rank := range n {
			copy(p.model[rank][dst][at:at+count], p.model[root][src][at:at+count])
		}
		return s, p.Broadcast(p.part(dst, at, count), p.part(src, at, count), root, s)
	case 2:
		dst = (src + 1) % programBufs
		for rank := range n {
			for from := range n {
				copy(p.model[rank][dst][from*count:(from+1)*count], p.model[from][src][at:at+count])
			}
		}
		return s, p.AllGather(p.part(dst, 0, n*count), p.part(src, at, count), s)
	case 3:
		dst = (src + 1) % programBufs
		for rank := range n {
			for i := range count {
				sum := int32(0)
				for from := range n {
					sum += p.model[from][src][rank*count+i]
				}
				p.model[rank][dst][at+i] = sum
			}
		}
		return s, p.ReduceScatter(p.part(dst, at, count), p.part(src, 0, n*count), Sum, s)
	}
	return s, p.shift(s, src, at, count, 1+r.IntN(max(1, n-1)))
}

func (p *program) modelReduce(op Op, dst, src, at, count int) {
	n := p.Size()
	for i := at; i < at+count; i++ {
		v := p.model[0][src][i]
		for rank := 1; rank < n; rank++ {
			x := p.model[rank][src][i]
			v = [...]int32{v + x, v * x, min(v, x), max(v, x)}[op]
		}
		for rank := range n {
			p.model[rank][dst][i] = v
		}
	}
}

// shift sends to the rank that is by so far, in a Group with a small AllReduce.
func (p *program) shift(s *cupool.Stream, src, at, count, by int) error {
	n, dst, third := p.Size(), (src+1)%programBufs, (src+2)%programBufs
	if n == 1 {
		return nil
	}
	for rank := range n {
		copy(p.model[(rank+by)%n][dst][at:at+count], p.model[rank][src][at:at+count])
	}
	p.modelReduce(Max, third, third, 0, 10)
	return p.Group(func() error {
		if err := p.AllReduce(p.part(third, 0, 10), p.part(third, 0, 10), Max, s); err != nil {
			return err
		}
		if err := p.Send(p.part(src, at, count), (p.Rank()+by)%n, s); err != nil {
			return err
		}
		return p.Recv(p.part(dst, at, count), (p.Rank()+n-by)%n, s)
	})
}

func (p *program) run(steps int) (err error) {
	var last *cupool.Stream
	for i := range steps {
		if last, err = p.step(last); err != nil {
			return fmt.Errorf("step %d: %w", i, err)
		}
	}
	if err := last.Sync(); err != nil {
		return err
	}
	for i, b := range p.bufs {
		got := make([]byte, 4*programCount)
		if err := last.CopyOut(got, b.Ptr()); err != nil {
			return err
		}
		want := aligned(4 * programCount)
		copy(as[int32](want), p.model[p.Rank()][i])
		if !bytes.Equal(want, got) {
			return fmt.Errorf("buffer %d of rank %d differs", i, p.Rank())
		}
		if err := b.Free(); err != nil {
			return err
		}
	}
	return p.Err()
}

func TestRandomPrograms(t *testing.T) {
	for range testkit.Rounds(8) {
		seed := rand.Uint64()
		everyWay(t, []int{1, 2, 3}, func(t *testing.T, comms []Comm, pools []*cupool.Pool) {
			t.Log("seed", seed)
			all := rigs(t, comms, pools)
			noErrors(t, parallel(len(comms), func(rank int) error {
				p, err := newProgram(all[rank], seed)
				if err != nil {
					return err
				}
				return p.run(testkit.Choose(200, 40))
			}))
			require.NoError(t, comms[0].Err())
		})
	}
}
