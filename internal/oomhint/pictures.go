package oomhint

import (
	"sync"
	"time"
)

// Pictures bounds the time that pictures take of a program which runs out of memory
// in a loop. Its method is safe from several goroutines.
type Pictures struct {
	mu   sync.Mutex
	next time.Time // when there may be one again
}

// pictureShare is which part of the time pictures may take.
const pictureShare = 20

// Take calls picture, unless it was called a short while ago, compared with how long
// that took, or is under way.
func (p *Pictures) Take(picture func()) {
	if !p.mu.TryLock() {
		return
	}
	defer p.mu.Unlock()
	start := time.Now()
	if start.Before(p.next) {
		return
	}
	picture()
	end := time.Now()
	p.next = end.Add((pictureShare - 1) * end.Sub(start))
}
