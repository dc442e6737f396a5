package cupool_test

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
)

// freeManyOn allocates n blocks and frees each on another stream.
func freeManyOn(t *testing.T, c *cupool.Pool, s *cupool.Stream, n int, size int64) {
	t.Helper()
	for range n {
		b, err := c.Alloc(size, nil)
		require.NoError(t, err)
		require.NoError(t, c.FreeOn(b, s))
	}
}

// An event serves every block that was freed since the last one, and no more
// than four are in flight: further frees cost no driver call at all.
func TestOneEventServesManyFrees(t *testing.T) {
	c, d := newPool(t, 1<<30)
	x := newScript(t, c, d)
	s := x.stream("1")
	require.NoError(t, c.Reserve(512, nil))
	d.busy(s)
	for i := range 4 {
		freeManyOn(t, c, s, 31, 512)
		require.Equal(t, i, d.count("RecordEvent"), "not before a batch is full")
		freeManyOn(t, c, s, 1, 512)
		require.Equal(t, i+1, d.count("RecordEvent"), "an event for a full batch")
	}
	before := d.total()
	freeManyOn(t, c, s, 1000, 512)
	require.Equal(t, before, d.total(), "no driver call at all")
	require.EqualValues(t, 1128, c.Stats().BlocksPending)

	d.idle(s)
	queries := d.count("QueryEvent")
	n, err := c.ProcessDeferred()
	require.NoError(t, err)
	require.Equal(t, 1128, n)
	require.Equal(t, 5, d.count("RecordEvent"), "one more for all the rest")
	require.LessOrEqual(t, d.count("QueryEvent")-queries, 5)
	require.Equal(t, 5, d.count("NewEvent"))
	require.NoError(t, c.Check())

	// Events are recycled.
	d.busy(s)
	freeManyOn(t, c, s, 1000, 512)
	d.idle(s)
	_, err = c.ProcessDeferred()
	require.NoError(t, err)
	require.Equal(t, 5, d.count("NewEvent"))
	require.Zero(t, c.Stats().BlocksPending)
}

// Blocks come free epoch by epoch, as the stream's work advances.
func TestEpochsCompleteInOrder(t *testing.T) {
	c, d := newPool(t, 1<<30)
	x := newScript(t, c, d)
	x.run("a=2M b=4M c=5M busy:1 free:a@1 busy:1 free:b@1 busy:1 free:c@1")
	require.Equal(t, "0 large: [Pending 2M][Pending 4M][Pending 5M][Free 9M]", x.layout())
	for _, want := range []string{
		"0 large: [Free 2M][Pending 4M][Pending 5M][Free 9M]",
		"0 large: [Free 6M][Pending 5M][Free 9M]",
		"0 large: [Free 20M]",
	} {
		require.Equal(t, want, x.run("step:1 process").layout())
	}
}

// With all events in flight, a block that came later is covered as soon as
// one of them is done and somebody looks.
func TestUncoveredBlocksAreCoveredLater(t *testing.T) {
	c, d := newPool(t, 1<<30)
	x := newScript(t, c, d)
	s := x.stream("1")
	x.run("keep=70M")
	for range 4 {
		d.busy(s)
		freeManyOn(t, c, s, 32, 64<<10)
	}
	d.busy(s)
	freeManyOn(t, c, s, 10, 64<<10)
	require.Equal(t, 4, d.count("RecordEvent"))
	d.step(s)
	x.run("big=10M") // a miss looks
	require.Equal(t, 5, d.count("RecordEvent"))
	require.EqualValues(t, 106, c.Stats().BlocksPending)
	d.idle(s)
	x.run("big2=10M")
	require.Zero(t, c.Stats().BlocksPending)
}

// Where little waits, a miss grows rather than ask for an event, so that in
// time every event serves a batch.
func TestPatience(t *testing.T) {
	for name, tc := range map[string]struct {
		before string
		events int
	}{
		"in a small reserve":         {"a=1M free:a@1", 0},
		"in a large one":             {"keep=100M a=1M free:a@1", 1},
		"and little in a large one":  {"keep=1G a=1M free:a@1", 0},
		"but no longer than a batch": {strings.Repeat("a=1M free:a@1 ", 32), 1},
	} {
		t.Run(name, func(t *testing.T) {
			c, d := newPool(t, 2<<30)
			newScript(t, c, d).run(tc.before).run("b=1M c=1M d=1M")
			require.Equal(t, tc.events, d.count("RecordEvent"))
		})
	}
}

// ProcessDeferred gets everything that is over, however the events stand.
func TestProcessDeferred(t *testing.T) {
	c, d := newPool(t, 1<<30)
	x := newScript(t, c, d)
	n, err := c.ProcessDeferred()
	require.NoError(t, err)
	require.Zero(t, n)
	require.Zero(t, d.total(), "nothing waits, nothing to ask")

	s1, s2 := x.stream("1"), x.stream("2")
	d.busy(s1)
	freeManyOn(t, c, s1, 200, 512)
	freeManyOn(t, c, s2, 200, 512)
	n, err = c.ProcessDeferred()
	require.NoError(t, err)
	require.Equal(t, 200, n, "those of the idle stream")
	d.idle(s1)
	n, err = c.ProcessDeferred()
	require.NoError(t, err)
	require.Equal(t, 200, n)
}

// A block for which an event fails waits on: it is neither lost nor reused.
func TestFailingEvents(t *testing.T) {
	for _, call := range []string{"NewEvent", "RecordEvent", "QueryEvent"} {
		t.Run(call, func(t *testing.T) {
			c, d := newPool(t, 1<<30)
			x := newScript(t, c, d).run("a=20M busy:1 use:a@1")
			d.failing(call, errors.New("no luck"))
			x.run("free:a")
			require.Equal(t, "0 large: [Pending 20M]", x.layout())
			_, err := c.ProcessDeferred()
			require.ErrorContains(t, err, "no luck")
			x.run("b=20M idle:1") // the ladder goes on without it
			require.Equal(t, "0 large: [Pending 20M]; 0 large: [Live 20M]", x.layout())
			require.Positive(t, c.Stats().EventFailures)

			d.failing(call, nil)
			x.run("process")
			require.Equal(t, "0 large: [Free 20M]; 0 large: [Live 20M]", x.layout())
		})
	}
}

func TestSyncNeedsNoEvent(t *testing.T) {
	c, d := newPool(t, 1<<30)
	x := newScript(t, c, d).run("a=20M busy:1 use:a@1")
	d.failing("RecordEvent", errors.New("no luck"))
	d.failing("QueryEvent", errors.New("no luck"))
	x.run("free:a sync:1")
	require.Equal(t, "0 large: [Free 20M]", x.layout())
}

func TestWaits(t *testing.T) {
	runScripts(t, map[string]scriptCase{
		// What stream 0 waits for is over for stream 0, with no event query.
		"order proves":          {"a=20M busy:1 free:a@1 wait:0<1", "0 large: [Free 20M]"},
		"event after the free":  {"a=20M busy:1 free:a@1 mark:e@1 wait:0<e", "0 large: [Free 20M]"},
		"event before the free": {"a=20M busy:1 mark:e@1 free:a@1 wait:0<e process", "0 large: [Pending 20M]"},
		"the other way round":   {"a=20M busy:1 free:a@1 wait:1<0 process", "0 large: [Pending 20M]"},
		"somebody else waits":   {"a=20M busy:1 free:a@1 wait:2<1 process", "0 large: [Pending 20M]"},
		"only the owner's":      {"a=20M b=20M@2 busy:1 free:a@1 free:b@1 wait:2<1", "0 large: [Pending 20M]; 2 large: [Free 20M]"},
		"two users, one waited": {"a=20M busy:1 busy:2 use:a@1 use:a@2 free:a wait:0<1 process", "0 large: [Pending 20M]"},
		"two users, both":       {"a=20M busy:1 busy:2 use:a@1 use:a@2 free:a wait:0<1 wait:0<2", "0 large: [Free 20M]"},
		"one by order, one by event": {
			"a=20M busy:1 busy:2 use:a@1 use:a@2 free:a wait:0<1 idle:2 process", "0 large: [Free 20M]",
		},

		// Vector clocks: order is transitive.
		"through a third":      {"a=20M busy:1 free:a@1 wait:2<1 wait:0<2", "0 large: [Free 20M]"},
		"in the wrong order":   {"a=20M busy:1 free:a@1 wait:0<2 wait:2<1 process", "0 large: [Pending 20M]"},
		"through two":          {"a=20M busy:1 free:a@1 wait:2<1 wait:3<2 wait:0<3", "0 large: [Free 20M]"},
		"an event is a moment": {"a=20M busy:1 free:a@1 mark:e@2 wait:2<1 wait:0<e process", "0 large: [Pending 20M]"},
		"an event remembers":   {"a=20M busy:1 free:a@1 wait:2<1 mark:e@2 wait:0<e", "0 large: [Free 20M]"},
		"an older event later": {
			"a=20M b=20M busy:1 free:a@1 mark:e@1 free:b@1 wait:0<1 wait:0<e", "0 large: [Free 20M]; 0 large: [Free 20M]",
		},
		"a newer free waits again": {"a=20M b=20M busy:1 free:a@1 wait:0<1 free:b@1 process", "0 large: [Free 20M]; 0 large: [Pending 20M]"},
	}, 1<<30)
}

func TestWaitAsksNothing(t *testing.T) {
	c, d := newPool(t, 1<<30)
	x := newScript(t, c, d).run("a=20M busy:1 free:a@1")
	e, err := x.stream("1").Record()
	require.NoError(t, err)
	queries := d.count("QueryEvent")
	require.NoError(t, c.DefaultStream().Wait(e))
	require.Equal(t, queries, d.count("QueryEvent"))
	require.Equal(t, "0 large: [Free 20M]", x.layout())
	x.run("idle:1 process")
	require.Equal(t, "0 large: [Free 20M]", x.layout(), "it does not come free twice")
}

func TestFreeLater(t *testing.T) {
	c, d := newPool(t, 1<<30)
	x := newScript(t, c, d).run("a=2M b=3M c=4M")
	before := d.total()
	c.FreeLater(x.block("a"))
	c.FreeLater(x.block("b"))
	require.Equal(t, "0 large: [Live 2M][Live 3M][Live 4M][Free 11M]", x.layout(), "nothing happens yet")
	require.Equal(t, before, d.total())

	x.run("free:b") // freed otherwise in the meantime
	n, err := c.ProcessDeferred()
	require.NoError(t, err)
	require.Zero(t, n, "that is the number of those that waited for streams")
	require.Equal(t, "0 large: [Free 5M][Live 4M][Free 11M]", x.layout())

	c.FreeLater(x.block("c"))
	x.run("d=20M")
	require.Equal(t, "0 large: [Live 20M]", x.layout(), "a miss frees what was queued")

	c.FreeLater(x.block("d"))
	require.NoError(t, c.Close(), "Close does too")
}

// Cleanups of the garbage collector free blocks of handles that were lost.
func TestFreeLaterInCleanup(t *testing.T) {
	c, d := newPool(t, 1<<30)
	x := newScript(t, c, d)
	func() {
		for range 100 {
			b, err := c.Alloc(512, nil)
			require.NoError(t, err)
			runtime.AddCleanup(&[100]byte{}, c.FreeLater, b)
		}
	}()
	require.Eventually(t, func() bool {
		runtime.GC()
		_, err := c.ProcessDeferred()
		require.NoError(t, err)
		return x.layout() == "0 small: [Free 2M]"
	}, time.Minute, time.Millisecond)
}

func TestFreeLaterParallel(t *testing.T) {
	c, _ := newPool(t, 1<<30)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 2000 {
				b, err := c.Alloc(512, nil)
				if err != nil {
					t.Error(err)
					return
				}
				c.FreeLater(b)
			}
		})
	}
	wg.Go(func() {
		for range 200 {
			if _, err := c.ProcessDeferred(); err != nil {
				t.Error(err)
			}
		}
	})
	wg.Wait()
	require.NoError(t, c.Close())
}

// Producers and consumers on different streams, freeing across them, while
// somebody processes and somebody synchronizes.
func TestWaitsParallel(t *testing.T) {
	c, d := newParallelPool(t, 8<<30, withMagazines)
	x := newScript(t, c, d)
	streams := []*cupool.Stream{x.stream("0"), x.stream("1"), x.stream("2")}
	blocks := make(chan cupool.Block, 64)
	var producers, consumers sync.WaitGroup
	for g := range 2 {
		producers.Go(func() {
			for i := range 3000 {
				b, err := c.Alloc(int64(512<<(i%8)), streams[g])
				if err != nil {
					t.Error(err)
					return
				}
				blocks <- b
			}
		})
	}
	for g := range 2 {
		consumers.Go(func() {
			for b := range blocks {
				if err := c.FreeOn(b, streams[g+1]); err != nil {
					t.Error(err)
				}
			}
		})
	}
	consumers.Go(func() {
		for i := range 300 {
			var err error
			switch i % 3 {
			case 0:
				_, err = c.ProcessDeferred()
			case 1:
				err = streams[1].Sync()
			default:
				err = streams[0].WaitStream(streams[2])
			}
			if err != nil {
				t.Error(fmt.Errorf("round %d: %w", i, err))
			}
		}
	})
	producers.Wait()
	close(blocks)
	consumers.Wait()
	x.run("process")
	require.Zero(t, c.Stats().BlocksPending)
	require.Zero(t, c.Stats().LiveBytes)
}
