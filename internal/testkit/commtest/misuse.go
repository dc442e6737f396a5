package commtest

import (
	"errors"
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/dist"
)

// Misuse makes calls that cannot be made, on one rank, with a stream of another
// device. They change nothing.
func Misuse(t *testing.T, r Member, foreign *cupool.Stream) {
	t.Helper()
	p, err := NewPlace(r, make([]int32, 12))
	require.NoError(t, err)
	m, n := p.M, r.Size()
	short, part, floats, untyped := m, m, m, m
	short.Count, part.Count, floats.Type, untyped.Type = 11, 12/n, dist.Float32, dist.Uint8+1
	closed, err := r.Pool.NewStream()
	require.NoError(t, err)
	require.NoError(t, closed.Close())
	for want, errs := range map[error][]error{
		cupool.ErrSizeMismatch: {
			r.AllReduce(m, short, dist.Sum, nil), r.Broadcast(m, short, r.Rank(), nil), r.AllGather(m, short, nil),
			r.ReduceScatter(short, m, dist.Sum, nil), r.AllReduce(m, floats, dist.Sum, nil),
		},
		cupool.ErrNotSupported: {
			r.AllReduce(m, m, dist.Avg, nil), r.AllReduce(m, m, dist.Op(9), nil), r.ReduceScatter(part, m, -1, nil),
			r.AllReduce(untyped, untyped, dist.Sum, nil), r.Broadcast(untyped, untyped, 0, nil), r.AllReduce(dist.Memory{}, dist.Memory{}, dist.Sum, nil),
		},
		cupool.ErrForeignStream: {r.AllReduce(m, m, dist.Sum, foreign)},
		cupool.ErrClosed:        {r.AllReduce(m, m, dist.Sum, closed)},
		dist.ErrRank:            {r.Broadcast(m, m, n, nil), r.Broadcast(m, m, -1, nil), r.Send(m, n, nil), r.Recv(m, -1, nil)},
	} {
		for i, err := range errs {
			require.ErrorIs(t, err, want, "%d", i)
		}
	}
	require.ErrorIs(t, r.Group(nil), cupool.ErrInvalidHandle)
	for name, bad := range outside(t, m) {
		for call, err := range callsOf(r, bad) {
			require.Error(t, err, "%s, %s", call, name)
			require.NotErrorIs(t, err, dist.ErrRank, "%s, %s", call, name)
		}
	}
	require.NoError(t, r.Err())
	require.NoError(t, p.Is(make([]int32, 12)))
	for call, err := range callsOf(r, part) {
		require.ErrorIs(t, err, cupool.ErrUseAfterFree, call)
	}
	for call, err := range callsOf(r, dist.Memory{Ptr: part.Ptr, Count: part.Count, Type: part.Type}) {
		require.ErrorIs(t, err, cupool.ErrUseAfterFree, "%s, by hand", call)
	}
}

// outside are memories that are not all inside the buffer m, or inside no block of the rank's
// device.
func outside(t *testing.T, m dist.Memory) map[string]dist.Memory {
	t.Helper()
	bad := map[string]dist.Memory{}
	byHand := dist.Memory{Ptr: m.Ptr, Count: m.Count, Type: m.Type}
	for kind, m := range map[string]dist.Memory{"": m, "by hand: ": byHand} {
		for _, count := range []int{m.Count + 1, 1 << 20, math.MaxInt, math.MaxInt - 1, math.MaxInt/2 + 1, math.MaxInt/4 + 1, -1, math.MinInt} {
			long := m
			long.Count = count
			bad[fmt.Sprint(kind, "count ", count)] = long
		}
		for name, by := range map[string]cupool.Ptr{"before": -cupool.Ptr(m.Bytes()), "a little before": ^cupool.Ptr(3), "a little behind": 4, "at the end": cupool.Ptr(m.Bytes()), "far": 1 << 60} {
			moved := m
			moved.Ptr += by
			bad[kind+name] = moved
		}
		wide := m
		wide.Type = dist.Float64
		bad[kind+"a wider type"] = wide
		nowhere := m
		nowhere.Ptr = 0
		bad[kind+"no address"] = nowhere
	}
	d, err := cupool.OpenHost(cupool.HostConfig{})
	require.NoError(t, err)
	pool, err := cupool.New(cupool.Config{Driver: d})
	require.NoError(t, err)
	other, err := NewPlace(Member{Pool: pool}, make([]int32, 12))
	require.NoError(t, err)
	bad["another pool's"] = other.M
	bad["another pool's, by hand"] = dist.Memory{Ptr: other.M.Ptr, Count: other.M.Count, Type: other.M.Type}
	t.Cleanup(func() { require.NoError(t, First(other.Free(), pool.Close(), d.Close())) })
	return bad
}

// callsOf makes every call with m as each memory, of sizes that fit.
func callsOf(r Member, m dist.Memory) map[string]error {
	n := r.Size()
	times := m
	times.Count = m.Count * n
	errs := map[string]error{
		"AllReduce":     r.AllReduce(m, m, dist.Sum, nil),
		"Broadcast":     r.Broadcast(m, m, r.Rank(), nil),
		"AllGather":     r.AllGather(times, m, nil),
		"ReduceScatter": r.ReduceScatter(m, times, dist.Sum, nil),
	}
	if n > 1 {
		errs["Send"], errs["Recv"] = r.Send(m, (r.Rank()+1)%n, nil), r.Recv(m, (r.Rank()+1)%n, nil)
	}
	return errs
}

// FailedGroup has the function of a Group fail, and panic: nothing is called.
func FailedGroup(r Member) error {
	p, err := NewPlace(r, []int32{int32(r.Rank()), 1})
	if err != nil {
		return err
	}
	failed := errors.New("the group's function failed")
	f := func() error { return First(r.AllReduce(p.M, p.M, dist.Max, r.Stream), failed) }
	if err := r.Group(f); !errors.Is(err, failed) {
		return errors.Join(errors.New("another error than the function's"), err)
	}
	func() {
		defer func() { _ = recover() }()
		_ = r.Group(func() error { _ = f(); panic("f") })
	}()
	q, err := NewPlace(r, []int32{2})
	reduce := func() error { return r.AllReduce(q.M, q.M, dist.Sum, r.Stream) }
	err = First(err, reduce(), r.Group(func() error { return nil }), r.Group(reduce))
	return First(err, q.Is([]int32{int32(2 * r.Size() * r.Size())}), p.Is([]int32{int32(r.Rank()), 1}))
}
