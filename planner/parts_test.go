package planner

import (
	"bytes"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/simdev"
)

// A tenant takes the place of others, of which no empty rest stays.
func TestReplace(t *testing.T) {
	all := []tenant{{lo: 0, hi: 10}, {lo: 10, hi: 20}, {lo: 20, hi: 30}}
	for name, tc := range map[string]struct {
		from, to int
		lo, hi   int64
		want     [][2]int64
	}{
		"one":             {1, 2, 10, 20, [][2]int64{{0, 10}, {10, 20}, {20, 30}}},
		"two":             {0, 2, 0, 20, [][2]int64{{0, 20}, {20, 30}}},
		"within one":      {1, 2, 12, 15, [][2]int64{{0, 10}, {10, 12}, {12, 15}, {15, 20}, {20, 30}}},
		"parts of two":    {0, 2, 5, 15, [][2]int64{{0, 5}, {5, 15}, {15, 20}, {20, 30}}},
		"none, at an end": {3, 3, 30, 40, [][2]int64{{0, 10}, {10, 20}, {20, 30}, {30, 40}}},
	} {
		var got [][2]int64
		for _, x := range replace(append([]tenant(nil), all...), tc.from, tc.to, tenant{lo: tc.lo, hi: tc.hi}) {
			got = append(got, [2]int64{x.lo, x.hi})
		}
		require.Equal(t, tc.want, got, name)
	}
}

// A block may be used on one stream after the other: of closed ones nothing stays.
func TestHoldForgetsClosedStreams(t *testing.T) {
	d := simdev.New(simdev.Config{})
	c, err := cupool.New(cupool.Config{Driver: d})
	require.NoError(t, err)
	var k hold
	for range 5 {
		s, err := c.NewStream()
		require.NoError(t, err)
		k.add(s)
		require.Len(t, k.streams, 1)
		require.NoError(t, s.Close())
	}
	require.NoError(t, c.Close())
	require.NoError(t, d.Close())
}

// After a plan for a loop the next one is to be longer, but not for ever, and not longer than
// a plan may be.
func TestDetectorAfterALoop(t *testing.T) {
	const least = 2*100 + 1
	f := newDetector(Config{MaxRequests: least})
	f.deviated(100)
	require.EqualValues(t, least, f.least)
	for range 8 * least {
		f.tidy(&recording{})
		require.EqualValues(t, least, f.least)
	}
	f.tidy(&recording{})
	require.EqualValues(t, least/2, f.least)

	f.served = wholeIterations
	f.deviated(100)
	require.EqualValues(t, leastPeriod, f.least, "it was no loop")
	f = newDetector(Config{MaxRequests: least - 1})
	f.deviated(100)
	require.EqualValues(t, leastPeriod, f.least, "no plan is as long")
}

// A detector keeps a bounded number of requests, and what it knows of them.
func TestDetectorForgets(t *testing.T) {
	f := newDetector(Config{MaxRequests: 4})
	const keep = 3 * 4
	r := newRecording(nil)
	for i := range int64(2 * keep) {
		require.Equal(t, i, r.add(512, nil, 1000))
	}
	r.born = map[cupool.Ptr]birth{1: {request: keep}, 2: {request: keep + 1}}
	f.seen = map[uint64]int64{1: keep, 2: keep + 1}
	f.tidy(r)
	require.Len(t, r.requests, 2*keep)
	r.add(512, nil, 1000)
	f.tidy(r)
	require.Len(t, r.requests, keep)
	require.EqualValues(t, keep+1, r.first)
	require.Equal(t, map[cupool.Ptr]birth{2: {request: keep + 1}}, r.born)
	require.Equal(t, map[uint64]int64{2: keep + 1}, f.seen)
	require.EqualValues(t, -1, r.add(512, nil, keep), "it is full")
}

// Of recordings that come faster than plans are made, the last one is planned and none before it.
func TestPlansTheLastRecording(t *testing.T) {
	var failures bytes.Buffer
	d := simdev.New(simdev.Config{})
	c, err := cupool.New(cupool.Config{Driver: d, Logger: slog.New(slog.NewTextHandler(&failures, &slog.HandlerOptions{Level: slog.LevelError}))})
	require.NoError(t, err)
	p, err := New(c, Config{})
	require.NoError(t, err)
	l := p.addLane(c.DefaultStream())
	l.mu.Lock()
	for _, size := range []int64{-1, -1, 512} { // what has a negative size cannot be planned
		l.solveLocked(&recording{requests: []recorded{{size: size, death: 1}}})
	}
	l.mu.Unlock()
	require.NoError(t, p.Wait(t.Context()))
	require.EqualValues(t, 512, l.wants().height)
	require.Empty(t, failures.String())
	require.NoError(t, p.Close())
	require.NoError(t, c.Close())
	require.NoError(t, d.Close())
}

// A plan of one stream looks for no waits, which takes long where many blocks live at once.
func TestOneStreamWaitsForNone(t *testing.T) {
	requests := make([]recorded, 100)
	places := make([]place, len(requests))
	for i := range requests {
		requests[i] = recorded{size: 512, death: int64(len(requests))}
		places[i] = place{size: 512, off: int64(i) * 512}
	}
	require.Zero(t, testing.AllocsPerRun(1, func() { require.Nil(t, waitsOf(requests, places)) }))
}
