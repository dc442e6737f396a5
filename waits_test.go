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
	"github.com/cupool/cupool/internal/testkit/pooltest"
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
	c, d := pooltest.New(t, 1<<30)
	x := pooltest.NewScript(t, c, d)
	s := x.Stream("1")
	require.NoError(t, c.Reserve(512, nil))
	d.Busy(s)
	for i := range 4 {
		freeManyOn(t, c, s, 31, 512)
		require.Equal(t, i, d.Count("RecordEvent"), "not before a batch is full")
		freeManyOn(t, c, s, 1, 512)
		require.Equal(t, i+1, d.Count("RecordEvent"), "an event for a full batch")
	}
	before := d.Total()
	freeManyOn(t, c, s, 1000, 512)
	require.Equal(t, before, d.Total(), "no driver call at all")
	require.EqualValues(t, 1128, c.Stats().BlocksPending)

	d.Idle(s)
	queries := d.Count("QueryEvent")
	n, err := c.ProcessDeferred()
	require.NoError(t, err)
	require.Equal(t, 1128, n)
	require.Equal(t, 5, d.Count("RecordEvent"), "one more for all the rest")
	require.LessOrEqual(t, d.Count("QueryEvent")-queries, 5)
	require.Equal(t, 5, d.Count("NewEvent"))
	require.NoError(t, c.Check())

	// Events are recycled.
	d.Busy(s)
	freeManyOn(t, c, s, 1000, 512)
	d.Idle(s)
	_, err = c.ProcessDeferred()
	require.NoError(t, err)
	require.Equal(t, 5, d.Count("NewEvent"))
	require.Zero(t, c.Stats().BlocksPending)
}

// Blocks come free epoch by epoch, as the stream's work advances.
func TestEpochsCompleteInOrder(t *testing.T) {
	c, d := pooltest.New(t, 1<<30)
	x := pooltest.NewScript(t, c, d)
	x.Run("a=2M b=4M c=5M busy:1 free:a@1 busy:1 free:b@1 busy:1 free:c@1")
	require.Equal(t, "0 large: [Pending 2M][Pending 4M][Pending 5M][Free 9M]", x.Layout())
	for _, want := range []string{
		"0 large: [Free 2M][Pending 4M][Pending 5M][Free 9M]",
		"0 large: [Free 6M][Pending 5M][Free 9M]",
		"0 large: [Free 20M]",
	} {
		require.Equal(t, want, x.Run("step:1 process").Layout())
	}
}

// With all events in flight, a block that came later is covered as soon as
// one of them is done and somebody looks.
func TestUncoveredBlocksAreCoveredLater(t *testing.T) {
	c, d := pooltest.New(t, 1<<30)
	x := pooltest.NewScript(t, c, d)
	s := x.Stream("1")
	x.Run("keep=70M")
	for range 4 {
		d.Busy(s)
		freeManyOn(t, c, s, 32, 64<<10)
	}
	d.Busy(s)
	freeManyOn(t, c, s, 10, 64<<10)
	require.Equal(t, 4, d.Count("RecordEvent"))
	d.Step(s)
	x.Run("big=10M") // a miss looks
	require.Equal(t, 5, d.Count("RecordEvent"))
	require.EqualValues(t, 106, c.Stats().BlocksPending)
	d.Idle(s)
	x.Run("big2=10M")
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
			c, d := pooltest.New(t, 2<<30)
			pooltest.NewScript(t, c, d).Run(tc.before).Run("b=1M c=1M d=1M")
			require.Equal(t, tc.events, d.Count("RecordEvent"))
		})
	}
}

// ProcessDeferred gets everything that is over, however the events stand.
func TestProcessDeferred(t *testing.T) {
	c, d := pooltest.New(t, 1<<30)
	x := pooltest.NewScript(t, c, d)
	n, err := c.ProcessDeferred()
	require.NoError(t, err)
	require.Zero(t, n)
	require.Zero(t, d.Total(), "nothing waits, nothing to ask")

	s1, s2 := x.Stream("1"), x.Stream("2")
	d.Busy(s1)
	freeManyOn(t, c, s1, 200, 512)
	freeManyOn(t, c, s2, 200, 512)
	n, err = c.ProcessDeferred()
	require.NoError(t, err)
	require.Equal(t, 200, n, "those of the idle stream")
	d.Idle(s1)
	n, err = c.ProcessDeferred()
	require.NoError(t, err)
	require.Equal(t, 200, n)
}

// A block for which an event fails waits on: it is neither lost nor reused.
func TestFailingEvents(t *testing.T) {
	for _, call := range []string{"NewEvent", "RecordEvent", "QueryEvent"} {
		t.Run(call, func(t *testing.T) {
			c, d := pooltest.New(t, 1<<30)
			x := pooltest.NewScript(t, c, d).Run("a=20M busy:1 use:a@1")
			d.Fail(call, errors.New("no luck"))
			x.Run("free:a")
			require.Equal(t, "0 large: [Pending 20M]", x.Layout())
			_, err := c.ProcessDeferred()
			require.ErrorContains(t, err, "no luck")
			x.Run("b=20M idle:1") // the ladder goes on without it
			require.Equal(t, "0 large: [Pending 20M]; 0 large: [Live 20M]", x.Layout())
			require.Positive(t, c.Stats().EventFailures)

			d.Fail(call, nil)
			x.Run("process")
			require.Equal(t, "0 large: [Free 20M]; 0 large: [Live 20M]", x.Layout())
		})
	}
}

func TestSyncNeedsNoEvent(t *testing.T) {
	c, d := pooltest.New(t, 1<<30)
	x := pooltest.NewScript(t, c, d).Run("a=20M busy:1 use:a@1")
	d.Fail("RecordEvent", errors.New("no luck"))
	d.Fail("QueryEvent", errors.New("no luck"))
	x.Run("free:a sync:1")
	require.Equal(t, "0 large: [Free 20M]", x.Layout())
}

func TestWaits(t *testing.T) {
	pooltest.RunScripts(t, map[string][2]string{
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
	c, d := pooltest.New(t, 1<<30)
	x := pooltest.NewScript(t, c, d).Run("a=20M busy:1 free:a@1")
	e, err := x.Stream("1").Record()
	require.NoError(t, err)
	queries := d.Count("QueryEvent")
	require.NoError(t, c.DefaultStream().Wait(e))
	require.Equal(t, queries, d.Count("QueryEvent"))
	require.Equal(t, "0 large: [Free 20M]", x.Layout())
	x.Run("idle:1 process")
	require.Equal(t, "0 large: [Free 20M]", x.Layout(), "it does not come free twice")
}

func TestFreeLater(t *testing.T) {
	c, d := pooltest.New(t, 1<<30)
	x := pooltest.NewScript(t, c, d).Run("a=2M b=3M c=4M")
	before := d.Total()
	c.FreeLater(x.Block("a"))
	c.FreeLater(x.Block("b"))
	require.Equal(t, "0 large: [Live 2M][Live 3M][Live 4M][Free 11M]", x.Layout(), "nothing happens yet")
	require.Equal(t, before, d.Total())

	x.Run("free:b") // freed otherwise in the meantime
	n, err := c.ProcessDeferred()
	require.NoError(t, err)
	require.Zero(t, n, "that is the number of those that waited for streams")
	require.Equal(t, "0 large: [Free 5M][Live 4M][Free 11M]", x.Layout())

	c.FreeLater(x.Block("c"))
	x.Run("d=20M")
	require.Equal(t, "0 large: [Live 20M]", x.Layout(), "a miss frees what was queued")

	c.FreeLater(x.Block("d"))
	require.NoError(t, c.Close(), "Close does too")
}

// Cleanups of the garbage collector free blocks of handles that were lost.
func TestFreeLaterInCleanup(t *testing.T) {
	c, d := pooltest.New(t, 1<<30)
	x := pooltest.NewScript(t, c, d)
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
		return x.Layout() == "0 small: [Free 2M]"
	}, time.Minute, time.Millisecond)
}

func TestFreeLaterParallel(t *testing.T) {
	c, _ := pooltest.New(t, 1<<30)
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
	c, d := pooltest.NewParallel(t, 8<<30, pooltest.WithMagazines)
	x := pooltest.NewScript(t, c, d)
	streams := []*cupool.Stream{x.Stream("0"), x.Stream("1"), x.Stream("2")}
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
	x.Run("process")
	require.Zero(t, c.Stats().BlocksPending)
	require.Zero(t, c.Stats().LiveBytes)
}
