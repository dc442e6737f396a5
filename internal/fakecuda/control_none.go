//go:build !gpu

package fakecuda

// Loaded reports whether this process runs on the stand-in.
func Loaded() bool { return false }

// Fail does nothing.
func Fail(string, int, int, int) {}

// Reset does nothing.
func Reset() {}

// Count does nothing.
func Count(bool) {}

// Calls returns 0.
func Calls(string) int { return 0 }
