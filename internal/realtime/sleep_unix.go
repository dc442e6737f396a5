//go:build unix

// Package realtime sleeps by the computer's own clock. time.Sleep goes by the
// clock of a testing/synctest bubble where a program's test runs in one. That
// clock stands still while a goroutine of the bubble waits for a sync.Mutex,
// for ever if its holder sleeps by the same clock.
package realtime

import (
	"time"

	"golang.org/x/sys/unix"
)

// Sleep sleeps for about d, in whole microseconds.
func Sleep(d time.Duration) {
	t := unix.NsecToTimeval(d.Nanoseconds())
	_, _ = unix.Select(0, nil, nil, nil, &t) // a signal may end it early
}
