package calls

import (
	"fmt"
	"runtime"
	"strings"

	"github.com/cupool/cupool/device"
)

// Run calls a function of Go that the stream has come to.
func (s *Stream) Run(f func()) {
	s.within.Add(1)
	defer s.within.Add(-1) // f may panic, or end its goroutine
	f()
}

// Outside fails with ErrNotPermitted where the stream runs a function and the caller is
// called by one: a wait for the stream would not end.
func (s *Stream) Outside(op string) error {
	if s.within.Load() == 0 || !inFunction() {
		return nil
	}
	return fmt.Errorf("cupool: %s from a launched function would wait for %v, which runs one: %w; wait outside of it", op, s.handle, device.ErrNotPermitted)
}

// inFunction reports whether the caller was called by Run. What runs a goroutine's stream
// is not known to others, so that the stack tells, where it matters only.
func inFunction() bool {
	pcs := make([]uintptr, 64)
	for n := runtime.Callers(2, pcs); n == len(pcs); n = runtime.Callers(2, pcs) {
		pcs = make([]uintptr, 2*len(pcs))
	}
	frames := runtime.CallersFrames(pcs)
	for {
		f, more := frames.Next()
		if strings.HasSuffix(f.Function, "/calls.(*Stream).Run") {
			return true
		}
		if !more {
			return false
		}
	}
}
