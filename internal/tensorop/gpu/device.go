package gpu

import (
	"github.com/cupool/cupool/device"
	"github.com/cupool/cupool/internal/cublas"
	"github.com/cupool/cupool/internal/kernels"
)

// Device is the optional part of a cupool.Driver that computes: a GPU with
// device memory. Its methods are safe from several goroutines.
type Device interface {
	// LoadKernels makes the kernels ready. It fails with ErrNotSupported
	// where they cannot be had.
	LoadKernels(images kernels.Images) error
	// LaunchKernel submits a kernel to s, after LoadKernels.
	LaunchKernel(l kernels.Launch, s device.Stream) error
	// Multiply submits a product to s with the cuBLAS handle of the stream of.
	// The second stream of a capture has no handle of its own, because making
	// one may wait for the device. Multiply fails with cublas.ErrMissing
	// where there is no cuBLAS.
	Multiply(p *cublas.Product, of, s device.Stream) error
	// Workspace returns how many bytes of workspace suit Multiply best.
	Workspace() int64
}
