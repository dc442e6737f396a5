//go:build linux && amd64 && !race

package magazine

import (
	"runtime"
	"sync"

	"golang.org/x/sys/unix"
)

// Commands of membarrier(2).
const (
	membarrierGlobal            = 1 << 0
	membarrierExpedited         = 1 << 3
	membarrierRegisterExpedited = 1 << 4
)

func membarrier(cmd uintptr) bool {
	_, _, errno := unix.Syscall(unix.SYS_MEMBARRIER, cmd, 0, 0)
	return errno == 0
}

// hasBarrier reports whether the kernel can do what barrier asks for.
var hasBarrier = sync.OnceValue(func() bool {
	return membarrier(membarrierRegisterExpedited) && membarrier(membarrierExpedited)
})

// barrier returns after every thread of the program has executed a full memory
// barrier. The expedited one may lack memory, the other takes milliseconds.
func barrier() {
	for !membarrier(membarrierExpedited) && !membarrier(membarrierGlobal) {
		runtime.Gosched()
	}
}
