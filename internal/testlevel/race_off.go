//go:build !race

package testlevel

// Race is true in builds with the race detector.
const Race = false
