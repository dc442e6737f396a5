//go:build !gpu

package cupool

import "fmt"

// errNoCUDA says what to do about a program without CUDA.
func errNoCUDA(what string) error {
	return fmt.Errorf(`cupool: %s: this program was built without CUDA: %w; build it with -tags gpu after eval "$(go run github.com/cupool/cupool/cmd/cupool env)"`, what, ErrNotSupported)
}

// OpenCUDA opens a GPU by its ordinal. This build has no CUDA: it always
// fails with ErrNotSupported and says how to build one that has.
func OpenCUDA(ordinal int, opts ...CUDAOption) (Driver, error) {
	return nil, errNoCUDA(fmt.Sprintf("opening cuda:%d", ordinal))
}

// OpenCUDAContext opens a GPU over a CUcontext that the program already has.
// This build has no CUDA: it always fails with ErrNotSupported and says how
// to build one that has.
func OpenCUDAContext(context uintptr, opts ...CUDAOption) (Driver, error) {
	return nil, errNoCUDA(fmt.Sprintf("opening CUDA context 0x%x", context))
}

// CUDADevices describes the GPUs. This build has no CUDA: it always fails
// with ErrNotSupported and says how to build one that has.
func CUDADevices() ([]CUDADevice, error) {
	return nil, errNoCUDA("listing CUDA devices")
}

// CUDAVersion returns versions. This build has no CUDA: it always fails with
// ErrNotSupported and says how to build one that has.
func CUDAVersion() (CUDAVersions, error) {
	return CUDAVersions{}, errNoCUDA("CUDA's version")
}
