package cupool

import (
	"errors"
	"fmt"
	"strings"

	"github.com/cupool/cupool/internal/device"
)

// The errors of this package, to be compared with errors.Is. Where numbers
// belong to them they come inside a typed error: *OOMError, *BlockError,
// *LeakError, *ConfigError.
var (
	// ErrOutOfMemory: neither the cache nor the device has the memory.
	ErrOutOfMemory = device.ErrOutOfMemory
	// ErrNotSupported: the device, driver or build cannot do what was asked.
	ErrNotSupported = device.ErrNotSupported
	// ErrDeviceLost: the device failed for good; nothing will work again.
	ErrDeviceLost = device.ErrDeviceLost
	// ErrClosed: the allocator, stream, buffer or device was closed before.
	ErrClosed = device.ErrClosed
	// ErrAsleep: the allocator sleeps and has no memory until it is woken.
	ErrAsleep = errors.New("asleep")
	// ErrInvalidHandle: no such stream, event, pool or memory, or it was
	// destroyed before.
	ErrInvalidHandle = device.ErrInvalidHandle
	// ErrInvalidRange: an address range outside the memory it should be in.
	ErrInvalidRange = device.ErrInvalidRange

	// ErrInvalidSize: a negative size, or one no device can have.
	ErrInvalidSize = errors.New("invalid size")
	// ErrDoubleFree: the block was freed before.
	ErrDoubleFree = errors.New("double free")
	// ErrStaleBlock: a double free of a block whose memory has been handed
	// out again since. It matches ErrDoubleFree too.
	ErrStaleBlock = fmt.Errorf("%w of a recycled block", ErrDoubleFree)
	// ErrUseAfterFree: the block was freed before it was to be used.
	ErrUseAfterFree = errors.New("use after free")
	// ErrForeignPointer: the address or block is not of this allocator.
	ErrForeignPointer = errors.New("foreign pointer")
	// ErrInteriorPointer: the address is inside a block, not at its start.
	ErrInteriorPointer = errors.New("interior pointer")
	// ErrSizeMismatch: the size is not the one that was allocated.
	ErrSizeMismatch = errors.New("wrong size")
	// ErrForeignStream: the stream belongs to another allocator or device.
	ErrForeignStream = errors.New("foreign stream")
	// ErrInvalidConfig: a field of a Config is out of its range.
	ErrInvalidConfig = errors.New("invalid configuration")
)

// BlockError is a call on a block or address that cannot be right. Nothing
// was changed. It unwraps to one of the errors above.
type BlockError struct {
	Op     string       // what was tried: "free", "record stream", ...
	Ptr    Ptr          // the address in question
	Size   int64        // bytes, as the caller has it; -1: not given
	Stream StreamHandle // the stream that owns the memory, where known
	Err    error        // why not
	Detail string       // what to know or do about it
}

func (e *BlockError) Error() string {
	var sb strings.Builder
	fmt.Fprintf(&sb, "cupool: %s of %v", e.Op, e.Ptr)
	if e.Size >= 0 {
		fmt.Fprintf(&sb, " (%d bytes)", e.Size)
	}
	if e.Stream != 0 {
		fmt.Fprintf(&sb, " on stream 0x%x", uintptr(e.Stream))
	}
	fmt.Fprintf(&sb, ": %v", e.Err)
	if e.Detail != "" {
		fmt.Fprintf(&sb, ": %s", e.Detail)
	}
	return sb.String()
}

// Unwrap returns the reason.
func (e *BlockError) Unwrap() error { return e.Err }

// OOMError says why an allocation failed after everything was tried. It
// matches ErrOutOfMemory. The allocator goes on working.
type OOMError struct {
	Device      string
	Stream      StreamHandle
	Requested   int64 // bytes asked for
	Rounded     int64 // bytes of the block that would have held them
	Segment     int64 // bytes of the segment that the device refused
	Live        int64 // bytes in blocks that the program holds
	Pending     int64 // bytes freed, but still used by other streams
	Cached      int64 // bytes free in the pools
	LargestFree int64 // bytes of the largest cached block
	Reserved    int64 // bytes held from the device
	OtherPools  int64 // bytes held by the other members of the family (NewPool)
	DeviceFree  int64 // bytes the device has left; -1: it did not say
	DeviceTotal int64 // bytes the device has; -1: it did not say
	Limit       int64 // bytes that Config allows to reserve; 0: no limit
	// Fragmentation is 1 - LargestFree/Cached: how much of the cached
	// memory is not in the largest block.
	Fragmentation float64
	Hint          string // what would have helped
	Cause         error  // what the device said last

	room    int64 // bytes that the limits leave
	least   int64 // the fewest bytes that the device is asked for
	virtual bool  // memory is virtual, and joined
}

func (e *OOMError) Error() string {
	var sb strings.Builder
	fmt.Fprintf(&sb, "cupool: out of memory on %s: %s requested (block %s, segment %s); live %s, pending %s, cached %s (largest free %s, fragmentation %.0f %%), reserved %s",
		e.Device, formatBytes(e.Requested), formatBytes(e.Rounded), formatBytes(e.Segment), formatBytes(e.Live), formatBytes(e.Pending),
		formatBytes(e.Cached), formatBytes(e.LargestFree), 100*e.Fragmentation, formatBytes(e.Reserved))
	if e.Limit > 0 {
		fmt.Fprintf(&sb, " of a limit of %s", formatBytes(e.Limit))
	}
	if e.OtherPools > 0 {
		fmt.Fprintf(&sb, "; other pools hold %s", formatBytes(e.OtherPools))
	}
	if e.DeviceTotal >= 0 {
		fmt.Fprintf(&sb, "; device has %s free of %s", formatBytes(e.DeviceFree), formatBytes(e.DeviceTotal))
	}
	if e.Hint != "" {
		fmt.Fprintf(&sb, "; %s", e.Hint)
	}
	return sb.String()
}

// Unwrap returns ErrOutOfMemory and the device's own error.
func (e *OOMError) Unwrap() []error {
	if e.Cause == nil {
		return []error{ErrOutOfMemory}
	}
	return []error{ErrOutOfMemory, e.Cause}
}

// Leak is a block that was live when its allocator was closed.
type Leak struct {
	Ptr    Ptr
	Size   int64 // bytes as requested
	Stream StreamHandle
	Stack  string // where it was allocated, with Config.RecordStacks
	Label  string // of WithLabel, if any
}

// LeakError lists the blocks that were live at Close, by address. Their
// memory was given back to the device all the same.
type LeakError struct {
	Leaks []Leak
	Bytes int64 // sum of their sizes as requested
}

// maxLeaksShown bounds the text of a LeakError; Leaks has them all.
const maxLeaksShown = 10

func (e *LeakError) Error() string {
	var sb strings.Builder
	fmt.Fprintf(&sb, "cupool: %d leaked blocks, %s", len(e.Leaks), formatBytes(e.Bytes))
	for i, l := range e.Leaks {
		if i == maxLeaksShown {
			fmt.Fprintf(&sb, "\n\t... and %d more", len(e.Leaks)-i)
			break
		}
		fmt.Fprintf(&sb, "\n\t%v: %d bytes", l.Ptr, l.Size)
		if l.Label != "" {
			fmt.Fprintf(&sb, " for %s", l.Label)
		}
		if l.Stack != "" {
			fmt.Fprintf(&sb, ", allocated at\n\t\t%s", strings.ReplaceAll(strings.TrimSpace(l.Stack), "\n", "\n\t\t"))
		}
	}
	return sb.String()
}

// ConfigError names the field of a Config that cannot be. It matches
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

// formatBytes prints a size for people, in binary units.
func formatBytes(n int64) string {
	const units = "KMGTPE"
	if n > -1024 && n < 1024 {
		return fmt.Sprintf("%d B", n)
	}
	v, i := float64(n)/1024, 0
	for ; (v >= 1024 || v <= -1024) && i < len(units)-1; i++ {
		v /= 1024
	}
	return fmt.Sprintf("%.4g %ciB", v, units[i])
}
