//go:build amd64 || arm64

package callstack

// walk enters the return addresses of its caller's callers, the innermost first, and
// returns how many it entered, at most as many as pcs has room for. It takes a few
// nanoseconds, runtime.Callers hundreds.
//
//go:noescape
func walk(pcs []uintptr) (n int)
