//go:build amd64

package clib

import (
	"fmt"
	"path/filepath"

	"golang.org/x/sys/windows"
)

// A Library is a library that is open. It stays so until the program ends.
type Library struct{ handle windows.Handle }

// Open opens the library at a path, or of a name that the system's loader looks for.
// The error is the loader's.
func Open(path string) (Library, error) {
	flags := uintptr(0)
	if filepath.IsAbs(path) {
		flags = windows.LOAD_WITH_ALTERED_SEARCH_PATH // what it needs lies beside it
	}
	h, err := windows.LoadLibraryEx(path, 0, flags)
	if err != nil {
		return Library{}, fmt.Errorf("%s: %w", path, err)
	}
	return Library{h}, nil
}

// Find returns the address of a symbol, or 0.
func (l Library) Find(symbol string) uintptr {
	p, err := windows.GetProcAddress(l.handle, symbol)
	if err != nil {
		return 0
	}
	return p
}
