package cudadrv

import (
	"runtime"
	"unsafe"

	"github.com/cupool/cupool/internal/clib"
)

// ModuleLoad is cuModuleLoadData. The image is SASS, or PTX with a 0 at its end, and
// lies on Go's heap. It loads also while the calling thread captures a stream: what it does is done at once,
// and no part of the graph.
func ModuleLoad(ctx uintptr, image []byte) (uintptr, Result) {
	const relaxed = 2 // CU_STREAM_CAPTURE_MODE_RELAXED
	mode := clib.OnHeap(uint32(relaxed))
	exchange := step(fns.threadExchangeStreamCaptureMode, uintptr(unsafe.Pointer(mode)))
	exchange.Ignore, exchange.Always = true, true
	load := step(fns.moduleLoadData, 0, uintptr(unsafe.Pointer(unsafe.SliceData(image))))
	load.Out(0, 0)
	s := [3]clib.Step{exchange, load, exchange}
	steps := s[:]
	if exchange.Fn == 0 {
		steps = s[1:2]
	}
	r := run(ctx, steps)
	runtime.KeepAlive(mode)
	runtime.KeepAlive(image)
	return s[1].Value(0), r
}

// ModuleUnload is cuModuleUnload.
func ModuleUnload(ctx, module uintptr) Result { return call(ctx, fns.moduleUnload, module) }

// ModuleFunction is cuModuleGetFunction.
func ModuleFunction(ctx, module uintptr, name string) (uintptr, Result) {
	return valueGo(ctx, fns.moduleGetFunction, 0, 0, module, uintptr(unsafe.Pointer(clib.String(name))))
}

// Launch is cuLaunchKernel with a one-dimensional grid and at most six integer or
// pointer arguments. It passes every argument by the address of its 8 bytes; a kernel
// with a shorter parameter reads the first of them.
func Launch(ctx, function uintptr, grid, block int, stream uintptr, args ...uint64) Result {
	const (
		params = 11 // behind the call's own arguments: the addresses of the kernel's
		values = params + 6
	)
	if params+len(args) > values {
		return InvalidValue
	}
	s := [1]clib.Step{step(fns.launchKernel, function, uintptr(grid), 1, 1, uintptr(block), 1, 1, 0, stream, 0, 0)}
	s[0].Point(9, params)
	for i, v := range args {
		s[0].Args[values+i] = uintptr(v)
		s[0].Point(params+i, values+i)
	}
	return run(ctx, s[:])
}

// LaunchStruct is cuLaunchKernel of a kernel whose one parameter is a structure, with a
// grid of gridX times gridY blocks. args is the structure's address, given as
// uintptr(unsafe.Pointer(p)). It holds no Go pointer and may be reused when
// LaunchStruct returns, which makes one crossing and allocates nothing.
//
//go:uintptrescapes
func LaunchStruct(ctx, function uintptr, gridX, gridY, block int, stream, args uintptr) Result {
	s := [1]clib.Step{step(fns.launchKernel, function, uintptr(gridX), uintptr(gridY), 1, uintptr(block), 1, 1, 0, stream, 0, 0)}
	s[0].Out(9, 0) // the addresses of the parameters, of which there is one
	s[0].Args[clib.MaxArgs-1] = args
	return run(ctx, s[:])
}
