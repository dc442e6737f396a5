package cuda

import "github.com/cupool/cupool/device"

// Handles is for programs that make CUDA calls of their own.
type Handles interface {
	// Context returns the Driver's CUcontext.
	Context() uintptr
	// Ordinal returns the number of the device.
	Ordinal() int
}

// EventBatch queries many events at the price of one call.
type EventBatch interface {
	// QueryEvents queries events in turn up to the first that is not done,
	// and returns the number of events before it. It fails with
	// cupool.ErrInvalidHandle for an event that is not of this context, and
	// with an *Error.
	QueryEvents(events []EventHandle) (done int, err error)
}

// StreamInfo tells more about a stream. Its methods fail with
// cupool.ErrForeignStream for a stream of another context.
type StreamInfo interface {
	// StreamID returns a number that no other stream of the process has or
	// will have, unlike its handle. It takes CUDA 12.0 and fails with
	// cupool.ErrNotSupported before.
	StreamID(s StreamHandle) (uint64, error)
	// StreamCapture reports whether work given to s is being captured into
	// a graph, and the capture's number. An invalidated capture is an error.
	StreamCapture(s StreamHandle) (capturing bool, id uint64, err error)
}

// HostMemory is page-locked host memory beside the Driver's own kind. Its
// address is the same for host and device.
type HostMemory interface {
	// HostAlloc returns size bytes. It fails with cupool.ErrOutOfMemory, and
	// with cupool.ErrInvalidRange for a size that is not positive.
	HostAlloc(size int64) (Ptr, error)
	// HostFree frees memory of HostAlloc by its address. It fails with
	// cupool.ErrInvalidRange for any other address.
	HostFree(p Ptr) error
	// HostRegister locks the pages of b and returns their address on the
	// device. The Driver keeps b from being moved or collected until
	// HostUnregister. It fails with cupool.ErrInvalidRange where b is empty,
	// and with an *Error where it is locked already.
	HostRegister(b []byte) (Ptr, error)
	// HostUnregister unlocks b, exactly the slice that was registered. It fails
	// with cupool.ErrInvalidRange for other memory.
	HostUnregister(b []byte) error
}

// A Location is where managed memory or that of a native pool lies: Kind is
// OnDevice, OnHost or OnNUMA, and ID the device's ordinal or the NUMA node.
type Location = device.Location

// LocationKind is the kind of a Location; the values are CUDA's.
type LocationKind = device.LocationKind

const (
	OnDevice = device.OnDevice // ID is the device's ordinal
	OnHost   = device.OnHost   // ID is ignored
	OnNUMA   = device.OnNUMA   // ID is the node; before CUDA 12.2 it means OnHost
)

// Advice is a hint on how managed memory will be used; the values are CUDA's.
type Advice int

const (
	AdviseReadMostly          Advice = 1 // copies may be many, as it is seldom written; the location is ignored
	AdviseNotReadMostly       Advice = 2
	AdvisePreferredLocation   Advice = 3 // it should lie at the location
	AdviseNoPreferredLocation Advice = 4
	AdviseAccessedBy          Advice = 5 // the location uses it and should not fault
	AdviseNotAccessedBy       Advice = 6
)

// ManagedHints directs managed memory. Its methods fail with an *Error for
// other kinds of memory, and with cupool.ErrInvalidRange for n bytes that are
// not inside one allocation.
type ManagedHints interface {
	// Prefetch moves n bytes to a location, in the order of s.
	Prefetch(p Ptr, n int64, to Location, s StreamHandle) error
	// Advise gives a hint on n bytes.
	Advise(p Ptr, n int64, a Advice, at Location) error
}

// Peers works together with the Drivers of other GPUs: peer access, for memory of
// MemAlloc and virtual memory alike, and waits for their events. Managed and
// pinned memory needs no peer access. Package devices does all of it for a
// program.
type Peers = device.Peers

// IPCHandle stands for memory in another process: plain bytes to send.
type IPCHandle [64]byte

// MemoryIPC shares memory of MemAlloc with other processes of the computer.
type MemoryIPC interface {
	// ExportMemory returns a handle of the allocation that starts at p. It
	// fails with cupool.ErrInvalidRange for any other address.
	ExportMemory(p Ptr) (IPCHandle, error)
	// OpenMemory maps another process's allocation. It fails with an *Error
	// in the process that exported it.
	OpenMemory(h IPCHandle) (Ptr, error)
	// CloseMemory unmaps memory of OpenMemory by its address, which is closed as often
	// as it was opened. It fails with
	// cupool.ErrInvalidRange for any other address.
	CloseMemory(p Ptr) error
}
