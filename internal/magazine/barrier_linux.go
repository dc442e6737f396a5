//go:build linux && amd64 && !race

package magazine

import (
	"sync"

	"golang.org/x/sys/unix"

	"github.com/cupool/cupool/internal/atomic"
)

// Commands of membarrier(2).
const (
	membarrierGlobal            = 1 << 0
	membarrierExpedited         = 1 << 3
	membarrierRegisterExpedited = 1 << 4
)

// membarrier is a variable for tests.
var membarrier = func(cmd uintptr) bool {
	_, _, errno := unix.Syscall(unix.SYS_MEMBARRIER, cmd, 0, 0)
	return errno == 0
}

// hasBarrier reports whether the kernel can do what barrier asks for.
var hasBarrier = sync.OnceValue(func() bool {
	return membarrier(membarrierRegisterExpedited) && membarrier(membarrierExpedited)
})

// barrier returns true after every thread of the program has executed a full
// memory barrier. The expedited one may lack memory, the other takes milliseconds.
// Both may be refused to a program that was allowed them before: by a filter of
// system calls (seccomp) that it installed, or where it was restored from a
// checkpoint.
func barrier() bool {
	if done, ok := atomic.Barrier(); ok {
		return done
	}
	return membarrier(membarrierExpedited) || membarrier(membarrierGlobal)
}
