//go:build invariants

package magazine

import (
	_ "unsafe" // for go:linkname

	"github.com/cupool/cupool/internal/atomic"
)

//go:linkname runtimePin runtime.procPin
func runtimePin() int

//go:linkname runtimeUnpin runtime.procUnpin
func runtimeUnpin()

// procPin pins the goroutine to its processor, in a schedule of
// internal/atomic/interleave to that which the schedule gives it.
func procPin() int {
	if id, ok := atomic.Pin(); ok {
		return id
	}
	return runtimePin()
}

func procUnpin() {
	if !atomic.Unpin() {
		runtimeUnpin()
	}
}
