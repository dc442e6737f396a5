package callstack

import (
	"runtime"
	"slices"
	"sync/atomic"
)

// Finder finds functions among the callers of a function. It looks up the name
// of each place in the program once. Its method is safe from several goroutines.
type Finder struct {
	functions []string
	// known has return addresses, each at the place of its hash: the address, shifted
	// to the left by idBits, and below it 1 more than the index in functions of the
	// function that it lies in, or 0.
	known [1 << knownBits]atomic.Uint64
}

const (
	knownBits = 10
	idBits    = 8 // addresses have 56 bits at most
)

// NewFinder returns a Finder of at most 255 functions, as
// "path/to/package.(*Type).Method".
func NewFinder(functions ...string) *Finder { return &Finder{functions: functions} }

// depth is how many callers a Finder looks at, inlined ones not counted.
const depth = 8

// Find returns the innermost of the functions that the caller of Find was
// called by, over at least 6 levels, or "".
func (f *Finder) Find() string {
	var pcs [depth]uintptr
	for _, pc := range pcs[:walk(&pcs)] {
		known := f.place(pc).Load()
		if known>>idBits != uint64(pc) {
			known = f.lookUp(pc)
		}
		if id := known & (1<<idBits - 1); id != 0 {
			return f.functions[id-1]
		}
	}
	return ""
}

func (f *Finder) place(pc uintptr) *atomic.Uint64 {
	return &f.known[uint64(pc)*0x9E3779B97F4A7C15>>(64-knownBits)]
}

// lookUp enters the return address of a caller into known.
func (f *Finder) lookUp(pc uintptr) uint64 {
	known := uint64(pc) << idBits
	var callers [64]uintptr
	all := callers[:runtime.Callers(1, callers[:])]
	if i := slices.Index(all, pc); i >= 0 { // or the compiler made the function, to call another
		frames := runtime.CallersFrames(all[i:])
		for more, inlined := true, true; more && inlined; {
			var frame runtime.Frame
			frame, more = frames.Next()
			if id := slices.Index(f.functions, frame.Function); id >= 0 {
				known |= uint64(id + 1)
				break
			}
			inlined = frame.Func == nil
		}
	}
	f.place(pc).Store(known)
	return known
}
