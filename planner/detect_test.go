package planner_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool/planner"
)

// detected runs an iteration n times and returns the planned hits of each.
func (x *planned) detected(n int, body func()) (hits []int64) {
	for range n {
		require.NoError(x.t, x.Wait(context.Background()))
		before := x.Stats().PlannedHits
		body()
		require.NoError(x.t, x.Check())
		hits = append(hits, x.Stats().PlannedHits-before)
	}
	return hits
}

// loop allocates and frees with nothing left, each time the same sizes.
func (x *planned) loop(n int, size int64) {
	for i := range n {
		x.alloc("l", size+int64(i%4)*4096, 0)
		x.alloc("m", 3*size, 0)
		x.free("l")
		x.free("m")
	}
}

func TestDetects(t *testing.T) {
	for name, tc := range map[string]struct {
		body     func(x *planned)
		requests int64 // of an iteration
		within   int   // iterations until all of it is planned
	}{
		"a training step":           {func(x *planned) { x.layers(10) }, 30, 5},
		"shorter than the hash":     {func(x *planned) { x.loop(2, 1000); x.run("a=1M free:a") }, 5, 12},
		"many equal layers":         {func(x *planned) { equalLayers(x, 24) }, 72, 6},
		"a loop within":             {func(x *planned) { x.run("h=1M"); x.loop(40, 5000); x.run("free:h g=3M free:g") }, 82, 20},
		"two loops within":          {func(x *planned) { x.loop(40, 5000); x.run("g=3M free:g"); x.loop(30, 70000) }, 141, 25},
		"one block lives on":        {func(x *planned) { x.layers(8); x.swap("k", 1<<20) }, 24, 6},
		"a large block, never idle": {func(x *planned) { x.run("big=30M"); x.layers(8); x.run("free:big") }, 25, 5},
	} {
		t.Run(name, func(t *testing.T) {
			x := newPlanned(t, sim(0), planner.Config{Detect: true})
			x.run("weights=40M")
			hits := x.detected(tc.within+5, func() { tc.body(x) })
			for _, n := range hits[tc.within:] {
				require.Equal(t, tc.requests, n, "hits of each iteration: %v; last deviation %v", hits, x.Stats().LastDeviation)
			}
			require.Equal(t, hits[tc.within:][0]*5, x.Stats().PlannedHits-sum(hits[:tc.within]))
		})
	}
}

func sum(list []int64) (n int64) {
	for _, v := range list {
		n += v
	}
	return n
}

// equalLayers is a network of equal layers, whose requests repeat within the
// iteration while what is live grows.
func equalLayers(x *planned, n int) {
	for i := range n {
		x.alloc(fmt.Sprint("a", i), 1<<20, 0)
		x.alloc("w", 2<<20, 0)
		x.free("w")
	}
	for i := n - 1; i >= 0; i-- {
		x.alloc("g", 3<<20, 0)
		x.free(fmt.Sprint("a", i))
		x.free("g")
	}
}

// swap replaces a block that the iteration before has left.
func (x *planned) swap(name string, size int64) {
	x.alloc("new"+name, size, 0)
	if _, ok := x.live[name]; ok {
		x.free(name)
	}
	x.rename("new"+name, name)
}

// A program that does something else now and then is found again.
func TestDetectsAgain(t *testing.T) {
	x := newPlanned(t, sim(0), planner.Config{Detect: true})
	step := func() { x.layers(10) }
	for range 3 {
		hits := x.detected(100, step)
		require.Equal(t, int64(30), hits[6], "%v", hits)
		require.Equal(t, int64(30), hits[99])
		x.detected(1, func() { x.run("a=5M b=6M free:a c=9M free:b free:c") }) // evaluation
		require.Zero(t, x.Stats().ArenaBytes, "the arena went back when nothing was live in it")
	}
	require.Equal(t, int64(3), x.Stats().Deviations)
}

// A request for which the plan's memory went back is no end: what repeats after it is found.
func TestDetectsAfterTheArenaWent(t *testing.T) {
	x := newPlanned(t, sim(64*mib), planner.Config{Detect: true})
	step := func() { x.layers(10) }
	hits := x.detected(100, step)
	require.Equal(t, int64(30), hits[99], "%v", hits)
	x.run("big=60M free:big")
	require.Zero(t, x.Stats().ArenaBytes)
	hits = x.detected(10, step)
	require.Equal(t, int64(30), hits[9], "%v", hits)
}

// Old requests are forgotten, so that searching takes bounded memory.
func TestDetectForgets(t *testing.T) {
	x := newPlanned(t, sim(0), planner.Config{Detect: true, MaxRequests: 50})
	for i := range int64(1500) { // never repeats
		x.alloc("a", 512*(1+i), 0)
		x.free("a")
	}
	require.Zero(t, x.Stats().PlannedHits)
	require.LessOrEqual(t, x.Sequences(), 2*3*50+1, "those of three iterations, and at most twice that between two looks")
	hits := x.detected(10, func() { x.layers(10) })
	require.Equal(t, int64(30), hits[9], "%v", hits)
	x.run("z=1K free:z")
	hits = x.detected(5, func() { x.layers(10) }) // a longer one than these would be too long
	require.Equal(t, int64(30), hits[4], "%v", hits)
	x.detected(20, func() { x.layers(20) }) // 60 requests are too many
	require.NotEqual(t, int64(60), x.detected(1, func() { x.layers(20) })[0])
}

// As many iterations as Confirm says have to be the same before one is planned.
func TestDetectConfirms(t *testing.T) {
	for _, confirm := range []int{2, 3, 5} {
		x := newPlanned(t, sim(0), planner.Config{Detect: true, Confirm: confirm})
		hits := x.detected(8, func() { x.layers(10) })
		require.Zero(t, sum(hits[:confirm]), "%v", hits)
		require.Equal(t, int64(30), hits[confirm+1], "%v", hits)
	}
}

// Streams are detected independently of each other.
func TestDetectsStreams(t *testing.T) {
	x := newPlanned(t, host(t), planner.Config{Detect: true})
	x.bytes = true
	turn := 0
	hits := x.detected(30, func() {
		turn++
		for i := range 20 {
			x.alloc("a", int64(i+1)*512, 0)
			if (i+turn)%3 == 0 { // in another order each time
				x.alloc("b", 4096, 1)
				x.free("b")
			}
			x.free("a")
		}
	})
	require.Greater(t, hits[29], int64(20), "%v", hits)
	require.Equal(t, int64(2), x.Stats().Arenas)
	require.Zero(t, x.Stats().Deviations, x.Stats().LastDeviation)
}
