package cuda

import (
	"fmt"
	"strings"
)

// Error is a CUDA call that failed. It unwraps to cupool.ErrOutOfMemory,
// cupool.ErrNotSupported, cupool.ErrInvalidHandle, cupool.ErrInvalidRange or
// cupool.ErrDeviceLost where the code means that.
type Error struct {
	Device string // "cuda:0"
	Call   string // the driver's function, such as "cuMemAlloc"
	Detail string // its arguments: sizes, addresses, streams
	Code   int    // the CUresult; -1: the driver does not have the call
	Name   string // CUDA's name of the code, such as "CUDA_ERROR_OUT_OF_MEMORY"
	Text   string // the driver's words
	Err    error  // the error of package cupool that it matches, or nil
}

func (e *Error) Error() string {
	var sb strings.Builder
	fmt.Fprintf(&sb, "cupool: %s: %s", e.Device, e.Call)
	if e.Detail != "" {
		fmt.Fprintf(&sb, " (%s)", e.Detail)
	}
	if e.Name != "" {
		fmt.Fprintf(&sb, ": %s (%d)", e.Name, e.Code)
	}
	if e.Err != nil && (e.Text == "" || e.Err.Error() != e.Text) {
		fmt.Fprintf(&sb, ": %v", e.Err)
	}
	if e.Text != "" {
		fmt.Fprintf(&sb, ": %s", e.Text)
	}
	return sb.String()
}

// Unwrap returns the error of package cupool that it matches, or nil.
func (e *Error) Unwrap() error { return e.Err }
