// Package nvtx names spans of time for NVIDIA's tools, by NVTX. A program hands the
// names to a tool that is attached to it, such as nsys. Where none is, nothing happens.
//
// A tool sets NVTX_INJECTION64_PATH to a library, which is loaded at the first
// range. The headers and libraries of NVTX are not needed: nvtx.go has the interface
// between such a library and a program, which is the same in all versions of NVTX 3.
//
// Ranges are those that start and end (nvtxDomainRangeStartEx), not those that are
// pushed on a thread's stack, because a goroutine may end one on another thread.
package nvtx

// Range is a span of time that has begun; the zero Range is none.
type Range uint64
