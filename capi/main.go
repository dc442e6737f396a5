// Command capi is the pools of package cupool as a C library: cupool.h, built by build.sh
// as libcupool.so. docs/c.md tells of its use.
//
// A call of a C program comes to one of the C files first:
//
//   - thread.c has what a thread knows of the library, and its way into Go and back. An
//     allocation and a free are served there when hit.c finds the block in its home.
//   - api.c passes the other calls on. It makes structs of any version whole.
//   - scopes.c knows which pool a thread allocates from.
//
// What they do not serve comes to the functions of Go that are exported to them: memory.go,
// pools.go, reclaim.go, stats.go, snapshot.go, share.go and page.go. device.go opens a pool,
// driver.go is what lies between it and CUDA's driver, and errors.go gives errors their code.
package main

// #cgo CFLAGS: -O2 -Wall -Wextra -Wno-unused-parameter -fvisibility=hidden
// #cgo LDFLAGS: -ldl -pthread
import "C"

import (
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
)

// Processors and memory of Go's runtime are the program's, which has its own use for them.
const (
	processors = 2         // that run Go at once
	heapPart   = 50        // of GOGC
	heapLimit  = 512 << 20 // bytes from which on Go's collector runs more often
)

func init() {
	n := min(processors, runtime.NumCPU())
	if v, err := strconv.Atoi(os.Getenv("CUPOOL_GOMAXPROCS")); err == nil && v > 0 {
		n = v
	} else if os.Getenv("GOMAXPROCS") != "" {
		n = runtime.GOMAXPROCS(0)
	}
	runtime.GOMAXPROCS(n)
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(heapPart)
	}
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(heapLimit)
	}
}

func main() {}
