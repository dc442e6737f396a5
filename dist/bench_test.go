package dist

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
)

// BenchmarkAllReduce reports how fast the ranks of this machine add up what they
// have, in bytes of one rank's memory a second. memcpy is the speed at which one
// core copies as much.
func BenchmarkAllReduce(b *testing.B) {
	for _, size := range []int{4 << 10, 1 << 20, 64 << 20} {
		b.Run(fmt.Sprintf("memcpy/%dKiB", size>>10), func(b *testing.B) {
			from, to := aligned(int64(size)), aligned(int64(size))
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
	comms, pools := group(b, n, newPool)
	mems := make([]Memory, n)
	for rank := range n {
		buf, err := cupool.NewBuffer[float32](pools[rank], size/4, nil)
		require.NoError(b, err)
		require.NoError(b, buf.Memset(0))
		mems[rank], err = Of(buf)
		require.NoError(b, err)
		b.Cleanup(func() { _ = buf.Free() })
	}
	b.SetBytes(int64(size))
	b.ReportAllocs()
	for b.Loop() {
		for rank, c := range comms { // the streams do the work
			if err := c.AllReduce(mems[rank], mems[rank], Sum, nil); err != nil {
				b.Fatal(err)
			}
		}
		for _, p := range pools {
			if err := p.DefaultStream().Sync(); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.StopTimer()
	for _, c := range comms {
		require.NoError(b, c.Close())
	}
}
