// Package cupool is a caching allocator for device memory, after the manner
// of PyTorch's: memory that a program frees stays reserved and serves its
// later requests without a call to the device. It is used as the memory of
// gorgonia's tensors (Engine), for device buffers (Pool, Buffer), or
// under a training run (examples/mlp).
//
// # The map
//
// New makes an allocator, NewPool a private pool of one; both are Pools, and share a
// device: its Driver, its streams and a limit. A Pool has a heap for each stream. The
// heap's free memory is safe to reuse in the order of that stream.
//
// Who wants to know how it works reads in this order:
//
//   - allocator.go, device: Driver, Allocator and Block, and what a Driver and a Pool
//     agree on.
//   - caching.go: Alloc, Free and RecordStream, where the heap has what they need.
//     lookup.go: the same by address.
//   - ladder.go: a miss, which is what the heap cannot serve, and what it tries, one
//     table. grow.go: memory of the device.
//   - six types own the locks of the core, each with what it guards, in the order in
//     which a goroutine takes them: lifecycle (closing.go) ends streams and pools;
//     reclaimer (reclaim.go, trim.go, sleep.go) gives memory back to the device;
//     deviceState (device.go, streams.go) is what the pools of a device share; lending
//     (lending.go) moves idle memory between heaps; heapTable (table.go) finds heaps
//     and blocks; streamHeap (heaps.go, pending.go) is what a pool has for a stream.
//     internal/lock has the ranks of all locks, which builds with -tags invariants check.
//   - pool.go: what those parts know of their pool. pools.go: private pools.
//   - internal/heap: free blocks, address ranges, stitching. Below it are
//     internal/block (arithmetic), internal/magazine (the lock-free caches),
//     internal/vmem (mapping) and internal/ledger (counting).
//   - internal/epoch: when a stream is done with a block.
//   - stats.go, snapshot.go, history.go: what a pool holds and did. check.go,
//     sanitize.go: what is wrong with its books and with the blocks' use.
//
// On top of that and beside it:
//
//   - tensor_*.go: Engine. What its operations compute is internal/tensorop.
//   - open.go, cu_bridge.go, cuda: the Driver over CUDA. internal/hostdev: the device
//     in host memory.
//   - planner, arena, native and adaptor are other Allocators. devices, ipc, dist and
//     nccl: several GPUs, processes and machines.
//
// # The way of one Alloc
//
//  1. Pool.Alloc finds a block of exactly this size that was freed on this
//     stream in a magazine: one compare-and-swap makes it live again. No lock, no
//     driver, no Go memory.
//  2. Otherwise allocSlow locks the stream's heap, and Heap.Take finds a block:
//     a small one that was freed and not merged yet, or the best fit by size and
//     then address. What is left over is split off. A block whose size recurs
//     gets a place in a magazine.
//  3. Otherwise allocMiss climbs the ladder, one function a rung: collect what other
//     streams are done with, borrow an idle block, empty the magazines, take idle
//     memory of other heaps, give idle segments back, and, where Config.GrowWait says
//     so, wait for pending blocks and for what streams at work freed. Then it grows by
//     Heap.TakeVirtual or a segment of the device. After a rung that freed anything
//     Heap.Take is asked again. When the device refuses, the request borrows from
//     streams and pools, waits for one pending block, gives cached memory back, waits
//     for all, runs Go's collector, asks the program, waits for what was freed
//     meanwhile, and fails with an *OOMError.
//
// A miss goes down from caching.go to ladder.go, from there to lending or reclaimer, to
// a streamHeap, to internal/heap and to the Driver, and comes back with a block. No
// layer calls one above it; internal/imports_test.go and parts_test.go see to that.
//
// # The way of one Free
//
//  1. Pool.Free gives a block that has a place in a magazine back to it with
//     one compare-and-swap, from any goroutine.
//  2. Otherwise it locks the block's heap. A block that no other stream uses goes
//     to Heap.Put: a small one to the fast bins, which merge when a search fails,
//     a large one merges with its free neighbours.
//  3. A block that other streams use waits for their events first
//     (epoch.Pending). One event serves all blocks that were freed since the last
//     one.
//
// Every step counts in the heap's ledger; Stats adds the ledgers up. check.go says
// which rules always hold, and builds with -tags invariants verify them after
// every step.
package cupool

import (
	"fmt"

	"github.com/cupool/cupool/device"
	"github.com/cupool/cupool/internal/block"
)

// Ptr is an address in device memory, or 0 for none.
type Ptr = device.Ptr

// StreamHandle is a Driver's own handle of a stream; 0 is the default
// stream (CUDA's null stream). Programs use *Stream, which Pool makes.
type StreamHandle = device.Stream

// EventHandle is a Driver's own handle of an event.
type EventHandle = device.Event

// VirtualMemory is the optional part of a Driver that maps physical memory
// to addresses, after CUDA's virtual memory management.
type VirtualMemory = device.VirtualMemory

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

// Allocator hands out device memory in stream order. Pool implements it;
// Engine and Buffer take any. All methods are safe from several goroutines.
type Allocator interface {
	// Alloc returns size bytes, aligned to 512 (256 with a MinBlock of that),
	// for work on s (nil: the default stream). Size 0 is legal, costs nothing and returns the empty
	// Block. The contents are undefined. It fails with an *OOMError, ErrInvalidSize,
	// ErrForeignStream, ErrClosed, ErrAsleep or what the device says.
	Alloc(size int64, s *Stream) (Block, error)
	// Free takes a block back. Work already submitted to its stream, and to
	// the streams recorded on it, may still use it. It fails with a *BlockError of
	// ErrDoubleFree, ErrForeignPointer or ErrClosed and then has changed nothing. The
	// empty Block is ignored.
	// With Config.Sanitize a *CorruptionError says what was found of a block,
	// which is freed all the same.
	Free(b Block) error
	// FreePtr is Free by address. size is what was allocated, in bytes, or
	// negative not to have it checked. It fails as Free does, and with
	// ErrInteriorPointer or ErrSizeMismatch.
	FreePtr(p Ptr, size int64) error
	// RecordStream says that work on s uses the block too: after Free, its
	// memory is not reused before what s has been given until then is done.
	RecordStream(b Block, s *Stream) error
	// Lookup returns the live block that holds the address, which may be
	// anywhere inside it, or a *BlockError with ErrForeignPointer, ErrUseAfterFree
	// or ErrClosed. A Pool keeps a map of addresses from the first Lookup or
	// FreePtr on. That call enters the blocks that are live: 0.05 s for a million,
	// while others use the pool.
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

// Ptr returns the address, a multiple of 512 or a MinBlock of 256, or 0 for the empty Block.
func (b Block) Ptr() Ptr { return b.ptr }

// Size returns the bytes as requested.
func (b Block) Size() int64 { return b.size }

// IsEmpty reports whether this is the empty Block.
func (b Block) IsEmpty() bool { return b.ref == 0 }

// String prints address and size.
func (b Block) String() string {
	return fmt.Sprintf("%v (%d bytes)", b.ptr, b.size)
}
