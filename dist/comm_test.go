package dist_test

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/dist"
	"github.com/cupool/cupool/internal/testkit"
	"github.com/cupool/cupool/internal/testkit/commtest"
)

func TestCollectives(t *testing.T) {
	everyWay(t, []int{1, 2, 3, 5, 8}, func(t *testing.T, ranks []commtest.Member) {
		counts := []int{0, 1, 3, 7, 5000} // fewer than ranks, and what their number does not divide
		if len(ranks) == 2 || testkit.Long() {
			counts = append(counts, dist.Piece/4*3*len(ranks)/2+5) // several pieces
		}
		require.NoError(t, commtest.Each(ranks, func(r commtest.Member) error { return commtest.Calls(r, 1, counts...) }))
	})
}

func TestRandomPrograms(t *testing.T) {
	for range testkit.Rounds(8) {
		seed := rand.Uint64()
		everyWay(t, []int{1, 2, 3}, func(t *testing.T, ranks []commtest.Member) {
			t.Log("seed", seed)
			require.NoError(t, commtest.Each(ranks, func(r commtest.Member) error { return commtest.Program(r, seed, testkit.Choose(200, 40)) }))
		})
	}
}

// Sums are those of the ranks' order, to the bit.
func TestSumsAreInOrder(t *testing.T) {
	everyWay(t, []int{2, 3, 8}, func(t *testing.T, ranks []commtest.Member) {
		const count = dist.Piece + 77
		in := make([][]float32, len(ranks))
		for rank := range in {
			random := rand.New(rand.NewPCG(7, uint64(rank)))
			in[rank] = make([]float32, count)
			for i := range in[rank] {
				in[rank][i] = float32(random.NormFloat64())
			}
		}
		require.NoError(t, commtest.Each(ranks, func(r commtest.Member) error {
			p, err := commtest.NewPlace(r, in[r.Rank()])
			return commtest.First(err, r.AllReduce(p.M, p.M, dist.Avg, r.Stream), p.Is(commtest.Reduced(in, dist.Avg)))
		}))
	})
}

// What a rank gathers from and scatters to may be its part of the other memory.
func TestPartsInPlace(t *testing.T) {
	everyWay(t, []int{1, 2, 3, 5}, func(t *testing.T, ranks []commtest.Member) {
		const count = dist.Piece/4 + 5
		n := len(ranks)
		in := commtest.Inputs[int32](1, n, n*count)
		mine := func(r commtest.Member, all []int32) []int32 { return all[r.Rank()*count:][:count] }
		part := func(r commtest.Member, m dist.Memory) dist.Memory {
			m.Ptr, m.Count = m.Ptr+cupool.Ptr(r.Rank()*count*4), count
			return m
		}
		require.NoError(t, commtest.Each(ranks, func(r commtest.Member) error {
			p, err := commtest.NewPlace(r, in[r.Rank()])
			want := slices.Clone(in[r.Rank()])
			copy(mine(r, want), mine(r, commtest.Reduced(in, dist.Sum)))
			return commtest.First(err, r.ReduceScatter(part(r, p.M), p.M, dist.Sum, r.Stream), p.Is(want))
		}))
		require.NoError(t, commtest.Each(ranks, func(r commtest.Member) error {
			own := make([]int32, n*count)
			copy(mine(r, own), mine(r, in[0]))
			p, err := commtest.NewPlace(r, own)
			return commtest.First(err, r.AllGather(p.M, part(r, p.M), r.Stream), p.Is(in[0]))
		}))
	})
}

// Many AllReduces in a Group are the same as one after the other.
func TestGroupOfManySizes(t *testing.T) {
	everyWay(t, []int{1, 3}, func(t *testing.T, ranks []commtest.Member) {
		require.NoError(t, commtest.Each(ranks, func(r commtest.Member) error {
			var places []commtest.Place[int32]
			var want [][]int32
			err := r.Group(func() error {
				for _, count := range []int{1, 20_000, 3, 5, 4, 0, 7000, 12, 100_000, 2} {
					in := commtest.Inputs[int32](3, r.Size(), count)
					p, err := commtest.NewPlace(r, in[r.Rank()])
					if err := commtest.First(err, r.AllReduce(p.M, p.M, dist.Sum, r.Stream)); err != nil {
						return err
					}
					places, want = append(places, p), append(want, commtest.Reduced(in, dist.Sum))
				}
				return nil
			})
			for i, p := range places {
				err = errors.Join(err, p.Is(want[i]))
			}
			return err
		}))
	})
}

func TestFailedGroup(t *testing.T) {
	everyWay(t, []int{1, 2}, func(t *testing.T, ranks []commtest.Member) {
		require.NoError(t, commtest.Each(ranks, commtest.FailedGroup))
	})
}
