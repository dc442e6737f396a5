//go:build gpu

package nccl_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool/dist"
	"github.com/cupool/cupool/nccl"
)

func TestAllReduce(t *testing.T) {
	for _, n := range []int{1, 2, 8} {
		ranks := newRanks(t, n, nccl.Config{})
		require.NoError(t, each(ranks, func(r rank) error {
			s, err := r.pool.NewStream()
			if err != nil {
				return err
			}
			in := make([]float32, 100_000)
			for i := range in {
				in[i] = float32(i + r.Rank())
			}
			b, m, err := upload(r, s, in)
			if err != nil {
				return err
			}
			if err := r.AllReduce(m, m, dist.Sum, s); err != nil {
				return err
			}
			got, err := b.ToHost()
			for i, v := range got {
				if want := float32(n*i + n*(n-1)/2); v != want {
					return errors.Join(err, errors.New("wrong"))
				}
			}
			return errors.Join(err, b.Free(), r.Close())
		}))
	}
}
