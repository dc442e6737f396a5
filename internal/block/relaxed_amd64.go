//go:build amd64 && !race

package block

import (
	"sync/atomic"
	"unsafe"
)

// setRelaxed stores a value that other goroutines load without a lock. The
// caller holds the lock of the block's stream, whose release makes the store
// visible at the latest, and nobody else stores meanwhile. On amd64 stores
// of words are atomic and stay in order, so that a plain one will do where
// atomic.Store takes an exchange, a third of what a slow allocation costs.
func setRelaxed(p *atomic.Uint64, v uint64) { *(*uint64)(unsafe.Pointer(p)) = v }
