//go:build !race

package testkit

// Race is true in builds with the race detector.
const Race = false
