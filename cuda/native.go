package cuda

import "github.com/cupool/cupool/device"

// NativePools is CUDA's own stream-ordered allocator, which CUDA has since
// 11.2. The host device of package cupool has such pools too. Package native puts
// the interface cupool.Allocator over it.
type NativePools = device.NativePools

// NativePool is a pool of CUDA's stream-ordered allocator, a CUmemoryPool. 0 is
// the pool that is current.
type NativePool = device.Pool

// NativePoolConfig sets up a native pool. MaxSize is in bytes; 0 is the
// driver's limit, and other values take CUDA 12.2. Shareable lets the pool be
// exported by file descriptor. Location is where the memory lies: the zero
// Location is the device itself, others depend on CUDA's version. Managed makes the
// type of allocation managed, which takes CUDA 13, so that the CPU may touch the
// memory; otherwise it is pinned. Win32 is the type of handle that Windows exports
// pools by: no system that this package runs on has it, so NewNativePool fails with
// ErrNotSupported.
type NativePoolConfig = device.PoolConfig

// NativePoolAttribute is an attribute of a native pool; the values are
// CUDA's. The first three are 0 or 1, the others are in bytes.
type NativePoolAttribute = device.PoolAttribute

const (
	PoolReuseFollowEvents       = device.PoolReuseFollowEvents       // reuse across streams that events order
	PoolReuseOpportunistic      = device.PoolReuseOpportunistic      // reuse across streams of memory whose work is done
	PoolReuseInternalDependency = device.PoolReuseInternalDependency // reuse across streams by making one wait
	PoolReleaseThreshold        = device.PoolReleaseThreshold        // the bytes that a synchronization leaves reserved
	PoolReservedCurrent         = device.PoolReservedCurrent         // read only
	PoolReservedHigh            = device.PoolReservedHigh            // setting it to 0 sets it to the current value
	PoolUsedCurrent             = device.PoolUsedCurrent             // read only
	PoolUsedHigh                = device.PoolUsedHigh                // setting it to 0 sets it to the current value
)

// Access is the access of a device to a native pool's memory; the values are
// CUDA's.
type Access = device.Access

const (
	NoAccess        = device.NoAccess
	ReadAccess      = device.ReadAccess
	ReadWriteAccess = device.ReadWriteAccess
)

// PoolPointer stands for an allocation of an exported pool in another process:
// plain bytes to send.
type PoolPointer = device.PoolPointer
