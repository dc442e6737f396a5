// Package cupool is a caching allocator for device memory, after the manner
// of PyTorch's: memory that a program frees stays reserved and serves its
// later requests without a call to the driver. It is used as the memory of
// gorgonia's tensors (Engine), for device buffers (Caching, Buffer), or
// under a training run (examples/mlp).
//
// # The way of one Alloc
//
// The device hands out segments; a segment is tiled by blocks, and a block
// is what Alloc returns. Every stream has pools of its own, so that memory
// that was freed on a stream is reused on it without waiting.
//
//  1. caching.go, Caching.Alloc: a block of exactly this size that was freed
//     before lies in a magazine of this processor (internal/magazine): a plain
//     store makes it live again. No lock, no driver, no Go memory.
//  2. take.go, takeLocked: else, under the stream's lock, a small block
//     of about the size that lies in the fast bins as it was freed, and else
//     the best fit, by size and then address, among the free blocks
//     (internal/block). What is left over of that is split off. When the
//     size recurs, the block gets a home in a magazine (magazines.go).
//  3. ladder.go, allocMiss: else the ladder, searching again after every
//     rung: empty the magazines, collect what other streams are done with
//     (waits.go), take over what others leave idle (stranded.go, estates.go), give idle
//     segments back (release.go), collect Go's garbage if the device fills
//     up with what it may hold (pressure.go, lifetime.go), ask the device for
//     a segment (growLocked), and, once that refuses, wait for one pending block, give cached
//     segments back, wait for all, collect Go's garbage, ask the program,
//     and fail with an *OOMError (oom.go).
//
// # The way of one Free
//
//  1. caching.go, Caching.Free: a block that has a home goes back to it with
//     one compare-and-swap, from any goroutine.
//  2. caching.go, releaseLocked: a block that no other stream uses goes back
//     to its pool: a small one to the fast bins, which merge when a search
//     fails, a large one merged with its free neighbours.
//  3. streams.go, RecordStream, and waits.go, pendLocked: a block that other
//     streams use (uses.go) waits for their events first (clock.go). One event
//     serves all blocks that were freed since the last one.
//
// The books follow every step of the slow path, each stream's in its ledger
// (ledger.go); the lock-free path is counted by the blocks' generations, and
// Stats puts all together (books.go, stats.go), Snapshot pictures every block
// (snapshot.go). check.go says which rules always hold, and verifies them
// after every step in builds with -tags invariants. lookup.go and segments.go
// find blocks by address, places.go streams by the number that blocks have of
// them, trim.go, release.go and decay.go give memory back,
// growth.go and divisions.go say how much is asked for, configenv.go what the
// environment wants of that, home.go, chunks.go and stitch.go are virtual
// memory, sleep.go leaves it to other programs for a while, pool.go makes
// private pools, planner.go serves whole iterations from a plan, arena.go
// phases, native.go has the device's own pools, and package adaptor what goes
// around any of them. tensor_backend.go is the tensor.Engine, buffer.go the
// typed arrays. Devices are behind Driver: open.go opens them,
// internal/hostdev is the embedded one, cu_bridge.go (-tags gpu) is CUDA.
package cupool

import (
	"fmt"

	"github.com/cupool/cupool/internal/block"
	"github.com/cupool/cupool/internal/device"
)

// Ptr is an address in device memory, or 0 for none.
type Ptr = device.Ptr

// StreamHandle is a Driver's own handle of a stream; 0 is the default
// stream (CUDA's null stream). Programs use *Stream, which Caching makes.
type StreamHandle = device.Stream

// EventHandle is a Driver's own handle of an event.
type EventHandle = device.Event

// Driver is what the allocator asks of a device. It holds no policy.
//
// All methods are safe from several goroutines, on any OS thread. The
// allocator calls some of them with its own locks held, so a Driver never
// calls back into the allocator. A full device is reported by an error that
// matches ErrOutOfMemory, a device that is lost for good by ErrDeviceLost,
// and a missing ability by ErrNotSupported; every other error ends the
// operation at once and is passed on. Sizes are in bytes.
type Driver interface {
	// Name says which device this is, for errors and reports.
	Name() string

	// MemAlloc reserves size bytes of device memory, size > 0, aligned to
	// at least 512 bytes. It does not wait for running work.
	MemAlloc(size int64) (Ptr, error)
	// MemFree gives back what MemAlloc returned. It may wait for all work
	// on the device.
	MemFree(p Ptr) error
	// MemInfo reports the device's free and total memory in bytes.
	MemInfo() (free, total int64, err error)
	// HostAccessible reports whether the CPU may read and write the memory
	// of MemAlloc directly (host device, managed and pinned memory).
	HostAccessible() bool

	// NewStream makes a stream; DestroyStream waits for its work first.
	NewStream() (StreamHandle, error)
	DestroyStream(s StreamHandle) error
	// SyncStream waits until all work submitted to s is done.
	SyncStream(s StreamHandle) error

	// NewEvent makes an event without timing. An event that was never
	// recorded counts as done.
	NewEvent() (EventHandle, error)
	DestroyEvent(e EventHandle) error
	// RecordEvent marks e at the present end of s.
	RecordEvent(e EventHandle, s StreamHandle) error
	// QueryEvent reports whether all work before e's last record is done.
	QueryEvent(e EventHandle) (done bool, err error)
	// SyncEvent waits on the host until QueryEvent would report true.
	SyncEvent(e EventHandle) error
	// StreamWaitEvent makes later work of s wait for e, on the device.
	StreamWaitEvent(s StreamHandle, e EventHandle) error

	// Copy copies n bytes between device addresses, in the order of s. It
	// returns before the copy is done.
	Copy(dst, src Ptr, n int64, s StreamHandle) error
	// CopyIn copies src to the device in the order of s; src may be reused
	// when it returns.
	CopyIn(dst Ptr, src []byte, s StreamHandle) error
	// CopyOut copies from the device in the order of s and returns when dst
	// holds the data.
	CopyOut(dst []byte, src Ptr, s StreamHandle) error
	// Memset sets n bytes to value in the order of s. It returns before it
	// is done.
	Memset(dst Ptr, value byte, n int64, s StreamHandle) error

	// Close gives back everything the Driver holds. Memory, streams and
	// events still in existence become invalid.
	Close() error
}

// Allocator hands out device memory in stream order. Caching implements it;
// Engine and Buffer take any. All methods are safe from several goroutines.
type Allocator interface {
	// Alloc returns size bytes, aligned to 512, for work on s (nil: the
	// default stream). Size 0 is legal, costs nothing and returns the empty
	// Block. The contents are undefined. It fails with an *OOMError,
	// ErrInvalidSize, ErrForeignStream or ErrClosed.
	Alloc(size int64, s *Stream) (Block, error)
	// Free takes a block back. Work already submitted to its stream, and to
	// the streams recorded on it, may still use it. It fails with a
	// *BlockError and then has changed nothing. The empty Block is ignored.
	Free(b Block) error
	// FreePtr is Free by address. size is what was allocated, in bytes, or
	// negative not to have it checked.
	FreePtr(p Ptr, size int64) error
	// RecordStream says that work on s uses the block too: after Free, its
	// memory is not reused before what s has been given until then is done.
	RecordStream(b Block, s *Stream) error
	// Lookup returns the live block that holds the address, which may be
	// anywhere inside it, or a *BlockError with ErrForeignPointer or
	// ErrUseAfterFree.
	Lookup(p Ptr) (Block, error)
	// Driver returns the device.
	Driver() Driver
	// DefaultStream returns the device's default stream.
	DefaultStream() *Stream
	// NewStream makes a stream of the device.
	NewStream() (*Stream, error)
}

// Block is the handle of one allocation, a plain value that may be copied
// and compared. The zero Block is the empty allocation. A handle outlives
// its memory harmlessly: it carries a generation, so that its use after
// Free is told from the use of whatever lives at the address then.
type Block struct {
	// Four words: the compiler keeps no larger struct in registers.
	ptr  Ptr
	size int64
	gen  uint64
	ref  uint64 // the allocator's number above the slot's
}

func newBlock(p Ptr, size int64, gen uint64, id block.ID, pool uint32) Block {
	return Block{ptr: p, size: size, gen: gen, ref: uint64(pool)<<32 | uint64(id)}
}

func (b Block) id() block.ID { return block.ID(b.ref) }
func (b Block) pool() uint32 { return uint32(b.ref >> 32) }

// Ptr returns the address, a multiple of 512, or 0 for the empty Block.
func (b Block) Ptr() Ptr { return b.ptr }

// Size returns the bytes as requested.
func (b Block) Size() int64 { return b.size }

// IsEmpty reports whether this is the empty Block.
func (b Block) IsEmpty() bool { return b.ref == 0 }

// String prints address and size.
func (b Block) String() string {
	return fmt.Sprintf("%v (%d bytes)", b.ptr, b.size)
}
