package callstack

import (
	"runtime"
	"slices"
	"sync"
)

// Finder finds functions among the callers of a function. It looks up the name
// of each place in the program once. Its method is safe from several goroutines.
type Finder struct {
	functions []string
	known     sync.Map // of program counters to names, "" where it is none of functions
}

// NewFinder returns a Finder of functions, as "path/to/package.(*Type).Method".
func NewFinder(functions ...string) *Finder { return &Finder{functions: functions} }

// depth is how many callers a Finder looks at.
const depth = 8

// Find returns the innermost of the functions that the caller of Find was
// called by, over at most 8 levels, or "".
func (f *Finder) Find() string {
	var pcs [depth]uintptr
	for _, pc := range pcs[:runtime.Callers(3, pcs[:])] {
		name, ok := f.known.Load(pc)
		if !ok {
			name = f.lookUp(pc)
		}
		if name != "" {
			return name.(string)
		}
	}
	return ""
}

func (f *Finder) lookUp(pc uintptr) any {
	frame, _ := runtime.CallersFrames([]uintptr{pc}).Next()
	name := ""
	if slices.Contains(f.functions, frame.Function) {
		name = frame.Function
	}
	f.known.Store(pc, name)
	return name
}
