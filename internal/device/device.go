// Package device holds the words that the allocator and the devices share:
// addresses, stream and event handles, and the errors every device reports
// the same way. The interface itself, Driver, is declared by its consumer,
// in the root package.
package device

import (
	"errors"
	"fmt"
	"time"
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

// The errors that devices and the operations on their memory report by wrapping
// one of these.
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
	// ErrForeignPointer: memory of another device or allocator.
	ErrForeignPointer = errors.New("foreign pointer")
	// ErrForeignStream: a stream of another device or allocator.
	ErrForeignStream = errors.New("foreign stream")
	// ErrInvalidConfig: a field of a configuration is out of its range.
	ErrInvalidConfig = errors.New("invalid configuration")
	// ErrUseAfterFree: the memory was freed before it was to be used.
	ErrUseAfterFree = errors.New("use after free")
	// ErrSizeMismatch: the size is not the one that is needed.
	ErrSizeMismatch = errors.New("wrong size")
)

// VirtualMemory is the optional part of a Driver that maps physical memory
// to addresses, after CUDA's virtual memory management. Sizes and addresses
// are multiples of VMMGranularity, in bytes; a handle is mapped as a whole,
// at any number of addresses. None of the calls waits for running work.
type VirtualMemory interface {
	// VMMGranularity returns 0 where the device cannot do it.
	VMMGranularity() int64
	AddressReserve(size int64) (Ptr, error)
	AddressFree(p Ptr, size int64) error
	MemCreate(size int64) (handle uintptr, err error)
	MemRelease(handle uintptr) error
	MemMap(p Ptr, size int64, handle uintptr) error
	MemSetAccess(p Ptr, size int64) error
	MemUnmap(p Ptr, size int64) error
}

// A Peer is another device, as Peers are told of it: its Driver.
type Peer = interface{ Name() string }

// Peers is the optional part of a Driver that works together with other
// devices. Its methods are safe from several goroutines. They fail with
// ErrNotSupported for a peer of another kind. Copy of a Driver that has them
// copies between the memory of any two of its kind, with peer access or without.
type Peers interface {
	// CanAccessPeer returns nil where EnablePeer is possible, and
	// ErrNotSupported, naming both devices, where it is not.
	CanAccessPeer(peer Peer) error
	// EnablePeer lets work of this device touch the memory of peer, that which
	// it has and that which it gets later, until either is closed. Enabling it
	// twice is no error. It fails as CanAccessPeer does, or with what the device
	// says, and then leaves things as they were.
	EnablePeer(peer Peer) error
	// StreamWaitPeerEvent is StreamWaitEvent for an event of peer.
	StreamWaitPeerEvent(s Stream, e Event, peer Peer) error
}

// WaitError says that a wait for a stream's work ended before the work was done.
// The work goes on. It matches Err.
type WaitError struct {
	Stream Stream
	Waited time.Duration // how long the call waited
	Age    time.Duration // since the stream's oldest event was recorded that is not done; 0: unknown
	Err    error         // context.DeadlineExceeded after Config.WaitTimeout, or the cause of the call's context
}

func (e *WaitError) Error() string {
	age := ""
	if e.Age > 0 {
		age = fmt.Sprintf(", its oldest event is %v old", e.Age)
	}
	return fmt.Sprintf("cupool: waiting for stream 0x%x: its work was not done after %v%s: %v", uintptr(e.Stream), e.Waited, age, e.Err)
}

// Unwrap returns Err.
func (e *WaitError) Unwrap() error { return e.Err }

// ConfigError names the field of a configuration that cannot be. It matches
// ErrInvalidConfig.
type ConfigError struct {
	Field  string
	Value  any
	Reason string
}

func (e *ConfigError) Error() string {
	return fmt.Sprintf("cupool: %v: %s = %v: %s", ErrInvalidConfig, e.Field, e.Value, e.Reason)
}

// Unwrap returns ErrInvalidConfig.
func (e *ConfigError) Unwrap() error { return ErrInvalidConfig }
