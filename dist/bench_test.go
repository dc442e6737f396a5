package dist_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool/dist"
	"github.com/cupool/cupool/internal/testkit/commtest"
)

// BenchmarkAllReduce reports how fast the ranks of a process add up what they have,
// in bytes of one rank's memory a second. copy is the speed at which one core
// copies as much.
func BenchmarkAllReduce(b *testing.B) {
	for _, size := range []int{4 << 10, 1 << 20, 64 << 20} {
		b.Run(fmt.Sprintf("copy/%dKiB", size>>10), func(b *testing.B) {
			from, to := make([]byte, size), make([]byte, size)
			copy(to, from) // the pages are there
			b.SetBytes(int64(size))
			for b.Loop() {
				copy(to, from)
			}
		})
		for _, n := range []int{2, 8} {
			b.Run(fmt.Sprintf("ranks=%d/%dKiB", n, size>>10), func(b *testing.B) { benchAllReduce(b, n, size) })
		}
	}
}

func benchAllReduce(b *testing.B, n, size int) {
	ranks := group(b, n, newPool)
	places := make([]commtest.Place[float32], n)
	for i, r := range ranks {
		var err error
		places[i], err = commtest.NewPlace(r, make([]float32, size/4))
		require.NoError(b, err)
	}
	b.SetBytes(int64(size))
	b.ReportAllocs()
	for b.Loop() {
		for i, r := range ranks { // the streams do the work
			if err := r.AllReduce(places[i].M, places[i].M, dist.Sum, r.Stream); err != nil {
				b.Fatal(err)
			}
		}
		for _, r := range ranks {
			if err := r.Stream.Sync(); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.StopTimer()
	for _, p := range places {
		require.NoError(b, p.Free())
	}
	require.NoError(b, commtest.Close(ranks))
}
