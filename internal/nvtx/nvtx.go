//go:build gpu

package nvtx

/*
#cgo linux LDFLAGS: -ldl
#include <stdlib.h>
#include "nvtx.h"
*/
import "C"

import (
	"os"
	"sync"
	"unsafe"
)

// attached reports whether a tool listens.
var attached = sync.OnceValue(func() bool {
	path := os.Getenv("NVTX_INJECTION64_PATH")
	if path == "" {
		return false
	}
	name := C.CString(path)
	defer C.free(unsafe.Pointer(name))
	return C.cp_nvtx_load(name) != 0
})

// Start begins a range with a name that a tool shows, and with a number of bytes
// or the like beside it. It is safe from several goroutines.
func Start(name string, bytes int64) Range {
	if !attached() {
		return 0
	}
	return Range(C.cp_nvtx_start((*C.char)(unsafe.Pointer(unsafe.StringData(name))), C.size_t(len(name)), C.int64_t(bytes)))
}

// End ends the range. It is called at most once, on any goroutine.
func (r Range) End() {
	if r != 0 {
		C.cp_nvtx_end(C.uint64_t(r))
	}
}
