package cupool

import (
	"math/rand/v2"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A survey of a ledger whose stream goes on is never below what the stream
// may have without another fold, and never above what it ever had.
func TestSurvey(t *testing.T) {
	const limit = 100 // blocks, and thousands of bytes, below the peak
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	c, err := New(Config{})
	require.NoError(t, err)
	s, b := c.DefaultStream(), &c.books
	for _, k := range []kind{small, all} {
		b.peaks[k][outBlocks], b.peaks[k][outBytes], b.peaks[k][requestedBytes] = limit, 1000*limit, 1000*limit
		b.peaks[k][splits], b.peaks[k][splitBytes] = limit, 1000*limit
	}
	s.fold()

	var stop atomic.Bool
	done := make(chan struct{})
	go func() {
		defer close(done)
		r := rand.New(rand.NewPCG(seed, 0))
		for n := 0; !stop.Load(); {
			if n < limit && (n == 0 || r.IntN(2) == 0) {
				n++
				s.noteOut(small, 1000, 1000)
				s.noteSplit(small, 1000)
			} else {
				n--
				s.noteFreed(small, 1000, 1000)
				s.noteUnsplit(small, 1, 1000)
			}
			if r.IntN(100) == 0 {
				runtime.Gosched()
			}
		}
	}()
	for range 20_000 {
		var v survey
		rooms := v.look(&s.ledger, b.shares.Load())
		now, least := v.most.now(small), v.least.now(small)
		require.GreaterOrEqual(t, now[outBlocks]+rooms.out[small].blocks, int64(limit))
		require.GreaterOrEqual(t, now[outBytes]+rooms.out[small].bytes, int64(1000*limit))
		require.GreaterOrEqual(t, now[splits]+rooms.split[small].blocks, int64(limit))
		require.GreaterOrEqual(t, now[splitBytes]+rooms.split[small].bytes, int64(1000*limit))
		for _, q := range []quantity{outBlocks, splits} {
			require.LessOrEqual(t, least[q], int64(limit))
			require.LessOrEqual(t, least[q], now[q])
		}
	}
	stop.Store(true)
	<-done
}
