// Package clib opens C libraries at run time and calls their functions, with and
// without cgo, on linux/amd64, linux/arm64 and windows/amd64. On other systems
// nothing can be opened.
//
// Go's runtime has one way to run C, cgocall: it runs a routine on the thread's
// system stack and tells the scheduler that the goroutine may stay there long. cgo
// calls it for each C function. Here the routine is a small one in assembly (cross)
// that makes several calls, so that a call into CUDA costs one crossing together with
// those that set its context and restore the thread's own. package purego has
// opened the way for programs without cgo: it starts threads in C's manner and finds
// dlopen.
package clib

import (
	"iter"
	"runtime"
	"unsafe"
)

// A Step is one call of a C function whose arguments are integers and pointers.
// A structure that C passes by value is given as C's calling convention has it on
// the system: see Bytes.
type Step struct {
	Fn   uintptr
	N    int // how many of Args there are
	Args [MaxArgs]uintptr

	// Local has bit i set where Args[i] is an offset in this Step, which becomes an
	// address: see Point. It is how a function reads and writes words that have no
	// room on Go's heap.
	Local uint64

	// List makes a call for each of Count words at List as the first argument, up to
	// the first call that fails. Done counts the others.
	List  *uintptr
	Count int
	Done  int

	Always bool // it is made after a call that failed, too
	Ignore bool // a failure of it is none of the crossing

	Result uintptr // what the function returned; the low half where that is an int
}

// MaxArgs is the most arguments of a call. The last of them have room for results.
const MaxArgs = 24

// StepOf returns the call of a function with arguments.
func StepOf(fn uintptr, args ...uintptr) (s Step) {
	s.Set(fn, args...)
	return s
}

// Set sets the function and its arguments. Where a Step lies already, it is cheaper than
// StepOf.
func (s *Step) Set(fn uintptr, args ...uintptr) {
	s.Fn, s.N = fn, len(args)
	//lint:ignore S1001 copy would load two words at once, which have just been stored one by one, and stall
	for i, a := range args {
		s.Args[i] = a
	}
}

// Point makes Args[i] the address of Args[j], which is free for that from N on.
func (s *Step) Point(i, j int) {
	s.Args[i] = unsafe.Offsetof(s.Args) + uintptr(j)*unsafe.Sizeof(s.Args[0])
	s.Local |= 1 << i
}

// Out makes Args[i] the address of the last argument's room, or of the one before
// it for the second result, and so on: Value returns what was written there.
func (s *Step) Out(i, result int) { s.Point(i, MaxArgs-1-result) }

// Value returns a result that Out made room for.
func (s *Step) Value(result int) uintptr { return s.Args[MaxArgs-1-result] }

// Err is the result of a function that returns an int.
func (s *Step) Err() int32 { return int32(s.Result) }

// A Scope is the two functions that get and set the context of a thread, both with a
// result that is not 0 when they fail. The zero Scope has no context.
type Scope struct{ Get, Set uintptr }

// crossing is what cross works on.
type crossing struct {
	get, set  uintptr
	ctx, prev uintptr // prev: the thread's context, where it has to be restored
	steps     *Step
	n         int
	ok        int // another result than 0 that is no failure
	err       int
}

// Run makes calls in a context in one crossing, on one thread: it makes ctx the
// thread's context, makes the calls up to the first that fails, those with Always
// after it, and restores the thread's own context. A thread that had none keeps ctx,
// which makes the next crossing there cheaper. It returns the first result that is a
// failure, not 0 and not ok, or 0; entered is false where the failure is that of Get
// or Set, and then nothing was called. It allocates nothing.
//
// What the calls read and write apart from the Steps has to lie on Go's heap, or
// outside of Go, and the functions must not call back into Go.
func (s Scope) Run(ctx uintptr, ok int32, steps ...Step) (err int32, entered bool) {
	var x crossing // a literal would be copied from words that are just being stored, which stalls
	x.get, x.set, x.ctx = s.Get, s.Set, ctx
	x.steps, x.n, x.ok = unsafe.SliceData(steps), len(steps), int(ok)
	run(&x)
	return int32(x.err), x.n >= 0
}

// Call makes a call and returns what the function returned. The arguments may be
// addresses of Go memory, given as uintptr(unsafe.Pointer(p)) in the call itself, and
// the function may call back into Go.
//
//go:uintptrescapes
func Call(fn uintptr, args ...uintptr) uintptr {
	s := new(Step)
	s.Set(fn, args...)
	callback(&crossing{steps: s, n: 1})
	return s.Result
}

// OpenFirst opens the first of several paths or names that can be opened, and returns
// which it is, or the error of the last.
func OpenFirst(paths iter.Seq[string]) (l Library, path string, err error) {
	for path = range paths {
		if l, err = Open(path); err == nil {
			break
		}
	}
	return l, path, err
}

// OnHeap returns a copy of v on Go's heap, for what C reads or writes.
//
//go:noinline
func OnHeap[T any](v T) *T { return &v }

// String returns C's form of s, on Go's heap.
func String(s string) *byte { return unsafe.StringData(s + "\x00") }

// GoString returns the string at p, which lies outside of Go's heap, or "" for 0.
func GoString(p uintptr) string {
	if p == 0 {
		return ""
	}
	start := *(*unsafe.Pointer)(unsafe.Pointer(&p))
	n := 0
	for *(*byte)(unsafe.Add(start, n)) != 0 {
		n++
	}
	return string(unsafe.Slice((*byte)(start), n))
}

// Bytes sets arguments from i on as C passes a structure of more than 16 bytes by value,
// and returns the index of the next argument. On linux/amd64 its words lie on the
// stack, behind the arguments in registers; elsewhere its address is the argument. b
// is a multiple of eight bytes, lies on Go's heap and is kept alive by the caller.
func (s *Step) Bytes(i int, b []byte) (next int) {
	if !(runtime.GOOS == "linux" && runtime.GOARCH == "amd64") {
		s.Args[i] = uintptr(unsafe.Pointer(unsafe.SliceData(b)))
		s.N = max(s.N, i+1)
		return i + 1
	}
	words := unsafe.Slice((*uintptr)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/8)
	s.N = registers + copy(s.Args[registers:], words)
	return i
}

// registers is how many arguments linux/amd64 passes in registers.
const registers = 6
