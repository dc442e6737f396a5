package nccl_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/dist"
	"github.com/cupool/cupool/internal/testkit"
	"github.com/cupool/cupool/internal/testkit/commtest"
	"github.com/cupool/cupool/nccl"
)

// TestCalls has every call, for every type and operation, and random programs on
// several streams.
func TestCalls(t *testing.T) {
	for _, n := range groups(t) {
		t.Run(fmt.Sprintf("%d ranks", n), func(t *testing.T) {
			ranks := newRanks(t, n, nccl.Config{})
			seed := testkit.Rand(t).Uint64()
			require.NoError(t, each(ranks, func(r rank) error {
				return commtest.First(commtest.Calls(r.Member, seed, 0, 1, 1000, testkit.Choose(150_001, 40_001)), commtest.Program(r.Member, seed, testkit.Choose(200, 40)), r.Close())
			}))
		})
	}
}

// TestSendRecv has calls that are no group, in an order that works: even ranks
// send first.
func TestSendRecv(t *testing.T) {
	ranks := newRanks(t, 2, nccl.Config{})
	require.NoError(t, each(ranks, func(r rank) error {
		p, err := commtest.NewPlace(r.Member, []int32{int32(r.Rank()), 7})
		if r.Rank() == 0 {
			return commtest.First(err, r.Send(p.M, 1, r.Stream), r.Recv(p.M, 1, r.Stream), p.Is([]int32{0, 7}))
		}
		return commtest.First(err, r.Recv(p.M, 0, r.Stream), r.Send(p.M, 0, r.Stream), p.Is([]int32{0, 7}))
	}))
}

func TestGroupFails(t *testing.T) {
	require.NoError(t, commtest.FailedGroup(newRanks(t, 1, nccl.Config{})[0].Member))
}

// TestFreedAtOnce frees memory of one stream that a call on another uses, and has
// the first stream write to the same memory.
func TestFreedAtOnce(t *testing.T) {
	for _, n := range groups(t) {
		ranks := newRanks(t, n, nccl.Config{})
		seed := testkit.Rand(t).Uint64()
		require.NoError(t, each(ranks, func(r rank) error {
			const count = 1 << 18
			in := commtest.Inputs[float32](seed, n, count)
			owner := r.Member
			owner.Stream = r.Pool.DefaultStream()
			for range 5 {
				src, err1 := commtest.NewPlace(owner, in[r.Rank()])
				dst, err2 := commtest.NewPlace(r.Member, make([]float32, count))
				if err := commtest.First(err1, err2, owner.Stream.Sync(), r.AllReduce(dst.M, src.M, dist.Sum, r.Stream), src.Free()); err != nil {
					return err
				}
				other, err := cupool.NewBuffer[float32](r.Pool, count, nil)
				if err := commtest.First(err, owner.Stream.Memset(other.Ptr(), 0xff, other.Bytes())); err != nil {
					return err
				}
				if err := commtest.First(dst.Is(commtest.Reduced(in, dist.Sum)), other.Free()); err != nil {
					return err
				}
			}
			return nil
		}))
	}
}
