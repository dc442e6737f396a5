//go:build !unix

// Package realtime sleeps. On this system there is no short sleep but Go's.
package realtime

import "time"

// Sleep sleeps for d.
func Sleep(d time.Duration) { time.Sleep(d) }
