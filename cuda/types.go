package cuda

import "github.com/cupool/cupool/device"

// Ptr is cupool.Ptr, an address in device memory.
type Ptr = device.Ptr

// StreamHandle is cupool.StreamHandle; a CUstream.
type StreamHandle = device.Stream

// EventHandle is cupool.EventHandle; a CUevent.
type EventHandle = device.Event

// Handles of streams that every context has.
const (
	// LegacyStream is the null stream of the Driver's context, whose other
	// handle is 0.
	LegacyStream StreamHandle = 1
	// PerThreadStream is the default stream of the OS thread that makes the
	// call. Programs that use it lock the goroutine to its thread.
	PerThreadStream StreamHandle = 2
)
