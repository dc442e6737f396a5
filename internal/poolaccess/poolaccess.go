// Package poolaccess is what other packages of this module ask of a *cupool.Pool, and
// programs do not. It is for those that stand above package cupool, which sets Of.
package poolaccess

import "github.com/cupool/cupool/snapshot"

// Access is a pool as those packages see it. Its methods are safe from several
// goroutines.
type Access interface {
	// DriverError returns err, which a call to the Driver returned that did not go
	// through the allocator. When it says that the device is lost, the allocator
	// fails from then on, too.
	DriverError(err error) error

	// Reclaim gives idle memory back to the device, for memory that is taken from the
	// device in another way. The allocator and each of its pools that is not Isolated
	// give need bytes, or what they have, and do not wait for pending blocks. It
	// returns the bytes that went.
	Reclaim(need int64) (released int64, err error)

	// Cut cuts a live block of the pool, a cupool.Block, that an allocator keeps. Where
	// its memory ends in a large handle of virtual memory that nothing else uses, a
	// smaller one takes the handle's place, and the rest goes back to the device. That
	// waits for the stream's work, no longer than Config.WaitTimeout; where the work is
	// late, or another pool or stream lent the block, the handle stays. It fails with the device's error where neither handle
	// could be mapped: the memory is not used any more then.
	Cut(block any) error

	// Snapshot is Pool.Snapshot without private pools.
	Snapshot() snapshot.Snapshot

	// Events returns what was recorded of the allocator and its private pools, oldest
	// first: the events with a number above after, as far as they are kept. Events
	// with the same stack share it. It is empty without a history.
	Events(after uint64) []snapshot.Event
}

// Of returns the access to a *cupool.Pool.
var Of func(pool any) Access
