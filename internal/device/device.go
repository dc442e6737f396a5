// Package device holds the words that the allocator and the devices share:
// addresses, stream and event handles, and the errors every device reports
// the same way. The interface itself, Driver, is declared by its consumer,
// in the root package.
package device

import (
	"errors"
	"fmt"
)

// Ptr is an address in device memory. The zero Ptr is no memory at all.
type Ptr uintptr

// String prints the address in hexadecimal.
func (p Ptr) String() string { return fmt.Sprintf("0x%x", uintptr(p)) }

// Stream is a device's own handle of a stream. 0 is the default stream
// (CUDA's null stream).
type Stream uintptr

// Event is a device's own handle of an event.
type Event uintptr

// The errors that a device reports by wrapping one of these.
var (
	// ErrOutOfMemory: the device has no memory left for the request.
	ErrOutOfMemory = errors.New("out of memory")
	// ErrNotSupported: this device or driver cannot do what was asked.
	ErrNotSupported = errors.New("not supported")
	// ErrDeviceLost: the device failed for good (on CUDA: the context was
	// lost, say after an illegal address). No further call can succeed.
	ErrDeviceLost = errors.New("device lost")
	// ErrInvalidHandle: a stream, event, pool or memory handle that this
	// device never made or has already destroyed.
	ErrInvalidHandle = errors.New("invalid handle")
	// ErrInvalidRange: an address range that is not inside one allocation
	// of this device.
	ErrInvalidRange = errors.New("invalid device address range")
	// ErrClosed: the device, or the allocator over it, was closed.
	ErrClosed = errors.New("closed")
)
