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
	within    func(function string) bool
	// known has return addresses, each at the place of its hash: the address, shifted
	// to the left by idBits, and below it 1 more than the index in functions of the
	// function that it lies in, or 0, or outside.
	known [1 << knownBits]atomic.Uint64
}

const (
	knownBits = 10
	idBits    = 8 // addresses have 56 bits at most
	outside   = 1<<idBits - 1
)

// NewFinder returns a Finder of at most 254 functions, as
// "path/to/package.(*Type).Method". It looks no further than to the innermost caller
// that within does not report true of; nil: to all.
func NewFinder(within func(function string) bool, functions ...string) *Finder {
	return &Finder{functions: functions, within: within}
}

// near and far are at how many callers a Finder looks, inlined ones not counted: at far
// of them only where it is not done after near, as it is mostly.
const (
	near = 4
	far  = 10
)

// Find returns the innermost of the functions that the caller of Find was
// called by, over at most 10 levels, inlined ones not counted, or "".
func (f *Finder) Find() string {
	var pcs [near]uintptr
	id := f.first(pcs[:walk(pcs[:])])
	if id == 0 {
		id = f.findFar()
	}
	if id == 0 || id == outside {
		return ""
	}
	return f.functions[id-1]
}

// findFar is Find beyond the callers that are near.
//
//go:noinline
func (f *Finder) findFar() uint64 {
	var pcs [1 + far]uintptr
	n := walk(pcs[:]) // the first is in Find
	return f.first(pcs[min(1+near, n):n])
}

// first returns what known has for the first of the callers that it has anything for, or 0.
func (f *Finder) first(pcs []uintptr) uint64 {
	for _, pc := range pcs {
		known := f.place(pc).Load()
		if known>>idBits != uint64(pc) {
			known = f.lookUp(pc)
		}
		if id := known & (1<<idBits - 1); id != 0 {
			return id
		}
	}
	return 0
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
		known |= f.idOf(runtime.CallersFrames(all[i:]))
	}
	f.place(pc).Store(known)
	return known
}

// idOf returns what known has for the first function of frames that is not inlined, and
// those that are inlined in it.
func (f *Finder) idOf(frames *runtime.Frames) uint64 {
	for {
		frame, more := frames.Next()
		if id := slices.Index(f.functions, frame.Function); id >= 0 {
			return uint64(id + 1)
		}
		if f.within != nil && !f.within(frame.Function) {
			return outside
		}
		if frame.Func != nil || !more {
			return 0
		}
	}
}
