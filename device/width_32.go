//go:build 386 || arm || mips || mipsle

package device

// Addresses of a device take 64 bits, and a Ptr is a uintptr. The line below is
// what a build for a 32-bit system says.
var _ = cupool_needs_a_64_bit_system
