package debug

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool/snapshot"
)

// Those who ask while one is made share the next one.
func TestTurns(t *testing.T) {
	var all turns
	begun, goOn := make(chan struct{}, 30), make(chan struct{})
	made := 0
	take := func() snapshot.Snapshot {
		return all.take(func() snapshot.Snapshot {
			made++
			begun <- struct{}{}
			<-goOn
			return snapshot.Snapshot{Segments: make([]snapshot.Segment, made)}
		})
	}
	first := make(chan int)
	go func() { first <- len(take().Segments) }()
	<-begun
	var wg sync.WaitGroup
	got := make(chan int, 20)
	waiting := all.wait()
	require.True(t, waiting == all.wait(), "one turn for all who ask now")
	for range 20 {
		wg.Go(func() { got <- len(take().Segments) })
	}
	close(goOn)
	require.Equal(t, 1, <-first)
	wg.Wait()
	close(got)
	for n := range got {
		require.Greater(t, n, 1, "made after the call")
	}
	last := made
	require.Len(t, take().Segments, last+1)
}
