//go:build gpu

package cudadrv

/*
#cgo noescape cp_launch_struct
#cgo nocallback cp_launch_struct
#include <stdlib.h>
#include "calls.h"
*/
import "C"

import "unsafe"

// ModuleLoad is cuModuleLoadData. The image is machine code, or PTX that ends with
// a zero.
func ModuleLoad(ctx uintptr, image []byte) (uintptr, Result) {
	return value(C.cp_module_load(C.uintptr_t(ctx), (*C.char)(unsafe.Pointer(unsafe.SliceData(image)))))
}

// ModuleUnload is cuModuleUnload.
func ModuleUnload(ctx, module uintptr) Result {
	return Result(C.cp_module_unload(C.uintptr_t(ctx), C.uintptr_t(module)))
}

// ModuleFunction is cuModuleGetFunction.
func ModuleFunction(ctx, module uintptr, name string) (uintptr, Result) {
	s := C.CString(name)
	defer C.free(unsafe.Pointer(s))
	return value(C.cp_module_function(C.uintptr_t(ctx), C.uintptr_t(module), s))
}

// Launch is cuLaunchKernel with a one-dimensional grid and at most eight
// integer or pointer arguments.
func Launch(ctx, function uintptr, grid, block int, stream uintptr, args ...uint64) Result {
	return Result(C.cp_launch(C.uintptr_t(ctx), C.uintptr_t(function), C.uint(grid), C.uint(block), C.uintptr_t(stream), (*C.uint64_t)(unsafe.SliceData(args)), C.size_t(len(args))))
}

// LaunchStruct is cuLaunchKernel of a kernel whose one parameter is a
// structure, with a grid of gridX times gridY blocks. args is the structure,
// which holds no Go pointer and may be reused when it returns. It makes one
// crossing and allocates nothing.
func LaunchStruct(ctx, function uintptr, gridX, gridY, block int, stream uintptr, args unsafe.Pointer) Result {
	return Result(C.cp_launch_struct(C.uintptr_t(ctx), C.uintptr_t(function), C.uint(gridX), C.uint(gridY), C.uint(block), C.uintptr_t(stream), args))
}
