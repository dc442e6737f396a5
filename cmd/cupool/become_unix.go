//go:build unix

package main

import (
	"fmt"
	"syscall"
)

// become runs a program in place of this one, so that signals, the exit status
// and the terminal are its own. It returns only when that fails.
func become(path string, args, env []string) error {
	return fmt.Errorf("%s: %w", path, syscall.Exec(path, args, env))
}
