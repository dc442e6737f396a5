package cupool

import "github.com/cupool/cupool/internal/device"

// The optional parts of a Driver that CUDA's Driver has. Programs find them
// by type assertion; each call fails with ErrNotSupported where the GPU, the
// driver or the kind of memory does not have it.

// EventBatch queries many events at the price of one call.
type EventBatch interface {
	// QueryEvents queries events in turn up to the first that is not done,
	// and returns how many are.
	QueryEvents(events []EventHandle) (done int, err error)
}

// CUDAHandles is for programs that make CUDA calls of their own.
type CUDAHandles interface {
	// CUDAContext returns the CUcontext of the Driver.
	CUDAContext() uintptr
	// CUDAOrdinal returns the number of the device.
	CUDAOrdinal() int
}

// StreamInfo tells more of a stream.
type StreamInfo interface {
	// StreamID returns a number that no other stream of the process has or
	// will have, unlike its handle. CUDA 12.0.
	StreamID(s StreamHandle) (uint64, error)
	// StreamCapture reports whether work given to s is being captured into
	// a graph, and the capture's number. An invalidated capture is an error.
	StreamCapture(s StreamHandle) (capturing bool, id uint64, err error)
}

// HostMemory is page-locked host memory beside the Driver's own kind. Its
// address is the same for host and device.
type HostMemory interface {
	HostAlloc(size int64) (Ptr, error)
	HostFree(p Ptr) error
	// HostRegister locks the pages of b, which must not be garbage before
	// HostUnregister, and returns their address on the device.
	HostRegister(b []byte) (Ptr, error)
	HostUnregister(b []byte) error
}

// A Location is where managed memory, or a native pool's, lies: OnDevice with
// its ordinal, OnHost, or OnNUMA with the node.
type Location = device.Location

// LocationKind says what a Location is; the values are CUDA's.
type LocationKind = device.LocationKind

const (
	OnDevice LocationKind = 1 // ID is the ordinal
	OnHost   LocationKind = 2
	OnNUMA   LocationKind = 3 // ID is the node; before CUDA 12.2 as OnHost
)

// Advice is a hint on how managed memory will be used; the values are CUDA's.
type Advice int

const (
	AdviseReadMostly          Advice = 1
	AdviseNotReadMostly       Advice = 2
	AdvisePreferredLocation   Advice = 3
	AdviseNoPreferredLocation Advice = 4
	AdviseAccessedBy          Advice = 5
	AdviseNotAccessedBy       Advice = 6
)

// ManagedHints directs managed memory.
type ManagedHints interface {
	// Prefetch moves n bytes in the order of s.
	Prefetch(p Ptr, n int64, to Location, s StreamHandle) error
	// Advise gives a hint on n bytes. Hints without a place ignore at.
	Advise(p Ptr, n int64, a Advice, at Location) error
}

// IPCHandle is memory or an event for another process: plain bytes to send.
type IPCHandle [64]byte

// MemoryIPC shares memory of MemAlloc with other processes of the system.
type MemoryIPC interface {
	// ExportMemory returns a handle of the allocation that starts at p.
	ExportMemory(p Ptr) (IPCHandle, error)
	// OpenMemory maps another process's allocation. The process that made a
	// handle cannot open it.
	OpenMemory(h IPCHandle) (Ptr, error)
	// CloseMemory unmaps it again.
	CloseMemory(p Ptr) error
}

// NativePool is the device's own stream-ordered allocator (CUmemoryPool);
// 0 is the one that is current.
type NativePool = device.Pool

// NativePoolConfig sets up a native pool: MaxSize in bytes (0: the driver's
// limit; CUDA 12.2), Shareable for export by file descriptor, and the Location
// of the memory (zero: the device itself; others by CUDA's version). The type
// of allocation is always pinned, which is the only one that pools have.
type NativePoolConfig = device.PoolConfig

// NativePoolAttribute is an attribute of a native pool; the values are
// CUDA's. The first three are 0 or 1, the others bytes.
type NativePoolAttribute = device.PoolAttribute

const (
	PoolReuseFollowEvents       = device.PoolReuseFollowEvents       // reuse across streams that events order
	PoolReuseOpportunistic      = device.PoolReuseOpportunistic      // reuse across streams of what is done
	PoolReuseInternalDependency = device.PoolReuseInternalDependency // reuse across streams by making one wait
	PoolReleaseThreshold        = device.PoolReleaseThreshold        // what a synchronization leaves reserved
	PoolReservedCurrent         = device.PoolReservedCurrent         // read only
	PoolReservedHigh            = device.PoolReservedHigh            // may be set to 0, which means to the current value
	PoolUsedCurrent             = device.PoolUsedCurrent             // read only
	PoolUsedHigh                = device.PoolUsedHigh                // may be set to 0, which means to the current value
)

// Access is what a device may do with a native pool's memory; the values are
// CUDA's.
type Access = device.Access

const (
	NoAccess        = device.NoAccess
	ReadAccess      = device.ReadAccess
	ReadWriteAccess = device.ReadWriteAccess
)

// PoolPointer is an allocation of an exported pool, for another process:
// plain bytes to send.
type PoolPointer = device.PoolPointer

// NativePools is the device's own stream-ordered allocator. CUDA 11.2.
type NativePools interface {
	AllocAsync(size int64, pool NativePool, s StreamHandle) (Ptr, error)
	FreeAsync(p Ptr, s StreamHandle) error

	DefaultNativePool() (NativePool, error)
	CurrentNativePool() (NativePool, error)
	SetCurrentNativePool(pool NativePool) error
	NewNativePool(cfg NativePoolConfig) (NativePool, error)
	DestroyNativePool(pool NativePool) error
	// TrimNativePool gives memory back until keep bytes are reserved, or
	// what is in use.
	TrimNativePool(pool NativePool, keep int64) error

	NativePoolAttribute(pool NativePool, a NativePoolAttribute) (uint64, error)
	SetNativePoolAttribute(pool NativePool, a NativePoolAttribute, v uint64) error
	NativePoolAccess(pool NativePool, device int) (Access, error)
	SetNativePoolAccess(pool NativePool, device int, a Access) error

	// ExportNativePool returns a file descriptor, which the caller closes.
	// It comes before ExportNativePointer of the pool's memory.
	ExportNativePool(pool NativePool) (fd int, err error)
	// ImportNativePool leaves the descriptor to the caller.
	ImportNativePool(fd int) (NativePool, error)
	ExportNativePointer(p Ptr) (PoolPointer, error)
	ImportNativePointer(pool NativePool, data PoolPointer) (Ptr, error)
}
