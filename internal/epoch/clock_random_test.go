package epoch

import (
	"context"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool/device"
	"github.com/cupool/cupool/internal/testkit"
)

// worker is a device that counts the work of its streams: an event is done when its
// stream is done with what it was given before the record.
type worker struct {
	given, done map[device.Stream]int
	events      map[device.Event]struct {
		s    device.Stream
		upTo int
	}
	rnd   *rand.Rand
	stuck bool // no work is done by itself
	fails bool // events cannot be recorded
}

func (d *worker) NewEvent() (device.Event, error) {
	e := device.Event(len(d.events) + 1)
	d.events[e] = struct {
		s    device.Stream
		upTo int
	}{}
	return e, nil
}

func (d *worker) DestroyEvent(device.Event) error { return nil }

func (d *worker) RecordEvent(e device.Event, s device.Stream) error {
	if d.fails {
		return errBroken
	}
	x := d.events[e]
	x.s, x.upTo = s, d.given[s]
	d.events[e] = x
	return nil
}

// QueryEvent lets the stream do some work first.
func (d *worker) QueryEvent(e device.Event) (bool, error) {
	x := d.events[e]
	if !d.stuck && d.done[x.s] < d.given[x.s] && d.rnd.IntN(2) == 0 {
		d.done[x.s]++
	}
	return x.upTo <= d.done[x.s], nil
}

// SyncEvent lets it do all that the event is for.
func (d *worker) SyncEvent(e device.Event) error {
	x := d.events[e]
	d.done[x.s] = max(d.done[x.s], x.upTo)
	return nil
}

// moment is when an epoch was open or a time was read: what the stream had been given.
type moment struct {
	at    uint64
	given int
}

// TestClockRandom: whatever is asked of clocks, none takes an epoch for over or a time for
// passed before its stream has done what it was given until then, and a wait ends when it
// has, or with its context.
func TestClockRandom(t *testing.T) {
	seed := testkit.Seed(t)
	cancelled, cancel := context.WithCancelCause(context.Background())
	cancel(errBroken)
	can, stop := context.WithCancel(context.Background())
	defer stop()
	for n := range testkit.Rounds(400) {
		r := rand.New(rand.NewPCG(seed, uint64(n)))
		d := &worker{given: map[device.Stream]int{}, done: map[device.Stream]int{}, rnd: r, events: map[device.Event]struct {
			s    device.Stream
			upTo int
		}{}}
		events := &Events{Dated: n%2 == 0}
		events.Init(d, func(device.Stream, error) {})
		var clocks [2]*Clock
		for i := range clocks {
			clocks[i] = NewClock(device.Stream(7+i), uint32(i), events)
		}
		epochs, times := map[*Clock][]moment{}, map[*Clock][]moment{}
		k, s := clocks[0], clocks[0].stream
		open := func() moment { return moment{k.Open(), d.given[s]} }
		now := func() moment { return moment{k.Now(), d.given[s]} }
		pick := func(new moment, from []moment) moment {
			if len(from) > 0 && r.IntN(2) == 0 {
				return from[r.IntN(len(from))]
			}
			return new
		}
		// ctx returns a context for a wait that looks at events, or for one that the
		// device may do itself.
		ctx := func(sync bool) context.Context {
			switch {
			case r.IntN(2) == 0 && (sync || !d.stuck):
				return context.Background()
			case d.stuck:
				return cancelled
			}
			return can
		}
		// late finds that the wait was for nothing where the stream is stuck.
		late := func(err error) bool {
			var e *device.WaitError
			if err == nil {
				return false
			}
			require.ErrorAs(t, err, &e)
			require.ErrorIs(t, err, errBroken)
			require.Equal(t, s, e.Stream)
			require.Equal(t, events.Dated && len(k.inFlight) > 0, e.Age > 0)
			require.True(t, d.stuck)
			return true
		}
		for range 150 {
			if d.fails = r.IntN(10) == 0; !d.fails {
				d.stuck = r.IntN(10) == 0
			}
			k = clocks[r.IntN(len(clocks))]
			s = k.stream
			recorded := events.Recorded.Load()
			switch x := r.IntN(14); x {
			case 0, 1, 2:
				if !k.Captured() { // else it is no work yet
					d.given[s]++
				}
			case 3:
				epochs[k] = append(epochs[k], open())
			case 4:
				times[k] = append(times[k], now())
			case 5:
				k.RecordAhead()
			case 6:
				_ = k.Advance(Insist(r.IntN(3)))
			case 7:
				m := pick(open(), epochs[k])
				over, free := k.Done() >= m.at, len(k.inFlight) < maxWaiting
				err := k.Wait(ctx(true), m.at)
				if over && free {
					require.NoError(t, err)
					require.Equal(t, recorded, events.Recorded.Load(), "it is over")
				}
				if captured := k.Captured(); err == nil && !captured {
					require.GreaterOrEqual(t, k.Done(), m.at)
				} else if !d.fails && !captured {
					require.True(t, late(err))
				}
			case 8:
				given := d.given[s]
				err := k.Finish(ctx(false))
				switch {
				case err == nil:
					require.Equal(t, given, d.done[s])
				case d.fails:
				case k.Captured() && !d.stuck:
					require.ErrorIs(t, err, device.ErrNotSupported)
				case !k.Captured():
					require.True(t, late(err))
				}
			case 9:
				m := open()
				err := k.Sync(func() error {
					if d.fails {
						return errBroken
					}
					d.done[s] = d.given[s]
					return nil
				})
				if d.fails {
					require.ErrorIs(t, err, errBroken)
				} else {
					require.GreaterOrEqual(t, k.Done(), m.at)
				}
			case 10, 11:
				m := pick(now(), times[k])
				past, captured := k.Past(m.at), k.Captured()
				polls := r.IntN(6)
				before := polls
				passed, err := k.Passed(m.at, &polls)
				require.GreaterOrEqual(t, polls, 0)
				if past && !captured {
					require.True(t, passed)
					require.Equal(t, recorded, events.Recorded.Load(), "it is known")
					require.Equal(t, before, polls)
				}
				if passed && !captured {
					require.True(t, k.Past(m.at))
				}
				if x == 10 || err != nil || captured {
					break
				}
				err = k.AwaitPassed(ctx(true), m.at)
				if err == nil {
					require.True(t, k.Past(m.at))
				} else if !d.fails {
					require.True(t, late(err))
				} else {
					require.ErrorIs(t, err, errBroken)
				}
			case 12:
				if k.Captured() {
					k.EndCapture()
				} else if r.IntN(3) == 0 {
					m := now()
					if err := k.Capture(func() error { return nil }); err != nil {
						require.ErrorIs(t, err, errBroken)
						break
					}
					if err := k.AwaitPassed(ctx(true), k.Now()); err == nil {
						require.GreaterOrEqual(t, d.done[s], m.given, "what came before the capture")
					} else {
						require.True(t, d.stuck || d.fails, err)
					}
				}
			case 13:
				e, err := events.Record(s)
				if err != nil {
					require.ErrorIs(t, err, errBroken)
					break
				}
				if err := k.Await(ctx(false), e); err == nil {
					require.GreaterOrEqual(t, d.done[s], d.events[e].upTo)
				} else {
					require.True(t, late(err))
				}
				events.Put(e)
			}
			require.LessOrEqual(t, len(k.inFlight), maxWaiting)
			for _, k := range clocks {
				for _, m := range epochs[k] {
					require.False(t, k.Done() >= m.at && d.done[k.stream] < m.given, "epoch %d is over too early", m.at)
				}
				for _, m := range times[k] {
					require.False(t, k.Past(m.at) && d.done[k.stream] < m.given, "time %d is past too early", m.at)
				}
			}
		}
	}
}
