package hostdev_test

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool/device"
)

func TestStreamRunsInOrder(t *testing.T) {
	d := open(t, mib)
	for _, s := range []device.Stream{0, newStream(t, d)} {
		var got []int // written by one stream only, so no lock
		for i := range 10_000 {
			require.NoError(t, d.Launch(s, func() { got = append(got, i) }))
		}
		require.NoError(t, d.SyncStream(s))
		require.Len(t, got, 10_000)
		require.True(t, slices.IsSorted(got))
	}
}

// Every goroutine's submissions run in its own order; no two jobs of the
// stream at once. The rules hold meanwhile.
func TestStreamManySubmitters(t *testing.T) {
	d := open(t, mib)
	s := newStream(t, d)
	p := alloc(t, d, 8)
	last, busy := make([]int, 8), 0
	var wg sync.WaitGroup
	for g := range last {
		wg.Go(func() {
			for i := 1; i <= 500; i++ {
				assert.NoError(t, d.Launch(s, func() {
					busy++
					assert.Equal(t, 1, busy)
					assert.Equal(t, i-1, last[g])
					last[g] = i
					busy--
				}))
				assert.NoError(t, d.Memset(p, byte(g), 8, s)) // sometimes inline
				if i%100 == 0 {
					assert.NoError(t, d.SyncStream(s))
				}
			}
		})
	}
	for range 1000 {
		require.NoError(t, d.Check())
	}
	wg.Wait()
	require.NoError(t, d.SyncStream(s))
	for g := range last {
		require.Equal(t, 500, last[g])
	}
}

func TestDestroyStream(t *testing.T) {
	d := open(t, mib)
	s := newStream(t, d)
	ran := false
	require.NoError(t, d.Launch(s, func() { time.Sleep(5 * time.Millisecond); ran = true }))
	require.NoError(t, d.DestroyStream(s))
	require.True(t, ran, "DestroyStream waits")
}

// What a stream wrote is seen by work of another that waits for its event;
// the race detector checks that too.
func TestEventsOrderMemoryBetweenStreams(t *testing.T) {
	d := open(t, mib)
	a, b := newStream(t, d), newStream(t, d)
	ea, eb := newEvent(t, d), newEvent(t, d)
	x := 0
	for i := range 1000 {
		require.NoError(t, d.Launch(a, func() { x++ }))
		require.NoError(t, d.RecordEvent(ea, a))
		require.NoError(t, d.StreamWaitEvent(b, ea))
		require.NoError(t, d.Launch(b, func() { x = 2*i + 2 }))
		require.NoError(t, d.RecordEvent(eb, b))
		require.NoError(t, d.StreamWaitEvent(a, eb))
	}
	require.NoError(t, d.SyncStream(a))
	require.NoError(t, d.SyncEvent(eb))
	require.Equal(t, 2000, x)
}
