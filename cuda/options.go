package cuda

import "fmt"

// MemoryKind is the kind of memory that MemAlloc of a Driver returns.
type MemoryKind int

const (
	// MemoryDevice is the GPU's own memory. The host cannot touch it.
	MemoryDevice MemoryKind = iota
	// MemoryManaged moves between GPU and host as they touch it. The host
	// waits for a stream before it reads memory that work on the stream
	// wrote.
	MemoryManaged
	// MemoryPinned is page-locked host memory, which the GPU reaches over
	// its bus. Copies from and to it are fast and asynchronous.
	MemoryPinned
)

// String returns "device", "managed" or "pinned".
func (k MemoryKind) String() string {
	switch k {
	case MemoryDevice:
		return "device"
	case MemoryManaged:
		return "managed"
	case MemoryPinned:
		return "pinned"
	}
	return fmt.Sprintf("MemoryKind(%d)", int(k))
}

// Option is an option of Open and OpenContext. A nil one changes nothing.
type Option func(*options)

type options struct {
	kind      MemoryKind
	shareable bool
}

// Memory selects the kind of memory. Without it, it is MemoryDevice.
func Memory(k MemoryKind) Option { return func(o *options) { o.kind = k } }

// Managed is Memory(MemoryManaged).
func Managed() Option { return Memory(MemoryManaged) }

// Pinned is Memory(MemoryPinned).
func Pinned() Option { return Memory(MemoryPinned) }

// Shareable makes virtual memory that other processes can map: its physical
// memory can be exported by file descriptor, which package ipc does. Memory of
// MemAlloc needs no option for that. Open fails with cupool.ErrNotSupported for
// managed and pinned memory, and where the GPU or its driver cannot export.
func Shareable() Option { return func(o *options) { o.shareable = true } }
