// Package callstack prints where code was called from.
package callstack

import (
	"fmt"
	"runtime"
	"strings"
)

// Frame is a function in a stack.
type Frame struct {
	Function string // with the path of its package
	File     string
	Line     int
}

// Frames returns what program counters of runtime.Callers stand for, the innermost
// function first. Zeros at the end are left out, and so are the frames at the top
// whose functions skip is true for; nil skips none.
func Frames(pc []uintptr, skip func(function string) bool) (list []Frame) {
	n := 0
	for n < len(pc) && pc[n] != 0 {
		n++
	}
	if n == 0 {
		return nil
	}
	frames := runtime.CallersFrames(pc[:n])
	for {
		f, more := frames.Next()
		if skip != nil && skip(f.Function) && more {
			continue
		}
		skip = nil
		list = append(list, Frame{f.Function, f.File, f.Line})
		if !more {
			return list
		}
	}
}

// Format prints Frames as Go prints a stack: function, file and line.
func Format(pc []uintptr, skip func(function string) bool) string {
	var sb strings.Builder
	for _, f := range Frames(pc, skip) {
		fmt.Fprintf(&sb, "%s\n\t%s:%d\n", f.Function, f.File, f.Line)
	}
	return sb.String()
}
