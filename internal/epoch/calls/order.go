package calls

import (
	"context"
	"errors"
	"iter"
)

// Order is when memory that a stream left idle may be used in the order of another one, or
// be taken away. Of a stream that is captured, the work before the capture counts: a graph
// runs as work of the streams that it is launched on. What a captured stream left idle
// itself stays where it is.
type Order struct {
	// Streams are those of the device, for the device's order: each has passed where it
	// was when the memory was freed. nil: the owner's order, where its stream has.
	Streams iter.Seq[*Stream]
}

// Over reports whether memory that its owner freed at a time of the device, or earlier,
// may be used by others. polls bounds how often the device is asked, and is what is left
// of that.
func (o *Order) Over(owner *Stream, freed uint64, polls *int) bool {
	if owner.captured() || !owner.passed(freed, polls) {
		return false
	}
	if o.Streams != nil {
		for s := range o.Streams {
			if !s.passed(freed, polls) {
				return false
			}
		}
	}
	return true
}

// OverUntil returns the time of the device such that memory which its owner freed before it
// may be used by others, as far as that is known once it was asked as for Over: later than
// freed where that would say yes.
func (o *Order) OverUntil(owner *Stream, freed uint64, polls *int) uint64 {
	if owner.captured() {
		return 0
	}
	until := owner.passedUntil(freed, polls)
	if o.Streams != nil {
		for s := range o.Streams {
			until = min(until, s.passedUntil(freed, polls))
		}
	}
	return until
}

// Ahead returns a time of the device such that OverUntil will return it, or a later one, once
// events are done that are in flight, while those of one stream have so many others behind
// them. 0: there is none.
func (o *Order) Ahead(owner *Stream, behind int) uint64 {
	if owner.captured() {
		return 0
	}
	until, ahead := owner.clock.InFlight(behind)
	if o.Streams != nil {
		for s := range o.Streams {
			newest, a := s.clock.InFlight(behind)
			until, ahead = min(until, newest), max(ahead, a)
		}
	}
	return min(until, ahead)
}

// Await waits until Over. It fails with what the device says, with a *WaitError for each
// stream that is late when ctx is done, and with ErrNotSupported where the owner is
// captured.
func (o *Order) Await(ctx context.Context, owner *Stream, freed uint64) error {
	err := owner.awaitPassed(ctx, freed, true)
	if o.Streams != nil {
		for s := range o.Streams {
			err = errors.Join(err, s.awaitPassed(ctx, freed, false))
		}
	}
	return err
}
