package dist

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/testkit"
)

// counts are of elements: none, fewer than ranks, and several pieces that no number
// of ranks divides.
var counts = []int{0, 1, 3, 7, 5000, piece/4*3 + 5, 2*piece + 1}

// opsOf are the operations of a type.
func opsOf(t Type) []Op {
	if t == Float32 || t == Float64 {
		return []Op{Sum, Prod, Min, Max, Avg}
	}
	return []Op{Sum, Prod, Min, Max}
}

// value is element i of a rank: a small number, so that sums and products of
// floating-point numbers are exact in any order.
func value(rank, i int) int { return 1 + (rank*7+i*3+i/11)%3 }

// fill returns count elements of a rank.
func fill(t Type, rank, count int) []byte {
	return tile(t, count, func(b []byte, i int) { put(t, b, i, float64(value(rank, i))) })
}

// period is that of value.
const period = 33

// tile returns count elements, of which set sets the first ones.
func tile(t Type, count int, set func(b []byte, i int)) []byte {
	b := aligned(int64(count) * t.Size())
	for i := range min(count, period) {
		set(b, i)
	}
	for n := period * int(t.Size()); n < len(b); n *= 2 {
		copy(b[n:], b[:n])
	}
	return b
}

func put(t Type, b []byte, i int, v float64) {
	switch t {
	case Float32:
		as[float32](b)[i] = float32(v)
	case Float64:
		as[float64](b)[i] = v
	case Int32:
		as[int32](b)[i] = int32(v)
	case Int64:
		as[int64](b)[i] = int64(v)
	case Uint8:
		b[i] = byte(int(v)) // wraps round
	}
}

// reduced is what the ranks 0 to n-1 make of element i.
func reduced(op Op, n, i int) float64 {
	v := float64(value(0, i))
	for rank := 1; rank < n; rank++ {
		x := float64(value(rank, i))
		switch op {
		case Sum, Avg:
			v += x
		case Prod:
			v *= x
		case Min:
			v = math.Min(v, x)
		case Max:
			v = math.Max(v, x)
		}
	}
	if op == Avg {
		v /= float64(n)
	}
	return v
}

func wanted(t Type, op Op, n, from, count int) []byte {
	return tile(t, count, func(b []byte, i int) {
		put(t, b, i, reduced(op, n, from+i))
		if t == Float32 && op == Avg { // divided as float32
			as[float32](b)[i] = float32(reduced(Sum, n, from+i)) / float32(n)
		}
	})
}

// A rig is a rank's memory for tests.
type rig struct {
	Comm
	pool *cupool.Pool
	s    *cupool.Stream
}

// memory returns device memory that holds b.
func (r *rig) memory(t Type, b []byte) (Memory, *cupool.Buffer[byte], error) {
	buf, err := cupool.BufferFrom(r.pool, b, r.s)
	if err != nil {
		return Memory{}, nil, err
	}
	m := Memory{Ptr: buf.Ptr(), Count: len(b) / int(t.Size()), Type: t}
	m.record = func(s *cupool.Stream) error { return r.pool.RecordStream(buf.Block(), s) }
	return m, buf, nil
}

// try runs f with memory that holds src, and other memory of dst bytes, and
// compares dst, which is src where the sizes are equal and inPlace is set.
func (r *rig) try(t Type, src []byte, dst int, inPlace bool, f func(d, s Memory) error, want []byte) error {
	from, b, err := r.memory(t, src)
	if err != nil {
		return err
	}
	to, out := from, b
	if !inPlace {
		if to, out, err = r.memory(t, make([]byte, dst)); err != nil {
			return err
		}
		defer out.Free()
	}
	defer b.Free()
	if err := f(to, from); err != nil {
		return err
	}
	got, err := out.ToHost()
	if err == nil && !bytes.Equal(got, want) {
		return fmt.Errorf("rank %d of %d: other elements than expected", r.Rank(), r.Size())
	}
	return err
}

func rigs(t testing.TB, comms []Comm, pools []*cupool.Pool) []*rig {
	all := make([]*rig, len(comms))
	for i := range all {
		s, err := pools[i].NewStream()
		require.NoError(t, err)
		all[i] = &rig{comms[i], pools[i], s}
	}
	return all
}

func TestCollectives(t *testing.T) {
	everyWay(t, []int{1, 2, 3, 5, 8}, func(t *testing.T, comms []Comm, pools []*cupool.Pool) {
		all, n := rigs(t, comms, pools), len(comms)
		for _, typ := range []Type{Float32, Float64, Int32, Int64, Uint8} {
			for _, count := range counts {
				if count > 10_000 && typ != Float32 && !testkit.Long() {
					continue
				}
				noErrors(t, parallel(n, func(rank int) error { return all[rank].collectives(typ, count) }))
			}
		}
	})
}

// collectives tries all collective calls on count elements.
func (r *rig) collectives(t Type, count int) error {
	n, size := r.Size(), int(t.Size())
	for _, op := range opsOf(t) {
		for _, inPlace := range []bool{false, true} {
			f := func(d, s Memory) error { return r.AllReduce(d, s, op, r.s) }
			if err := r.try(t, fill(t, r.Rank(), count), count*size, inPlace, f, wanted(t, op, n, 0, count)); err != nil {
				return fmt.Errorf("%v of %d %v in place %v: %w", op, count, t, inPlace, err)
			}
		}
		part := (count + n - 1) / n
		f := func(d, s Memory) error { return r.ReduceScatter(d, s, op, r.s) }
		if err := r.try(t, fill(t, r.Rank(), part*n), part*size, false, f, wanted(t, op, n, r.Rank()*part, part)); err != nil {
			return fmt.Errorf("ReduceScatter, %v of %d %v: %w", op, count, t, err)
		}
	}
	for root := range n {
		f := func(d, s Memory) error { return r.Broadcast(d, s, root, r.s) }
		if err := r.try(t, fill(t, r.Rank(), count), count*size, root%2 == 0, f, fill(t, root, count)); err != nil {
			return fmt.Errorf("Broadcast from %d of %d %v: %w", root, count, t, err)
		}
	}
	var gathered []byte
	for rank := range n {
		gathered = append(gathered, fill(t, rank, count)...)
	}
	f := func(d, s Memory) error { return r.AllGather(d, s, r.s) }
	if err := r.try(t, fill(t, r.Rank(), count), n*count*size, false, f, gathered); err != nil {
		return fmt.Errorf("AllGather of %d %v: %w", count, t, err)
	}
	return r.exchange(t, count)
}

// exchange sends all ranks' elements round in a Group.
func (r *rig) exchange(t Type, count int) error {
	n := r.Size()
	if n == 1 {
		return nil
	}
	next, prev := (r.Rank()+1)%n, (r.Rank()+n-1)%n
	f := func(d, s Memory) error {
		return r.Group(func() error {
			if err := r.Recv(d, prev, r.s); err != nil {
				return err
			}
			return r.Send(s, next, r.s)
		})
	}
	if err := r.try(t, fill(t, r.Rank(), count), count*int(t.Size()), false, f, fill(t, prev, count)); err != nil {
		return fmt.Errorf("Send and Recv of %d %v: %w", count, t, err)
	}
	return nil
}

// Sums are those of the ranks' order, to the bit.
func TestSumsAreInOrder(t *testing.T) {
	for _, w := range ways {
		for _, n := range []int{2, 3, 8} {
			comms, pools := group(t, n, w.pool)
			all := rigs(t, comms, pools)
			const count = 3*piece + 77
			src, want := make([][]byte, n), aligned(4*count)
			for rank := range src {
				src[rank] = aligned(4 * count)
				random := rand.New(rand.NewPCG(7, uint64(rank)))
				for i := range count {
					as[float32](src[rank])[i] = float32(random.NormFloat64())
					as[float32](want)[i] += as[float32](src[rank])[i]
				}
			}
			for i := range count {
				as[float32](want)[i] /= float32(n)
			}
			noErrors(t, parallel(n, func(rank int) error {
				f := func(d, s Memory) error { return all[rank].AllReduce(d, s, Avg, all[rank].s) }
				return all[rank].try(Float32, src[rank], len(want), true, f, want)
			}))
			noErrors(t, parallel(n, func(rank int) error { return comms[rank].Close() }))
		}
	}
}

// Many AllReduces in a Group are the same as one after the other.
func TestGroupOfManySizes(t *testing.T) {
	sizes := []int{1, 20_000, 3, 5, 4, 9000, 0, 7000, 12, 100_000, 2}
	for range 60 {
		sizes = append(sizes, 16_000)
	}
	everyWay(t, []int{1, 2, 3}, func(t *testing.T, comms []Comm, pools []*cupool.Pool) {
		all := rigs(t, comms, pools)
		noErrors(t, parallel(len(comms), func(rank int) error {
			r := all[rank]
			bufs := make([]*cupool.Buffer[byte], len(sizes))
			err := r.Group(func() error {
				for i, count := range sizes {
					typ := []Type{Int32, Float32}[i/3%2]
					m, b, err := r.memory(typ, fill(typ, rank, count))
					if err != nil {
						return err
					}
					bufs[i] = b
					if err := r.AllReduce(m, m, Sum, r.s); err != nil {
						return err
					}
				}
				return nil
			})
			if err != nil {
				return err
			}
			for i, count := range sizes {
				got, err := bufs[i].ToHost()
				if err != nil {
					return err
				}
				if !bytes.Equal(got, wanted([]Type{Int32, Float32}[i/3%2], Sum, len(comms), 0, count)) {
					return fmt.Errorf("call %d of %d elements differs", i, count)
				}
				if err := bufs[i].Free(); err != nil {
					return err
				}
			}
			return nil
		}))
	})
}
