package planner_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/cuda"
	"github.com/cupool/cupool/internal/lock"
	"github.com/cupool/cupool/internal/simdev"
	"github.com/cupool/cupool/internal/testkit/gputest"
	"github.com/cupool/cupool/internal/testkit/pooltest"
	"github.com/cupool/cupool/planner"
)

// planned is a Planner under test with the shadow of what it hands out.
type planned struct {
	*planner.Planner
	t       testing.TB
	c       *cupool.Pool
	streams []*cupool.Stream
	live    map[string]cupool.Block
	on      map[string]*cupool.Stream
	fills   map[string]byte // contents
	next    byte
	bytes   bool         // write and read contents
	late    *rand.Rand   // nil, or streams write and read on their own, this much after they were told
	broken  atomic.Int64 // blocks that streams found overwritten
}

// newPlanned opens a Planner. At the end of the test everything is closed,
// and nothing may be live but what the test left in live.
func newPlanned(t testing.TB, d cupool.Driver, cfg planner.Config, change ...func(*cupool.Config)) *planned {
	t.Helper()
	x := over(t, newPool(t, d, change...), cfg)
	t.Cleanup(func() {
		assert.NoError(t, x.Check())
		for _, name := range sortedKeys(x.live) {
			x.free(name)
		}
		assert.NoError(t, pooltest.Ignore(x.Close(), cupool.ErrClosed))
		assert.NoError(t, x.c.Check())
		assert.NoError(t, x.c.Close())
		assert.NoError(t, d.Close())
	})
	return x
}

func newPool(t testing.TB, d cupool.Driver, change ...func(*cupool.Config)) *cupool.Pool {
	t.Helper()
	conf := cupool.Config{Driver: d}
	for _, f := range change {
		f(&conf)
	}
	c, err := cupool.New(conf)
	require.NoError(t, err)
	return c
}

// over opens a Planner that the test closes.
func over(t testing.TB, c *cupool.Pool, cfg planner.Config) *planned {
	t.Helper()
	p, err := planner.New(c, cfg)
	require.NoError(t, err)
	return &planned{Planner: p, t: t, c: c, streams: []*cupool.Stream{c.DefaultStream()}, live: map[string]cupool.Block{}, on: map[string]*cupool.Stream{}, fills: map[string]byte{}}
}

const mib = 1 << 20

// parseSize reads the sizes of these tests: they add, as in 1M+512.
func parseSize(t testing.TB, s string) (sum int64) {
	for part := range strings.SplitSeq(s, "+") {
		n, err := cupool.ParseBytes(part)
		require.NoError(t, err)
		sum += n
	}
	return sum
}

func sortedKeys[V any](m map[string]V) (keys []string) {
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// stream returns the n-th stream, which is made when it is not there.
func (x *planned) stream(n int) *cupool.Stream {
	for len(x.streams) <= n {
		s, err := x.NewStream()
		require.NoError(x.t, err)
		x.streams = append(x.streams, s)
	}
	return x.streams[n]
}

// alloc allocates a block and looks whether its memory is somebody else's.
func (x *planned) alloc(name string, size int64, stream int) cupool.Block {
	x.t.Helper()
	b, err := x.Alloc(size, x.stream(stream))
	require.NoError(x.t, err, name)
	require.Equal(x.t, size, b.Size())
	for n, o := range x.live {
		require.False(x.t, b.Ptr() < o.Ptr()+cupool.Ptr(o.Size()) && o.Ptr() < b.Ptr()+cupool.Ptr(size), "%s at %v shares memory with %s at %v", name, b, n, o)
	}
	x.live[name], x.on[name] = b, x.stream(stream)
	x.next++
	fill := x.next
	x.fills[name] = fill
	switch {
	case x.late != nil:
		x.later(60, x.on[name], b, func(contents []byte) { copy(contents, bytes.Repeat([]byte{fill}, len(contents))) })
	case x.bytes:
		require.NoError(x.t, x.on[name].Memset(b.Ptr(), fill, size))
	}
	return b
}

// later has a stream look at a block some µs after it was told.
func (x *planned) later(most int, s *cupool.Stream, b cupool.Block, look func(contents []byte)) {
	wait := time.Duration(x.late.IntN(most)) * time.Microsecond
	require.NoError(x.t, s.Launch(func() {
		time.Sleep(wait)
		look(unsafe.Slice(*(**byte)(unsafe.Pointer(new(b.Ptr()))), b.Size()))
	}))
}

// free looks whether a block has its contents still, and frees it.
func (x *planned) free(name string) {
	x.t.Helper()
	b, ok := x.live[name]
	require.True(x.t, ok, name)
	fill := []byte{x.fills[name]}
	switch {
	case x.late != nil:
		x.later(200, x.on[name], b, func(contents []byte) {
			if bytes.Count(contents, fill) != len(contents) {
				x.broken.Add(1)
			}
		})
	case x.bytes:
		got := make([]byte, b.Size())
		require.NoError(x.t, x.on[name].CopyOut(got, b.Ptr()))
		require.Equal(x.t, len(got), bytes.Count(got, fill), "%s (%v): bytes that are its own", name, b)
	}
	delete(x.live, name)
	require.NoError(x.t, x.Free(b), name)
}

func (x *planned) rename(old, name string) {
	x.live[name], x.on[name], x.fills[name] = x.live[old], x.on[old], x.fills[old]
	delete(x.live, old)
}

// iterate runs one iteration, after waiting for plans being made.
func (x *planned) iterate(body func()) {
	x.t.Helper()
	require.NoError(x.t, x.Wait(context.Background()))
	require.NoError(x.t, x.BeginIteration())
	body()
	require.NoError(x.t, x.Check())
	require.NoError(x.t, x.EndIteration())
}

// run executes operations that blanks separate: a=2M and a=2M@1 allocate, on
// stream 0 or another, free:a frees, use:a@1 is RecordStream.
func (x *planned) run(ops string) {
	x.t.Helper()
	for _, op := range strings.Fields(ops) {
		if name, size, ok := strings.Cut(op, "="); ok {
			size, at, _ := strings.Cut(size, "@")
			x.alloc(name, parseSize(x.t, size), len(at))
			continue
		}
		what, name, _ := strings.Cut(op, ":")
		name, at, _ := strings.Cut(name, "@")
		if what == "use" {
			require.NoError(x.t, x.RecordStream(x.live[name], x.stream(len(at))), op)
		} else {
			x.free(name)
		}
		require.NoError(x.t, x.Check(), op)
	}
}

// layers is a small training step: activations that are freed in reverse,
// each with a workspace.
func (x *planned) layers(n int) (where []cupool.Ptr) {
	for i := range n {
		where = append(where, x.alloc(fmt.Sprint("a", i), int64(i%3+1)*mib+int64(i), 0).Ptr())
		where = append(where, x.alloc("w", 3*mib/2, 0).Ptr())
		x.free("w")
	}
	for i := n - 1; i >= 0; i-- {
		where = append(where, x.alloc("g", int64(i%2+1)*mib, 0).Ptr())
		x.free(fmt.Sprint("a", i))
		x.free("g")
	}
	return where
}

func sim(capacity int64) cupool.Driver { return simdev.New(simdev.Config{Capacity: capacity}) }

// TestFreeOfDamaged: a block that Free finds damage of was freed, and is planned.
func TestFreeOfDamaged(t *testing.T) {
	x := newPlanned(t, pooltest.OpenHost(t), planner.Config{Confirm: 1}, func(c *cupool.Config) { c.Sanitize = cupool.Sanitizers{Canaries: 64, Wait: true} })
	for i := range 2 {
		x.iterate(func() {
			b, err := x.Alloc(mib, nil)
			require.NoError(t, err)
			if i == 0 {
				require.NoError(t, x.DefaultStream().Memset(b.Ptr(), 7, mib+1))
				require.ErrorIs(t, x.Free(b), cupool.ErrCorrupted)
				require.ErrorIs(t, x.c.Check(), cupool.ErrCorrupted) // it is told
			} else {
				require.NoError(t, x.Free(b))
			}
		})
	}
	require.EqualValues(t, 1, x.Stats().PlannedHits)
}

func TestServesRecordedIteration(t *testing.T) {
	for _, backing := range []cupool.Backing{cupool.BackingSegments, cupool.BackingVMM} {
		t.Run(backing.String(), func(t *testing.T) {
			x := newPlanned(t, sim(0), planner.Config{Confirm: 1}, func(c *cupool.Config) { c.Backing = backing })
			x.iterate(func() { x.layers(10) })
			recorded := x.c.Stats().All.ReservedBytes.Peak
			var first []cupool.Ptr
			for i := range 5 {
				x.iterate(func() {
					where := x.layers(10)
					if i == 0 {
						first = where
					}
					require.Equal(t, first, where, "addresses are the same in every iteration")
				})
			}
			st := x.Stats()
			require.Equal(t, int64(6), st.Iterations)
			require.Equal(t, int64(5), st.Planned)
			require.Equal(t, int64(5*30), st.PlannedHits)
			require.Equal(t, int64(30), st.Passed)
			require.Zero(t, st.Deviations)
			require.Equal(t, int64(1), st.Plans)
			require.Equal(t, st.Bound, st.Height)
			require.Positive(t, st.SolveTime)
			require.Equal(t, st.Height, st.ArenaBytes)
			require.LessOrEqual(t, x.c.Stats().All.ReservedBytes.Peak, max(recorded, st.Height+2*mib))
			require.LessOrEqual(t, x.c.Stats().All.ReservedBytes.Current, st.Height+2*mib, "what recording left behind went back")
		})
	}
}

func host(t testing.TB) cupool.Driver {
	d, err := cupool.OpenHost(cupool.HostConfig{})
	require.NoError(t, err)
	return d
}

// Blocks that outlive their iteration are passed through, and with them what
// other streams use; everything else is planned.
func TestPassesThrough(t *testing.T) {
	x := newPlanned(t, host(t), planner.Config{})
	x.bytes = true
	x.run("before=1M")
	for i := range 6 {
		x.iterate(func() {
			if i == 0 {
				x.run("w1=30K w2=2M") // made by the first iteration only
			}
			x.run("a=40K batch=60K use:batch@1 kept=70K free:a b=50K free:batch free:b")
			if i > 0 {
				x.run("free:old") // freed by the next iteration
			}
			x.rename("kept", "old")
		})
		if i == 1 {
			require.Zero(t, x.Stats().Plans, "the first two are not alike")
		}
	}
	st := x.Stats()
	require.Equal(t, int64(1), st.Plans)
	require.Equal(t, int64(3), st.Planned)
	require.Equal(t, int64(2*3), st.PlannedHits)
	require.Zero(t, st.Deviations, st.LastDeviation)
	require.Equal(t, int64(50<<10), st.ArenaBytes, "a and b, one after the other")
	x.run("free:before free:w1 free:w2 free:old")
}

// Where every block outlives its iteration there is nothing to plan.
func TestNothingToPlan(t *testing.T) {
	x := newPlanned(t, sim(0), planner.Config{Confirm: 1})
	for range 3 {
		x.iterate(func() { x.swap("a", 1*mib) })
	}
	require.Zero(t, x.Stats().Plans)
	require.Zero(t, x.Stats().Rounds, "none was looked for")
}

// Each stream has a plan of its own.
func TestStreams(t *testing.T) {
	x := newPlanned(t, host(t), planner.Config{Confirm: 1})
	x.bytes = true
	for i := range 4 {
		x.iterate(func() { x.run("a=40K b=50K@1 free:a c=30K@1 free:b d=20K e=70K@11 free:c free:d free:e") })
		require.Equal(t, int64(i*5), x.Stats().PlannedHits)
	}
	require.Equal(t, int64(3), x.Stats().Plans)
	require.Equal(t, int64(3), x.Stats().Arenas)
	// One stream deviates; the others do not care.
	x.iterate(func() { x.run("a=40K b=51K@1 free:a c=30K@1 free:b d=20K e=70K@11 free:c free:d free:e") })
	require.Equal(t, int64(3*5+3), x.Stats().PlannedHits)
	require.Equal(t, int64(1), x.Stats().Deviations)
	// Streams in another order of each other are no deviation.
	x.iterate(func() { x.run("e=70K@11 b=50K@1 a=40K c=30K@1 free:a d=20K free:d free:b free:c free:e") })
	require.Equal(t, int64(1), x.Stats().Deviations)
}

// A block that another stream uses keeps its memory until that stream is
// done, and so does the arena.
func TestHoldsWhatStreamsUse(t *testing.T) {
	const usual = "a=40K b=30K free:a free:b"
	for name, then := range map[string]func(*planned){
		"the next iteration finds it in use": func(x *planned) {
			x.iterate(func() { x.run(usual) })
			require.Equal(x.t, int64(2), x.Stats().Deviations)
			require.Equal(x.t, "its memory is still in use", x.Stats().LastDeviation.Reason)
		},
		"the plan is dropped": func(x *planned) {
			for range 5 {
				x.iterate(func() { x.run("other=90K free:other") })
			}
		},
		"closed": func(x *planned) {
			require.NoError(x.t, x.Close())
			c := x.c // what it frees now has to wait for the stream
			for range 20 {
				b, err := c.Alloc(40<<10, nil)
				require.NoError(x.t, err)
				require.NoError(x.t, c.DefaultStream().Memset(b.Ptr(), 9, b.Size()))
				defer func() { require.NoError(x.t, c.Free(b)) }()
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			x := newPlanned(t, host(t), planner.Config{Confirm: 1})
			x.iterate(func() { x.run(usual) })
			x.iterate(func() { x.run(usual) })
			s := x.stream(1)
			release, seen := make(chan struct{}), make([]byte, 40<<10)
			done := sync.OnceFunc(func() { close(release) })
			defer done()
			require.NoError(t, x.BeginIteration())
			a := x.alloc("a", 40<<10, 0)
			require.NoError(t, x.DefaultStream().Memset(a.Ptr(), 7, a.Size()))
			require.NoError(t, s.WaitStream(x.DefaultStream()))
			require.NoError(t, s.Launch(func() { <-release }))
			require.NoError(t, x.RecordStream(a, s))
			x.run("b=31K free:a free:b")
			require.Equal(t, int64(1), x.Stats().HeldBlocks)
			require.NoError(t, x.EndIteration())
			then(x)
			time.AfterFunc(time.Millisecond, done)
			require.NoError(t, s.CopyOut(seen, a.Ptr()))
			require.Negative(t, slices.IndexFunc(seen, func(v byte) bool { return v != 7 }), "overwritten while in use")
			if err := x.BeginIteration(); err == nil {
				x.run(usual)
				require.NoError(t, x.EndIteration())
				require.Zero(t, x.Stats().HeldBlocks)
			}
		})
	}
}

// A block that was used on a stream during a capture keeps its memory until then, and no longer.
func TestHoldsThroughACapture(t *testing.T) {
	gputest.Need(t)
	d, err := cuda.Open(0)
	require.NoError(t, err)
	const usual = "a=1K b=1M free:a free:b"
	x := newPlanned(t, d, planner.Config{Confirm: 1})
	x.bytes = false
	x.iterate(func() { x.run(usual) })
	e, err := cupool.NewEngine(x.c, cupool.WithStream(x.stream(1)))
	require.NoError(t, err)
	x.iterate(func() {
		x.run("a=1K")
		g, err := e.Capture(func() error {
			x.run("use:a@1 free:a")
			return nil
		})
		require.NoError(t, err)
		require.EqualValues(t, 1, x.Stats().HeldBlocks)
		x.run("b=1M free:b")
		require.NoError(t, g.Close())
	})
	require.NoError(t, x.c.Sync())
	x.iterate(func() { x.run(usual) })
	x.iterate(func() { x.run(usual) })
	require.Zero(t, x.Stats().HeldBlocks)
	require.EqualValues(t, 1, x.Stats().Deviations, "that of the use alone")
}

// The memory of a plan that ends waits for the streams that may still use blocks of it:
// those that blocks were recorded on, freed or live, and those that they were for.
func TestArenaWaitsForItsStreams(t *testing.T) {
	const usual = "a=40K b=30K free:a free:b"
	for name, tc := range map[string]struct {
		usual, first, then string
		joint              bool
		leaks              int
	}{
		"recorded and freed": {usual, "a=40K", "use:a@1 free:a", false, 0},
		"recorded and live":  {usual, "a=40K", "use:a@1", false, 1},
		"of a joint plan":    {"a=40K@1 free:a b=30K free:b", "a=40K@1", "free:a", true, 0},
	} {
		t.Run(name, func(t *testing.T) {
			d := simdev.New(simdev.Config{ManualEvents: true})
			x := over(t, newPool(t, d), planner.Config{Confirm: 1, Joint: tc.joint})
			for range 2 {
				x.iterate(func() { x.run(tc.usual) })
			}
			require.NoError(t, x.BeginIteration())
			s := x.stream(1)
			x.run(tc.first)
			require.NoError(t, s.Memset(x.live["a"].Ptr(), 1, 512))
			x.run(tc.then)
			require.EqualValues(t, 3, x.Stats().PlannedHits)
			var leaks *cupool.LeakError
			if err := x.Close(); tc.leaks > 0 {
				require.ErrorAs(t, err, &leaks)
				require.Len(t, leaks.Leaks, tc.leaks)
			} else {
				require.NoError(t, err)
			}
			require.EqualValues(t, 1, x.c.Stats().BlocksPending)
			require.NoError(t, s.Sync())
			require.Zero(t, x.c.Stats().PendingBytes+x.c.Stats().LiveBytes)
			require.NoError(t, x.c.Close())
			require.NoError(t, d.Close())
		})
	}
}

// On a full device the plan waits for memory, and programs get what there is.
func TestWithoutMemory(t *testing.T) {
	x := newPlanned(t, sim(64<<20), planner.Config{Confirm: 1})
	const usual = "a=20M b=20M free:a c=30M free:b free:c"
	x.iterate(func() { x.run(usual) })
	big, err := x.c.Alloc(30<<20, nil)
	require.NoError(t, err)
	require.NoError(t, x.Wait(context.Background()))
	require.NoError(t, x.BeginIteration(), "no memory for the plan is no error")
	require.Zero(t, x.Stats().ArenaBytes)
	require.Error(t, func() error { _, err := x.Alloc(60<<20, nil); return err }())
	require.NoError(t, x.EndIteration())
	require.NoError(t, x.c.Free(big))
	for range 4 {
		x.iterate(func() { x.run(usual) })
	}
	st := x.Stats()
	require.Equal(t, int64(50<<20), st.ArenaBytes)
	require.Positive(t, st.Planned)

	// What is not planned finds the memory of the plan, as far as it is idle:
	// all of it before the first request, the gaps after it.
	b, err := x.Alloc(55<<20, nil)
	require.NoError(t, err, "between iterations")
	require.NoError(t, x.Free(b))
	for x.Stats().ArenaBytes == 0 {
		x.iterate(func() { x.run(usual) })
	}
	planned := x.Stats().Planned
	x.iterate(func() { x.run("a=20M x=21M y=512 free:a z=19M free:x free:y free:z") })
	require.Equal(t, planned, x.Stats().Planned)
	require.Positive(t, x.Stats().Strays)
	x.iterate(func() { x.run(usual) })
	require.Equal(t, planned+1, x.Stats().Planned)
}

// For a plan that there is no memory for, the Planner looks in fewer and fewer iterations.
func TestMemoryIsSoughtLessAndLess(t *testing.T) {
	x := newPlanned(t, sim(64*mib), planner.Config{Confirm: 1})
	var sought []int
	for i := range 21 {
		require.NoError(t, x.Wait(t.Context()))
		big, err := x.c.Alloc(50*mib, nil)
		require.NoError(t, err)
		before := x.c.Stats().OOMs
		require.NoError(t, x.BeginIteration())
		if x.c.Stats().OOMs > before {
			sought = append(sought, i)
		}
		require.NoError(t, x.c.Free(big))
		x.run("a=20M b=20M free:a free:b")
		require.NoError(t, x.EndIteration())
	}
	require.Equal(t, []int{1, 3, 6, 11, 20}, sought)
	require.Zero(t, x.Stats().Plans)
}

// A plan that deviates from one iteration to the next goes, and its memory with it; one
// of much less memory takes the place of one of more.
func TestPlansGo(t *testing.T) {
	const usual = "a=40M b=30M free:a free:b"
	x := newPlanned(t, sim(0), planner.Config{Confirm: 1})
	for range 2 {
		x.iterate(func() { x.run(usual) })
	}
	for i := range int64(3) { // each is another one
		require.Equal(t, int64(70*mib), x.Stats().ArenaBytes)
		x.iterate(func() { x.alloc("c", (i+1)*mib, 0); x.free("c") })
	}
	require.Zero(t, x.Stats().ArenaBytes)

	for range 2 {
		x.iterate(func() { x.run(usual) })
	}
	require.Equal(t, int64(70*mib), x.Stats().ArenaBytes)
	for range 3 {
		x.iterate(func() { x.run("c=10M free:c") })
	}
	require.Equal(t, int64(10*mib), x.Stats().ArenaBytes)
	require.Equal(t, int64(3), x.Stats().Plans)
}

// A plan that goes into the memory of another one finds a block of that in the slot of a
// request, also where it does not lie in the request's place.
func TestSlotOfThePlanBefore(t *testing.T) {
	x := newPlanned(t, host(t), planner.Config{Confirm: 1})
	x.bytes = true
	for range 2 {
		x.iterate(func() { x.run("a=30M b=1M free:a free:b") })
	}
	x.iterate(func() { x.run("a=30M b=1M free:a") })
	for range 3 {
		x.iterate(func() { x.run("c=10M free:c d=1M free:d") })
	}
	st := x.Stats()
	require.Equal(t, int64(2), st.Plans)
	require.Equal(t, int64(31*mib), st.ArenaBytes, "b lives in it")
	require.Equal(t, int64(3), st.Deviations)
	require.Equal(t, 1, st.LastDeviation.Request, "c has memory that is free")
	require.Equal(t, "its memory is still in use", st.LastDeviation.Reason)
	x.run("free:b")
}

// Where memory was short, it is taken from an arena that is to go in that iteration alone.
func TestPressureEndsWithTheIteration(t *testing.T) {
	x := newPlanned(t, sim(64*mib), planner.Config{Confirm: 1})
	for range 2 {
		x.iterate(func() { x.run("a=20M b=20M free:a c=30M free:b free:c") })
	}
	x.iterate(func() { x.run("a=20M keep=21M free:a") })
	x.iterate(func() { x.run("a=20M free:a") })
	x.iterate(func() { x.run("a=20M free:a x=15M free:x") })
	require.Equal(t, int64(2), x.Stats().Strays, "keep and x")
	x.iterate(func() { x.run("y=1M free:y") }) // the plan is gone, the arena has keep
	require.Equal(t, int64(2), x.Stats().Strays)
	require.Equal(t, int64(1), x.Stats().Arenas)
	x.run("free:keep")
	require.Zero(t, x.Stats().Arenas)
}

// A stream whose arena goes to another one before its first request of an iteration has
// that iteration recorded.
func TestRelinquishedIterationIsRecorded(t *testing.T) {
	x := newPlanned(t, sim(64*mib), planner.Config{Confirm: 1})
	for range 2 {
		x.iterate(func() { x.run("a=40M free:a b=1M@1 free:b") })
	}
	require.Equal(t, int64(2), x.Stats().Arenas)
	x.iterate(func() {
		x.run("b=1M@1 big=50M@1 free:b free:big")
		require.Equal(t, int64(1), x.Stats().Arenas)
		x.run("c=10M free:c d=20M free:d")
	})
	before := x.Stats().PlannedHits
	x.iterate(func() { x.run("c=10M free:c d=20M free:d b=1M@1 free:b") })
	require.Equal(t, int64(3), x.Stats().PlannedHits-before, x.Stats().LastDeviation)
}

// The memory of plans ends with them, whatever the handles of the recording are: beside
// weights, on several streams, and with one plan for these.
func TestArenaEndsWithThePlan(t *testing.T) {
	for name, c := range map[string]struct {
		ops   string
		joint bool
		most  int64 // MiB: the weights, and what lives at once, in units of a handle of 2
	}{
		"one stream":  {ops: "a=301M free:a b=102M free:b", most: 6 + 302},
		"two streams": {ops: "a=301M b=205M@1 free:a free:b", most: 6 + 302 + 206},
		"joint":       {ops: "a=301M free:a b=205M@1 free:b", joint: true, most: 6 + 302},
	} {
		t.Run(name, func(t *testing.T) {
			x := newPlanned(t, sim(4<<30), planner.Config{Confirm: 1, Joint: c.joint})
			x.run("weights=5M warm=500M free:warm")
			x.iterate(func() { x.run(c.ops) })
			require.NoError(t, x.Wait(context.Background()))
			x.iterate(func() { x.run(c.ops) })
			require.EqualValues(t, 1, min(1, x.Stats().Planned), x.Stats().LastDeviation)
			require.LessOrEqual(t, x.c.Stats().All.ReservedBytes.Current, c.most<<20)
		})
	}
}

// A stray in the arena is never handed out to the plan.
func TestStrayStaysWhole(t *testing.T) {
	x := newPlanned(t, sim(64<<20), planner.Config{Confirm: 1})
	const usual = "a=20M b=20M free:a c=30M free:b free:c"
	x.iterate(func() { x.run(usual) })
	x.iterate(func() { x.run(usual) })
	x.iterate(func() { x.run("a=20M keep=21M free:a b=10M free:b") })
	require.Equal(t, int64(2), x.Stats().Strays, "keep and, now that memory is known to be short, b")
	keep := x.live["keep"]
	got, err := x.Lookup(keep.Ptr() + 1)
	require.NoError(t, err)
	require.Equal(t, keep, got)
	require.ErrorIs(t, x.FreePtr(keep.Ptr()+512, -1), cupool.ErrInteriorPointer)
	x.iterate(func() { x.run("a=20M free:a") })
	require.Equal(t, int64(2), x.Stats().Deviations)
	require.NoError(t, x.FreePtr(keep.Ptr(), 21<<20))
	delete(x.live, "keep")
	require.ErrorIs(t, x.Free(keep), cupool.ErrDoubleFree)
	require.ErrorIs(t, x.FreePtr(keep.Ptr(), -1), cupool.ErrDoubleFree)
}

// A request that is not planned and that the pool has no memory for takes idle memory of the
// arena while the plan serves; the planned request that needs it next gets none of it.
func TestStrayBesideThePlan(t *testing.T) {
	x := newPlanned(t, sim(64*mib), planner.Config{Confirm: 1})
	for range 2 {
		x.iterate(func() { x.run("a=10M stays=10M b=30M free:a free:b") })
		x.run("free:stays")
	}
	x.run("other=20M")
	x.iterate(func() {
		x.run("a=10M stays=10M")
		require.EqualValues(t, 1, x.Stats().Strays)
		require.Zero(t, x.Stats().Deviations)
		b, err := x.Alloc(30*mib, nil)
		require.ErrorIs(t, err, cupool.ErrOutOfMemory, "%v", b)
		require.EqualValues(t, 1, x.Stats().Deviations)
		x.run("free:a")
	})
}

// A stray takes memory that was held for a stream which is done with it.
func TestStrayTakesHeldMemory(t *testing.T) {
	d := simdev.New(simdev.Config{Capacity: 64 * mib, ManualEvents: true})
	x := newPlanned(t, d, planner.Config{Confirm: 1})
	for range 2 {
		x.iterate(func() { x.run("k=1M a=10M b=20M free:a free:b free:k") })
	}
	x.run("other=20M")
	x.iterate(func() {
		x.run("k=1M")
		require.NoError(t, x.RecordStream(x.alloc("a", 10*mib, 0), x.stream(1)))
		require.NoError(t, x.stream(1).Launch(func() {}))
		x.run("free:a")
		require.EqualValues(t, 1, x.Stats().HeldBlocks)
		d.CompleteAll()
		x.run("c=25M")
		require.EqualValues(t, 1, x.Stats().Strays)
		x.run("free:c free:k")
	})
}

// A plan that serves keeps its memory, also between two blocks, where another stream lacks some.
func TestPlanThatServesStays(t *testing.T) {
	x := newPlanned(t, sim(64*mib), planner.Config{Confirm: 1})
	for range 2 {
		x.iterate(func() { x.run("a=10M free:a b=30M free:b") })
	}
	hits := x.Stats().PlannedHits
	x.iterate(func() {
		x.run("a=10M free:a")
		_, err := x.Alloc(50*mib, x.stream(1))
		require.ErrorIs(t, err, cupool.ErrOutOfMemory)
		x.run("b=30M free:b")
	})
	require.EqualValues(t, 2, x.Stats().PlannedHits-hits)
}

// Requests beyond the bound are not planned.
func TestMaxRequests(t *testing.T) {
	x := newPlanned(t, sim(0), planner.Config{Confirm: 1, MaxRequests: 3})
	for range 3 {
		x.iterate(func() { x.run("a=1K free:a b=2K free:b c=3K free:c d=4K free:d") })
	}
	require.Zero(t, x.Stats().PlannedHits)
	for range 3 {
		x.iterate(func() { x.run("a=1K free:a b=2K free:b c=3K free:c") })
	}
	require.Equal(t, int64(6), x.Stats().PlannedHits)
}

// A planned hit takes no Go memory.
func TestHitAllocatesNothing(t *testing.T) {
	if lock.Invariants {
		t.Skip("checking does")
	}
	x := newPlanned(t, sim(0), planner.Config{Confirm: 1})
	pair := func() {
		a, _ := x.Alloc(1<<20, nil)
		b, _ := x.Alloc(5<<20, nil)
		_ = x.Free(a)
		_ = x.FreePtr(b.Ptr(), b.Size())
	}
	x.iterate(func() {
		for range 101 {
			pair()
		}
	})
	x.iterate(func() { require.Zero(t, testing.AllocsPerRun(100, pair)) })
	require.Equal(t, int64(202), x.Stats().PlannedHits)
}

func BenchmarkHit(b *testing.B) {
	for _, n := range []int{10, 1000, 20000} {
		b.Run(fmt.Sprint("requests=", n), func(b *testing.B) {
			x := newPlanned(b, sim(1<<40), planner.Config{Confirm: 1, Budget: 100 * time.Millisecond})
			const live = 400 // blocks at a time, of many sizes
			blocks := make([]cupool.Block, n)
			run := func() {
				for i := range blocks {
					blocks[i], _ = x.Alloc(512*int64(1+i*7919%5000), nil)
					if i >= live {
						_ = x.Free(blocks[i-live])
					}
				}
				for _, b := range blocks[max(0, n-live):] {
					_ = x.Free(b)
				}
			}
			x.iterate(run)
			x.iterate(run)
			hits := x.Stats().PlannedHits
			b.ReportAllocs()
			b.ResetTimer()
			count := 0
			for b.Loop() {
				require.NoError(b, x.BeginIteration())
				run()
				require.NoError(b, x.EndIteration())
				count++
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(count*n), "ns/pair")
			require.Equal(b, int64(count*n), x.Stats().PlannedHits-hits)
		})
	}
}
