package device

// Pool is a device's own stream-ordered allocator (CUmemoryPool); 0 is the one
// that is current.
type Pool uintptr

// LocationKind says what a Location is; the values are CUDA's.
type LocationKind int

// The kinds of places.
const (
	OnDevice LocationKind = 1 // the ID is the device's ordinal
	OnHost   LocationKind = 2 // the ID is ignored
	OnNUMA   LocationKind = 3 // the ID is the NUMA node; before CUDA 12.2 as OnHost
)

// A Location is where memory lies.
type Location struct {
	Kind LocationKind
	ID   int // the device's ordinal or the NUMA node
}

// PoolConfig sets up a Pool.
type PoolConfig struct {
	MaxSize   int64    // bytes; 0: the driver's limit. CUDA 12.2
	Shareable bool     // may be exported to other processes, by file descriptor
	Location  Location // where the memory lies; zero: on the device itself
	Managed   bool     // the memory is managed, so the CPU may touch it, too. CUDA 13
	Win32     bool     // may be exported by Windows' handles, which are ErrNotSupported elsewhere
}

// PoolAttribute is an attribute of a Pool; the values are CUDA's. The first
// three are 0 or 1, the others bytes.
type PoolAttribute int

// The attributes.
const (
	PoolReuseFollowEvents PoolAttribute = iota + 1
	PoolReuseOpportunistic
	PoolReuseInternalDependency
	PoolReleaseThreshold
	PoolReservedCurrent
	PoolReservedHigh
	PoolUsedCurrent
	PoolUsedHigh
)

// Access is what a device may do with a Pool's memory; the values are CUDA's.
type Access int

// The kinds of access.
const (
	NoAccess        Access = 0
	ReadAccess      Access = 1
	ReadWriteAccess Access = 3
)

// PoolPointer is an allocation of an exported Pool, for another process.
type PoolPointer [64]byte

// NativePools is the optional part of a device that has stream-ordered pools
// of its own. CUDA has it since 11.2. Its methods are safe from several
// goroutines. They fail with ErrNotSupported where the device or its driver has
// no pools, and with ErrInvalidHandle for a pool that is not there.
type NativePools interface {
	// AllocAsync returns size bytes of a pool's memory for work on s and later
	// on what waits for s. It fails with ErrOutOfMemory.
	AllocAsync(size int64, pool Pool, s Stream) (Ptr, error)
	// FreeAsync gives memory back behind the work that s has been given.
	FreeAsync(p Ptr, s Stream) error

	// DefaultNativePool returns the device's own pool.
	DefaultNativePool() (Pool, error)
	// CurrentNativePool returns the pool that Pool 0 stands for.
	CurrentNativePool() (Pool, error)
	// SetCurrentNativePool makes Pool 0 stand for a pool.
	SetCurrentNativePool(pool Pool) error
	// NewNativePool makes a pool.
	NewNativePool(cfg PoolConfig) (Pool, error)
	// DestroyNativePool destroys what NewNativePool or ImportNativePool made.
	DestroyNativePool(pool Pool) error
	// TrimNativePool gives memory back to the device until keep bytes are
	// reserved, or as many as are in use.
	TrimNativePool(pool Pool, keep int64) error

	NativePoolAttribute(pool Pool, a PoolAttribute) (uint64, error)
	SetNativePoolAttribute(pool Pool, a PoolAttribute, v uint64) error
	// NativePoolAccess returns what the device with an ordinal may do with a
	// pool's memory.
	NativePoolAccess(pool Pool, device int) (Access, error)
	SetNativePoolAccess(pool Pool, device int, a Access) error

	// ExportNativePool returns a file descriptor, which the caller closes.
	// It comes before ExportNativePointer of the pool's memory.
	ExportNativePool(pool Pool) (fd int, err error)
	// ImportNativePool leaves the descriptor to the caller.
	ImportNativePool(fd int) (Pool, error)
	// ExportNativePointer returns bytes that stand for p in other processes.
	ExportNativePointer(p Ptr) (PoolPointer, error)
	// ImportNativePointer returns the address of another process's allocation.
	ImportNativePointer(pool Pool, data PoolPointer) (Ptr, error)
}
