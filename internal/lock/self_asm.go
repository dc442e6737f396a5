//go:build invariants && (amd64 || arm64)

package lock

// self returns the address of the runtime's record of the calling goroutine. A later
// goroutine may have the same one.
func self() uintptr
