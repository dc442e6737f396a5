//go:build !amd64 && !arm64

package callstack

import "runtime"

// walk enters the return addresses of its caller's callers, the innermost first, and
// returns how many it entered, at most as many as pcs has room for.
func walk(pcs []uintptr) (n int) { return runtime.Callers(3, pcs) }
