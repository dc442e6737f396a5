package cudadrv

import "github.com/cupool/cupool/internal/clib"

// call makes one call in a context. It allocates nothing. No argument is the address of
// Go memory.
func call(ctx, fn uintptr, args ...uintptr) Result { return callIn(scope, ctx, fn, args) }

// value is call for a function that writes a result of at most eight bytes to where its
// argument i points.
func value(ctx, fn uintptr, i int, args ...uintptr) (uintptr, Result) {
	return valueIn(scope, ctx, fn, i, args)
}

// bare and bareValue are call and value for functions that need no context.
func bare(fn uintptr, args ...uintptr) Result { return callIn(clib.Scope{}, 0, fn, args) }

func bareValue(fn uintptr, i int, args ...uintptr) (uintptr, Result) {
	return valueIn(clib.Scope{}, 0, fn, i, args)
}

// callGo, valueGo and bareGo take addresses of Go memory, too, given as
// uintptr(unsafe.Pointer(p)) in the call itself. They move it to the heap.
//
//go:uintptrescapes
func callGo(ctx, fn uintptr, args ...uintptr) Result { return call(ctx, fn, args...) }

//go:uintptrescapes
func valueGo(ctx, fn uintptr, i int, args ...uintptr) (uintptr, Result) {
	return value(ctx, fn, i, args...)
}

//go:uintptrescapes
func bareGo(fn uintptr, args ...uintptr) Result { return bare(fn, args...) }

func callIn(in clib.Scope, ctx, fn uintptr, args []uintptr) Result {
	if fn == 0 {
		return Missing
	}
	var s [1]clib.Step
	s[0].Set(fn, args...)
	err, _ := in.Run(ctx, 0, s[:]...)
	return Result(err)
}

func valueIn(in clib.Scope, ctx, fn uintptr, i int, args []uintptr) (uintptr, Result) {
	if fn == 0 {
		return 0, Missing
	}
	var s [1]clib.Step
	s[0].Set(fn, args...)
	s[0].Out(i, 0)
	err, _ := in.Run(ctx, 0, s[:]...)
	return s[0].Value(0), Result(err)
}

// run makes calls in a context, up to the first that fails.
func run(ctx uintptr, steps []clib.Step) Result {
	err, _ := scope.Run(ctx, 0, steps...)
	return Result(err)
}

// Run makes the calls of another library of CUDA's in a context, in one crossing: see
// clib.Scope. entered is false, and r the driver's, where the context cannot be set.
func Run(ctx uintptr, ok int32, steps ...clib.Step) (r int32, entered bool) {
	return scope.Run(ctx, ok, steps...)
}
