package dist_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/dist"
	"github.com/cupool/cupool/internal/testkit/commtest"
)

// queueOn queues what f calls on memory of a rank, and returns the error of the call
// or, when the stream is done, of the Comm.
func queueOn(r commtest.Member, f func(m dist.Memory) error) error {
	p, err := commtest.NewPlace(r, make([]int32, 100))
	if err != nil {
		return err
	}
	defer p.Free()
	return commtest.First(f(p.M), r.Stream.Sync(), r.Err())
}

func sum(r commtest.Member) error {
	return queueOn(r, func(m dist.Memory) error { return r.AllReduce(m, m, dist.Sum, r.Stream) })
}

// each calls f for all ranks at once, and returns the error of each.
func each(ranks []commtest.Member, f func(r commtest.Member) error) []error {
	errs := make([]error, len(ranks))
	_ = commtest.Each(ranks, func(r commtest.Member) error { errs[r.Rank()] = f(r); return nil })
	return errs
}

// Ranks that call different things are told so, all of them.
func TestMismatchesAreFound(t *testing.T) {
	type calls func(r commtest.Member, m dist.Memory) error
	reduce := func(r commtest.Member, m dist.Memory) error { return r.AllReduce(m, m, dist.Sum, r.Stream) }
	twice := func(r commtest.Member, m dist.Memory) error {
		m.Count /= 2
		n := m
		n.Ptr += cupool.Ptr(m.Bytes())
		return r.Group(func() error { return commtest.First(reduce(r, m), reduce(r, n)) })
	}
	for name, test := range map[string]struct{ rank0, others calls }{
		"counts":     {func(r commtest.Member, m dist.Memory) error { m.Count--; return reduce(r, m) }, reduce},
		"types":      {func(r commtest.Member, m dist.Memory) error { m.Type = dist.Float32; return reduce(r, m) }, reduce},
		"operations": {func(r commtest.Member, m dist.Memory) error { return r.AllReduce(m, m, dist.Max, r.Stream) }, reduce},
		"methods":    {func(r commtest.Member, m dist.Memory) error { return r.Broadcast(m, m, 0, r.Stream) }, reduce},
		"groups":     {func(r commtest.Member, m dist.Memory) error { m.Count /= 2; return reduce(r, m) }, twice},
		"roots": {
			func(r commtest.Member, m dist.Memory) error { return r.Broadcast(m, m, 0, r.Stream) },
			func(r commtest.Member, m dist.Memory) error { return r.Broadcast(m, m, 1, r.Stream) },
		},
		"what is sent": {
			func(r commtest.Member, m dist.Memory) error { m.Count = 5; return r.Send(m, 1, r.Stream) },
			func(r commtest.Member, m dist.Memory) error { return r.Recv(m, 0, r.Stream) },
		},
		"a Send that nobody waits for": {
			func(r commtest.Member, m dist.Memory) error {
				return commtest.First(r.Send(m, 1, r.Stream), reduce(r, m))
			}, reduce,
		},
		"a Recv of what nobody sends": {
			func(r commtest.Member, m dist.Memory) error {
				return commtest.First(r.Recv(m, 1, r.Stream), reduce(r, m))
			}, reduce,
		},
	} {
		for _, w := range ways {
			t.Run(w.name+" "+name, func(t *testing.T) {
				ranks := group(t, 3, w.pool)
				errs := each(ranks, func(r commtest.Member) error {
					f := test.others
					if r.Rank() == 0 {
						f = test.rank0
					}
					return queueOn(r, func(m dist.Memory) error { return f(r, m) })
				})
				for i, r := range ranks {
					if errs[i] == nil { // it had done its part, and is told
						errs[i] = r.Err()
					}
					require.True(t, errors.Is(errs[i], cupool.ErrSizeMismatch) || errors.Is(errs[i], dist.ErrRank), "%v", errs[i])
					require.EqualError(t, sum(r), r.Err().Error(), "later calls")
					require.Error(t, r.Close())
				}
				require.ErrorIs(t, errors.Join(errs...), cupool.ErrSizeMismatch)
				if say := map[string]string{"operations": "AllReduce of 100 int32 elements (max)", "roots": "Broadcast of 100 int32 elements from rank 0"}[name]; say != "" {
					require.ErrorContains(t, errors.Join(errs...), say)
				}
			})
		}
	}
}

// What cannot be is refused before anything is queued, and changes nothing.
func TestCallsAreChecked(t *testing.T) {
	everyWay(t, []int{1, 3}, func(t *testing.T, ranks []commtest.Member) {
		r := ranks[0]
		other, err := newPool(t).NewStream()
		require.NoError(t, err)
		commtest.Misuse(t, r, other)
		p, err := commtest.NewPlace(r, make([]int32, 12))
		require.NoError(t, err)
		odd, long, none := p.M, p.M, p.M
		odd.Type, long.Count, none.Ptr = 77, 13, 0
		require.ErrorIs(t, r.AllReduce(odd, odd, dist.Sum, nil), cupool.ErrNotSupported)
		require.ErrorIs(t, r.AllReduce(long, long, dist.Sum, nil), cupool.ErrInvalidRange)
		require.ErrorIs(t, r.AllReduce(none, none, dist.Sum, nil), cupool.ErrInvalidHandle)
		short := p.M
		short.Count = 11
		for call, err := range map[string]error{
			"AllReduce": r.AllReduce(p.M, short, dist.Sum, nil), "Broadcast": r.Broadcast(p.M, short, 0, nil), "AllGather": r.AllGather(p.M, short, nil),
			"ReduceScatter": r.ReduceScatter(short, p.M, dist.Sum, nil), "Send": r.Send(p.M, 7, nil), "Recv": r.Recv(p.M, 8, nil),
		} {
			require.ErrorContains(t, err, "dist: "+call+" of rank 0", call)
		}
		require.ErrorContains(t, r.Broadcast(p.M, p.M, 9, nil), fmt.Sprintf("dist: Broadcast of rank 0, with rank 9 of %d", r.Size()))
		require.ErrorContains(t, r.AllReduce(p.M, short, dist.Sum, nil), fmt.Sprintf("of %d ranks: dst is 12 int32 elements, src 11 int32", r.Size()))
		require.ErrorIs(t, r.Send(p.M, 0, nil), dist.ErrRank, "to itself")
		require.ErrorIs(t, r.Recv(p.M, 0, nil), dist.ErrRank, "from itself")
		require.NoError(t, p.Free())
		require.NoError(t, commtest.Each(ranks, sum))
	})
	for _, pools := range [][]*cupool.Pool{nil, {newPool(t), nil}} {
		_, err := dist.Local(pools...)
		require.ErrorIs(t, err, cupool.ErrInvalidConfig)
	}
}

// A rank that does not come ends all, and is named.
func TestLateRank(t *testing.T) {
	eachWay(t, func(t *testing.T, w way) {
		ranks := groupWithin(t, 500*time.Millisecond, 3, w.pool)
		for _, err := range each(ranks, func(r commtest.Member) error {
			for r.Rank() == 1 && r.Err() == nil {
				time.Sleep(time.Millisecond) // comes when it is too late
			}
			return sum(r)
		}) {
			require.ErrorIs(t, err, dist.ErrRank)
			require.ErrorContains(t, err, "for rank 1: ")
			require.ErrorContains(t, err, "late")
		}
	})
}

// A rank that is aborted ends all, also those that are idle, and is named.
func TestAbort(t *testing.T) {
	eachWay(t, func(t *testing.T, w way) {
		ranks := group(t, 4, w.pool)
		errs := each(ranks, func(r commtest.Member) error {
			switch r.Rank() {
			case 1:
				return r.Abort()
			case 3:
				return nil
			}
			return sum(r)
		})
		require.NoError(t, errs[1])
		require.ErrorIs(t, ranks[1].Err(), cupool.ErrClosed)
		require.NoError(t, ranks[1].Close())
		require.NoError(t, errs[3])
		errs[3] = ranks[3].Err()
		for _, rank := range []int{0, 2, 3} {
			require.ErrorIs(t, errs[rank], dist.ErrRank)
			require.NotErrorIs(t, errs[rank], cupool.ErrClosed, "that is not this rank's")
			require.ErrorContains(t, errs[rank], "rank 1 was aborted")
			require.Error(t, ranks[rank].Close())
			require.ErrorIs(t, ranks[rank].Close(), cupool.ErrClosed)
		}
	})
}

// Nobody waits for a rank that has closed its Comm, but it has waited for what it
// had queued.
func TestClose(t *testing.T) {
	eachWay(t, func(t *testing.T, w way) {
		ranks := group(t, 2, w.pool)
		errs := each(ranks, func(r commtest.Member) error {
			p, err := commtest.NewPlace(r, []int32{1, 2})
			err = commtest.First(err, r.AllReduce(p.M, p.M, dist.Sum, r.Stream))
			if r.Rank() == 1 {
				return errors.Join(commtest.First(err, p.Is([]int32{2, 4})), sum(r))
			}
			return errors.Join(err, r.Close(), p.Free())
		})
		require.NoError(t, errs[0])
		require.ErrorIs(t, sum(ranks[0]), cupool.ErrClosed)
		require.ErrorIs(t, errs[1], dist.ErrRank)
		require.ErrorContains(t, errs[1], "rank 0, which has closed its Comm")
	})
}
