package later

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// What several goroutines push comes out once, the newest of each first.
func TestStack(t *testing.T) {
	var s Stack[int]
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for j := range 1000 {
				s.Push(1000*i + j)
			}
		})
	}
	seen := map[int]bool{}
	last := map[int]int{}
	note := func(n int) {
		require.False(t, seen[n])
		seen[n] = true
	}
	s.Drain(note) // while they push
	wg.Wait()
	s.Drain(func(n int) {
		note(n)
		if before, ok := last[n/1000]; ok {
			require.Less(t, n, before)
		}
		last[n/1000] = n
	})
	require.Len(t, seen, 8000)
	s.Drain(func(int) { t.Error("nothing is left") })
}
