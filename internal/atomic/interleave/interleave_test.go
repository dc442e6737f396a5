package interleave

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool/internal/testkit"
)

// outcomes plays a program in all schedules and returns what it can come to.
func outcomes(t *testing.T, o Options, setup func(r *Run, note func(any))) (all []string, res Result) {
	set := map[string]bool{}
	res = Explore(o, func(r *Run) {
		notes := make([]any, 0, 8)
		setup(r, func(v any) { notes = append(notes, v) })
		check := r.x.check
		r.Finally(func() error {
			var err error
			if check != nil {
				err = check()
			}
			set[strings.TrimSuffix(fmt.Sprintln(notes...), "\n")] = true
			return err
		})
	})
	return slices.Sorted(maps.Keys(set)), res
}

// step is one access of a random or litmus program.
type step struct {
	what string
	word int
}

const (
	read    = "read"
	put     = "put" // plain store
	set     = "set" // atomic store
	add     = "add"
	fence   = "fence"
	barrier = "barrier"
	locked  = "locked" // an increment with a mutex held, by plain accesses
	try     = "try"
)

// play makes a program of steps. A store's value is the number of the goroutine,
// from 1. The outcome is what each goroutine read, and the memory at the end.
func play(threads [][]step) func(r *Run, note func(any)) {
	return func(r *Run, note func(any)) {
		var words [4]Uint64
		var own [4]Uint32
		var mu Mutex
		got := make([][]any, len(threads))
		for i, steps := range threads {
			read := func(v any) { got[i] = append(got[i], v) }
			r.Go(i, func() {
				for _, s := range steps {
					w := &words[s.word]
					switch s.what {
					case "read":
						read(w.Load())
					case put:
						w.Delay(uint64(i + 1))
					case set:
						w.Store(uint64(i + 1))
					case add:
						read(w.Add(1))
					case fence:
						own[i].Add(1)
					case barrier:
						Barrier()
					case locked:
						mu.Lock()
						w.Delay(w.Load() + 1)
						mu.Unlock()
					case try:
						if mu.TryLock() {
							w.Delay(w.Load() + 1)
							mu.Unlock()
						} else {
							read("busy")
						}
					}
				}
			})
		}
		r.Finally(func() error {
			for _, g := range got {
				note(fmt.Sprint(g))
			}
			for i := range words {
				note(fmt.Sprint(words[i].v.Load()))
			}
			return nil
		})
	}
}

// What programs come to on amd64, as "A Better x86 Memory Model" has it.
func TestLitmus(t *testing.T) {
	for name, x := range map[string]struct {
		threads     [][]step
		read        int    // how many goroutines read
		may, maynot string // a prefix of outcomes
	}{
		"store buffering":              {threads: [][]step{{{put, 0}, {read, 1}}, {{put, 1}, {read, 0}}}, may: "[0] [0]"},
		"store buffering, atomic":      {threads: [][]step{{{set, 0}, {read, 1}}, {{set, 1}, {read, 0}}}, maynot: "[0] [0]"},
		"store buffering, one fence":   {threads: [][]step{{{put, 0}, {fence, 3}, {read, 1}}, {{put, 1}, {read, 0}}}, may: "[0] [0]"},
		"store buffering, two fences":  {threads: [][]step{{{put, 0}, {fence, 3}, {read, 1}}, {{put, 1}, {fence, 3}, {read, 0}}}, maynot: "[0] [0]"},
		"store buffering, one barrier": {threads: [][]step{{{put, 0}, {barrier, 3}, {read, 1}}, {{put, 1}, {read, 0}}}, maynot: "[0] [0]"},
		"a barrier too early":          {threads: [][]step{{{barrier, 3}, {put, 0}, {read, 1}}, {{put, 1}, {read, 0}}}, may: "[0] [0]"},
		"messages":                     {threads: [][]step{{{put, 0}, {put, 1}}, {{read, 1}, {read, 0}}}, maynot: "[] [1 0]"},
		"messages, the wrong way":      {threads: [][]step{{{put, 0}, {put, 1}}, {{read, 0}, {read, 1}}}, may: "[] [0 1]"},
		"loads stay before stores":     {threads: [][]step{{{read, 0}, {put, 1}}, {{read, 1}, {put, 0}}}, maynot: "[2] [1]"},
		"its own store at once":        {threads: [][]step{{{put, 0}, {read, 0}}}, maynot: "[0]"},
		"its own store before others":  {threads: [][]step{{{put, 0}, {read, 0}, {read, 1}}, {{put, 1}, {read, 1}, {read, 0}}}, may: "[1 0] [2 0]"},
		"writers in one order": {
			threads: [][]step{{{put, 0}}, {{put, 1}}, {{read, 0}, {read, 1}}, {{read, 1}, {read, 0}}}, maynot: "[] [] [1 0] [2 0]"},
		"a message by way of another": {
			threads: [][]step{{{put, 0}}, {{read, 0}, {put, 1}}, {{read, 1}, {read, 0}}}, maynot: "[] [1] [2 0]"},
		"an increment is one step": {threads: [][]step{{{add, 0}}, {{add, 0}}}, maynot: "[1] [1]"},
		"a mutex":                  {threads: [][]step{{{locked, 0}}, {{locked, 0}}, {{locked, 0}}}, maynot: "[] [] [] 2"},
		"a mutex may be taken":     {threads: [][]step{{{try, 0}}, {{try, 0}}}, may: "[busy] [] 1"},
		"a mutex may be free":      {threads: [][]step{{{try, 0}}, {{try, 0}}}, may: "[] [] 2"},
	} {
		t.Run(name, func(t *testing.T) {
			all, res := outcomes(t, Options{}, play(x.threads))
			require.Nil(t, res.Failure)
			require.True(t, res.Complete)
			begins := func(with string) bool {
				return slices.ContainsFunc(all, func(s string) bool { return len(s) >= len(with) && s[:len(with)] == with })
			}
			if x.may != "" {
				require.True(t, begins(x.may), "%v", all)
			}
			if x.maynot != "" {
				require.False(t, begins(x.maynot), "%v", all)
			}
			every, whole := outcomes(t, Options{every: true}, play(x.threads))
			require.Equal(t, every, all, "%v", x.threads)
			t.Log(res, "of", whole.Schedules)
		})
	}
}

// random returns a program of two or three goroutines.
func random(r *rand.Rand) (threads [][]step) {
	what := []string{read, read, put, put, set, add, fence, barrier, locked, try}
	total := 0
	for range 2 + r.IntN(2) {
		var steps []step
		for range 1 + r.IntN(4) {
			s := step{what[r.IntN(len(what))], r.IntN(2)}
			if s.what == locked || s.what == try {
				total += 3
			}
			if total++; total > 8 {
				break
			}
			steps = append(steps, s)
		}
		threads = append(threads, steps)
	}
	return threads
}

// The reduction leaves out no outcome: random programs come to the same with it as
// without.
func TestReductionAgainstAllOrders(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 1))
	t.Log("seed", seed)
	less, more := 0, 0
	for range testkit.Rounds(1600) {
		threads := random(r)
		every, whole := outcomes(t, Options{every: true, Max: 5000}, play(threads))
		if !whole.Complete {
			continue
		}
		all, res := outcomes(t, Options{}, play(threads))
		require.Nil(t, res.Failure, "%v", threads)
		require.True(t, res.Complete)
		require.Equal(t, every, all, "%v", threads)
		less, more = less+res.Schedules+res.Redundant, more+whole.Schedules
	}
	t.Log(less, "schedules instead of", more)
}

// Goroutines that wait for each other are found, and the schedule that is named
// leads there again.
func TestDeadlock(t *testing.T) {
	setup := func(r *Run) {
		var a, b Mutex
		both := func(x, y *Mutex) {
			x.Lock()
			defer x.Unlock()
			y.Lock()
			defer y.Unlock()
		}
		r.Go(0, func() { both(&a, &b) })
		r.Go(1, func() { both(&b, &a) })
	}
	res := Explore(Options{}, setup)
	require.NotNil(t, res.Failure)
	require.ErrorIs(t, res.Failure, ErrDeadlock)
	again := Replay(res.Failure.Schedule, setup)
	require.NotNil(t, again)
	require.Equal(t, res.Failure, again)
	require.Nil(t, Replay("a4b4", setup))
}

// With a bound of preemptions a bug is found that needs one, and not with fewer.
func TestPreemptions(t *testing.T) {
	setup := func(r *Run) {
		var a, b Uint32
		var bad bool
		r.Go(0, func() { a.Store(1); a.Store(0); b.Store(1); b.Store(0) })
		r.Go(1, func() { x := a.Load(); bad = b.Load() == 1 && x == 1 })
		r.Finally(func() error {
			if bad {
				return errors.New("seen")
			}
			return nil
		})
	}
	one := Explore(Options{Preemptions: 1}, setup)
	require.Nil(t, one.Failure)
	require.True(t, one.Complete)
	two := Explore(Options{Preemptions: 3}, setup)
	require.NotNil(t, two.Failure)
	require.ErrorContains(t, two.Failure, "seen")
	require.NotNil(t, Replay(two.Failure.Schedule, setup))
	require.NotNil(t, Explore(Options{}, setup).Failure)
}

func TestPanicIsAFailure(t *testing.T) {
	res := Explore(Options{}, func(r *Run) { r.Go(0, func() { panic("broken") }) })
	require.ErrorContains(t, res.Failure, "broken")
}

// A program that does something else in the same schedule is refused.
func TestNotRepeatable(t *testing.T) {
	n := 0
	res := Explore(Options{}, func(r *Run) {
		var a Uint32
		n++
		for i := range 2 {
			r.Go(i, func() {
				for range n {
					a.Add(1)
				}
			})
		}
		if n > 1 {
			r.Finally(func() error { return errors.New("never said") })
		}
	})
	require.NotNil(t, res.Failure)
}

func TestScheduleAsText(t *testing.T) {
	for _, s := range []string{"", "a", "a12b3Ab", "aBcDd2"} {
		actors, err := parse(s)
		require.NoError(t, err)
		require.Equal(t, s, format(actors))
	}
	for _, s := range []string{"z", "3", "a99999999999"} {
		_, err := parse(s)
		require.Error(t, err)
		require.NotNil(t, Replay(s, func(*Run) {}))
	}
}

// Outside of a schedule, and in goroutines that are not of the program, the words
// are as those of sync/atomic.
func TestOutside(t *testing.T) {
	var w Uint64
	var m Mutex
	require.False(t, w.Delay(1))
	w.Store(2)
	require.EqualValues(t, 2, w.Load())
	m.Lock()
	require.False(t, m.TryLock())
	m.Unlock()
	_, ok := Barrier()
	require.False(t, ok)
	res := Explore(Options{}, func(r *Run) {
		r.Go(0, func() { w.Add(1) })
		other := make(chan struct{})
		go func() {
			w.Add(1)
			close(other)
		}()
		<-other
	})
	require.Nil(t, res.Failure)
	require.Equal(t, 1, res.Steps)
	require.EqualValues(t, 4, w.Load())
}

func BenchmarkStep(b *testing.B) {
	res := Explore(Options{Max: 1}, func(r *Run) {
		var w Uint64
		r.Go(0, func() {
			for b.Loop() {
				w.Load()
			}
		})
	})
	require.Nil(b, res.Failure)
}
