package sanitize

import (
	"errors"
	"fmt"
	"strings"

	"github.com/cupool/cupool/internal/device"
)

// ErrCorrupted: memory was written that the writer did not own.
var ErrCorrupted = errors.New("corrupted memory")

// CorruptionError is a block behind whose end something was written, or that
// was written after it was freed. It matches ErrCorrupted, and in the second
// case ErrUseAfterFree too. The allocator goes on working, and the block is
// freed like any other. Sizes and offsets are in bytes.
type CorruptionError struct {
	Pool   string     // Pool.Name; empty for an allocator that New made
	Ptr    device.Ptr // where the block begins
	Size   int64      // as requested
	Offset int64      // from Ptr, of the first byte that was written
	Bytes  int64      // how many bytes are not as they should be
	Stream device.Stream
	// AfterFree: the block was written after it was freed. Else the bytes
	// behind its end were written; Offset is then at least Size.
	AfterFree   bool
	Label       string // of WithLabel, if any
	AllocatedAt string // the Go stack of Alloc
	FreedAt     string // the Go stack of Free; empty while the block is live

	gen uint64
}

func (e *CorruptionError) Error() string {
	var sb strings.Builder
	what := "an overrun"
	if e.AfterFree {
		what = "a write after free"
	}
	fmt.Fprintf(&sb, "cupool: %v: %s: %d bytes from offset %d on of the block at %v (%d bytes)", ErrCorrupted, what, e.Bytes, e.Offset, e.Ptr, e.Size)
	if e.Label != "" {
		fmt.Fprintf(&sb, " for %s", e.Label)
	}
	if e.Pool != "" {
		fmt.Fprintf(&sb, " of %s", e.Pool)
	}
	fmt.Fprintf(&sb, " on stream 0x%x", uintptr(e.Stream))
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
		return []error{ErrCorrupted, device.ErrUseAfterFree}
	}
	return []error{ErrCorrupted}
}
