package cupool

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// What several goroutines push comes out once, the newest of each first.
func TestLaterStack(t *testing.T) {
	var s laterStack
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for j := range 1000 {
				s.push(Block{size: int64(1000*i + j)})
			}
		})
	}
	seen := map[int]bool{}
	last := map[int]int{}
	note := func(b Block) {
		n := int(b.size)
		require.False(t, seen[n])
		seen[n] = true
	}
	s.drain(note) // while they push
	wg.Wait()
	s.drain(func(b Block) {
		note(b)
		n := int(b.size)
		if before, ok := last[n/1000]; ok {
			require.Less(t, n, before)
		}
		last[n/1000] = n
	})
	require.Len(t, seen, 8000)
	s.drain(func(Block) { t.Error("nothing is left") })
}
