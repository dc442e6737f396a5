package fakecuda

import (
	"os"
	"sync"
	"unsafe"

	"github.com/cupool/cupool/internal/clib"
	"github.com/cupool/cupool/internal/cudalibs"
)

// find returns the address of a function of the library that CUPOOL_LIBCUDA
// names, or 0.
var find = sync.OnceValue(func() func(string) uintptr {
	path := os.Getenv(cudalibs.Driver)
	if path != "" {
		if l, err := clib.Open(path); err == nil {
			return l.Find
		}
	}
	return func(string) uintptr { return 0 }
})

// call calls a function of the stand-in. Elsewhere it returns 0.
//
//go:uintptrescapes
func call(function string, args ...uintptr) uintptr {
	f := find()(function)
	if f == 0 {
		return 0
	}
	return clib.Call(f, args...)
}

// Loaded reports whether CUPOOL_LIBCUDA names the stand-in.
func Loaded() bool { return find()("fakecuda_fail") != 0 }

// Fail makes the nth call from now (1: the next) of the named entry point
// fail with the CUresult code, and the times-1 calls after it. The names are
// the library's, such as cuMemAlloc_v2; those of NCCL, such as ncclAllReduce, fail
// with the ncclResult_t code. A code that means a lost context makes it lost.
func Fail(entry string, nth, code, times int) {
	call("fakecuda_fail", uintptr(unsafe.Pointer(clib.String(entry))), uintptr(nth), uintptr(code), uintptr(times))
}

// Reset forgets all faults, delays and counts.
func Reset() { call("fakecuda_reset") }

// SetMemory sets a device's memory in bytes.
func SetMemory(device int, bytes int64) { call("fakecuda_set_memory", uintptr(device), uintptr(bytes)) }

// Count starts counting calls, from 0, or stops.
func Count(on bool) {
	var yes uintptr
	if on {
		yes = 1
	}
	call("fakecuda_count", yes)
}

// Calls returns how often the named entry point was called since Count.
func Calls(entry string) int {
	return int(call("fakecuda_calls", uintptr(unsafe.Pointer(clib.String(entry)))))
}

// RDMA reports whether network cards may reach the memory of a handle of
// cuMemCreate.
func RDMA(handle uintptr) bool { return call("fakecuda_rdma", handle) != 0 }

// HostMemory returns how many bytes may still be pinned, and in all. The
// error is always nil.
func HostMemory() (free, total int64, err error) {
	f, t := new(int64), new(int64)
	call("fakecuda_host_memory", uintptr(unsafe.Pointer(f)), uintptr(unsafe.Pointer(t)))
	return *f, *t, nil
}
