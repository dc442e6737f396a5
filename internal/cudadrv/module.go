//go:build gpu

package cudadrv

/*
#include <stdlib.h>
#include "calls.h"
*/
import "C"

import "unsafe"

// ModuleLoad is cuModuleLoadData. The image is PTX.
func ModuleLoad(ctx uintptr, image string) (uintptr, Result) {
	s := C.CString(image)
	defer C.free(unsafe.Pointer(s))
	return value(C.cp_module_load(C.uintptr_t(ctx), s))
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
