package planner_test

import (
	"context"
	"errors"
	"math"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/simdev"
	"github.com/cupool/cupool/internal/testkit"
	"github.com/cupool/cupool/planner"
)

// What is not as recorded does no harm: every block keeps its contents, the
// addresses of live blocks never overlap, and when the program goes on as
// before, or keeps to its new ways, it is served by a plan again.
func TestDeviations(t *testing.T) {
	// In this iteration c, d and e go where a and b were.
	const usual = "a=40K b=30K free:a c=20K free:b d=50K e=512 free:c free:e free:d"
	for name, tc := range map[string]struct {
		then      string // the iteration that deviates
		request   int    // where it does
		reason    string
		after     string // what has to be freed then
		hits      int64  // of it
		nextHits  int64  // of the usual iteration after it, by the plan that was kept or repaired
		thenAgain int64  // of then, when it came twice and was planned
	}{
		"another size":       {"a=40K b=30K free:a c=30K free:b d=50K e=512 free:c free:e free:d", 2, "another size", "", 2, 5, 5},
		"first of all":       {"a=50K b=30K free:a c=20K free:b d=50K e=512 free:c free:e free:d", 0, "another size", "", 0, 5, 5},
		"one more between":   {"a=40K b=30K x=10K free:a free:x c=20K free:b d=50K e=512 free:c free:e free:d", 2, "another size", "", 2, 5, 6},
		"one more at end":    {usual + " x=10K free:x", 5, "no more requests", "", 5, 5, 6},
		"one less":           {"a=40K b=30K free:a c=20K free:b d=50K free:c free:d", 4, "ended before", "", 4, 5, 4},
		"nothing at all":     {"", 0, "ended before", "", 0, 5, 0},
		"lives longer":       {"a=40K b=30K c=20K free:a free:b d=50K e=512 free:c free:e free:d", 2, "still in use", "", 2, 5, 5},
		"outlives it":        {"a=40K b=30K free:a c=20K d=50K e=512 free:c free:e free:d", 3, "still in use", "free:b", 3, 4, 4},
		"used by a stream":   {"a=40K b=30K use:b@1 free:a c=20K free:b d=50K e=512 free:c free:e free:d", 2, "request 1 is used on stream", "", 2, 4, 4},
		"on another stream":  {"a=40K b=30K@1 free:a c=20K free:b d=50K e=512 free:c free:e free:d", 1, "another size", "", 1, 5, 5},
		"another order":      {"b=30K a=40K free:a c=20K free:b d=50K e=512 free:c free:e free:d", 0, "another size", "", 0, 5, 5},
		"zero bytes are not": {"a=40K z=0 b=30K free:a free:z c=20K free:b d=50K e=512 free:c free:e free:d", -1, "", "", 5, 5, 5},
		"freed earlier":      {"a=40K b=30K free:a free:b c=20K d=50K e=512 free:d free:c free:e", -1, "", "", 5, 5, 5},
		"the same, rounded":  {"a=40K b=30K free:a c=20K free:b d=50K e=511 free:c free:e free:d", -1, "", "", 5, 5, 5},
	} {
		t.Run(name, func(t *testing.T) {
			x := newPlanned(t, host(t), planner.Config{Confirm: 1})
			x.bytes = true
			hits := func(ops string) int64 {
				before := x.Stats().PlannedHits
				x.iterate(func() { x.run(ops) })
				return x.Stats().PlannedHits - before
			}
			require.Zero(t, hits(usual))
			require.Equal(t, int64(5), hits(usual))
			require.Equal(t, tc.hits, hits(tc.then))
			st := x.Stats()
			if tc.request < 0 {
				require.Zero(t, st.Deviations, st.LastDeviation)
			} else {
				require.Equal(t, int64(1), st.Deviations)
				require.Equal(t, tc.request, st.LastDeviation.Request, st.LastDeviation)
				require.Contains(t, st.LastDeviation.String(), tc.reason)
				isRequest := tc.reason != "ended before" && name != "used by a stream"
				require.Equal(t, isRequest, st.LastDeviation.Size > 0)
			}
			x.run(tc.after)
			require.Equal(t, tc.nextHits, hits(usual), "the plan is kept after one exception; %v", x.Stats().LastDeviation)
			for range 3 {
				hits(tc.then)
				x.run(tc.after)
			}
			require.Equal(t, tc.thenAgain, hits(tc.then), "what has come often is planned; %v", x.Stats().LastDeviation)
			x.run(tc.after)
		})
	}
}

// Errors are those of the Pool, and change nothing.
func TestErrors(t *testing.T) {
	x := newPlanned(t, sim(0), planner.Config{Confirm: 1})
	other := newPlanned(t, sim(0), planner.Config{})
	is := func(err, want error) {
		t.Helper()
		var e *cupool.BlockError
		require.ErrorAs(t, err, &e)
		require.ErrorIs(t, err, want)
	}
	x.iterate(func() {
		a := x.alloc("a", 40<<10, 0)
		is(x.FreePtr(a.Ptr(), 0), cupool.ErrSizeMismatch)
		x.run("b=30K free:a c=1K free:b free:c")
	})
	require.NoError(t, x.Wait(t.Context()))
	require.NoError(t, x.BeginIteration())
	a := x.alloc("a", 40<<10, 0)
	is(x.FreePtr(a.Ptr()+40<<10, -1), cupool.ErrDoubleFree) // the place of b, which is not yet there
	b := x.alloc("b", 30<<10, 0)
	require.Equal(t, a.Ptr()+40<<10, b.Ptr())
	require.Equal(t, int64(2), x.Stats().PlannedHits)
	for _, p := range []cupool.Ptr{a.Ptr(), a.Ptr() + 1, a.Ptr() + 40<<10 - 1} {
		got, err := x.Lookup(p)
		require.NoError(t, err)
		require.Equal(t, a, got)
	}
	is(x.FreePtr(a.Ptr()+512, -1), cupool.ErrInteriorPointer)
	is(x.FreePtr(a.Ptr(), 41<<10), cupool.ErrSizeMismatch)
	is(x.FreePtr(a.Ptr(), 0), cupool.ErrSizeMismatch)
	is(x.FreePtr(12345, -1), cupool.ErrForeignPointer)
	is(x.c.Free(a), cupool.ErrForeignPointer)
	is(other.Free(a), cupool.ErrForeignPointer)
	is(other.RecordStream(a, nil), cupool.ErrForeignPointer)
	is(x.RecordStream(a, other.DefaultStream()), cupool.ErrForeignStream)
	_, err := x.Alloc(1024, other.DefaultStream())
	is(err, cupool.ErrForeignStream)
	_, err = x.Alloc(-1, nil)
	is(err, cupool.ErrInvalidSize)
	_, err = x.Alloc(1<<62, nil)
	is(err, cupool.ErrInvalidSize)
	require.NoError(t, x.RecordStream(a, nil), "its own stream")
	require.NoError(t, x.Free(cupool.Block{}))
	require.NoError(t, x.FreePtr(0, -1))

	x.free("a")
	is(x.Free(a), cupool.ErrDoubleFree)
	require.NotErrorIs(t, x.Free(a), cupool.ErrStaleBlock)
	is(x.FreePtr(a.Ptr(), -1), cupool.ErrDoubleFree)
	is(x.RecordStream(a, x.stream(1)), cupool.ErrUseAfterFree)
	_, err = x.Lookup(a.Ptr() + 10)
	is(err, cupool.ErrUseAfterFree)
	require.NoError(t, x.FreePtr(b.Ptr(), 30<<10))
	delete(x.live, "b")
	is(x.Free(b), cupool.ErrDoubleFree)
	x.run("c=1K free:c")
	require.NoError(t, x.EndIteration())
	require.Zero(t, x.Stats().Deviations, "none of this was one; %v", x.Stats().LastDeviation)

	x.iterate(func() {
		again := x.alloc("a", 40<<10, 0)
		require.Equal(t, a.Ptr(), again.Ptr())
		require.NotEqual(t, a, again)
		is(x.Free(a), cupool.ErrStaleBlock)
		is(x.RecordStream(a, x.stream(1)), cupool.ErrUseAfterFree)
		x.run("b=30K free:a c=1K free:b free:c")
	})
	require.Zero(t, x.Stats().Deviations)
}

func TestIterationErrors(t *testing.T) {
	x := newPlanned(t, sim(0), planner.Config{})
	require.ErrorIs(t, x.EndIteration(), planner.ErrIteration)
	require.NoError(t, x.BeginIteration())
	require.ErrorIs(t, x.BeginIteration(), planner.ErrIteration)
	require.NoError(t, x.EndIteration())
	require.ErrorIs(t, x.EndIteration(), planner.ErrIteration)
	x = newPlanned(t, sim(0), planner.Config{Detect: true})
	require.ErrorIs(t, x.BeginIteration(), planner.ErrIteration)
	require.ErrorIs(t, x.EndIteration(), planner.ErrIteration)
}

// A nil context is refused, whether or not a plan is being made.
func TestWaitForNothing(t *testing.T) {
	x := newPlanned(t, sim(0), planner.Config{Confirm: 1})
	var none context.Context
	require.ErrorIs(t, x.Wait(none), cupool.ErrInvalidHandle)
	x.iterate(func() { x.run("a=1M free:a") })
	require.ErrorIs(t, x.Wait(none), cupool.ErrInvalidHandle)
}

func TestConfigErrors(t *testing.T) {
	c := newPool(t, sim(0))
	for field, bad := range map[string][]planner.Config{
		"Confirm": {{Confirm: -1}, {Confirm: math.MaxInt, Detect: true}}, "Budget": {{Budget: -1}},
		"MaxRequests": {{MaxRequests: -1}, {MaxRequests: 1 << 30}}, "Joint": {{Joint: true, Detect: true}},
	} {
		for _, cfg := range bad {
			_, err := planner.New(c, cfg)
			var e *cupool.ConfigError
			require.ErrorAs(t, err, &e)
			require.Equal(t, field, e.Field)
		}
	}
	for _, none := range []*cupool.Pool{nil, {}} {
		_, err := planner.New(none, planner.Config{})
		require.ErrorIs(t, err, cupool.ErrInvalidConfig)
	}
	require.NoError(t, c.Close())
}

// Close gives the arenas back and lists planned blocks that are live. Those
// that were passed through are the Pool's still.
func TestClose(t *testing.T) {
	d := sim(0)
	x := over(t, newPool(t, d), planner.Config{Confirm: 1})
	x.iterate(func() { x.run("leak=1M kept=3M free:leak") })
	x.run("free:kept")
	require.NoError(t, x.Wait(t.Context()))
	require.NoError(t, x.BeginIteration())
	x.run("leak=1M kept=3M")
	require.Equal(t, int64(1), x.Stats().PlannedHits)
	p, c, leak, kept := x.Planner, x.c, x.live["leak"], x.live["kept"]
	var leaks *cupool.LeakError
	require.ErrorAs(t, p.Close(), &leaks)
	require.Equal(t, []cupool.Leak{{Ptr: leak.Ptr(), Size: 1 << 20}}, leaks.Leaks)
	require.Equal(t, int64(1<<20), leaks.Bytes)
	require.Equal(t, int64(3<<20), c.Stats().LiveBytes, "the arena went back")

	for _, err := range []error{p.Close(), p.BeginIteration(), p.EndIteration(), p.Free(leak), p.RecordStream(leak, nil)} {
		require.ErrorIs(t, err, cupool.ErrClosed)
	}
	for _, size := range []int64{0, 1 << 20} {
		_, err := p.Alloc(size, nil)
		require.ErrorIs(t, err, cupool.ErrClosed)
	}
	_, err := p.NewStream()
	require.ErrorIs(t, err, cupool.ErrClosed)
	got, err := p.Lookup(kept.Ptr())
	require.NoError(t, err)
	require.Equal(t, kept, got)
	require.NoError(t, p.RecordStream(kept, nil))
	require.NoError(t, p.Free(kept))
	require.NoError(t, c.Close())
	require.NoError(t, d.Close())
}

// When the Pool is closed first, the Planner says so and does no harm.
func TestAfterPoolClosed(t *testing.T) {
	x := over(t, newPool(t, sim(0)), planner.Config{Confirm: 1})
	for range 2 {
		x.iterate(func() { x.run("b=1M free:b") })
	}
	require.NoError(t, x.BeginIteration())
	b := x.alloc("b", 1<<20, 0)
	var leaks *cupool.LeakError
	require.ErrorAs(t, x.c.Close(), &leaks, "the arena")
	require.ErrorIs(t, x.Free(b), cupool.ErrClosed)
	require.ErrorIs(t, x.FreePtr(b.Ptr(), -1), cupool.ErrClosed)
	_, err := x.Alloc(1<<20, nil)
	require.ErrorIs(t, err, cupool.ErrClosed)
	require.NoError(t, x.EndIteration())
	err = x.Close()
	require.ErrorAs(t, err, &leaks)
	require.NotErrorIs(t, err, cupool.ErrClosed, "the arena is gone")
}

// A stream that is closed takes nothing along: its planned blocks stay
// valid, and its arena is given back.
func TestStreamClosed(t *testing.T) {
	x := newPlanned(t, sim(0), planner.Config{Confirm: 1})
	const usual = "a=40K@1 b=50K free:a free:b"
	x.iterate(func() { x.run(usual) })
	x.iterate(func() { x.run(usual) })
	require.NoError(t, x.BeginIteration())
	x.run("a=40K@1 b=50K")
	require.NoError(t, x.streams[1].Close())
	_, err := x.Alloc(1, x.streams[1])
	require.ErrorIs(t, err, cupool.ErrClosed)
	x.run("free:a free:b")
	require.NoError(t, x.EndIteration())
	require.Equal(t, int64(1), x.Stats().Arenas, "that of the closed stream went back")
	x.streams = x.streams[:1]
	for range 5 {
		x.iterate(func() { x.run(usual) }) // on another stream 1
	}
	require.Equal(t, int64(2), x.Stats().Arenas)
}

// A program may make a stream for each request: of closed ones nothing stays
// but what they counted.
func TestStreamsWithoutEnd(t *testing.T) {
	for name, detect := range map[string]bool{"told": false, "detected": true} {
		t.Run(name, func(t *testing.T) {
			x := newPlanned(t, sim(0), planner.Config{Confirm: 1, Detect: detect})
			const streams = 12
			for range streams {
				for range 20 {
					if !detect {
						require.NoError(t, x.BeginIteration())
					}
					x.run("a=40K@1 b=50K@1 c=70K@1 free:a free:b free:c")
					if !detect {
						require.NoError(t, x.EndIteration())
					}
					require.NoError(t, x.Wait(t.Context()))
				}
				require.NoError(t, x.streams[1].Close())
				x.streams = x.streams[:1]
			}
			require.LessOrEqual(t, x.Lanes(), 2)
			st := x.Stats()
			require.LessOrEqual(t, st.Arenas, int64(1))
			require.EqualValues(t, streams*20*3, st.PlannedHits+st.Passed)
			require.EqualValues(t, streams, st.Plans)
			require.NotZero(t, st.PlannedHits)
		})
	}
}

// Who still asks for memory on a stream that was closed, while others make streams, is refused.
func TestClosedStreamsBesideNewOnes(t *testing.T) {
	x := newPlanned(t, sim(0), planner.Config{})
	closed := func() *cupool.Stream {
		s, err := x.NewStream()
		require.NoError(t, err)
		b, err := x.Alloc(512, s)
		require.NoError(t, err)
		require.NoError(t, x.Free(b))
		require.NoError(t, s.Close())
		return s
	}
	for range 200 {
		s := closed()
		var all sync.WaitGroup
		for range 2 {
			all.Go(func() {
				for range 20 {
					_, err := x.Alloc(512, s)
					require.ErrorIs(t, err, cupool.ErrClosed)
				}
			})
		}
		all.Go(func() { closed() })
		all.Wait()
	}
}

// Every rule of the books is checked: breaking it is noticed.
func TestCheck(t *testing.T) {
	for rule, ways := range planner.Corruptions {
		for name, corrupt := range ways {
			t.Run(rule+"/"+name, func(t *testing.T) {
				x := over(t, newPool(t, sim(0)), planner.Config{Confirm: 1})
				x.iterate(func() { x.run("a=1M b=2M free:a free:b c=1M free:c d=1M free:d") })
				require.NoError(t, x.Wait(t.Context()))
				require.NoError(t, x.BeginIteration())
				x.run("a=1M b=2M")
				require.NoError(t, x.Check())
				corrupt(x.Planner)
				require.ErrorContains(t, x.Check(), rule)
			})
		}
	}
}

// A device that fails at any call of making or leaving a plan does no harm. The
// quick form takes one backing for each call.
func TestFailingCalls(t *testing.T) {
	failure := errors.New("injected")
	for call := range simdev.NumCalls {
		for nth := range 4 {
			backings := []cupool.Backing{cupool.BackingSegments, cupool.BackingVMM}
			if !testkit.Long() {
				backings = backings[(int(call)+nth)%2:][:1]
			}
			for _, backing := range backings {
				d := simdev.New(simdev.Config{})
				x := newPlanned(t, d, planner.Config{Confirm: 1}, func(c *cupool.Config) { c.Backing = backing })
				x.stream(1)
				x.iterate(func() { x.layers(5) })
				require.NoError(t, x.Wait(t.Context()))
				d.FailNth(call, nth+1, failure)
				for i := range 4 {
					if err := x.BeginIteration(); err != nil {
						require.ErrorIs(t, err, failure, "%v", call)
						require.NoError(t, x.Check())
						require.ErrorIs(t, x.EndIteration(), planner.ErrIteration, "it has not begun")
						continue
					}
					if b, err := x.Alloc(1<<20, nil); err == nil {
						if i == 2 {
							if err := x.RecordStream(b, x.streams[1]); err != nil {
								require.ErrorIs(t, err, failure)
							}
						}
						require.NoError(t, x.Free(b), "%v", call)
					} else {
						require.ErrorIs(t, err, failure)
					}
					require.NoError(t, x.Check())
					require.NoError(t, x.EndIteration())
				}
				d.FailNth(call, 0, nil)
				for range 4 {
					x.iterate(func() { x.layers(5) })
				}
				require.Positive(t, x.Stats().Planned, "%v: planned again", call)
			}
		}
	}
}
