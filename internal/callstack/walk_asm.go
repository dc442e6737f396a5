//go:build amd64 || arm64

package callstack

// walk enters the return addresses of its callers, the innermost first, and
// returns how many it entered. It takes a few nanoseconds, runtime.Callers hundreds.
//
//go:noescape
func walk(pcs *[depth]uintptr) (n int)
