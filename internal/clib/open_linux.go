//go:build amd64 || arm64

package clib

import (
	"runtime"

	"github.com/ebitengine/purego"
)

// A Library is a library that is open. It stays so until the program ends.
type Library struct{ handle uintptr }

// Open opens the library at a path, or of a name that the system's loader looks for.
// The error is the loader's.
func Open(path string) (Library, error) {
	runtime.LockOSThread() // the loader keeps its errors by thread
	defer runtime.UnlockOSThread()
	h, err := purego.Dlopen(path, purego.RTLD_NOW|purego.RTLD_LOCAL)
	return Library{h}, err
}

// Find returns the address of a symbol, or 0.
func (l Library) Find(symbol string) uintptr {
	p, err := purego.Dlsym(l.handle, symbol)
	if err != nil {
		return 0
	}
	return p
}
