package device

// Pool is a device's own stream-ordered allocator (CUmemoryPool); 0 is the one
// that is current.
type Pool uintptr

// LocationKind says what a Location is; the values are CUDA's.
type LocationKind int

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
