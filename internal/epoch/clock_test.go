package epoch

import (
	"context"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool/device"
	"github.com/cupool/cupool/internal/testkit"
)

// TestEpochClosesBeforeEvent: whoever reads the epoch's number while its event is
// being recorded reads the next one.
func TestEpochClosesBeforeEvent(t *testing.T) {
	g := newRig(1)
	k := g.clocks[0]
	epoch, late := k.Open(), uint64(0)
	g.d.recording = func() { late = k.tick.Load() }
	require.NoError(t, k.Advance(Ask))
	require.Equal(t, epoch+1, late)
	g.d.complete(1)
	require.NoError(t, k.Advance(Peek))
	require.Equal(t, epoch, k.Done())
}

func TestAdvance(t *testing.T) {
	for name, tc := range map[string]struct {
		how           Insist
		before        func(k *Clock)
		recorded      int64 // by Advance
		inFlightAfter int
	}{
		"nobody waits":                 {Force, func(*Clock) {}, 0, 0},
		"nobody waits, one in flight":  {Force, func(k *Clock) { k.RecordAhead() }, 0, 1},
		"peek records nothing":         {Peek, func(k *Clock) { k.Open() }, 0, 0},
		"ask, none in flight":          {Ask, func(k *Clock) { k.Open() }, 1, 1},
		"force, none in flight":        {Force, func(k *Clock) { k.Open() }, 1, 1},
		"peek, one in flight":          {Peek, func(k *Clock) { k.Open(); k.RecordAhead(); k.Open() }, 0, 1},
		"ask, one that does not cover": {Ask, func(k *Clock) { k.Open(); k.RecordAhead(); k.Open() }, 1, 2},
		"ask, one that covers":         {Ask, func(k *Clock) { k.Open(); k.RecordAhead() }, 0, 1},
		"force, one that covers":       {Force, func(k *Clock) { k.Open(); k.RecordAhead() }, 0, 1},
		"ask, enough in flight": {Ask, func(k *Clock) {
			for range maxInFlight + 2 {
				k.Open()
				k.RecordAhead()
			}
			k.Open()
		}, 0, maxInFlight},
		"force, enough in flight": {Force, func(k *Clock) {
			for range maxInFlight + 2 {
				k.Open()
				k.RecordAhead()
			}
			k.Open()
		}, 1, maxInFlight + 1},
	} {
		t.Run(name, func(t *testing.T) {
			g := newRig(1)
			k := g.clocks[0]
			tc.before(k)
			was := g.events.Recorded.Load()
			require.NoError(t, k.Advance(tc.how))
			require.Equal(t, tc.recorded, g.events.Recorded.Load()-was)
			require.Len(t, k.inFlight, tc.inFlightAfter)
			require.True(t, k.Waited() || g.events.Queries.Load() == 0)
		})
	}
}

// TestAdvanceAtOnce: an event that is recorded because none was in flight is asked about at
// once, too.
func TestAdvanceAtOnce(t *testing.T) {
	for _, how := range []Insist{Ask, Force} {
		g := newRig(1)
		k := g.clocks[0]
		g.d.instant = true
		k.Open()
		require.NoError(t, k.Advance(how))
		require.False(t, k.Waited())
	}
}

// TestEventsInOrder: events are asked about oldest first, up to the first that is
// not done, and are used again.
func TestEventsInOrder(t *testing.T) {
	g := newRig(1)
	k := g.clocks[0]
	var epochs []uint64
	for range 3 {
		epochs = append(epochs, k.Open())
		k.RecordAhead()
	}
	require.Equal(t, []uint64{1, 2, 3}, epochs)
	g.d.complete(2, 3)
	require.NoError(t, k.Advance(Peek))
	require.Zero(t, k.Done(), "the first is not done")
	require.EqualValues(t, 1, g.events.Queries.Load())
	g.d.complete(1)
	require.NoError(t, k.Advance(Peek))
	require.Equal(t, epochs[2], k.Done())
	require.Empty(t, k.inFlight)

	k.Open()
	k.RecordAhead()
	require.Len(t, g.d.events, 3, "no new event")
	k.Over(k.Newest()) // known otherwise: the event is not asked about
	queries := g.events.Queries.Load()
	require.NoError(t, k.queryLocked())
	require.Empty(t, k.inFlight)
	require.Equal(t, queries, g.events.Queries.Load())
	require.NoError(t, g.events.Close())
	require.Equal(t, 3, g.d.destroyed)
}

// TestWait: Wait waits for the event that is needed, the first that covers the
// epoch, and records one where none does.
func TestWait(t *testing.T) {
	g := newRig(1)
	k := g.clocks[0]
	for range 3 {
		k.Open()
		k.RecordAhead()
	}
	require.NoError(t, k.Wait(context.Background(), 2))
	require.EqualValues(t, 2, g.d.synced[0])
	require.Len(t, g.d.synced, 1)
	require.EqualValues(t, 2, k.Done())
	for _, over := range []uint64{1, 2} {
		require.NoError(t, k.Wait(context.Background(), over))
		require.Len(t, g.d.synced, 1, "over already")
	}
	epoch := k.Open()
	require.NoError(t, k.Wait(context.Background(), epoch))
	require.EqualValues(t, 4, g.d.synced[1], "an event of its own")
	require.Equal(t, epoch, k.Done())
	k.Open()
	k.End()
	require.True(t, k.Ended())
	require.NoError(t, k.Wait(context.Background(), k.Newest()), "the stream has ended")
	require.Len(t, g.d.synced, 2)
	require.EqualValues(t, 4, g.events.Recorded.Load())
}

// TestEndGivesEventsBack: the events that were in flight on a stream serve others
// after its end, and none is recorded any more.
func TestEndGivesEventsBack(t *testing.T) {
	g := newRig(2)
	ended, other := g.clocks[0], g.clocks[1]
	for range maxInFlight {
		ended.Open()
		ended.RecordAhead()
	}
	ended.End()
	require.Empty(t, ended.inFlight, "nobody gives them back again")
	ended.Open()
	ended.RecordAhead()
	require.NoError(t, ended.Advance(Force))
	require.EqualValues(t, maxInFlight, g.events.Recorded.Load())
	for range maxInFlight {
		other.Open()
		other.RecordAhead()
	}
	require.Len(t, g.d.events, maxInFlight, "events that were made")
}

// TestClosedEvents: nobody gets an event that Close would not see.
func TestClosedEvents(t *testing.T) {
	g := newRig(0)
	_, err := g.events.Record(1)
	require.NoError(t, err)
	require.NoError(t, g.events.Close())
	_, err = g.events.Record(1)
	require.ErrorIs(t, err, device.ErrClosed)
}

// TestFailingEvents: a call that fails leaves blocks waiting, and the next event
// covers what the failed one would have.
func TestFailingEvents(t *testing.T) {
	for name, set := range map[string]func(d *fakeDevice, err error){
		"NewEvent":    func(d *fakeDevice, err error) { d.newErr = err },
		"RecordEvent": func(d *fakeDevice, err error) { d.recordErr = err },
	} {
		t.Run(name, func(t *testing.T) {
			g := newRig(1)
			k := g.clocks[0]
			epoch := k.Open()
			set(g.d, errBroken)
			k.RecordAhead()
			require.Len(t, g.told, 1)
			require.EqualValues(t, 1, g.events.Failures.Load())
			require.ErrorIs(t, g.told[0], errBroken)
			require.ErrorContains(t, g.told[0], "stream 0x64")
			require.ErrorIs(t, k.Advance(Ask), errBroken)
			require.ErrorIs(t, k.Wait(context.Background(), epoch), errBroken)
			polls := 1
			idle, err := k.Passed(k.Now(), &polls)
			require.False(t, idle)
			require.ErrorIs(t, err, errBroken)
			require.ErrorIs(t, k.Finish(context.Background()), errBroken)
			require.ErrorIs(t, k.AwaitPassed(context.Background(), k.Now()), errBroken)
			require.Zero(t, k.Done())
			require.Empty(t, k.inFlight)

			set(g.d, nil)
			require.NoError(t, k.Wait(context.Background(), epoch))
			require.GreaterOrEqual(t, k.Done(), epoch)
			if name == "RecordEvent" {
				require.Len(t, g.d.events, 1, "the event of the calls that failed is used")
			}
		})
	}
	t.Run("QueryEvent", func(t *testing.T) {
		g := newRig(1)
		k := g.clocks[0]
		epoch := k.Open()
		k.RecordAhead()
		g.d.complete(1)
		g.d.queryErr = errBroken
		require.ErrorIs(t, k.Advance(Peek), errBroken)
		require.Zero(t, k.Done())
		require.EqualValues(t, 1, g.events.Failures.Load())
		g.d.queryErr = nil
		require.NoError(t, k.Advance(Peek))
		require.Equal(t, epoch, k.Done())
	})
	t.Run("SyncEvent", func(t *testing.T) {
		g := newRig(1)
		k := g.clocks[0]
		epoch := k.Open()
		g.d.syncErr = errBroken
		require.ErrorIs(t, k.Wait(context.Background(), epoch), errBroken)
		require.Zero(t, k.Done())
		g.d.syncErr = nil
		require.NoError(t, k.Wait(context.Background(), epoch))
		require.Equal(t, epoch, k.Done())
		require.EqualValues(t, 1, g.events.Recorded.Load())
	})
	t.Run("DestroyEvent", func(t *testing.T) {
		g := newRig(1)
		g.clocks[0].Open()
		g.clocks[0].RecordAhead()
		g.d.destroyErr = errBroken
		require.ErrorIs(t, g.events.Close(), errBroken)
		require.Equal(t, 2, g.d.destroyed, "it is tried again once")
		require.NoError(t, g.events.Close(), "none is left")
	})
}

// TestPassed: a stream is past a time when an event that was recorded later is done. It is
// asked about as often as that may be, and no other event is recorded for the same time.
func TestPassed(t *testing.T) {
	g := newRig(1)
	k := g.clocks[0]
	passed := func(time uint64, want bool, polls, left int) {
		t.Helper()
		got, err := k.Passed(time, &polls)
		require.NoError(t, err)
		require.Equal(t, want, got)
		require.Equal(t, left, polls)
	}
	first := k.Now()
	passed(first, false, 5, 0)
	require.EqualValues(t, 6, g.events.Queries.Load())
	passed(first, false, 0, 0)
	require.EqualValues(t, 1, g.events.Recorded.Load())
	later := k.Now()
	passed(later, false, 0, 0)
	require.EqualValues(t, 2, g.events.Recorded.Load(), "the first event says nothing about what came later")
	g.d.complete(1)
	passed(first, true, 0, 0)
	passed(later, false, 0, 0)
	g.d.complete(2)
	for range 2 {
		passed(later, true, 5, 5)
	}
	require.EqualValues(t, 2, g.events.Recorded.Load())
	require.Empty(t, k.inFlight)

	g.d.instant = true
	passed(k.Now(), true, 5, 5)
	require.EqualValues(t, 3, g.events.Recorded.Load())
	g.d.queryErr = errBroken
	polls := 0
	_, err := k.Passed(k.Now(), &polls)
	require.ErrorIs(t, err, errBroken)
	g.d.queryErr = nil
	passed(k.Now()-1, true, 0, 0)

	g.d.instant = false
	for range 2 * maxInFlight {
		passed(k.Now(), false, 0, 0)
	}
	require.Len(t, k.inFlight, maxInFlight)
	synced := k.Now()
	require.NoError(t, k.Sync(func() error { return nil }))
	require.True(t, k.Past(synced))
	require.ErrorIs(t, k.Sync(func() error { return errBroken }), errBroken)
	require.False(t, k.Past(synced+1))
	k.End()
	require.True(t, k.Past(math.MaxUint64-1))
}

// TestPassedCaptured: of a stream that is captured only what came before the capture is
// waited for, by an event that is recorded before it begins.
func TestPassedCaptured(t *testing.T) {
	g := newRig(1)
	k := g.clocks[0]
	require.NoError(t, k.Capture(func() error {
		require.EqualValues(t, 1, g.events.Recorded.Load())
		return nil
	}))
	k.EndCapture()
	g.d.complete(1)
	require.NoError(t, k.Capture(func() error { return nil }))
	g.events.Time.Add(10)
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(errBroken)
	polls := 3
	passed, err := k.Passed(k.Now(), &polls)
	require.NoError(t, err)
	require.False(t, passed)
	require.ErrorIs(t, k.AwaitPassed(ctx, k.Now()), errBroken)
	g.d.complete(1)
	g.d.complete(2)
	passed, err = k.Passed(k.Now(), &polls)
	require.NoError(t, err)
	require.True(t, passed)
	require.NoError(t, k.AwaitPassed(ctx, k.Now()))
	k.EndCapture()
	passed, err = k.Passed(k.Now(), &polls)
	require.NoError(t, err)
	require.False(t, passed, "from then on it is as any other")
}

// TestCaptureAgain: a capture that does not begin as the stream is captured already changes nothing.
func TestCaptureAgain(t *testing.T) {
	g := newRig(1)
	k := g.clocks[0]
	require.NoError(t, k.Capture(func() error { return nil }))
	g.events.Time.Add(10)
	require.ErrorIs(t, k.Capture(func() error { return errBroken }), errBroken)
	require.True(t, k.Captured())
	g.d.complete(1)
	polls := 3
	passed, err := k.Passed(k.Now(), &polls)
	require.NoError(t, err)
	require.True(t, passed, "of what came before the first")
}

// TestCaptureRefused: without the event before it no capture begins, as nobody could wait for what
// the stream was given before. What waits for the stream is free as ever.
func TestCaptureRefused(t *testing.T) {
	g := newRig(1)
	k := g.clocks[0]
	epoch := k.Open()
	g.d.recordErr = errBroken
	require.ErrorIs(t, k.Capture(func() error { t.Error("it began"); return nil }), errBroken)
	require.False(t, k.Captured())
	g.d.recordErr = nil
	require.NoError(t, k.AwaitPassed(context.Background(), k.Now()))
	require.NoError(t, k.Wait(context.Background(), epoch))
	require.GreaterOrEqual(t, k.Done(), epoch)
	require.NoError(t, k.Capture(func() error { return nil }))
}

// TestSyncedEventStays: an event that somebody waits for is not used again before the wait is over,
// when it would be another stream's. One that was used again before is not waited for.
func TestSyncedEventStays(t *testing.T) {
	g := newRig(2)
	k, other := g.clocks[0], g.clocks[1]
	k.Open()
	k.RecordAhead()
	first := k.inFlight[0]
	g.d.syncing = func(e device.Event) {
		g.d.complete(e)
		require.NoError(t, k.Advance(Peek))
		require.Equal(t, first.epoch, k.Done())
		other.RecordAhead()
		require.NotEqual(t, e, other.inFlight[0].event)
	}
	require.NoError(t, k.Wait(context.Background(), first.epoch))
	require.Equal(t, []device.Event{first.event}, g.d.synced)
	g.d.syncing = nil
	other.RecordAhead()
	require.Equal(t, first.event, other.inFlight[1].event, "it is used again")

	require.NoError(t, k.sync(first))
	require.Len(t, g.d.synced, 1)
}

// TestSyncAtOnce: an event that several wait for goes back when the last of them has its answer,
// and not at all while it is in flight.
func TestSyncAtOnce(t *testing.T) {
	g := newRig(1)
	k := g.clocks[0]
	k.Open()
	k.RecordAhead()
	m := k.inFlight[0]
	g.d.syncErr = errBroken
	require.ErrorIs(t, k.sync(m), errBroken)
	g.d.syncErr = nil
	require.Empty(t, g.events.free, "it is in flight")
	g.d.syncing = func(e device.Event) {
		g.d.syncing = func(e device.Event) {
			g.d.complete(e)
			require.NoError(t, k.Advance(Peek))
		}
		require.NoError(t, k.sync(m))
		require.Empty(t, g.events.free, "one waits")
	}
	require.NoError(t, k.sync(m))
	require.Equal(t, []device.Event{m.event}, g.events.free)
	k.RecordAhead()
	g.d.syncing = func(device.Event) { k.End() }
	require.NoError(t, k.sync(k.inFlight[0]))
	require.Equal(t, []device.Event{m.event}, g.events.free)
}

// TestCapture: while a stream is captured no event is recorded on it and nobody
// waits for it; blocks wait on until the capture has ended.
func TestCapture(t *testing.T) {
	g := newRig(1)
	k := g.clocks[0]
	require.ErrorIs(t, k.Capture(func() error { return errBroken }), errBroken)
	require.False(t, k.Captured())
	covered := k.Open()
	require.NoError(t, k.Capture(func() error { return nil }))
	require.True(t, k.Captured())
	recorded := g.events.Recorded.Load()
	epoch := k.Open()
	k.RecordAhead()
	require.NoError(t, k.Advance(Force))
	require.NoError(t, k.Wait(context.Background(), epoch))
	polls := 3
	idle, err := k.Passed(k.Now(), &polls)
	require.NoError(t, err)
	require.False(t, idle)
	require.Equal(t, recorded, g.events.Recorded.Load())
	require.Less(t, k.Done(), epoch)
	require.NoError(t, k.Wait(context.Background(), covered), "an event from before the capture")
	require.Equal(t, covered, k.Done())
	k.EndCapture()
	require.NoError(t, k.Wait(context.Background(), epoch))
	require.GreaterOrEqual(t, k.Done(), epoch)
}

// TestStuck: waits for a stream that is stuck look twice, as what is done at once has the
// time, say how old the work is, and leave no more than so many events behind.
func TestStuck(t *testing.T) {
	cancelled, cancel := context.WithCancelCause(context.Background())
	cancel(errBroken)
	for _, dated := range []bool{false, true} {
		g := newRig(1)
		k := g.clocks[0]
		g.events.Dated = dated
		began := time.Now()
		late := func(err error, age bool) {
			t.Helper()
			var e *device.WaitError
			require.ErrorAs(t, err, &e)
			require.ErrorIs(t, err, errBroken)
			require.Equal(t, k.stream, e.Stream)
			require.Positive(t, e.Waited)
			require.Equal(t, age, e.Age > 0)
			require.LessOrEqual(t, e.Age, time.Since(began))
		}
		foreign, err := g.events.Record(k.stream)
		require.NoError(t, err)
		late(k.Await(cancelled, foreign), false)
		for range 3 * maxWaiting {
			late(k.Wait(cancelled, k.Open()), dated)
		}
		require.Len(t, k.inFlight, maxWaiting)
		late(k.Finish(cancelled), dated)
		late(k.AwaitPassed(cancelled, k.Now()), dated)
		require.Len(t, k.inFlight, maxWaiting)
		late(k.Await(cancelled, foreign), dated)
		g.d.queryErr = errBroken
		for _, err := range []error{k.Await(context.Background(), foreign), k.Wait(cancelled, 1), k.Finish(cancelled)} {
			require.ErrorIs(t, err, errBroken)
			require.NotErrorAs(t, err, new(*device.WaitError))
		}
		g.d.queryErr = nil
		queries := g.events.Queries.Load()
		g.d.queried = func() {
			if g.events.Queries.Load() == queries+2 {
				g.d.complete(k.inFlight[0].event)
			}
		}
		require.NoError(t, k.Wait(cancelled, 1), "the second look")
		late(k.Wait(cancelled, k.Open()), dated)
		require.Len(t, k.inFlight, maxWaiting)
		require.NoError(t, k.Wait(context.Background(), k.Newest()), "the device waits")
	}
}

// TestEndWaitsForRecord: a stream that has ended may be destroyed, so End returns
// only when no event is being recorded.
func TestEndWaitsForRecord(t *testing.T) {
	g := newRig(1)
	k := g.clocks[0]
	entered, leave := make(chan struct{}), make(chan struct{})
	g.d.recording = func() { close(entered); <-leave }
	epoch := k.Open()
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := k.Wait(context.Background(), epoch); err != nil {
			t.Error(err)
		}
	})
	<-entered
	ended := make(chan struct{})
	wg.Go(func() { k.End(); close(ended) })
	select {
	case <-ended:
		t.Error("End returned while an event was being recorded")
	case <-time.After(20 * time.Millisecond): // time to be wrong
	}
	require.False(t, k.Ended())
	close(leave)
	<-ended
	wg.Wait()
	g.d.recording = func() { t.Error("an event was recorded on a stream that has ended") }
	require.NoError(t, k.Wait(context.Background(), k.Open()))
}

// TestClockAtOnce: goroutines that open epochs, record, advance and wait at the
// same time: an epoch is over only after an event of it or of a later one.
func TestClockAtOnce(t *testing.T) {
	g := newRig(1)
	k := g.clocks[0]
	var wg sync.WaitGroup
	for i := range 4 {
		r := testkit.Rand(t)
		wg.Go(func() {
			for range testkit.Rounds(4000) {
				epoch := k.Open()
				switch r.IntN(4) {
				case 0:
					k.RecordAhead()
				case 1:
					_ = k.Advance(Insist(r.IntN(3)))
				default:
					if err := k.Wait(context.Background(), epoch); err != nil || k.Done() < epoch {
						t.Errorf("goroutine %d waited for epoch %d: %v, and %d is over", i, epoch, err, k.Done())
					}
				}
				if over, open := k.Done(), k.tick.Load(); over >= open { // in this order: both grow
					t.Errorf("epoch %d is over, epoch %d is open", over, open)
				}
			}
		})
	}
	wg.Wait()
	require.NoError(t, k.Wait(context.Background(), k.Newest()))
	require.False(t, k.Waited())
}
