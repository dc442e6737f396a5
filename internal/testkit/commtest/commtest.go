// Package commtest is one battery for every dist.Comm: all calls, for all types and
// operations, and random programs, compared with plain computation.
package commtest

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/dist"
)

// A Member is a rank of a group in this process.
type Member struct {
	dist.Comm
	Pool      *cupool.Pool
	Stream    *cupool.Stream // of its calls
	Tolerance float64        // how far elements may be off, of what they should be; 0: the same bits
}

// Ranks returns the ranks of a group, each with a stream of its own.
func Ranks[C dist.Comm](t testing.TB, comms []C, pools []*cupool.Pool) []Member {
	t.Helper()
	ranks := make([]Member, len(comms))
	for i, c := range comms {
		s, err := pools[i].NewStream()
		require.NoError(t, err)
		ranks[i] = Member{Comm: c, Pool: pools[i], Stream: s}
	}
	return ranks
}

// Each calls f for all ranks at the same time.
func Each(ranks []Member, f func(r Member) error) error {
	errs := make([]error, len(ranks))
	var wg sync.WaitGroup
	for i, r := range ranks {
		wg.Go(func() {
			if err := f(r); err != nil {
				errs[i] = fmt.Errorf("rank %d: %w", i, err)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// Close closes all ranks.
func Close(ranks []Member) error { return Each(ranks, func(r Member) error { return r.Close() }) }

// First returns the first error.
func First(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// Number is an element.
type Number interface {
	float32 | float64 | int32 | int64 | uint8
}

// A Place is device memory of a test, with its Memory.
type Place[T Number] struct {
	*cupool.Buffer[T]
	M dist.Memory
	r Member
}

// NewPlace returns memory of a rank's stream that holds values.
func NewPlace[T Number](r Member, values []T) (p Place[T], err error) {
	p.r = r
	if p.Buffer, err = cupool.BufferFrom(r.Pool, values, r.Stream); err != nil {
		return p, err
	}
	p.M, err = dist.Of(p.Buffer)
	return p, err
}

// Is frees the memory when it holds what it should.
func (p Place[T]) Is(want []T) error {
	got, err := p.ToHost()
	if err := First(err, p.r.Err()); err != nil {
		return err
	}
	for i := range want {
		if d := math.Abs(float64(got[i]) - float64(want[i])); !(d <= p.r.Tolerance*math.Abs(float64(want[i]))) {
			return fmt.Errorf("element %d of %d %T is %v, not %v", i, len(want), want[i], got[i], want[i])
		}
	}
	return p.Free()
}

// Inputs returns what each rank has: small numbers, so that sums and products are
// exact in any order.
func Inputs[T Number](seed uint64, ranks, count int) [][]T {
	var pattern [1021]T // a prime, so that no part repeats another
	rnd := rand.New(rand.NewPCG(seed, uint64(count)))
	for i := range pattern {
		pattern[i] = T(1 + rnd.IntN(3))
	}
	in := make([][]T, ranks)
	for i := range in {
		in[i] = make([]T, count)
		for k := range in[i] {
			in[i][k] = pattern[(k+i*7)%len(pattern)]
		}
	}
	return in
}

// Reduced is op over the ranks' inputs.
func Reduced[T Number](in [][]T, op dist.Op) []T {
	out := slices.Clone(in[0])
	for i := range out {
		for _, v := range in[1:] {
			out[i] = combine(op, out[i], v[i])
		}
		if op == dist.Avg {
			out[i] /= T(len(in))
		}
	}
	return out
}

func combine[T Number](op dist.Op, a, b T) T {
	switch op {
	case dist.Prod:
		return a * b
	case dist.Min:
		return min(a, b)
	case dist.Max:
		return max(a, b)
	}
	return a + b
}

// Calls tries all calls with counts of elements of all types.
func Calls(r Member, seed uint64, counts ...int) error {
	for _, count := range counts {
		if err := First(calls[float32](r, seed, count), calls[float64](r, seed, count), calls[int32](r, seed, count), calls[int64](r, seed, count), calls[uint8](r, seed, count)); err != nil {
			return err
		}
	}
	return nil
}

func calls[T Number](r Member, seed uint64, count int) error {
	n := r.Size()
	in := Inputs[T](seed, n, count)
	part := (count + n - 1) / n
	parts := Inputs[T](seed, n, part*n)
	ops := []dist.Op{dist.Sum, dist.Prod, dist.Min, dist.Max}
	if half := 0.5; T(half) != 0 {
		ops = append(ops, dist.Avg)
	}
	for _, op := range ops {
		reduce := func(dst, src dist.Memory) error { return r.AllReduce(dst, src, op, r.Stream) }
		scatter := func(dst, src dist.Memory) error { return r.ReduceScatter(dst, src, op, r.Stream) }
		err := First(try(r, in[r.Rank()], Reduced(in, op), reduce), inPlace(r, in[r.Rank()], Reduced(in, op), reduce),
			try(r, parts[r.Rank()], Reduced(parts, op)[part*r.Rank():][:part], scatter))
		if err != nil {
			return fmt.Errorf("%v of %d ranks: %w", op, n, err)
		}
	}
	for root := range n {
		f := func(dst, src dist.Memory) error { return r.Broadcast(dst, src, root, r.Stream) }
		if err := First(try(r, in[r.Rank()], in[root], f), inPlace(r, in[r.Rank()], in[root], f)); err != nil {
			return fmt.Errorf("a Broadcast from %d of %d ranks: %w", root, n, err)
		}
	}
	if err := try(r, in[r.Rank()], slices.Concat(in...), func(dst, src dist.Memory) error { return r.AllGather(dst, src, r.Stream) }); err != nil {
		return fmt.Errorf("an AllGather of %d ranks: %w", n, err)
	}
	if n == 1 {
		return nil
	}
	next, before := (r.Rank()+1)%n, (r.Rank()+n-1)%n
	round := func(dst, src dist.Memory) error {
		return r.Group(func() error { return First(r.Recv(dst, before, r.Stream), r.Send(src, next, r.Stream)) })
	}
	if err := try(r, in[r.Rank()], in[before], round); err != nil {
		return fmt.Errorf("a Send and Recv of %d ranks: %w", n, err)
	}
	return nil
}

// try calls f with memory that holds src, and other memory, which has to hold want
// then.
func try[T Number](r Member, src, want []T, f func(dst, src dist.Memory) error) error {
	from, err1 := NewPlace(r, src)
	to, err2 := NewPlace(r, make([]T, len(want)))
	return First(err1, err2, f(to.M, from.M), from.Free(), to.Is(want))
}

// inPlace is try with the same memory.
func inPlace[T Number](r Member, src, want []T, f func(dst, src dist.Memory) error) error {
	p, err := NewPlace(r, src)
	return First(err, f(p.M, p.M), p.Is(want))
}
