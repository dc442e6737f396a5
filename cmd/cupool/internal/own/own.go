// Package own finds what of a Go stack is the user's program.
package own

import (
	"slices"
	"strings"

	"github.com/cupool/cupool/snapshot"
)

// libraries are parts of the names of functions, and of files, that are not the
// user's.
var libraries = []string{"github.com/cupool/cupool.", "github.com/cupool/cupool/", "gorgonia.org/", "/site-packages/", "/dist-packages/", "runtime."}

// Of returns a stack from the first line on, the innermost, that is not a library's,
// or all of it where there is none. The tests of a library are a program.
func Of(s snapshot.Stack) snapshot.Stack {
	i := slices.IndexFunc(s, func(f snapshot.Frame) bool {
		return strings.HasSuffix(f.File, "_test.go") || !slices.ContainsFunc(libraries, func(lib string) bool {
			return strings.HasPrefix(f.Function, lib) || strings.Contains(f.File, lib)
		})
	})
	return s[max(i, 0):]
}
