package hostdev

import (
	"errors"
	"fmt"
	"slices"

	"github.com/cupool/cupool/internal/lock"
)

// Check verifies the rules of every stream, T1 to T4, and returns the first
// that each stream breaks, by its number. It stops one stream at a time.
func (d *Device) Check() error {
	errs := []error{d.stream0.check()}
	for _, s := range d.streams.All() {
		errs = append(errs, s.check())
	}
	return errors.Join(errs...)
}

func (s *stream) check() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.checkLocked()
}

// checkLocked verifies the rules at stream. The runner raises completed
// without mu, so completed is read once.
func (s *stream) checkLocked() error {
	submitted, completed, queued := s.submitted.Load(), s.completed.Load(), uint64(len(s.queue))
	switch {
	case s.taken+queued != submitted:
		return fmt.Errorf("hostdev: T1: job %d is the last that left the queue, %d are in it, %d were submitted", s.taken, queued, submitted)
	case completed > s.taken:
		return fmt.Errorf("hostdev: T2: job %d is over, only %d left the queue", completed, s.taken)
	case !s.running && completed != submitted:
		return fmt.Errorf("hostdev: T3: nothing runs, %d jobs of %d are over", completed, submitted)
	case !s.running && len(s.sleepers) > 0:
		return fmt.Errorf("hostdev: T4: nothing runs, jobs %d are waited for", s.sleepers)
	}
	if wake := s.wake.Load(); len(s.sleepers) > 0 && wake > slices.Min(s.sleepers) {
		return fmt.Errorf("hostdev: T4: wake is %d, jobs %d are waited for", wake, s.sleepers)
	}
	return nil
}

// mustHoldLocked panics, in builds that check invariants, when a rule of the
// stream is broken.
func (s *stream) mustHoldLocked() {
	if !lock.Invariants {
		return
	}
	if err := s.checkLocked(); err != nil {
		panic(err)
	}
}
