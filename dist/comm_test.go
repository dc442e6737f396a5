package dist

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
)

func TestAllReduceOfGradients(t *testing.T) {
	everyWay(t, []int{1, 2, 3, 5, 8}, func(t *testing.T, comms []Comm, pools []*cupool.Caching) {
		for _, count := range []int{0, 1, 7, 1000, 1025, 100_003} {
			got := make([][]float32, len(comms))
			noErrors(t, parallel(len(comms), func(rank int) error {
				src := make([]float32, count)
				for i := range src {
					src[i] = float32(rank + i%10)
				}
				b, err := cupool.BufferFrom(pools[rank], src, nil)
				if err != nil {
					return err
				}
				m, err := Of(b)
				if err != nil {
					return err
				}
				if err := comms[rank].AllReduce(m, m, Sum, nil); err != nil {
					return err
				}
				if got[rank], err = b.ToHost(); err != nil {
					return err
				}
				return b.Free()
			}))
			n := len(comms)
			for rank := range got {
				for i, v := range got[rank] {
					require.Equal(t, float32(n*(n-1)/2+n*(i%10)), v, "rank %d, element %d of %d", rank, i, count)
				}
			}
		}
	})
}
