//go:build !((linux && (amd64 || arm64)) || (windows && amd64))

package clib

import (
	"errors"
	"fmt"
	"runtime"
)

// A Library is a library that is open.
type Library struct{}

// Open fails: nothing can be opened on this system.
func Open(path string) (Library, error) {
	return Library{}, fmt.Errorf("%s on %s/%s: %w", path, runtime.GOOS, runtime.GOARCH, errors.ErrUnsupported)
}

// Find returns 0.
func (Library) Find(string) uintptr { return 0 }

// Callback returns 0.
func Callback(any) uintptr { return 0 }

func run(*crossing) {}

func callback(*crossing) {}
