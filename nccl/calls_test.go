//go:build gpu

package nccl_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"gorgonia.org/tensor"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/cuda"
	"github.com/cupool/cupool/dist"
	"github.com/cupool/cupool/internal/testkit"
	"github.com/cupool/cupool/internal/testkit/enginetest"
	"github.com/cupool/cupool/nccl"
)

type number interface {
	float32 | float64 | int32 | int64 | uint8
}

// groups returns the sizes of the groups that a test makes, as far as there are
// GPUs.
func groups(t testing.TB) []int {
	t.Helper()
	gpus, err := cuda.Devices()
	require.NoError(t, err)
	return slices.DeleteFunc(testkit.Choose([]int{1, 2, 3, 4, 5, 6, 7, 8}, []int{1, 2, 8}), func(n int) bool { return n > len(gpus) })
}

// TestCalls compares every call, for every type and operation, in place and not,
// with a plain computation.
func TestCalls(t *testing.T) {
	for _, n := range groups(t) {
		t.Run(fmt.Sprintf("%d ranks", n), func(t *testing.T) {
			ranks := newRanks(t, n, nccl.Config{})
			seed := testkit.Rand(t).Uint64()
			require.NoError(t, each(ranks, func(r rank) error { return allTypes(r, seed) }))
		})
	}
}

func allTypes(r rank, seed uint64) error {
	s, err := r.pool.NewStream()
	if err != nil {
		return err
	}
	for _, count := range []int{0, 1, 1000, testkit.Choose(150_001, 40_001)} {
		if err := first(callsOf[float32](r, s, seed, count), callsOf[float64](r, s, seed, count), callsOf[int32](r, s, seed, count),
			callsOf[int64](r, s, seed, count), callsOf[uint8](r, s, seed, count)); err != nil {
			return err
		}
	}
	return first(s.Close(), r.Close())
}

func first(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// inputs returns what each rank has: small numbers, so that sums and products
// are exact.
func inputs[T number](seed uint64, ranks, count int) [][]T {
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

// reduced is op over the ranks' inputs.
func reduced[T number](in [][]T, op dist.Op) []T {
	out := slices.Clone(in[0])
	for i := range out {
		for _, v := range in[1:] {
			switch op {
			case dist.Sum, dist.Avg:
				out[i] += v[i]
			case dist.Prod:
				out[i] *= v[i]
			case dist.Min:
				out[i] = min(out[i], v[i])
			case dist.Max:
				out[i] = max(out[i], v[i])
			}
		}
		if op == dist.Avg {
			out[i] /= T(len(in))
		}
	}
	return out
}

func operations[T number]() []dist.Op {
	list := []dist.Op{dist.Sum, dist.Prod, dist.Min, dist.Max}
	if half := 0.5; T(half) != 0 {
		list = append(list, dist.Avg)
	}
	return list
}

// A place is device memory of a test, with its Memory.
type place[T number] struct {
	b *cupool.Buffer[T]
	m dist.Memory
}

func newPlace[T number](r rank, s *cupool.Stream, values []T) (p place[T], err error) {
	if p.b, err = cupool.NewBuffer[T](r.pool, len(values), s); err != nil {
		return p, err
	}
	if p.m, err = dist.Of(p.b); err != nil {
		return p, err
	}
	return p, p.b.CopyFrom(values)
}

// is frees the memory when it holds what it should.
func (p place[T]) is(what string, want []T) error {
	got, err := p.b.ToHost()
	if err != nil {
		return err
	}
	for i := range want {
		if d := math.Abs(float64(got[i]) - float64(want[i])); d > 1e-6*math.Abs(float64(want[i])) {
			return fmt.Errorf("%s of %T: element %d of %d is %v, not %v", what, want, i, len(want), got[i], want[i])
		}
	}
	return p.b.Free()
}

// callsOf tries all calls with count elements of a type.
func callsOf[T number](r rank, s *cupool.Stream, seed uint64, count int) error {
	for _, op := range operations[T]() {
		if err := first(allReduce[T](r, s, seed, count, op), reduceScatter[T](r, s, seed, count, op)); err != nil {
			return fmt.Errorf("operation %d, %d elements: %w", op, count, err)
		}
	}
	for root := range r.Size() {
		if err := broadcast[T](r, s, seed, count, root); err != nil {
			return err
		}
	}
	return allGather[T](r, s, seed, count)
}

func allReduce[T number](r rank, s *cupool.Stream, seed uint64, count int, op dist.Op) error {
	in := inputs[T](seed, r.Size(), count)
	src, err1 := newPlace(r, s, in[r.Rank()])
	dst, err2 := newPlace(r, s, make([]T, count))
	if err := first(err1, err2, r.AllReduce(dst.m, src.m, op, s), r.AllReduce(src.m, src.m, op, s)); err != nil {
		return err
	}
	want := reduced(in, op)
	return first(dst.is("all-reduce", want), src.is("all-reduce in place", want))
}

func reduceScatter[T number](r rank, s *cupool.Stream, seed uint64, count int, op dist.Op) error {
	in := inputs[T](seed, r.Size(), count*r.Size())
	src, err1 := newPlace(r, s, in[r.Rank()])
	dst, err2 := newPlace(r, s, make([]T, count))
	if err := first(err1, err2, r.ReduceScatter(dst.m, src.m, op, s)); err != nil {
		return err
	}
	return first(dst.is("reduce-scatter", reduced(in, op)[count*r.Rank():][:count]), src.b.Free())
}

func broadcast[T number](r rank, s *cupool.Stream, seed uint64, count, root int) error {
	in := inputs[T](seed, r.Size(), count)
	src, err1 := newPlace(r, s, in[r.Rank()])
	dst, err2 := newPlace(r, s, make([]T, count))
	if err := first(err1, err2, r.Broadcast(dst.m, src.m, root, s), r.Broadcast(src.m, src.m, root, s)); err != nil {
		return err
	}
	return first(dst.is("broadcast", in[root]), src.is("broadcast in place", in[root]))
}

func allGather[T number](r rank, s *cupool.Stream, seed uint64, count int) error {
	in := inputs[T](seed, r.Size(), count)
	src, err1 := newPlace(r, s, in[r.Rank()])
	dst, err2 := newPlace(r, s, make([]T, count*r.Size()))
	if err := first(err1, err2, r.AllGather(dst.m, src.m, s)); err != nil {
		return err
	}
	return first(dst.is("all-gather", slices.Concat(in...)), src.b.Free())
}

// TestRing sends to the next rank and receives from the one before, in a group,
// more than fits anywhere in between.
func TestRing(t *testing.T) {
	for _, n := range groups(t) {
		ranks := newRanks(t, n, nccl.Config{})
		seed := testkit.Rand(t).Uint64()
		require.NoError(t, each(ranks, func(r rank) error {
			in := inputs[float64](seed, n, 100_000)
			next, before := (r.Rank()+1)%n, (r.Rank()+n-1)%n
			src, err1 := newPlace(r, nil, in[r.Rank()])
			dst, err2 := newPlace(r, nil, make([]float64, len(in[0])))
			sum, err3 := newPlace(r, nil, in[r.Rank()])
			err4 := r.Group(func() error {
				return first(r.Send(src.m, next, nil), r.Recv(dst.m, before, nil), r.AllReduce(sum.m, sum.m, dist.Sum, nil))
			})
			return first(err1, err2, err3, err4, src.is("sent", in[r.Rank()]), dst.is("received", in[before]), sum.is("sum", reduced(in, dist.Sum)))
		}))
	}
}

// TestSendRecv has calls that are no group, in an order that works: even ranks
// send first.
func TestSendRecv(t *testing.T) {
	ranks := newRanks(t, 2, nccl.Config{})
	require.NoError(t, each(ranks, func(r rank) error {
		p, err := newPlace(r, nil, []int32{int32(r.Rank()), 7})
		if r.Rank() == 0 {
			return first(err, r.Send(p.m, 1, nil), r.Recv(p.m, 1, nil), p.is("back", []int32{0, 7}))
		}
		return first(err, r.Recv(p.m, 0, nil), r.Send(p.m, 0, nil), p.is("sent on", []int32{0, 7}))
	}))
}

// TestGroupFails queues nothing where the function of a group fails or panics.
func TestGroupFails(t *testing.T) {
	r := newRanks(t, 1, nccl.Config{})[0]
	p, err := newPlace(r, nil, []float32{1, 2})
	require.NoError(t, err)
	q, err := newPlace(r, nil, []float32{3, 4})
	require.NoError(t, err)
	failed := fmt.Errorf("failed")
	f := func() error { return first(r.AllReduce(p.m, q.m, dist.Sum, nil), failed) }
	require.ErrorIs(t, r.Group(f), failed)
	require.Panics(t, func() { _ = r.Group(func() error { _ = f(); panic("f") }) })
	require.NoError(t, r.Group(func() error { return nil }))
	require.NoError(t, p.is("after failed groups", []float32{1, 2}))
	require.NoError(t, r.Group(func() error { return r.AllReduce(q.m, q.m, dist.Sum, nil) }))
	require.NoError(t, q.is("after a group", []float32{3, 4}))
}

// TestStreams gives calls to two streams in turn: they are done in the order of
// the calls on all ranks.
func TestStreams(t *testing.T) {
	for _, n := range groups(t) {
		ranks := newRanks(t, n, nccl.Config{})
		require.NoError(t, each(ranks, func(r rank) error {
			a, err1 := r.pool.NewStream()
			b, err2 := r.pool.NewStream()
			p, err3 := newPlace(r, a, []int64{1})
			q, err4 := newPlace(r, b, []int64{2})
			if err := first(err1, err2, err3, err4); err != nil {
				return err
			}
			p2, q2 := int64(1), int64(2)
			for range 20 {
				if err := first(r.AllReduce(p.m, p.m, dist.Sum, a), r.AllReduce(q.m, q.m, dist.Max, b)); err != nil {
					return err
				}
				p2 *= int64(n)
			}
			return first(p.is("sums", []int64{p2}), q.is("maxima", []int64{q2}))
		}))
	}
}

// TestFreedAtOnce frees memory of one stream that a call on another uses, and has
// the first stream write to the same memory.
func TestFreedAtOnce(t *testing.T) {
	for _, n := range groups(t) {
		ranks := newRanks(t, n, nccl.Config{})
		seed := testkit.Rand(t).Uint64()
		require.NoError(t, each(ranks, func(r rank) error {
			const count = 1 << 18
			in := inputs[float32](seed, n, count)
			s, err := r.pool.NewStream()
			if err != nil {
				return err
			}
			for range 5 {
				src, err1 := newPlace(r, nil, in[r.Rank()])
				dst, err2 := newPlace(r, s, make([]float32, count))
				if err := first(err1, err2, r.pool.DefaultStream().Sync(), r.AllReduce(dst.m, src.m, dist.Sum, s), src.b.Free()); err != nil {
					return err
				}
				other, err := cupool.NewBuffer[float32](r.pool, count, nil)
				if err := first(err, r.pool.DefaultStream().Memset(other.Ptr(), 0xff, other.Bytes())); err != nil {
					return err
				}
				if err := first(dst.is("sum of freed memory", reduced(in, dist.Sum)), other.Free()); err != nil {
					return err
				}
			}
			return s.Close()
		}))
	}
}

// TestTensors reduces tensors of an engine, which are freed at once.
func TestTensors(t *testing.T) {
	for _, n := range groups(t) {
		ranks := newRanks(t, n, nccl.Config{})
		require.NoError(t, each(ranks, func(r rank) error {
			e, err := cupool.NewEngine(r.pool)
			if err != nil {
				return err
			}
			x := tensor.New(tensor.WithEngine(e), tensor.WithShape(3, 5), tensor.Of(tensor.Float64))
			if err := e.Memset(x, float64(r.Rank()+1)); err != nil {
				return err
			}
			m, err := dist.OfTensor(x)
			if err := first(err, r.AllReduce(m, m, dist.Sum, e.Stream())); err != nil {
				return err
			}
			host, err := e.ToHost(x)
			if err != nil {
				return err
			}
			for _, v := range enginetest.FloatsOf(host) {
				if v != float64(n*(n+1)/2) {
					return fmt.Errorf("sum of tensors is %v", host)
				}
			}
			return e.FreeTensor(x)
		}))
	}
}
