package conformance

import (
	"errors"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/testkit"
)

// testRandom runs random programs on the default stream.
func testRandom(t *testing.T, e *env) {
	s := testkit.Seed(t)
	for i := range 3 {
		r := e.rig(t)
		m := &machine{r: r, c: choices(s, i), shadow: r.shadow(), own: true, streams: []*cupool.Stream{r.DefaultStream()}, maxLive: 10 << (3 * i), maxSize: anySize}
		m.run(t, scaled(4000))
	}
}

// testRandomStreams runs random programs on several streams that come and
// go, some of them late.
func testRandomStreams(t *testing.T, e *env) {
	s := testkit.Seed(t)
	for i := range 3 {
		r := e.rig(t)
		m := &machine{r: r, c: choices(s, i), shadow: r.shadow(), own: true, slow: e.opt.Busy == nil, maxLive: 60, maxSize: anySize}
		m.streams = []*cupool.Stream{r.DefaultStream(), r.stream(), r.stream(), r.stream()}
		m.slow = m.slow && canLaunch(r)
		m.run(t, scaled(3000))
	}
}

func canLaunch(r *rig) bool {
	return !errors.Is(r.DefaultStream().Launch(func() {}), cupool.ErrNotSupported)
}

// testRandomParallel runs a random program in each of several goroutines, on
// shared streams, which hand blocks to each other.
func testRandomParallel(t *testing.T, e *env) {
	s := testkit.Seed(t)
	r := e.rig(t)
	sh := r.shadow()
	streams := []*cupool.Stream{r.DefaultStream(), r.stream(), r.stream()}
	exchange := make(chan *piece, 16)
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			m := &machine{r: r, c: choices(s, g), shadow: sh, streams: streams, exchange: exchange, maxLive: 30, maxSize: anySize,
				slow: e.opt.Busy == nil && canLaunch(r), nextSeed: uint64(g) << 32}
			m.run(t, scaled(2500))
		})
	}
	wg.Wait()
	close(exchange)
	for p := range exchange {
		check(t, sh.remove(p.Block))
		check(t, r.Free(p.Block))
	}
	require.Empty(t, sh.spans)
	require.NoError(t, r.EmptyCache())
	r.requireNothing()
}
