package cudadrv

import "github.com/cupool/cupool/internal/clib"

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
	s := [1]clib.Step{clib.StepOf(fns.launchKernel, function, uintptr(grid), 1, 1, uintptr(block), 1, 1, 0, stream, 0, 0)}
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
	var s [1]clib.Step
	s[0].Set(fns.launchKernel, function, uintptr(gridX), uintptr(gridY), 1, uintptr(block), 1, 1, 0, stream, 0, 0)
	s[0].Out(9, 0) // the addresses of the parameters, of which there is one
	s[0].Args[clib.MaxArgs-1] = args
	return run(ctx, s[:])
}
