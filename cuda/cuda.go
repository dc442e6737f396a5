// Package cuda opens NVIDIA GPUs for package cupool: device memory, managed
// memory or page-locked host memory, CUDA's streams and events, virtual memory
// and CUDA's own stream-ordered pools.
//
//	d, err := cuda.Open(0)                 // device memory of GPU 0
//	d, err := cuda.Open(0, cuda.Managed()) // managed memory
//	pool, err := cupool.New(cupool.Config{Driver: d})
//
// The driver's library is opened when a program first calls Open, OpenContext,
// Devices or Version, with cgo and without, on linux/amd64, linux/arm64 and
// windows/amd64. Where there is none, and on other systems, these fail with
// cupool.ErrNotSupported and say what to do.
//
// In tests, the environment's CUPOOL_LIBCUDA names a library to open in place of
// the driver's.
package cuda

// Driver is a GPU, or a kind of memory of it. It has the methods of
// cupool.Driver, cupool.StreamOwner and cupool.VirtualMemory, whose comments
// describe them, and methods that only CUDA has. Only Drivers of device memory have
// virtual memory: for other kinds VMMGranularity returns 0.
//
// All methods but Close are safe from several goroutines and on any thread. No
// other call may overlap Close. Calls that the GPU, its driver or the kind of
// memory does not have fail with cupool.ErrNotSupported. Calls of CUDA that
// fail return an *Error. When an error has lost the context, every later call
// returns that error, and it matches cupool.ErrDeviceLost.
type Driver interface {
	Name() string

	MemAlloc(size int64) (Ptr, error)
	MemFree(p Ptr) error
	MemInfo() (free, total int64, err error)
	HostAccessible() bool

	NewStream() (StreamHandle, error)
	DestroyStream(s StreamHandle) error
	SyncStream(s StreamHandle) error

	NewEvent() (EventHandle, error)
	DestroyEvent(e EventHandle) error
	RecordEvent(e EventHandle, s StreamHandle) error
	QueryEvent(e EventHandle) (done bool, err error)
	SyncEvent(e EventHandle) error
	StreamWaitEvent(s StreamHandle, e EventHandle) error

	Copy(dst, src Ptr, n int64, s StreamHandle) error
	CopyIn(dst Ptr, src []byte, s StreamHandle) error
	CopyOut(dst []byte, src Ptr, s StreamHandle) error
	Memset(dst Ptr, value byte, n int64, s StreamHandle) error

	OwnsStream(s StreamHandle) error

	VMMGranularity() int64
	AddressReserve(size int64) (Ptr, error)
	AddressFree(p Ptr, size int64) error
	MemCreate(size int64) (handle uintptr, err error)
	MemRelease(handle uintptr) error
	MemMap(p Ptr, size int64, handle uintptr) error
	MemSetAccess(p Ptr, size int64) error
	MemUnmap(p Ptr, size int64) error

	Close() error

	Handles
	EventBatch
	StreamInfo
	HostMemory
	ManagedHints
	MemoryIPC
	NativePools
	Peers
}
