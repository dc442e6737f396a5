// Package relaxed has integers that one goroutine at a time writes, guarded
// by a lock, and any goroutine reads without it. On amd64 such a write is a
// plain store, where one of sync/atomic takes an exchange, which would be a
// third of what a slow allocation costs.
package relaxed

import "github.com/cupool/cupool/internal/atomic"

// Int64 is an atomic.Int64 that its owner writes cheaply.
type Int64 struct{ atomic.Int64 }

// Uint64 is an atomic.Uint64 that its owner writes cheaply.
type Uint64 struct{ atomic.Uint64 }

// Uint32 is an atomic.Uint32 that its owner writes cheaply.
type Uint32 struct{ atomic.Uint32 }
