//go:build !amd64 || race

package block

import "sync/atomic"

// setRelaxed stores a value that other goroutines load without a lock.
func setRelaxed(p *atomic.Uint64, v uint64) { p.Store(v) }
