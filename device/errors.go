package device

import (
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"

	"github.com/cupool/cupool/internal/bytesize"
)

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
	// ErrNotPermitted: a function that a stream runs waits for a stream that
	// runs a function, which may never end. Wait outside of the function.
	ErrNotPermitted = errors.New("not permitted")
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
	// ErrCorrupted: memory was written that the writer did not own.
	ErrCorrupted = errors.New("corrupted memory")
	// ErrSizeMismatch: the size is not the one that is needed.
	ErrSizeMismatch = errors.New("wrong size")
)

// WaitError says that a wait for a stream's work ended before the work was done. It
// matches Err. The memory concerned stays where it is, the allocator goes on working
// on other streams, and the call can be made again.
type WaitError struct {
	Stream Stream
	Waited time.Duration // how long the call waited
	Age    time.Duration // since the stream's oldest event was recorded that is not done; 0: not known, as without Config.WaitTimeout
	Err    error         // context.DeadlineExceeded after Config.WaitTimeout, or the cause of the call's context
}

func (e *WaitError) Error() string {
	age := ""
	if e.Age > 0 {
		age = fmt.Sprintf(", its oldest event is %v old", e.Age)
	}
	return fmt.Sprintf("cupool: waiting for %v: its work was not done after %v%s: %v", e.Stream, e.Waited, age, e.Err)
}

// Unwrap returns Err.
func (e *WaitError) Unwrap() error { return e.Err }

// ConfigError names the field of a configuration that cannot be. It matches
// ErrInvalidConfig. Error has 200 bytes of the value at most, and no control characters.
type ConfigError struct {
	Field  string
	Value  any
	Reason string
}

// mostShown is how many bytes of a value an error has.
const mostShown = 200

// shown is a value as it may stand in a line of a log: a stranger may have chosen it.
func shown(value any) string {
	text := fmt.Sprint(value)
	if len(text) > mostShown {
		text = text[:mostShown] + "…"
	}
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return unicode.ReplacementChar
	}, text)
}

func (e *ConfigError) Error() string {
	if text := shown(e.Value); text != "" && text != "<nil>" {
		return fmt.Sprintf("cupool: %v: %s = %s: %s", ErrInvalidConfig, e.Field, text, e.Reason)
	}
	return fmt.Sprintf("cupool: %v: %s: %s", ErrInvalidConfig, e.Field, e.Reason)
}

// Unwrap returns ErrInvalidConfig.
func (e *ConfigError) Unwrap() error { return ErrInvalidConfig }

// CorruptionError is a block behind whose end something was written, or that
// was written after it was freed. It matches ErrCorrupted, and in the second
// case ErrUseAfterFree too. The allocator goes on working, and the block is
// freed like any other. Sizes and offsets are in bytes.
type CorruptionError struct {
	Pool   string // Pool.Name; empty for an allocator that New made
	Ptr    Ptr    // where the block begins
	Size   int64  // as requested
	Offset int64  // from Ptr, of the first byte that was written
	Bytes  int64  // how many bytes are not as they should be
	Stream Stream
	// AfterFree: the block was written after it was freed. Else the bytes
	// behind its end were written; Offset is then at least Size.
	AfterFree   bool
	Label       string // of WithLabel, if any
	AllocatedAt string // the Go stack of Alloc
	FreedAt     string // the Go stack of Free; empty while the block is live
}

func (e *CorruptionError) Error() string {
	var sb strings.Builder
	what := "an overrun"
	if e.AfterFree {
		what = "a write after free"
	}
	fmt.Fprintf(&sb, "cupool: %v: %s: %s from offset %d on of the block at %v (%s)", ErrCorrupted, what, bytesize.Count(e.Bytes), e.Offset, e.Ptr, bytesize.Count(e.Size))
	if e.Label != "" {
		fmt.Fprintf(&sb, " for %s", e.Label)
	}
	if e.Pool != "" {
		fmt.Fprintf(&sb, " of %s", e.Pool)
	}
	fmt.Fprintf(&sb, " on %v", e.Stream)
	for _, at := range []struct{ done, stack string }{{"allocated", e.AllocatedAt}, {"freed", e.FreedAt}} {
		if at.stack != "" {
			fmt.Fprintf(&sb, ", %s at\n\t%s", at.done, strings.ReplaceAll(strings.TrimSpace(at.stack), "\n", "\n\t"))
		}
	}
	return sb.String()
}

// Unwrap returns ErrCorrupted, and ErrUseAfterFree after a free.
func (e *CorruptionError) Unwrap() []error {
	if e.AfterFree {
		return []error{ErrCorrupted, ErrUseAfterFree}
	}
	return []error{ErrCorrupted}
}
