package commtest

import (
	"errors"
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
	short, part, floats := m, m, m
	short.Count, part.Count, floats.Type = 11, 12/n, dist.Float32
	closed, err := r.Pool.NewStream()
	require.NoError(t, err)
	require.NoError(t, closed.Close())
	for want, errs := range map[error][]error{
		cupool.ErrSizeMismatch: {
			r.AllReduce(m, short, dist.Sum, nil), r.Broadcast(m, short, r.Rank(), nil), r.AllGather(m, short, nil),
			r.ReduceScatter(short, m, dist.Sum, nil), r.AllReduce(m, floats, dist.Sum, nil),
		},
		cupool.ErrNotSupported:  {r.AllReduce(m, m, dist.Avg, nil), r.AllReduce(m, m, dist.Op(9), nil), r.ReduceScatter(part, m, -1, nil)},
		cupool.ErrForeignStream: {r.AllReduce(m, m, dist.Sum, foreign)},
		cupool.ErrClosed:        {r.AllReduce(m, m, dist.Sum, closed)},
		dist.ErrRank:            {r.Broadcast(m, m, n, nil), r.Broadcast(m, m, -1, nil), r.Send(m, n, nil), r.Recv(m, -1, nil)},
	} {
		for i, err := range errs {
			require.ErrorIs(t, err, want, "%d", i)
		}
	}
	require.NoError(t, p.Is(make([]int32, 12)))
	require.ErrorIs(t, r.AllReduce(m, m, dist.Sum, nil), cupool.ErrUseAfterFree)
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
	if err := r.Group(func() error { return nil }); err != nil {
		return err
	}
	q, err := NewPlace(r, []int32{2})
	reduce := func() error { return r.AllReduce(q.M, q.M, dist.Sum, r.Stream) }
	return First(err, r.Group(reduce), q.Is([]int32{int32(2 * r.Size())}), p.Is([]int32{int32(r.Rank()), 1}))
}
