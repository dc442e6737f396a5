package cuda

import (
	"errors"
	"fmt"

	"github.com/cupool/cupool/device"
	"github.com/cupool/cupool/internal/cublas"
	"github.com/cupool/cupool/internal/cudadrv"
	"github.com/cupool/cupool/internal/kernels"
)

// The methods that the operations of package internal/tensorop/gpu ask of a
// device.

// LoadKernels makes the kernels ready; those of large modules are loaded when one
// of them is first launched. It fails with ErrNotSupported for other memory than
// the device's. Where there is no machine code for the GPU, the driver compiles
// PTX the first time and keeps the result in the user's cache directory.
func (d *driver) LoadKernels(images kernels.Images) error {
	if err := d.usable(); err != nil {
		return err
	}
	if d.kind != MemoryDevice {
		return fmt.Errorf("cupool: %s: the CPU computes: %w", d.label, device.ErrNotSupported)
	}
	return d.ctx.kernels.start(d.ctx, images)
}

// LaunchKernel submits a kernel to s, after LoadKernels.
func (d *driver) LaunchKernel(l kernels.Launch, s StreamHandle) error {
	if err := d.usable(); err != nil {
		return err
	}
	if err := d.ctx.kernels.load(d.ctx, l.Kernel.Module()); err != nil {
		return err
	}
	r := cudadrv.LaunchStruct(d.ctx.handle, d.ctx.kernels.functions[l.Kernel], l.X, l.Y, l.Block, uintptr(s), uintptr(l.Args))
	if r != cudadrv.Success {
		return d.ctx.fail("cuLaunchKernel", r, fmt.Sprintf("%s, %d×%d blocks of %d, %s", l.Kernel.Name(), l.X, l.Y, l.Block, stream(s)))
	}
	return nil
}

// Multiply submits a product to s with the cuBLAS handle of the stream of. It
// fails with cublas.ErrMissing, and ErrNotSupported, where there is no cuBLAS.
func (d *driver) Multiply(p *cublas.Product, of, s StreamHandle) error {
	if err := d.usable(); err != nil {
		return err
	}
	h, err := d.blas.of(d.ctx.handle, of)
	if err == nil {
		err = h.Gemm(uintptr(s), p)
	}
	switch {
	case err == nil, errors.Is(err, cublas.ErrSize):
		return err
	case errors.Is(err, cublas.ErrMissing):
		return fmt.Errorf("cupool: %s: %w: %w", d.label, device.ErrNotSupported, err)
	}
	return fmt.Errorf("cupool: %s: product of %d×%d and %d×%d matrices on %s: %w", d.label, p.A.Rows, p.A.Cols, p.B.Rows, p.B.Cols, stream(s), err)
}

// Workspace returns the bytes that cuBLAS' documentation recommends.
func (d *driver) Workspace() int64 {
	const hopper = 9
	if d.major >= hopper {
		return 32 << 20
	}
	return 4 << 20
}

// BlasHandles returns how many cuBLAS handles the Driver has, and how many of
// them serve no stream. Tests ask for it.
func (d *driver) BlasHandles() (all, idle int) { return d.blas.count() }
