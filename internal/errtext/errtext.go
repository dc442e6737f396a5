// Package errtext is the texts of errors about blocks. Its types have the fields of
// the types of package cupool that they are converted from.
package errtext

import (
	"fmt"
	"strings"

	"github.com/cupool/cupool/internal/bytesize"
	"github.com/cupool/cupool/internal/device"
)

// Call is a call on a block that cannot be right, as cupool.BlockError.
type Call struct {
	Op     string
	Ptr    device.Ptr
	Size   int64
	Stream device.Stream
	Err    error
	Detail string
}

func (c Call) String() string {
	var sb strings.Builder
	fmt.Fprintf(&sb, "cupool: %s of %v", c.Op, c.Ptr)
	if c.Size >= 0 {
		fmt.Fprintf(&sb, " (%d bytes)", c.Size)
	}
	if c.Stream != 0 {
		fmt.Fprintf(&sb, " on stream 0x%x", uintptr(c.Stream))
	}
	fmt.Fprintf(&sb, ": %v", c.Err)
	if c.Detail != "" {
		fmt.Fprintf(&sb, ": %s", c.Detail)
	}
	return sb.String()
}

// Leak is a block that was not freed, as cupool.Leak.
type Leak struct {
	Ptr    device.Ptr
	Size   int64
	Stream device.Stream
	Stack  string
	Label  string
}

// maxLeaksShown bounds the text of Leaks.
const maxLeaksShown = 10

// Leaks lists n leaks, or the first of them, that are so many bytes together.
func Leaks(n int, bytes int64, leak func(i int) Leak) string {
	var sb strings.Builder
	fmt.Fprintf(&sb, "cupool: %d leaked blocks, %s", n, bytesize.Format(bytes))
	for i := range n {
		if i == maxLeaksShown {
			fmt.Fprintf(&sb, "\n\t... and %d more", n-i)
			break
		}
		l := leak(i)
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
