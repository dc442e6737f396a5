// Package device is what a pool of package cupool and a device agree on: addresses,
// handles of streams and events, errors, and what a cupool.Driver may do beside what
// every Driver does (VirtualMemory, Peers, NativePools, RangeSharing). Package cupool
// has its types and errors under names of its own. Who writes a Driver, or a library
// below a pool, imports this package alone.
package device

import "fmt"

// Ptr is an address in device memory. The zero Ptr is no memory at all.
type Ptr uintptr

// String prints the address in hexadecimal.
func (p Ptr) String() string { return fmt.Sprintf("0x%x", uintptr(p)) }

// Stream is a device's own handle of a stream. 0 is the default stream
// (CUDA's null stream).
type Stream uintptr

// String names the stream: "stream 0x5", or "the default stream".
func (s Stream) String() string {
	if s == 0 {
		return "the default stream"
	}
	return fmt.Sprintf("stream 0x%x", uintptr(s))
}

// Event is a device's own handle of an event.
type Event uintptr

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
type Peer interface{ Name() string }

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
