package nvtx

import (
	"os"
	"runtime"
	"sync"
	"unsafe"

	"github.com/cupool/cupool/internal/clib"
)

// What follows is the interface between a program and a tool's library, as NVTX 3
// fixes it. The library exports InitializeInjectionNvtx2, which gets a function
// that returns tables by number. It finds the table of callbacks there, asks it for
// the functions of each module, and fills in those that it has.

const (
	tableCallbacks = 1
	tableVersion   = 3
)

// The modules, of which the first is never used.
const (
	core2   = 5
	modules = 7
)

// sizes are, of each module, the number of functions and one: the first place is empty.
var sizes = [modules]uint32{0, 16, 9, 15, 7, 16, 7}

// Of core2.
const (
	domainRangeStartEx = 2
	domainRangeEnd     = 3
	domainCreateA      = 12
)

// The tool keeps addresses of these.
var (
	functions [modules][16]uintptr  // what the tool has, or 0
	tables    [modules][17]*uintptr // where they are, and nil at the end

	callbacks struct {
		size        uintptr
		moduleTable uintptr
	}
	versionInfo struct {
		size              uintptr
		version, reserved uint32
		setVersion        uintptr
	}
)

// moduleTable is called by a tool. It returns 1 for a module that there is.
func moduleTable(module uintptr, table **[17]*uintptr, size *uint32) uintptr {
	m := int(int32(module))
	if m < 1 || m >= modules {
		return 0
	}
	if table != nil {
		*table = &tables[m]
	}
	if size != nil {
		*size = sizes[m]
	}
	return 1
}

// exportTable is called by a tool.
func exportTable(id uintptr) uintptr {
	switch uint32(id) {
	case tableCallbacks:
		return uintptr(unsafe.Pointer(&callbacks))
	case tableVersion:
		return uintptr(unsafe.Pointer(&versionInfo))
	}
	return 0
}

// tool is what the tool's library has, and its domain for cupool.
var tool struct{ start, end, domain uintptr }

// attached reports whether a tool listens.
var attached = sync.OnceValue(func() bool {
	path := os.Getenv("NVTX_INJECTION64_PATH")
	return path != "" && load(path)
})

func load(path string) bool {
	l, err := clib.Open(path)
	if err != nil {
		return false
	}
	initialize := l.Find("InitializeInjectionNvtx2")
	if initialize == 0 {
		return false
	}
	for m := range tables {
		for i := 1; i < int(sizes[m]); i++ {
			tables[m][i] = &functions[m][i]
		}
	}
	callbacks.size, callbacks.moduleTable = unsafe.Sizeof(callbacks), clib.Callback(moduleTable)
	versionInfo.size, versionInfo.version, versionInfo.setVersion = unsafe.Sizeof(versionInfo), 3, clib.Callback(func(uintptr) uintptr { return 0 })
	if int32(clib.Call(initialize, clib.Callback(exportTable))) == 0 {
		return false
	}
	tool.start, tool.end = functions[core2][domainRangeStartEx], functions[core2][domainRangeEnd]
	if create := functions[core2][domainCreateA]; create != 0 {
		tool.domain = clib.Call(create, uintptr(unsafe.Pointer(clib.String("cupool"))))
	}
	return tool.start != 0 && tool.end != 0
}

// attributes is nvtxEventAttributes_t.
type attributes struct {
	version, size  uint16
	category       uint32
	colorType      int32
	color          uint32
	payloadType, _ int32
	payload        int64
	messageType, _ int32
	message        *byte
}

// longest is how many bytes of a name a tool gets, and the 0 at its end.
const longest = 256

// Start begins a range with a name that a tool shows, and with a number of bytes
// or the like beside it. What is beyond 255 bytes of the name is left out. It is safe
// from several goroutines.
func Start(name string, bytes int64) Range {
	if !attached() {
		return 0
	}
	const version, payloadInt64, messageASCII = 3, 2, 1
	a := clib.OnHeap(attributes{
		version: version, size: uint16(unsafe.Sizeof(attributes{})),
		payloadType: payloadInt64, payload: bytes,
		messageType: messageASCII, message: clib.String(name[:min(len(name), longest-1)]),
	})
	r := clib.Call(tool.start, tool.domain, uintptr(unsafe.Pointer(a)))
	runtime.KeepAlive(a)
	return Range(r)
}

// End ends the range. It is called at most once, on any goroutine.
func (r Range) End() {
	if r != 0 {
		clib.Call(tool.end, tool.domain, uintptr(r))
	}
}
