//go:build !linux

package block

// useHugePages does nothing: these systems choose by themselves.
func useHugePages([]byte) {}
