// Package callstack prints where code was called from.
package callstack

import (
	"fmt"
	"runtime"
	"strings"
)

// Format prints program counters of runtime.Callers as Go prints a stack:
// function, file and line. Zeros at the end are left out, and so are the frames
// at the top whose functions skip is true for; nil skips none.
func Format(pc []uintptr, skip func(function string) bool) string {
	n := 0
	for n < len(pc) && pc[n] != 0 {
		n++
	}
	if n == 0 {
		return ""
	}
	var sb strings.Builder
	frames := runtime.CallersFrames(pc[:n])
	for {
		f, more := frames.Next()
		if skip != nil && skip(f.Function) && more {
			continue
		}
		skip = nil
		fmt.Fprintf(&sb, "%s\n\t%s:%d\n", f.Function, f.File, f.Line)
		if !more {
			return sb.String()
		}
	}
}
