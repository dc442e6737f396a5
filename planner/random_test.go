package planner_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/simdev"
	"github.com/cupool/cupool/internal/testkit"
	"github.com/cupool/cupool/planner"
)

// step is one step of a random iteration: block is allocated, freed or used
// on another stream.
type step struct {
	what   byte // 'a', 'f', 'u'
	block  int
	size   int64
	stream int
}

// randomIteration makes the steps of an iteration on so many streams. What
// it does not free is freed by the next one.
func randomIteration(r *rand.Rand, n, streams int) (steps []step) {
	var live []int
	size := func() int64 { return 1 + r.Int64N(512<<r.IntN(8)) }
	for block := range n {
		steps = append(steps, step{'a', block, size(), r.IntN(streams)})
		live = append(live, block)
		if r.IntN(12) == 0 {
			steps = append(steps, step{'u', live[r.IntN(len(live))], 0, r.IntN(streams)})
		}
		for len(live) > 0 && r.IntN(20) < 11 {
			k := r.IntN(len(live))
			steps = append(steps, step{what: 'f', block: live[k]})
			live = slices.Delete(live, k, k+1)
		}
	}
	for _, block := range live {
		if r.IntN(8) > 0 {
			steps = append(steps, step{what: 'f', block: block})
		}
	}
	return steps
}

// vary changes a few steps: frees that come later or never, other sizes,
// blocks more or less, uses.
func vary(r *rand.Rand, steps []step, streams int) []step {
	steps = slices.Clone(steps)
	for range 1 + r.IntN(3) {
		i := r.IntN(len(steps))
		s := steps[i]
		switch {
		case s.what == 'f' && r.IntN(2) == 0: // later
			steps = slices.Insert(slices.Delete(steps, i, i+1), i+r.IntN(len(steps)-i), s)
		case s.what == 'f': // not at all
			steps = slices.Delete(steps, i, i+1)
		case s.what == 'u':
			steps = slices.Delete(steps, i, i+1)
		case r.IntN(3) == 0:
			steps[i].size += 5000
		case r.IntN(2) == 0:
			steps = slices.Insert(steps, i+1, step{'u', s.block, 0, r.IntN(streams)})
		default:
			steps = slices.DeleteFunc(steps, func(o step) bool { return o.block == s.block })
			if len(steps) == 0 {
				return []step{s}
			}
		}
	}
	return steps
}

// staged is a copy of a block that a stream made, perhaps after it was freed.
type staged struct {
	to   cupool.Block
	want byte
	s    *cupool.Stream
}

// perform runs the steps. What the iteration before left is freed on the
// way. Streams that use a block take their time, and copy it.
func (x *planned) perform(r *rand.Rand, steps []step) (copies []staged) {
	var old []string
	for _, name := range sortedKeys(x.live) {
		x.rename(name, "old"+name)
		old = append(old, "old"+name)
	}
	for _, s := range steps {
		name := fmt.Sprint(s.block)
		_, live := x.live[name]
		switch {
		case s.what == 'a':
			x.alloc(name, s.size, s.stream)
		case s.what == 'f' && live:
			x.free(name)
		case s.what == 'u' && live && x.late == nil:
			copies = append(copies, x.use(name, x.stream(s.stream)))
		}
		if len(old) > 0 && r.IntN(4) == 0 {
			x.free(old[0])
			old = old[1:]
		}
	}
	for _, name := range old {
		x.free(name)
	}
	return copies
}

func (x *planned) use(name string, s *cupool.Stream) staged {
	b := x.live[name]
	to, err := x.c.Alloc(b.Size(), s)
	require.NoError(x.t, err)
	require.NoError(x.t, s.WaitStream(x.on[name]))
	require.NoError(x.t, s.Launch(func() { time.Sleep(50 * time.Microsecond) }))
	require.NoError(x.t, s.Copy(to.Ptr(), b.Ptr(), b.Size()))
	require.NoError(x.t, x.RecordStream(b, s))
	return staged{to, x.fills[name], s}
}

// Whatever a program does, blocks keep their contents, also for streams that
// use them after they were freed. One program in thirty is never detected. The
// streams of a joint plan work behind the host, while it frees and allocates.
func TestRandom(t *testing.T) {
	for name, tc := range map[string]struct {
		planner.Config
		late bool
	}{
		"told": {}, "told, at once": {planner.Config{Confirm: 1}, false}, "detected": {planner.Config{Detect: true}, false},
		"jointly": {planner.Config{Confirm: 1, Joint: true}, false}, "jointly, late": {planner.Config{Confirm: 1, Joint: true}, true},
	} {
		t.Run(name, func(t *testing.T) {
			r := testkit.Rand(t)
			var sum planner.Stats
			for _, backing := range []cupool.Backing{cupool.BackingSegments, cupool.BackingVMM} {
				for range 3 {
					st := randomProgram(t, r, tc.Config, backing, tc.late)
					sum.PlannedHits += st.PlannedHits
					sum.Deviations += st.Deviations
				}
			}
			require.Positive(t, sum.PlannedHits)
			require.Positive(t, sum.Deviations)
		})
	}
}

func randomProgram(t *testing.T, r *rand.Rand, cfg planner.Config, backing cupool.Backing, late bool) (st planner.Stats) {
	t.Run(backing.String(), func(t *testing.T) {
		x := newPlanned(t, host(t), cfg, func(c *cupool.Config) {
			c.Backing = backing
			c.MagazineBytes = []int64{0, -1}[r.IntN(2)]
		})
		x.bytes = true
		streams, iterations := 1+r.IntN(3), testkit.Choose(40, 25)
		if late {
			x.late, streams, iterations = r, 3, testkit.Choose(25, 12)
		}
		usual := randomIteration(r, 2+r.IntN(60), streams)
		for range iterations {
			steps := usual
			if r.IntN(4) == 0 {
				steps = vary(r, usual, streams)
			}
			if r.IntN(15) == 0 {
				usual = steps
			}
			var copies []staged
			body := func() { copies = x.perform(r, steps) }
			if cfg.Detect {
				require.NoError(t, x.Wait(context.Background()))
				body()
			} else {
				x.iterate(body)
			}
			for _, c := range copies {
				got := make([]byte, c.to.Size())
				require.NoError(t, c.s.CopyOut(got, c.to.Ptr()))
				require.Equal(t, len(got), bytes.Count(got, []byte{c.want}), "overwritten while in use")
				require.NoError(t, x.c.Free(c.to))
			}
			require.NoError(t, x.Check())
			require.NoError(t, x.c.Check())
		}
		for _, s := range x.streams {
			require.NoError(t, s.Sync())
		}
		require.Zero(t, x.broken.Load(), "blocks that another stream overwrote")
		st = x.Stats()
	})
	return st
}

// FuzzPlanner makes iterations of any bytes, repeats them as other bytes
// say, and looks whether memory is handed out that is live, or that work
// which is not done yet may still use.
func FuzzPlanner(f *testing.F) {
	f.Add([]byte{0, 10, 130, 11, 131, 0, 20}, []byte{0, 0, 0})
	f.Add([]byte{1, 10, 70, 130, 11, 131, 0, 20, 5, 3, 140, 141}, []byte{0, 0, 0, 4, 0, 0, 8, 1, 0})
	f.Fuzz(func(t *testing.T, iteration, schedule []byte) {
		if len(iteration) > 60 || len(schedule) > 12 || len(iteration) == 0 {
			return
		}
		d := simdev.New(simdev.Config{ManualEvents: true})
		x := newPlanned(t, d, planner.Config{Confirm: 1 + int(iteration[0]%2), Detect: iteration[0]%3 == 2, Joint: iteration[0]%3 == 1})
		x.stream(2)
		z := &fuzzed{planned: x, d: d}
		for _, s := range schedule {
			if iteration[0]%3 == 2 {
				require.NoError(t, x.Wait(context.Background()))
				z.iteration(iteration, s)
			} else {
				x.iterate(func() { z.iteration(iteration, s) })
			}
		}
		for _, w := range z.inUse {
			require.NoError(t, w.until.Close())
		}
		d.CompleteAll()
	})
}

type fuzzed struct {
	*planned
	d     *simdev.Device
	inUse []work
}

// work is a range of memory that a stream uses until an event.
type work struct {
	block cupool.Block
	until *cupool.Event
}

// iteration decodes one: a byte is a size class with a stream, or a block to
// be freed, used or kept. s leaves one step out or changes it.
func (z *fuzzed) iteration(steps []byte, s byte) {
	for i, v := range steps {
		if s != 0 && i == int(s)%len(steps) {
			v += s
		}
		names := sortedKeys(z.live)
		switch {
		case v < 128:
			name := fmt.Sprint(len(names), "-", i, "-", z.next)
			z.next++
			z.apart(z.alloc(name, int64(v%8+1)*300, int(v/8)%3), z.on[name])
		case len(names) == 0:
		case v < 230:
			z.free(names[int(v)%len(names)])
		case v < 250:
			z.useLater(names[int(v)%len(names)], z.streams[int(v)%3])
		default:
			z.d.CompleteStream(z.streams[int(v)%3].Handle())
		}
		require.NoError(z.t, z.Check())
	}
}

// useLater has a stream use a block until it is told to complete its work.
// The block's own stream orders that itself.
func (z *fuzzed) useLater(name string, s *cupool.Stream) {
	b := z.live[name]
	require.NoError(z.t, z.RecordStream(b, s))
	require.NoError(z.t, s.Memset(b.Ptr(), 1, b.Size()))
	if s == z.on[name] {
		return
	}
	e, err := s.Record()
	require.NoError(z.t, err)
	z.inUse = append(z.inUse, work{b, e})
}

// apart looks whether a new block of a stream shares memory with what is in use, unless the
// stream waits for that.
func (z *fuzzed) apart(b cupool.Block, s *cupool.Stream) {
	z.inUse = slices.DeleteFunc(z.inUse, func(w work) bool {
		done, err := w.until.Done()
		require.NoError(z.t, err)
		return done && w.until.Close() == nil
	})
	for _, w := range z.inUse {
		shares := b.Ptr() < w.block.Ptr()+cupool.Ptr(w.block.Size()) && w.block.Ptr() < b.Ptr()+cupool.Ptr(b.Size())
		if !shares {
			continue
		}
		z.d.CompleteStream(s.Handle()) // and what it waits for
		require.True(z.t, testkit.Must(w.until.Done()), "%v shares memory with %v, which is in use", b, w.block)
	}
}

// Goroutines that allocate on streams of their own are served by the plan;
// those that share one deviate, and nobody is harmed, not even when memory
// is short and arenas come and go.
func TestParallel(t *testing.T) {
	for name, tc := range map[string]struct {
		shared         bool
		capacity       int64
		rounds, blocks int
	}{
		"own streams":                  {false, 0, 4, 30},
		"one stream":                   {true, 0, 4, 30},
		"own streams, short of memory": {false, 6 << 20, 3, 8}, // a refusal takes milliseconds
		"one stream, short of memory":  {true, 2 << 20, 3, 8},
	} {
		t.Run(name, func(t *testing.T) {
			d, err := cupool.OpenHost(cupool.HostConfig{Capacity: tc.capacity})
			require.NoError(t, err)
			x := newPlanned(t, d, planner.Config{Confirm: 1}, func(c *cupool.Config) { c.OnOutOfMemory = func(int64) bool { return false } })
			const workers = 4
			for range tc.rounds {
				x.iterate(func() {
					var wg sync.WaitGroup
					for w := range workers {
						s := x.stream(w)
						if tc.shared {
							s = x.stream(0)
						}
						wg.Go(func() { parallelWork(t, x, s, byte(w+1), tc.blocks) })
					}
					wg.Wait()
				})
			}
			st := x.Stats()
			if !tc.shared && tc.capacity == 0 {
				require.Equal(t, int64(workers*tc.blocks*(tc.rounds-1)), st.PlannedHits)
				require.Zero(t, st.Deviations, st.LastDeviation)
			}
			require.Equal(t, int64(workers*tc.blocks*tc.rounds), st.PlannedHits+st.Passed)
		})
	}
}

// parallelWork allocates, writes, checks and frees.
func parallelWork(t *testing.T, x *planned, s *cupool.Stream, fill byte, blocks int) {
	var live []cupool.Block
	for i := range blocks {
		b, err := x.Alloc(int64(i%7+1)*100_000, s)
		if errors.Is(err, cupool.ErrOutOfMemory) {
			continue
		}
		if err != nil || s.Memset(b.Ptr(), fill, b.Size()) != nil {
			t.Error("allocation failed:", err)
			return
		}
		live = append(live, b)
		for len(live) > i%5 {
			b, live = live[0], live[1:]
			got := make([]byte, b.Size())
			if err := s.CopyOut(got, b.Ptr()); err != nil || bytes.Count(got, []byte{fill}) != len(got) {
				t.Error("contents were lost:", err)
			}
			if err := x.Free(b); err != nil {
				t.Error(err)
			}
		}
	}
	for _, b := range live {
		if err := x.Free(b); err != nil {
			t.Error(err)
		}
	}
}
