package calls

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool/device"
	"github.com/cupool/cupool/internal/epoch"
)

// TestOrder: the owner's order asks the owner, the device's order all streams, until they
// are closed. An owner that is captured keeps what it has.
func TestOrder(t *testing.T) {
	late, cancel := context.WithCancelCause(context.Background())
	cancel(errBroken)
	for _, all := range []bool{false, true} {
		work, others := &fakeDriver{}, &fakeDriver{}
		owner, _ := newStream(work, 0, false)
		other, _ := newStream(others, 0, false)
		o := Order{}
		if all {
			o.Streams = slices.Values([]*Stream{owner, other})
		}
		over := func() bool {
			polls := 3
			return o.Over(owner, 0, &polls)
		}
		require.False(t, over())
		require.ErrorIs(t, o.Await(late, owner, 0), errBroken)
		work.done.Store(true)
		require.Equal(t, !all, over())
		if err := o.Await(late, owner, 0); all {
			require.ErrorIs(t, err, errBroken)
		} else {
			require.NoError(t, err)
		}
		require.NoError(t, o.Await(context.Background(), owner, 0))
		require.Equal(t, all, others.syncs.Load() > 0)
		require.NoError(t, other.End(func() error { return nil }))
		require.True(t, over())

		require.NoError(t, owner.clock.Capture(func() error { return nil }))
		require.False(t, over())
		require.ErrorIs(t, o.Await(context.Background(), owner, 0), device.ErrNotSupported)
		owner.clock.EndCapture()
		require.True(t, over())
	}
}

// timed is a device on which two streams are done with their work when the test says so, in
// one time.
type timed struct {
	done [2]atomic.Bool
	on   []device.Stream // of each event
}

func (d *timed) NewEvent() (device.Event, error) {
	d.on = append(d.on, 0)
	return device.Event(len(d.on)), nil
}
func (d *timed) DestroyEvent(device.Event) error { return nil }
func (d *timed) RecordEvent(e device.Event, s device.Stream) error {
	d.on[e-1] = s
	return nil
}
func (d *timed) QueryEvent(e device.Event) (bool, error) { return d.done[d.on[e-1]].Load(), nil }
func (d *timed) SyncEvent(device.Event) error            { return nil }
func (d *timed) SyncStream(device.Stream) error          { return nil }

// streams returns the two.
func (d *timed) streams() (owner, other *Stream) {
	events := &epoch.Events{}
	events.Init(d, func(device.Stream, error) {})
	of := &Device{Driver: d, Closed: new(atomic.Bool), Failed: func(err error) error { return err }}
	owner, other = &Stream{}, &Stream{}
	owner.Init(of, 0, epoch.NewClock(0, 0, events), false)
	other.Init(of, 1, epoch.NewClock(1, 1, events), false)
	return owner, other
}

// TestOverUntil: memory is free for others up to where the owner is, or in the device's order
// the stream that is least far. An owner that is captured keeps what it has.
func TestOverUntil(t *testing.T) {
	for _, all := range []bool{false, true} {
		d := &timed{}
		owner, other := d.streams()
		o, late := Order{}, uint64(100)
		if all {
			o.Streams = slices.Values([]*Stream{owner, other})
		}
		until := func(freed uint64) uint64 {
			polls := 3
			got := o.OverUntil(owner, freed, &polls)
			require.Equal(t, o.Over(owner, freed, &polls), got > freed)
			return got
		}
		passes := func(s *Stream) uint64 {
			s.clock.RecordAhead()
			d.done[s.handle].Store(true)
			polls := 0
			passed, err := s.clock.Passed(s.clock.Now()-1, &polls)
			require.NoError(t, err)
			require.True(t, passed)
			d.done[s.handle].Store(false)
			return s.clock.Now()
		}
		require.Zero(t, until(0))
		first := passes(other)
		second := passes(owner)
		require.Greater(t, second, first)
		want := second
		if all {
			want = first
		}
		require.Equal(t, want, until(late))
		require.Equal(t, want, until(want), "what was freed at that time was freed later")
		require.Equal(t, want, until(want-1))
		require.NoError(t, other.End(func() error { return nil }))
		require.Equal(t, second, until(second-1), "a stream that is closed keeps nothing")

		require.NoError(t, owner.clock.Capture(func() error { return nil }))
		require.Zero(t, until(0))
		owner.clock.EndCapture()
		owner.clock.End()
		require.Zero(t, until(late), "Close is at work")
	}
}

// TestAhead: a time is ahead that events in flight of every stream show, and behind which one
// stream has more.
func TestAhead(t *testing.T) {
	owner, other := new(timed).streams()
	own, all := Order{}, Order{Streams: slices.Values([]*Stream{owner, other})}
	for _, o := range []Order{own, all} {
		require.Zero(t, o.Ahead(owner, 0), "nothing is in flight")
	}
	for range 3 {
		owner.clock.RecordAhead() // at 1, 2 and 3
	}
	for behind, want := range []uint64{3, 2, 1, 0} {
		require.Equal(t, want, own.Ahead(owner, behind))
		require.Equal(t, want, all.Ahead(owner, behind), "the other one has nothing to do")
	}
	other.clock.RecordAhead() // at 4
	require.EqualValues(t, 3, all.Ahead(owner, 0))
	require.EqualValues(t, 2, all.Ahead(owner, 1), "the owner has more behind that")
	owner.clock.RecordAhead() // at 5
	require.EqualValues(t, 4, all.Ahead(owner, 0), "the other one shows no more")
	require.EqualValues(t, 5, own.Ahead(owner, 0))
	require.EqualValues(t, 3, all.Ahead(other, 1))
	require.EqualValues(t, 0, own.Ahead(other, 1))
	require.NoError(t, owner.clock.Capture(func() error { return nil }))
	require.Zero(t, own.Ahead(owner, 0))
	require.EqualValues(t, 4, all.Ahead(other, 0))
}
