package conformance

import (
	"errors"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
)

// testRandom runs random programs on the default stream.
func testRandom(t *testing.T, e *env) {
	s := seed(t)
	for i := range 3 {
		r := e.rig(t)
		m := &machine{r: r, c: choices(s, i), shadow: &shadow{}, own: true, streams: []*cupool.Stream{r.DefaultStream()}, maxLive: 10 << (3 * i), maxSize: anySize}
		m.run(t, scaled(4000))
	}
}

// testRandomStreams runs random programs on several streams that come and
// go, some of them late.
func testRandomStreams(t *testing.T, e *env) {
	s := seed(t)
	for i := range 3 {
		r := e.rig(t)
		m := &machine{r: r, c: choices(s, i), shadow: &shadow{}, own: true, slow: e.opt.Busy == nil, maxLive: 60, maxSize: anySize}
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
	s := seed(t)
	r := e.rig(t)
	sh := &shadow{}
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

// Fuzz runs the program that a fuzzer's bytes make, against the same oracle,
// on a device from open. The first byte chooses the configuration.
func Fuzz(t *testing.T, open func(*testing.T) cupool.Driver, opt Options, data []byte) {
	c := &fuzzBytes{data}
	e := &env{open: open, opt: opt}
	if bits := c.IntN(16); bits != 0 {
		if bits&1 != 0 {
			e.cfg.MagazineBytes = -1
		}
		if bits&2 != 0 {
			e.cfg.Limit = 24 * mib
		}
		if bits&4 != 0 {
			e.cfg.SmallLimit, e.cfg.SmallSegment, e.cfg.LargeSegment, e.cfg.LargeLimit, e.cfg.SegmentRounding, e.cfg.MinSplit = 3000, 10*512, 9*kib, 7*kib, 512, 1024
		}
		if bits&8 != 0 {
			e.cfg.MagazineBytes = 64 * kib
		}
	}
	r := e.rig(t)
	m := &machine{r: r, c: c, shadow: &shadow{}, own: true, maxLive: 50, maxSize: anySize}
	m.streams = []*cupool.Stream{r.DefaultStream(), r.stream(), r.stream()}
	m.run(t, 5000)
}
