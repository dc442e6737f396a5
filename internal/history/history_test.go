package history

import (
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool/internal/origins"
	"github.com/cupool/cupool/snapshot"
)

// seeded makes draws repeatable, and time stand still but for what the returned
// function adds.
func seeded(t *testing.T) (pass func(time.Duration)) {
	seed := uint64(time.Now().UnixNano())
	t.Cleanup(func() {
		if t.Failed() {
			t.Log("seed", seed)
		}
		now, random = time.Now, rand.ExpFloat64
	})
	at := time.Unix(1, 0)
	now, random = func() time.Time { return at }, rand.New(rand.NewPCG(seed, 0)).ExpFloat64
	return func(d time.Duration) { at = at.Add(d) }
}

// Weights of samples add up to what was allocated, one by one and by draws.
func TestWeights(t *testing.T) {
	for _, size := range []int64{512, 10_000, 512 << 10, 1 << 20, 100 << 20} {
		pass := seeded(t)
		var l Log
		var d Distance
		l.Start(Settings{1, DefaultSampleBytes})
		const n = 300_000
		sum, drawn, samples := 0.0, 0.0, 0
		for range n {
			w := l.Sample(&d, size)
			if sum += w; w > 0 {
				samples++
			}
			pass(time.Millisecond)
		}
		for i := int64(0); ; {
			free, factor, ok := l.Draw(size)
			require.True(t, ok)
			if i += int64(free) + 1; i > n {
				break
			}
			drawn += l.Drawn(size, factor)
			pass(time.Second)
		}
		p := -math.Expm1(-float64(size) / DefaultSampleBytes)
		sigma := math.Sqrt(n * (1/p - 1))
		require.InDelta(t, n, sum, 7*sigma+1, size)
		require.InDelta(t, n, drawn, 7*sigma+1, size)
		require.InDelta(t, n*p, float64(samples), 7*math.Sqrt(n*p)+1, size)
	}
}

// However much is allocated, there are some MaxRate samples a second, whose weights
// add up; and when little is, all are drawn again as the settings say.
func TestRate(t *testing.T) {
	pass := seeded(t)
	var l Log
	var d Distance
	l.Start(Settings{1, DefaultSampleBytes})
	const n = 2_000_000 // of 1 MiB, a microsecond each
	samples, sum := 0, 0.0
	for range n {
		if w := l.Sample(&d, 1<<20); w > 0 {
			samples++
			sum += w
		}
		pass(time.Microsecond)
	}
	seconds := n * time.Microsecond.Seconds()
	require.Less(t, float64(samples), 2*MaxRate*seconds+20*batch)
	require.Greater(t, float64(samples), MaxRate*seconds/8)
	require.InEpsilon(t, n, sum, 0.2)
	factor := l.current.Load().factor.Load()
	require.Greater(t, factor, uint32(5))
	pass(time.Hour)
	for l.Sample(&d, 100<<30) == 0 {
	}
	require.Zero(t, l.current.Load().factor.Load())
}

// What is off or exact, and draws that never end.
func TestSettings(t *testing.T) {
	var l Log
	var d Distance
	require.False(t, l.On() || l.All())
	require.Zero(t, l.Sample(&d, 1<<40))
	require.Zero(t, l.Freed(3))
	free, factor, ok := l.Draw(1)
	require.True(t, ok)
	require.EqualValues(t, math.MaxUint32, free)
	require.Zero(t, l.Drawn(1, factor))
	require.Zero(t, l.Add(Event{Kind: snapshot.Trim}))
	l.Start(Settings{10, 1})
	require.True(t, l.On() && l.All())
	require.EqualValues(t, 1, l.Sample(&d, 1))
	require.EqualValues(t, 1, l.Drawn(1, factor))
	require.EqualValues(t, 1, l.Freed(0))
	_, _, ok = l.Draw(1)
	require.False(t, ok)
	l.Start(Settings{10, math.MaxInt64})
	_, factor, ok = l.Draw(1)
	require.True(t, ok)
	require.EqualValues(t, Never, factor)
	require.Zero(t, l.Drawn(1, factor))
	require.EqualValues(t, 3, l.Freed(3))
	l.Stop()
	require.False(t, l.On())
}

//go:noinline
func here() *origins.Stack {
	var s origins.Stack
	runtime.Callers(2, s[:])
	return &s
}

// The ring keeps the last events with their stacks, and no others.
func TestRing(t *testing.T) {
	var l Log
	l.Start(Settings{3, 1})
	for i := range 5 {
		s := origins.Stack{uintptr(i + 1)}
		require.EqualValues(t, i+1, l.Add(Event{Kind: snapshot.FreeRequested, Size: int64(i), Stack: &s, Weight: 1}))
	}
	require.Len(t, l.stacks.numbers, 3)
	require.LessOrEqual(t, len(l.stacks.list), 5)
	events := l.Copy(0, math.MaxUint64).Events()
	require.Len(t, events, 3)
	require.EqualValues(t, 3, events[0].Number)
	require.EqualValues(t, 4, events[2].Size)
	require.Len(t, l.Copy(4, math.MaxUint64).Events(), 1)
	require.Empty(t, l.Copy(5, math.MaxUint64).Events())
	require.Empty(t, l.Copy(100, math.MaxUint64).Events())

	l.Start(Settings{3, 1})
	require.Empty(t, l.Copy(0, math.MaxUint64).Events())
	stack := func() *origins.Stack { return here() }() // of this function
	require.EqualValues(t, 6, l.Add(Event{Kind: snapshot.Alloc, Size: 7, Stack: stack, Weight: 2, Pool: "p", ID: 7, Label: "l"}))
	e := l.Copy(0, math.MaxUint64).Events()[0]
	require.Contains(t, e.Stack.String(), "history.TestRing")
	s := snapshot.Snapshot{Pool: "p"}
	l.Copy(0, math.MaxUint64).Of(&s, 7)
	require.Equal(t, []snapshot.Event{e}, s.Events)
	require.Equal(t, []snapshot.Total{{Stack: e.Stack, Label: "l", Allocations: 2, Bytes: 14}}, s.Totals)
	other := snapshot.Snapshot{Pool: "p"} // of the same name
	l.Copy(0, math.MaxUint64).Of(&other, 8)
	require.Equal(t, snapshot.Snapshot{Pool: "p"}, other)
}

// Totals of more stacks and labels than are kept are summed up.
func TestTotalsAreBounded(t *testing.T) {
	var l Log
	l.Start(Settings{10, 1})
	const n = maxTotals + 1000
	for i := range n {
		s := origins.Stack{uintptr(i + 1)}
		l.Add(Event{Kind: snapshot.Alloc, Size: 2, Weight: 1.5, Stack: &s, Label: fmt.Sprint("label ", i%7)})
	}
	require.Len(t, l.totals, maxTotals+1)
	require.Len(t, l.stacks.numbers, maxTotals+10)
	sum := 0.0
	for _, x := range l.totals {
		sum += x.bytes
	}
	require.InDelta(t, 3*n, sum, 1e-3)
}

// Pools that come and go leave no totals and no stacks of them.
func TestForget(t *testing.T) {
	var l Log
	l.Start(Settings{1, 1})
	stack, other := origins.Stack{1}, origins.Stack{2}
	for id := range uint32(10) {
		l.Add(Event{Kind: snapshot.Alloc, Size: 2, Weight: 1, Stack: &stack, ID: id})
		l.Add(Event{Kind: snapshot.Alloc, Size: 2, Weight: 1, Stack: &other, ID: id, Label: "l"})
		if id > 0 {
			l.Forget(id)
		}
	}
	require.Len(t, l.totals, 2)
	l.Forget(0)
	require.Empty(t, l.totals)
	require.Len(t, l.stacks.numbers, 1, "the last event's")
}

// Logs are used from many goroutines.
func TestStorm(t *testing.T) {
	var l Log
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			var d Distance
			for n := range 300 {
				switch (n + i) % 20 {
				case 0:
					l.Start(Settings{1 + n, DefaultSampleBytes})
				case 1:
					l.Stop()
				case 2:
					for _, e := range l.Copy(0, math.MaxUint64).Events() {
						if len(e.Stack) == 0 {
							t.Error("no stack")
						}
					}
				default:
					l.Add(Event{Kind: snapshot.Alloc, Size: 1, Weight: max(l.Sample(&d, 1<<20), 1), Stack: here()})
				}
			}
		})
	}
	wg.Wait()
	var last uint64
	for _, e := range l.Copy(0, math.MaxUint64).Events() {
		require.Greater(t, e.Number, last)
		last = e.Number
	}
}

func BenchmarkAdd(b *testing.B) {
	var l Log
	l.Start(Settings{DefaultEvents, 1})
	b.ReportAllocs()
	for b.Loop() {
		l.Add(Event{Kind: snapshot.Alloc, Size: 1, Weight: 1, Stack: here()})
	}
}

// A Copy that is made in portions has the last events, without a gap, while others overwrite
// the oldest ones and stacks get other numbers.
func TestCopyBesideAdd(t *testing.T) {
	var l Log
	l.Start(Settings{Events: 3 * copyPortion, SampleBytes: 1})
	add := func(n uint64) {
		stack := origins.Stack{uintptr(n)}
		require.Equal(t, n, l.Add(Event{Kind: snapshot.Alloc, Address: n, Weight: 1, Stack: &stack}))
	}
	for n := range uint64(4 * copyPortion) {
		add(n + 1)
	}
	last, c := l.Last(), &Copy{log: &l}
	before, more := c.copyEvents(0, last)
	require.True(t, more)
	require.Equal(t, last-copyPortion, before)
	for n := range uint64(copyPortion + 10) {
		add(last + n + 1)
	}
	before, more = c.copyEvents(0, before)
	require.False(t, more, "the others were overwritten")
	require.Len(t, c.events, int(last-before))
	for i, e := range c.events {
		require.Equal(t, last-uint64(i), e.of.address)
		require.Equal(t, uintptr(e.of.address), e.at.pcs[0])
	}
	copied := l.Copy(last-5, last)
	require.Len(t, copied.events, 5)
	require.Equal(t, last-4, copied.Events()[0].Number)
	require.Empty(t, l.Copy(0, 3).events, "they were overwritten")
}
