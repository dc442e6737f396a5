// Package poolaccess is what other packages of this module ask of a *cupool.Pool, and
// programs do not. It is for those that stand above package cupool, which sets Of.
package poolaccess

import (
	"unsafe"

	"github.com/cupool/cupool/device"
	"github.com/cupool/cupool/internal/heap"
	"github.com/cupool/cupool/snapshot"
)

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

	// Events returns what was recorded of the pool, not of private pools of it, oldest
	// first: the events with a number above after, as far as they are kept. Events
	// with the same stack share it. It is empty without a history.
	Events(after uint64) []snapshot.Event

	// Home returns the home of the live block that begins at an address, where it has one
	// in the magazines, and the index of its heap: for code outside of Go, which takes such
	// blocks and gives them back as package block does. It lies in Go's heap, which nothing
	// moves, as long as the pool does. nil: there is none. It takes no lock.
	Home(p device.Ptr) (line unsafe.Pointer, owner uint32)

	// At returns what there is at an address, in the allocator or any of its pools.
	At(p device.Ptr) (Place, bool)

	// AllocAt makes exactly the size bytes at an address a live block that counts as
	// requested with so many bytes. They must be free memory of the pool, in the order of a
	// *cupool.Stream (nil: the default one); the contents stay. It fails with
	// device.ErrInvalidRange where not all of them are free or the small and the large
	// kind would mix, with device.ErrInvalidSize for a size that is no multiple of Config.MinBlock
	// and for a request of none or of more, and with device.ErrForeignPointer, ErrForeignStream, ErrNotSupported or
	// what an allocation fails with.
	AllocAt(p device.Ptr, size, requested int64, stream any) error

	// ForgetStream closes the streams that AdoptStream made for a handle and that are open: one, or
	// more where one could not be closed before. Where another goroutine closes one, it waits for that.
	ForgetStream(h device.Stream) error

	// SetLimit bounds what the allocator and its pools reserve, in bytes, beside the limit
	// that New was given; 0 ends that. Where they have more already, they get no more.
	// Pool.Config has limit and fraction then, from which the bytes come. memory is the device's, of
	// which Config.GarbageCollectionThreshold is a part where there is no limit.
	SetLimit(bytes, memory, limit int64, fraction float64)

	// SetFlags sets PoolConfig.Isolated and UseOnOOM of a private pool, and with noSplit also
	// NoSplit, for the blocks that are made from now on. It returns false where it has
	// changed nothing: virtual memory is always split.
	SetFlags(isolated, useOnOOM, noSplit bool) bool

	// Flush returns what is free in the magazines to the heaps, so that the next peak begins
	// with what programs hold.
	Flush()

	// Resets counts the calls of Pool.Reset that ended the life of the pool's blocks: one that
	// was allocated at another count is not live any more.
	Resets() uint64

	// Shape counts the pool's segments as a Snapshot lists them, small and large ones.
	Shape() [2]Shape
}

// A Place is a block and where its memory lies. Sizes are in bytes.
type Place struct {
	Pool      any // *cupool.Pool
	Address   device.Ptr
	Size      int64
	Requested int64 // 0 unless live or pending
	State     snapshot.State
	Stream    device.Stream

	Base     device.Ptr // of the segment, or of the stretch of virtual memory without gaps
	BaseSize int64
	Virtual  bool
}

// Shape is how many segments, and free blocks beside others, there are.
type Shape = heap.Shape

// Of returns the access to a *cupool.Pool.
var Of func(pool any) Access
